"""Networks: the paper's encoder, which ends in batch norm, a head from embeddings to actions, scaling, and Adam."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adam import adam

Array = NDArray[np.float32]
HUGE_BOUND = 1e6  # larger bounds of a space do not describe the range of its observations


def hidden_layers(input_size: int, sizes: Sequence[int]) -> list[nn.Module]:
    """Return a linear layer and a ReLU for each size."""
    layers: list[nn.Module] = []
    for before, size in zip((input_size, *sizes), sizes, strict=False):
        layers += [nn.Linear(before, size), nn.ReLU()]
    return layers


class Adam:
    """Adam by torch's functions, fused where torch supports that, which takes a sixth of the time.

    `torch.optim.Adam` would import a compiler, which takes a second in every training process.
    """

    settings: ClassVar[dict[str, Any]] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}

    def __init__(self, parameters: Sequence[nn.Parameter], fused: bool | None = None) -> None:
        device = parameters[0].device if parameters else torch.device("cpu")
        self.parameters, self.fused = parameters, _can_fuse(device) if fused is None else fused
        place = device if self.fused else "cpu"  # where torch expects the step count
        self.state: list[dict[str, Tensor]] = []
        for parameter in parameters:
            parameter.grad = None  # a user's module may come with a gradient
            moments = {name: torch.zeros_like(parameter, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
            self.state.append({"step": torch.zeros((), dtype=torch.float32, device=place), **moments})

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the parameters by their gradients, and clear the gradients."""
        moved = [pair for pair in zip(self.parameters, self.state, strict=True) if pair[0].grad is not None]
        lists: dict[str, Any] = {"params": [parameter for parameter, _ in moved]}
        lists["grads"] = [parameter.grad for parameter, _ in moved]
        names = {"exp_avgs": "exp_avg", "exp_avg_sqs": "exp_avg_sq", "state_steps": "step"}
        lists |= {plural: [own[name] for _, own in moved] for plural, name in names.items()}
        lists["max_exp_avg_sqs"] = []
        adam(**lists, fused=self.fused, amsgrad=False, maximize=False, lr=learning_rate, **self.settings)
        for parameter, _ in moved:
            parameter.grad = None


@cache
def _can_fuse(device: torch.device) -> bool:
    """Return whether torch supports fused Adam on a device, by trying it."""
    number = nn.Parameter(torch.zeros(1, device=device))
    optimizer = Adam([number], fused=True)
    number.grad = torch.zeros_like(number)
    try:
        optimizer.step(0.0)
    except RuntimeError:
        return False
    return True


@torch.no_grad()
def recompute_batchnorm(encoder: nn.Module, batches: Callable[[], Iterable[Tensor]]) -> None:
    """Set the statistics of each batch norm to the mean and variance over all rows of its inputs.

    Running averages lag behind the weights, which matters after short training runs. Layers are set in order, as the
    inputs of a later layer depend on the earlier ones.
    """
    encoder.eval()
    for norm in [module for module in encoder.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]:
        sums = torch.zeros(3, norm.num_features, dtype=torch.float64)  # count, sum and sum of squares per feature

        def add(module: nn.Module, inputs: tuple[Tensor, ...], sums: Tensor = sums) -> None:
            rows = inputs[0].transpose(0, 1).flatten(1).double().cpu()  # (features, rows)
            sums += torch.stack([torch.ones_like(rows), rows, rows.square()]).sum(dim=2)

        with norm.register_forward_pre_hook(add):
            for states in batches():
                encoder(states)
        count, mean = sums[0], sums[1] / sums[0]
        variance = (sums[2] / count - mean.square()).clamp(min=0) * count / (count - 1).clamp(min=1)
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)


def check_rows(state: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless a state of `predict` is None or an array of this shape."""
    if state is not None and np.shape(state) != shape:
        raise ValueError(
            f"the state passed to predict has shape {np.shape(state)}, not {shape}: pass the state that the last call "
            "with the same rows returned, or None"
        )


class Remembering:
    """Base class of modules with arrays to save besides weights: the attributes named in `remembered`."""

    remembered: ClassVar[tuple[str, ...]] = ()

    def remembered_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        return {name: np.asarray(getattr(self, name)) for name in self.remembered if hasattr(self, name)}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Set the arrays that `remembered_arrays` returned."""
        for name in self.remembered:
            setattr(self, name, arrays[name])
        self.rebuild()

    def rebuild(self) -> None:
        """Rebuild everything that depends on the arrays; inconsistent arrays raise ValueError."""


class Encoder(nn.Sequential):
    """MLP encoder: linear and ReLU layers of the given sizes, then batch norm; (N, D) -> (N, sizes[-1]).

    Any module that maps scaled states to embeddings and has an `output_size` can replace it, as an agent's `encoder=`.
    """

    def __init__(self, input_size: int, sizes: Sequence[int] = (512, 1024, 256), norm: bool = True) -> None:
        super().__init__()
        self.output_size = (input_size, *sizes)[-1]
        self.layers = nn.Sequential(*hidden_layers(input_size, sizes))
        if norm:
            self.norm = nn.BatchNorm1d(self.output_size)


class Head(nn.Sequential):
    """MLP head: embeddings (..., E) -> outputs (..., A), with ReLU layers of the given sizes and optional tanh."""

    def __init__(self, input_size: int, output_size: int, sizes: Sequence[int] = (256,), squash: bool = True) -> None:
        layers = [*hidden_layers(input_size, sizes), nn.Linear((input_size, *sizes)[-1], output_size)]
        super().__init__(*layers, *([nn.Tanh()] if squash else []))


class Scale(nn.Module):
    """Scales the values of a Box to about [-reach, reach] by its bounds; if disabled, values do not change.

    Features with a bound beyond a million are standardized by the data instead (see `fit`).
    With a reach beyond 1, one step of the agent covers a larger part of what a ReLU unit tells apart, and sharp turns
    are learned in fewer steps; flags stay within [-1, 1].
    """

    center: Tensor
    width: Tensor

    def __init__(self, space: spaces.Box, reach: float = 1.0, enabled: bool = True) -> None:
        super().__init__()
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self.bounded: NDArray[np.bool_] = (np.abs(low) < HUGE_BOUND) & (np.abs(high) < HUGE_BOUND) & (high > low)
        self.enabled = enabled
        scaled = self.bounded & enabled
        low, high = np.where(scaled, low, 0), np.where(scaled, high, 0)
        width = np.where(scaled, (high - low) / 2 / reach, 1)
        self.register_buffer("center", torch.tensor((high + low) / 2, dtype=torch.float32))
        self.register_buffer("width", torch.tensor(width, dtype=torch.float32))

    def fit(self, values: NDArray[np.float32], flags: Sequence[int] = ()) -> None:
        """Fit to data (M, ...): standardize features without useful bounds, center constants, map flags to -1 and 1."""
        if not self.enabled:
            return
        center, width = self.center.numpy(force=True).copy(), self.width.numpy(force=True).copy()
        mean, std = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
        constant = (values == values[0]).all(axis=0)
        width[~self.bounded] = np.where(constant, 1.0, np.maximum(std, 1e-6))[~self.bounded]
        center[~self.bounded] = mean[~self.bounded]
        center[constant] = values[0][constant]  # otherwise coordinates of a fixed goal are a large bias
        if flags:
            center[list(flags)], width[list(flags)] = 0.5, 0.5
        self.center.copy_(torch.as_tensor(center))
        self.width.copy_(torch.as_tensor(width))

    def forward(self, values: Tensor) -> Tensor:
        """Scale raw values."""
        return (values - self.center) / self.width

    def inverse(self, scaled: Tensor) -> Tensor:
        """Return raw values from scaled ones."""
        return scaled * self.width + self.center
