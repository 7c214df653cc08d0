"""PIDM: a predictor says where the demonstrator would be, an inverse dynamics model which action leads there.

s_{t+k} = predictor(s_t)          learned from demonstrations (equation 2), or looked up in them
a_t     = idm(s_t, s_{t+k})       learned from pairs of states k steps apart and the action between (equation 3)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import ArrayLike
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, Starts, eval_mode
from pidm_nav.agents.batches import Batch, Sampling, TrainingData
from pidm_nav.agents.config import FRAME_NETWORKS, FROZEN, PIXELS, SMALL, AgentConfig, Counts, Preset, TrainConfig
from pidm_nav.agents.idm import InverseDynamics, future_use
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.networks import Array
from pidm_nav.agents.predictors import Predictor
from pidm_nav.agents.registry import describe, make_part, register


@dataclass(frozen=True)
class PIDMConfig(AgentConfig):
    """Settings of PIDM; the defaults are the paper's for 2D navigation."""

    horizons: Counts = (1,)  # Steps ahead, k, that the inverse dynamics model is trained with.
    act_horizon: int | None = None  # Steps ahead when acting; defaults to the smallest of the horizons.
    # Predictor of the future state, with its options, such as nearest(pull=0.5); auto is learned where something that
    # stays the same within an episode, such as a goal's place, differs between demonstrations, and follow otherwise.
    predictor: str = "nearest"
    idm: str = "state"  # Inverse dynamics model, with its options: state, delta or linear.
    train_on_predicted: bool = False  # Train on the predictor's future states instead of those in the data.
    end_to_end: bool = False  # Train the learned predictor through the inverse dynamics model as well.
    # Fraction of each batch that comes from the inverse dynamics model's own data, if it has any.
    idm_share: Annotated[float, Meta(gt=0, lt=1)] = 0.8

    def __post_init__(self) -> None:
        for name in ("predictor", "idm"):  # classes and objects are taken, too
            object.__setattr__(self, name, describe(getattr(self, name)))
        super().__post_init__()
        if not self.horizons or len(set(self.horizons)) != len(self.horizons):
            raise ValueError(f"horizons {self.horizons} must be different numbers of steps, each at least 1")
        if self.act_horizon is not None and self.act_horizon not in self.horizons:
            raise ValueError(f"act_horizon {self.act_horizon} is not among the trained horizons {self.horizons}")
        if (self.train_on_predicted or self.end_to_end) and len(self.horizons) > 1:
            raise ValueError("training on predicted futures takes one horizon, as the predictor has one")


# for images, the paper's settings for its 3D world
FRAMES: dict[str, Any] = {**FRAME_NETWORKS, "horizons": (1, 6, 11, 16, 21, 26), "predictor": "time"}


@register
class PIDM(Agent):
    """The paper's agent: an inverse dynamics model of both states, and the nearest demonstrated state's future."""

    name: ClassVar[str] = "pidm"
    config_class: ClassVar[type[AgentConfig]] = PIDMConfig
    uses: ClassVar[frozenset[str]] = frozenset({"predictor_data", "idm_data"})
    presets: ClassVar[Mapping[str, Preset]] = {
        **Agent.presets,
        "fast": Preset(PIDMConfig(**SMALL), TrainConfig(learning_rate=2e-3, steps=1500)),
        "pixels": Preset(PIDMConfig(**FRAMES), TrainConfig(learning_rate=1e-3, **PIXELS)),
        "frozen": Preset(PIDMConfig(frames="random", **FRAMES), TrainConfig(learning_rate=1e-3, **FROZEN)),
    }
    config: PIDMConfig

    def build(self, encoder: nn.Module | None) -> None:
        """Make the inverse dynamics model and the predictor, which is `follow` until `auto` knows the data."""
        self.horizon = self.config.act_horizon or min(self.config.horizons)
        self.idm: InverseDynamics = make_part("inverse dynamics model", self.config.idm)
        self.idm.build(self, len(self.config.horizons), encoder)
        self.make_predictor("follow" if self.config.predictor == "auto" else self.config.predictor)
        self.learns_predictor, self.idm_share = self.config.end_to_end, self.config.idm_share
        if self.learns_predictor and not isinstance(self.predictor, Learned):
            raise ValueError(f"end_to_end needs a learned predictor: {self.predictor.name} has nothing to train")
        if self.observations.encoder_trainable and (self.config.train_on_predicted or self.learns_predictor):
            raise ValueError(
                f"futures cannot be predicted while frames '{self.config.frames}' is trained: take a frozen encoder, "
                "such as frames='random', or train on the data's futures"
            )

    def make_predictor(self, text: str) -> None:
        """Make the predictor of a name, with its options."""
        self.predictor: Predictor = make_part("predictor", text).build(self.scale, self.seed)

    @property
    def sampling(self) -> Sampling:
        """Pairs of states, `horizons` steps apart."""
        return Sampling(horizons=self.config.horizons)

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the distance of the inverse dynamics model's actions to those in the data (equation 3)."""
        now, future, horizon = batch.now_states, batch.future_states[:, 0], batch.horizon[:, 0]
        terms = {}
        if isinstance(self.predictor, Learned) and self.learns_predictor:  # and the predictor's error (equation 2)
            terms["predictor"] = batch.mean(self.predictor.loss(now, future), batch.is_demo)
            future = torch.where(batch.is_demo[:, None] > 0, self.predictor(now), future)
        context, goal = self.idm.augment(now, future, horizon, batch.is_demo, rng)
        actions = self.idm(now, goal, horizon, context)
        return {"idm": batch.mean(self.actions.distance(actions, batch.action)), **terms}

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Predict the future states, then the actions that lead there; the memory is the predictor's."""
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
        """Return the outputs of the inverse dynamics model for scaled states, with gradients through it alone."""
        raw = self.scale.inverse(states).detach().cpu().numpy()
        future = self.scaled(self.predictor.predict(raw)[0])
        actions: Tensor = self.idm(states, future, self.config.horizons.index(self.horizon))
        return actions

    def prepare(self, data: TrainingData) -> None:
        """Fit the scales, the units of the inverse dynamics model, and the predictor."""
        super().prepare(data)
        if self.config.predictor == "auto":
            self.config = replace(self.config, predictor="learned" if data.demos.goals_vary else "follow")
            self.make_predictor(self.config.predictor)
        longest = max(len(episode) for episode in data.for_predictor())
        if self.horizon > longest:
            raise ValueError(f"horizon {self.horizon} is too long: no demonstration has more than {longest} steps")
        if not self.observations.encoder_trainable:  # otherwise after training, when states are what they will be
            demos, *others = (self.observations.embedded(each) for each in (data.demos, *data.idm))
            self.idm.fit(self, self.config.horizons, demos, others)
            self.fit_predictor(data)

    def fit_predictor(self, data: TrainingData) -> None:
        """Fit the predictor to demonstrations, or only measure their units where `loss` trains it."""
        learn = self.predictor.measure if self.learns_predictor else self.predictor.fit
        learn(self.observations.embedded(data.for_predictor()), self.horizon)

    def predicted_futures(self, data: TrainingData) -> Tensor | None:
        """Return what the predictor says about demonstrations that it has not seen, for `train_on_predicted`."""
        if not self.config.train_on_predicted or self.learns_predictor or not data.demos.action_dim:
            return None
        demos = self.observations.embedded(data.demos.without_actions())
        return self.scaled(np.concatenate(self.predictor.held_out_futures(demos)))

    def after_training(self, data: TrainingData) -> None:
        """Fit the predictor to what a trained encoder of images makes of the demonstrations."""
        if self.observations.encoder_trainable:
            self.fit_predictor(data)
        states, _, futures, *_ = self.observations.embedded(data.demos).transitions(self.horizon)
        self.future_use = future_use(self.inverse_dynamics, states, futures)

    def diagnostics(self) -> dict[str, Any]:
        """Return `future_use`: 0 if the agent ignores the predicted future, about 1 or more if it goes by it."""
        return {"future_use": self.future_use}

    def saved_config(self) -> PIDMConfig:
        """Return the settings, with the parts that the agent has now."""
        return replace(self.config, predictor=describe(self.predictor), idm=describe(self.idm))

    def rebuild(self) -> None:
        """Tell the restored predictor how far ahead it looks."""
        self.predictor.horizon = self.horizon

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, predictor={self.predictor.name})"


@register
class DeltaPIDM(PIDM):
    """Our variant: an inverse dynamics model that sees the change of state, and a predictor that tracks or is learned.

    With `follow` this is trajectory tracking: the agent is steered back to a demonstration that it stays close to.
    """

    name: ClassVar[str] = "delta-pidm"
    presets: ClassVar[Mapping[str, Preset]] = {
        name: replace(preset, options=PIDMConfig(**{**vars(preset.options), "idm": "delta", "predictor": "auto"}))
        for name, preset in PIDM.presets.items()
        if name != "pixels"  # changes cannot be measured while a CNN is trained
    } | {
        "fast": Preset(
            PIDMConfig(idm="delta", predictor="auto", loss="l1", **SMALL),
            TrainConfig(learning_rate=2e-3, steps=1500, batch_size=64),
        ),
    }
