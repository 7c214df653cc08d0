"""Recorded episodes and their environment: map, states, pictures, and checks against the dynamics."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.episode import Episode
from pidm_nav.rollouts.rollout import rollout
from pidm_nav.tasks import find_task
from pidm_nav.world2d.layout import MARGIN, Layout
from pidm_nav.world2d.physics import SPEED, Physics, touches_many
from pidm_nav.world2d.state import POSITION, REACHED, current_goals, join_state, shift_goals, split_state, state_size

SIGMAS = 6.0  # largest noise that counts as possible, in standard deviations
AT_ONCE = 2**28  # bytes of observations resimulated at once
ROUNDING = 0.002  # px: positions have three decimals and were stored as float32


class Mismatch(NamedTuple):
    """A step of an episode that the environment cannot have produced."""

    episode: int
    step: int  # index of the observation
    reason: str


class ReplayCheck(NamedTuple):
    """Result of `check_demos`."""

    resimulated: int  # episodes with a seed, resimulated and compared bitwise
    tested: int  # episodes without a seed, whose transitions were tested against the dynamics
    mismatches: tuple[Mismatch, ...]


def demo_layout(dataset: DemoDataset) -> Layout:
    """Return the map of a dataset."""
    layout = find_task(dataset.task).layout(dataset.env_kwargs)
    if layout is None:
        raise ValueError(f"{dataset.task} has no map to draw: give demonstrations of a navigation task")
    return layout


def demo_states(dataset: DemoDataset, index: int) -> NDArray[np.float32]:
    """Return the state vectors (T+1, D) of an episode, also if goals were observed relatively or not at all."""
    episode = demo_episode(dataset, index)
    states = episode.infos.get("states", episode.observations)
    if states.ndim != 2 or len(states) != len(episode) + 1 or states.shape[1] < 2:
        raise ValueError("these demonstrations hold images or single numbers: give demonstrations with positions")
    if not find_task(dataset.task).has_2d_state:
        return states
    layout = demo_layout(dataset)
    if states.shape[1] >= state_size(layout.num_goals):
        relative = "states" not in episode.infos and dataset.env_kwargs.get("relative_goals")
        states = states[:, : state_size(layout.num_goals)]
        return shift_goals(states, 1) if relative else states
    reached = episode.infos.get("goals_reached", np.zeros(len(states)))
    goals = np.broadcast_to(layout.goals, (len(states), *layout.goals.shape))
    return join_state(states[:, POSITION], goals, reached.astype(np.int64))


def demo_episode(dataset: DemoDataset, index: int) -> Episode:
    """Return an episode by its index from 0."""
    if not 0 <= index < len(dataset):
        raise ValueError(f"there is no episode {index}: choose 0 to {len(dataset) - 1}")
    return dataset[index]


def demo_frames(dataset: DemoDataset, index: int, size: int) -> list[NDArray[np.uint8]]:
    """Return the pictures of an episode: its images, drawings on its map, or renderings of a replay."""
    task, episode = find_task(dataset.task), demo_episode(dataset, index)
    states = demo_states(dataset, index) if task.has_2d_state else episode.observations
    if states.ndim == 4 and states.shape[3] != 3:
        raise ValueError(f"images of shape {states.shape[1:]} cannot be drawn: give RGB images")
    if task.has_2d_state or states.ndim == 4 or episode.seed is None:
        return task.draw(states, dataset.env_kwargs, size)
    frames: list[NDArray[np.uint8]] = []
    with _environment(dataset, 1, len(episode), "rgb_array") as env:
        rollout(_Replay([episode]), env, [episode.seed], watch=lambda running: frames.append(running.picture(0)))
    return frames


@contextmanager
def _environment(
    dataset: DemoDataset, rows: int, max_steps: int, render_mode: str | None = None
) -> Iterator[VectorEnv[Any, Any, Any]]:
    """Make the environment of a dataset; errors of untrusted arguments become ValueErrors."""
    task = find_task(dataset.task)
    try:
        with closing(task.make_vec(rows, max_steps, render_mode, **dataset.env_kwargs)) as env:
            yield env
    except (ValueError, OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever an environment may raise
        raise ValueError(f"{task.name} cannot be played with {reprlib.repr(dataset.env_kwargs)}: {error}") from None


def check_demos(dataset: DemoDataset) -> ReplayCheck:
    """Check every step of the episodes against the environment.

    Episodes with a seed are resimulated with the same noise and must be bitwise identical. Other episodes of 2D tasks
    are tested transition by transition: walls, moves, goals, rewards.
    """
    task = find_task(dataset.task)
    if not dataset.action_dim:
        raise ValueError("these demonstrations have no actions to replay: check the original ones")
    known = all(part.get("env_kwargs") == dataset.env_kwargs for part in dataset.parts)
    seeded = [index for index, episode in enumerate(dataset) if known and episode.seed is not None]
    others = sorted(set(range(len(dataset))) - set(seeded))
    if dataset.env_kwargs.get("realtime") or (others and not task.has_2d_state):
        raise ValueError(f"episodes of {task.name} without a seed or in real time cannot be checked: record others")
    mismatches = list(_resimulate(dataset, seeded)) if seeded else []
    for index in others:
        mismatches += _test(dataset, index)
    return ReplayCheck(len(seeded), len(others), tuple(mismatches))


class _Replay(NamedTuple):
    """Policy that repeats the actions of recorded episodes, one episode per row."""

    episodes: list[Episode]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], int]:
        """Return the actions of this step, or the last ones of an ended episode."""
        step = state or 0
        rows = [*self.episodes, *self.episodes[-1:] * (len(observation) - len(self.episodes))]
        return np.array([episode.actions[min(step, len(episode) - 1)] for episode in rows]), step + 1


def _resimulate(dataset: DemoDataset, indices: list[int]) -> Iterator[Mismatch]:
    """Resimulate seeded episodes; yield the first mismatch of each."""
    longest = max(len(dataset[index]) for index in indices)
    fitting = AT_ONCE // (longest * dataset[0].observations[0].nbytes)
    rows = min(find_task(dataset.task).rows_for(len(indices)), max(fitting, 1))
    with _environment(dataset, rows, longest + 1) as env:
        for first in range(0, len(indices), rows):
            some = indices[first : first + rows]
            episodes = [dataset[index] for index in some]
            played = rollout(_Replay(episodes), env, [int(episode.seed or 0) for episode in episodes])
            for index, episode, again in zip(some, episodes, played, strict=True):
                both = min(len(episode), len(again))
                same_state = episode.observations[: both + 1] == again.observations[: both + 1]
                same_state = same_state.reshape(both + 1, -1).all(axis=1)
                same_reward = np.append(True, episode.rewards[:both] == again.rewards[:both])
                same = np.append(same_state & same_reward, len(again) >= len(episode))
                if not same.all():
                    step = int(np.argmin(same))
                    what = "end" if step > both else "reward" if same_state[step] else "observation"
                    yield Mismatch(index, min(step, both), f"seed {episode.seed} leads to another {what}")


def _test(dataset: DemoDataset, index: int) -> Iterator[Mismatch]:
    """Test an episode by the rules of the 2D tasks; yield the first violation of each rule."""
    episode, kwargs = dataset[index], dataset.env_kwargs
    layout, states = demo_layout(dataset), demo_states(dataset, index)
    physics = Physics(layout, **{key: kwargs[key] for key in ("noise_std", "clip_noise", "deadzone") if key in kwargs})
    positions, goals, reached = split_state(states)
    outside = (positions < -MARGIN) | (positions > np.array(layout.room_size) - 1 + MARGIN)
    wrong: dict[str, Any] = {
        "the agent's box overlaps a wall": physics.collides(positions),
        "the agent is outside the room": outside.any(axis=1),
        "no action with noise moves the agent there": np.append(False, ~_reachable(physics, positions, episode)),
    }
    if not kwargs.get("random_start"):
        wrong["the episode does not begin at the map's start"] = (positions[:1, None] != layout.starts).any(2).all(1)
    if dataset.goal_flags:
        in_order = states[:, REACHED] == (np.arange(layout.num_goals) < reached[:, None])
        current, rises = current_goals(goals[:-1], reached[:-1]), np.diff(reached)
        touched = touches_many(positions[1:], current)
        ends = (np.arange(1, len(states)) == len(episode)) & episode.terminated
        wrong |= {
            "a goal is reached before the first step": reached[:1] != 0,
            "goals are not reached in order": ~in_order.all(axis=1),
            "the current goal is touched and not counted": np.append(False, touched & (rises != 1)),
            "a goal is counted that is not touched": np.append(False, ~touched & (rises != 0)),
            "the reward is not the number of goals reached": np.append(False, episode.rewards != rises),
            "the episode does not end at its last goal": np.append(False, (reached[1:] == layout.num_goals) != ends),
        }
    for reason, steps in wrong.items():
        if steps.any():
            yield Mismatch(index, int(np.argmax(steps)), reason)


def _reachable(physics: Physics, positions: NDArray[np.float64], episode: Episode) -> NDArray[np.bool_]:
    """Return (T,) whether noise within SIGMAS can lead from each position to the next."""
    before, moved = positions[:-1], np.diff(positions, axis=0)
    room = np.array(physics.layout.room_size) - 1
    actions = np.clip(episode.actions.astype(np.float64), -1, 1)
    intended = actions * (np.abs(actions) >= physics.deadzone)  # (T, 2)
    low, high = intended - SIGMAS * physics.noise_std, intended + SIGMAS * physics.noise_std
    if physics.clip_noise:
        low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    within = (moved >= SPEED * low - ROUNDING) & (moved <= SPEED * high + ROUNDING)
    possible: NDArray[np.bool_] = np.all(within, axis=1)
    # if free movement cannot explain a step, a wall or the border must be within reach
    for step in np.flatnonzero(~possible).tolist():
        reach = before[step] + SPEED * np.linspace(low[step], high[step], 9)  # (9, 2)
        targets = np.stack(np.meshgrid(*reach.T), axis=-1)
        bounced = physics.collides(np.clip(targets, 0, room)).any() or ((targets < 0) | (targets > room)).any()
        longest = SPEED * np.maximum(np.abs(low[step]), np.abs(high[step])) + MARGIN
        possible[step] = bounced and (np.abs(moved[step]) <= longest).all()
    return possible
