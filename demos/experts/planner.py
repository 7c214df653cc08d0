"""Shortest paths for a box among walls: an A* search for one agent, and tables that answer for any number.

Both plan on whole pixels with the same moves and the same cost, the number of steps, so a diagonal costs what
a straight step costs. A move is allowed when its end overlaps no wall, which is all the dynamics ask for; the
room's border stops it, as it does there. A path ends where the agent's box overlaps the goal's.

    guide(goal)          one sweep outward from the goal over all pixels, 40 to 120 ms; after that only look-ups
    search(start, goal)  A*, one path
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pidm_nav.world2d.layout import BOX, Layout

FAR = 30_000  # cost of a pixel from which the moves never reach the goal
REMEMBERED = 64  # guides that a planner keeps, at 3 bytes per pixel each; a larger batch of goals raises it

Key = TypeVar("Key")
Value = TypeVar("Value")


def remember(memory: dict[Key, Value], key: Key, make: Callable[[Key], Value], keep: int) -> Value:
    """Return what belongs to a key, made unless it is in memory, where the `keep` most recently used ones stay."""
    value = memory.pop(key) if key in memory else make(key)
    memory[key] = value
    while len(memory) > keep:
        del memory[next(iter(memory))]
    return value


def compass(step: int, directions: int = 8) -> NDArray[np.int64]:
    """Return moves (directions, 2) of `step` pixels along the faster axis, all round; with 8, straight and diagonal."""
    grid = np.rint(np.linspace(-step, step, directions // 4 + 1)).astype(int)
    return np.array([(x, y) for x in grid for y in grid if max(abs(x), abs(y)) == step])


class Guide(NamedTuple):
    """The way to one goal from everywhere."""

    cost: NDArray[np.int16]  # (width, height) steps to the goal; FAR where the moves do not lead there
    best: NDArray[np.uint8]  # (width, height) index of the move to take


class Planner:
    """Paths in one layout with one set of moves.

    Among equal moves the one is taken whose surroundings, `caution` pixels each way, cost least on average: that keeps
    off walls and corners, where noise costs most.

    Args:
        layout: the map.
        step: the length of a move along the faster axis, in pixels.
        directions: 8 for straight and diagonal moves, or None for 32 directions.
    """

    def __init__(self, layout: Layout, step: int, directions: int | None) -> None:
        self.layout, self.free = layout, layout.free()
        self.moves = compass(step, directions or 32)
        self.caution = 4 if directions == 8 else step  # 4 px: what the noise moves the agent by
        self._guides: dict[tuple[int, int], Guide] = {}

    def pixels(self, positions: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """Return the pixel inside the room that is nearest to each position (..., 2)."""
        return np.array(np.clip(np.rint(positions), 0, np.array(self.layout.room_size) - 1), np.intp)

    def look_up(self, positions: NDArray[Any], goals: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the cost (N,) and the best move (N, 2) from each position (N, 2) towards its goal (N, 2)."""
        x, y = self.pixels(positions).T
        height = self.layout.room_size[1]
        targets, group = np.unique(goals.astype(np.int64) @ (height, 1), return_inverse=True)
        cost, best = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
        for index, target in enumerate(targets.tolist()):
            rows = np.flatnonzero(group == index) if len(targets) > 1 else slice(None)
            guide = self.guide(divmod(target, height), keep=len(targets))
            cost[rows], best[rows] = guide.cost[x[rows], y[rows]], guide.best[x[rows], y[rows]]
        return cost, self.moves[best]

    def guide(self, goal: tuple[int, int], keep: int = REMEMBERED) -> Guide:
        """Return the guide to a goal's box; at least the `keep` latest used ones are remembered."""
        return remember(self._guides, goal, self._make_guide, max(keep, REMEMBERED))

    def _make_guide(self, goal: tuple[int, int]) -> Guide:
        """Sweep breadth first from the goal, which gives the cost of each free pixel and of the walls touched."""
        x, y = goal
        front = np.zeros_like(self.free)  # first the free centers at which the goal counts as reached
        front[max(x - BOX + 1, 0) : x + BOX, max(y - BOX + 1, 0) : y + BOX] = True
        front &= self.free
        touched = np.where(front, 0, FAR).astype(np.int16)
        margin, steps = int(np.abs(self.moves).max()), 0
        while front.any():
            steps += 1
            window = _surroundings(front, margin)  # the rest of the map cannot change
            reach = np.zeros_like(front[window])
            for view in _neighbors(front[window], self.moves):
                reach |= view
            reach &= touched[window] == FAR
            touched[window][reach] = steps
            front = np.zeros_like(front)
            front[window] = reach & self.free[window]
        cost = np.where(self.free, touched, FAR).astype(np.int16)
        return Guide(cost, self._best_moves(cost, touched))

    def _best_moves(self, cost: NDArray[np.int16], touched: NDArray[np.int16]) -> NDArray[np.uint8]:
        """Return for each pixel the move to the lowest cost, among equals to the best surroundings."""
        from scipy.ndimage import uniform_filter

        ceiling = touched[touched < FAR].max(initial=0) + 1.0
        around = uniform_filter(np.minimum(touched, ceiling), 2 * self.caution + 1, mode="nearest")
        rank = cost + around / (ceiling + 1.0)  # the second term is below 1: it only decides between equals
        lowest = np.full(cost.shape, np.inf)
        best = np.zeros(cost.shape, dtype=np.uint8)
        for index, view in enumerate(_neighbors(rank, self.moves)):
            best[view < lowest] = index
            np.minimum(lowest, view, out=lowest)
        return best

    def search(self, start: tuple[int, int], goal: tuple[int, int]) -> NDArray[np.int64] | None:
        """Search with A* from a pixel to the goal's box: (P, 2) pixels from start to end, or None without a path."""
        (width, height), step = self.layout.room_size, int(np.abs(self.moves).max())
        goal_x, goal_y = goal
        moves, free = self.moves.tolist(), self.free.tobytes()

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
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return np.array(path[::-1], dtype=np.int64)
            steps = cost[place] + 1
            for move_x, move_y in moves:
                end = (min(max(x + move_x, 0), width - 1), min(max(y + move_y, 0), height - 1))
                if free[end[0] * height + end[1]] and steps < cost.get(end, FAR):
                    cost[end] = steps
                    came_from[end] = place
                    heapq.heappush(queue, (steps + remaining(*end), -steps, end))
        return None


planner_for = lru_cache(maxsize=16)(Planner)  # experts on the same map share their planners and guides


def _surroundings(front: NDArray[np.bool_], margin: int) -> tuple[slice, slice]:
    """Return the smallest window of the room with all of `front` and `margin` pixels around it."""
    x, y = np.flatnonzero(front.any(axis=1)), np.flatnonzero(front.any(axis=0))
    return slice(max(x[0] - margin, 0), x[-1] + margin + 1), slice(max(y[0] - margin, 0), y[-1] + margin + 1)


def _neighbors(grid: NDArray[Any], moves: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Yield for each move the (width, height) grid as seen from where it leads; the border stops it."""
    width, height = grid.shape
    pad = int(np.abs(moves).max())
    padded = np.pad(grid, pad, mode="edge")
    for x, y in moves.tolist():
        yield padded[pad + x : pad + x + width, pad + y : pad + y + height]
