"""Episodes of any policy in a 3D level: demonstrations, and what a policy reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.demos.experts.walker3d import Expert3D
from pidm_nav.rollout import EvalResult, Policy, Progress
from pidm_nav.world3d.levels import Level, get_level

Watch = Callable[[gym.Env[Any, Any]], None]
"""Called with the environment after its reset and after each step, to draw it for example."""


def collect3d(
    task: str | Level,
    episodes: int = 30,
    seed: int = 0,
    policy: Policy | None = None,
    made_by: str | None = None,
    progress: Progress | None = None,
    max_steps: int | None = None,
    **env_kwargs: Any,
) -> DemoDataset:
    """A dataset of episodes; episode i begins with `reset(seed=seed + i)` and depends on nothing else.

    Args:
        task: a level's name or id.
        episodes: how many.
        seed: of the first episode, and of the scripted walker's chance in it.
        policy: anything with `predict`; the scripted walker if not given.
        made_by: who made them.
        progress: called with 1 whenever an episode ended.
        max_steps: the step limit in place of the level's.
        env_kwargs: the environment's arguments, kept with the dataset.
    """
    from pidm_nav import __version__

    level = get_level(task)
    made = roll_out3d(policy, level, episodes, seed, max_steps, progress, **env_kwargs)
    source = {
        "made_by": made_by or ("scripted" if policy is None else type(policy).__name__),
        "settings": dict(getattr(policy or Expert3D(level), "settings", {})),
        "env_kwargs": env_kwargs,
        "version": __version__,
    }
    return DemoDataset(level.env_id, tuple(made), source)


def evaluate3d(
    policy: Policy | None,
    task: str | Level,
    episodes: int = 20,
    seed: int = 0,
    max_steps: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    **env_kwargs: Any,
) -> EvalResult:
    """Roll a policy out as `evaluate` does in 2D; the arguments are those of `roll_out3d`. Keeps no pictures."""
    level = get_level(task)
    made = roll_out3d(policy, level, episodes, seed, max_steps, progress, False, watch, **env_kwargs)
    reached = np.array([episode.infos["goals_reached"][-1] for episode in made])
    return EvalResult(
        task=level.name,
        layout=level.layout,
        seeds=np.array([episode.seed for episode in made]),
        goal_ratio=reached / level.num_goals,
        success=reached == level.num_goals,
        length=np.array([len(episode) for episode in made]),
        returns=np.array([episode.rewards.sum() for episode in made]),
        rollouts=(),
    )


def roll_out3d(
    policy: Policy | None,
    task: str | Level,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int | None = None,
    progress: Progress | None = None,
    keep_observations: bool = True,
    watch: Watch | None = None,
    **env_kwargs: Any,
) -> list[Episode]:
    """A policy's episodes, with `states` (T+1, D), `goals_reached` (T+1,) and `tics` (T,) among their infos.

    Without `keep_observations` the states stand in for the observations.
    """
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}: it must be at least 1")
    level = get_level(task)
    limit = {} if max_steps is None else {"max_episode_steps": max_steps}
    env = gym.make(level.env_id, disable_env_checker=True, **limit, **env_kwargs)
    made = []
    try:
        for number in range(seed, seed + episodes):
            player = policy if policy is not None else Expert3D(level, seed=number)
            made.append(_episode(player, env, number, keep_observations, watch))
            if progress is not None:
                progress(1)
    finally:
        env.close()
    return made


def _episode(
    policy: Policy, env: gym.Env[Any, NDArray[np.float32]], seed: int, keep_observations: bool, watch: Watch | None
) -> Episode:
    sees_state = bool(getattr(policy, "sees_state", False))
    observation, info = env.reset(seed=seed)
    observations, states, reached = [observation], [info["state"]], [0]
    actions: list[NDArray[np.float32]] = []
    rewards: list[float] = []
    tics: list[int] = []
    memory: Any = None
    terminated = truncated = False
    while not (terminated or truncated):
        if watch is not None:
            watch(env)
        seen = info["state"] if sees_state else observation
        action, memory = policy.predict(seen[None], memory, np.array([not actions]), deterministic=True)
        # What is stepped is what is stored, to the bit: replaying the actions then gives the same episode.
        action = np.clip(np.asarray(action[0], np.float32), -1.0, 1.0)
        observation, reward, terminated, truncated, info = env.step(action)
        if keep_observations:
            observations.append(observation)
        states.append(info["state"])
        reached.append(info["goals_reached"])
        actions.append(action)
        rewards.append(float(reward))
        tics.append(info["tics"])
    if watch is not None:
        watch(env)
    return Episode(
        np.stack(observations if keep_observations else states),
        np.stack(actions),
        np.array(rewards),
        terminated=terminated,
        truncated=truncated,
        seed=seed,
        infos={
            "states": np.stack(states),
            "goals_reached": np.array(reached, np.int16),
            "tics": np.array(tics, np.int16),
        },
    )
