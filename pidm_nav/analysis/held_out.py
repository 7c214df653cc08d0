"""Tests of agents on held-out demonstrations: folds, spaces without an environment, errors of an agent's parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.analysis.predictor import predict_episodes
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import find_task

Array = NDArray[Any]
Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
FOLDS = 3
PREDICTORS = ("nearest", "follow", "learned")
MAX_STEPS = 1000  # steps tested per held-out episode
MAX_CHOICES = 100  # without an environment, larger integers are not discrete actions


def folds(demos: DemoDataset, rng: np.random.Generator) -> list[tuple[DemoDataset, DemoDataset | None]]:
    """Return training and held-out episodes per fold; a single episode is trained on in every fold."""
    if len(demos) == 1:
        return [(demos, None)] * FOLDS
    parts = np.array_split(rng.permutation(len(demos)), min(FOLDS, len(demos)))
    return [(demos[np.setdiff1d(np.arange(len(demos)), part)], demos[np.sort(part)]) for part in parts]


def find_spaces(demos: DemoDataset) -> tuple[Spaces, str]:
    """Return the observation and action space, and the metric, which is empty without a matching environment.

    Without one, small non-negative integers are discrete actions, and other actions have the bounds of the data.
    """
    from pidm_nav.agents.train import dataset_spaces

    shape, actions = demos[0].observations.shape[1:], demos.transitions().action
    try:
        found = dataset_spaces(demos)
        if (found[0].shape, found[1].shape or (1,)) == (shape, actions.shape[1:]):
            return found, find_task(demos.task).metric
    except ValueError:  # there is no such environment
        pass
    low, high = actions.min(axis=0), actions.max(axis=0)
    choices = actions.shape[1] == 1 and (actions == actions.round()).all() and low[0] >= 0 and high[0] < MAX_CHOICES
    own: spaces.Space[Any] = spaces.Discrete(int(high[0]) + 1) if choices else spaces.Box(low, high + (high == low))
    return (spaces.Box(-np.inf, np.inf, shape), own), ""


@dataclass(frozen=True)
class Vectors:
    """Converts actions to vectors: discrete actions are one-hot, so that squared differences are meaningful."""

    space: spaces.Space[Any]

    def __call__(self, actions: Array) -> Array:
        """Return vectors (N, A) for actions."""
        if not isinstance(self.space, spaces.Discrete):
            return np.asarray(actions)
        rows = np.asarray(actions).reshape(len(actions)).astype(np.int64) - int(self.space.start)
        one_hot: Array = np.eye(int(self.space.n), dtype=np.float32)[rows]
        return one_hot

    def dataset(self, demos: DemoDataset) -> DemoDataset:
        """Return the first `MAX_STEPS` of all episodes, with vectors as actions."""
        cut = (each.cut(0, min(len(each), MAX_STEPS)) for each in demos)
        return replace(demos, episodes=tuple(replace(each, actions=self(each.actions)) for each in cut))


@dataclass(frozen=True)
class VectorPolicy:
    """Policy with actions as vectors."""

    policy: Policy
    vectors: Vectors

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Return the policy's actions as vectors."""
        actions, state = self.policy.predict(observation, state, episode_start, deterministic)
        return self.vectors(actions), state


def part_errors(
    agents: Mapping[str, Any], training: DemoDataset, asked: DemoDataset, vectors: Vectors, steps: int | None = None
) -> dict[str, Array]:
    """Return mean squared action errors (E,) per episode.

    The keys are bc, AGENT/FUTURES for the inverse dynamics model of each PIDM with true and with predicted futures, and
    change for a linear regression of actions on changes of state.
    """
    from pidm_nav.agents.registry import make_part

    states, actions, futures, episode, _ = asked.transitions()
    pidms = {name: agent for name, agent in agents.items() if name != "bc"}
    made = {agent.predictor.name: agent.predictor for agent in pidms.values()}
    for name in PREDICTORS:
        if name not in made:
            options, any_agent = f"(steps={steps})" if name == "learned" and steps else "", next(iter(pidms.values()))
            made[name] = make_part("predictor", name + options).build(any_agent.scale, any_agent.seed).fit(training)
    shown = {"true": futures} | {name: predict_episodes(made[name], asked) for name in PREDICTORS}
    taken = {"bc": vectors(agents["bc"].predict(states)[0])}
    for name, agent in pidms.items():
        for kind, future in shown.items():
            taken[f"{name}/{kind}"] = vectors(agent.inverse_dynamics(states, future))
    taken["change"] = _regression(training, vectors)(futures - states)
    squares = {key: np.square(each.astype(np.float64) - actions).mean(axis=1) for key, each in taken.items()}
    return {key: np.bincount(episode, each) / np.bincount(episode) for key, each in squares.items()}


def _regression(training: DemoDataset, vectors: Vectors) -> Any:
    """Return the least-squares linear function from changes (N, D) to actions."""
    states, actions, futures, *_ = training.transitions()

    def inputs(changes: Array) -> Array:
        return np.column_stack([changes, np.ones(len(changes))]).astype(np.float64)

    weights = np.linalg.lstsq(inputs(futures - states), vectors(actions), rcond=None)[0]
    return lambda changes: inputs(changes) @ weights
