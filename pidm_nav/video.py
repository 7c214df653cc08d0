"""Shows frames in a window, puts them side by side, and saves them as videos."""

from __future__ import annotations

import io
import os
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.files import atomic_file, writable_folder

if TYPE_CHECKING:
    import pygame

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # otherwise pygame prints a greeting

Frame = NDArray[np.uint8]
PYGAME_CURE = "pip uninstall -y pygame pygame-ce && pip install pygame-ce"


def require_pygame_ce() -> str:
    """Return the version of pygame-ce; an ImportError says the cure where pygame has overwritten it."""
    import pygame

    if not getattr(pygame, "IS_CE", False):
        raise ImportError(f"pygame has overwritten pygame-ce, whose files have the same names: {PYGAME_CURE}")
    return str(pygame.version.ver)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep C libraries from printing to standard error inside the block, as SDL does about XDG_RUNTIME_DIR."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def require_display(instead: str) -> None:
    """Start pygame's display; where there is none, an OSError says what to do instead."""
    import pygame

    require_pygame_ce()
    named = {"DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"}
    if not sys.platform.startswith("linux") or os.environ.keys() & named:  # elsewhere SDL would print its own complaint
        with suppress(pygame.error):
            with quiet_libraries():
                pygame.display.init()
            # Without a display, SDL may silently choose a driver that draws nowhere.
            if pygame.display.get_driver() != "offscreen" or "SDL_VIDEODRIVER" in os.environ:
                return
        pygame.display.quit()
    raise OSError(f"cannot open a window, as there is no display: run this on a desktop, or {instead}")


class Window:
    """A window for frames, opened by the first `show`; frames too large for the desktop are shown smaller."""

    def __init__(self, title: str = "pidm-nav") -> None:
        self.title = title
        self.closed = False  # whether the user has closed it; `show` then does nothing until `close` is called
        self._screen: pygame.Surface | None = None
        self._size = (0, 0)  # of the frames
        self._clock: pygame.time.Clock | None = None

    def show(self, frame: Frame, fps: float = 30) -> list[pygame.event.Event]:
        """Show a frame, wait until 1 / fps seconds after the previous one, and return the user's input events."""
        import pygame

        if self.closed:
            return []
        size = frame.shape[1], frame.shape[0]
        if self._screen is None or self._clock is None or self._size != size:
            require_display("use render_mode='rgb_array' or a video")
            pygame.display.set_caption(self.title)
            width, height = pygame.display.get_desktop_sizes()[0]  # less the borders and bars that windows have
            shrink = min((width - 20) / size[0], (height - 80) / size[1], 1.0)
            self._screen = pygame.display.set_mode((round(size[0] * shrink), round(size[1] * shrink)))
            self._size, self._clock = size, pygame.time.Clock()
        picture = pygame.image.frombuffer(np.ascontiguousarray(frame).data, size, "RGB")
        if self._screen.get_size() != size:
            picture = pygame.transform.smoothscale(picture, self._screen.get_size())
        self._screen.blit(picture, (0, 0))
        pygame.display.flip()
        events = pygame.event.get()
        self._clock.tick(fps)
        if any(event.type == pygame.QUIT for event in events):
            self.close()
            self.closed = True
        return events

    def close(self) -> None:
        """Close the window if it is open; a later `show` opens a new one."""
        self.closed = False
        if self._screen is not None:
            import pygame

            self._screen = self._clock = None
            pygame.display.quit()


def side_by_side(frames: Sequence[Frame], titles: Sequence[str] = ()) -> Frame:
    """Return one frame with the given ones next to each other on white, each under its title if there are titles."""
    import pygame

    if not frames or (titles and len(titles) != len(frames)):
        raise ValueError(
            f"{len(frames)} frames and {len(titles)} titles: give frames, and each of them a title or none"
        )
    tallest = max(len(frame) for frame in frames)
    gap = max(tallest // 40, 4)
    bar = max(tallest // 14, 20) if titles else gap
    pygame.font.init()
    font = pygame.font.Font(None, round(bar * 0.72))
    panes = []
    for frame, title in zip(frames, titles or [""] * len(frames), strict=True):
        height, width, _ = frame.shape
        text = font.render(title, True, (14, 14, 17))
        if text.get_width() > width:
            text = pygame.transform.smoothscale(text, (width, text.get_height() * width // text.get_width()))
        pane = np.pad(frame, ((bar, gap + tallest - height), (gap, 0), (0, 0)), constant_values=255)
        canvas = pygame.image.frombuffer(pane.data, (gap + width, len(pane)), "RGB")
        canvas.blit(text, (gap + (width - text.get_width()) // 2, (bar - text.get_height()) // 2))
        panes.append(pane)
    return np.pad(np.hstack(panes), ((0, 0), (0, gap), (0, 0)), constant_values=255)


def check_video_name(path: Path) -> None:
    """Refuse a file name that `write_video` cannot write to, before any work is done for it."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ValueError(f"cannot write a video to '{path}': its name must end in .gif or .mp4")
    writable_folder(path.parent, "place")


def write_video(frames: Iterable[Frame], path: str | Path, fps: float = 30, every: int = 1, loss: int = 24) -> Path:
    """Save frames as a GIF or an mp4 file, whichever the path's suffix says; a file is replaced at the very end.

    Args:
        frames: (H, W, 3) uint8 arrays, all of one shape.
        path: the file to write; its folder is created.
        fps: the number of the given frames per second.
        every: keep only every n-th frame and play at the same speed, for smaller files.
        loss: the compression of an mp4 from 0 to 51 (H.264's constant rate factor); 6 more halve the file size.
    """
    path = Path(path)
    check_video_name(path)
    kept = _kept(frames, fps, every)
    with atomic_file(path) as temporary:
        if path.suffix.lower() == ".gif":
            _write_gif(kept, temporary, fps / every)
        else:
            _write_mp4(kept, temporary, fps / every, loss)
    return path


class Clip:
    """A film that notebooks show: a GIF in memory, of every n-th frame."""

    def __init__(self, frames: Iterable[Frame], fps: float = 30, every: int = 3) -> None:
        kept, file = _kept(frames, fps, every), io.BytesIO()
        _write_gif(kept, file, fps / every)
        self.gif, self.length = file.getvalue(), len(kept)

    def __repr__(self) -> str:
        return f"Clip({self.length} frames, {len(self.gif) / 1000:.0f} kB; a notebook shows it)"

    def _repr_html_(self) -> str:
        return f'<img src="data:image/gif;base64,{b64encode(self.gif).decode()}" alt="{self!r}">'


def _kept(frames: Iterable[Frame], fps: float, every: int) -> list[Frame]:
    """Return every n-th frame and the last one, which shows how it ends."""
    if every < 1 or not 0.1 <= fps <= 1000:
        raise ValueError(f"every is {every} and fps is {fps}: use at least 1, and 0.1 to 1000 frames per second")
    kept = list(frames)
    kept = kept[::every] + (kept[-1:] if (len(kept) - 1) % every else [])
    if not kept or any(frame.shape != kept[0].shape for frame in kept):
        raise ValueError("a video needs frames: give at least one, and all of one shape")
    return kept


def _write_gif(frames: list[Frame], path: Path | io.BytesIO, fps: float) -> None:
    """Write all frames with one palette, so that what does not move is stored once."""
    from PIL import Image

    sample = Image.fromarray(np.vstack(frames[:: max(len(frames) // 8, 1)]))
    counts: Any = sample.getcolors(sample.width * sample.height)
    colors = np.array([color for _, color in sorted(counts, key=lambda each: (-each[0], each[1]))], np.uint8)
    exact, others = colors[:64], colors[64:]  # the commonest are kept, or the agent's would be averaged away
    mixed = (Image.fromarray(others[None]).quantize(64).getpalette() or []) if len(others) else []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*exact.ravel().tolist(), *mixed[: 64 * 3]])
    images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    duration = max(round(100 / fps) * 10, 20)  # ms; GIFs count in hundredths, and browsers play slower below two
    next(images).save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _write_mp4(frames: list[Frame], path: Path, fps: float, loss: int) -> None:
    import imageio.v2 as imageio
    import imageio_ffmpeg

    height, width, _ = frames[0].shape
    odd = ((0, height % 2), (0, width % 2), (0, 0))  # H.264 needs even sides
    even: list[Any] = [np.pad(frame, odd, mode="edge") for frame in frames]
    settings: dict[str, Any] = {"codec": "libx264", "quality": None, "output_params": ["-crf", str(loss)]}
    settings |= {"macro_block_size": 1, "ffmpeg_log_level": "quiet"}
    imageio.mimwrite(path, even, format="FFMPEG", fps=fps, **settings)
    with suppress(RuntimeError):  # ffmpeg may fail without a word, most often on a full disk
        if imageio_ffmpeg.count_frames_and_secs(path)[0] == len(even):
            return
    raise OSError("ffmpeg could not write all frames, as on a full disk")
