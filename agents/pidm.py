"""PIDM, the predictive inverse dynamics model: predict the demonstrator's future state and the action that leads there.

s_{t+k} = predictor(s_t)          learned from demonstrations (equation 2), or looked up in them
a_t     = idm(s_t, s_{t+k})       inverse dynamics model (IDM), learned from states k steps apart (equation 3)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pidm_nav.agents.agent import Agent, Starts, eval_mode
from pidm_nav.agents.batches import Batch, Sampling
from pidm_nav.agents.config import FRAME_NETWORKS, FROZEN, PIXELS, SMALL, Preset, TrainConfig
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.networks import Array
from pidm_nav.agents.parts import PIDMConfig, PredictiveAgent
from pidm_nav.agents.registry import register

# the paper's settings for images, from its 3D world
FRAMES: dict[str, Any] = {**FRAME_NETWORKS, "horizons": (1, 6, 11, 16, 21, 26), "predictor": "time"}


@register
class PIDM(PredictiveAgent):
    """The paper's agent: `StateIDM` and the future of the nearest demonstrated state."""

    name: ClassVar[str] = "pidm"
    presets: ClassVar[Mapping[str, Preset]] = {
        **Agent.presets,
        "fast": Preset(PIDMConfig(**SMALL), TrainConfig(learning_rate=2e-3, steps=1500)),
        "pixels": Preset(PIDMConfig(**FRAMES), TrainConfig(learning_rate=1e-3, **PIXELS)),
        "frozen": Preset(PIDMConfig(frames="random", **FRAMES), TrainConfig(learning_rate=1e-3, **FROZEN)),
    }

    @property
    def sampling(self) -> Sampling:
        """Sampling of pairs of states, `horizons` steps apart."""
        return Sampling(horizons=self.config.horizons)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the inverse dynamics model's loss (equation 3) and, end to end, the predictor's (equation 2)."""
        now, future, horizon = batch.now_states, batch.future_states[:, 0], batch.horizon[:, 0]
        terms = {}
        if isinstance(self.predictor, Learned) and self.learns_predictor:
            terms["predictor"] = batch.mean(self.predictor.loss(now, future), batch.is_demo)
            future = torch.where(batch.is_demo[:, None] > 0, self.predictor(now), future)
        context, goal = self.idm.augment(now, future, horizon, batch.is_demo, rng)
        actions = self.idm(now, goal, horizon, context)
        return {"idm": batch.mean(self.actions.distance(actions, batch.action)), **terms}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Predict future states, then the actions that lead there; the memory is the predictor's."""
        futures, memory = self.predictor.predict(states, memory, episode_start)
        return self.inverse_dynamics(states, futures), memory

    @torch.no_grad()
    def inverse_dynamics(self, states: ArrayLike, futures: ArrayLike, horizon: int | None = None) -> Array:
        """Return the actions (N, A) that lead from raw states (N, D) to raw futures (N, D) in `horizon` steps."""
        horizon = horizon or self.horizon
        if horizon not in self.config.horizons:
            raise ValueError(f"horizon {horizon} was not trained: choose one of {self.config.horizons}")
        now, future = self.scaled(np.array([states, futures], dtype=np.float32))
        with eval_mode(self):
            return self.actions.decode(self.idm(now, future, self.config.horizons.index(horizon)))

    def outputs(self, states: Tensor) -> Tensor:
        """Return the outputs of the inverse dynamics model for scaled states; gradients skip the predictor."""
        raw = self.scale.inverse(states).detach().cpu().numpy()
        future = self.scaled(self.predictor.predict(raw)[0])
        actions: Tensor = self.idm(states, future, self.config.horizons.index(self.horizon))
        return actions


@register
class DeltaPIDM(PIDM):
    """Our variant: `DeltaIDM`, which gets the change of state, and the predictor `follow` or `learned`.

    With `follow` this is trajectory tracking: the agent is steered back to a nearby demonstration.
    """

    name: ClassVar[str] = "delta-pidm"
    presets: ClassVar[Mapping[str, Preset]] = {
        name: replace(preset, options=PIDMConfig(**{**vars(preset.options), "idm": "delta", "predictor": "auto"}))
        for name, preset in PIDM.presets.items()
        if name != "pixels"  # changes of state cannot be measured while a CNN is trained
    } | {
        "fast": Preset(
            PIDMConfig(idm="delta", predictor="auto", loss="l1", **SMALL),
            TrainConfig(learning_rate=2e-3, steps=1500, batch_size=64),
        ),
    }
