"""Recorded episodes against the environment: their map, their states, and whether the physics allow them."""

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

SIGMAS = 6.0  # noise beyond this many standard deviations is called impossible
AT_ONCE = 2**28  # bytes of observations that are simulated again at once
ROUNDING = 0.002  # px: positions have three decimals and were stored as float32


class Mismatch(NamedTuple):
    """Something in an episode that the environment could not have done."""

    episode: int
    step: int  # index of the observation at which it shows
    reason: str


class Check(NamedTuple):
    """What `check_demos` found."""

    resimulated: int  # episodes that were stepped again from their seed and compared bit for bit
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
    episode = demo_episode(dataset, index)
    states = episode.infos.get("states", episode.observations)
    if states.ndim != 2 or len(states) != len(episode) + 1 or states.shape[1] < 2:
        raise ValueError("these demonstrations hold no states, but images or single numbers: positions are needed")
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
    """Return an episode by its number, counted from 0."""
    if not 0 <= index < len(dataset):
        raise ValueError(f"there is no episode {index}: the demonstrations have episodes 0 to {len(dataset) - 1}")
    return dataset[index]


def demo_frames(dataset: DemoDataset, index: int, size: int) -> list[NDArray[np.uint8]]:
    """Return the pictures of an episode: its own, drawn over its map, or filmed while it is played again."""
    task, episode = find_task(dataset.task), demo_episode(dataset, index)
    states = demo_states(dataset, index) if task.has_2d_state else episode.observations
    if states.ndim == 4 and states.shape[3] != 3:
        raise ValueError(f"images of shape {states.shape[1:]} cannot be drawn: they need three colors")
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
    """Make the environment of a dataset, whose arguments may be from anywhere; what it cannot do is one sentence."""
    task = find_task(dataset.task)
    try:
        with closing(task.make_vec(rows, max_steps, render_mode, **dataset.env_kwargs)) as env:
            yield env
    except (ValueError, OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever an environment may raise
        raise ValueError(f"{task.name} cannot be played with {reprlib.repr(dataset.env_kwargs)}: {error}") from None


def check_demos(dataset: DemoDataset) -> Check:
    """Check whether the environment can have given these episodes.

    Episodes with a seed are stepped again with their own noise and must come out the same to the bit. Others, such as
    recordings made elsewhere, are tested transition by transition in 2D: walls, moves, goals, rewards.
    """
    task = find_task(dataset.task)
    if not dataset.action_dim:
        raise ValueError("these demonstrations have no actions, so they cannot be stepped again: check the originals")
    known = all(part.get("env_kwargs") == dataset.env_kwargs for part in dataset.parts)
    seeded = [index for index, episode in enumerate(dataset) if known and episode.seed is not None]
    others = sorted(set(range(len(dataset))) - set(seeded))
    if dataset.env_kwargs.get("realtime") or (others and not task.has_2d_state):
        raise ValueError(f"episodes of {task.name} without a seed or in real time cannot be stepped again")
    mismatches = list(_resimulate(dataset, seeded)) if seeded else []
    for index in others:
        mismatches += _test(dataset, index)
    return Check(len(seeded), len(others), tuple(mismatches))


class _Replay(NamedTuple):
    """A policy that plays the actions of recorded episodes, one episode per row."""

    episodes: list[Episode]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], int]:
        """Return the actions of this step, or the last ones where an episode is over."""
        step = state or 0
        rows = [*self.episodes, *self.episodes[-1:] * (len(observation) - len(self.episodes))]
        return np.array([episode.actions[min(step, len(episode) - 1)] for episode in rows]), step + 1


def _resimulate(dataset: DemoDataset, indices: list[int]) -> Iterator[Mismatch]:
    """Step the seeded episodes again; yield the first difference of each."""
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
                seen = episode.observations[: both + 1] == again.observations[: both + 1]
                seen = seen.reshape(both + 1, -1).all(axis=1)
                paid = np.append(True, episode.rewards[:both] == again.rewards[:both])
                same = np.append(seen & paid, len(again) >= len(episode))
                if not same.all():
                    step = int(np.argmin(same))
                    what = "end" if step > both else "reward" if seen[step] else "observation"
                    yield Mismatch(index, min(step, both), f"seed {episode.seed} leads to another {what}")


def _test(dataset: DemoDataset, index: int) -> Iterator[Mismatch]:
    """Test an episode by the rules of the 2D tasks; yield the first step of each kind that they do not allow."""
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
    """Return (T,) whether some noise within SIGMAS leads from each position to the next."""
    before, moved = positions[:-1], np.diff(positions, axis=0)
    room = np.array(physics.layout.room_size) - 1
    actions = np.clip(episode.actions.astype(np.float64), -1, 1)
    intended = actions * (np.abs(actions) >= physics.deadzone)  # (T, 2)
    low, high = intended - SIGMAS * physics.noise_std, intended + SIGMAS * physics.noise_std
    if physics.clip_noise:
        low, high = np.clip(low, -1, 1), np.clip(high, -1, 1)
    within = (moved >= SPEED * low - ROUNDING) & (moved <= SPEED * high + ROUNDING)
    possible: NDArray[np.bool_] = np.all(within, axis=1)
    # Where free movement does not explain it, a wall or the border must be within the noise's reach.
    for step in np.flatnonzero(~possible).tolist():
        reach = before[step] + SPEED * np.linspace(low[step], high[step], 9)  # (9, 2)
        targets = np.stack(np.meshgrid(*reach.T), axis=-1)
        bounced = physics.collides(np.clip(targets, 0, room)).any() or ((targets < 0) | (targets > room)).any()
        longest = SPEED * np.maximum(np.abs(low[step]), np.abs(high[step])) + MARGIN
        possible[step] = bounced and (np.abs(moved[step]) <= longest).all()
    return possible
