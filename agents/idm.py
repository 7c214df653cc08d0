"""Inverse dynamics models: predict the action that leads from a state to the state k steps later (equation 3).

Dataclass fields are options. A new model defines `build` and `forward`, and is decorated with `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from pidm_nav.agents.config import Fraction
from pidm_nav.agents.networks import Array
from pidm_nav.agents.registry import register
from pidm_nav.demos.dataset import MIN_CHANGE_RATE, MIN_LINEAR_R2, DemoDataset

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent

Index = Tensor | int
Positive = Annotated[float, Meta(ge=0, le=1e6)]
MAX_DELTA = 4.0  # clipping of a feature's change, in RMS changes
MIN_VARYING_FRACTION = 0.05  # a feature that varies in a smaller fraction of other data would reveal the dataset


@dataclass(eq=False)
class InverseDynamics(nn.Module):
    """Base class of inverse dynamics models, which map scaled states and futures (N, D) to network outputs (N, A)."""

    kind: ClassVar[str] = "inverse dynamics model"
    name: ClassVar[str]

    def __post_init__(self) -> None:
        super().__init__()

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the networks for the agent's states and actions; `encoder` is the user's encoder, if any."""
        self.num_horizons = num_horizons

    def fit(self, agent: Agent, horizons: Sequence[int], demos: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Fit everything that needs no gradients, such as scales, to demonstrations and other data of states."""

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Return network outputs (N, A).

        Args:
            now: scaled states (N, D).
            future: scaled states (N, D) to reach.
            horizon: index of the trained horizon: one for all, or (N,).
            context: scaled states (N, D) to use beside the change instead of `now`, for augmentation.
        """
        raise NotImplementedError

    def augment(
        self, now: Tensor, future: Tensor, horizon: Index, is_demo: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the augmented contexts and futures (N, D) to train with."""
        return now, future

    def one_hot(self, horizon: Index, now: Tensor) -> Tensor:
        """Return the one-hot horizon (N, K), or (N, 0) if there is only one."""
        if self.num_horizons == 1:
            return now[:, :0]
        index = torch.as_tensor(horizon, device=now.device).expand(now.shape[0])  # ONNX cannot trace len()
        return nn.functional.one_hot(index, self.num_horizons).to(now.dtype)


@register
@dataclass(eq=False)
class StateIDM(InverseDynamics):
    """The paper's inverse dynamics model: one encoder for both states, a head on the concatenated embeddings.

    A step is a small fraction of a room, so the two embeddings are nearly equal. With few demonstrations, it is easier
    to memorize actions from the state alone.
    """

    name: ClassVar[str] = "state"

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the encoder and the head."""
        super().build(agent, num_horizons, encoder)
        self.encoder, size = agent.make_encoder(encoder)
        self.head = agent.make_head(2 * size + num_horizons * (num_horizons > 1))

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Encode states and futures in one batch, so that batch norm treats them alike."""
        embeddings = self.encoder(torch.cat([now, future])).chunk(2)
        outputs: Tensor = self.head(torch.cat([*embeddings, self.one_hot(horizon, now)], dim=1))
        return outputs


@register
@dataclass(eq=False)
class DeltaIDM(InverseDynamics):
    """Our inverse dynamics model: a head on the change of state, in RMS changes, and an embedding of the state.

    The state is needed where the same change takes different actions. But in demonstrations the state alone predicts
    the action, and in random play the state misleads. So in training, half of the changes are paired with the state of
    another step: the model then relies on the change unless the data clearly require the state. This is switched off if
    a linear regression of actions on changes explains little, as in Pendulum. Noise on demonstrated changes fills the
    gaps between the few changes of one demonstration.
    """

    name: ClassVar[str] = "delta"
    state_noise: Fraction = 0.1
    """Noise on the state, in standard deviations of demonstrated states."""
    delta_noise: Fraction = 0.3
    """Noise on demonstrated changes, in RMS changes."""
    state_shuffle_prob: Fraction = 0.5
    """Fraction of changes paired with the state of another step in training."""

    delta_rms: Tensor = field(init=False, repr=False)
    """(K, D) RMS change of each feature over each horizon; 0 masks the feature's change."""
    state_std: Tensor = field(init=False, repr=False)
    """(D,) Standard deviation of demonstrated states."""
    state_mask: Tensor = field(init=False, repr=False)
    """(D,) 1 for features of the state that the encoder gets, 0 for masked ones."""

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the encoder of the state, the head, and the buffers of scales."""
        super().build(agent, num_horizons, encoder)
        if agent.observations.encoder_trainable:
            raise ValueError(
                f"changes of state cannot be measured while the encoder frames='{agent.config.frames}' is trained: "
                "choose a frozen encoder such as frames='random', or the inverse dynamics model 'state'"
            )
        self.encoder, size = agent.make_encoder(encoder, norm=False)
        self.head = agent.make_head(size + agent.state_size + num_horizons * (num_horizons > 1))
        self.shuffle_prob = self.state_shuffle_prob  # `fit` may set it to 0
        self.register_buffer("delta_rms", torch.ones(num_horizons, agent.state_size))
        self.register_buffer("state_std", torch.zeros(agent.state_size))
        self.register_buffer("state_mask", torch.ones(agent.state_size))

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Return outputs for the change from `now` to `future` and the state, or the context in training."""
        state = self.encoder((now if context is None else context) * self.state_mask)
        delta = self.delta(now, future, horizon)
        outputs: Tensor = self.head(torch.cat([state, delta, self.one_hot(horizon, now)], dim=1))
        return outputs

    def delta(self, now: Tensor, future: Tensor, horizon: Index = 0) -> Tensor:
        """Return the changes (N, D) between scaled states, in RMS changes."""
        rms = torch.where(self.delta_rms > 0, self.delta_rms, torch.inf)[horizon]
        return ((future - now) / rms).clamp(-MAX_DELTA, MAX_DELTA)

    def augment(
        self, now: Tensor, future: Tensor, horizon: Index, is_demo: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return shuffled and noisy contexts, and noisy futures, so that the model does not memorize actions."""

        def tensor(values: np.ndarray) -> Tensor:
            return torch.tensor(values, device=now.device)

        shuffle = tensor(rng.random((len(now), 1)) < self.shuffle_prob)
        context = torch.where(shuffle, now[tensor(rng.permutation(len(now)))], now)
        noise = self.state_std.sign() * tensor(rng.standard_normal((2, *now.shape), dtype=np.float32))
        context = context + self.state_noise * self.state_std * noise[0]
        return context, future + is_demo[:, None] * self.delta_noise * self.delta_rms[horizon] * noise[1]

    def fit(self, agent: Agent, horizons: Sequence[int], demos: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Measure the RMS change of each feature over each horizon, and the standard deviation of demonstrated states.

        Two kinds of features are masked. A change of a feature that rarely changes, such as the flag of a goal, occurs
        too seldom to learn its action. A feature of the state that is constant in other data, such as these flags in
        random play, would only reveal which dataset a state came from.
        """
        labeled = [demos] * bool(demos.action_dim) + list(others)
        states = agent.scaled(np.concatenate([episode.observations[:-1] for episode in demos]))
        self.state_std.copy_(states.std(dim=0, correction=0))
        self.state_mask.fill_(1.0)
        for data in others:
            rows = np.concatenate([episode.observations for episode in data])
            varies = (rows != np.median(rows, axis=0)).mean(axis=0) >= MIN_VARYING_FRACTION
            self.state_mask *= torch.tensor(varies, device=self.state_mask.device)
        for index, horizon in enumerate(horizons):
            now, future = (agent.scaled(each) for each in demos.transitions(horizon)[:3:2])
            rms = (future - now).square().mean(dim=0).sqrt()
            changes = [torch.ne(*map(agent.scaled, data.transitions(horizon)[:3:2])) for data in labeled]
            often = torch.cat(changes).float().mean(dim=0) >= MIN_CHANGE_RATE
            self.delta_rms[index] = torch.where(often & (rms > 1e-6), rms, 0.0)
        explained = self.linear_r2(agent, labeled[0], horizons[0])
        self.shuffle_prob = self.state_shuffle_prob if explained >= MIN_LINEAR_R2 else 0.0

    def linear_r2(self, agent: Agent, data: DemoDataset, horizon: int) -> float:
        """Return the fraction of the actions' variance that a linear regression on the changes explains."""
        states, actions, futures, *_ = data.transitions(horizon)
        targets = agent.actions.encode(actions).numpy(force=True)
        delta = self.delta(agent.scaled(states), agent.scaled(futures)).numpy(force=True)
        inputs = np.column_stack([delta, np.ones(len(states))])
        residual = targets - inputs @ np.linalg.lstsq(inputs, targets, rcond=None)[0]
        return 1.0 - float(residual.var(axis=0).sum() / max(targets.var(axis=0).sum(), 1e-9))


@register
@dataclass(eq=False)
class LinearIDM(InverseDynamics):
    """Ridge regression of actions on changes of state, one per horizon, solved without gradients."""

    name: ClassVar[str] = "linear"
    ridge: Positive = 1e-3
    """Penalty on the weights, relative to the sum of squared changes."""

    weight: Tensor = field(init=False, repr=False)
    """(K, D + 1, A) Weights; the last row is the bias."""

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the buffer of weights."""
        super().build(agent, num_horizons, encoder)
        if encoder is not None or agent.observations.encoder_trainable:
            raise ValueError("the inverse dynamics model 'linear' has no encoder to train: choose state or delta")
        self.register_buffer("weight", torch.zeros(num_horizons, agent.state_size + 1, agent.actions.size))

    def fit(self, agent: Agent, horizons: Sequence[int], demos: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Solve for the weights on all data with actions."""
        labeled = [demos] * bool(demos.action_dim) + list(others)
        for index, horizon in enumerate(horizons):
            pairs = [data.transitions(horizon) for data in labeled]
            delta = torch.cat([agent.scaled(pair.future) - agent.scaled(pair.state) for pair in pairs]).double()
            inputs = torch.cat([delta, torch.ones_like(delta[:, :1])], dim=1)
            targets = torch.cat([agent.actions.encode(pair.action) for pair in pairs]).double()
            penalty = self.ridge * torch.cat([delta.square().sum(dim=0), torch.zeros(1)]).clamp(min=1e-9)
            solved = torch.linalg.solve(inputs.T @ inputs + torch.diag(penalty), inputs.T @ targets)
            self.weight[index] = solved.to(self.weight)

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Return the regression's actions."""
        weight = self.weight[horizon]  # (D + 1, A), or one per row
        return ((future - now)[:, None] @ weight[..., :-1, :]).squeeze(1) + weight[..., -1, :]


def future_use(idm: Callable[[Array, Array], Array], states: Array, futures: Array) -> float:
    """Return the mean squared change of the action when its future is swapped, divided by the actions' variance.

    The swapped future is the state plus the change of another demonstrated step. Near 0, the model ignores the future.
    """
    rows, others = np.random.default_rng(0).integers(len(states), size=(2, 1000))
    own = idm(states[rows], futures[rows])
    other = idm(states[rows], states[rows] + futures[others] - states[others])
    return float(np.square(own - other).mean() / max(own.var(axis=0).mean(), 1e-9))
