"""The parts of a PIDM: its settings, and how its predictor and inverse dynamics model are made, fitted and saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.batches import TrainingData
from pidm_nav.agents.config import AgentConfig, Counts
from pidm_nav.agents.idm import InverseDynamics, future_use
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.networks import Array
from pidm_nav.agents.predictors import Predictor
from pidm_nav.agents.registry import describe, make_part
from pidm_nav.demos.failed import Failed


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


class PredictiveAgent(Agent):
    """Base class of agents made of a predictor and an inverse dynamics model; see `PIDM` for the method."""

    config_class: ClassVar[type[AgentConfig]] = PIDMConfig
    failed: ClassVar[Failed] = "drop"  # a lookup leads the agent to wherever a failed demonstration went
    uses: ClassVar[frozenset[str]] = frozenset({"predictor_data", "idm_data"})
    config: PIDMConfig

    def inverse_dynamics(self, states: Array, futures: Array, horizon: int | None = None) -> Array:
        """Return the actions (N, A) that lead from raw states (N, D) to raw futures (N, D) in `horizon` steps."""
        raise NotImplementedError

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
        self.predictor.requires_grad_(self.learns_predictor)  # what is fitted here is not trained again by `loss`

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
