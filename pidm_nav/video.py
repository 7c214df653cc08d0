"""Shows frames in a window, puts them side by side, and saves them as videos."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.files import atomic_file

if TYPE_CHECKING:
    import pygame

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # otherwise pygame prints a greeting

Frame = NDArray[np.uint8]


class Window:
    """A window for frames, opened by the first `show`.

    Attributes:
        closed: whether the user has closed the window; `show` then does nothing until `close` is called.
    """

    def __init__(self, title: str = "pidm-nav") -> None:
        self.title = title
        self.closed = False
        self._screen: pygame.Surface | None = None
        self._clock: pygame.time.Clock | None = None

    def show(self, frame: Frame, fps: float = 30) -> list[pygame.event.Event]:
        """Show a frame, wait until 1 / fps seconds after the previous one, and return the user's input events."""
        import pygame

        if self.closed:
            return []
        size = frame.shape[1], frame.shape[0]
        if self._screen is None or self._clock is None or self._screen.get_size() != size:
            self._screen, self._clock = _open_window(self.title, size), pygame.time.Clock()
        self._screen.blit(pygame.image.frombuffer(np.ascontiguousarray(frame).data, size, "RGB"), (0, 0))
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


def _open_window(title: str, size: tuple[int, int]) -> pygame.Surface:
    import pygame

    try:
        pygame.display.init()
        # Without a display, SDL may silently choose a driver that draws nowhere.
        if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
            pygame.display.quit()
            raise pygame.error("there is no display")
        pygame.display.set_caption(title)
        return pygame.display.set_mode(size)
    except pygame.error as error:
        remedy = "run this on a desktop, or use render_mode='rgb_array' or a video"
        raise OSError(f"cannot open a window ({error}): {remedy}") from None


def side_by_side(frames: Sequence[Frame], titles: Sequence[str] = ()) -> Frame:
    """Return one frame with the given ones next to each other on white, each under its title if there are titles."""
    import pygame

    if not frames or (titles and len(titles) != len(frames)):
        raise ValueError(
            f"{len(frames)} frames and {len(titles)} titles: give at least one frame, and each a title or none"
        )
    tallest = max(len(frame) for frame in frames)
    gap = max(tallest // 40, 4)
    bar = max(tallest // 14, 20) if titles else gap
    whole = np.full((bar + tallest + gap, gap + sum(frame.shape[1] + gap for frame in frames), 3), 255, dtype=np.uint8)
    canvas = pygame.image.frombuffer(whole.data, (whole.shape[1], whole.shape[0]), "RGB")
    pygame.font.init()
    font = pygame.font.Font(None, round(bar * 0.72))
    left = gap
    for frame, title in zip(frames, titles or [""] * len(frames), strict=True):
        height, width, _ = frame.shape
        whole[bar : bar + height, left : left + width] = frame
        text = font.render(title, True, (14, 14, 17))
        if text.get_width() > width:
            text = pygame.transform.smoothscale(text, (width, text.get_height() * width // text.get_width()))
        canvas.blit(text, (left + (width - text.get_width()) // 2, (bar - text.get_height()) // 2))
        left += width + gap
    return whole


def check_video_name(path: Path) -> None:
    """Refuse a file name that `write_video` cannot write to, before any work is done for it."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ValueError(f"cannot write a video to '{path}': its name must end in .gif or .mp4")


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
    if every < 1 or fps <= 0:
        raise ValueError(f"every is {every} and fps is {fps}: use at least 1 and a positive number")
    kept = list(frames)
    kept = kept[::every] + (kept[-1:] if (len(kept) - 1) % every else [])  # the last frame shows how it ends
    if not kept or any(frame.shape != kept[0].shape for frame in kept):
        raise ValueError(f"cannot write '{path}': a video needs frames, at least one and all of one shape")
    with atomic_file(path) as temporary:
        if path.suffix.lower() == ".gif":
            _write_gif(kept, temporary, fps / every)
        else:
            _write_mp4(kept, temporary, fps / every, loss)
    return path


def _write_gif(frames: list[Frame], path: Path, fps: float) -> None:
    """Write all frames with one palette, so that what does not move is stored once."""
    from PIL import Image

    sample = np.concatenate([frame.reshape(-1, 3) for frame in frames[:: max(len(frames) // 8, 1)]])
    codes, counts = np.unique(sample @ np.array([65536, 256, 1]), return_counts=True)
    codes = codes[np.argsort(-counts, kind="stable")]
    colors = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1).astype(np.uint8)
    exact, others = colors[:64], colors[64:]  # the commonest are kept, or the agent's would be averaged away
    mixed = (Image.fromarray(others[None]).quantize(64).getpalette() or []) if len(others) else []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*exact.ravel().tolist(), *mixed[: 64 * 3]])
    images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    duration = max(round(100 / fps) * 10, 20)  # ms; GIFs count in hundredths, and browsers play slower below two
    next(images).save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _write_mp4(frames: list[Frame], path: Path, fps: float, loss: int) -> None:
    import imageio.v2 as imageio

    settings: dict[str, Any] = {"codec": "libx264", "quality": None, "output_params": ["-crf", str(loss)]}
    settings |= {"macro_block_size": 1, "ffmpeg_log_level": "error"}
    writer: Any = imageio.get_writer(path, format="FFMPEG", mode="I", fps=fps, **settings)
    height, width, _ = frames[0].shape
    with writer:
        for frame in frames:  # H.264 needs even sides
            writer.append_data(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))
