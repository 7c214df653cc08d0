"""Expert: base class of experts, and functions that read maps and states for them."""

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
EnvOrTask = str | Task | Layout | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


class Expert:
    """Base class of policies over state vectors; subclasses define `act`."""

    sees_state = True  # predict() gets state vectors, whatever the environment's observations are
    state_size: int
    settings: dict[str, Any]  # kept in the source of datasets

    def act(self, states: NDArray[Any], memory: Any, begins: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        """Return actions (N, A) for state vectors (N, D), and the memory, None at first."""
        raise NotImplementedError

    def predict(
        self, observation: NDArray[Any], state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the action (A,) for a state vector (D,), or (N, A) for (N, D), and the memory for the next call.

        Without `state`, each call begins an episode.
        """
        states = self.read(observation)
        begins = True if state is None else False if episode_start is None else episode_start
        if state is not None and len(state) != len(states):
            raise ValueError(f"the state has {len(state)} rows, and the observation {len(states)}: give state=None")
        actions, state = self.act(states, state, np.broadcast_to(begins, len(states)))
        return actions.astype(np.float32).reshape(*np.shape(observation)[:-1], -1), state

    def read(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return one or many observations as state vectors (N, D)."""
        states = np.atleast_2d(np.asarray(observation))
        if states.shape[1:] != (self.state_size,):
            raise ValueError(
                f"observations have shape {np.shape(observation)}, and state vectors {self.state_size} features: give "
                "the environment's get_state()"
            )
        return states


def layout_of(env_or_task: EnvOrTask) -> Layout:
    """Return the map of a task or of an environment that observes the state vector."""
    if isinstance(env_or_task, Layout):
        return env_or_task
    if isinstance(env_or_task, str | Task):
        found = find_task(env_or_task).layout()
        if found is None:
            raise ValueError(f"{env_or_task} has no map: give a navigation task, an environment or a Layout")
        return found
    inner: Any = env_or_task.unwrapped
    if getattr(inner, "envs", None):  # a SyncVectorEnv
        return layout_of(inner.envs[0])
    world = getattr(inner, "world", None)
    if world is None:
        raise ValueError(f"{env_or_task!r} is not a navigation task: give a task's name or a PIDMNav environment")
    space = getattr(env_or_task, "single_observation_space", env_or_task.observation_space)
    observed = (world.obs_type, world.observe_goals, world.relative_goals)
    if observed != ("state", True, False) or space != world.observation_space:
        raise ValueError(
            f"the expert needs state vectors, and the environment has {space}: make it without obs_type, "
            "observe_goals, relative_goals and observation wrappers"
        )
    layout: Layout = world.map
    return layout


def read_states(states: NDArray[Any], layout: Layout) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return positions (N, 2), current goals (N, 2) and whether all goals are reached (N,), of 2D states (N, D)."""
    positions, goals, reached = split_state(states)
    current = current_goals(goals, reached)
    inside = (current >= 0) & (current < layout.room_size) & (current == np.rint(current))
    wrong = np.flatnonzero(~(inside & np.isfinite(positions)).all(axis=1))
    if wrong.size:
        place, goal = positions[wrong[0]].tolist(), current[wrong[0]].tolist()
        raise ValueError(f"row {wrong[0]} has the agent at {place} and a goal at {goal}: give state vectors in pixels")
    return positions, current, reached == layout.num_goals


class Tables(Generic[Table]):
    """Cache of tables, one per goal, which are made on first use; the most recently used ones are kept."""

    def __init__(self, make: Callable[[float, float], Table], keep: int) -> None:
        self.make, self.keep = make, keep
        self._made: dict[complex, Table] = {}

    def __len__(self) -> int:
        return len(self._made)

    def towards(self, goals: NDArray[Any]) -> Iterator[tuple[NDArray[np.intp], Table]]:
        """Yield the rows and the table of each distinct goal in (N, 2)."""
        targets, group = np.unique(goals[:, 0] + 1j * goals[:, 1], return_inverse=True)
        for index, target in enumerate(targets.tolist()):
            table = self._made.pop(target) if target in self._made else self.make(target.real, target.imag)
            self._made[target] = table
            while len(self._made) > max(self.keep, len(targets)):
                del self._made[next(iter(self._made))]
            yield np.flatnonzero(group == index), table
