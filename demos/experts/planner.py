"""Shortest paths for a box among walls: an A* search for one agent, and tables that answer for any number.

Both plan on whole pixels with the same moves and the same cost, the number of steps, so a diagonal costs what
a straight step costs. A move is allowed when its end overlaps no wall, which is all the dynamics ask for; the
room's border stops it, as it does there. A path ends where the agent's box overlaps the goal's.

    guide(goal)          one sweep outwards from the goal over all pixels, 40 to 120 ms; then only look-ups
    search(start, goal)  A*, one path
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pidm_nav.world2d.layout import BOX, Layout

Scalar = TypeVar("Scalar", np.bool_, np.float64)

FAR = 30_000
"""Cost of a pixel from which the moves never reach the goal."""
REMEMBERED = 64
"""Guides a planner keeps, at 3 bytes a pixel each; a larger batch of different goals raises it."""


def compass(step: int) -> NDArray[np.int64]:
    """(8, 2): straight and diagonal moves of `step` pixels along each axis that moves."""
    return np.array([(x, y) for x in (-step, 0, step) for y in (-step, 0, step) if x or y])


def all_round(step: int) -> NDArray[np.int64]:
    """(32, 2): 32 directions at full deflection, that is `step` pixels along the faster axis."""
    grid = np.rint(np.linspace(-step, step, 9)).astype(int)
    return np.array([(x, y) for x in grid for y in grid if max(abs(x), abs(y)) == step])


@dataclass(frozen=True)
class Guide:
    """The way to one goal from everywhere."""

    cost: NDArray[np.int16]  # (width, height) steps to the goal; FAR where the moves do not lead there
    best: NDArray[np.uint8]  # (width, height) index of the move to take


class Planner:
    """Paths in one layout with one set of moves.

    Args:
        layout: the map.
        moves: (M, 2) whole pixels.
        caution: among equal moves the one is taken whose surroundings, this many pixels each way, cost
            least on average: that keeps off walls and corners, where noise costs most.
    """

    def __init__(self, layout: Layout, moves: NDArray[np.int64], caution: int) -> None:
        self.layout = layout
        self.moves = moves
        self.caution = caution
        self.free = layout.free()
        self._guides: OrderedDict[tuple[int, int], Guide] = OrderedDict()

    def guide(self, goal: tuple[int, int], keep: int = REMEMBERED) -> Guide:
        """The guide to a goal's box; the latest `keep` of them are remembered."""
        if goal in self._guides:
            self._guides.move_to_end(goal)
            return self._guides[goal]
        cost, touched = self._sweep(goal)
        guide = Guide(cost, self._best_moves(cost, touched))
        self._guides[goal] = guide
        while len(self._guides) > max(keep, REMEMBERED):
            self._guides.popitem(last=False)
        return guide

    def _goal_box(self, goal: tuple[int, int]) -> NDArray[np.bool_]:
        """(width, height): the free centres at which the goal counts as reached."""
        box = np.zeros_like(self.free)
        x, y = goal
        box[max(x - BOX + 1, 0) : x + BOX, max(y - BOX + 1, 0) : y + BOX] = True
        return box & self.free

    def _sweep(self, goal: tuple[int, int]) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        """Breadth first from the goal: the cost of each free pixel, and with it of the walls touched."""
        front = self._goal_box(goal)
        touched = np.where(front, 0, FAR).astype(np.int16)
        steps = 0
        while front.any():
            steps += 1
            window = _surroundings(front, int(np.abs(self.moves).max()))  # the rest of the map cannot change
            reach = np.zeros_like(front[window])
            for view in _neighbours(front[window], self.moves):
                reach |= view
            reach &= touched[window] == FAR
            touched[window][reach] = steps
            front = np.zeros_like(front)
            front[window] = reach & self.free[window]
        return np.where(self.free, touched, FAR).astype(np.int16), touched

    def _best_moves(self, cost: NDArray[np.int16], touched: NDArray[np.int16]) -> NDArray[np.uint8]:
        """For each pixel the move to the lowest cost, among equals to the best surroundings."""
        from scipy.ndimage import uniform_filter

        ceiling = touched[touched < FAR].max(initial=0) + 1.0
        around = uniform_filter(np.minimum(touched, ceiling), 2 * self.caution + 1, mode="nearest")
        rank = cost + around / (ceiling + 1.0)  # the second term is below 1: it only decides between equals
        lowest = np.full(cost.shape, np.inf)
        best = np.zeros(cost.shape, dtype=np.uint8)
        for index, view in enumerate(_neighbours(rank, self.moves)):
            better = view < lowest
            best[better] = index
            np.minimum(lowest, view, out=lowest)
        return best

    def search(self, start: tuple[int, int], goal: tuple[int, int]) -> NDArray[np.int64] | None:
        """A* from a pixel to the goal's box: (P, 2) pixels from start to end, or None if there is no path."""
        (width, height), step = self.layout.room_size, int(np.abs(self.moves).max())
        goal_x, goal_y = goal
        moves: list[tuple[int, int]] = [(int(x), int(y)) for x, y in self.moves]
        free = self.free.tobytes()

        def remaining(x: int, y: int) -> int:  # no move covers more than `step` pixels of either axis: admissible
            gap = max(abs(x - goal_x), abs(y - goal_y)) - BOX + 1
            return max(-(-gap // step), 0)

        came_from: dict[tuple[int, int], tuple[int, int]] = {}
        cost = {start: 0}
        queue = [(remaining(*start), 0, start)]  # among equal totals the one that has come furthest, then by place
        while queue:
            _, minus_cost, place = heapq.heappop(queue)
            if -minus_cost > cost[place]:
                continue  # reached more cheaply since
            x, y = place
            if remaining(x, y) == 0:
                path = [place]
                while place != start:
                    place = came_from[place]
                    path.append(place)
                return np.array(path[::-1], dtype=np.int64)
            steps = cost[place] + 1
            for move_x, move_y in moves:
                end = (min(max(x + move_x, 0), width - 1), min(max(y + move_y, 0), height - 1))
                if free[end[0] * height + end[1]] and steps < cost.get(end, FAR):
                    cost[end] = steps
                    came_from[end] = place
                    heapq.heappush(queue, (steps + remaining(*end), -steps, end))
        return None


@lru_cache(maxsize=16)
def planner_for(layout: Layout, step: int, directions: int | None) -> Planner:
    """The planner everybody shares: experts on the same map then share their guides as well."""
    if directions == 8:
        return Planner(layout, compass(step), caution=4)  # 4 px: what the noise moves the agent by
    return Planner(layout, all_round(step), caution=step)


def _surroundings(front: NDArray[np.bool_], margin: int) -> tuple[slice, slice]:
    """The smallest window of the room with all of `front` and `margin` pixels around it."""
    x, y = np.flatnonzero(front.any(axis=1)), np.flatnonzero(front.any(axis=0))
    return slice(max(x[0] - margin, 0), x[-1] + margin + 1), slice(max(y[0] - margin, 0), y[-1] + margin + 1)


def _neighbours(grid: NDArray[Scalar], moves: NDArray[np.int64]) -> Iterator[NDArray[Scalar]]:
    """For each move, the (width, height) grid as seen from where it leads; the border stops it."""
    width, height = grid.shape
    pad = int(np.abs(moves).max())
    padded = np.pad(grid, pad, mode="edge")
    for x, y in moves.tolist():
        yield padded[pad + x : pad + x + width, pad + y : pad + y + height]
