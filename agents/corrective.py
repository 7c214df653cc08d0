"""Corrective BC: behavior cloning that learns to return to the demonstrations, without retrieval.

BC is trained on demonstrated states only. Here an inverse dynamics model also labels nearby states with the action that
leads to the demonstrated next state. Related: DART (Laskey et al., 2017), whose demonstrators act under noise, and CCIL
(Ke et al., 2023, arXiv 2310.12972), which makes corrective labels with a learned forward model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor, nn

from pidm_nav.agents.batches import Batch, Sampling, TrainingData
from pidm_nav.agents.bc import BC
from pidm_nav.agents.config import SMALL, AgentConfig, Preset, TrainConfig
from pidm_nav.agents.idm import InverseDynamics
from pidm_nav.agents.registry import describe, make_part, register


@dataclass(frozen=True)
class CorrectiveConfig(AgentConfig):
    """Settings of corrective BC."""

    idm: str = "delta"
    """Inverse dynamics model, with its options, that labels states near the demonstrations."""
    distance: Annotated[float, Meta(ge=0, le=100)] = 2.0
    """Largest distance of labeled states from demonstrated ones, in demonstrated steps."""
    copies: Annotated[int, Meta(ge=1, le=100)] = 4
    """Labeled states per demonstrated state in each batch."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "idm", describe(self.idm))
        super().__post_init__()


@register
class CorrectiveBC(BC):
    """BC on demonstrated states and on nearby states that an inverse dynamics model labels."""

    name: ClassVar[str] = "corrective-bc"
    config_class: ClassVar[type[AgentConfig]] = CorrectiveConfig
    uses: ClassVar[frozenset[str]] = frozenset({"idm_data"})
    presets: ClassVar[Mapping[str, Preset]] = {
        **BC.presets,
        "pixels": replace(BC.presets["pixels"], options=BC.presets["frozen"].options),
        "fast": Preset(AgentConfig(**SMALL), TrainConfig(learning_rate=2e-3, steps=3000)),
    }
    config: CorrectiveConfig

    def build(self, encoder: nn.Module | None) -> None:
        """Make BC's networks and the inverse dynamics model, which only training uses."""
        super().build(encoder)
        self.idm: InverseDynamics = make_part("inverse dynamics model", self.config.idm)
        self.idm.build(self, 1, None)

    def prepare(self, data: TrainingData) -> None:
        """Fit the scales and the inverse dynamics model's units."""
        super().prepare(data)
        demos, *others = (self.observations.embedded(each) for each in (data.demos, *data.idm))
        self.idm.fit(self, (1,), demos, others)

    @property
    def sampling(self) -> Sampling:
        """Sampling of steps with their next states."""
        return Sampling(horizons=(1,))

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the losses of BC, of the inverse dynamics model, and of BC on the labeled states."""
        now, future, distance = batch.now_states, batch.future_states[:, 0], self.actions.distance
        context, goal = self.idm.augment(now, future, 0, batch.is_demo, rng)
        actions = self.idm(now, goal, 0, context)
        beside, target = self.beside(now, future, rng)
        with torch.no_grad():
            labels = self.actions.as_targets(self.idm(beside, target))
        weight = (batch.has_action * batch.is_demo).repeat(self.config.copies)
        return {
            "bc": batch.mean(distance(self.outputs(now), batch.action), batch.has_action * batch.is_demo),
            "idm": batch.mean(distance(actions, batch.action)),
            "corrective": batch.mean(distance(self.outputs(beside), labels), weight),
        }

    def beside(self, now: Tensor, future: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return states moved off the demonstrations by random demonstrated changes, and the states to reach."""
        copies = self.config.copies
        now, future = now.repeat(copies, 1), future.repeat(copies, 1)
        other = torch.as_tensor(rng.permutation(len(now)), device=now.device)
        far = rng.uniform(-self.config.distance, self.config.distance, (len(now), 1)).astype(np.float32)
        return now + torch.as_tensor(far, device=now.device) * (future - now)[other], future
