"""Layout: a map in ASCII, and its walls, starts and goals in pixels.

    ##########      # or W     wall
    #....#...#      . or space free
    #.A..#.1.#      A          start (several: one is drawn for each episode)
    #....#...#      1..9 a..z  goals in visiting order; or G everywhere, with `goal_order`
    #.2......#
    ##########

A map is a grid of cells stretched over a room in pixels, x to the right and y down. A start or goal is centered on the
upper left corner of its cell, so the cells to its left and above it must be free.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from pidm_nav.files import read_bytes
from pidm_nav.limits import MAX_CELLS, MAX_SIDE, check_number

BOX = 20  # side of the agent's and of each goal's box, in pixels
REACH = BOX // 2  # from the center of a box to its edge, in pixels
MARGIN = 32
"""Largest distance outside the room at which a bounce can end, in pixels.

A push is at most BOX + 1 and is only applied while a wall is overlapped, that is while the center is less than
REACH + 1 pixels outside (by rounding, walls may stick out by one pixel): 10 + 1 + 21."""

GOAL_MARKS = "123456789" + ascii_lowercase

Cell = tuple[str, int, int]  # mark, line, column


@dataclass(frozen=True)
class Layout:
    """One map: its text and the pixels derived from it."""

    rows: tuple[str, ...]
    room_size: tuple[int, int] = (800, 800)
    starts: NDArray[np.float64] = field(init=False, repr=False, compare=False)  # (S, 2) centers
    goals: NDArray[np.float64] = field(init=False, repr=False, compare=False)  # (G, 2) centers, in visiting order
    walls: NDArray[np.int64] = field(init=False, repr=False, compare=False)  # (W, 4) left, top, width, height

    @classmethod
    def load(
        cls,
        source: str | Path | Sequence[str],
        room_size: Sequence[int] = (800, 800),
        goal_order: Sequence[int] | None = None,
    ) -> Layout:
        """Load a map from a text (with a line break), a list of lines or a file's path."""
        if isinstance(source, list | tuple) and all(isinstance(line, str) for line in source):
            source = "\n".join(source) + "\n"
        if not isinstance(source, str | Path) or "\0" in str(source):
            raise ValueError(f"the map is {reprlib.repr(source)}: give a path, the map's text or its lines")
        text = str(source)
        if isinstance(source, Path) or ("\n" not in source and source.strip()):
            try:
                text = read_bytes(source, 4 * MAX_CELLS).decode("utf-8-sig")
            except FileNotFoundError:
                raise FileNotFoundError(f"there is no map '{source}': give a path or the map's text") from None
            except UnicodeDecodeError:
                raise ValueError(f"'{source}' is not a text file: give a map in ASCII") from None
        return cls.parse(text, room_size, goal_order)

    @classmethod
    def parse(cls, text: str, room_size: Sequence[int] = (800, 800), goal_order: Sequence[int] | None = None) -> Layout:
        """Parse a map; errors name the line and the column.

        Args:
            text: the map.
            room_size: width and height of the room in pixels.
            goal_order: for maps whose goals are all `G`: `goal_order[i]` is the i-th goal to visit, with the Gs
                numbered from 0 in reading order.
        """
        rows = _normalize(text)
        try:
            width, height = room_size
        except (TypeError, ValueError):
            raise ValueError(f"room_size is {reprlib.repr(room_size)}: give its width and height in pixels") from None
        check_number("the width of room_size", width, 2 * BOX, MAX_SIDE)
        check_number("the height of room_size", height, 2 * BOX, MAX_SIDE)
        if any("G" in row for row in rows):
            rows = _number_goals(rows, goal_order)
        elif goal_order is not None:
            raise ValueError("goal_order is given, and the map has numbered goals: leave it out")
        return cls(rows, (int(width), int(height)))

    def __post_init__(self) -> None:
        cells = [(mark, line, column) for line, row in enumerate(self.rows) for column, mark in enumerate(row)]
        starts = [cell for cell in cells if cell[0] == "A"]
        goals = sorted(cell for cell in cells if cell[0] in GOAL_MARKS)
        _check_marks(self.rows, starts, goals)
        derived = {"starts": self._centers(starts), "goals": self._centers(goals), "walls": self._wall_rectangles()}
        for name, array in derived.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        self._check_room([*starts, *goals])

    @property
    def text(self) -> str:
        """Text of the map, for `parse`."""
        return "\n".join(self.rows) + "\n"

    @property
    def num_goals(self) -> int:
        """Number of goals."""
        return len(self.goals)

    def free(self) -> NDArray[np.bool_]:
        """Return (width, height) whether a box centered on each integer position overlaps no wall."""
        free = np.ones(self.room_size, dtype=bool)
        for columns, lines, _, _ in self.wall_overlaps(pad=0):
            free[columns, lines] = False
        return free

    def reachable(self) -> NDArray[np.bool_]:
        """Return (width, height) whether each position is free and connected to the first start."""
        from scipy.ndimage import label

        regions, _ = label(self.free())
        x, y = self.starts[0].astype(int)
        return np.asarray(regions == regions[x, y])

    def wall_overlaps(self, pad: int) -> Iterator[tuple[slice, slice, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield, for each wall rectangle, the box centers that overlap it and by how much.

        These are slices over x and over y, into a grid whose index 0 is the center at -pad, and the overlap's width
        at each of these x and its height at each of these y. Touching is not overlapping.
        """
        width, height = self.room_size
        for left, top, wide, high in self.walls.tolist():
            x = np.arange(max(left - REACH + 1, -pad), min(left + wide + REACH, width + pad))
            y = np.arange(max(top - REACH + 1, -pad), min(top + high + REACH, height + pad))
            if x.size and y.size:
                overlap_x = np.minimum(x + REACH, left + wide) - np.maximum(x - REACH, left)
                overlap_y = np.minimum(y + REACH, top + high) - np.maximum(y - REACH, top)
                yield slice(x[0] + pad, x[-1] + pad + 1), slice(y[0] + pad, y[-1] + pad + 1), overlap_x, overlap_y

    def _centers(self, cells: list[Cell]) -> NDArray[np.float64]:
        """Return the cells' positions (N, 2): ceil(column * width / columns), likewise for y, within the room."""
        places = np.array([(column, line) for _, line, column in cells])
        corners = -(-places * self.room_size // (len(self.rows[0]), len(self.rows)))
        return np.asarray(np.minimum(corners, np.array(self.room_size) - 1), np.float64)

    def _wall_rectangles(self) -> NDArray[np.int64]:
        """Merge wall cells into rectangles along rows, then down columns; the two passes may overlap."""
        wall = np.array([[mark == "#" for mark in row] for row in self.rows])
        lines, columns = wall.shape
        cells: list[tuple[int, int, int, int]] = []  # left, top, width, height in cells
        for line in range(lines):
            for start, length in _runs(wall[line]):
                above = line > 0 and wall[line - 1, start]
                below = line + 1 < lines and wall[line + 1, start]
                left_to_columns = length == 1 and (above or below) and start + length < columns
                if not left_to_columns:
                    cells.append((start, line, length, 1))
        for column in range(columns):
            for start, length in _runs(wall[:, column]):
                if length >= 2 or start + length == lines:
                    cells.append((column, start, 1, length))
        # Each number is rounded separately (half to even), and the rectangle is placed around its truncated center,
        # which can shift it by one pixel, as in the paper's recordings.
        scale = np.divide(self.room_size, (columns, lines))
        corners, sizes = np.rint(np.array(cells).reshape(-1, 2, 2) * scale).astype(np.int64).swapaxes(0, 1)
        return np.hstack([(corners + sizes / 2).astype(np.int64) - sizes // 2, sizes])

    def _check_room(self, cells: list[Cell]) -> None:
        """Raise ValueError for boxes inside walls, starts on the first goal, and unreachable goals."""
        free, reachable = self.free(), self.reachable()
        for (mark, line, column), (x, y) in zip(cells, self._centers(cells).astype(int).tolist(), strict=True):
            place = f"{'start' if mark == 'A' else f'goal {mark}'} (map line {line + 1}, column {column + 1})"
            if not free[x, y]:
                raise ValueError(
                    f"the {BOX} px box of {place} overlaps a wall: "
                    "keep the cells to its left and above it free, as it is centered on its cell's upper left corner"
                )
            around = reachable[max(x - BOX + 1, 0) : x + BOX, max(y - BOX + 1, 0) : y + BOX]
            if not (reachable[x, y] if mark == "A" else around.any()):
                raise ValueError(
                    f"there is no path from the start to {place}: "
                    f"open a gap in the walls that is wide enough for the {BOX} px agent"
                )
            if mark == "A" and (np.abs((x, y) - self.goals[0]) < BOX).all():
                raise ValueError(f"the {place} touches the first goal: move one of them")


def _normalize(text: str) -> tuple[str, ...]:
    """Return the map's lines with `W` and spaces as `#` and `.`; they must be a rectangle of known marks."""
    lines = text.strip("\r\n").splitlines()
    if not lines:
        raise ValueError("the map is empty: draw it with # walls, A start and goals 1, 2, ...")
    if sum(map(len, lines)) > MAX_CELLS:
        raise ValueError(f"the map has more than {MAX_CELLS:,} characters: draw it with fewer and larger cells")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(lines[0]):
            raise ValueError(
                f"map line {number} has {len(line)} characters, and line 1 has {len(lines[0])}: make them equal"
            )
        unknown = re.search(f"[^#W .AG{GOAL_MARKS}]", line)
        if unknown:
            place = f"map line {number}, column {unknown.start() + 1}"
            raise ValueError(f"{place} has {unknown[0]!r}: use # wall, . free, A start, 1-9 and a-z goals (or G)")
    return tuple(line.replace("W", "#").replace(" ", ".") for line in lines)


def _number_goals(rows: tuple[str, ...], goal_order: Sequence[int] | None) -> tuple[str, ...]:
    """Replace `G` goals by their marks in visiting order."""
    for line, row in enumerate(rows, start=1):
        goal = re.search(f"[{GOAL_MARKS}]", row)
        if goal:
            place = f"map line {line}, column {goal.start() + 1}"
            raise ValueError(f"{place} has goal {goal[0]} beside G goals: use one kind")
    count = sum(row.count("G") for row in rows)
    if goal_order is None and count > 1:
        raise ValueError(f"the map has {count} G goals and no order: give goal_order, or number the goals")
    try:
        order = [0] if goal_order is None else [index(goal) for goal in goal_order]
    except TypeError:
        raise ValueError(f"goal_order is {reprlib.repr(goal_order)}: give integers") from None
    if sorted(order) != list(range(count)):
        raise ValueError(f"goal_order is {order}: give each of 0 to {count - 1} once, as the map has {count} Gs")
    if count > len(GOAL_MARKS):
        raise ValueError(f"the map has {count} goals: use at most {len(GOAL_MARKS)}")
    marks = (GOAL_MARKS[order.index(goal)] for goal in range(count))
    return tuple("".join(next(marks) if mark == "G" else mark for mark in row) for row in rows)


def _check_marks(rows: tuple[str, ...], starts: list[Cell], goals: list[Cell]) -> None:
    """Raise ValueError for a map without a start or goals, or with missing or repeated goals."""
    size = f"{len(rows)} lines of {len(rows[0])}"
    if not starts:
        raise ValueError(f"the map ({size}) has no start: put an A where the agent begins")
    if not goals:
        raise ValueError(f"the map ({size}) has no goal: put a 1 where the agent must go first")
    for number, (mark, line, column) in enumerate(goals):
        if mark != GOAL_MARKS[number : number + 1]:
            place = f"goal {mark} at map line {line + 1}, column {column + 1}"
            raise ValueError(f"{place} is repeated, or the previous goal is missing: number the goals 1, 2, 3, ...")


def _runs(wall: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the start and the length of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wall, [False]]).astype(np.int8)))
    return [(int(start), int(stop - start)) for start, stop in edges.reshape(-1, 2)]
