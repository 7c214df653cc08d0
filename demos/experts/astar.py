"""The A* expert: plan the shortest noise-free path to the next goal, take its first step, replan.

Plans are on integer pixels. The cost is the number of steps, so a diagonal step costs as much as a straight one. As in
the dynamics, a move is allowed if its end overlaps no wall, and the room's border stops it. A path ends where the
agent's box overlaps the goal's. One breadth-first sweep from a goal over all pixels takes 40 to 120 ms and gives the
paths that A* would find from each pixel; after that, a plan is a lookup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import EnvOrTask, Expert, Tables, layout_of, read_states
from pidm_nav.limits import CACHE_BYTES, cache_by_bytes, check_number
from pidm_nav.world2d.layout import BOX, Layout
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import state_size

FAR = 30_000  # cost of pixels without a path to the goal
REMEMBERED = 64  # guides that a planner keeps, unless the map is huge; a larger batch of goals raises it


def compass(step: int, directions: int = 8) -> NDArray[np.int64]:
    """Return moves (directions, 2) of `step` pixels along the faster axis; 8 are straight and diagonal ones."""
    grid = np.rint(np.linspace(-step, step, directions // 4 + 1)).astype(int)
    return np.array([(x, y) for x in grid for y in grid if max(abs(x), abs(y)) == step])


class Guide(NamedTuple):
    """Shortest paths from all pixels to one goal."""

    cost: NDArray[np.int16]  # (width, height) steps to the goal; FAR without a path
    best: NDArray[np.uint8]  # (width, height) index of the move to take


class Planner:
    """Shortest paths in one map with one set of moves.

    Ties are broken by the mean cost of the surroundings, `caution` pixels each way. This keeps paths away from walls
    and corners, where noise costs most.

    Args:
        layout: the map.
        step: length of a move along the faster axis, in pixels.
        directions: 8 for straight and diagonal moves, or None for 32 directions.
    """

    def __init__(self, layout: Layout, step: int, directions: int | None) -> None:
        self.layout, self.free = layout, layout.free()
        self.moves = compass(step, directions or 32)
        self.caution = 4 if directions == 8 else step  # 4 px is the standard deviation of the noise
        self._guides = Tables(self._make_guide, min(REMEMBERED, CACHE_BYTES // (3 * self.free.size)))

    def nbytes(self) -> int:
        """Return the bytes of the map and of the guides, 3 per pixel."""
        return self.free.nbytes * (1 + 3 * len(self._guides))

    def pixels(self, positions: NDArray[Any]) -> NDArray[np.intp]:
        """Return the pixel inside the room nearest to each position (..., 2)."""
        return np.array(np.clip(np.rint(positions), 0, np.array(self.layout.room_size) - 1), np.intp)

    def look_up(self, positions: NDArray[Any], goals: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the cost (N,) and the best move (N, 2) from each position (N, 2) towards its goal (N, 2)."""
        x, y = self.pixels(positions).T
        cost, best = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
        for rows, guide in self._guides.towards(goals):
            cost[rows], best[rows] = guide.cost[x[rows], y[rows]], guide.best[x[rows], y[rows]]
        return cost, self.moves[best]

    def _make_guide(self, *goal: float) -> Guide:
        """Return the guide to a goal, by a breadth-first sweep over free pixels and adjacent walls."""
        x, y = map(int, goal)
        front = np.zeros_like(self.free)  # at first, the free positions that reach the goal
        front[max(x - BOX + 1, 0) : x + BOX, max(y - BOX + 1, 0) : y + BOX] = True
        front &= self.free
        touched = np.where(front, 0, FAR).astype(np.int16)
        margin, steps = int(np.abs(self.moves).max()), 0
        while front.any():
            steps += 1
            window = _surroundings(front, margin)  # the rest of the map does not change
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
        """Return for each pixel the move to the lowest cost; ties are broken by the surroundings."""
        from scipy.ndimage import uniform_filter

        ceiling = touched[touched < FAR].max(initial=0) + 1.0
        around = uniform_filter(np.minimum(touched, ceiling), 2 * self.caution + 1, mode="nearest")
        rank = cost + around / (ceiling + 1.0)  # the second term is below 1, so it only breaks ties
        lowest = np.full(cost.shape, np.inf)
        best = np.zeros(cost.shape, dtype=np.uint8)
        for index, view in enumerate(_neighbors(rank, self.moves)):
            best[view < lowest] = index
            np.minimum(lowest, view, out=lowest)
        return best


planner_for = cache_by_bytes(Planner.nbytes)(Planner)  # experts on the same map share planners


def _surroundings(front: NDArray[np.bool_], margin: int) -> tuple[slice, slice]:
    """Return the smallest window with all of `front` and `margin` pixels around it."""
    x, y = np.flatnonzero(front.any(axis=1)), np.flatnonzero(front.any(axis=0))
    return slice(max(x[0] - margin, 0), x[-1] + margin + 1), slice(max(y[0] - margin, 0), y[-1] + margin + 1)


def _neighbors(grid: NDArray[Any], moves: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Yield for each move the (width, height) grid shifted by the move; the border stops moves."""
    width, height = grid.shape
    pad = int(np.abs(moves).max())
    padded = np.pad(grid, pad, mode="edge")
    for x, y in moves.tolist():
        yield padded[pad + x : pad + x + width, pad + y : pad + y + height]


class AStarExpert(Expert):
    """Deterministic expert that plans shortest paths, for one observation or batches.

    Args:
        env_or_task: a task or its name, an environment (single or vector, wrapped or not), or a `Layout`.
        speed: stick deflection along each moving axis, 0.1 to 1; rounded to integer pixels per step (20 at 1).
        directions: 8 for straight and diagonal moves (the paper's planner, with `speed=0.8`); None for 32 directions.
    """

    def __init__(self, env_or_task: EnvOrTask, speed: float = 0.8, directions: int | None = 8) -> None:
        if directions not in (8, None):
            raise ValueError(f"directions is {directions!r}: choose 8, or None for any angle")
        check_number("speed", speed, 0.1, 1, integer=False)  # smaller ones are within the stick's deadzone
        self.layout = layout_of(env_or_task)
        self.state_size = state_size(self.layout.num_goals)
        self.settings = {"expert": "astar", "speed": float(speed), "directions": directions}
        step = round(SPEED * speed)
        self._deflection = float(speed) / step  # per pixel
        # long steps can miss a narrow door; shorter ones are tried where they find no path
        steps = dict.fromkeys((step, max(step // 4, 2), 2))
        self._planners = [planner_for(self.layout, pixels, directions) for pixels in steps]

    def act(self, states: NDArray[Any], memory: Any, begins: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        """Return the actions (N, 2), 0 in ended episodes."""
        costs, moves = self._look_up(states)
        if (costs == FAR).any():
            raise self._no_path(states[costs == FAR][0])
        return moves * self._deflection, memory

    def cost(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Return the noise-free steps to the next goal for state vectors (D,) or (N, D); 0 in ended episodes."""
        return self._look_up(self.read(observation))[0].reshape(np.shape(observation)[:-1])

    def plan(self, state: NDArray[Any]) -> NDArray[np.float64]:
        """Return the path (P, 2) from a state vector to the next goal, including the start."""
        path, goals, done = read_states(self.read(state), self.layout)
        if len(path) != 1:
            raise ValueError(f"plan takes one state vector, not {np.shape(state)}: use predict for batches")
        for planner in () if done[0] else self._planners:
            while (found := planner.look_up(path[-1:], goals))[0] not in (0, FAR):
                path = np.concatenate([path, planner.pixels(planner.pixels(path[-1:]) + found[1])])
            if found[0] == 0:
                return path
        if not done[0]:
            raise self._no_path(state)
        return path

    def _look_up(self, states: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the cost (N,) and the best move (N, 2) in pixels; both are 0 in ended episodes."""
        positions, goals, done = read_states(states, self.layout)
        costs, moves = np.where(done, 0, FAR), np.zeros((len(states), 2), np.int64)
        for planner in self._planners:
            rows = np.flatnonzero(costs == FAR)
            costs[rows], moves[rows] = planner.look_up(positions[rows], goals[rows])
        return costs, moves

    def _no_path(self, state: NDArray[Any]) -> ValueError:
        (position,), (goal,), _ = read_states(self.read(state), self.layout)
        return ValueError(f"there is no path from {position} to the goal at {goal}: widen the gaps in the map's walls")
