"""Levels of the 3D tasks: the four maps of the 2D tasks, at three engine units per pixel, and the tour.

As in the engine, x points east, y points north, and angles are degrees counterclockwise from east.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pidm_nav.tasks import find_task
from pidm_nav.world2d.layout import BOX, Layout

UNITS = 3  # engine units per pixel of the 2D room, so that doors one cell wide are twice as wide as the walker
WALL = -1  # zone of walls
TOUCH = float(UNITS * BOX)  # largest distance along x and y at which a place is reached, as boxes touch in 2D
NEAR = 96.0  # the same for places to look up or to stand still
FACING = 30.0  # largest error of the direction to face, in degrees
LOOKING_UP = 15.0  # smallest pitch of looking up, in degrees
STILL_TICS = 35  # tics of standing still

Kind = Literal["reach", "turn", "pick up", "look up", "stand still"]


@dataclass(frozen=True)
class Zone:
    """Look of a zone of a level; names are textures in the game's data file."""

    wall: str
    floor: str
    ceiling: str
    floor_height: int = 0
    ceiling_height: int = 192
    light: int = 208
    riser: str = "STEP1"  # texture of the step up to this zone


@dataclass(frozen=True)
class Milestone:
    """A milestone of a level."""

    name: str
    kind: Kind
    place: tuple[float, float]
    marker: tuple[float, float]  # position of its object
    marker_height: float = 0.0  # of the object above the floor
    angle: float = 0.0  # direction to turn to


@dataclass(frozen=True, eq=False)
class Level:
    """Map of a 3D task with its zones and milestones."""

    layout: Layout  # its goals are the places of the milestones
    zones: tuple[Zone, ...]
    cells: NDArray[np.int64]  # (lines, columns) zone of each cell, or WALL; north is up
    start_angle: int  # initial direction of the walker
    milestones: tuple[Milestone, ...]  # in order

    @property
    def num_goals(self) -> int:
        """Number of milestones."""
        return len(self.milestones)

    @property
    def start(self) -> tuple[float, float]:
        """Start of the walker, in engine units."""
        return to_world(self.layout, self.layout.starts[0])

    @property
    def edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Edges of columns along x from west to east, and of lines along y from north to south."""
        width, height = self.layout.room_size
        lines, columns = self.cells.shape
        return np.linspace(0, UNITS * width, columns + 1), np.linspace(UNITS * height, 0, lines + 1)

    def to_layout(self, x: float, y: float) -> NDArray[np.float64]:
        """Return a position (2,) in pixels of the layout."""
        return np.array([x / UNITS, self.layout.room_size[1] - y / UNITS])


def to_world(layout: Layout, pixel: NDArray[np.float64]) -> tuple[float, float]:
    """Return a position of the layout in engine units."""
    return UNITS * float(pixel[0]), UNITS * (layout.room_size[1] - float(pixel[1]))


@lru_cache(maxsize=8)
def load_level(task: str) -> Level:
    """Return the level of a 3D task."""
    found = find_task(task)
    layout = found.layout()
    if found.name not in LEVELS or layout is None:
        raise ValueError(f"{found.name} is not a 3D task: choose one of {', '.join(LEVELS)}")
    return LEVELS[found.name](layout)


def room_level(layout: Layout, column_cuts: Sequence[int], line_cuts: Sequence[int]) -> Level:
    """Return the level of a 2D task's map, with zones that change at these columns and lines."""
    free = np.array([[mark != "#" for mark in row] for row in layout.rows])
    columns = np.searchsorted(column_cuts, np.arange(free.shape[1]), side="right")
    lines = np.searchsorted(line_cuts, np.arange(free.shape[0]), side="right")
    cells = np.where(free, (lines[:, None] * (len(column_cuts) + 1) + columns) % len(ROOMS), WALL)
    x, y = layout.goals[0] - layout.starts[0]
    towards_first_goal = int(round(np.degrees(np.arctan2(-y, x)) / 90) * 90) % 360
    places = [to_world(layout, goal) for goal in layout.goals]
    milestones = [Milestone(f"goal {i + 1}", "reach", place, place) for i, place in enumerate(places)]
    return Level(layout, ROOMS, cells, towards_first_goal, tuple(milestones))


def tour_level(layout: Layout) -> Level:
    """Return the tour, which begins with a turn away from the wall that the walker faces."""
    text = (files("pidm_nav.world2d") / "maps" / "tour-zones.txt").read_text(encoding="utf-8")
    cells = np.array([[TOUR_MARKS.find(mark) for mark in row] for row in text.splitlines()])
    x, y = to_world(layout, layout.starts[0])
    milestones = [Milestone("turn round", "turn", (x, y), (x + 300, y), angle=0.0)]
    for (name, kind), goal in zip(TOUR_PLACES, layout.goals, strict=True):
        place = to_world(layout, goal)
        height = 170.0 if kind == "look up" else 24.0 if kind == "pick up" else 0.0
        marker = (place[0], place[1] + 160) if kind == "look up" else place
        milestones.append(Milestone(name, kind, place, marker, height))
    return Level(layout, TOUR_ZONES, cells, 180, tuple(milestones))


ROOMS = (  # looks for the rooms of the 2D maps
    Zone("BRICK7", "FLOOR4_8", "CEIL3_5"),
    Zone("STONE2", "FLAT5_2", "CEIL3_3"),
    Zone("WOOD5", "FLOOR0_1", "CEIL1_1"),
    Zone("MARBLE1", "FLOOR7_1", "CEIL5_1"),
    Zone("METAL2", "FLAT14", "FLAT19"),
    Zone("TANROCK2", "RROCK09", "CEIL5_2"),
    Zone("REDWALL", "FLAT1_3", "FLAT5_3"),
    Zone("COMPBLUE", "FLAT4", "CEIL4_1"),
    Zone("GRAYVINE", "GRASS1", "RROCK16"),
)

TOUR_MARKS = "hcbBg12345fp"  # marks of TOUR_ZONES in maps/tour-zones.txt
TOUR_ZONES = (
    Zone("BRICK7", "FLOOR4_8", "CEIL3_5", ceiling_height=224),  # hall
    Zone("METAL2", "FLAT14", "FLAT19", ceiling_height=144, light=176),  # corridor
    Zone("STONE2", "FLAT5_2", "CEIL3_3", ceiling_height=256),  # the room with the box
    Zone("CRATE1", "CRATOP2", "CEIL3_3", floor_height=64, ceiling_height=256, riser="CRATE1"),  # the box
    Zone("MARBLE1", "FLOOR7_1", "CEIL5_1", floor_height=96, ceiling_height=352),  # gallery
    *(Zone("MARBLE1", "STEP2", "CEIL5_1", floor_height=16 * step, ceiling_height=256) for step in range(1, 6)),
    Zone("TANROCK2", "GRASS1", "F_SKY1", ceiling_height=256, light=240),  # garden
    Zone("TANROCK2", "GATE1", "F_SKY1", ceiling_height=256, light=255),  # where to stand still
)
TOUR_PLACES: tuple[tuple[str, Kind], ...] = (  # milestone at each goal of the map
    ("cross the hall", "reach"),
    ("pick up the sphere", "pick up"),
    ("enter the corridor", "reach"),
    ("south of the box", "reach"),
    ("east of the box", "reach"),
    ("north of the box", "reach"),
    ("climb the stairs", "reach"),
    ("look up", "look up"),
    ("down to the garden", "reach"),
    ("stand still", "stand still"),
)

LEVELS: dict[str, Callable[[Layout], Level]] = {
    "four-room-3d": partial(room_level, column_cuts=[11], line_cuts=[11]),
    "zigzag-3d": partial(room_level, column_cuts=[14, 27], line_cuts=[6]),
    "maze-3d": partial(room_level, column_cuts=[14, 27], line_cuts=[7, 12]),
    "multiroom-3d": partial(room_level, column_cuts=[11, 26], line_cuts=[5, 9]),
    "tour-3d": tour_level,
}
