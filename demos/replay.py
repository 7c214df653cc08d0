"""Recorded episodes against the environment: their map, their states, and whether the physics allow them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset, Episode, has_goal_flags
from pidm_nav.tasks import TASKS, join_state, split_state
from pidm_nav.world2d.layout import MARGIN, Layout
from pidm_nav.world2d.physics import SPEED, Physics
from pidm_nav.world2d.vector import NavVectorEnv
from pidm_nav.world3d.levels import is_3d

SIGMAS = 6.0  # noise beyond this many standard deviations is called impossible
ROUNDING = 0.002  # px: positions have three decimals and were stored as float32


@dataclass(frozen=True)
class Mismatch:
    """Something in an episode that the environment could not have done."""

    episode: int
    step: int  # index of the observation at which it shows
    reason: str


@dataclass(frozen=True)
class Check:
    """What `check_demos` found."""

    resimulated: int  # episodes stepped again from their seed and compared bit for bit
    tested: int  # episodes without a seed, whose every transition was tested against the physics
    mismatches: tuple[Mismatch, ...]


def demo_layout(dataset: DemoDataset) -> Layout:
    """The map a dataset was made on."""
    if dataset.task in TASKS:
        return TASKS[dataset.task].layout
    kwargs = dataset.env_kwargs
    if dataset.task != "custom" or "layout" not in kwargs:
        raise ValueError(f"demonstrations of '{dataset.task}' have no map to draw: use those of a navigation task")
    return Layout.load(kwargs["layout"], kwargs.get("room_size", (800, 800)), kwargs.get("goal_order"))


def demo_states(dataset: DemoDataset, index: int) -> NDArray[np.float32]:
    """(T+1, 2 + 3G) state vectors of an episode, also where goals were observed relatively or not at all."""
    if not -len(dataset) <= index < len(dataset):
        raise ValueError(f"there is no episode {index}: the file has {len(dataset)}, counted from 0")
    episode, layout, kwargs = dataset[index], demo_layout(dataset), dataset.env_kwargs
    observations = episode.observations
    if observations.ndim != 2:
        raise ValueError("these demonstrations hold images only: positions are needed")
    if observations.shape[1] >= 2 + 3 * layout.num_goals:
        states = observations[:, : 2 + 3 * layout.num_goals].copy()
        if kwargs.get("relative_goals"):
            states[:, 2::3] += states[:, 0:1]
            states[:, 3::3] += states[:, 1:2]
        return states
    reached = episode.infos.get("goals_reached", np.zeros(len(episode) + 1, np.int64))
    goals = np.broadcast_to(layout.goals, (len(episode) + 1, *layout.goals.shape))
    return join_state(observations[:, :2], goals, reached.astype(np.int64))


def check_demos(dataset: DemoDataset) -> Check:
    """Whether the environment can have given these episodes.

    Episodes with a seed are stepped again with their own noise and must come out the same to the bit. Of the
    others, a person's recordings made elsewhere, every transition is tested: walls, moves, goals, rewards.
    """
    if is_3d(dataset.task):
        return _check_3d(dataset)
    known = "parts" not in dataset.source and "env_kwargs" in dataset.source
    seeded = [i for i, episode in enumerate(dataset) if episode.seed is not None] if known else []
    mismatches = list(_resimulate(dataset, seeded)) if seeded else []
    others = sorted(set(range(len(dataset))) - set(seeded))
    for index in others:
        mismatches += [Mismatch(index, step, reason) for step, reason in _impossible(dataset, index)]
    return Check(len(seeded), len(others), tuple(mismatches))


def _check_3d(dataset: DemoDataset) -> Check:
    """Step every episode of a 3D task again from its seed; the first difference of each."""
    if any(episode.seed is None for episode in dataset) or dataset.env_kwargs.get("realtime"):
        raise ValueError("3D episodes without a seed or in real time cannot be stepped again")
    mismatches = []
    # an environment is its own context manager: the engine ends with it, also where a step is refused
    with gym.make(dataset.task, disable_env_checker=True, max_episode_steps=-1, **dataset.env_kwargs) as env:
        for index, episode in enumerate(dataset):
            observation, _ = env.reset(seed=episode.seed)
            same = [np.array_equal(observation, episode.observations[0])]
            for action, expected, paid in zip(episode.actions, episode.observations[1:], episode.rewards, strict=True):
                observation, reward, *_ = env.step(action)
                same.append(np.array_equal(observation, expected) and reward == paid)
            if not all(same):
                mismatches.append(Mismatch(index, same.index(False), f"seed {episode.seed} leads to something else"))
    return Check(len(dataset), 0, tuple(mismatches))


def _resimulate(dataset: DemoDataset, indices: list[int]) -> Iterator[Mismatch]:
    """Step the seeded episodes again, all at once; the first difference of each."""
    episodes = [dataset[index] for index in indices]
    task = dataset.task if dataset.task in TASKS else None
    mode = AutoresetMode.DISABLED
    env = NavVectorEnv(len(episodes), autoreset_mode=mode, task=task, **dataset.env_kwargs)
    observation, _ = env.reset(seed=[episode.seed for episode in episodes])
    lengths = np.array([len(episode) for episode in episodes])
    good = np.ones(len(episodes), bool)
    reward = np.zeros(len(episodes))
    for step in range(int(lengths.max()) + 1):
        for row in np.flatnonzero(good & (lengths >= step)).tolist():
            episode = episodes[row]
            same = np.array_equal(observation[row], episode.observations[step])
            paid = step == 0 or reward[row] == episode.rewards[step - 1]
            if not (same and paid):
                good[row] = False
                what = "reward" if same else "observation"
                yield Mismatch(indices[row], step, f"seed {episode.seed} leads to another {what}")
        actions = [episode.actions[min(step, len(episode) - 1)] for episode in episodes]
        observation, reward, *_ = env.step(np.array(actions))
    env.close()


def _impossible(dataset: DemoDataset, index: int) -> Iterator[tuple[int, str]]:
    """The first step of each kind that the rules do not allow."""
    episode, kwargs = dataset[index], dataset.env_kwargs
    layout, states = demo_layout(dataset), demo_states(dataset, index)
    physics = Physics(layout, **{key: kwargs[key] for key in ("noise_std", "clip_noise", "deadzone") if key in kwargs})
    positions, goals, reached = split_state(states)
    room = np.array(layout.room_size) - 1
    findings: list[tuple[NDArray[Any], str]] = [
        (physics.collides(positions), "the agent's box overlaps a wall"),
        (
            np.any((positions < -MARGIN) | (positions > room + MARGIN), axis=1),
            "the agent is outside the room",
        ),
        (
            np.append(False, ~_reachable(physics, positions, episode)),
            "no action with noise moves the agent there",
        ),
    ]
    if not kwargs.get("random_start"):
        away = (positions[:1, None] != layout.starts[None]).any(2).all(1)
        findings.append((away, "the episode does not begin at the map's start"))
    if has_goal_flags(episode.observations):
        findings += _goal_findings(physics, positions, goals, reached, states[:, 4::3], episode)
    for wrong, reason in findings:
        if wrong.any():
            yield int(np.argmax(wrong)), reason


def _goal_findings(
    physics: Physics,
    positions: NDArray[np.float64],
    goals: NDArray[np.float64],
    reached: NDArray[np.int64],
    flags: NDArray[np.float32],
    episode: Episode,
) -> list[tuple[NDArray[Any], str]]:
    """The goal rule at every step: only the current goal counts, and it is reached when the boxes overlap."""
    num_goals = goals.shape[1]
    current = goals[np.arange(len(episode)), np.minimum(reached[:-1], num_goals - 1)]
    touched = physics.touches(positions[1:, 0], positions[1:, 1], current[:, 0], current[:, 1])
    rises = np.diff(reached)
    last = np.arange(1, len(episode) + 1) == len(episode)
    finished = reached[1:] == num_goals
    return [
        (reached[:1] != 0, "a goal is reached before the first step"),
        ((flags != (np.arange(num_goals) < reached[:, None])).any(1), "goals are not reached in order"),
        (np.append(False, touched & (rises != 1)), "the current goal is touched and not counted"),
        (np.append(False, ~touched & (rises != 0)), "a goal is counted that is not touched"),
        (np.append(False, episode.rewards != rises), "the reward is not the number of goals reached"),
        (
            np.append(False, finished != (last & episode.terminated)),
            "the episode does not end at its last goal",
        ),
    ]


def _reachable(physics: Physics, positions: NDArray[np.float64], episode: Episode) -> NDArray[np.bool_]:
    """(T,) whether some noise within SIGMAS leads from each position to the next."""
    before, moved = positions[:-1], np.diff(positions, axis=0)
    actions = np.clip(episode.actions.astype(np.float64), -1, 1)
    intended = actions * (np.abs(actions) >= physics.deadzone)  # (T, 2)
    spread = SIGMAS * physics.noise_std
    low, high = intended - spread, intended + spread
    if physics.clip_noise:
        low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    within = (moved >= SPEED * low - ROUNDING) & (moved <= SPEED * high + ROUNDING)
    free: NDArray[np.bool_] = np.all(within, axis=1)
    # Where free movement does not explain it, a wall or the border must be within the noise's reach.
    grid = np.linspace(0, 1, 9)
    for step in np.flatnonzero(~free).tolist():
        x, y = (before[step, i] + SPEED * (low[step, i] + grid * (high[step, i] - low[step, i])) for i in (0, 1))
        targets = np.stack(np.meshgrid(x, y), axis=-1)
        room = np.array(physics.layout.room_size) - 1
        bounced = physics.collides(np.clip(targets, 0, room)).any() or ((targets < 0) | (targets > room)).any()
        longest = SPEED * np.maximum(np.abs(low[step]), np.abs(high[step])) + MARGIN
        free[step] = bounced and (np.abs(moved[step]) <= longest).all()
    return free
