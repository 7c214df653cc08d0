"""State predictors, the half of PIDM that says which state to be in `horizon` steps from now.

They share one small interface, so that PIDM can use any of them, or your own: `fit` on demonstrations, then `predict`.
A predictor that keeps its place in a demonstration has it in the `state` that `advance` returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.networks import Adam, Array, Remembering, Scale, check_rows, hidden_layers
from pidm_nav.agents.retrieval import Distance, StateIndex
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.10 has none in typing


class StatePredictor(Remembering, nn.Module, ABC):
    """Maps raw states (N, D) to the raw states (N, D) expected `horizon` steps later.

    The agent's scale of states tells the units of distances; without it, they are measured in raw numbers.
    """

    name: ClassVar[str]
    horizon: int = 1
    scale: Scale | None
    flags: NDArray[np.int64]  # columns that say whether a goal is reached

    def __init__(self, scale: Scale | None = None, distance: Distance = "l2", seed: int = 0) -> None:
        super().__init__()
        object.__setattr__(self, "scale", scale)  # not as a module of this one, as it is saved with the agent
        self.distance, self.seed = distance, seed

    def fit(self, dataset: DemoDataset, horizon: int = 1) -> Self:
        """Learn from demonstrations, whose actions are not used, and return the predictor."""
        self.horizon, self.flags = horizon, np.array(dataset.goal_flags, dtype=np.int64)
        self.learn(dataset)
        self.recall()
        return self

    def learn(self, dataset: DemoDataset) -> None:
        """Remember what `predict` needs of the demonstrations."""

    @abstractmethod
    def predict(self, observations: Array, state: Any = None) -> Array:
        """Return the states `horizon` steps later."""

    def advance(self, state: Any, episode_start: NDArray[np.bool_], observations: Array) -> Any:
        """Return the state to predict with, given the last one, which rows begin an episode, and what they observe."""
        return state

    def training_futures(self, dataset: DemoDataset) -> list[Array]:
        """Return what it would predict for each state of each episode if that episode were new to it."""
        return [self.predict(episode.observations) for episode in dataset]


class NearestNeighbor(StatePredictor):
    """The paper's predictor: what followed the nearest training state with as many goals reached."""

    name: ClassVar[str] = "nearest"
    remembered: ClassVar[tuple[str, ...]] = ("states", "futures", "flags")

    def learn(self, dataset: DemoDataset) -> None:
        """Remember every state and the one that followed."""
        self.states, _, self.futures, *_ = dataset.transitions(self.horizon)

    def recall(self) -> None:
        """Build the trees that find the nearest states."""
        if self.states.shape != self.futures.shape:
            raise ValueError(f"states {self.states.shape} do not go with futures {self.futures.shape}")
        self.index = StateIndex(self.states, self.flags, self.scale, self.distance)

    def predict(self, observations: Array, state: Any = None) -> Array:
        """Return what followed the nearest states."""
        return self.futures[self.index.query(observations)]

    def training_futures(self, dataset: DemoDataset) -> list[Array]:
        """Predict from the other episodes, as an episode would find its own states."""
        if len(dataset) == 1:
            return super().training_futures(dataset)
        futures = []
        for index, episode in enumerate(dataset):
            others = dataset[np.arange(len(dataset)) != index]
            predictor = type(self)(self.scale, self.distance).fit(others, self.horizon)
            futures.append(predictor.predict(episode.observations))
        return futures


class _Episodes(StatePredictor):
    """Remembers whole episodes, one after the other."""

    remembered: ClassVar[tuple[str, ...]] = ("observations", "lengths", "flags")

    def learn(self, dataset: DemoDataset) -> None:
        """Remember the episodes."""
        episodes = [episode.observations for episode in dataset]
        self.observations = np.concatenate(episodes)
        self.lengths = np.array([len(each) for each in episodes], dtype=np.int64)

    def recall(self) -> None:
        """Refuse parts that do not belong together, and find where episodes end."""
        if self.lengths.min(initial=1) < 1 or self.lengths.sum() != len(self.observations):
            raise ValueError(f"{len(self.lengths)} episodes do not make up {len(self.observations)} observations")
        self.ends = np.cumsum(self.lengths) - 1  # the row of each episode's last state


class Follow(_Episodes, NearestNeighbor):
    """Keeps its place in a demonstration and moves forward only, so that crossing paths and pauses do not confuse it.

    Its place is the nearest of the next states that have no more goals reached than the agent. It changes to another
    demonstration when that is nearer by more than a usual step. After `window` steps at one place, the agent is held
    up, for example by a corner that the demonstrator just passed, and the place moves on by one. The state is (N, 2)
    int64: the place among the remembered observations, and for how many steps it has been the same; without it, every
    call begins at the nearest state.
    """

    name: ClassVar[str] = "follow"
    window = 8  # steps ahead of its last place in which the next one is looked for

    def recall(self) -> None:
        """Build the trees, and find how far a usual step goes."""
        super().recall()
        self.last = np.repeat(self.ends, self.lengths)  # the row of a demonstration's last state
        self.rows = np.flatnonzero(np.arange(len(self.last)) != self.last)  # the states that another one follows
        self.index = StateIndex(self.observations[self.rows], self.flags, self.scale, self.distance)
        self.reached, self.points = self.index.measured(self.observations)
        steps = self.points[self.rows + 1] - self.points[self.rows]
        self.usual_step = float(np.sqrt(np.square(np.linalg.norm(steps, self.index.order, axis=1)).mean()))
        # grows from row to row, as goals are reached one after the other: finds where so many had been reached
        self.progress = self.last * (len(self.flags) + 1) + self.reached

    def advance(self, state: Any, episode_start: NDArray[np.bool_], observations: Array) -> NDArray[np.int64]:
        """Return the places after a step, or the nearest ones of rows that begin an episode."""
        check_rows(state, (len(observations), 2))
        nearest = self.rows[self.index.query(observations)]
        begun = np.stack([nearest, np.zeros_like(nearest)], axis=1)
        state = begun if state is None else np.where(episode_start[:, None], begun, np.array(state, dtype=np.int64))
        before, waited = state.T
        reached, points = self.index.measured(observations)
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
        other = np.linalg.norm(self.points[nearest] - points, self.index.order, axis=1) + self.usual_step
        place = np.where((self.last[nearest] != self.last[place]) & (other < own), nearest, place)
        return np.stack([place, np.where(place == before, waited + 1, 0)], axis=1)

    def predict(self, observations: Array, state: Any = None) -> Array:
        """Return what the demonstrations show `horizon` steps after the places, at most their last states."""
        if state is None:
            state = self.advance(None, np.ones(len(observations), dtype=bool), observations)
        place = state[:, 0]
        futures: Array = self.observations[np.minimum(place + self.horizon, self.last[place])]
        return futures


class TimeIndexed(_Episodes):
    """The paper's predictor for its 3D world: step t + horizon of one demonstration, drawn at each reset.

    The state is (N, 2) int64: the step within the episode and the demonstration that is followed. It must be passed
    from call to call, as Stable-Baselines3's loops do; without it, every call begins an episode.
    """

    name: ClassVar[str] = "time"
    remembered: ClassVar[tuple[str, ...]] = ("observations", "lengths")

    def recall(self) -> None:
        """Begin to draw among the episodes."""
        super().recall()
        self.rng = np.random.default_rng(self.seed)

    def advance(self, state: Any, episode_start: NDArray[np.bool_], observations: Array) -> NDArray[np.int64]:
        """Count a step, or begin a demonstration drawn at random."""
        check_rows(state, (len(observations), 2))
        if state is None:
            episode_start, state = np.ones_like(episode_start), np.zeros((len(episode_start), 2))
        following = np.array(state, dtype=np.int64)
        following[:, 0] += 1
        following[episode_start, 0] = 0
        following[episode_start, 1] = self.rng.integers(len(self.lengths), size=int(episode_start.sum()))
        return following

    def predict(self, observations: Array, state: Any = None) -> Array:
        """Return the demonstrations' states `horizon` steps ahead, at most their last ones."""
        if state is None:
            state = self.advance(None, np.ones(len(observations), dtype=bool), observations)
        steps, demonstrations = state.T
        first, last = (self.ends + 1 - self.lengths)[demonstrations], self.ends[demonstrations]
        futures: Array = self.observations[np.minimum(first + steps + self.horizon, last)]
        return futures

    def training_futures(self, dataset: DemoDataset) -> list[Array]:
        """Return what other demonstrations, drawn at random, did `horizon` steps ahead of each step."""
        rng = np.random.default_rng(self.seed)
        futures = []
        for own, episode in enumerate(dataset):
            steps = np.arange(len(episode) + 1)
            other = (own + rng.integers(1, max(2, len(dataset)), size=len(steps))) % len(dataset)
            futures.append(self.predict(episode.observations, np.stack([steps, other], axis=1)))
        return futures


class LearnedPredictor(StatePredictor):
    """An MLP for the change of the scaled state over `horizon` steps, trained on the squared error.

    Flags of reached goals are rounded to 0 or 1, the only values that the inverse dynamics model has seen.
    """

    name: ClassVar[str] = "learned"
    remembered: ClassVar[tuple[str, ...]] = ("flags",)
    scale: Scale
    change: Tensor

    sizes = (256, 256)  # hidden layers
    batch_size = 256
    learning_rate = 1e-3  # falls to 0 over the steps

    def __init__(self, scale: Scale, distance: Distance = "l2", seed: int = 0, steps: int = 2000) -> None:
        super().__init__(scale, distance, seed)
        self.steps = steps
        size = scale.center.numel()
        with torch.random.fork_rng(devices=[]):  # a seed gives the same weights, whatever was drawn before
            torch.manual_seed(seed)
            self.network = nn.Sequential(*hidden_layers(size, self.sizes), nn.Linear(self.sizes[-1], size))
        self.flags = np.array([], dtype=np.int64)
        self.register_buffer("change", torch.ones(size))  # the usual change of each feature, the unit of the output

    def recall(self) -> None:
        """Check that the flags are columns of a state."""
        self.change.numpy(force=True)[self.flags]

    def forward(self, states: Tensor) -> Tensor:
        """Return scaled futures (N, D) for scaled states (N, D)."""
        changes: Tensor = self.network(states) * self.change
        return states + changes

    def measure(self, states: Tensor, futures: Tensor) -> Tensor:
        """Return the mean squared error of the change, each feature in its own unit."""
        error: Tensor = self.network(states) - (futures - states) / self.change
        return error.square().mean()

    def learn(self, dataset: DemoDataset) -> None:
        """Take the units of features from the data, and train the network."""
        transitions = dataset.transitions(self.horizon)
        both = torch.tensor(np.stack([transitions.state, transitions.future]), device=self.change.device)
        states, futures = self.scale(both)
        usual = (futures - states).square().mean(dim=0).sqrt()
        self.change.copy_(torch.where(usual > 1e-6, usual, torch.ones_like(usual)))
        generator = torch.Generator().manual_seed(self.seed)
        optimizer = Adam(list(self.network.parameters()))
        for step in range(self.steps):
            rows = torch.randint(len(states), (self.batch_size,), generator=generator)
            self.measure(states[rows], futures[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step(self.learning_rate * (1 - step / self.steps))

    @torch.no_grad()
    def predict(self, observations: Array, state: Any = None) -> Array:
        """Return the network's predictions in raw numbers."""
        rows = torch.tensor(observations, device=self.change.device)
        futures: Array = self.scale.inverse(self(self.scale(rows))).cpu().numpy()
        futures[:, self.flags] = futures[:, self.flags].round().clip(0, 1)
        return futures


class Oracle(StatePredictor):
    """A function as a predictor, for tests and analyses with known futures; it cannot be saved."""

    name: ClassVar[str] = "oracle"

    def __init__(self, function: Callable[[Array], Array]) -> None:
        super().__init__()
        self.function = function

    def predict(self, observations: Array, state: Any = None) -> Array:
        """Return what the function returns."""
        return self.function(observations)


PREDICTORS: dict[str, type[StatePredictor]] = {
    predictor.name: predictor for predictor in (NearestNeighbor, Follow, TimeIndexed, LearnedPredictor)
}
