"""What the experts share: the shape of a policy, and how a task, an environment or a map is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.tasks import Task, find_task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import current_goals, split_state

Table = TypeVar("Table")
Place = str | Task | Layout | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


class Expert:
    """A policy over state vectors; subclasses say how N of them act."""

    sees_state = True  # predict() is given state vectors, whatever the environment's observations are
    state_size: int  # numbers in a state vector
    settings: dict[str, Any]  # what a dataset made with this expert says about it

    def act(self, states: NDArray[Any], memory: Any, begins: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        """Return actions (N, A) for state vectors (N, D), and the memory, which is None before the first step."""
        raise NotImplementedError

    def predict(
        self, observation: NDArray[Any], state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the action (A,) for a state vector (D,), or (N, A) for (N, D), and the memory for the next call.

        Without `state`, each call is the first of an episode.
        """
        states = self.read(observation)
        begins = True if state is None else False if episode_start is None else episode_start
        if state is not None and len(state) != len(states):
            raise ValueError(f"the state is that of {len(state)} rows, not of {len(states)}: begin with state=None")
        actions, state = self.act(states, state, np.broadcast_to(begins, len(states)))
        return actions.astype(np.float32).reshape(*np.shape(observation)[:-1], -1), state

    def read(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return one or many observations as state vectors (N, D)."""
        states = np.atleast_2d(np.asarray(observation))
        if states.shape[1:] != (self.state_size,):
            raise ValueError(
                f"observations of shape {np.shape(observation)} are not state vectors, which have {self.state_size} "
                "numbers here: give what the environment's get_state() returns"
            )
        return states


def layout_of(env_or_task: Place) -> Layout:
    """Return the map of a task or an environment, which must observe the state vector."""
    if isinstance(env_or_task, Layout):
        return env_or_task
    if isinstance(env_or_task, str | Task):
        found = find_task(env_or_task).layout()
        if found is None:
            raise ValueError(f"{env_or_task} has no map to plan on: give a navigation task, an environment or a Layout")
        return found
    inner: Any = env_or_task.unwrapped
    if getattr(inner, "envs", None):  # environments that are stepped one after the other
        return layout_of(inner.envs[0])
    world = getattr(inner, "world", None)
    if world is None:
        raise ValueError(f"{env_or_task!r} is no navigation task: give a task's name or a PIDMNav environment")
    space = getattr(env_or_task, "single_observation_space", env_or_task.observation_space)
    seen = (world.obs_type, world.observe_goals, world.relative_goals)
    if seen != ("state", True, False) or space != world.observation_space:
        raise ValueError(
            f"the expert needs the state vector, and the environment gives {space}: make it without obs_type, "
            "observe_goals and relative_goals, and without a wrapper of its observations"
        )
    layout: Layout = world.map
    return layout


def read_states(states: NDArray[Any], layout: Layout) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return positions (N, 2), current goals (N, 2) and which rows have ended (N,), of 2D states (N, D)."""
    positions, goals, reached = split_state(states)
    current = current_goals(goals, reached)
    inside = (current >= 0) & (current < layout.room_size) & (current == np.rint(current))
    wrong = np.flatnonzero(~(inside & np.isfinite(positions)).all(axis=1))
    if wrong.size:
        place, goal = positions[wrong[0]].tolist(), current[wrong[0]].tolist()
        raise ValueError(
            f"row {wrong[0]} puts the agent at {place} and a goal at {goal}: that is not a state vector in pixels"
        )
    return positions, current, reached == layout.num_goals


class Tables(Generic[Table]):
    """What leads from everywhere to a goal, made when it is first asked for; the most recently used ones are kept."""

    def __init__(self, make: Callable[[float, float], Table], keep: int) -> None:
        self.make, self.keep = make, keep
        self._made: dict[complex, Table] = {}

    def __len__(self) -> int:
        return len(self._made)

    def towards(self, goals: NDArray[Any]) -> Iterator[tuple[NDArray[np.intp], Table]]:
        """Yield for each different one of the goals (N, 2) its rows and its table."""
        targets, group = np.unique(goals[:, 0] + 1j * goals[:, 1], return_inverse=True)
        for index, target in enumerate(targets.tolist()):
            table = self._made.pop(target) if target in self._made else self.make(target.real, target.imag)
            self._made[target] = table
            while len(self._made) > max(self.keep, len(targets)):
                del self._made[next(iter(self._made))]
            yield np.flatnonzero(group == index), table
