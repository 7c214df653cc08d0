"""Recurrent agents for tasks that need a memory: a GRU over past states replaces the current state.

The paper notes that its comparison of BC and PIDM also holds for histories instead of states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, Starts
from pidm_nav.agents.batches import Batch, Sampling
from pidm_nav.agents.config import SMALL, AgentConfig, Preset, Size, TrainConfig
from pidm_nav.agents.idm import Index, InverseDynamics
from pidm_nav.agents.networks import Array, check_rows
from pidm_nav.agents.parts import PIDMConfig
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.registry import register

ONE_STEP: dict[str, Any] = {"idm": "recurrent", "horizons": (1,)}
Length = Annotated[int, Meta(ge=2, le=1000)]


@dataclass(frozen=True)
class RecurrentConfig(AgentConfig):
    """Settings of recurrent BC."""

    sequence: Length = 32
    """Length of training sequences, in steps, from an empty memory."""
    memory_size: Size = 128
    """Size of the GRU's memory."""


@dataclass(frozen=True)
class RecurrentPIDMConfig(PIDMConfig):
    """Settings of recurrent PIDM."""

    idm: str = "recurrent"
    """Inverse dynamics model with its options: recurrent."""
    sequence: Length = 32
    """Length of training sequences, in steps, from an empty memory."""


def step_gru(gru: nn.GRU, inputs: Tensor, memory: Array | None, begins: Starts) -> tuple[Tensor, Array]:
    """Advance the memories (N, H) of N episodes by one input (N, E) each."""
    check_rows(memory, (len(inputs), gru.hidden_size))
    before = np.zeros((len(inputs), gru.hidden_size), np.float32) if memory is None else memory
    hidden = torch.tensor(np.where(begins[:, None], 0, before), dtype=inputs.dtype, device=inputs.device)
    outputs, hidden = gru(inputs[:, None], hidden[None])
    return outputs[:, 0], hidden[0].cpu().numpy()


@register
class RecurrentBC(Agent):
    """BC on the history of states: a_t = f(s_0, ..., s_t)."""

    name: ClassVar[str] = "recurrent-bc"
    config_class: ClassVar[type[AgentConfig]] = RecurrentConfig
    presets: ClassVar[Mapping[str, Preset]] = {
        **Agent.presets,
        "fast": Preset(AgentConfig(**SMALL), TrainConfig(learning_rate=2e-3, steps=1000, batch_size=512)),
    }
    config: RecurrentConfig

    def build(self, encoder: nn.Module | None) -> None:
        """Make the encoder, the GRU and the head."""
        self.encoder, size = self.make_encoder(encoder, norm=False)
        self.gru = nn.GRU(size, self.config.memory_size, batch_first=True)
        self.head = self.make_head(self.config.memory_size)

    @property
    def sampling(self) -> Sampling:
        """Sampling of sequences of steps."""
        return Sampling(length=self.config.sequence)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the mean loss of actions along the sequences."""
        outputs = self.head(self.gru(self.encoder(batch.now_states))[0])
        return {"bc": batch.mean(self.actions.distance(outputs, batch.action))}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Step the GRU."""
        history, memory = step_gru(self.gru, self.encoder(self.scaled(states)), memory, episode_start)
        return self.actions.decode(self.head(history)), memory


@register
@dataclass(eq=False)
class RecurrentIDM(InverseDynamics):
    """Inverse dynamics model with a GRU: the head gets the GRU's memory of past states and the future's embedding."""

    name: ClassVar[str] = "recurrent"
    memory_size: Size = 128
    """Size of the GRU's memory."""

    def build(self, agent: Agent, num_horizons: int, encoder: nn.Module | None) -> None:
        """Make the encoder, the GRU and the head."""
        super().build(agent, num_horizons, encoder)
        self.encoder, size = agent.make_encoder(encoder, norm=False)
        self.gru = nn.GRU(size, self.memory_size, batch_first=True)
        self.head = agent.make_head(self.memory_size + size)

    def forward(self, now: Tensor, future: Tensor, horizon: Index = 0, context: Tensor | None = None) -> Tensor:
        """Return outputs for sequences (B, L, D), or for single states (N, D) that begin an episode."""
        if now.ndim == 2:
            return self.forward(now[:, None], future[:, None])[:, 0]
        outputs: Tensor = self.head(torch.cat([self.gru(self.encoder(now))[0], self.encoder(future)], dim=-1))
        return outputs

    def step(self, now: Tensor, future: Tensor, memory: Array | None, begins: Starts) -> tuple[Tensor, Array]:
        """Return outputs (N, A) for the next states (N, D) of N episodes, and their memories."""
        history, memory = step_gru(self.gru, self.encoder(now), memory, begins)
        return self.head(torch.cat([history, self.encoder(future)], dim=1)), memory


@register
class RecurrentPIDM(PIDM):
    """PIDM with a history of states: a_t = idm(s_0, ..., s_t, predicted s_{t+k})."""

    name: ClassVar[str] = "recurrent-pidm"
    config_class: ClassVar[type[AgentConfig]] = RecurrentPIDMConfig
    presets: ClassVar[Mapping[str, Preset]] = {
        name: replace(preset, options=RecurrentPIDMConfig(**{**vars(preset.options), **ONE_STEP}))
        for name, preset in {**PIDM.presets, "fast": RecurrentBC.presets["fast"]}.items()
    }
    config: RecurrentPIDMConfig
    idm: RecurrentIDM

    def build(self, encoder: nn.Module | None) -> None:
        """Make the parts, and check that they are for sequences of one horizon."""
        super().build(encoder)
        if not isinstance(self.idm, RecurrentIDM) or self.learns_predictor or len(self.config.horizons) > 1:
            raise ValueError("recurrent-pidm needs idm='recurrent', one horizon and end_to_end=False: change that")

    @property
    def sampling(self) -> Sampling:
        """Sampling of sequences of steps with their futures."""
        return Sampling(horizons=self.config.horizons, length=self.config.sequence)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the mean loss of actions along the sequences."""
        outputs = self.idm(batch.now_states, batch.future_states[..., 0, :])
        return {"idm": batch.mean(self.actions.distance(outputs, batch.action))}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Predict the future, step the GRU, and return the actions that lead to the future."""
        place, hidden = memory or (None, None)
        futures, place = self.predictor.predict(states, place, episode_start)
        outputs, hidden = self.idm.step(self.scaled(states), self.scaled(futures), hidden, episode_start)
        return self.actions.decode(outputs), (place, hidden)

    def outputs(self, states: Tensor) -> Tensor:
        """Raise ValueError, as for other agents with a memory: the GRU would begin anew at each state."""
        return Agent.outputs(self, states)
