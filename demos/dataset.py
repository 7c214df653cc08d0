"""Demonstrations in memory: the one type of everything that records, plans, trains or analyses.

An episode of T steps has one more observation than actions, and a training triple looks `horizon` = k steps
ahead in the same episode, never beyond its last observation:

    step t         0    1    2   ...  T-2    T-1    T
    observations  s_0  s_1  s_2  ... s_T-2  s_T-1  s_T     T+1: s_T is what the last action led to
    actions       a_0  a_1  a_2  ... a_T-2  a_T-1          T: a_t is taken in s_t and leads to s_t+1
    rewards       r_0  r_1  r_2  ... r_T-2  r_T-1          T: r_t is paid for arriving in s_t+1

    transitions(horizon=2)
    state         s_0  s_1  s_2  ... s_T-2  s_T-1
    action        a_0  a_1  a_2  ... a_T-2  a_T-1
    future        s_2  s_3  s_4  ... s_T    s_T            s_min(t+k, T): the end repeats, nothing is dropped
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from pidm_nav.episode import Episode
from pidm_nav.tasks import PAPER_TASKS, TASKS, Task, task_name
from pidm_nav.world2d.state import goals_of, has_goal_flags, state_size

Array = NDArray[Any]


class Transitions(NamedTuple):
    """Aligned training triples, M = the number of actions in all episodes (see the module's diagram)."""

    state: Array  # (M, D)
    action: Array  # (M, A)
    future: Array  # (M, D): `horizon` steps after state, at most the episode's last
    episode: NDArray[np.int64]  # (M,) index of the episode
    step: NDArray[np.int64]  # (M,) t within the episode


@dataclass(frozen=True)
class Summary:
    """The columns of the paper's dataset tables."""

    task: str
    episodes: int
    total_steps: int
    min_length: int
    mean_length: float
    max_length: int
    success: float  # fraction of episodes


@dataclass(frozen=True, eq=False)
class DemoDataset:
    """Immutable episodes of one task, and how they were made."""

    task: str  # a task's name, "custom" for another map, or the id of any other environment
    episodes: tuple[Episode, ...]
    source: Mapping[str, Any] = field(default_factory=dict)  # JSON-plain: made_by, env_kwargs, version...

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", task_name(self.task))
        object.__setattr__(self, "episodes", tuple(self.episodes))
        object.__setattr__(self, "source", _plain(self.source))
        if not self.episodes:
            raise ValueError("a dataset needs at least one episode")
        first = self.episodes[0]
        for index, episode in enumerate(self.episodes):
            for name in ("observations", "actions"):
                shape, expected = getattr(episode, name).shape[1:], getattr(first, name).shape[1:]
                if shape != expected:
                    raise ValueError(
                        f"episode {index} has {name} of shape {shape}, episode 0 of {expected}: "
                        "a dataset holds one task"
                    )
        _check_task(self)

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self.episodes)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.episodes[0].observations.shape[1:]))
        sizes = f"{len(self)} episodes, {self.num_steps:,} steps, observations {shape}, actions {self.action_dim}"
        return f"DemoDataset({self.task}, {sizes}, made by {self.source.get('made_by', 'unknown')})"

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[Any]) -> DemoDataset: ...
    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[Any]) -> Episode | DemoDataset:
        """The episode at an index, or the dataset of a slice, a list of indices or a mask."""
        if isinstance(index, int | np.integer):
            return self.episodes[int(index)]
        chosen = np.arange(len(self))[index if isinstance(index, slice) else np.asarray(index)]
        return replace(self, episodes=tuple(self.episodes[i] for i in chosen.tolist()))

    @property
    def num_steps(self) -> int:
        """Actions in all episodes together."""
        return sum(len(episode) for episode in self.episodes)

    @property
    def observation_dim(self) -> int:
        """Numbers in an observation."""
        return int(np.prod(self.episodes[0].observations.shape[1:]))

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return int(self.episodes[0].actions.shape[1])

    @property
    def goal_flags(self) -> tuple[int, ...]:
        """The columns of an observation that say whether a goal is reached; empty where it shows none."""
        if self.episodes[0].observations.ndim != 2 or self.task not in TASKS:  # pictures, or anybody's environment
            return ()
        task = TASKS[self.task]
        if task.map is None and not all(has_goal_flags(episode.observations) for episode in self.episodes):
            return ()
        return task.goal_flags(self.observation_dim)

    @cached_property
    def sha256(self) -> str:
        """A hash of all observations and actions."""
        digest = hashlib.sha256()
        for episode in self.episodes:
            digest.update(episode.observations.tobytes() + episode.actions.tobytes())
        return digest.hexdigest()

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """The environment's arguments that all episodes were made with."""
        arguments = _arguments(self)
        return {key: value for key, value in arguments[0].items() if all(a.get(key) == value for a in arguments)}

    def sample(self, n: int, rng: np.random.Generator) -> DemoDataset:
        """`n` whole episodes, each at most once; equal generators give nested subsets for growing `n`."""
        if not 1 <= n <= len(self):
            raise ValueError(f"cannot sample {n} of {len(self)} episodes: choose 1 to {len(self)}")
        return self[rng.permutation(len(self))[:n]]

    def split(self, first: int | float, rng: np.random.Generator) -> tuple[DemoDataset, DemoDataset]:
        """Two disjoint random parts, the first with `first` episodes, or that fraction if it is below 1."""
        count = round(first * len(self)) if isinstance(first, float) and first < 1 else int(first)
        if not 1 <= count < len(self):
            raise ValueError(f"cannot split {len(self)} episodes at {first}: both parts need one at least")
        order = rng.permutation(len(self))
        return self[np.sort(order[:count])], self[np.sort(order[count:])]

    @staticmethod
    def concatenate(datasets: Iterable[DemoDataset]) -> DemoDataset:
        """All episodes of datasets of the same task, in order; differing sources are kept under `parts`."""
        parts = list(datasets)
        if not parts:
            raise ValueError("there is no dataset to concatenate: give at least one")
        for part in parts[1:]:
            if part.task != parts[0].task:
                raise ValueError(f"cannot concatenate demonstrations of {parts[0].task} and of {part.task}")
        sources: list[Mapping[str, Any]] = []
        for part in parts:
            for source in part.source.get("parts", [part.source]):
                if source not in sources:
                    sources.append(source)
        source = sources[0]
        if len(sources) > 1:
            made_by = dict.fromkeys(str(each.get("made_by", "unknown")) for each in sources)
            source = {"made_by": " + ".join(made_by), "parts": sources}
        return DemoDataset(parts[0].task, tuple(episode for part in parts for episode in part), source)

    def summary(self) -> Summary:
        """Episodes, steps, shortest, mean and longest length, and the fraction that succeeded."""
        lengths = [len(episode) for episode in self.episodes]
        success = float(np.mean([episode.success for episode in self.episodes]))
        mean = sum(lengths) / len(lengths)
        return Summary(self.task, len(self), sum(lengths), min(lengths), mean, max(lengths), success)

    def transitions(self, horizon: int = 1) -> Transitions:
        """Every (s_t, a_t, s_{t+horizon}); near an episode's end the future is its last observation."""
        if horizon < 1:
            raise ValueError(f"horizon is {horizon}: the future is at least 1 step ahead")
        lengths = np.array([len(episode) for episode in self.episodes])
        step = np.concatenate([np.arange(length) for length in lengths])
        episode = np.repeat(np.arange(len(self)), lengths)
        first = (np.cumsum(lengths + 1) - (lengths + 1))[episode]  # the row of the episode's s_0
        observations = np.concatenate([each.observations for each in self.episodes])
        return Transitions(
            state=observations[first + step],
            action=np.concatenate([each.actions for each in self.episodes]),
            future=observations[first + np.minimum(step + horizon, lengths[episode])],
            episode=episode,
            step=step,
        )


def _plain(source: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON-plain copy, NumPy numbers and arrays converted."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise ValueError(f"a dataset's source holds a {type(value).__name__}: use JSON-plain values")

    plain: dict[str, Any] = json.loads(json.dumps(dict(source), default=convert))
    return plain


def _arguments(dataset: DemoDataset) -> list[dict[str, Any]]:
    """The environment's arguments of each of the dataset's sources."""
    return [part.get("env_kwargs", {}) for part in dataset.source.get("parts", [dataset.source])]


def infer_task(states: Array) -> str | None:
    """Return the task of the paper whose goals stand in these (..., D) states, or None."""
    return next((name for name, task in PAPER_TASKS.items() if _goals_match(states, task, exactly=True)), None)


def _goals_match(states: Array, task: Task, exactly: bool = False) -> bool:
    """Return whether the first numbers of each state, or exactly all of them, show the task's goals."""
    layout, size = task.layout(), state_size(task.num_goals)
    fits = states.shape[-1] == size if exactly else states.shape[-1] >= size
    return layout is not None and fits and bool((goals_of(states[..., :size]) == layout.goals).all())


def _check_task(dataset: DemoDataset) -> None:
    """Refuse observations that the dataset's task cannot have given: another's goals, or too few numbers."""
    arguments, shape = _arguments(dataset), dataset.episodes[0].observations.shape[1:]
    unseen = any(each.get("observe_goals") is False for each in arguments)
    if dataset.task not in PAPER_TASKS or len(shape) != 1 or unseen:
        return
    task = PAPER_TASKS[dataset.task]
    if shape[0] < state_size(task.num_goals):
        raise ValueError(
            f"observations of {shape[0]} numbers are not from {task.name}, whose states have "
            f"{state_size(task.num_goals)}: name the task they are from"
        )
    if any(each.get("random_goals") or each.get("relative_goals") for each in arguments):
        return
    for index, episode in enumerate(dataset.episodes):
        if not _goals_match(episode.observations, task):
            other = infer_task(episode.observations)
            hint = f"they are those of {other}" if other else "they stand elsewhere"
            raise ValueError(f"episode {index} does not show the goals of {task.name}: {hint}")
