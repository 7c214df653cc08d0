"""State predictors: where would the demonstrator be `horizon` steps from now (equation 2 of the paper)?

They share one small interface, so that PIDM can use any of them, or your own: `fit` on demonstrations, then `predict`,
on raw states. Their dataclass fields are their options. What one has to remember between steps goes through `memory`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from gymnasium import spaces
from msgspec import Meta
from numpy.typing import NDArray
from torch import nn

from pidm_nav.agents.config import Count
from pidm_nav.agents.networks import Array, Remembering, Scale, check_rows
from pidm_nav.agents.registry import register
from pidm_nav.agents.retrieval import Distance, StateIndex
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.10 has none in typing

Starts = NDArray[np.bool_]
Rows = NDArray[np.int64]
Pull = Annotated[float, Meta(ge=-100, le=100)]


@dataclass(eq=False)
class Predictor(Remembering, nn.Module, ABC):
    """Base class: raw states (N, D) in, the raw states (N, D) expected `horizon` steps later out."""

    kind: ClassVar[str] = "predictor"
    name: ClassVar[str]
    scale: ClassVar[Scale]  # of the agent, set by `build` for each predictor
    seed = 0  # of what it draws
    horizon = 1

    def __post_init__(self) -> None:
        super().__init__()

    def build(self, scale: Scale, seed: int = 0) -> Self:
        """Take over the agent's scale, which tells the unit of each feature, and make networks."""
        object.__setattr__(self, "scale", scale)  # not as a module of this one, as it is saved with the agent
        self.seed = seed
        return self

    def fit(self, dataset: DemoDataset, horizon: int = 1) -> Self:
        """Learn from demonstrations, whose actions are not used, and return the predictor."""
        self.measure(dataset, horizon)
        self.learn(dataset)
        self.rebuild()
        return self

    def measure(self, dataset: DemoDataset, horizon: int) -> None:
        """Take the horizon, the flags of goals and, where no agent gave one, the scale."""
        if not hasattr(self, "scale"):
            observations = np.concatenate([episode.observations for episode in dataset])
            scale = Scale(spaces.Box(-np.inf, np.inf, observations.shape[1:]))
            scale.fit(observations, dataset.goal_flags)
            self.build(scale, self.seed)
        self.horizon, self.flags = horizon, np.array(dataset.goal_flags, dtype=np.int64)

    @abstractmethod
    def learn(self, dataset: DemoDataset) -> None:
        """Take from the demonstrations what `predict` needs; `horizon` and `flags` are set."""

    @abstractmethod
    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return the states `horizon` steps later, and the memory for the next call.

        Args:
            states: (N, D) raw states.
            memory: what the last call returned, or None at the first.
            episode_start: (N,) True for rows that begin an episode.
        """

    def held_out_futures(self, dataset: DemoDataset) -> list[Array]:
        """Return what a predictor that has not seen an episode says in each of its states, for every episode."""
        futures = []
        for index, episode in enumerate(dataset):
            others = dataset[np.arange(len(dataset)) != index] if len(dataset) > 1 else dataset
            fresh, memory, own = deepcopy(self).fit(others, self.horizon), None, []
            for step, state in enumerate(episode.observations):
                future, memory = fresh.predict(state[None], memory, np.array([step == 0]))
                own.append(future)
            futures.append(np.concatenate(own))
        return futures


@dataclass(eq=False)
class Lookup(Predictor):
    """Base class of predictors that find a place in a demonstration and look up what followed.

    With `pull` = 1 the future is the demonstration's, wherever the agent is, which pulls the agent back to the
    demonstration. With 0 it is the agent's own state plus the demonstration's change. Other values mix the two.
    """

    remembered: ClassVar[tuple[str, ...]] = ("observations", "lengths", "flags")
    pull: Pull = 1.0  # 1: the demonstration's next state; 0: the own state plus the demonstration's change.

    def learn(self, dataset: DemoDataset) -> None:
        """Remember the episodes, one after the other."""
        episodes = [episode.observations for episode in dataset]
        self.observations = np.concatenate(episodes)
        self.lengths = np.array([len(each) for each in episodes], dtype=np.int64)

    def rebuild(self) -> None:
        """Find where episodes begin and end."""
        if self.lengths.min(initial=1) < 1 or self.lengths.sum() != len(self.observations):
            raise ValueError(f"{len(self.lengths)} episodes do not make up {len(self.observations)} observations")
        ends = np.cumsum(self.lengths) - 1
        self.first, self.last = ends + 1 - self.lengths, np.repeat(ends, self.lengths)  # of episodes; of rows
        self.followed = np.flatnonzero(np.arange(len(self.last)) != self.last)  # rows that another one follows

    @abstractmethod
    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Any]:
        """Return the row (N,) of `observations` that each state corresponds to, and the memory."""

    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return what the demonstrations show `horizon` steps after the located rows."""
        starts = np.zeros(len(states), dtype=bool) if episode_start is None else episode_start
        rows, memory = self.locate(states, memory, starts)
        return self.following(rows, states), memory

    def following(self, rows: Rows, states: Array) -> Array:
        """Return the futures of rows, at most the last state of their episode, as mixed by `pull`."""
        futures: Array = self.observations[np.minimum(rows + self.horizon, self.last[rows])]
        if self.pull != 1:
            futures = futures + np.float32(1 - self.pull) * (states - self.observations[rows])
            futures[:, self.flags] = futures[:, self.flags].round().clip(0, 1)
        return futures


@register
@dataclass(eq=False)
class Nearest(Lookup):
    """The paper's predictor: what followed the nearest demonstrated state with as many goals reached."""

    name: ClassVar[str] = "nearest"
    distance: Distance = "l2"  # Distance between states.

    def rebuild(self) -> None:
        """Build the trees that find the nearest states."""
        super().rebuild()
        scale = getattr(self, "scale", None)
        self.index = StateIndex(self.observations[self.followed], self.flags, scale, self.distance)

    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Any]:
        """Return the rows of the nearest states."""
        return self.followed[self.index.query(states)[0][:, 0]], memory


@register
@dataclass(eq=False)
class Neighbors(Nearest):
    """A mean of what followed the k nearest states, weighted by one over their distance."""

    name: ClassVar[str] = "neighbors"
    k: Count = 3  # Number of neighbors.

    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Mix the futures of the k nearest states."""
        nearest, distances = self.index.query(states, min(self.k, len(self.followed)))
        weights = 1 / np.maximum(distances, 1e-6)  # 0 where a row has fewer than k neighbors
        weights /= weights.sum(axis=1, keepdims=True)
        futures = [self.following(self.followed[column], states) for column in nearest.T]
        mixed: Array = np.einsum("nk,knd->nd", weights, np.stack(futures)).astype(np.float32)
        mixed[:, self.flags] = mixed[:, self.flags].round()
        return mixed, memory


@register
@dataclass(eq=False)
class Follow(Nearest):
    """Tracks a position in one demonstration and only moves forward, so crossing paths and pauses do not confuse it.

    Its place is the nearest of the next states that have no more goals reached than the agent. It changes to another
    demonstration when that is nearer by more than an RMS step. After `window` steps at one place, the agent is held up,
    for example by a corner that the demonstrator just passed, and the place moves on by one. The memory is (N, 2)
    int64: the place among the remembered observations, and for how many steps it has been the same; without it, every
    call begins at the nearest state.
    """

    name: ClassVar[str] = "follow"
    window: Count = 8  # Steps ahead of its last place in which the next one is looked for.

    def rebuild(self) -> None:
        """Build the trees, and find how far a usual step goes."""
        super().rebuild()
        self.reached, self.points = self.index.measured(self.observations)
        steps = self.points[self.followed + 1] - self.points[self.followed]
        self.rms_step = float(np.sqrt(np.square(np.linalg.norm(steps, self.index.order, axis=1)).mean()))
        # grows from row to row, as goals are reached one after the other: finds where so many had been reached
        self.progress = self.last * (len(self.flags) + 1) + self.reached

    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Rows]:
        """Return the places after a step, or the nearest ones of rows that begin an episode."""
        check_rows(memory, (len(states), 2))
        nearest = super().locate(states, None, episode_start)[0]
        begun = np.stack([nearest, np.zeros_like(nearest)], axis=1)
        memory = begun if memory is None else np.where(episode_start[:, None], begun, np.array(memory, dtype=np.int64))
        before, waited = memory.T
        reached, points = self.index.measured(states)
        end = self.last[before] - 1
        # a goal that was touched earlier than in the demonstration: go on from where that had touched it
        touched = np.searchsorted(self.progress, self.last[before] * (len(self.flags) + 1) + reached)
        place = np.minimum(np.maximum(before, touched), end)
        onward = np.minimum(place + 1, end)
        place = np.where((waited >= self.window) & (self.reached[onward] <= reached), onward, place)
        ahead = np.minimum(place[:, None] + np.arange(self.window, -1, -1), end[:, None])  # (N, W + 1)
        away = np.linalg.norm(self.points[ahead] - points[:, None], self.index.order, axis=2)
        away[self.reached[ahead] > reached[:, None]] += 1e9  # a goal that is still to be touched: not beyond it
        best = away.argmin(axis=1)[:, None]  # of equally near ones the latest, which is how pauses are passed
        place, own = (np.take_along_axis(each, best, axis=1)[:, 0] for each in (ahead, away))
        other = np.linalg.norm(self.points[nearest] - points, self.index.order, axis=1) + self.rms_step
        place = np.where((self.last[nearest] != self.last[place]) & (other < own), nearest, place)
        return place, np.stack([place, np.where(place == before, waited + 1, 0)], axis=1)


@register
@dataclass(eq=False)
class TimeIndexed(Lookup):
    """The paper's predictor for its 3D world: step t + horizon of one demonstration, drawn at each reset.

    The memory is (N, 3) int64: the step within the episode, the demonstration that is followed, and how many episodes
    the row has begun before. It must be passed from call to call; without it, every call begins an episode.
    """

    name: ClassVar[str] = "time"
    remembered: ClassVar[tuple[str, ...]] = ("observations", "lengths")
    flags = np.array([], dtype=np.int64)  # it does not look at goals

    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Rows]:
        """Count a step, or begin a demonstration that seed, row and number of the episode decide."""
        rows = len(states)
        check_rows(memory, (rows, 3))
        if memory is None:
            episode_start, memory = np.ones(rows, dtype=bool), np.full((rows, 3), -1)
        step, demo, begun = np.array(memory, dtype=np.int64).T
        begun = begun + episode_start
        draws = np.random.default_rng(self.seed).integers(len(self.lengths), size=(int(begun.max()) + 1, rows))
        demo = np.where(episode_start, draws[begun, np.arange(rows)], demo)
        step = np.where(episode_start, 0, step + 1)
        place = np.minimum(self.first[demo] + step, self.first[demo] + self.lengths[demo] - 1)
        return place, np.stack([step, demo, begun], axis=1)


class Oracle(Predictor):
    """A function as a predictor, for tests and analyses with known futures; it cannot be saved."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        nn.Module.__init__(self)
        self.function, self.name = function, "oracle"  # type: ignore[misc]

    def learn(self, dataset: DemoDataset) -> None:
        """Learn nothing."""

    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return what the function returns."""
        return self.function(states), memory
