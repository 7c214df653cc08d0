"""A map drawn in ASCII, and the pixels it stands for.

    ##########      # or W     wall
    #....#...#      . or space free
    #.A..#.1.#      A          start (several: one is drawn for each episode)
    #....#...#      1..9 a..z  goals in visiting order; or G everywhere, with `goal_order`
    #.2......#
    ##########

A map is a grid of cells stretched over a room in pixels, x to the right and y down. Its text says everything;
the wall rectangles, starts and goals are derived from it here and nowhere else. A start or goal is centred on the
upper left corner of its cell, so the cells to its left and above it must be free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

BOX = 20
"""Side of the agent's and of each goal's box, in pixels."""
REACH = BOX // 2
"""How far a box reaches from its centre."""
MARGIN = 32
"""Pixels beyond the room that a bounce can end at, at most.

A push is at most BOX + 1 and is only applied while a wall is overlapped, that is while the centre is less than
REACH + 1 pixels outside (walls may stand one pixel out, by rounding): 10 + 1 + 21."""

GOAL_MARKS = "123456789" + ascii_lowercase


@dataclass(frozen=True, eq=False)
class Layout:
    """One map: its text and the pixels derived from it."""

    rows: tuple[str, ...]
    room_size: tuple[int, int] = (800, 800)
    starts: NDArray[np.float64] = field(init=False, repr=False)  # (S, 2) centres
    goals: NDArray[np.float64] = field(init=False, repr=False)  # (G, 2) centres, in visiting order
    walls: NDArray[np.int64] = field(init=False, repr=False)  # (W, 4) left, top, width, height

    @classmethod
    def load(
        cls,
        source: str | Path,
        room_size: Sequence[int] = (800, 800),
        goal_order: Sequence[int] | None = None,
    ) -> Layout:
        """A map from its text (anything with a line break in it) or from a file's path."""
        if isinstance(source, str) and ("\n" in source or not source.strip()):
            return cls.parse(source, room_size, goal_order)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise FileNotFoundError(f"no map file at '{source}': give a path or the map's text") from None
        except UnicodeDecodeError:
            raise ValueError(f"'{source}' is not a text file: a map is plain ASCII") from None
        return cls.parse(text, room_size, goal_order)

    @classmethod
    def parse(cls, text: str, room_size: Sequence[int] = (800, 800), goal_order: Sequence[int] | None = None) -> Layout:
        """A map from its text; whatever is wrong with it is said with the line and the column.

        Args:
            text: the map.
            room_size: width and height of the room in pixels.
            goal_order: only for maps whose goals are all `G`: `goal_order[i]` is the goal to visit i-th, counting
                the Gs from 0 in reading order.
        """
        rows = _normalise(text)
        width, height = (int(side) for side in room_size)
        if min(width, height) < 2 * BOX:
            raise ValueError(f"room_size {width} x {height} is too small: both sides need {2 * BOX} pixels")
        if any("G" in row for row in rows):
            rows = _number_goals(rows, goal_order)
        elif goal_order is not None:
            raise ValueError("goal_order is only for maps with G goals: this one numbers its goals itself")
        return cls(rows, (width, height))

    def __post_init__(self) -> None:
        cells = {(mark, line, column) for line, row in enumerate(self.rows) for column, mark in enumerate(row)}
        starts = sorted((line, column) for mark, line, column in cells if mark == "A")
        goals = sorted((GOAL_MARKS.index(m), line, column) for m, line, column in cells if m in GOAL_MARKS)
        _check_marks(self.rows, starts, goals)
        object.__setattr__(self, "starts", self._centres(starts))
        object.__setattr__(self, "goals", self._centres([(line, column) for _, line, column in goals]))
        object.__setattr__(self, "walls", self._wall_rectangles())
        for array in (self.starts, self.goals, self.walls):
            array.flags.writeable = False
        self._check_room(starts, goals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and (self.rows, self.room_size) == (other.rows, other.room_size)

    def __hash__(self) -> int:
        return hash((self.rows, self.room_size))

    @property
    def text(self) -> str:
        """The map as text, readable by `parse`."""
        return "\n".join(self.rows) + "\n"

    @property
    def num_goals(self) -> int:
        """How many goals there are."""
        return len(self.goals)

    def free(self) -> NDArray[np.bool_]:
        """(width, height): the integer box centres inside the room at which no wall is overlapped."""
        free = np.ones(self.room_size, dtype=bool)
        for columns, lines, _, _ in self.wall_overlaps(pad=0):
            free[columns, lines] = False
        return free

    def reachable(self) -> NDArray[np.bool_]:
        """(width, height): the part of `free` that is connected with the first start."""
        from scipy.ndimage import label

        regions, _ = label(self.free())
        x, y = self.starts[0].astype(int)
        connected: NDArray[np.bool_] = regions == regions[x, y]
        return connected

    def wall_overlaps(self, pad: int) -> Iterator[tuple[slice, slice, NDArray[np.int64], NDArray[np.int64]]]:
        """For each wall rectangle, the box centres that overlap it and by how much.

        Yields slices over x and over y, into a grid whose index 0 is the centre at -pad, and the overlap's width
        at each of these x and its height at each of these y. Touching is not overlapping.
        """
        width, height = self.room_size
        for left, top, wide, high in self.walls.tolist():
            x = np.arange(max(left - REACH + 1, -pad), min(left + wide + REACH, width + pad))
            y = np.arange(max(top - REACH + 1, -pad), min(top + high + REACH, height + pad))
            overlap_x = np.minimum(x + REACH, left + wide) - np.maximum(x - REACH, left)
            overlap_y = np.minimum(y + REACH, top + high) - np.maximum(y - REACH, top)
            if x.size and y.size:
                yield (
                    slice(int(x[0]) + pad, int(x[-1]) + pad + 1),
                    slice(int(y[0]) + pad, int(y[-1]) + pad + 1),
                    overlap_x,
                    overlap_y,
                )

    def _centres(self, cells: list[tuple[int, int]]) -> NDArray[np.float64]:
        """(line, column) cells as (N, 2) pixels: ceil(column * width / columns), likewise for y."""
        width, height = self.room_size
        columns, lines = len(self.rows[0]), len(self.rows)
        pixels = [(-(-column * width // columns), -(-line * height // lines)) for line, column in cells]
        return np.array(pixels, dtype=np.float64).reshape(-1, 2)

    def _wall_rectangles(self) -> NDArray[np.int64]:
        """Wall cells merged into rectangles along rows, then down columns; the two passes may overlap."""
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
        scale_x, scale_y = self.room_size[0] / columns, self.room_size[1] / lines
        rectangles = []
        for cell_left, cell_top, cell_width, cell_height in cells:
            # Each number is rounded on its own (half to even), and the rectangle is then laid around its
            # truncated centre, which can move it by one pixel: so were the walls of the paper's recordings.
            left, wide = round(cell_left * scale_x), round(cell_width * scale_x)
            top, high = round(cell_top * scale_y), round(cell_height * scale_y)
            centre_x, centre_y = int(left + wide / 2), int(top + high / 2)
            rectangles.append((centre_x - wide // 2, centre_y - high // 2, wide, high))
        return np.array(rectangles, dtype=np.int64).reshape(-1, 4)

    def _check_room(self, starts: list[tuple[int, int]], goals: list[tuple[int, int, int]]) -> None:
        """Refuse boxes inside walls, starts on the first goal, and goals that no path reaches."""
        free, points = self.free(), np.concatenate([self.starts, self.goals]).astype(int)
        cells = [("start", *cell) for cell in starts]
        cells += [(f"goal {GOAL_MARKS[rank]}", line, column) for rank, line, column in goals]
        for (name, line, column), (x, y) in zip(cells, points, strict=True):
            if not free[x, y]:
                raise ValueError(
                    f"the {BOX} px box of {name} (map line {line + 1}, column {column + 1}) overlaps a wall: "
                    "it is centred on its cell's upper left corner, so keep the cells to its left and above it free"
                )
        reachable = self.reachable()
        for (name, line, column), (x, y) in zip(cells, points, strict=True):
            around = reachable[max(x - BOX + 1, 0) : x + BOX, max(y - BOX + 1, 0) : y + BOX]
            reached = reachable[x, y] if name == "start" else around.any()
            if not reached:
                raise ValueError(
                    f"no path leads from the start to {name} (map line {line + 1}, column {column + 1}): "
                    "open a gap in the walls wide enough for the 20 px agent"
                )
        for (line, column), start in zip(starts, self.starts, strict=True):
            if (np.abs(start - self.goals[0]) < BOX).all():
                raise ValueError(
                    f"the start (map line {line + 1}, column {column + 1}) touches the first goal: move one of them"
                )


def _normalise(text: str) -> tuple[str, ...]:
    """The map's lines with `W` and spaces spelled `#` and `.`, refused when they are not a rectangle of marks."""
    lines = text.splitlines()
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise ValueError("the map is empty: draw it with # walls, A start and goals 1, 2, ...")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(lines[0]):
            raise ValueError(
                f"map line {number} is {len(line)} characters wide, line 1 is {len(lines[0])}: make them equal"
            )
        for column, mark in enumerate(line, start=1):
            if mark not in "#W .AG" + GOAL_MARKS:
                raise ValueError(
                    f"map line {number}, column {column} has {mark!r}: "
                    "use # wall, . free, A start, 1-9 and a-z goals (or G)"
                )
    return tuple(line.replace("W", "#").replace(" ", ".") for line in lines)


def _number_goals(rows: tuple[str, ...], goal_order: Sequence[int] | None) -> tuple[str, ...]:
    """`G` goals replaced by their marks in visiting order."""
    cells = [(line, column) for line, row in enumerate(rows) for column, m in enumerate(row) if m == "G"]
    for line, row in enumerate(rows):
        for column, mark in enumerate(row):
            if mark in GOAL_MARKS:
                raise ValueError(
                    f"map line {line + 1}, column {column + 1} has goal {mark} beside G goals: use one kind"
                )
    if goal_order is None and len(cells) > 1:
        raise ValueError(f"the map has {len(cells)} G goals and no goal_order: say in which order to visit them")
    order = [int(goal) for goal in goal_order] if goal_order is not None else [0]
    if sorted(order) != list(range(len(cells))):
        raise ValueError(f"goal_order {order} must name each of 0 to {len(cells) - 1} once: the map has that many Gs")
    if len(order) > len(GOAL_MARKS):
        raise ValueError(f"the map has {len(order)} goals: {len(GOAL_MARKS)} is the most")
    grid = [list(row) for row in rows]
    for rank, goal in enumerate(order):
        line, column = cells[goal]
        grid[line][column] = GOAL_MARKS[rank]
    return tuple("".join(row) for row in grid)


def _check_marks(rows: tuple[str, ...], starts: list[tuple[int, int]], goals: list[tuple[int, int, int]]) -> None:
    """Refuse a map without a start or goals, or with a gap or a repetition in the goals' order."""
    size = f"{len(rows)} lines of {len(rows[0])}"
    if not starts:
        raise ValueError(f"the map ({size}) has no start: put an A where the agent begins")
    if not goals:
        raise ValueError(f"the map ({size}) has no goal: put a 1 where the agent must go first")
    for expected, (rank, line, column) in enumerate(goals):
        place = f"map line {line + 1}, column {column + 1}"
        if rank < expected:
            raise ValueError(f"goal {GOAL_MARKS[rank]} stands twice, again at {place}: give each goal its own mark")
        if rank > expected:
            raise ValueError(
                f"goal {GOAL_MARKS[rank]} at {place} has no goal {GOAL_MARKS[expected]} before it: renumber the goals"
            )


def _runs(wall: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and length of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wall, [False]]).astype(np.int8)))
    return [(int(start), int(stop - start)) for start, stop in edges.reshape(-1, 2)]
