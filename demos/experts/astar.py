"""The A* expert: plan the shortest noise-free path to the next goal, take its first step, plan again."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.demos.experts.planner import FAR, Planner, planner_for
from pidm_nav.tasks import Task, find_task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import current_goals, split_state, state_size

Place = str | Task | Layout | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


class AStarExpert:
    """A deterministic expert with the shape of a policy, for one observation or for thousands at once.

    Args:
        env_or_task: a task or its name, an environment (wrapped or not, single or vector, also of a map of
            one's own), or a `Layout`.
        speed: stick deflection along each axis that moves, 0.1 to 1; planned in whole pixels (20 at 1).
        directions: 8 for straight and diagonal moves, which with `speed=0.8` is what the paper's planner did;
            None for any angle (32 of them, at full deflection along the faster axis).
    """

    sees_state = True  # predict() is given state vectors, whatever the environment's observations are

    def __init__(self, env_or_task: Place, speed: float = 0.8, directions: int | None = 8) -> None:
        if directions not in (8, None):
            raise ValueError(f"directions is {directions!r}: choose 8, or None for any angle")
        if not 0.1 <= speed <= 1:
            raise ValueError(f"speed is {speed}: it must be between 0.1 (the stick's deadzone) and 1")
        self.layout = layout_of(env_or_task)
        self.speed = float(speed)
        self.directions = directions
        step = round(SPEED * speed)
        # A lattice of long steps can miss a narrow doorway; from there shorter ones are tried.
        steps = dict.fromkeys((step, max(step // 4, 2), 2))
        self._planners = [planner_for(self.layout, pixels, directions) for pixels in steps]

    @property
    def settings(self) -> dict[str, Any]:
        """What a dataset made with this expert says about it."""
        return {"expert": "astar", "speed": self.speed, "directions": self.directions}

    def predict(
        self,
        observation: NDArray[Any],
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], Any]:
        """The action (2,) for a state vector (D,), or (N, 2) for (N, D); an ended episode gets 0."""
        positions, goals, done = read_states(observation, self.layout)
        actions = np.zeros(positions.shape, dtype=np.float64)
        waiting = ~done
        for planner in self._planners:
            if not waiting.any():
                break
            rows = np.flatnonzero(waiting)
            cost, best = _look_up(planner, positions[rows], goals[rows])
            found = rows[cost < FAR]
            moves = planner.moves[best[cost < FAR]]
            actions[found] = moves * (self.speed / round(SPEED * self.speed))
            waiting[found] = False
        if waiting.any():
            row = int(np.flatnonzero(waiting)[0])
            raise _no_path(positions[row], goals[row])
        return actions.astype(np.float32).reshape(*np.shape(observation)[:-1], 2), state

    def cost(self, observation: NDArray[Any]) -> NDArray[np.int64]:
        """Steps to the next goal without noise for (D,) or (N, D) state vectors; 0 in an ended episode."""
        positions, goals, done = read_states(observation, self.layout)
        costs = np.where(done, 0, FAR)
        for planner in self._planners:
            rows = np.flatnonzero(costs == FAR)
            costs[rows] = _look_up(planner, positions[rows], goals[rows])[0]
        return costs.reshape(np.shape(observation)[:-1])

    def plan(self, state: NDArray[Any]) -> NDArray[np.float64]:
        """(P, 2) A* path from a state vector to where the next goal is touched, the start included."""
        positions, goals, done = read_states(state, self.layout)
        if len(positions) != 1:
            raise ValueError(f"plan takes one state vector, not {np.shape(state)}: use predict for many")
        if done[0]:
            return positions
        for planner in self._planners:
            path = planner.search(_pixel(planner, positions[0]), _pixel(planner, goals[0]))
            if path is not None:
                return np.concatenate([positions, path[1:]])
        raise _no_path(positions[0], goals[0])


def _look_up(
    planner: Planner, positions: NDArray[np.float64], goals: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) cost and index of the best move at each position towards its goal."""
    width, height = planner.layout.room_size
    x = np.clip(np.rint(positions[:, 0]), 0, width - 1).astype(np.intp)
    y = np.clip(np.rint(positions[:, 1]), 0, height - 1).astype(np.intp)
    targets, group = np.unique(goals.astype(np.int64) @ (height, 1), return_inverse=True)
    cost, best = np.empty(len(x), np.int64), np.empty(len(x), np.int64)
    for index, target in enumerate(targets.tolist()):
        guide = planner.guide(divmod(target, height), keep=len(targets))
        rows = np.flatnonzero(group == index) if len(targets) > 1 else slice(None)
        cost[rows], best[rows] = guide.cost[x[rows], y[rows]], guide.best[x[rows], y[rows]]
    return cost, best


def _pixel(planner: Planner, position: NDArray[np.float64]) -> tuple[int, int]:
    width, height = planner.layout.room_size
    x, y = np.rint(position).astype(int).tolist()
    return min(max(x, 0), width - 1), min(max(y, 0), height - 1)


def _no_path(position: NDArray[np.float64], goal: NDArray[np.float64]) -> ValueError:
    return ValueError(
        f"no path leads from {position.tolist()} to the goal at {goal.tolist()}: widen the gaps in the map's walls"
    )


def layout_of(env_or_task: Place) -> Layout:
    """The map of a task or an environment; refused if the environment does not observe the state vector."""
    if isinstance(env_or_task, Layout):
        return env_or_task
    if isinstance(env_or_task, str | Task):
        found = find_task(env_or_task).layout()
        if found is None:
            raise ValueError(f"{env_or_task} has no map to plan on: give a navigation task, an environment or a Layout")
        return found
    inner: Any = getattr(env_or_task, "unwrapped", env_or_task)
    if getattr(inner, "envs", None):  # environments that are stepped one after the other
        return layout_of(inner.envs[0])
    world = getattr(inner, "world", None)
    if world is None:
        raise ValueError(f"{env_or_task!r} is no navigation task: give a task's name or a PIDMNav environment")
    for argument, usual in (("obs_type", "state"), ("observe_goals", True), ("relative_goals", False)):
        value = getattr(world, argument)
        if value != usual:
            raise ValueError(
                f"the environment has {argument}={value!r} and the expert needs the state vector: "
                f"make it without {argument}"
            )
    space = getattr(env_or_task, "single_observation_space", env_or_task.observation_space)
    if space != world.observation_space:
        raise ValueError(f"a wrapper changes the observations to {space}: the expert needs the state vector, unwrap it")
    layout: Layout = world.map
    return layout


def read_states(
    observation: NDArray[Any], layout: Layout
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Positions (N, 2), current goals (N, 2) and which rows have ended (N,), of (D,) or (N, D) states."""
    states = np.atleast_2d(np.asarray(observation))
    dim = state_size(layout.num_goals)
    if states.ndim != 2 or states.shape[1] != dim:
        raise ValueError(
            f"the observation has shape {np.shape(observation)}: this map's state vector has {dim} numbers, "
            "as an environment made without observation arguments gives it"
        )
    positions, goals, reached = split_state(states)
    current = current_goals(goals, reached)
    inside = (current >= 0) & (current < layout.room_size) & (current == np.rint(current))
    if not (inside.all() and np.isfinite(positions).all()):
        row = int(np.flatnonzero(~(inside.all(axis=1) & np.isfinite(positions).all(axis=1)))[0])
        raise ValueError(
            f"row {row} puts the agent at {positions[row].tolist()} and a goal at {current[row].tolist()}: "
            "that is not a state vector in pixels"
        )
    return positions, current, reached == layout.num_goals
