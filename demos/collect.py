"""Demonstrations made by a policy, in any task."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.rollout import Policy, Progress, episode_seeds, rollout
from pidm_nav.seeds import DEMONSTRATIONS
from pidm_nav.tasks import Task, find_task
from pidm_nav.version import __version__


def collect(
    policy: Policy,
    task: str | Task,
    episodes: int = 50,
    seed: int = DEMONSTRATIONS.start,
    *,
    made_by: str | None = None,
    max_steps: int | None = None,
    progress: Progress | None = None,
    **env_kwargs: Any,
) -> DemoDataset:
    """Collect episodes of a policy; episode i begins with `reset(seed=seed + i)`.

    Args:
        policy: anything with `predict`; experts are given state vectors whatever is observed.
        task: the name of a task, "custom" with `layout=` among the environment's arguments, or any Gymnasium id.
        episodes: the number of episodes.
        seed: the seed of the first episode.
        made_by: who made them; defaults to the policy's name for itself, or to the name of its class.
        max_steps: the step limit; defaults to the task's.
        progress: called with the number of episodes that ended, whenever some did.
        env_kwargs: the environment's arguments, which are kept with the dataset.
    """
    task = find_task(task)
    seeds = episode_seeds(episodes, seed)
    with closing(task.make_vec(task.rows_for(episodes), max_steps, **env_kwargs)) as env:
        made = rollout(policy, env, seeds, progress=progress)
    layout = task.layout(env_kwargs) if "layout" in env_kwargs else None
    if layout is not None:  # keep the map itself: its file may be gone tomorrow
        others = {key: value for key, value in env_kwargs.items() if key != "goal_order"}
        env_kwargs = {**others, "layout": layout.text, "room_size": list(layout.room_size)}
    settings = dict(getattr(policy, "settings", {}))
    made_by = made_by or settings.get("expert", type(policy).__name__)
    source = {"made_by": made_by, "settings": settings, "env_kwargs": env_kwargs, "version": __version__}
    return DemoDataset(task.name, tuple(made), source)
