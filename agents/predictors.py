"""State predictors: predict the demonstrator's state `horizon` steps from now (equation 2 of the paper).

A predictor is fitted to demonstrations with `fit`; `predict` maps raw states to raw futures. Dataclass fields are
options. What a predictor keeps between steps goes through `memory`.
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

from pidm_nav.agents.agent import Starts
from pidm_nav.agents.config import Count
from pidm_nav.agents.networks import Array, Remembering, Scale, check_rows
from pidm_nav.agents.registry import register
from pidm_nav.agents.retrieval import Distance, StateIndex
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.10 has none in typing

Rows = NDArray[np.int64]
Pull = Annotated[float, Meta(ge=-100, le=100)]


@dataclass(eq=False)
class Predictor(Remembering, nn.Module, ABC):
    """Base class of state predictors, which map raw states (N, D) to raw states (N, D) `horizon` steps later."""

    kind: ClassVar[str] = "predictor"
    name: ClassVar[str]
    scale: ClassVar[Scale]  # of the agent, set by `build` for each predictor
    seed = 0
    horizon = 1

    def __post_init__(self) -> None:
        super().__init__()

    def build(self, scale: Scale, seed: int = 0) -> Self:
        """Set the agent's scale of features and the seed, make networks, and return the predictor."""
        object.__setattr__(self, "scale", scale)  # not as a submodule: it is saved with the agent
        self.seed = seed
        return self

    def fit(self, dataset: DemoDataset, horizon: int = 1) -> Self:
        """Fit the predictor to demonstrations, without their actions, and return it."""
        self.fit_scales(dataset, horizon)
        self.learn(dataset)
        self.rebuild()
        return self

    def fit_scales(self, dataset: DemoDataset, horizon: int) -> None:
        """Set the horizon, the goal flags and, if no agent gave one, the scale."""
        if not hasattr(self, "scale"):
            observations = np.concatenate([episode.observations for episode in dataset])
            scale = Scale(spaces.Box(-np.inf, np.inf, observations.shape[1:]))
            scale.fit(observations, dataset.goal_flags)
            self.build(scale, self.seed)
        self.horizon, self.flags = horizon, np.array(dataset.goal_flags, dtype=np.int64)

    @abstractmethod
    def learn(self, dataset: DemoDataset) -> None:
        """Learn from the demonstrations; `horizon` and `flags` are set."""

    @abstractmethod
    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return the states `horizon` steps later, and the memory for the next call.

        Args:
            states: (N, D) raw states.
            memory: the memory that the last call returned, or None at the first.
            episode_start: (N,) True for rows that begin an episode.
        """

    def held_out_futures(self, dataset: DemoDataset) -> list[Array]:
        """Return, for each episode, the predictions of a new predictor that is fitted to the other episodes."""
        futures = []
        for index, episode in enumerate(dataset):
            others = dataset[np.arange(len(dataset)) != index] if len(dataset) > 1 else dataset
            fresh = deepcopy(self).build(self.scale, self.seed).fit(others, self.horizon)  # with new weights
            memory, own = None, list[Array]()
            for step, state in enumerate(episode.observations):
                future, memory = fresh.predict(state[None], memory, np.array([step == 0]))
                own.append(future)
            futures.append(np.concatenate(own))
        return futures


@dataclass(eq=False)
class Lookup(Predictor):
    """Base class of predictors that find a position in a demonstration and look up its future.

    With `pull` = 1 the future is the demonstration's, which pulls the agent back to the demonstration. With 0 it is the
    agent's state plus the demonstration's change. Other values interpolate.
    """

    remembered: ClassVar[tuple[str, ...]] = ("observations", "lengths", "flags")
    pull: Pull = 1.0
    """Pull to the demonstration: 1 returns its future state, 0 the agent's state plus its change."""

    def learn(self, dataset: DemoDataset) -> None:
        """Store the episodes, one after the other."""
        episodes = [episode.observations for episode in dataset]
        self.observations = np.concatenate(episodes)
        self.lengths = np.array([len(each) for each in episodes], dtype=np.int64)

    def rebuild(self) -> None:
        """Find where episodes begin and end."""
        if self.observations.dtype not in (np.float32, np.uint8):
            raise ValueError(f"the observations to look up are of type {self.observations.dtype}, not float32")
        if self.lengths.min(initial=1) < 1 or self.lengths.sum() != len(self.observations):
            raise ValueError(f"{len(self.lengths)} episodes do not make up {len(self.observations)} observations")
        ends = np.cumsum(self.lengths) - 1
        self.first, self.last = ends + 1 - self.lengths, np.repeat(ends, self.lengths)  # per episode; per row
        self.followed = np.flatnonzero(np.arange(len(self.last)) != self.last)  # rows that are not the last

    @abstractmethod
    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Any]:
        """Return the row (N,) of `observations` that matches each state, and the memory."""

    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return the futures of the located rows."""
        starts = np.zeros(len(states), dtype=bool) if episode_start is None else episode_start
        rows, memory = self.locate(states, memory, starts)
        return self.following(rows, states), memory

    def following(self, rows: Rows, states: Array) -> Array:
        """Return the futures of rows, with `pull`; past the end of an episode, its last state."""
        futures: Array = self.observations[np.minimum(rows + self.horizon, self.last[rows])]
        if self.pull != 1:
            futures = futures + np.float32(1 - self.pull) * (states - self.observations[rows])
            futures[:, self.flags] = futures[:, self.flags].round().clip(0, 1)
        return futures


@register
@dataclass(eq=False)
class Nearest(Lookup):
    """The paper's predictor: the future of the nearest demonstrated state with the same number of goals reached."""

    name: ClassVar[str] = "nearest"
    distance: Distance = "l2"
    """Distance between states: l2 or l1."""

    def rebuild(self) -> None:
        """Build the index of states."""
        super().rebuild()
        scale = getattr(self, "scale", None)
        self.index = StateIndex(self.observations[self.followed], self.flags, scale, self.distance)

    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Any]:
        """Return the rows of the nearest states."""
        return self.followed[self.index.query(states)[0][:, 0]], memory


@register
@dataclass(eq=False)
class Neighbors(Nearest):
    """Mean future of the k nearest states, weighted by inverse distance."""

    name: ClassVar[str] = "neighbors"
    k: Count = 3
    """Number of neighbors."""

    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return the weighted mean of the futures of the k nearest states."""
        nearest, distances = self.index.query(states, min(self.k, len(self.followed)))
        weights = 1 / np.maximum(distances, 1e-6)  # 0 for missing neighbors, whose distance is infinite
        weights /= weights.sum(axis=1, keepdims=True)
        futures = [self.following(self.followed[column], states) for column in nearest.T]
        mixed: Array = np.einsum("nk,knd->nd", weights, np.stack(futures)).astype(np.float32)
        mixed[:, self.flags] = mixed[:, self.flags].round()
        return mixed, memory


@register
@dataclass(eq=False)
class Follow(Nearest):
    """Tracks a position in one demonstration and only moves forward, so crossing paths and pauses do not confuse it.

    The position moves to the nearest of the next states that have no more goals reached than the agent. It switches to
    another demonstration that is nearer by more than an RMS step. After `window` steps at one position, the agent is
    stuck, for example at a corner that the demonstrator just passed, and the position advances by one. The memory is
    (N, 2) int64: the row of the position, and the number of steps spent there. Without memory, every call begins at the
    nearest state.
    """

    name: ClassVar[str] = "follow"
    window: Count = 8
    """Largest advance of the position per step."""

    def rebuild(self) -> None:
        """Build the index of states, and measure the RMS step."""
        super().rebuild()
        self.reached, self.points = self.index.measured(self.observations)
        steps = self.points[self.followed + 1] - self.points[self.followed]
        self.rms_step = float(np.sqrt(np.square(np.linalg.norm(steps, self.index.order, axis=1)).mean()))
        # non-decreasing over all rows, so a binary search finds the row where a number of goals is first reached
        self.progress = self.last * (len(self.flags) + 1) + self.reached

    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Rows]:
        """Return the advanced positions; rows that begin an episode start at the nearest state."""
        check_rows(memory, (len(states), 2))
        nearest = super().locate(states, None, episode_start)[0]
        begun = np.stack([nearest, np.zeros_like(nearest)], axis=1)
        memory = begun if memory is None else np.where(episode_start[:, None], begun, np.array(memory, dtype=np.int64))
        before, waited = memory.T
        reached, points = self.index.measured(states)
        end = self.last[before] - 1
        # the agent reached a goal earlier than the demonstration: continue where the demonstration reached it
        touched = np.searchsorted(self.progress, self.last[before] * (len(self.flags) + 1) + reached)
        place = np.minimum(np.maximum(before, touched), end)
        onward = np.minimum(place + 1, end)
        place = np.where((waited >= self.window) & (self.reached[onward] <= reached), onward, place)
        ahead = np.minimum(place[:, None] + np.arange(self.window, -1, -1), end[:, None])  # (N, W + 1)
        away = np.linalg.norm(self.points[ahead] - points[:, None], self.index.order, axis=2)
        away[self.reached[ahead] > reached[:, None]] += 1e9  # never beyond a goal that the agent has yet to reach
        best = away.argmin(axis=1)[:, None]  # of equally near states the latest, to get past pauses
        place, own = (np.take_along_axis(each, best, axis=1)[:, 0] for each in (ahead, away))
        other = np.linalg.norm(self.points[nearest] - points, self.index.order, axis=1) + self.rms_step
        place = np.where((self.last[nearest] != self.last[place]) & (other < own), nearest, place)
        return place, np.stack([place, np.where(place == before, waited + 1, 0)], axis=1)


@register
@dataclass(eq=False)
class TimeIndexed(Lookup):
    """The paper's predictor for its 3D world: step t + horizon of one demonstration, drawn at each reset.

    The memory is (N, 3) int64: the step within the episode, the demonstration, and the number of episodes that the row
    has begun before. Without memory, every call begins an episode.
    """

    name: ClassVar[str] = "time"
    remembered: ClassVar[tuple[str, ...]] = ("observations", "lengths")
    flags = np.array([], dtype=np.int64)  # goals do not matter here

    def locate(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Rows, Rows]:
        """Advance one step, or begin a demonstration drawn by seed, row and episode number."""
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
    """A function as a predictor, for tests and analyses with known futures; an agent with it cannot be saved."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        nn.Module.__init__(self)
        self.function, self.name = function, "oracle"  # type: ignore[misc]

    def learn(self, dataset: DemoDataset) -> None:
        """Learn nothing."""

    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return what the function returns."""
        return self.function(states), memory
