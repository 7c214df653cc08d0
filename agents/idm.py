"""Inverse dynamics models: which action leads from a state to the state k steps later (equation 3 of the paper).

Their dataclass fields are their options. Write your own with `build` and `forward`, and `register` it.
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
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent

Index = Tensor | int
Positive = Annotated[float, Meta(ge=0, le=1e6)]
MAX_DELTA = 4.0  # of a feature, in RMS changes: beyond it, a change only says the direction
MIN_CHANGE_RATE = 0.02  # a feature that changes in a smaller fraction of steps does not tell which action was taken
MIN_LINEAR_R2 = 0.4  # of a regression of actions on changes: below it, changes are not shown beside other states
MIN_VARYING_FRACTION = 0.05  # a feature that differs in a smaller fraction of other data tells where a state is from


@dataclass(eq=False)
class InverseDynamics(nn.Module):
    """Base class: scaled states and futures (N, D) in, network outputs (N, A) for actions out."""

    kind: ClassVar[str] = "inverse dynamics model"
    name: ClassVar[str]

    def __post_init__(self) -> None:
        super().__init__()

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the networks for the agent's states and actions; `encoder` is the user's own encoder, if any."""
        self.num_horizons = num_horizons

    def fit(self, agent: Agent, horizons: Sequence[int], demos: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Take from demonstrations and other data, whose observations are states, what needs no gradients."""

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Return network outputs (N, A).

        Args:
            now: scaled states (N, D).
            future: scaled states (N, D) that are to be reached.
            horizon: which of the trained horizons, by index: one for all, or (N,).
            context: scaled states (N, D) to show instead of `now` where the change is shown by itself.
        """
        raise NotImplementedError

    def augment(
        self, now: Tensor, future: Tensor, horizon: Index, is_demo: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the context and the futures (N, D) to train with instead of the states and futures of the data."""
        return now, future

    def one_hot(self, horizon: Index, now: Tensor) -> Tensor:
        """Return (N, K) which of several horizons it is, or (N, 0) if there is only one."""
        if self.num_horizons == 1:
            return now[:, :0]
        index = torch.as_tensor(horizon, device=now.device).expand(now.shape[0])  # not len: it is traced
        return nn.functional.one_hot(index, self.num_horizons).to(now.dtype)


@register
@dataclass(eq=False)
class StateIDM(InverseDynamics):
    """The paper's: one encoder for both states, whose embeddings the head gets side by side.

    A step is a small part of a room, so the two embeddings are nearly equal. While there are few demonstrations, it is
    easier to memorize actions from the state alone.
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
    """Ours: the change from state to future, in units of its RMS, beside an embedding of the state.

    The state tells apart where the same change needs different actions. But in demonstrations the state alone gives
    the action away, and play without a goal misleads as well. So in training, half of the changes are shown beside the
    state of another step: the model then relies on the change unless the data clearly require the state. That is
    switched off where a linear regression of actions on changes explains little, as in Pendulum. Noise on demonstrated
    changes fills the gaps between the few that one demonstration shows.
    """

    name: ClassVar[str] = "delta"
    state_noise: Fraction = 0.1  # Noise on the state beside a change, in standard deviations of demonstrated states.
    delta_noise: Fraction = 0.3  # Noise on demonstrated changes, in RMS changes.
    state_shuffle_prob: Fraction = 0.5  # Fraction of changes that are shown beside the state of another step.

    # (K, D) RMS change of each feature over each horizon; 0 hides the feature's change
    delta_rms: Tensor = field(init=False, repr=False)
    # (D,) standard deviation of demonstrated states
    state_std: Tensor = field(init=False, repr=False)
    # (D,) 1 for the features of the state that are shown
    state_mask: Tensor = field(init=False, repr=False)

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the encoder of the state, the head, and the units of changes."""
        super().build(agent, num_horizons, encoder)
        if agent.observations.encoder_trainable:
            raise ValueError(
                f"changes cannot be measured while frames '{agent.config.frames}' is trained: take a frozen encoder, "
                "such as frames='random', or the inverse dynamics model 'state'"
            )
        self.encoder, size = agent.make_encoder(encoder, norm=False)
        self.head = agent.make_head(size + agent.state_size + num_horizons * (num_horizons > 1))
        self.shuffle_prob = self.state_shuffle_prob  # or 0, once the data are known
        self.register_buffer("delta_rms", torch.ones(num_horizons, agent.state_size))
        self.register_buffer("state_std", torch.zeros(agent.state_size))
        self.register_buffer("state_mask", torch.ones(agent.state_size))

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Show the change beside the state, which in training may be another one."""
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
        """Return states to show, and futures to reach, that keep training from memorizing actions."""

        def tensor(values: np.ndarray) -> Tensor:
            return torch.tensor(values, device=now.device)

        shuffle = tensor(rng.random((len(now), 1)) < self.shuffle_prob)
        context = torch.where(shuffle, now[tensor(rng.permutation(len(now)))], now)
        noise = self.state_std.sign() * tensor(rng.standard_normal((2, *now.shape), dtype=np.float32))
        context = context + self.state_noise * self.state_std * noise[0]
        return context, future + is_demo[:, None] * self.delta_noise * self.delta_rms[horizon] * noise[1]

    def fit(self, agent: Agent, horizons: Sequence[int], demos: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Measure how much each feature changes over each horizon, and how far demonstrated states are apart.

        Two kinds of features are hidden. The change of one that hardly ever changes, such as the flag of a goal, occurs
        too seldom to learn which action it goes with. And beside a change, the state does not show what is constant in
        other data, such as these flags in random play: they would only reveal which dataset a state came from.
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
    """A ridge regression of actions on changes, one per horizon; nothing is trained by gradients."""

    name: ClassVar[str] = "linear"
    ridge: Positive = 1e-3  # Strength of the penalty on weights, per unit of the changes' variance.

    # (K, D + 1, A): the last line is the bias
    weight: Tensor = field(init=False, repr=False)

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make room for the weights."""
        super().build(agent, num_horizons, encoder)
        if encoder is not None or agent.observations.encoder_trainable:
            raise ValueError("the inverse dynamics model 'linear' has no encoder to train: choose state or delta")
        self.register_buffer("weight", torch.zeros(num_horizons, agent.state_size + 1, agent.actions.size))

    def fit(self, agent: Agent, horizons: Sequence[int], demos: DemoDataset, others: Sequence[DemoDataset]) -> None:
        """Solve for the weights on all data that have actions."""
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

    The other future of a demonstrated state is where the change of another demonstrated step would lead. Near 0, the
    model ignores the future.
    """
    rows, others = np.random.default_rng(0).integers(len(states), size=(2, 1000))
    own = idm(states[rows], futures[rows])
    other = idm(states[rows], states[rows] + futures[others] - states[others])
    return float(np.square(own - other).mean() / max(own.var(axis=0).mean(), 1e-9))
