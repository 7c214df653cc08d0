"""The A* expert: plan the shortest noise-free path to the next goal, take its first step, plan again.

Plans are made on whole pixels. Their cost is the number of steps, so a diagonal costs what a straight step costs. A
move is allowed when its end overlaps no wall, which is all the dynamics ask for; the room's border stops it, as it does
there. A path ends where the agent's box overlaps the goal's. One sweep outward from a goal over all pixels, 40 to
120 ms, finds what A* would find from every one of them; after that, a plan is a look-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import Expert, Place, Tables, layout_of, read_states
from pidm_nav.limits import CACHE_BYTES, cache_by_bytes, check_number
from pidm_nav.world2d.layout import BOX, Layout
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import state_size

FAR = 30_000  # cost of a pixel from which the moves never reach the goal
REMEMBERED = 64  # guides that a planner keeps on maps that are not huge; a larger batch of goals raises it


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
        self._guides = Tables(self._make_guide, min(REMEMBERED, CACHE_BYTES // (3 * self.free.size)))

    def nbytes(self) -> int:
        """Return the bytes of the map and of the guides, which have 3 per pixel."""
        return self.free.nbytes * (1 + 3 * len(self._guides))

    def pixels(self, positions: NDArray[Any]) -> NDArray[np.intp]:
        """Return the pixel inside the room that is nearest to each position (..., 2)."""
        return np.array(np.clip(np.rint(positions), 0, np.array(self.layout.room_size) - 1), np.intp)

    def look_up(self, positions: NDArray[Any], goals: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the cost (N,) and the best move (N, 2) from each position (N, 2) towards its goal (N, 2)."""
        x, y = self.pixels(positions).T
        cost, best = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
        for rows, guide in self._guides.towards(goals):
            cost[rows], best[rows] = guide.cost[x[rows], y[rows]], guide.best[x[rows], y[rows]]
        return cost, self.moves[best]

    def _make_guide(self, *goal: float) -> Guide:
        """Sweep breadth first from the goal, which gives the cost of each free pixel and of the walls touched."""
        x, y = map(int, goal)
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


planner_for = cache_by_bytes(Planner.nbytes)(Planner)  # experts on the same map share their planners and guides


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


class AStarExpert(Expert):
    """A deterministic expert with the shape of a policy, for one observation or for thousands at once.

    Args:
        env_or_task: a task or its name, an environment (wrapped or not, single or vector, also of a map of
            one's own), or a `Layout`.
        speed: stick deflection along each axis that moves, 0.1 to 1; planned in whole pixels (20 at 1).
        directions: 8 for straight and diagonal moves, which with `speed=0.8` is what the paper's planner did;
            None for any angle (32 of them, at full deflection along the faster axis).
    """

    def __init__(self, env_or_task: Place, speed: float = 0.8, directions: int | None = 8) -> None:
        if directions not in (8, None):
            raise ValueError(f"directions is {directions!r}: choose 8, or None for any angle")
        check_number("speed", speed, 0.1, 1, integer=False)  # below, the stick's deadzone swallows it
        self.layout = layout_of(env_or_task)
        self.state_size = state_size(self.layout.num_goals)
        self.settings = {"expert": "astar", "speed": float(speed), "directions": directions}
        step = round(SPEED * speed)
        self._deflection = float(speed) / step  # per pixel
        # A lattice of long steps can miss a narrow doorway; from there shorter ones are tried.
        steps = dict.fromkeys((step, max(step // 4, 2), 2))
        self._planners = [planner_for(self.layout, pixels, directions) for pixels in steps]

    def act(self, states: NDArray[Any], memory: Any, begins: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        """Return the actions (N, 2); an ended episode gets 0."""
        costs, moves = self._look_up(states)
        if (costs == FAR).any():
            raise self._no_path(states[costs == FAR][0])
        return moves * self._deflection, memory

    def cost(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Return the steps to the next goal without noise for (D,) or (N, D) state vectors; 0 in an ended episode."""
        return self._look_up(self.read(observation))[0].reshape(np.shape(observation)[:-1])

    def plan(self, state: NDArray[Any]) -> NDArray[np.float64]:
        """Return the path (P, 2) from a state vector to where the next goal is touched, the start included."""
        path, goals, done = read_states(self.read(state), self.layout)
        if len(path) != 1:
            raise ValueError(f"plan takes one state vector, not {np.shape(state)}: use predict for many")
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
        return ValueError(f"no path leads from {position} to the goal at {goal}: widen the gaps in the map's walls")
