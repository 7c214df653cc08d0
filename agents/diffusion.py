"""Diffusion over action chunks: denoise random actions, in a few steps, into actions that fit the state."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, Starts
from pidm_nav.agents.batches import Batch, Sampling
from pidm_nav.agents.bc import BC
from pidm_nav.agents.chunking import Length
from pidm_nav.agents.config import AgentConfig, Preset, TrainConfig
from pidm_nav.agents.heads import BoxActions
from pidm_nav.agents.networks import Array, check_rows
from pidm_nav.agents.registry import register

LEVEL_FEATURES = 8  # size of the noise level's encoding
Levels = Annotated[int, Meta(ge=1, le=1000)]


@dataclass(frozen=True)
class DiffusionConfig(AgentConfig):
    """Settings of the diffusion agent."""

    chunk: Length = 8
    """Number of actions planned at once."""
    taken: Length = 2
    """Number of actions executed before replanning."""
    noise_levels: Levels = 50
    """Number of noise levels in training."""
    denoising_steps: Levels = 5
    """Number of denoising steps when acting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("taken", "chunk"), ("denoising_steps", "noise_levels")):
            if getattr(self, name) > getattr(self, most):
                given = f"{name} is {getattr(self, name)} and {most} {getattr(self, most)}"
                raise ValueError(f"{given}: {name} must not be larger")


class Plan(NamedTuple):
    """State of `predict`."""

    actions: Array  # (N, chunk, A): the chunk that each row executes
    taken: NDArray[np.int64]  # (N,) number of executed actions of the chunk
    calls: int  # number of calls so far, which seeds the noise


@register
class Diffusion(Agent):
    """Denoises chunks of actions, given the state.

    This is the idea of Diffusion Policy (Chi et al., 2023): DDPM training over action chunks with a cosine schedule,
    deterministic DDIM steps when acting, and replanning every few actions. Three things differ. The denoiser is an MLP
    behind BC's encoder, not a convolutional network or a transformer. It sees the current state without past ones
    (images have their history). It predicts the clean actions; predicting the noise was not tried.

    Acting is deterministic given `seed` and the state of `predict`, a `Plan`. Without a state, each call replans from
    the same noise.
    """

    name: ClassVar[str] = "diffusion"
    config_class: ClassVar[type[AgentConfig]] = DiffusionConfig
    # hyperparameter search: docs/agents.md; the paper's network was no worse, but takes three times as long
    presets: ClassVar[Mapping[str, Preset]] = {
        **BC.presets,
        "fast": Preset(
            AgentConfig(encoder_sizes=(256, 256), head_sizes=(256, 256)),
            TrainConfig(learning_rate=2e-3, average=0.99),
        ),
    }
    config: DiffusionConfig
    encoder: nn.Module
    signal: Tensor

    def build(self, encoder: nn.Module | None) -> None:
        """Make the encoder, the head and the noise schedule."""
        if not isinstance(self.actions, BoxActions):
            raise ValueError(f"diffusion needs continuous actions, not {self.action_space}: train bc or chunking")
        levels, size = self.config.noise_levels, self.config.chunk * self.actions.size
        self.encoder, embedding = self.make_encoder(encoder)
        self.head = self.make_head(embedding + size + LEVEL_FEATURES, self.config.chunk)
        angles = (torch.arange(levels + 1, device="cpu") / levels + 0.008) / 1.008 * math.pi / 2
        signal = (angles.cos() / angles[0].cos()).clamp(0, 1)  # the cosine schedule of Nichol and Dhariwal, 2021
        # coefficient of the clean actions at each level, 1 at level 0
        self.register_buffer("signal", signal, persistent=False)

    @property
    def sampling(self) -> Sampling:
        """Sampling of states with the next `chunk` actions."""
        return Sampling(chunk=self.config.chunk)

    def forward(self, embeddings: Tensor, noisy: Tensor, levels: Tensor) -> Tensor:
        """Return clean chunks (N, chunk, A) for embeddings (N, E), noisy chunks and their noise levels (N,)."""
        waves = torch.arange(1, LEVEL_FEATURES + 1, device=levels.device) * (math.pi / self.config.noise_levels)
        features = [embeddings, noisy.flatten(1), torch.cos(levels[:, None] * waves)]
        actions: Tensor = self.head(torch.cat(features, dim=1))
        return actions.view_as(noisy)

    def mixed(self, clean: Tensor, noise: Tensor, levels: Tensor) -> Tensor:
        """Return chunks with noise of the given levels (N,)."""
        signal = self.signal[levels][:, None, None]
        return signal * clean + (1 - signal.square()).sqrt() * noise

    def denoise(self, states: Array, noise: Array) -> Array:
        """Denoise (N, chunk, A) into the chunks for raw states (N, D), by deterministic DDIM steps."""
        embeddings, noisy = self.encoder(self.scaled(states)), self.observations.tensor(noise)
        levels = torch.linspace(self.config.noise_levels, 0, self.config.denoising_steps + 1).round().long()
        for now, then in itertools.pairwise(levels.to(noisy.device)[:, None].expand(-1, len(noisy))):
            clean = self(embeddings, noisy, now)
            signal = self.signal[now][:, None, None]
            noisy = self.mixed(clean, (noisy - signal * clean) / (1 - signal.square()).sqrt(), then)
        return self.actions.decode(noisy)

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Execute the next action of each row's chunk; rows that begin or have used up their chunk replan."""
        rows, config = len(states), self.config
        shape = (rows, config.chunk, self.actions.size)
        if memory is None:
            memory = Plan(np.zeros(shape, dtype=np.float32), np.full(rows, config.taken), 0)
        check_rows(memory[0] if isinstance(memory, Plan) else memory, shape)
        actions, taken, calls = memory
        plans = episode_start | (taken >= config.taken)
        if plans.any():
            noise = np.random.default_rng([self.seed, calls]).standard_normal(shape, dtype=np.float32)
            actions, taken = actions.copy(), np.where(plans, 0, taken)
            actions[plans] = self.denoise(states[plans], noise[plans])
        return actions[np.arange(rows), taken], Plan(actions, taken + 1, calls + 1)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the mean loss of denoised chunks, each from a random noise level."""
        tensor, clean = self.observations.tensor, batch.action
        levels = tensor(rng.integers(1, self.config.noise_levels + 1, len(clean)))
        noisy = self.mixed(clean, tensor(rng.standard_normal(clean.shape, dtype=np.float32)), levels)
        outputs = self(self.encoder(batch.now_states), noisy, levels)
        return {"denoising": self.actions.distance(outputs, clean).mean()}
