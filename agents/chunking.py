"""Action chunking: the next actions are predicted at once, and overlapping predictions are averaged."""

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

    chunk: Length = 8  # Number of actions that are predicted at once.
    # Logarithm of how much more a prediction weighs than one made a step later; below 0, newer predictions weigh more.
    ensemble: Growth = -0.3


@register
class Chunking(Agent):
    """BC that predicts the next `chunk` actions; the action taken is a mean of overlapping predictions.

    This is the idea of ACT (Zhao et al., 2023, "Learning fine-grained bimanual manipulation with low-cost hardware"),
    action chunking with temporal ensembling, on BC's network. It leaves out ACT's variational autoencoder for the style
    of a demonstration, the transformer, several cameras with pretrained encoders, and joint positions as
    actions. At the end of an episode the last action repeats, where ACT leaves the loss out. ACT gives the oldest
    prediction the largest weight; here the newest gets it, which did better with many demonstrations.

    The state of `predict` is (N, chunk, A + 1): for the present and each later step, the weighted sum of the predicted
    actions, and the sum of their weights. Without it, every call is the first of an episode.
    """

    name: ClassVar[str] = "chunking"
    config_class: ClassVar[type[AgentConfig]] = ChunkingConfig
    # what was searched: docs/agents.md; the paper's network was no worse, but takes three times as long
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
        """States, and the next `chunk` actions."""
        return Sampling(chunk=self.config.chunk)

    def outputs(self, states: Tensor) -> Tensor:
        """Return chunks (N, chunk, A) of network outputs for scaled states (N, D)."""
        outputs: Tensor = self.head(self.encoder(states))
        return outputs.view(len(states), self.config.chunk, self.actions.size)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the mean distance to the demonstrated chunks."""
        return {"bc": self.actions.distance(self.outputs(batch.now_states), batch.action).mean()}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Add the new chunks to the predictions before, and return the means for the present step."""
        chunks = self.outputs(self.scaled(states)).cpu().numpy()
        plan = np.concatenate([chunks, np.ones_like(chunks[..., :1])], axis=2, dtype=np.float64)
        check_rows(memory, plan.shape)
        if memory is not None:
            before = np.where(episode_start[:, None, None], 0, memory)
            plan[:, :-1] += np.exp(self.config.ensemble) * before[:, 1:]  # a step has passed
        mean = (plan[:, 0, :-1] / plan[:, 0, -1:]).astype(np.float32)
        return self.actions.decode(self.observations.tensor(mean)), plan
