"""Recorded episodes against the environment: their map, their states, and whether the physics allow them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.episode import Episode
from pidm_nav.rollout import Rollout
from pidm_nav.tasks import find_task
from pidm_nav.world2d.layout import MARGIN, Layout
from pidm_nav.world2d.physics import SPEED, Physics
from pidm_nav.world2d.state import (
    POSITION,
    REACHED,
    current_goals,
    has_goal_flags,
    join_state,
    shift_goals,
    split_state,
    state_size,
)

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
    """Return the map that a dataset was made on."""
    layout = find_task(dataset.task).layout(dataset.env_kwargs)
    if layout is None:
        raise ValueError(f"demonstrations of '{dataset.task}' have no map to draw: use those of a navigation task")
    return layout


def demo_states(dataset: DemoDataset, index: int) -> NDArray[np.float32]:
    """Return the state vectors (T+1, D) of an episode, also where goals were observed relatively or not at all."""
    episode, kwargs = demo_episode(dataset, index), dataset.env_kwargs
    if "states" in episode.infos:
        return episode.infos["states"]
    observations = episode.observations
    if observations.ndim != 2:
        raise ValueError("these demonstrations hold images only: positions are needed")
    if not find_task(dataset.task).shows_goals:
        return observations
    layout = demo_layout(dataset)
    if observations.shape[1] >= state_size(layout.num_goals):
        states = observations[:, : state_size(layout.num_goals)].copy()
        return shift_goals(states, 1) if kwargs.get("relative_goals") else states
    reached = episode.infos.get("goals_reached", np.zeros(len(episode) + 1, np.int64))
    goals = np.broadcast_to(layout.goals, (len(episode) + 1, *layout.goals.shape))
    return join_state(observations[:, POSITION], goals, reached.astype(np.int64))


def demo_episode(dataset: DemoDataset, index: int) -> Episode:
    """Return an episode by its number, counted from 0."""
    if not 0 <= index < len(dataset):
        raise ValueError(f"there is no episode {index}: the demonstrations have episodes 0 to {len(dataset) - 1}")
    return dataset[index]


def demo_frames(dataset: DemoDataset, index: int, size: int) -> list[NDArray[np.uint8]]:
    """Return the pictures of an episode: those it consists of, or drawn over its map."""
    task, episode = find_task(dataset.task), demo_episode(dataset, index)
    states = demo_states(dataset, index) if task.shows_goals else episode.observations
    return task.draw(states, dataset.env_kwargs, size)


def check_demos(dataset: DemoDataset) -> Check:
    """Check whether the environment can have given these episodes.

    Episodes with a seed are stepped again with their own noise and must come out the same to the bit. Others, such as
    recordings made elsewhere, are tested transition by transition in 2D: walls, moves, goals, rewards.
    """
    task = find_task(dataset.task)
    known = "parts" not in dataset.source and "env_kwargs" in dataset.source
    seeded = [i for i, episode in enumerate(dataset) if episode.seed is not None] if known else []
    others = sorted(set(range(len(dataset))) - set(seeded))
    if dataset.env_kwargs.get("realtime") or (others and not task.shows_goals):
        raise ValueError(f"episodes of {task.name} without a seed or in real time cannot be stepped again")
    mismatches = list(_resimulate(dataset, seeded)) if seeded else []
    for index in others:
        mismatches += [Mismatch(index, step, reason) for step, reason in _impossible(dataset, index)]
    return Check(len(seeded), len(others), tuple(mismatches))


class _Replay:
    """A policy that plays the actions of recorded episodes, one episode per row."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.episodes, self.step = episodes, 0

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the actions of this step, or the last ones where an episode is over."""
        actions = [episode.actions[min(self.step, len(episode) - 1)] for episode in self.episodes]
        self.step += 1
        return np.array(actions), state


def _resimulate(dataset: DemoDataset, indices: list[int]) -> Iterator[Mismatch]:
    """Step the seeded episodes again; yield the first difference of each."""
    task, rows = find_task(dataset.task), find_task(dataset.task).rows_for(len(indices))
    longest = max(len(dataset[index]) for index in indices)
    with closing(task.make_vec(rows, longest + 1, **dataset.env_kwargs)) as env:
        for first in range(0, len(indices), rows):
            some = indices[first : first + rows]
            episodes = [dataset[index] for index in some]
            replay = _Replay([*episodes, *episodes[-1:] * (rows - len(episodes))])
            running = Rollout(replay, env, [int(episode.seed or 0) for episode in episodes])
            for _ in range(max(map(len, episodes))):
                running.step()
            for index, episode, again in zip(some, episodes, running.episodes(), strict=True):
                yield from _difference(index, episode, again)


def _difference(index: int, episode: Episode, again: Episode) -> Iterator[Mismatch]:
    """Yield the first step at which an episode stepped again differs."""
    steps = min(len(episode), len(again))
    seen = (episode.observations[: steps + 1] == again.observations[: steps + 1]).reshape(steps + 1, -1).all(axis=1)
    paid = np.append(True, episode.rewards[:steps] == again.rewards[:steps])
    step = int(np.argmin(np.append(seen & paid, len(again) >= len(episode))))
    if step or not seen[0]:
        what = "end" if step > steps else "reward" if seen[step] else "observation"
        yield Mismatch(index, min(step, steps), f"seed {episode.seed} leads to another {what}")


def _impossible(dataset: DemoDataset, index: int) -> Iterator[tuple[int, str]]:
    """The first step of each kind that the rules do not allow."""
    episode, kwargs = dataset[index], dataset.env_kwargs
    layout, states = demo_layout(dataset), demo_states(dataset, index)
    physics = Physics(layout, **{key: kwargs[key] for key in ("noise_std", "clip_noise", "deadzone") if key in kwargs})
    positions, _, _ = split_state(states)
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
        findings += _goal_findings(physics, states, episode)
    for wrong, reason in findings:
        if wrong.any():
            yield int(np.argmax(wrong)), reason


def _goal_findings(physics: Physics, states: NDArray[Any], episode: Episode) -> list[tuple[NDArray[Any], str]]:
    """Test the goal rule at every step: only the current goal counts, and it is reached when the boxes overlap."""
    positions, goals, reached = split_state(states)
    num_goals, flags = goals.shape[1], states[:, REACHED]
    current = current_goals(goals[:-1], reached[:-1])
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
