"""Behaviour cloning: a_t from s_t alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.networks import Head
from pidm_nav.agents.policy import Array, Loss, NavPolicy

if TYPE_CHECKING:
    from pidm_nav.agents.samples import Samples


class BC(NavPolicy):
    """The paper's network: 512-1024-256 with ReLU, batch norm, 256, and tanh."""

    name: ClassVar[str] = "bc"
    encoder: nn.Module

    def build(self, encoder: nn.Module | None) -> None:
        """The encoder and the head."""
        self.encoder, size = self.make_encoder(encoder)
        self.head = Head(size, self.action_size, self.config.head_sizes)

    def forward(self, states: Tensor) -> Tensor:
        """Scaled states (N, D) -> scaled actions (N, A)."""
        actions: Tensor = self.head(self.encoder(states))
        return actions

    @torch.no_grad()
    def act(self, observations: Array, state: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """The network's action; `state` passes through."""
        return self.to_actions(self(self.scale(self.tensor(observations)))), state

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss) -> Tensor:
        """Distance to the demonstrated actions."""
        return measure(self(self.gather(samples, chosen)), samples.actions[chosen]).mean()
