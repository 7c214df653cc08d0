"""Demonstrations made by a policy: all episodes at once, as the rows of one vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.tasks import Task, get_task
from pidm_nav.vector import NavVectorEnv

if TYPE_CHECKING:
    from pidm_nav.evaluate import Policy

BATCH = 1024  # episodes at once, which bounds the memory
CUSTOM_MAX_STEPS = 1000  # a map of one's own has no step limit by itself

Progress = Callable[[int], None]


def collect(
    policy: Policy,
    task: str | Task,
    episodes: int = 50,
    seed: int = 0,
    made_by: str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    max_steps: int | None = None,
    **env_kwargs: Any,
) -> DemoDataset:
    """A dataset of a policy's episodes; episode i is the one that begins with `reset(seed=seed + i)`.

    Args:
        policy: anything with `predict`, which gets all rows at once.
        task: a task's name, or "custom" with `layout=` among the environment's arguments.
        episodes: how many.
        seed: of the first episode.
        made_by: who made them; the policy's class if not given.
        settings: the policy's settings; its own `settings` if not given.
        progress: called with the number of episodes that ended, whenever some did.
        max_steps: the step limit in place of the task's.
        env_kwargs: the environment's arguments, kept with the dataset.
    """
    from pidm_nav import __version__

    made = rollout(policy, task, episodes, seed, max_steps, progress, **env_kwargs)
    name = _task_name(task)
    if name == "custom":  # keep the map itself: its file may be gone tomorrow
        layout = _make(name, 1, None, env_kwargs).layout
        others = {key: value for key, value in env_kwargs.items() if key != "goal_order"}
        env_kwargs = {**others, "layout": layout.text, "room_size": list(layout.room_size)}
    source = {
        "made_by": made_by or type(policy).__name__,
        "settings": dict(settings if settings is not None else getattr(policy, "settings", {})),
        "env_kwargs": env_kwargs,
        "version": __version__,
    }
    return DemoDataset(name, tuple(made), source)


def rollout(
    policy: Policy,
    task: str | Task,
    episodes: int = 50,
    seed: int = 0,
    max_steps: int | None = None,
    progress: Progress | None = None,
    **env_kwargs: Any,
) -> list[Episode]:
    """A policy's episodes, seeded `seed`, `seed + 1`, ..., with `goals_reached` (T+1,) among their infos."""
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}: it must be at least 1")
    made: list[Episode] = []
    while len(made) < episodes:
        rows = min(BATCH, episodes - len(made))
        env = _make(_task_name(task), rows, max_steps, env_kwargs)
        made += _rollout_batch(policy, env, seed + len(made), progress)
        env.close()
    return made


def _rollout_batch(policy: Policy, env: NavVectorEnv, seed: int, progress: Progress | None) -> list[Episode]:
    """One episode in every row; rows that ended stay still until the last one has."""
    rows = env.num_envs
    observation, info = env.reset(seed=seed)
    observations, goals_reached = [observation], [info["goals_reached"]]
    actions: list[NDArray[np.float32]] = []
    rewards: list[NDArray[np.float64]] = []
    lengths, ended = np.zeros(rows, np.int64), np.zeros(rows, bool)
    state: Any = None
    episode_start = np.ones(rows, bool)
    while not ended.all():
        action, state = policy.predict(observation, state, episode_start, deterministic=True)
        # What is stepped is what is stored, to the bit: replaying the actions then gives the same episode.
        action = np.clip(np.asarray(action, np.float32), -1.0, 1.0)
        observation, reward, terminated, truncated, info = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
        goals_reached.append(info["goals_reached"])
        lengths += ~ended
        now = terminated | truncated
        if progress is not None and (now & ~ended).any():
            progress(int((now & ~ended).sum()))
        ended, episode_start = now, np.zeros(rows, bool)
    all_observations, all_actions = np.stack(observations, axis=1), np.stack(actions, axis=1)  # (N, T, ...)
    all_rewards, all_reached = np.stack(rewards, axis=1), np.stack(goals_reached, axis=1)
    return [
        Episode(
            all_observations[row, : steps + 1],
            all_actions[row, :steps],
            all_rewards[row, :steps],
            terminated=bool(terminated[row]),
            truncated=bool(truncated[row] and not terminated[row]),
            seed=seed + row,
            infos={"goals_reached": all_reached[row, : steps + 1].astype(np.int16)},
        )
        for row, steps in enumerate(lengths.tolist())
    ]


def _task_name(task: str | Task) -> str:
    return "custom" if task in ("custom", "PIDMNav-Custom-v0") else get_task(task).name


def _make(name: str, rows: int, max_steps: int | None, env_kwargs: Mapping[str, Any]) -> NavVectorEnv:
    if name == "custom":
        limit, task = max_steps or CUSTOM_MAX_STEPS, None
    else:
        limit, task = max_steps or get_task(name).max_steps, name
    mode = AutoresetMode.DISABLED
    return NavVectorEnv(rows, max_episode_steps=limit, autoreset_mode=mode, task=task, **env_kwargs)
