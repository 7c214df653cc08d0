"""PIDM: a state predictor says where to be next, an inverse dynamics model says which action leads there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.encoders import output_size
from pidm_nav.agents.history import embedded_dataset
from pidm_nav.agents.networks import Head
from pidm_nav.agents.policy import AgentConfig, Array, Loss, NavPolicy
from pidm_nav.agents.predictors import PREDICTORS, LearnedPredictor, StatePredictor
from pidm_nav.agents.retrieval import Distance

if TYPE_CHECKING:
    from pidm_nav.agents.samples import Samples
    from pidm_nav.demos.dataset import DemoDataset


@dataclass(frozen=True)
class PIDMConfig(AgentConfig):
    """Options of PIDM; the defaults are the paper's for 2D navigation."""

    horizons: tuple[int, ...] = (1,)  # k in training; with several, the head also gets a one-hot of k
    act_horizon: int | None = None  # k when acting; None for the smallest trained
    predictor: Literal["nearest", "time", "learned"] = "nearest"
    distance: Distance = "l2"  # between states, for the nearest-neighbour predictor
    train_on_predicted: bool = False  # train on the predictor's future states instead of the data's
    end_to_end: bool = False  # train the learned predictor through the inverse dynamics model as well

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.horizons or min(self.horizons) < 1 or len(set(self.horizons)) != len(self.horizons):
            raise ValueError(f"horizons {self.horizons} must be different numbers of steps, each at least 1")
        if self.act_horizon is not None and self.act_horizon not in self.horizons:
            raise ValueError(f"act_horizon {self.act_horizon} is not among the trained horizons {self.horizons}")
        if self.predictor not in PREDICTORS:
            raise ValueError(f"predictor '{self.predictor}' is not known: choose one of {', '.join(PREDICTORS)}")
        if self.end_to_end and self.predictor != "learned":
            raise ValueError("end_to_end needs predictor 'learned': the others have nothing to train")
        if (self.end_to_end or self.train_on_predicted) and len(self.horizons) > 1:
            raise ValueError("training on predicted futures takes one horizon, as the predictor has one")


class PIDM(NavPolicy):
    """Encoder 512-1024-256 with batch norm for both states; both embeddings into 256 and tanh."""

    name: ClassVar[str] = "pidm"
    config_class: ClassVar[type[AgentConfig]] = PIDMConfig
    config: PIDMConfig
    encoder: nn.Module
    predictor: StatePredictor

    def build(self, encoder: nn.Module | None) -> None:
        """Encoder, head and predictor."""
        horizons = self.config.horizons
        self.horizon = self.config.act_horizon or min(horizons)
        self.encoder, size = self.make_encoder(encoder)
        one_hot = len(horizons) if len(horizons) > 1 else 0
        self.head = Head(2 * size + one_hot, self.action_size, self.config.head_sizes)
        if self.trains_vision and (self.config.train_on_predicted or self.config.end_to_end):
            raise ValueError(
                f"futures cannot be predicted while frames '{self.config.frames}' is trained: take a frozen encoder, "
                "such as frames='random', or train on the data's futures"
            )
        self.predictor = PREDICTORS[self.config.predictor](self.scale, self.config.distance, self.seed)

    def windowed(self, samples: Samples) -> bool:
        """Whether a batch is runs of consecutive states, each encoded once as s_t and as s_{t+1}."""
        predicted = self.config.train_on_predicted or self.config.end_to_end
        several = samples.history is not None  # with frames, windows of any horizon save encoding
        return samples.window > 1 and (several or self.config.horizons == (1,)) and not predicted

    def head_input(self, now: Tensor, future: Tensor, which: Tensor | int) -> Tensor:
        """Embeddings (N, E) twice, and the one-hot of the horizon's index where several are trained."""
        if len(self.config.horizons) == 1:
            return torch.cat([now, future], dim=1)
        index = torch.as_tensor(which, device=now.device).expand(len(now))
        one_hot = nn.functional.one_hot(index, len(self.config.horizons)).to(now.dtype)
        return torch.cat([now, future, one_hot], dim=1)

    def forward(self, states: Tensor, futures: Tensor, which: Tensor | int = 0) -> Tensor:
        """Scaled states and futures (N, D), index of the horizon -> scaled actions (N, A)."""
        # one batch for both, so that batch norm sees states and futures alike
        now, future = self.encoder(torch.cat([states, futures])).chunk(2)
        actions: Tensor = self.head(self.head_input(now, future, which))
        return actions

    @torch.no_grad()
    def inverse_dynamics(self, observations: ArrayLike, futures: ArrayLike, horizon: int | None = None) -> Array:
        """Actions (N, A) that lead from raw observations (N, D) to raw futures (N, D) in `horizon` steps.

        Where observations are frames, both are states: see `embedded`.
        """
        self.eval()
        horizon = horizon or self.horizon
        if horizon not in self.config.horizons:
            raise ValueError(f"horizon {horizon} was not trained: choose one of {self.config.horizons}")
        which = self.config.horizons.index(horizon)
        states = self.scale(self.tensor(np.asarray(observations, dtype=np.float32)))
        targets = self.scale(self.tensor(np.asarray(futures, dtype=np.float32)))
        return self.to_actions(self(states, targets, which))

    def act(self, observations: Array, state: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Predict the future, then the action towards it; `state` is the predictor's."""
        state = self.predictor.advance(state, episode_start)
        return self.inverse_dynamics(observations, self.predictor.predict(observations, state)), state

    def prepare(self, dataset: DemoDataset, extra: Sequence[DemoDataset] = ()) -> None:
        """Fit the scales, and the predictor on the demonstrations and whatever else it may see."""
        super().prepare(dataset)
        everything = type(dataset).concatenate([dataset, *extra])
        if self.trains_vision:
            self.demonstrations = everything  # what the predictor learns from once there are vectors: see settle
            return
        everything = self._remember(everything)
        if self.config.end_to_end and isinstance(self.predictor, LearnedPredictor):
            self.predictor.set_units(everything, self.horizon)  # its weights are trained with the rest
        else:
            self.predictor.fit(everything, self.horizon)

    def _remember(self, dataset: DemoDataset) -> DemoDataset:
        """The demonstrations as the predictor sees them; the vectors of frames are kept, to be saved."""
        dataset = self.embedded(dataset)
        if self.vision is not None:
            self.vectors = [episode.observations[:, : output_size(self.vision)] for episode in dataset]
        return dataset

    def settle(self, samples: Samples) -> Samples:
        """Fit the predictor on what a CNN makes of the demonstrations, now that it is trained."""
        if self.trains_vision:
            with torch.enable_grad():
                self.predictor.fit(self._remember(self.demonstrations), self.horizon)
        return super().settle(samples)

    def predicted_futures(self, datasets: Sequence[DemoDataset]) -> Tensor | None:
        """What the predictor says about episodes it has not seen, for `train_on_predicted`."""
        if not self.config.train_on_predicted or self.config.end_to_end:
            return None
        futures = [part for dataset in datasets for part in self.predictor.training_futures(self.embedded(dataset))]
        scaled: Tensor = self.scale(self.tensor(np.concatenate(futures)))
        return scaled

    def candidates(self, samples: Samples) -> Tensor:
        """Pairs of a row and a horizon, numbered; the rows have an action, or a window begins there."""
        count = len(samples.states) if self.windowed(samples) else len(samples.rows)
        return torch.arange(count * len(self.config.horizons), device=samples.states.device)

    def draws(self, samples: Samples, batch_size: int) -> int:
        """Windows or pairs a batch; a batch of all the data is one window over it."""
        whole = samples.history is None and batch_size >= len(samples.states)
        if not self.windowed(samples) or whole:
            return batch_size
        return max(1, batch_size // samples.window)

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss) -> Tensor:
        """Distance of the action between two states to the demonstrated one."""
        if self.windowed(samples):
            window_loss = self._window_loss if samples.history is None else self._frames_loss
            return window_loss(samples, chosen, measure)
        horizons = torch.tensor(self.config.horizons, device=chosen.device)
        which = chosen % len(horizons)
        rows = samples.rows[chosen // len(horizons)]
        future_rows = samples.future_rows(rows, horizons[which])
        states, targets = self.gather(samples, torch.cat([rows, future_rows])).chunk(2)
        extra: Tensor | float = 0.0
        if self.config.end_to_end:
            assert isinstance(self.predictor, LearnedPredictor)
            extra = self.predictor.measure(states, targets)
            targets = self.predictor(states)
        elif samples.futures is not None:
            targets = samples.futures[rows]
        return measure(self(states, targets, which), samples.actions[rows]).mean() + extra

    def _window_loss(self, samples: Samples, starts: Tensor, measure: Loss) -> Tensor:
        """The loss on every action of windows that begin in these rows and may run over an episode's end.

        rows      i    i+1   i+2  ...  i+W        encoded once, W+1 of them
        now       z_i  z_i+1 ...  z_i+W-1
        future    z_i+1 z_i+2 ... z_i+W           rows without an action (an episode's last) do not count
        """
        count = len(samples.states)
        if len(starts) == count:  # the whole dataset: one window that begins in its first row
            starts, window = starts[:1], count - 1
        else:
            window = samples.window
        rows = (starts[:, None] + torch.arange(window + 1, device=starts.device)) % count
        embedded = self.encoder(samples.states[rows.flatten()]).view(len(starts), window + 1, -1)
        now, future = embedded[:, :-1].flatten(0, 1), embedded[:, 1:].flatten(0, 1)
        actions = self.head(self.head_input(now, future, 0))
        rows = rows[:, :-1].flatten()
        counts = samples.has_action[rows]
        distance = measure(actions, samples.actions[rows]).mean(dim=1) * counts
        return distance.sum() / counts.sum().clamp(min=1)

    def _frames_loss(self, samples: Samples, chosen: Tensor, measure: Loss) -> Tensor:
        """The loss on every action of windows, one horizon each; a frame or state of several uses is encoded once."""
        horizons = torch.tensor(self.config.horizons, device=chosen.device)
        which = (chosen % len(horizons)).repeat_interleave(samples.window)
        steps = torch.arange(samples.window, device=chosen.device)
        rows = (chosen[:, None] // len(horizons) + steps).flatten() % len(samples.states)
        counts = samples.has_action[rows]
        rows, which = rows[counts], which[counts]
        pairs = torch.stack([rows, samples.future_rows(rows, horizons[which])])
        distinct, where = torch.unique(pairs, return_inverse=True)
        now, future = self.encoder(self.gather(samples, distinct))[where]
        return measure(self.head(self.head_input(now, future, which)), samples.actions[rows]).mean()

    def memory(self) -> dict[str, Tensor]:
        """What the predictor remembers; of frames their vectors, from which it is fitted again."""
        if self.vision is None or isinstance(self.predictor, LearnedPredictor):
            return self.predictor.memory()
        lengths = torch.tensor([len(vectors) for vectors in self.vectors])
        return {"vectors": torch.tensor(np.concatenate(self.vectors)), "lengths": lengths}

    def restore(self, memory: dict[str, Tensor]) -> None:
        """Give it back."""
        self.predictor.horizon = self.horizon
        if self.vision is None or isinstance(self.predictor, LearnedPredictor):
            self.predictor.restore(memory)
            return
        self.vectors = [part.numpy() for part in torch.split(memory["vectors"], memory["lengths"].tolist())]
        self.predictor.fit(embedded_dataset(self.vectors, self.config.history), self.horizon)
