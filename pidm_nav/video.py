"""Frames in a window, side by side, and as videos."""

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
from pidm_nav.limits import MAX_STEPS, check_number

if TYPE_CHECKING:
    import pygame

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # otherwise pygame prints a greeting

Frame = NDArray[np.uint8]
PYGAME_CURE = "pip uninstall -y pygame pygame-ce && pip install pygame-ce"


def require_pygame_ce() -> str:
    """Return the version of pygame-ce; ImportError if pygame has overwritten it."""
    import pygame

    if not getattr(pygame, "IS_CE", False):
        raise ImportError(f"pygame has overwritten pygame-ce: {PYGAME_CURE}")
    return str(pygame.version.ver)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence C libraries such as SDL on standard error inside the block."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def require_display(instead: str) -> None:
    """Start pygame's display; without a display, OSError says what to do instead."""
    import pygame

    require_pygame_ce()
    named = {"DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"}
    if not sys.platform.startswith("linux") or os.environ.keys() & named:  # otherwise SDL would print an error
        with suppress(pygame.error):
            with quiet_libraries():
                pygame.display.init()
            # without a display, SDL may silently choose an invisible driver
            if pygame.display.get_driver() != "offscreen" or "SDL_VIDEODRIVER" in os.environ:
                return
        pygame.display.quit()
    raise OSError(f"cannot open a window without a display: use a desktop, or {instead}")


class Window:
    """Window for frames, opened by the first `show`; frames larger than the desktop are shrunk."""

    def __init__(self, title: str = "pidm-nav") -> None:
        self.title = title
        self.closed = False  # whether the user has closed it; `show` then does nothing until `close`
        self._screen: pygame.Surface | None = None
        self._size = (0, 0)  # of the frames
        self._clock: pygame.time.Clock | None = None

    def show(self, frame: Frame, fps: float = 30) -> list[pygame.event.Event]:
        """Show a frame, wait until 1 / fps seconds after the previous one, and return input events."""
        import pygame

        if self.closed:
            return []
        size = frame.shape[1], frame.shape[0]
        if self._screen is None or self._clock is None or self._size != size:
            require_display("use render_mode='rgb_array' or a video")
            pygame.display.set_caption(self.title)
            width, height = pygame.display.get_desktop_sizes()[0]  # minus borders and bars
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
    """Return one frame with the given frames side by side on white, with optional titles above."""
    import pygame

    if not frames or (titles and len(titles) != len(frames)):
        raise ValueError(f"there are {len(frames)} frames and {len(titles)} titles: give a title per frame, or none")
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
    """Raise an error for a path that `write_video` cannot write to."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ValueError(f"cannot write a video to '{path}': give a name that ends with .gif or .mp4")
    writable_folder(path.parent, "place")


def write_video(frames: Iterable[Frame], path: str | Path, fps: float = 30, every: int = 1) -> Path:
    """Save frames as a .gif or .mp4 file, atomically.

    Args:
        frames: (H, W, 3) uint8 arrays, all of one shape.
        path: file to write; its folder is created.
        fps: frames per second.
        every: keep only every n-th frame at the same speed, for smaller files.
    """
    path = Path(path)
    check_video_name(path)
    kept = _kept(frames, fps, every)
    with atomic_file(path) as temporary:
        if path.suffix.lower() == ".gif":
            _write_gif(kept, temporary, fps / every)
        else:
            _write_mp4(kept, temporary, fps / every)
    return path


class Clip:
    """Video for notebooks: a GIF in memory, of every third frame."""

    def __init__(self, frames: Iterable[Frame], fps: float = 30) -> None:
        kept, file = _kept(frames, fps, 3), io.BytesIO()
        _write_gif(kept, file, fps / 3)
        self.gif, self.length = file.getvalue(), len(kept)

    def __repr__(self) -> str:
        return f"Clip({self.length} frames, {len(self.gif) / 1000:.0f} kB; a notebook shows it)"

    def _repr_html_(self) -> str:
        return f'<img src="data:image/gif;base64,{b64encode(self.gif).decode()}" alt="{self!r}">'


def _kept(frames: Iterable[Frame], fps: float, every: int) -> list[Frame]:
    """Return every n-th frame and the last one."""
    check_number("every", every, 1, MAX_STEPS)
    check_number("fps", fps, 0.1, 1000, integer=False)
    kept = list(frames)
    kept = kept[::every] + (kept[-1:] if (len(kept) - 1) % every else [])
    if not kept or any(frame.shape != kept[0].shape for frame in kept):
        raise ValueError("a video needs frames of one shape: give at least one")
    return kept


def _write_gif(frames: list[Frame], path: Path | io.BytesIO, fps: float) -> None:
    """Write all frames with one palette, so that static pixels are stored once."""
    from PIL import Image

    sample = Image.fromarray(np.vstack(frames[:: max(len(frames) // 8, 1)]))
    counts: Any = sample.getcolors(sample.width * sample.height)
    colors = np.array([color for _, color in sorted(counts, key=lambda each: (-each[0], each[1]))], np.uint8)
    exact, others = colors[:64], colors[64:]  # keep common colors exactly, such as the agent's
    mixed = (Image.fromarray(others[None]).quantize(64).getpalette() or []) if len(others) else []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*exact.ravel().tolist(), *mixed[: 64 * 3]])
    images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    duration = max(round(100 / fps) * 10, 20)  # ms; GIFs count in units of 10 ms, and browsers slow down below 20 ms
    next(images).save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _write_mp4(frames: list[Frame], path: Path, fps: float) -> None:
    import imageio.v2 as imageio
    import imageio_ffmpeg

    height, width, _ = frames[0].shape
    odd = ((0, height % 2), (0, width % 2), (0, 0))  # H.264 needs even sides
    even: list[Any] = [np.pad(frame, odd, mode="edge") for frame in frames]
    settings: dict[str, Any] = {"codec": "libx264", "quality": None, "output_params": ["-crf", "24"]}
    settings |= {"macro_block_size": 1, "ffmpeg_log_level": "quiet"}
    imageio.mimwrite(path, even, format="FFMPEG", fps=fps, **settings)
    with suppress(RuntimeError):  # ffmpeg may fail without an error, most often on a full disk
        if imageio_ffmpeg.count_frames_and_secs(path)[0] == len(even):
            return
    raise OSError("ffmpeg could not write all frames, as on a full disk")
