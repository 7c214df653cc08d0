"""The levels: the four maps of the 2D tasks, three engine units a pixel, and the tour.

x points east and y north, angles are degrees counterclockwise from east, as in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pidm_nav.tasks import TASKS, Task, get_task
from pidm_nav.world2d.layout import BOX, GOAL_MARKS, Layout

UNITS = 3
"""Engine units a pixel of the 2D room: doors one cell wide are twice as wide as the walker."""
WALL = -1
"""In a level's cells: no zone."""
TOUCH = float(UNITS * BOX)
"""A place is reached when the walker is nearer than this along x and along y, as boxes touch in 2D."""
NEAR = 96.0
"""Likewise for a place at which to look up or to stand still."""
FACING = 30.0
"""Degrees off the direction asked for that still count as facing it."""
LOOKING_UP = 15.0
"""Degrees above the horizon that count as looking up."""
STILL_TICS = 35
"""How long the walker must stand still, in tics."""

Kind = Literal["reach", "turn", "pick up", "look up", "stand still"]


@dataclass(frozen=True)
class Zone:
    """A part of a level that looks alike: the names are textures of the game's data file."""

    wall: str
    floor: str
    ceiling: str
    floor_height: int = 0
    ceiling_height: int = 192
    light: int = 208
    riser: str = "STEP1"  # what is seen of a step up to here


@dataclass(frozen=True)
class Milestone:
    """Something to do, in order."""

    name: str
    kind: Kind
    place: tuple[float, float]  # where
    marker: tuple[float, float]  # where its object stands
    marker_height: float = 0.0  # above the floor
    angle: float = 0.0  # which way to turn


@dataclass(frozen=True)
class Level:
    """A level: what it is called, and its map, made when it is first needed."""

    name: str  # as on the command line
    title: str
    env_id: str
    max_steps: int
    num_goals: int

    @cached_property
    def layout(self) -> Layout:
        """Where one can walk, and the places of the milestones as goals."""
        return _tour_layout() if self.name == "tour-3d" else TASKS[self.name.removesuffix("-3d")].layout

    @cached_property
    def zones(self) -> tuple[Zone, ...]:
        """The parts that differ in looks."""
        return TOUR_ZONES if self.name == "tour-3d" else ROOMS

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """(lines, columns) the zone of each cell of the map, or WALL; north is up."""
        if self.name == "tour-3d":
            return np.array([[TOUR_MARKS.find(mark) for mark in row] for row in TOUR])
        free = np.array([[mark != "#" for mark in row] for row in self.layout.rows])
        column_cuts, line_cuts = CUTS[self.name]
        columns = np.searchsorted(column_cuts, np.arange(free.shape[1]), side="right")
        lines = np.searchsorted(line_cuts, np.arange(free.shape[0]), side="right")
        return np.where(free, (lines[:, None] * (len(column_cuts) + 1) + columns) % len(ROOMS), WALL)

    @cached_property
    def edges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The x of the columns' edges from west to east, y of the lines' edges from north to south."""
        width, height = self.layout.room_size
        lines, columns = self.cells.shape
        return np.linspace(0, UNITS * width, columns + 1), np.linspace(UNITS * height, 0, lines + 1)

    @property
    def start(self) -> tuple[float, float]:
        """Where the walker begins."""
        return self.to_world(self.layout.starts[0])

    @property
    def start_angle(self) -> int:
        """Which way it looks: in the tour at a wall, elsewhere towards the first goal, to a quarter turn."""
        if self.name == "tour-3d":
            return 180
        x, y = self.layout.goals[0] - self.layout.starts[0]
        return int(round(np.degrees(np.arctan2(-y, x)) / 90) * 90) % 360

    @cached_property
    def milestones(self) -> tuple[Milestone, ...]:
        """What to do, in order."""
        places = [self.to_world(goal) for goal in self.layout.goals]
        if self.name == "tour-3d":
            return _tour_milestones(self.start, places)
        return tuple(Milestone(f"goal {i + 1}", "reach", place, place) for i, place in enumerate(places))

    def to_world(self, pixel: NDArray[np.float64]) -> tuple[float, float]:
        """A place of the layout, in engine units."""
        return UNITS * float(pixel[0]), UNITS * (self.layout.room_size[1] - float(pixel[1]))

    def to_layout(self, x: float, y: float) -> NDArray[np.float64]:
        """(2,) a place of the level, in the layout's pixels."""
        return np.array([x / UNITS, self.layout.room_size[1] - y / UNITS])


LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level("four-room-3d", "Four room 3D", "PIDMNav3D-FourRoom-v0", 600, 4),
        Level("zigzag-3d", "Zigzag 3D", "PIDMNav3D-Zigzag-v0", 500, 6),
        Level("maze-3d", "Maze 3D", "PIDMNav3D-Maze-v0", 900, 10),
        Level("multiroom-3d", "Multiroom 3D", "PIDMNav3D-Multiroom-v0", 1200, 6),
        Level("tour-3d", "Tour", "PIDMNav3D-Tour-v0", 700, 11),
    )
}


def get_level(name: str | Level) -> Level:
    """The level of that name, spelled `four-room-3d`, `FourRoom3D` or `PIDMNav3D-FourRoom-v0`."""
    if isinstance(name, Level):
        return name
    given = name.rpartition(":")[2].lower()
    for level in LEVELS.values():
        plain = level.name.replace("-", "")
        if given == level.env_id.lower() or given.replace("-", "").replace("_", "") == plain:
            return level
    raise ValueError(f"no 3D level is called '{name}': choose one of {', '.join(LEVELS)}")


def is_3d(name: str) -> bool:
    """Whether it spells a 3D level, known or not: `tour-3d`, `Tour3D` or `PIDMNav3D-Tour-v0`."""
    return "3d" in name.lower()


def find_task(name: str) -> Task | Level | None:
    """The 2D task or the level of that name, None for a map of one's own."""
    return get_level(name) if is_3d(name) else TASKS.get(name)


def stored_name(task: str) -> str:
    """How datasets call a 2D task or a level."""
    return get_level(task).env_id if is_3d(task) else get_task(task).name


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

CUTS: dict[str, tuple[list[int], list[int]]] = {  # columns and lines at which the looks change
    "four-room-3d": ([11], [11]),
    "zigzag-3d": ([14, 27], [6]),
    "maze-3d": ([14, 27], [7, 12]),
    "multiroom-3d": ([11, 26], [5, 9]),
}

TOUR = (
    "##################################",
    "#hhhhhhhhh#ggggggggg#####ffffffff#",
    "#hhhhhhhhh#ggggggggg#####ffffffff#",
    "#hhhhhhhhh#ggggggggg#####ffffffff#",
    "#hhhhhhhhh#ggggggggg54321ffffffff#",
    "#hhhhhhhhh#ggggggggg54321ffffffff#",
    "#hhhhhhhhh#ggggggggg54321ffffffff#",
    "#hhhhhhhhh#####555#######ffffffff#",
    "#hhhhhhhhh#####444#######ffffppff#",
    "#hhhhhhhhh#####333#######ffffppff#",
    "#hhhhhhhhh#####222#######ffffffff#",
    "####ccc########111#######ffffffff#",
    "####ccc###bbbbbbbbbbb#############",
    "####ccc###bbbbbbbbbbb#############",
    "####ccc###bbbbbbbbbbb#############",
    "####ccc###bbbbBBBbbbb#############",
    "####ccccccbbbbBBBbbbb#############",
    "####ccccccbbbbBBBbbbb#############",
    "####ccccccbbbbbbbbbbb#############",
    "##########bbbbbbbbbbb#############",
    "##########bbbbbbbbbbb#############",
    "##################################",
)
TOUR_CELL = 32  # pixels of the layout
TOUR_MARKS = "hcbBg12345fp"
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
TOUR_START = (4, 4)  # line and column; places are corners between cells, as in every layout
TOUR_PLACES: tuple[tuple[str, Kind, tuple[int, int]], ...] = (
    ("cross the hall", "reach", (3, 8)),
    ("pick up the sphere", "pick up", (9, 3)),
    ("enter the corridor", "reach", (13, 6)),
    ("south of the box", "reach", (19, 15)),
    ("east of the box", "reach", (16, 19)),
    ("north of the box", "reach", (14, 13)),
    ("climb the stairs", "reach", (6, 17)),
    ("look up", "look up", (3, 13)),
    ("down to the garden", "reach", (5, 29)),
    ("stand still", "stand still", (9, 30)),
)


def _tour_layout() -> Layout:
    """The tour's map as a layout: the box is a wall, the places are goals."""
    grid = [["#" if mark in "#B" else "." for mark in row] for row in TOUR]
    marks = {TOUR_START: "A"} | {cell: GOAL_MARKS[i] for i, (_, _, cell) in enumerate(TOUR_PLACES)}
    for (line, column), mark in marks.items():
        grid[line][column] = mark
    size = (TOUR_CELL * len(TOUR[0]), TOUR_CELL * len(TOUR))
    return Layout(tuple("".join(row) for row in grid), size)


def _tour_milestones(start: tuple[float, float], places: list[tuple[float, float]]) -> tuple[Milestone, ...]:
    """The milestones at their places, and before them all the turn away from the wall."""
    milestones = [Milestone("turn round", "turn", start, (start[0] + 300, start[1]), angle=0.0)]
    for (name, kind, _), place in zip(TOUR_PLACES, places, strict=True):
        high = 170.0 if kind == "look up" else 24.0 if kind == "pick up" else 0.0
        north = (place[0], place[1] + 160) if kind == "look up" else place
        milestones.append(Milestone(name, kind, place, north, high))
    return tuple(milestones)
