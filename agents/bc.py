"""Behavior cloning: the action a_t is learned from the state s_t alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.config import PAPER, AgentConfig, Preset, TrainConfig
from pidm_nav.agents.networks import Array, Head
from pidm_nav.agents.observations import Samples
from pidm_nav.agents.policy import Loss, NavPolicy

# the paper tuned BC for each task: the first learning rate, and the limit of the gradient's norm
TUNED: dict[str, tuple[float, float | None]] = {"four-room": (1e-3, 1.0), "multiroom": (1e-4, None)}


class BC(NavPolicy):
    """The paper's network: 512-1024-256 with ReLU, batch norm, 256, and tanh."""

    name: ClassVar[str] = "bc"
    presets: ClassVar[Mapping[str, Preset]] = {
        **NavPolicy.presets,
        # as good as the paper's networks in a ninth of the time (docs/results/one_demo)
        "fast": Preset(
            AgentConfig(encoder_sizes=(128, 128, 64), head_sizes=(128, 128)),
            TrainConfig(learning_rate=2e-3, steps=1500),
        ),
        # what BC does best with on human demonstrations of Maze; the paper's PIDM does worse with it
        "paper-fast": Preset(AgentConfig(), TrainConfig(learning_rate=3e-3)),
        "paper": Preset(
            AgentConfig(scale_observations=False),
            TrainConfig(learning_rate=1e-4, final_learning_rate=1e-6, decay_steps=50_000, **PAPER),
        ),
    }
    encoder: nn.Module

    @classmethod
    def preset(cls, name: str, task: str = "") -> Preset:
        """Return the settings under a preset's name; those of the paper differ between tasks."""
        preset = super().preset(name, task)
        if name != "paper" or task not in TUNED:
            return preset
        rate, clip = TUNED[task]
        return replace(preset, training=replace(preset.training, learning_rate=rate, gradient_clip=clip))

    def build(self, encoder: nn.Module | None) -> None:
        """Make the encoder and the head."""
        self.encoder, size = self.make_encoder(encoder)
        self.head = Head(size, self.action_size, self.config.head_sizes)

    def forward(self, states: Tensor) -> Tensor:
        """Return scaled actions (N, A) for scaled states (N, D)."""
        actions: Tensor = self.head(self.encoder(states))
        return actions

    @torch.no_grad()
    def act(self, states: Array, memory: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Return the network's actions; BC needs no memory."""
        return self.to_actions(self(self.scale(self.observations.tensor(states)))), memory

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss, rng: np.random.Generator | None = None) -> Tensor:
        """Return the mean distance to the demonstrated actions."""
        return measure(self(samples.states.gather(chosen, rng)), samples.actions[chosen]).mean()
