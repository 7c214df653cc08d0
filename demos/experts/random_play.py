"""Random play: random actions with inertia, as data for inverse dynamics models.

It shows the effect of actions everywhere, not only where experts go, and needs neither skill nor a goal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.rollout import Progress
from pidm_nav.seeds import RANDOM_PLAY
from pidm_nav.tasks import Task, find_task
from pidm_nav.world2d.layout import Layout

LENGTH = 50  # steps per episode in tasks with random starts


class RandomPlay:
    """Policy that moves each axis of the action at random; `state` holds the last actions and the generator.

    Args:
        task: a task, its name or any Gymnasium id with bounded Box or Discrete actions; or a map.
        seed: seed of the actions.
        inertia: autocorrelation of the actions from step to step, from 0 to below 1.
        env_kwargs: the environment's required arguments, if any.
    """

    def __init__(self, task: str | Task | Layout, seed: int = 0, inertia: float = 0.9, **env_kwargs: Any) -> None:
        if not 0 <= inertia < 1:
            raise ValueError(f"inertia is {inertia}: it must be at least 0 and below 1")
        self.space: Any = spaces.Box(-1.0, 1.0, (2,))  # of any map
        if not isinstance(task, Layout):
            env = find_task(task).make(**env_kwargs)
            self.space = env.action_space
            env.close()
        if isinstance(self.space, spaces.Box) and not self.space.is_bounded():
            raise ValueError(f"random play needs bounded actions, not {self.space}: wrap the environment")
        self.seed, self.inertia = seed, inertia
        self.settings = {"expert": "random", "seed": seed, "inertia": inertia}

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], Any]:
        """Return random actions (N, A) for N observations, and the state for the next call."""
        rng, before = state or (np.random.default_rng(self.seed), None)
        if isinstance(self.space, spaces.Discrete):
            choices = self.space.start + rng.integers(self.space.n, size=len(observation))
            if before is not None:
                stays = (rng.random(len(choices)) < self.inertia) & ~np.asarray(episode_start, dtype=bool)
                choices = np.where(stays, before, choices)
            return choices, (rng, choices)
        sticks = rng.standard_normal((len(observation), *self.space.shape))
        if before is not None:
            moved = self.inertia * before + np.sqrt(1 - self.inertia**2) * sticks
            begins = np.broadcast_to(False if episode_start is None else episode_start, len(sticks))
            sticks = np.where(begins.reshape(-1, *[1] * len(self.space.shape)), sticks, moved)
        low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
        actions = (low + high) / 2 + (high - low) / 2 * np.clip(sticks, -1, 1)
        return actions.astype(np.float32), (rng, sticks)


def anywhere(task: Task) -> dict[str, Any]:
    """Return the arguments for random starts, if the task has them."""
    return {"random_start": True} if "random_start" in task.defaults else {}


def collect_random_play(
    task: str | Task,
    steps: int = 2000,
    seed: int = RANDOM_PLAY.start,
    *,
    progress: Progress | None = None,
    **env_kwargs: Any,
) -> DemoDataset:
    """Collect at least `steps` transitions of random play, in short episodes with random starts if the task has them.

    Args:
        task: name of a task, "custom" with `layout=` among the environment's arguments, or any Gymnasium id.
        steps: number of transitions, rounded up to complete episodes.
        seed: seed of the actions and of the first episode.
        progress: called with the number of episodes that have just ended.
        env_kwargs: arguments of the environment.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: it must be at least 1")
    task = find_task(task)
    begins = anywhere(task)
    longest = LENGTH if begins else task.max_steps
    parts: list[DemoDataset] = []
    while (missing := steps - sum(part.num_steps for part in parts)) > 0:  # once, unless episodes end early
        episodes, first = -(-missing // longest), seed + sum(map(len, parts))
        length = -(-missing // episodes)
        policy = RandomPlay(task, first, **env_kwargs)
        options = {**begins, **env_kwargs}
        parts.append(collect(policy, task, episodes, first, max_steps=length, progress=progress, **options))
    return DemoDataset(task.name, tuple(episode for part in parts for episode in part), parts[0].source)
