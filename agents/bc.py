"""Behavior cloning: predict the action a_t from the state s_t."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, Starts
from pidm_nav.agents.batches import Batch
from pidm_nav.agents.config import PAPER, PAPER_OPTIONS, SMALL, AgentConfig, Preset, TrainConfig
from pidm_nav.agents.networks import Array
from pidm_nav.agents.registry import register

# the paper tuned BC per task: initial learning rate and gradient clipping
TUNED: dict[str, tuple[float, float | None]] = {"four-room": (1e-3, 1.0), "multiroom": (1e-4, None)}


@register
class BC(Agent):
    """Behavior cloning: an MLP from states to actions."""

    name: ClassVar[str] = "bc"
    presets: ClassVar[Mapping[str, Preset]] = {
        **Agent.presets,
        # as good as the paper's networks, in a ninth of the time (docs/results/one_demo)
        "fast": Preset(AgentConfig(**SMALL), TrainConfig(learning_rate=2e-3, steps=1500)),
        # BC's best learning rate on human demonstrations of Maze; the paper's PIDM does worse with it
        "paper-fast": Preset(AgentConfig(), TrainConfig(learning_rate=3e-3)),
        "paper": Preset(
            AgentConfig(**PAPER_OPTIONS),
            TrainConfig(learning_rate=1e-4, final_learning_rate=1e-6, decay_steps=50_000, **PAPER),
        ),
    }

    @classmethod
    def preset(cls, name: str, task: str = "") -> Preset:
        """Return the settings of a preset; the paper's differ between tasks."""
        preset = super().preset(name, task)
        if name != "paper" or task not in TUNED:
            return preset
        rate, clip = TUNED[task]
        return replace(preset, training=replace(preset.training, learning_rate=rate, gradient_clip=clip))

    def build(self, encoder: nn.Module | None) -> None:
        """Make the encoder and the head."""
        self.encoder, size = self.make_encoder(encoder)
        self.head = self.make_head(size)

    def outputs(self, states: Tensor) -> Tensor:
        """Return a_t = f(s_t) for scaled states (N, D)."""
        outputs: Tensor = self.head(self.encoder(states))
        return outputs

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the mean distance to the demonstrated actions (equation 1)."""
        return {"bc": batch.mean(self.actions.distance(self.outputs(batch.now_states), batch.action))}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Return the network's actions; BC has no memory."""
        return self.actions.decode(self.outputs(self.scaled(states))), memory
