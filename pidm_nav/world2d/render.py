"""Rendering of states as RGB frames, and of maps on matplotlib axes.

Frames are drawn in memory (`pygame.Surface`), without a display, audio and `pygame.init()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pidm_nav.video import Frame
from pidm_nav.world2d import drawing
from pidm_nav.world2d.drawing import COLORS, Kind
from pidm_nav.world2d.layout import BOX, Layout
from pidm_nav.world2d.state import POSITION, REACHED, goals_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def render_state(
    layout: Layout, state: ArrayLike, size: drawing.FrameSize = None, trace: ArrayLike | None = None
) -> Frame:
    """Draw a state vector as a new (H, W, 3) uint8 frame.

    Args:
        layout: the map.
        state: `[x, y, (goal_x, goal_y, reached) for each goal]` in room pixels.
        size: longest side of the frame, or (width, height), in which a room of other proportions is centered between
            black margins. Default: the room's size.
        trace: (N, 2) positions so far, oldest first, drawn as a line that fades with age.
    """
    import pygame

    values = np.asarray(state, dtype=np.float64)
    if values.ndim != 1 or values.size % 3 != 2 or not np.isfinite(values).all():
        raise ValueError(
            f"cannot draw a state of shape {values.shape}: "
            "give finite values [x, y, (goal_x, goal_y, reached) for each goal]"
        )
    view = drawing.view_room(layout.room_size, size)
    frame = drawing.background(layout, view).copy()
    # the canvas shares the frame's memory
    canvas = pygame.image.frombuffer(frame.data, (view.width, view.height), "RGB")
    if trace is not None:
        drawing.draw_trace(canvas, view, np.asarray(trace, dtype=np.float64).reshape(-1, 2))
    kinds: list[Kind] = ["reached" if flag > 0.5 else "later" for flag in values[REACHED].tolist()]
    if "later" in kinds:
        kinds[kinds.index("later")] = "current"
    goals = list(zip(kinds, goals_of(values).tolist(), strict=True))
    for number in range(len(goals), 0, -1):  # earlier goals on top of later ones
        kind, (x, y) = goals[number - 1]
        drawing.draw_sprite(canvas, view, kind, x, y, number)
    drawing.draw_sprite(canvas, view, "agent", *values[POSITION].tolist())
    return frame


def draw_states(layout: Layout, states: ArrayLike, size: int) -> list[Frame]:
    """Draw each state of an episode (T+1, D) with its trace."""
    states = np.asarray(states)
    return [render_state(layout, state, size, states[: step + 1, POSITION]) for step, state in enumerate(states)]


def draw_map(ax: Axes, layout: Layout, goals: ArrayLike | None = None) -> None:
    """Draw the walls, the starts and the numbered goals on matplotlib axes, with y pointing down.

    Args:
        ax: axes, in room pixels.
        layout: the map.
        goals: (G, 2) goals to draw instead of the map's.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    def draw(boxes: Iterable[tuple[float, ...]], color: str, zorder: int) -> None:
        patches = [Rectangle((left, top), wide, high) for left, top, wide, high in boxes]
        ax.add_collection(PatchCollection(patches, facecolor=color, edgecolor="none", zorder=zorder))

    wall, floor, agent, current = (
        "#{:02x}{:02x}{:02x}".format(*color)
        for color in (drawing.WALL, drawing.FLOOR, COLORS["agent"], COLORS["current"])
    )
    centers = layout.goals if goals is None else np.asarray(goals, dtype=np.float64).reshape(-1, 2)
    draw(layout.walls, wall, zorder=1)
    draw([(x - BOX / 2, y - BOX / 2, BOX, BOX) for x, y in layout.starts], agent, zorder=3)
    draw([(x - BOX / 2, y - BOX / 2, BOX, BOX) for x, y in centers], current, zorder=3)
    for number, (x, y) in enumerate(centers, start=1):
        ax.annotate(str(number), (x, y), (4, 3), textcoords="offset points", fontsize=7, color=current, zorder=4)
    ax.set(xlim=(0, layout.room_size[0]), ylim=(layout.room_size[1], 0), aspect="equal", xticks=[], yticks=[])
    ax.set_facecolor(floor)
