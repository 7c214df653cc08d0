"""DemoDataset: demonstrations in memory, for recording, training and analysis.

An episode of T steps has T+1 observations. The future of a training triple is `horizon` = k steps ahead in the same
episode, at most its last observation:

    step t         0    1    2   ...  T-2    T-1    T
    observations  s_0  s_1  s_2  ... s_T-2  s_T-1  s_T     T+1: the last action leads to s_T
    actions       a_0  a_1  a_2  ... a_T-2  a_T-1          T: a_t is taken in s_t and leads to s_t+1
    rewards       r_0  r_1  r_2  ... r_T-2  r_T-1          T: r_t is the reward for reaching s_t+1

    transitions(horizon=2)
    state         s_0  s_1  s_2  ... s_T-2  s_T-1
    action        a_0  a_1  a_2  ... a_T-2  a_T-1
    future        s_2  s_3  s_4  ... s_T    s_T            s_min(t+k, T): the last observation repeats
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, overload

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pidm_nav.console import counted
from pidm_nav.rollouts.episode import Episode, Plottable, pictures
from pidm_nav.tasks import PAPER_TASKS, TASKS, check_env_kwargs, known_task, task_name
from pidm_nav.world2d.state import goals_of, has_goal_flags, state_size

SHOWN = 50  # episodes in the picture that notebooks show
# thresholds that delta-PIDM and analyses share
MIN_CHANGE_RATE = 0.02  # a feature that changes in a smaller fraction of steps, such as a goal flag, is ignored
MIN_LINEAR_R2 = 0.4  # of actions on changes of state; below it, changes alone do not determine actions


class Transitions(NamedTuple):
    """Aligned training triples; M is the number of actions in all episodes (see the module's diagram)."""

    state: NDArray[Any]  # (M, D)
    action: NDArray[Any]  # (M, A)
    future: NDArray[Any]  # (M, D): `horizon` steps after `state`, or the episode's last observation
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
    success: float | None  # fraction of episodes; None if the environment does not report success

    def _repr_html_(self) -> str:
        names = ("task", "episodes", "steps", "shortest", "mean length", "longest", "success")
        values = [f"{value:.4g}" if isinstance(value, float) else escape(str(value)) for value in vars(self).values()]
        values[-1] = "" if self.success is None else f'<meter value="{self.success}"></meter> {self.success:.0%}'
        rows = ("".join(f"<{tag}>{cell}</{tag}>" for cell in row) for tag, row in (("th", names), ("td", values)))
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


class Source(msgspec.Struct):
    """Schema of the entries of a dataset's `source` that the package reads; other entries are kept."""

    made_by: str = "unknown"
    env_kwargs: dict[str, Any] = {}
    parts: list[Source] = []

    def __post_init__(self) -> None:
        check_env_kwargs(self.env_kwargs)
        if "\n" not in str(self.env_kwargs.get("layout", "\n")):  # a dataset must never make us read another file
            raise ValueError("env_kwargs name the file of a map: give the map's text")


@dataclass(frozen=True, eq=False)
class DemoDataset(Plottable):
    """Immutable dataset of episodes of one task, with their origin."""

    task: str
    """Name of the task, "custom" for your own map, or a Gymnasium id."""
    episodes: tuple[Episode, ...]
    """The episodes."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Origin as plain JSON values: made_by, env_kwargs, version and more."""
    name: str = ""
    """Name of the file or dataset, such as maze/human-like or my_demos.npz; not saved."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", task_name(self.task))
        object.__setattr__(self, "episodes", tuple(self.episodes))
        object.__setattr__(self, "source", _plain(self.source))
        if not self.episodes:
            raise ValueError("a dataset needs at least one episode, and this one has none")
        for name in ("observations", "actions"):
            shapes = [getattr(episode, name).shape[1:] for episode in self.episodes]
            for index, shape in enumerate(shapes):
                if shape != shapes[0]:
                    raise ValueError(f"{name} of episode {index} have shape {shape}, and of episode 0 {shapes[0]}")
        _check_goals(self)
        check_env_kwargs(self.env_kwargs)

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self.episodes)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.episodes[0].observations.shape[1:]))
        sizes = f"{counted(len(self), 'episode')}, {counted(self.num_steps, 'step')}, observations {shape}"
        made_by = self.source.get("made_by", "unknown")
        return f"DemoDataset({self.task}, {sizes}, actions {self.action_dim}, made by {made_by})"

    def _repr_html_(self) -> str:
        return str(pictures().html(self, self[:SHOWN].plot))

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[Any]) -> DemoDataset: ...
    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[Any]) -> Episode | DemoDataset:
        """Return the episode at an index, or a dataset for a slice, a list of indices or a mask."""
        if isinstance(index, int | np.integer):
            return self.episodes[int(index)]
        wanted = index if isinstance(index, slice) else np.asarray(index, None if len(index) else int)
        chosen = np.arange(len(self))[wanted]
        return replace(self, episodes=tuple(self.episodes[i] for i in chosen.tolist()))

    @property
    def num_steps(self) -> int:
        """Number of actions in all episodes."""
        return sum(map(len, self.episodes))

    @property
    def observation_dim(self) -> int:
        """Number of values in an observation."""
        return int(np.prod(self.episodes[0].observations.shape[1:]))

    @property
    def goals_vary(self) -> bool:
        """Whether a feature that is constant within every episode, such as a goal's position, varies between them."""
        if self.episodes[0].observations.ndim != 2:
            return False
        firsts = np.stack([episode.observations[0] for episode in self])
        stays = [(episode.observations == first).all(axis=0) for episode, first in zip(self, firsts, strict=True)]
        return bool((np.all(stays, axis=0) & (firsts != firsts[0]).any(axis=0)).any())

    @property
    def action_dim(self) -> int:
        """Number of values in an action; 0 for demonstrations without actions."""
        return int(self.episodes[0].actions.shape[1])

    @property
    def goal_flags(self) -> tuple[int, ...]:
        """Columns of the flags of reached goals in an observation; empty if there are none."""
        task = known_task(self.task)
        if task is None or self.episodes[0].observations.ndim != 2:
            return ()
        shown = task.map is not None or all(has_goal_flags(episode.observations) for episode in self.episodes)
        return task.goal_flags(self.observation_dim) if shown else ()

    @property
    def num_goals(self) -> int:
        """Number of goals per episode; 0 if there are none or it is unknown."""
        task = known_task(self.task)
        return (task.num_goals if task else 0) or len(self.goal_flags)

    @cached_property
    def sha256(self) -> str:
        """Hash of all observations and actions."""
        digest = hashlib.sha256()
        for episode in self.episodes:
            digest.update(episode.observations.tobytes() + episode.actions.tobytes())
        return digest.hexdigest()

    @property
    def parts(self) -> list[dict[str, Any]]:
        """List of distinct sources."""
        parts: list[dict[str, Any]] = self.source.get("parts") or [dict(self.source)]
        return parts

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment that all episodes share."""
        first, *others = (part.get("env_kwargs", {}) for part in self.parts)
        return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}

    def sample(self, n: int, rng: np.random.Generator | None = None, *, seed: int = 0) -> DemoDataset:
        """Return `n` random episodes without replacement; subsets of one seed are nested.

        Args:
            n: number of episodes.
            rng: random generator. Default: a new one from `seed`.
            seed: seed of the default generator.
        """
        if not isinstance(n, int | np.integer) or not 1 <= n <= len(self):
            raise ValueError(f"cannot sample {n} of {len(self)} episodes: choose 1 to {len(self)}")
        return self[self._shuffled(rng, seed)[:n]]

    def split(
        self, first: int | float, rng: np.random.Generator | None = None, *, seed: int = 0
    ) -> tuple[DemoDataset, DemoDataset]:
        """Return two disjoint random subsets: `first` episodes (an integer, or a fraction below 1), and the rest."""
        fraction = isinstance(first, float) and first < 1
        size = round(first * len(self)) if fraction else int(first) if isinstance(first, int | np.integer) else 0
        if not 1 <= size < len(self):
            remedy = "give an integer, or a fraction below 1, that leaves both subsets at least one"
            raise ValueError(f"cannot split {len(self)} episodes at {first}: {remedy}")
        order = self._shuffled(rng, seed)
        return self[np.sort(order[:size])], self[np.sort(order[size:])]

    def _shuffled(self, rng: Any, seed: int) -> NDArray[np.int64]:
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng is {rng!r}: give np.random.default_rng(0), or seed=0")
        return (np.random.default_rng(seed) if rng is None else rng).permutation(len(self))

    def save(self, target: str | Path) -> None:
        """Write a `.npz` or `.hdf5` file or `minari:ID`, as `save_demos` does."""
        from pidm_nav.demos.formats import save_demos  # noqa: PLC0415  which imports this module

        save_demos(self, target)

    @staticmethod
    def from_arrays(task: str, source: Mapping[str, Any] | None = None, **arrays: ArrayLike) -> DemoDataset:
        """Return a dataset from flat arrays as in D4RL: concatenated episodes with flags at their ends.

        Args:
            task: name of a task, or a Gymnasium id.
            source: origin of the episodes, such as made_by and env_kwargs.
            arrays: `observations`, `actions`, `terminals` or `timeouts`, and optionally `rewards` and
                `next_observations`, one row per step. Without `next_observations`, the last action of an episode is
                dropped.
        """
        from pidm_nav.demos.formats.flat import from_flat  # noqa: PLC0415  which imports this module

        return from_flat(arrays, task, source=source)

    @staticmethod
    def concatenate(datasets: Iterable[DemoDataset]) -> DemoDataset:
        """Return one dataset of all episodes of datasets of one task; `parts` lists distinct sources."""
        datasets = list(datasets)
        tasks = list(dict.fromkeys(dataset.task for dataset in datasets))
        if len(tasks) != 1:
            given = f"demonstrations of {' and of '.join(tasks)}" if tasks else "no dataset"
            raise ValueError(f"cannot concatenate {given}: give datasets of one task")
        parts = [part for dataset in datasets for part in dataset.parts]
        source, *others = [part for index, part in enumerate(parts) if part not in parts[:index]]
        if others:
            made_by = dict.fromkeys(str(part.get("made_by", "unknown")) for part in (source, *others))
            source = {"made_by": " + ".join(made_by), "parts": [source, *others]}
        return DemoDataset(tasks[0], tuple(episode for dataset in datasets for episode in dataset), source)

    def without_actions(self) -> DemoDataset:
        """Return a copy without actions, whose shape is (T, 0)."""
        episodes = (replace(episode, actions=episode.actions[:, :0]) for episode in self)
        return replace(self, episodes=tuple(episodes))

    @property
    def num_failed(self) -> int:
        """Number of episodes that are known to have failed."""
        return sum(episode.success is False for episode in self)

    def summary(self) -> Summary:
        """Return the number of episodes and steps, the shortest, mean and longest length, and the success rate."""
        lengths = list(map(len, self.episodes))
        successes = [episode.success for episode in self.episodes]
        known = any(each is not None for each in successes)
        success = float(np.mean([bool(each) for each in successes])) if known else None
        total = sum(lengths)
        return Summary(self.task, len(self), total, min(lengths), total / len(self), max(lengths), success)

    def transitions(self, horizon: int = 1) -> Transitions:
        """Return every (s_t, a_t, s_{t+horizon}); near the end of an episode the future is its last observation."""
        if horizon < 1:
            raise ValueError(f"horizon is {horizon}: it must be at least 1")
        steps = [np.arange(len(episode)) for episode in self]
        ahead = [np.minimum(step + horizon, len(step)) for step in steps]
        return Transitions(
            state=np.concatenate([episode.observations[:-1] for episode in self]),
            action=np.concatenate([episode.actions for episode in self]),
            future=np.concatenate([episode.observations[later] for episode, later in zip(self, ahead, strict=True)]),
            episode=np.repeat(np.arange(len(self)), list(map(len, self))),
            step=np.concatenate(steps),
        )


def _plain(source: Mapping[str, Any]) -> Any:
    """Return a copy as plain JSON values, with NumPy values converted."""
    try:
        return json.loads(json.dumps(dict(source), default=lambda value: value.tolist(), allow_nan=False))
    except (AttributeError, TypeError, ValueError, RecursionError):
        needed = "finite numbers, texts, lists, and mappings with text keys, a few levels deep"
        raise ValueError(f"the source of a dataset is not plain JSON: give {needed}") from None


def check_environment(
    dataset: DemoDataset, name: str, task: str, known: Sequence[Mapping[str, Any]], remedy: str
) -> None:
    """Raise ValueError unless demonstrations have this task and one of the known sets of environment arguments.

    Missing arguments have the task's defaults. The error names the demonstrations `name` and ends with the remedy.
    """
    if dataset.task != task:
        raise ValueError(f"'{name}' holds demonstrations of {dataset.task}, not of {task}: {remedy}")
    defaults = TASKS[task].defaults if task in TASKS else {}
    ours: list[dict[str, Any]] = [_plain({**defaults, **each}) for each in known]
    for part in dataset.parts:
        theirs = _plain({**defaults, **part.get("env_kwargs", {})})
        if theirs not in ours:
            key = min(key for key in theirs.keys() | ours[0].keys() if theirs.get(key) != ours[0].get(key))
            other = f"another {key} ({theirs.get(key)!r}, not {ours[0].get(key)!r})"
            raise ValueError(f"'{name}' was made with {other}: {remedy}")


def infer_task(states: NDArray[Any]) -> str | None:
    """Return the paper's task with the goals of these state vectors (..., D), or None."""
    for name, task in PAPER_TASKS.items():
        layout = task.layout()
        if layout and states.shape[-1] == state_size(layout.num_goals) and (goals_of(states) == layout.goals).all():
            return name
    return None


def _check_goals(dataset: DemoDataset) -> None:
    """Raise ValueError if observations do not fit the dataset's task: other goals, or too few features."""
    source, shape = msgspec.convert(dataset.source, Source), dataset[0].observations.shape[1:]
    arguments = [part.env_kwargs for part in source.parts or [source]]
    task = PAPER_TASKS.get(dataset.task)
    if task is None or len(shape) != 1 or any(each.get("observe_goals") is False for each in arguments):
        return
    size = state_size(task.num_goals)
    if shape[0] < size:
        raise ValueError(f"observations have {shape[0]} features, and states of {task.name} have {size}")
    if any(each.get("random_goals") or each.get("relative_goals") for each in arguments):
        return
    for index, episode in enumerate(dataset):
        if infer_task(episode.observations[:, :size]) != task.name:
            other = infer_task(episode.observations)
            hint = f"they are those of {other}" if other else "they are at other positions"
            raise ValueError(f"episode {index} does not have the goals of {task.name}: {hint}")
