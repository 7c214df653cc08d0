"""Diffusion over action chunks: noise is turned, in a few steps, into the next actions that fit the state."""

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

LEVEL_FEATURES = 8  # numbers that tell the network how noisy its input is
Levels = Annotated[int, Meta(ge=1, le=1000)]


@dataclass(frozen=True)
class DiffusionConfig(AgentConfig):
    """Settings of the diffusion agent."""

    chunk: Length = 8  # Number of actions that are planned at once.
    taken: Length = 2  # Number of actions of a chunk that are taken before the next chunk is planned.
    noise_levels: Levels = 50  # Number of noise levels in training.
    denoising_steps: Levels = 5  # Number of steps from noise to actions when acting.

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("taken", "chunk"), ("denoising_steps", "noise_levels")):
            if getattr(self, name) > getattr(self, most):
                given = f"{name} is {getattr(self, name)} and {most} {getattr(self, most)}"
                raise ValueError(f"{given}: the first must not be larger than the second")


class Plan(NamedTuple):
    """What `predict` hands from call to call."""

    actions: Array  # (N, chunk, A): the chunk that each row follows
    taken: NDArray[np.int64]  # (N,) how many of its actions have been taken
    calls: int  # number of calls so far, which decides the noise to begin with


@register
class Diffusion(Agent):
    """A network that cleans noisy chunks of actions, given the state; acting begins with nothing but noise.

    This is the idea of Diffusion Policy (Chi et al., 2023): DDPM's training over chunks of actions with a cosine
    schedule, DDIM's few steps without new noise when acting, and a new plan every few actions. It leaves out the
    convolutional or transformer denoiser (this one is an MLP behind BC's encoder), past observations beside the present
    state (images have their history), and the prediction of the noise: this network predicts the clean actions; the
    noise was not tried.

    Acting is deterministic given `seed` and the state of `predict`, a `Plan`. Without a state, each call plans anew and
    begins with the same noise.
    """

    name: ClassVar[str] = "diffusion"
    config_class: ClassVar[type[AgentConfig]] = DiffusionConfig
    # what was searched: docs/agents.md; the paper's network was no worse, but takes three times as long
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
        """Make the encoder, the head and the schedule of noise."""
        if not isinstance(self.actions, BoxActions):
            raise ValueError(f"diffusion needs continuous actions, not {self.action_space}: train bc or chunking")
        levels, size = self.config.noise_levels, self.config.chunk * self.actions.size
        self.encoder, embedding = self.make_encoder(encoder)
        self.head = self.make_head(embedding + size + LEVEL_FEATURES, self.config.chunk)
        angles = (torch.arange(levels + 1, device="cpu") / levels + 0.008) / 1.008 * math.pi / 2
        signal = (angles.cos() / angles[0].cos()).clamp(0, 1)  # the cosine schedule of Nichol and Dhariwal, 2021
        # part of the clean actions in each level, 1 in level 0
        self.register_buffer("signal", signal, persistent=False)

    @property
    def sampling(self) -> Sampling:
        """States, and the next `chunk` actions."""
        return Sampling(chunk=self.config.chunk)

    def forward(self, embeddings: Tensor, noisy: Tensor, levels: Tensor) -> Tensor:
        """Return clean chunks (N, chunk, A) for embeddings (N, E), noisy chunks and their noise levels (N,)."""
        waves = torch.arange(1, LEVEL_FEATURES + 1, device=levels.device) * (math.pi / self.config.noise_levels)
        features = [embeddings, noisy.flatten(1), torch.cos(levels[:, None] * waves)]
        actions: Tensor = self.head(torch.cat(features, dim=1))
        return actions.view_as(noisy)

    def mixed(self, clean: Tensor, noise: Tensor, levels: Tensor) -> Tensor:
        """Return chunks with as much noise as the levels (N,) say."""
        signal = self.signal[levels][:, None, None]
        return signal * clean + (1 - signal.square()).sqrt() * noise

    def denoise(self, states: Array, noise: Array) -> Array:
        """Turn noise (N, chunk, A) into the chunks for unscaled states (N, D): DDIM without new noise."""
        embeddings, noisy = self.encoder(self.scaled(states)), self.observations.tensor(noise)
        levels = torch.linspace(self.config.noise_levels, 0, self.config.denoising_steps + 1).round().long()
        for now, then in itertools.pairwise(levels.to(noisy.device)[:, None].expand(-1, len(noisy))):
            clean = self(embeddings, noisy, now)
            signal = self.signal[now][:, None, None]
            noisy = self.mixed(clean, (noisy - signal * clean) / (1 - signal.square()).sqrt(), then)
        return self.actions.decode(noisy)

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Take the next action of each row's chunk; rows whose chunk is used up, or that begin, plan a new one."""
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
        """Return the mean distance of cleaned chunks to the demonstrated ones, each at a random level of noise."""
        tensor, clean = self.observations.tensor, batch.action
        levels = tensor(rng.integers(1, self.config.noise_levels + 1, len(clean)))
        noisy = self.mixed(clean, tensor(rng.standard_normal(clean.shape, dtype=np.float32)), levels)
        outputs = self(self.encoder(batch.now_states), noisy, levels)
        return {"denoising": self.actions.distance(outputs, clean).mean()}
