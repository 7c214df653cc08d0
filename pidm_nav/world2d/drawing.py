"""Parts of a frame: floor and walls, the agent, the goals and the trace.

Floor and walls are drawn once per map and frame size. The agent and the goals are anti-aliased sprites, cached for each
quarter of a pixel, so that motion is smooth in small frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pidm_nav.limits import MAX_SIDE, cache_by_bytes, check_number
from pidm_nav.video import Frame
from pidm_nav.world2d.layout import BOX, Layout

if TYPE_CHECKING:
    import pygame

Color = tuple[int, int, int]
FrameSize = int | tuple[int, int] | None
Kind = Literal["agent", "current", "later", "reached"]

FLOOR: Color = (250, 249, 246)
WALL: Color = (14, 14, 17)
TRACE: Color = (92, 142, 240)
COLORS: dict[Kind, Color] = {
    "agent": (37, 99, 235),
    "current": (224, 49, 49),
    "later": (142, 148, 160),
    "reached": (47, 158, 68),
}
NUMBERED_FRAME = 200
"""Smallest longest side of frames with numbered goals; in smaller frames a digit would be larger than a goal."""
SUBPIXELS = 4  # sprite positions per pixel
SUPERSAMPLE = 8  # sprites are drawn this many times larger, then averaged
TRACE_PIECE = 8  # steps per piece of the trace


@dataclass(frozen=True)
class View:
    """Placement of a room in a frame: `frame pixel = room pixel * scale + (left, top)`."""

    width: int
    height: int
    scale: float
    left: int
    top: int


@lru_cache(maxsize=64)
def view_room(room_size: tuple[int, int], size: FrameSize) -> View:
    """Return the placement of a room in frames of a size, as defined in `render.render_state`."""
    room_width, room_height = room_size
    size = room_size if size is None else size
    for side in size if isinstance(size, tuple) else (size,):
        check_number("a side of the picture", side, 16, MAX_SIDE)
    if isinstance(size, int):
        scale = size / max(room_size)
        size = max(round(room_width * scale), 1), max(round(room_height * scale), 1)
    width, height = size
    scale = min(width / room_width, height / room_height)
    left, top = (width - round(room_width * scale)) // 2, (height - round(room_height * scale)) // 2
    return View(width, height, scale, left, top)


@cache_by_bytes(lambda frame: frame.nbytes)
def background(layout: Layout, view: View) -> Frame:
    """Draw the floor and the walls, with slightly rounded corners and a soft shadow to the lower right."""
    from scipy.ndimage import gaussian_filter

    fine = 2 if max(view.width, view.height) > 400 else 4  # drawn this many times larger, then averaged
    scale = view.scale * fine
    room_width, room_height = (round(side * view.scale) * fine for side in layout.room_size)
    wall = np.ones((view.height * fine, view.width * fine), dtype=np.float32)  # outside the room is wall
    room = wall[view.top * fine :, view.left * fine :][:room_height, :room_width]
    room[:] = 0
    for left, top, wide, high in layout.walls.tolist():
        columns = slice(max(round(left * scale), 0), round((left + wide) * scale))
        room[max(round(top * scale), 0) : round((top + high) * scale), columns] = 1
    if len(layout.walls):
        # blurring and thresholding at 0.5 rounds the corners of the walls' union and keeps straight edges
        blur = min(3.0, layout.walls[:, 2:].min() / 6) * scale
        wall = np.clip((gaussian_filter(wall, blur, mode="nearest") - 0.5) * 2.5 * max(blur, 0.4) + 0.5, 0, 1)
    wall = wall.reshape(view.height, fine, view.width, fine).mean(axis=(1, 3))
    shadow = gaussian_filter(wall, 5 * view.scale, mode="nearest")
    offset = round(4 * view.scale)
    shadow = np.pad(shadow, ((offset, 0), (offset, 0)), mode="edge")[: view.height, : view.width]
    floor = np.array(FLOOR) * (1 - 0.22 * shadow[..., None])
    frame: Frame = np.rint(floor + (np.array(WALL) - floor) * wall[..., None]).astype(np.uint8)
    frame.flags.writeable = False
    return frame


def draw_sprite(canvas: pygame.Surface, view: View, kind: Kind, x: float, y: float, number: int = 0) -> None:
    """Draw the agent or a goal centered on the room position (x, y); large frames show the goal's number."""
    if max(view.width, view.height) < NUMBERED_FRAME:
        number = 0
    column, phase_x = divmod(round(x * view.scale * SUBPIXELS), SUBPIXELS)
    line, phase_y = divmod(round(y * view.scale * SUBPIXELS), SUBPIXELS)
    sprite = _sprite(kind, number, view.scale, phase_x, phase_y)
    middle = sprite.get_width() // 2
    canvas.blit(sprite, (view.left + column - middle, view.top + line - middle))


@lru_cache(maxsize=2048)
def _sprite(kind: Kind, number: int, scale: float, phase_x: int, phase_y: int) -> pygame.Surface:
    """Return a transparent sprite, centered on its middle pixel plus the phase in quarters of a pixel."""
    import pygame

    box = max(BOX * scale, 3.5)  # side in frame pixels; smaller ones are hard to see
    middle = int(box) + 12
    large = pygame.Surface((2 * middle * SUPERSAMPLE, 2 * middle * SUPERSAMPLE), pygame.SRCALPHA)
    center = [(middle + phase / SUBPIXELS) * SUPERSAMPLE for phase in (phase_x, phase_y)]

    def rounded(side: float, radius: float, color: tuple[int, ...]) -> None:
        side *= box * SUPERSAMPLE
        left, top = (round(c - side / 2) for c in center)
        pygame.draw.rect(large, color, (left, top, round(side), round(side)), border_radius=round(radius * side))

    if kind == "agent":
        rounded(1.0 + 2 * min(0.12, box / 100), 0.42, (255, 255, 255, 235))
    elif kind == "current":
        rounded(1.9, 0.36, (*COLORS[kind], 50))
    rounded(1.0, 0.40 if kind == "agent" else 0.26, COLORS[kind])
    if number:
        _draw_number(large, number, center, box, COLORS[kind])
    small = pygame.transform.smoothscale(large.premul_alpha(), (2 * middle, 2 * middle))
    # colors are averaged with premultiplied alpha; blitting expects straight alpha
    alpha = pygame.surfarray.array_alpha(small)[..., None]
    colors = pygame.surfarray.array3d(small).astype(np.float64) * 255 / np.maximum(alpha, 1)
    pygame.surfarray.blit_array(small, np.minimum(np.rint(colors), 255).astype(np.uint8))
    pygame.surfarray.pixels_alpha(small)[:] = alpha[..., 0]
    return small


def _draw_number(large: pygame.Surface, number: int, center: Sequence[float], box: float, color: Color) -> None:
    """Write the number in white inside a goal that is large enough, otherwise beside it at the upper right."""
    import pygame

    inside = box >= 15
    high = 0.56 * box * SUPERSAMPLE if inside else 7.5 * SUPERSAMPLE
    pygame.font.init()
    ink = (255, 255, 255) if inside else tuple(c * 3 // 4 for c in color)
    glyphs = pygame.font.Font(None, 200).render(str(number), True, ink)
    glyphs = glyphs.subsurface(glyphs.get_bounding_rect())
    wide = glyphs.get_width() * high / glyphs.get_height()
    if inside and wide > 0.74 * box * SUPERSAMPLE:
        high, wide = high * 0.74 * box * SUPERSAMPLE / wide, 0.74 * box * SUPERSAMPLE
    glyphs = pygame.transform.smoothscale(glyphs, (round(wide), round(high)))
    x, y = center
    if not inside:
        x += (box / 2 + 1.5) * SUPERSAMPLE + wide / 2
        y -= (box / 2 + 1.5) * SUPERSAMPLE
    large.blit(glyphs, (round(x - wide / 2), round(y - high / 2)))


def draw_trace(canvas: pygame.Surface, view: View, trace: NDArray[np.float64]) -> None:
    """Draw a line through room positions (N, 2) that fades with age."""
    import pygame

    points = trace * view.scale + (view.left, view.top)
    line_width = max(3.5 * view.scale, 1.2)
    thick = max(round(2 * line_width), 2)
    # draw the line in pieces, supersampled by 2, as together they cover little of the frame
    for first in range(0, len(points) - 1, TRACE_PIECE):
        piece = points[first : first + TRACE_PIECE + 1]
        corner = np.floor(piece.min(axis=0) - line_width - 1)
        wide, high = (np.ceil(piece.max(axis=0) + line_width + 1) - corner).astype(int).tolist()
        fade = min((len(points) - first) / 80, 0.62)
        color = tuple(round(line + (floor - line) * fade) for line, floor in zip(TRACE, FLOOR, strict=True))
        large = pygame.Surface((2 * wide, 2 * high), pygame.SRCALPHA)
        large.fill((*color, 0))  # the line's color, so that averaging does not darken its edges
        for start, end in pairwise(((piece - corner) * 2).tolist()):
            pygame.draw.line(large, color, start, end, thick)
            pygame.draw.circle(large, color, end, thick / 2)
        canvas.blit(pygame.transform.smoothscale(large, (wide, high)), corner.tolist())
