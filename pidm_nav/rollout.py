"""Rollouts of any policy, all episodes at once, and what they show: goals reached, success, length.

A policy is anything with Stable-Baselines3's `predict`: an agent, the A* expert, a replayed human.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pidm_nav.tasks import Task, get_task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.vector import NavVectorEnv

BATCH = 1024
"""Episodes at once, at most, which bounds the memory."""
CUSTOM_MAX_STEPS = 1000
"""The step limit of a map of one's own, which has none by itself."""

Progress = Callable[[int], None]
"""Called with the number of episodes that ended, whenever some did."""


class Policy(Protocol):
    """What can be rolled out: actions (N, 2) for observations (N, ...), and whatever it must remember."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], Any]:
        """Actions for observations; `state` is what the last call returned."""
        ...


@dataclass(frozen=True, eq=False)
class Rollout:
    """One episode of T steps, as it happened."""

    observations: NDArray[Any] | None  # (T+1, ...), where they were asked for
    states: NDArray[np.float32]  # (T+1, D)
    actions: NDArray[np.float32]  # (T, 2)
    rewards: NDArray[np.float64]  # (T,)
    terminated: bool
    truncated: bool
    seed: int

    @property
    def goals_reached(self) -> NDArray[np.int64]:
        """(T+1,) goals reached before each step and at the end."""
        reached: NDArray[np.int64] = self.states[:, 4::3].astype(np.int64).sum(axis=1)
        return reached


@dataclass(frozen=True, eq=False)
class EvalResult:
    """What E episodes of a policy showed; every array is (E,)."""

    task: str
    layout: Layout
    seeds: NDArray[np.int64]
    goal_ratio: NDArray[np.float64]  # goals reached in order, as a fraction
    success: NDArray[np.bool_]  # all goals reached
    length: NDArray[np.int64]
    returns: NDArray[np.float64]
    rollouts: tuple[Rollout, ...]

    @property
    def mean_goal_ratio(self) -> float:
        """The paper's measure of performance."""
        return float(self.goal_ratio.mean())

    @property
    def success_rate(self) -> float:
        """The fraction of episodes that reached all goals."""
        return float(self.success.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% bootstrap interval of the mean goal ratio."""
        draws = np.random.default_rng(0).integers(len(self.goal_ratio), size=(2000, len(self.goal_ratio)))
        low, high = np.percentile(self.goal_ratio[draws].mean(axis=1), [2.5, 97.5])
        return float(low), float(high)

    def table(self) -> list[dict[str, Any]]:
        """A row an episode, JSON-plain."""
        columns = {
            "seed": self.seeds,
            "goal_ratio": self.goal_ratio,
            "success": self.success,
            "length": self.length,
            "return": self.returns,
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def summary(self) -> dict[str, Any]:
        """The means, JSON-plain."""
        return {
            "task": self.task,
            "episodes": len(self.seeds),
            "goal_ratio": self.mean_goal_ratio,
            "goal_ratio_interval": list(self.interval),
            "success": self.success_rate,
            "length": float(self.length.mean()),
            "return": float(self.returns.mean()),
        }

    def frames(self, episode: int = 0, size: int = 400) -> list[NDArray[np.uint8]]:
        """The pictures of an episode."""
        from pidm_nav.world2d.render import render_state

        if not 0 <= episode < len(self.rollouts):
            raise ValueError(f"no episode {episode}: there are 0 to {len(self.rollouts) - 1}")
        states = self.rollouts[episode].states
        return [
            render_state(self.layout, state, size, trace=states[: step + 1, :2]) for step, state in enumerate(states)
        ]

    def video(self, path: str | Path, episode: int = 0, size: int = 400, fps: float = 30) -> Path:
        """Write an episode as mp4 or GIF."""
        from pidm_nav.world2d.render import write_video

        return write_video(self.frames(episode, size), path, fps)


def evaluate(
    policy: Policy,
    task: str | Task,
    episodes: int = 50,
    seed: int = 0,
    max_steps: int | None = None,
    progress: Progress | None = None,
    **env_kwargs: Any,
) -> EvalResult:
    """Roll a policy out; episode i begins with `reset(seed=seed + i)`, for every policy alike.

    Args:
        policy: anything with `predict`, which gets all running episodes at once.
        task: a task's name, or "custom" with `layout=` among the environment's arguments.
        episodes: how many.
        seed: of the first episode.
        max_steps: the step limit in place of the task's.
        progress: called with the number of episodes that ended, whenever some did.
        env_kwargs: the environment's arguments.
    """
    rollouts = roll_out(policy, task, episodes, seed, max_steps, progress, **env_kwargs)
    env = make_rows(task, 1, max_steps, env_kwargs)
    reached = np.array([rollout.goals_reached[-1] for rollout in rollouts])
    return EvalResult(
        task=env.task_name,
        layout=env.layout,
        seeds=np.array([rollout.seed for rollout in rollouts]),
        goal_ratio=reached / env.layout.num_goals,
        success=reached == env.layout.num_goals,
        length=np.array([len(rollout.actions) for rollout in rollouts]),
        returns=np.array([rollout.rewards.sum() for rollout in rollouts]),
        rollouts=tuple(rollouts),
    )


def roll_out(
    policy: Policy,
    task: str | Task,
    episodes: int = 50,
    seed: int = 0,
    max_steps: int | None = None,
    progress: Progress | None = None,
    keep_observations: bool = False,
    **env_kwargs: Any,
) -> list[Rollout]:
    """A policy's episodes as they happened; the arguments are those of `evaluate`."""
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}: it must be at least 1")
    rollouts: list[Rollout] = []
    while len(rollouts) < episodes:
        env = make_rows(task, min(BATCH, episodes - len(rollouts)), max_steps, env_kwargs)
        rollouts += _roll_out_rows(policy, env, seed + len(rollouts), progress, keep_observations)
    return rollouts


def make_rows(task: str | Task, rows: int, max_steps: int | None, env_kwargs: Mapping[str, Any]) -> NavVectorEnv:
    """A vector environment whose ended rows wait."""
    custom = task in ("custom", "PIDMNav-Custom-v0")
    if not custom:
        task = get_task(task)
        env_kwargs = {**env_kwargs, "task": task.name}
        max_steps = max_steps or task.max_steps
    return NavVectorEnv(
        rows,
        max_episode_steps=max_steps or CUSTOM_MAX_STEPS,
        autoreset_mode=AutoresetMode.DISABLED,
        **env_kwargs,
    )


def _roll_out_rows(
    policy: Policy, env: NavVectorEnv, seed: int, progress: Progress | None, keep_observations: bool
) -> list[Rollout]:
    """One episode in every row. The policy sees all rows until the last has ended: its memory stays aligned."""
    observation, _ = env.reset(seed=seed)
    observations, states = [observation], [env.get_state()]
    actions: list[NDArray[np.float32]] = []
    rewards: list[NDArray[np.float64]] = []
    lengths, ended = np.zeros(env.num_envs, np.int64), np.zeros(env.num_envs, bool)
    memory: Any = None
    begins = np.ones(env.num_envs, bool)
    while not ended.all():
        action, memory = policy.predict(observation, memory, begins, deterministic=True)
        # What is stepped is what is stored, to the bit: replaying the actions then gives the same episode.
        action = np.clip(np.asarray(action, np.float32), -1.0, 1.0)
        observation, reward, terminated, truncated, _ = env.step(action)
        if keep_observations:
            observations.append(observation)
        states.append(env.get_state())
        actions.append(action)
        rewards.append(reward)
        lengths += ~ended
        now = terminated | truncated
        if progress is not None and (now & ~ended).any():
            progress(int((now & ~ended).sum()))
        ended, begins = now, np.zeros(env.num_envs, bool)
    seen = np.stack(observations, axis=1) if keep_observations else None  # (N, T+1, ...)
    all_states, all_actions = np.stack(states, axis=1), np.stack(actions, axis=1)
    all_rewards = np.stack(rewards, axis=1)
    return [
        Rollout(
            observations=None if seen is None else seen[row, : steps + 1],
            states=all_states[row, : steps + 1],
            actions=all_actions[row, :steps],
            rewards=all_rewards[row, :steps],
            terminated=bool(terminated[row]),
            truncated=bool(truncated[row] and not terminated[row]),
            seed=seed + row,
        )
        for row, steps in enumerate(lengths.tolist())
    ]
