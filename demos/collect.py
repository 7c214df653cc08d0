"""Demonstrations made by a policy: all episodes at once, as the rows of one vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.rollout import Policy, Progress, make_rows, roll_out
from pidm_nav.tasks import Task


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
    env = make_rows(task, 1, max_steps, env_kwargs)
    name, layout = env.task_name, env.layout
    if name == "custom":  # keep the map itself: its file may be gone tomorrow
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
    rollouts = roll_out(policy, task, episodes, seed, max_steps, progress, keep_observations=True, **env_kwargs)
    return [
        Episode(
            each.observations,
            each.actions,
            each.rewards,
            terminated=each.terminated,
            truncated=each.truncated,
            seed=each.seed,
            infos={"goals_reached": each.goals_reached.astype(np.int16)},
        )
        for each in rollouts
        if each.observations is not None
    ]
