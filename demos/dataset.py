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

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pidm_nav.tasks import TASKS, Task, get_task

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps; its arrays are checked once and read-only."""

    observations: Array  # (T+1, D) float32; or (T+1, H, W, C) uint8 images
    actions: Array  # (T, A) float32
    rewards: Array  # (T,) float32
    terminated: bool
    truncated: bool
    seed: int | None = None  # of the reset that began it
    infos: Mapping[str, Array] = field(default_factory=dict)  # worth keeping: (T, ...) or (T+1, ...)

    def __post_init__(self) -> None:
        images = np.asarray(self.observations).dtype == np.uint8 and np.ndim(self.observations) == 4
        observations = _checked("observations", self.observations, np.uint8 if images else np.float32)
        actions = _checked("actions", self.actions, np.float32)
        rewards = _checked("rewards", self.rewards, np.float32)
        steps = len(actions)
        if steps == 0:
            raise ValueError("an episode has no actions: leave empty episodes out")
        for name, array in (("observations", observations), ("actions", actions)):
            if (array.ndim != 2 and not (images and array is observations)) or array.shape[1] == 0:
                raise ValueError(f"{name} have shape {array.shape}: one row of numbers a step is needed")
        if len(observations) != steps + 1:
            raise ValueError(
                f"an episode has {len(observations)} observations for {steps} actions: "
                f"{steps + 1} are needed, the one after the last action too"
            )
        if rewards.shape != (steps,):
            raise ValueError(f"rewards have shape {rewards.shape}: {steps} actions need ({steps},)")
        infos = {str(key): _checked(f"info {key!r}", value, None) for key, value in self.infos.items()}
        for key, array in infos.items():
            if array.ndim == 0 or len(array) not in (steps, steps + 1):
                raise ValueError(f"info {key!r} has shape {array.shape}: it needs {steps} or {steps + 1} rows")
        object.__setattr__(self, "observations", observations)
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "rewards", rewards)
        object.__setattr__(self, "terminated", bool(self.terminated))
        object.__setattr__(self, "truncated", bool(self.truncated))
        object.__setattr__(self, "seed", None if self.seed is None else int(self.seed))
        object.__setattr__(self, "infos", infos)

    def __len__(self) -> int:
        """T, the number of actions."""
        return len(self.actions)

    @property
    def success(self) -> bool:
        """Whether it ended by termination, with every goal reached where the observation shows goals."""
        if not self.terminated:
            return False
        if has_goal_flags(self.observations):
            return bool((self.observations[-1, 4::3] == 1).all())
        return True


def _checked(name: str, value: ArrayLike, dtype: type[np.generic] | None) -> Array:
    """A read-only copy, refused unless it holds finite numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} are of type {array.dtype}: numbers are needed")
    with np.errstate(over="ignore"):
        checked = array.astype(dtype or array.dtype)
    if checked.dtype.kind == "f" and not np.isfinite(checked).all():
        where = np.argwhere(~np.isfinite(checked))[0].tolist()
        raise ValueError(f"{name} have a NaN or infinite number at {where}: drop that episode")
    checked.flags.writeable = False
    return checked


def has_goal_flags(observations: Array) -> bool:
    """Whether these (T+1, D) observations are states `[x, y, (goal_x, goal_y, reached) per goal]`."""
    if observations.ndim != 2 or observations.shape[1] < 5 or observations.shape[1] % 3 != 2:
        return False
    flags = observations[:, 4::3]
    return bool(((flags == 0) | (flags == 1)).all())


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
        object.__setattr__(self, "task", _task_name(self.task))
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
        """The number of episodes."""
        return len(self.episodes)

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
        """Where an observation holds the goals' reached flags; empty when it shows none."""
        if self.episodes[0].observations.ndim != 2:  # pictures
            return ()
        if self.task in TASKS and self.observation_dim >= TASKS[self.task].state_dim:
            return tuple(range(4, TASKS[self.task].state_dim, 3))
        if self.task == "custom" and all(has_goal_flags(episode.observations) for episode in self.episodes):
            return tuple(range(4, self.observation_dim, 3))
        return ()

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


def _task_name(task: str) -> str:
    """One of our tasks' names if it spells one, else what was given."""
    try:
        return get_task(task).name
    except ValueError:
        return "custom" if task == "PIDMNav-Custom-v0" else task


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
    """The task whose goals stand in these (..., D) states, or None."""
    for task in TASKS.values():
        if states.shape[-1] == task.state_dim and _goals_match(states, task):
            return task.name
    return None


def _goals_match(states: Array, task: Task) -> bool:
    """Whether the first numbers of each state show the task's goals."""
    states = states[..., : task.state_dim]
    goals = np.stack([states[..., 2::3], states[..., 3::3]], axis=-1)  # (..., G, 2)
    return bool((goals == task.layout.goals).all())


def _check_task(dataset: DemoDataset) -> None:
    """Refuse observations that the dataset's task cannot have given: another's goals, or too few numbers."""
    arguments, shape = _arguments(dataset), dataset.episodes[0].observations.shape[1:]
    unseen = any(each.get("observe_goals") is False for each in arguments)
    if dataset.task not in TASKS or len(shape) != 1 or unseen:
        return
    task = TASKS[dataset.task]
    if shape[0] < task.state_dim:
        raise ValueError(
            f"observations of {shape[0]} numbers are not from {task.name}, whose states have {task.state_dim}"
        )
    if any(each.get("random_goals") or each.get("relative_goals") for each in arguments):
        return
    for index, episode in enumerate(dataset.episodes):
        if not _goals_match(episode.observations, task):
            other = infer_task(episode.observations)
            hint = f"they are {other}'s" if other else "they stand elsewhere"
            raise ValueError(f"episode {index} does not show the goals of {task.name}: {hint}")
