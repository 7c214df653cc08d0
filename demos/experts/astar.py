"""The A* expert: plan the shortest noise-free path to the next goal, take its first step, plan again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import Expert, Place, layout_of, read_states
from pidm_nav.demos.experts.planner import FAR, planner_for
from pidm_nav.limits import check_number
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import state_size


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
        check_number("speed", speed, 0.1, 1, whole=False)  # below, the stick's deadzone swallows it
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
        """Return the A* path (P, 2) from a state vector to where the next goal is touched, the start included."""
        positions, goals, done = read_states(self.read(state), self.layout)
        if len(positions) != 1:
            raise ValueError(f"plan takes one state vector, not {np.shape(state)}: use predict for many")
        if done[0]:
            return positions
        for planner in self._planners:
            start, goal = map(tuple, planner.pixels(np.concatenate([positions, goals])).tolist())
            path = planner.search(start, goal)
            if path is not None:
                return np.concatenate([positions, path[1:]])
        raise self._no_path(state)

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
