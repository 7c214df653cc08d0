"""A state drawn as an RGB frame, shown in a window, plotted with matplotlib, or saved as a video.

Frames are drawn in memory (`pygame.Surface`): no display, no audio, no `pygame.init()`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pidm_nav.world2d.drawing import (
    COLOURS,
    FLOOR,
    NUMBERED_FRAME,
    WALL,
    Colour,
    Frame,
    FrameSize,
    Kind,
    background,
    draw_sprite,
    draw_trace,
    view_room,
)
from pidm_nav.world2d.layout import BOX, Layout

if TYPE_CHECKING:
    import pygame
    from matplotlib.axes import Axes


def frame_shape(layout: Layout, size: FrameSize = None) -> tuple[int, int, int]:
    """(H, W, 3) of the frames that `render_state` draws at this size."""
    view = view_room(layout.room_size, size)
    return view.height, view.width, 3


def render_state(layout: Layout, state: ArrayLike, size: FrameSize = None, trace: ArrayLike | None = None) -> Frame:
    """Draw a state vector as a fresh (H, W, 3) uint8 frame.

    Args:
        layout: the map.
        state: `[x, y, (goal_x, goal_y, reached) per goal]`, in room pixels.
        size: the frame's longest side, or (width, height), in which a room of other proportions lies
            centred between black margins; None is one frame pixel per room pixel.
        trace: (N, 2) positions so far, oldest first, drawn as a line that fades with age.
    """
    import pygame

    values = np.asarray(state, dtype=np.float64)
    if values.ndim != 1 or values.size % 3 != 2 or not np.isfinite(values).all():
        raise ValueError(
            f"cannot draw a state of shape {values.shape}: "
            "give finite numbers [x, y, (goal_x, goal_y, reached) for each goal]"
        )
    view = view_room(layout.room_size, size)
    numbered = max(view.width, view.height) >= NUMBERED_FRAME
    frame = background(layout, view).copy()
    # The canvas shares the frame's memory: what is drawn on it is in the array.
    canvas = pygame.image.frombuffer(frame.data, (view.width, view.height), "RGB")
    if trace is not None:
        points = np.asarray(trace, dtype=np.float64).reshape(-1, 2) * view.scale + (view.left, view.top)
        draw_trace(canvas, points, view.scale)
    x, y, *goals = values.tolist()
    current = next((i for i, reached in enumerate(goals[2::3]) if reached < 0.5), -1)
    for i in reversed(range(len(goals) // 3)):  # an earlier goal lies on top of a later one
        kind: Kind = "current" if i == current else "reached" if goals[3 * i + 2] > 0.5 else "later"
        draw_sprite(canvas, view, kind, goals[3 * i], goals[3 * i + 1], i + 1 if numbered else 0)
    draw_sprite(canvas, view, "agent", x, y)
    return frame


class Window:
    """A window for frames, opened by the first `show`.

    Attributes:
        closed: the user has closed the window; `show` then does nothing until `close` is called.
    """

    def __init__(self, title: str = "pidm-nav") -> None:
        self.title = title
        self.closed = False
        self._screen: pygame.Surface | None = None
        self._clock: pygame.time.Clock | None = None

    def show(self, frame: Frame, fps: float = 30) -> list[pygame.event.Event]:
        """Show a frame, wait until 1 / fps seconds after the one before, and return what the user did."""
        import pygame

        if self.closed:
            return []
        height, width, _ = frame.shape
        if self._screen is None or self._clock is None or self._screen.get_size() != (width, height):
            self._screen, self._clock = self._open(width, height), pygame.time.Clock()
        picture = pygame.image.frombuffer(np.ascontiguousarray(frame).data, (width, height), "RGB")
        self._screen.blit(picture, (0, 0))
        pygame.display.flip()
        events = pygame.event.get()
        self._clock.tick(fps)
        if any(event.type == pygame.QUIT for event in events):
            self.close()
            self.closed = True
        return events

    def close(self) -> None:
        """Close the window, if it is open; a later `show` opens a new one."""
        self.closed = False
        if self._screen is not None:
            import pygame

            self._screen = self._clock = None
            pygame.display.quit()

    def _open(self, width: int, height: int) -> pygame.Surface:
        import pygame

        remedy = "run this on a desktop, or use render_mode='rgb_array' or a video"
        try:
            pygame.display.init()
            # With no display at hand SDL may pick a driver that draws nowhere and say nothing.
            if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
                pygame.display.quit()
                raise OSError(f"no display to open a window on: {remedy}")
            pygame.display.set_caption(self.title)
            return pygame.display.set_mode((width, height))
        except pygame.error as error:
            raise OSError(f"cannot open a window ({error}): {remedy}") from None


def draw_map(ax: Axes, layout: Layout, goals: ArrayLike | None = None) -> None:
    """Draw the walls, the starts and the numbered goals on matplotlib axes, y down.

    Args:
        ax: where to draw; traces can be plotted on it in room pixels.
        layout: the map.
        goals: (G, 2) goals in place of the map's own.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    def draw(boxes: Iterable[tuple[float, ...]], colour: Colour, zorder: int) -> None:
        patches = [Rectangle((left, top), wide, high) for left, top, wide, high in boxes]
        ax.add_collection(PatchCollection(patches, facecolor=_unit(colour), edgecolor="none", zorder=zorder))

    width, height = layout.room_size
    centres = np.asarray(layout.goals if goals is None else goals, dtype=np.float64).reshape(-1, 2)
    draw(layout.walls.tolist(), WALL, zorder=1)
    draw([(x - BOX / 2, y - BOX / 2, BOX, BOX) for x, y in layout.starts.tolist()], COLOURS["agent"], zorder=3)
    draw([(x - BOX / 2, y - BOX / 2, BOX, BOX) for x, y in centres.tolist()], COLOURS["current"], zorder=3)
    for number, (x, y) in enumerate(centres.tolist(), start=1):
        label: dict[str, Any] = {"fontsize": 7, "color": _unit(COLOURS["current"]), "zorder": 4}
        ax.annotate(str(number), (x, y), (4, 3), textcoords="offset points", **label)
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xticks=[], yticks=[])
    ax.set_facecolor(_unit(FLOOR))


def _unit(colour: Colour) -> tuple[float, float, float]:
    """A colour as matplotlib wants it."""
    red, green, blue = colour
    return red / 255, green / 255, blue / 255


def side_by_side(frames: Sequence[Frame], titles: Sequence[str] = ()) -> Frame:
    """One frame with the given ones beside each other on white, each under its title."""
    import pygame

    if not frames or (titles and len(titles) != len(frames)):
        raise ValueError(f"{len(frames)} frames and {len(titles)} titles: give each frame a title, or none any")
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
        text = font.render(title, True, WALL)
        if text.get_width() > width:
            text = pygame.transform.smoothscale(text, (width, text.get_height() * width // text.get_width()))
        canvas.blit(text, (left + (width - text.get_width()) // 2, (bar - text.get_height()) // 2))
        left += width + gap
    return whole


def enlarge(frames: Frame, size: int) -> list[Frame]:
    """(N, H, W, 3) small pictures as N larger ones, each pixel a square, about `size` wide."""
    times = max(round(size / frames.shape[2]), 1)
    return [frame.repeat(times, axis=0).repeat(times, axis=1) for frame in frames]


def check_video_name(path: Path) -> None:
    """Refuse a name that `write_video` cannot write to, before any work is done for it."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ValueError(f"cannot draw to '{path}': its name must end in .gif or .mp4")


def write_video(frames: Iterable[Frame], path: str | Path, fps: float = 30, every: int = 1, loss: int = 24) -> Path:
    """Save frames as a GIF or an mp4, by the path's extension; an existing file is replaced at the very end.

    Args:
        frames: (H, W, 3) uint8 each, all of one shape.
        path: where to; its folder is made.
        fps: frames a second, as given.
        every: keep each `every`-th frame and play at the same speed, for smaller files.
        loss: of an mp4, from 0 to 51 (H.264's constant rate factor): 6 more halve the file.
    """
    path = Path(path)
    check_video_name(path)
    if every < 1 or fps <= 0:
        raise ValueError(f"every is {every} and fps {fps}: a video keeps each 1st, 2nd, ... frame, at some speed")
    kept = list(frames)
    kept = kept[::every] + (kept[-1:] if (len(kept) - 1) % every else [])  # the last frame shows how it ended
    if not kept or any(frame.shape != kept[0].shape for frame in kept):
        raise ValueError(f"cannot write '{path}': a video needs frames, one at least and all of one shape")
    temporary = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix.lower()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".gif":
            _write_gif(kept, temporary, fps / every)
        else:
            _write_mp4(kept, temporary, fps / every, loss)
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"cannot write '{path}' ({reason}): choose a folder you may write to") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def _write_gif(frames: list[Frame], path: Path, fps: float) -> None:
    """One palette for all frames, so that what stands still is stored once."""
    from PIL import Image

    sample = np.concatenate([frame.reshape(-1, 3) for frame in frames[:: max(len(frames) // 8, 1)]])
    codes, counts = np.unique(sample @ np.array([65536, 256, 1]), return_counts=True)
    codes = codes[np.argsort(-counts, kind="stable")]
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1).astype(np.uint8)
    exact, others = (
        colours[:64],
        colours[64:],
    )  # the commonest as they are: the agent's would be averaged away
    mixed = (Image.fromarray(others[None]).quantize(64).getpalette() or []) if len(others) else []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*exact.ravel().tolist(), *mixed[: 64 * 3]])
    images = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames)
    duration = max(round(100 / fps) * 10, 20)  # ms; GIFs count in hundredths, and browsers slow down under two
    next(images).save(path, format="GIF", save_all=True, append_images=images, duration=duration, loop=0)


def _write_mp4(frames: list[Frame], path: Path, fps: float, loss: int) -> None:
    import imageio.v2 as imageio

    height, width, _ = frames[0].shape
    settings: dict[str, Any] = {"codec": "libx264", "quality": None, "output_params": ["-crf", str(loss)]}
    settings |= {"macro_block_size": 1, "ffmpeg_log_level": "error"}
    writer: Any = imageio.get_writer(path, format="FFMPEG", mode="I", fps=fps, **settings)
    with writer:
        for frame in frames:  # H.264 wants even sides
            writer.append_data(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))
