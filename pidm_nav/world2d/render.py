"""A state drawn as an RGB frame, and a map drawn on matplotlib's axes.

Frames are drawn in memory (`pygame.Surface`): no display, no audio, no `pygame.init()`.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from pidm_nav.world2d.state import POSITION

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


def draw_states(layout: Layout, states: ArrayLike, size: int) -> list[Frame]:
    """Draw each state of an episode (T+1, D), with the trace up to it."""
    vectors = np.asarray(states)
    return [
        render_state(layout, state, size, trace=vectors[: step + 1, POSITION]) for step, state in enumerate(vectors)
    ]
