"""collect(): demonstrations of any policy in any task."""

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
        policy: a policy with `predict`; experts get state vectors whatever is observed.
        task: name of a task, "custom" with `layout=` among the environment's arguments, or any Gymnasium id.
        episodes: number of episodes.
        seed: seed of the first episode.
        made_by: demonstrator. Default: the expert's name, or the policy's class.
        max_steps: step limit. Default: the task's.
        progress: called with the number of episodes that have just ended.
        env_kwargs: arguments of the environment, kept with the dataset.
    """
    task = find_task(task)
    seeds = episode_seeds(episodes, seed)
    with closing(task.make_vec(task.rows_for(episodes), max_steps, **env_kwargs)) as env:
        made = rollout(policy, env, seeds, progress=progress)
    layout = task.layout(env_kwargs) if "layout" in env_kwargs else None
    if layout is not None:  # keep the map itself, as its file may change
        others = {key: value for key, value in env_kwargs.items() if key != "goal_order"}
        env_kwargs = {**others, "layout": layout.text, "room_size": list(layout.room_size)}
    settings = dict(getattr(policy, "settings", {}))
    made_by = made_by or settings.get("expert", type(policy).__name__)
    source = {"made_by": made_by, "settings": settings, "env_kwargs": env_kwargs, "version": __version__}
    return DemoDataset(task.name, tuple(made), source)
