"""The policies of the 3D study: agents and lookups that act on features of images, with and without the engine's pose.

Run by scripts/run_world3d.py. A policy takes what it is shown, one row per episode, and its memory; it returns actions
and the memory for the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.encoders import Principal
from pidm_nav.agents.images import stack_history
from pidm_nav.agents.networks import Scale
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.predictors import Lookup
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.episode import Episode
from pidm_nav.world3d.env import POSE

HISTORY = (0, 6, 12)  # steps back of the images that make a state
LONG_HISTORY = (0, 1, 2, 6, 7, 8, 12, 13, 14)  # the last three states
STEP_UNITS = (28.0, 24.0, 15.0, 6.0)  # what a full action does in a step: forward, right (units), turn, look (degrees)

Array = np.ndarray[Any, np.dtype[Any]]


class Recorded(NamedTuple):
    """Episodes whose images have become the vectors of the encoder."""

    vectors: list[Array]  # (T+1, E) each
    poses: list[Array]  # (T+1, 17) state vectors
    actions: list[Array]  # (T, 4)
    seeds: list[int]

    def __getitem__(self, index: Any) -> Recorded:
        return Recorded(*(each[index] for each in (self.vectors, self.poses, self.actions, self.seeds)))


def embed(vision: Principal, recorded: Recorded, history: Sequence[int] = HISTORY) -> list[Array]:
    """Return the states (T+1, D) of each episode."""
    return [stack_history(vision.scale(torch.tensor(own)).numpy(), history) for own in recorded.vectors]


def dataset(states: Sequence[Array], recorded: Recorded, task: str = "embedded") -> DemoDataset:
    """Return demonstrations with these states (T+1, D) as observations."""
    episodes = [
        Episode(own, actions, np.zeros(len(actions), np.float32), True, False, seed, {})
        for own, actions, seed in zip(states, recorded.actions, recorded.seeds, strict=True)
    ]
    return DemoDataset(task, tuple(episodes), {"made_by": "scripted"})


class Seen(NamedTuple):
    """What policies are shown in a step, one row per episode."""

    recent: Array  # (N, L, E) vectors of the last images, the newest first
    poses: Array  # (N, 17) the engine's state vectors
    steps: Array  # (N,) steps since the episode began
    seeds: Array  # (N,) environment seeds
    starts: Array  # (N,) whether an episode begins

    def states(self, history: Sequence[int] = HISTORY) -> Array:
        """Return the states (N, D)."""
        return self.recent[:, list(history)].reshape(len(self.recent), -1)


Policy = Callable[[Seen, Any], tuple[Array, Any]]


def plain(agent: Agent) -> Policy:
    """Return an agent's policy."""
    return lambda seen, memory: agent.predict(seen.states(), memory, seen.starts)


def timed(agent: Agent) -> Policy:
    """Return the policy of BC that sees the time step, too."""
    return lambda seen, memory: agent.predict(with_time(seen.states(), seen.steps), memory, seen.starts)


def with_time(states: Array, steps: Array) -> Array:
    """Return states (N, D + 1) with the time step in hundreds."""
    return np.column_stack([states, np.asarray(steps) / 100]).astype(np.float32)


def long(agent: Agent) -> Policy:
    """Return the policy of BC that sees the last three states."""
    return lambda seen, memory: agent.predict(seen.states(LONG_HISTORY), memory, seen.starts)


def shown(agent: PIDM, future: Callable[[Seen, Any], tuple[Array, Any]]) -> Policy:
    """Return PIDM with futures (N, D) from elsewhere."""

    def act(seen: Seen, memory: Any) -> tuple[Array, Any]:
        futures, memory = future(seen, memory)
        return np.clip(agent.inverse_dynamics(seen.states(), futures), -1, 1), memory

    return act


def own_future(reference: Sequence[Array], seeds: Sequence[int]) -> Callable[[Seen, Any], tuple[Array, Any]]:
    """Return the states that the walker has one step later in its own episode with the same seed and noise."""
    found = dict(zip(seeds, reference, strict=True))

    def future(seen: Seen, memory: Any) -> tuple[Array, Any]:
        rows = zip(seen.seeds.tolist(), seen.steps.tolist(), strict=True)
        return np.stack([found[seed][min(step + 1, len(found[seed]) - 1)] for seed, step in rows]), memory

    return future


def points(poses: Array) -> Array:
    """Return poses in steps: positions, direction and pitch each in what a full action changes; no height."""
    forward, _, turn, look = STEP_UNITS
    around = np.degrees(1) / turn
    pose = np.array([1 / forward, 1 / forward, 0, around, around, 1 / look])
    return np.column_stack([poses[:, :POSE] * pose, poses[:, POSE:]]).astype(np.float32)


def finder(lookup: Lookup, poses: Sequence[Array], recorded: Recorded, level: str) -> Lookup:
    """Return a predictor that finds its place among demonstrated poses (T+1, 17) of a level."""
    demos = dataset([points(each) for each in poses], recorded, level)
    space = spaces.Box(-np.inf, np.inf, demos[0].observations.shape[1:])
    lookup.build(Scale(space, enabled=False)).fit(demos, 1)
    return lookup


def by_pose(lookup: Lookup, states: Array, pull: float, read: Callable[[Seen], Array]) -> Callable[..., Any]:
    """Return the futures of the demonstrated rows whose poses a lookup finds."""

    def future(seen: Seen, memory: Any) -> tuple[Array, Any]:
        rows, memory = lookup.locate(points(read(seen)), memory, seen.starts)
        futures = states[np.minimum(rows + 1, lookup.last[rows])]
        return futures + np.float32(1 - pull) * (seen.states() - states[rows]), memory

    return future


def pulled(agent: Agent, lookup: Lookup, poses: Array, strength: float) -> Policy:
    """Return BC with a pull to the nearest demonstrated pose, from the engine's own."""

    def act(seen: Seen, memory: Any) -> tuple[Array, Any]:
        actions, memory = agent.predict(seen.states(), memory, seen.starts)
        rows, _ = lookup.locate(points(seen.poses), None, seen.starts)
        (east, north), (cos, sin) = (poses[rows] - seen.poses)[:, :2].T, seen.poses[:, 3:5].T
        turn = angles(seen.poses) - angles(poses[rows])  # to the right
        back = np.stack([east * cos + north * sin, east * sin - north * cos, (turn + 180) % 360 - 180], axis=1)
        actions[:, :3] += strength * back / STEP_UNITS[:3]
        return np.clip(actions, -1, 1), memory

    return act


def angles(poses: Array) -> Array:
    """Return directions in degrees."""
    return np.degrees(np.arctan2(poses[:, 4], poses[:, 3]))


def regressor(states: Array, poses: Array) -> Array:
    """Return the weights (D + 1, 6) of a ridge regression from states to poses in steps."""
    inputs = np.column_stack([states, np.ones(len(states))]).astype(np.float64)
    penalty = 1e-3 * len(inputs) * np.eye(inputs.shape[1])
    solved: Array = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ poses[:, :POSE])
    return solved


def read_pose(weights: Array, states: Array, num_goals: int) -> Array:
    """Return the poses (N, 6 + goals) that the regression reads from states, with all flags 0."""
    found = np.column_stack([states, np.ones(len(states))]) @ weights
    return np.column_stack([found, np.zeros((len(states), num_goals))]).astype(np.float32)
