"""PIDMConfig, and PredictiveAgent: how a predictor and an inverse dynamics model are built, fitted and saved."""

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

    horizons: Counts = (1,)
    """Horizons k, in steps, that the inverse dynamics model is trained with."""
    act_horizon: int | None = None
    """Horizon used when acting. Default: the smallest trained one."""
    predictor: str = "nearest"
    """State predictor with its options, such as nearest(pull=0.5); auto: learned if goals vary, follow otherwise."""
    idm: str = "state"
    """Inverse dynamics model with its options: state, delta or linear."""
    train_on_predicted: bool = False
    """Train on predicted instead of recorded future states."""
    end_to_end: bool = False
    """Also train the learned predictor through the inverse dynamics model."""
    idm_share: Annotated[float, Meta(gt=0, lt=1)] = 0.8
    """Fraction of each batch drawn from the extra data of the inverse dynamics model, if given."""

    def __post_init__(self) -> None:
        for name in ("predictor", "idm"):  # classes and objects become text
            object.__setattr__(self, name, describe(getattr(self, name)))
        super().__post_init__()
        if not self.horizons or len(set(self.horizons)) != len(self.horizons):
            raise ValueError(f"horizons {self.horizons} must be distinct numbers of steps, each at least 1")
        if self.act_horizon is not None and self.act_horizon not in self.horizons:
            raise ValueError(f"act_horizon {self.act_horizon} is not among the trained horizons {self.horizons}")
        if (self.train_on_predicted or self.end_to_end) and len(self.horizons) > 1:
            raise ValueError(
                f"horizons {self.horizons} cannot be trained on predicted futures: give one, as the predictor has one"
            )


class PredictiveAgent(Agent):
    """Base class of agents with a predictor and an inverse dynamics model; see `PIDM` for the method."""

    config_class: ClassVar[type[AgentConfig]] = PIDMConfig
    failed: ClassVar[Failed] = "drop"  # a lookup would steer the agent along failed demonstrations
    uses: ClassVar[frozenset[str]] = frozenset({"predictor_data", "idm_data"})
    config: PIDMConfig

    def inverse_dynamics(self, states: Array, futures: Array, horizon: int | None = None) -> Array:
        """Return the actions (N, A) that lead from raw states (N, D) to raw futures (N, D) in `horizon` steps."""
        raise NotImplementedError

    def build(self, encoder: nn.Module | None) -> None:
        """Make the inverse dynamics model and the predictor; `auto` is `follow` until there are data."""
        self.horizon = self.config.act_horizon or min(self.config.horizons)
        self.idm: InverseDynamics = make_part("inverse dynamics model", self.config.idm)
        self.idm.build(self, len(self.config.horizons), encoder)
        self.make_predictor("follow" if self.config.predictor == "auto" else self.config.predictor)
        self.learns_predictor, self.idm_share = self.config.end_to_end, self.config.idm_share
        if self.learns_predictor and not isinstance(self.predictor, Learned):
            raise ValueError(f"end_to_end needs a learned predictor: {self.predictor.name} has nothing to train")
        if self.observations.encoder_trainable and (self.config.train_on_predicted or self.learns_predictor):
            raise ValueError(
                f"futures cannot be predicted while the encoder frames='{self.config.frames}' is trained: choose a "
                "frozen encoder such as frames='random', or train on recorded futures"
            )

    def make_predictor(self, text: str) -> None:
        """Make the predictor from its name and options."""
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
        if not self.observations.encoder_trainable:  # otherwise after training, when embeddings no longer change
            demos, *others = (self.observations.embedded(each) for each in (data.demos, *data.idm))
            self.idm.fit(self, self.config.horizons, demos, others)
            self.fit_predictor(data)

    def fit_predictor(self, data: TrainingData) -> None:
        """Fit the predictor to demonstrations, or only its scales if `loss` trains it."""
        fit = self.predictor.fit_scales if self.learns_predictor else self.predictor.fit
        fit(self.observations.embedded(data.for_predictor()), self.horizon)
        self.predictor.requires_grad_(self.learns_predictor)  # `loss` does not train a predictor that is fitted here

    def predicted_futures(self, data: TrainingData) -> Tensor | None:
        """Return held-out predictions of the predictor for `train_on_predicted`."""
        if not self.config.train_on_predicted or self.learns_predictor or not data.demos.action_dim:
            return None
        demos = self.observations.embedded(data.demos.without_actions())
        return self.scaled(np.concatenate(self.predictor.held_out_futures(demos)))

    def after_training(self, data: TrainingData) -> None:
        """Fit the predictor to the embeddings of a trained image encoder, and measure `future_use`."""
        if self.observations.encoder_trainable:
            self.fit_predictor(data)
        states, _, futures, *_ = self.observations.embedded(data.demos).transitions(self.horizon)
        self.future_use = future_use(self.inverse_dynamics, states, futures)

    def diagnostics(self) -> dict[str, Any]:
        """Return `future_use`: 0 if the agent ignores the predicted future, about 1 or more if it relies on it."""
        return {"future_use": self.future_use}

    def saved_config(self) -> PIDMConfig:
        """Return the settings with the current predictor and inverse dynamics model."""
        return replace(self.config, predictor=describe(self.predictor), idm=describe(self.idm))

    def rebuild(self) -> None:
        """Set the horizon of the restored predictor."""
        self.predictor.horizon = self.horizon

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, predictor={self.predictor.name})"
