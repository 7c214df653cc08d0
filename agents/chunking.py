"""Action chunking: the next actions are predicted at once, and what overlapping predictions say is averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.bc import BC
from pidm_nav.agents.config import AgentConfig, Preset, TrainConfig
from pidm_nav.agents.networks import Array, Head, check_rows
from pidm_nav.agents.observations import Samples
from pidm_nav.agents.policy import Loss, NavPolicy

Length = Annotated[int, Meta(ge=1, le=500)]
Growth = Annotated[float, Meta(ge=-1, le=1)]


def chunks_of(samples: Samples, chosen: Tensor, length: int) -> Tensor:
    """Return (B, length, A), the actions from each chosen row on; after an episode's last action, that one repeats.

    row                0    1   ...  T-2    T-1    T        the last observation, T, begins no chunk
    chunks, length 3  a_0  a_1  ... a_T-2  a_T-1
                      a_1  a_2  ... a_T-1  a_T-1
                      a_2  a_3  ... a_T-1  a_T-1
    """
    rows = chosen[:, None] + torch.arange(length, device=chosen.device)
    return samples.actions[torch.minimum(rows, samples.last[chosen][:, None] - 1)]


@dataclass(frozen=True)
class ChunkingConfig(AgentConfig):
    """Settings of action chunking."""

    chunk: Length = 8  # Number of actions that are predicted at once.
    # Logarithm of how much more a prediction weighs than one made a step later; below 0, newer predictions weigh more.
    ensemble: Growth = -0.3


class Chunking(NavPolicy):
    """BC that predicts the next `chunk` actions; the action taken is a mean of what the last predictions say about now.

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
        "fast": Preset(AgentConfig(encoder_sizes=(256, 256)), TrainConfig(learning_rate=3e-3, loss="l1")),
    }
    config: ChunkingConfig
    encoder: nn.Module

    def build(self, encoder: nn.Module | None) -> None:
        """Make the encoder and the head."""
        self.encoder, size = self.make_encoder(encoder)
        self.head = Head(size, self.config.chunk * self.action_size, self.config.head_sizes)

    def forward(self, states: Tensor) -> Tensor:
        """Return scaled chunks (N, chunk, A) for scaled states (N, D)."""
        actions: Tensor = self.head(self.encoder(states))
        return actions.view(len(states), self.config.chunk, self.action_size)

    @torch.no_grad()
    def act(self, states: Array, memory: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Add the new chunks to the predictions before, and return the means for the present step."""
        actions = self.to_actions(self(self.scale(self.observations.tensor(states))))
        plan = np.concatenate([actions, np.ones_like(actions[..., :1])], axis=2, dtype=np.float64)
        check_rows(memory, plan.shape)
        if memory is not None:
            before = np.where(episode_start[:, None, None], 0, memory)
            plan[:, :-1] += np.exp(self.config.ensemble) * before[:, 1:]  # a step has passed
        return (plan[:, 0, :-1] / plan[:, 0, -1:]).astype(np.float32), plan

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss, rng: np.random.Generator | None = None) -> Tensor:
        """Return the mean distance to the demonstrated chunks."""
        return measure(self(samples.states.gather(chosen, rng)), chunks_of(samples, chosen, self.config.chunk)).mean()
