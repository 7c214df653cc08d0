"""Action chunking: predict several actions at once and average overlapping predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, Starts
from pidm_nav.agents.batches import Batch, Sampling
from pidm_nav.agents.bc import BC
from pidm_nav.agents.config import AgentConfig, Preset, TrainConfig
from pidm_nav.agents.networks import Array, check_rows
from pidm_nav.agents.registry import register

Length = Annotated[int, Meta(ge=1, le=500)]
Growth = Annotated[float, Meta(ge=-1, le=1)]


@dataclass(frozen=True)
class ChunkingConfig(AgentConfig):
    """Settings of action chunking."""

    chunk: Length = 8
    """Number of actions predicted at once."""
    ensemble: Growth = -0.3
    """Log weight of a prediction relative to the next one; below 0, newer predictions weigh more."""


@register
class Chunking(Agent):
    """BC that predicts the next `chunk` actions and averages overlapping predictions (temporal ensembling).

    This is the idea of ACT (Zhao et al., 2023, "Learning fine-grained bimanual manipulation with low-cost hardware") on
    BC's network, without ACT's variational autoencoder, transformer, pretrained encoders for several cameras and joint
    positions as actions. At the end of an episode the last action repeats; ACT masks the loss there. ACT gives the
    oldest prediction the largest weight. Here the newest gets it, which did better with many demonstrations.

    The state of `predict` is (N, chunk, A + 1): for the current and each later step, the weighted sum of the predicted
    actions and the sum of their weights. Without a state, every call begins an episode.
    """

    name: ClassVar[str] = "chunking"
    config_class: ClassVar[type[AgentConfig]] = ChunkingConfig
    # hyperparameter search: docs/agents.md; the paper's network was no worse, but takes three times as long
    presets: ClassVar[Mapping[str, Preset]] = {
        **BC.presets,
        "fast": Preset(AgentConfig(encoder_sizes=(256, 256), loss="l1"), TrainConfig(learning_rate=3e-3)),
    }
    config: ChunkingConfig

    def build(self, encoder: nn.Module | None) -> None:
        """Make the encoder and the head."""
        self.encoder, size = self.make_encoder(encoder)
        self.head = self.make_head(size, self.config.chunk)

    @property
    def sampling(self) -> Sampling:
        """Sampling of states with the next `chunk` actions."""
        return Sampling(chunk=self.config.chunk)

    def outputs(self, states: Tensor) -> Tensor:
        """Return chunks (N, chunk, A) of network outputs for scaled states (N, D)."""
        outputs: Tensor = self.head(self.encoder(states))
        return outputs.view(len(states), self.config.chunk, self.actions.size)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the mean distance to the demonstrated chunks."""
        return {"bc": self.actions.distance(self.outputs(batch.now_states), batch.action).mean()}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Add the new chunks to the earlier predictions, and return the means for the current step."""
        chunks = self.outputs(self.scaled(states)).cpu().numpy()
        plan = np.concatenate([chunks, np.ones_like(chunks[..., :1])], axis=2, dtype=np.float64)
        check_rows(memory, plan.shape)
        if memory is not None:
            before = np.where(episode_start[:, None, None], 0, memory)
            plan[:, :-1] += np.exp(self.config.ensemble) * before[:, 1:]  # a step has passed
        mean = (plan[:, 0, :-1] / plan[:, 0, -1:]).astype(np.float32)
        return self.actions.decode(self.observations.tensor(mean)), plan
