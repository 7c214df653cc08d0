"""The paper's networks: an encoder that ends in batch norm, and a head from embeddings to an action."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

HUGE_BOUND = 1e6  # a space's bound beyond this says nothing about where observations are


class Encoder(nn.Module):
    """Linear and ReLU layers of the given sizes, then batch norm: (N, D) -> (N, sizes[-1]).

    Any module with an `output_size` that maps scaled observations to embeddings can stand in for it: an agent
    takes one as `encoder=`.
    """

    def __init__(self, input_size: int, sizes: Sequence[int] = (512, 1024, 256)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in sizes:
            layers += [nn.Linear(input_size, size), nn.ReLU()]
            input_size = size
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm1d(input_size)
        self.output_size = input_size

    def forward(self, observations: Tensor) -> Tensor:
        """Embeddings."""
        embeddings: Tensor = self.norm(self.layers(observations))
        return embeddings


class Head(nn.Sequential):
    """Embedding (N, E) -> action (N, A) in [-1, 1], by ReLU layers of the given sizes and tanh."""

    def __init__(self, input_size: int, action_size: int, sizes: Sequence[int] = (256,)) -> None:
        layers: list[nn.Module] = []
        for size in sizes:
            layers += [nn.Linear(input_size, size), nn.ReLU()]
            input_size = size
        super().__init__(*layers, nn.Linear(input_size, action_size), nn.Tanh())


class Scale(nn.Module):
    """Maps numbers of a Box to about [-reach, reach] by its bounds; those without useful bounds are standardised.

    The data's mean and standard deviation stand in where a bound is infinite or beyond a million (see `fit`).

    Args:
        space: whose bounds count.
        reach: where the bounds are mapped to. Beyond 1, a step of the agent is a larger part of what a ReLU unit
            tells apart, and sharp turns are learned in fewer steps; the reached flags stay within [-1, 1].
        enabled: off leaves numbers as they are.
    """

    center: Tensor
    width: Tensor

    def __init__(self, space: spaces.Box, reach: float = 1.0, enabled: bool = True) -> None:
        super().__init__()
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self.bounded: NDArray[np.bool_] = (np.abs(low) < HUGE_BOUND) & (np.abs(high) < HUGE_BOUND) & (high > low)
        center, width = np.zeros(space.shape), np.ones(space.shape)
        if enabled:
            center[self.bounded] = (high[self.bounded] + low[self.bounded]) / 2
            width[self.bounded] = (high[self.bounded] - low[self.bounded]) / 2 / reach
        self.reach, self.enabled = reach, enabled
        self.register_buffer("center", torch.as_tensor(center, dtype=torch.float32))
        self.register_buffer("width", torch.as_tensor(width, dtype=torch.float32))

    def fit(self, values: NDArray[np.float32], flags: Sequence[int] = ()) -> None:
        """Adapt to the data (M, ...): standardise what has no useful bounds, centre constants, spare the flags."""
        if not self.enabled:
            return
        center, width = self.center.numpy(force=True).copy(), self.width.numpy(force=True).copy()
        mean, std = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
        constant = (values == values[0]).all(axis=0)
        width[~self.bounded] = np.where(constant, 1.0, np.maximum(std, 1e-6))[~self.bounded]
        center[~self.bounded] = mean[~self.bounded]
        center[constant] = values[0][constant]  # a fixed goal's coordinates would only be a large bias
        if flags:
            center[list(flags)], width[list(flags)] = 0.5, 0.5
        self.center.copy_(torch.as_tensor(center))
        self.width.copy_(torch.as_tensor(width))

    def forward(self, values: Tensor) -> Tensor:
        """Raw to scaled."""
        return (values - self.center) / self.width

    def inverse(self, scaled: Tensor) -> Tensor:
        """Scaled to raw."""
        return scaled * self.width + self.center


@torch.no_grad()
def recompute_statistics(encoder: nn.Module, batches: Iterable[Tensor]) -> None:
    """Give the encoder's batch norms the exact statistics of these inputs, instead of running averages.

    Running averages trail the weights while these still move, which tells after a short training.
    """
    norms = [module for module in encoder.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    mode = encoder.training
    encoder.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average over the batches
    for batch in batches:
        encoder(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    encoder.train(mode)
