"""The learned state predictor: an MLP that predicts the change of state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from pidm_nav.agents.agent import Starts
from pidm_nav.agents.config import Count, Sizes
from pidm_nav.agents.networks import Adam, Array, Scale, hidden_layers
from pidm_nav.agents.predictors import Predictor
from pidm_nav.agents.registry import register
from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.10 has none in typing


@register
@dataclass(eq=False)
class Learned(Predictor):
    """MLP that predicts the change of the scaled state over `horizon` steps, trained on the squared error.

    Flags of reached goals are rounded to 0 or 1, the only values in the training data of the inverse dynamics model.
    """

    name: ClassVar[str] = "learned"
    remembered: ClassVar[tuple[str, ...]] = ("flags", "trained_horizon")
    steps: Count = 2000
    """Number of gradient steps."""
    sizes: Sizes = (256, 256)
    """Layer sizes."""
    batch_size: Count = 256
    """States per step."""
    learning_rate: Annotated[float, Meta(gt=0, le=1)] = 1e-3
    """Learning rate at the first step; decays linearly to 0."""
    noise: Annotated[float, Meta(ge=0, le=100)] = 0.0
    """Noise on the inputs in training, in RMS changes; targets stay clean."""

    delta_rms: Tensor = field(init=False, repr=False)
    """(D,) RMS change of each feature, the unit of the network's output."""

    def build(self, scale: Scale, seed: int = 0) -> Self:
        """Make the network, with weights drawn from the seed."""
        super().build(scale, seed)
        size, sizes = scale.center.numel(), tuple(self.sizes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = nn.Sequential(*hidden_layers(size, sizes), nn.Linear((size, *sizes)[-1], size))
        self.flags = np.array([], dtype=np.int64)
        self.register_buffer("delta_rms", torch.ones(size))
        return self.to(scale.center.device)

    def rebuild(self) -> None:
        """Check that the flags are columns of a state."""
        self.delta_rms.numpy(force=True)[self.flags]

    def forward(self, states: Tensor) -> Tensor:
        """Return scaled futures (N, D) for scaled states (N, D)."""
        delta: Tensor = self.network(states) * self.delta_rms
        return states + delta

    def loss(self, states: Tensor, futures: Tensor) -> Tensor:
        """Return the mean squared errors (N,) of the changes, in RMS changes."""
        error: Tensor = self.network(states) - (futures - states) / self.delta_rms
        return error.square().mean(dim=1)

    def pairs(self, dataset: DemoDataset) -> tuple[Tensor, Tensor]:
        """Return the scaled states and futures of all steps."""
        states, _, futures, *_ = dataset.transitions(self.horizon)
        now, future = self.scale(torch.tensor(np.stack([states, futures]), device=self.delta_rms.device))
        return now, future

    def fit_scales(self, dataset: DemoDataset, horizon: int) -> None:
        """Also measure the RMS change of each feature."""
        super().fit_scales(dataset, horizon)
        self.trained_horizon = np.array(horizon)
        now, future = self.pairs(dataset)
        rms = (future - now).square().mean(dim=0).sqrt()
        self.delta_rms.copy_(torch.where(rms > 1e-6, rms, torch.ones_like(rms)))

    @torch.enable_grad()
    def learn(self, dataset: DemoDataset) -> None:
        """Train the network."""
        now, future = self.pairs(dataset)
        varies = (future != now).any(dim=0)  # constant features, such as fixed goals, get no noise
        generator = torch.Generator().manual_seed(self.seed)
        self.network.requires_grad_(True)  # an earlier fit may have frozen it
        optimizer = Adam(list(self.network.parameters()))
        for step in range(self.steps):
            rows = torch.randint(len(now), (self.batch_size,), generator=generator)
            inputs = now[rows]
            if self.noise:
                noise = torch.randn(inputs.shape, generator=generator).to(inputs)
                inputs = inputs + self.noise * varies * self.delta_rms * noise
            self.loss(inputs, future[rows]).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step(self.learning_rate * (1 - step / self.steps))

    @torch.no_grad()
    def predict(self, states: Array, memory: Any = None, episode_start: Starts | None = None) -> tuple[Array, Any]:
        """Return the network's predictions in raw numbers."""
        if self.horizon != self.trained_horizon:
            raise ValueError(
                f"this predictor was trained for horizon {self.trained_horizon}, not {self.horizon}: fit it again"
            )
        rows = torch.tensor(states, device=self.delta_rms.device)
        futures: Array = self.scale.inverse(self(self.scale(rows))).cpu().numpy()
        futures[:, self.flags] = futures[:, self.flags].round().clip(0, 1)
        return futures, memory
