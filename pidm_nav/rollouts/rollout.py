"""Rollouts of any policy in any vector environment.

A policy has the `predict` method of Stable-Baselines3: an agent, an expert, a replayed person. Episodes are the rows of
a Gymnasium vector environment, thousands in 2D, one in 3D.
"""

from __future__ import annotations

import os
import reprlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.limits import MAX_EPISODES, MAX_SEED, check_number
from pidm_nav.rollouts.episode import Episode

Array = NDArray[Any]
Rows = VectorEnv[Any, Any, Any]
Progress = Callable[[int], None]  # called with the number of episodes that have just ended
KEPT = ("goals_reached", "tics")  # infos that episodes keep, besides success


class Policy(Protocol):
    """Protocol for policies with a `predict` method; `sees_state = True` requests state vectors as observations."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Return actions (N, A) for observations (N, ...), and the `state` to pass to the next call."""


class Ending(NamedTuple):
    """Summary of an episode, which is kept if its steps are not."""

    seed: int | None
    length: int  # number of steps
    returns: float  # sum of rewards
    goals_reached: int
    success: bool | None  # None if unknown

    @classmethod
    def of(cls, episode: Episode) -> Ending:
        """Return the summary of an episode."""
        returns = float(episode.rewards.sum(dtype=np.float64))
        return cls(episode.seed, len(episode), returns, episode.goals_reached, episode.success)


class Rollout:
    """Episodes in progress, one per row of a vector environment; ended rows wait for the others.

    The arguments are those of `rollout`, with at most one seed per row of `env`, and `memory`, the policy's memory of
    earlier episodes. Without `keep_steps` there are no `episodes`, only `endings`.
    """

    def __init__(
        self,
        policy: Policy,
        env: Rows,
        seeds: Sequence[int],
        keep_observations: bool = True,
        memory: Any = None,
        keep_steps: bool = True,
    ) -> None:
        check_policy(policy)
        self.policy, self.env, self.seeds, self.memory = policy, env, list(seeds), memory
        rows = env.num_envs
        row_seeds: Any = [*self.seeds, *[self.seeds[-1]] * (rows - len(self.seeds))]
        self.observation, self.infos = env.reset(seed=row_seeds)
        self.states = self._read_states()
        self.ended = np.arange(rows) >= len(self.seeds)
        self.steps, self.returns = np.zeros(rows, np.int64), np.zeros(rows)
        self._goals = np.zeros(rows, np.int64)  # reached by the end of each episode
        self._terminated, self._truncated, self._success = np.zeros((3, rows), bool)
        self._reports_success = False  # whether infos report success
        self._keeps_success = False  # whether episodes must keep it, as it does not follow from goals
        self._keeps_steps, self._keeps_observations = keep_steps, keep_observations
        self._keeps_states = keep_observations and not np.array_equal(self.observation, self.states)
        self._kept: defaultdict[str, list[Array]] = defaultdict(list)  # one (N, ...) array per step
        self._keep()

    @property
    def done(self) -> bool:
        """Whether every episode has ended."""
        return bool(self.ended.all())

    @property
    def goals_reached(self) -> NDArray[np.int64]:
        """(N,) Number of goals that each row has reached so far; zeros if the environment has none."""
        return np.asarray(self.infos.get("goals_reached", np.zeros(len(self.ended))), np.int64)

    def step(self) -> int:
        """Let the policy act once in every row, and return the number of episodes that ended."""
        observed = self.states if getattr(self.policy, "sees_state", False) else self.observation
        begins = np.full(len(self.ended), not self.steps.any())
        # the stored action is bitwise identical to the executed one, so a replay gives the same episode
        action, self.memory = act(self.policy, observed, self.memory, begins, self.env.single_action_space)
        self.observation, reward, terminated, truncated, self.infos = self.env.step(action)
        reward = np.asarray(reward, np.float32)
        self.states = self._read_states()
        running = ~self.ended
        success = self.infos.get("success", self.infos.get("is_success"))
        self._reports_success |= success is not None
        self._keeps_success |= success is not None and "goals_reached" not in self.infos
        self._success = self._success | (running & np.asarray(success, bool) if success is not None else False)
        kept = action[:, None].astype(np.float32) if action.ndim == 1 else action  # a discrete action as one number
        self._keep(actions=kept, rewards=reward, success=self._success)
        self._terminated |= running & terminated
        self._goals = np.where(running, self.goals_reached, self._goals)
        self._truncated |= running & truncated & ~terminated
        self.steps += running
        self.returns += np.where(running, reward, 0.0)
        self.ended = self.ended | self._terminated | self._truncated
        return int((self.ended & running).sum())

    def picture(self, row: int) -> NDArray[np.uint8]:
        """Return the picture of a row; the environment needs `render_mode="rgb_array"`."""
        envs = getattr(self.env.unwrapped, "envs", None)
        os.environ.setdefault("XDG_RUNTIME_DIR", os.devnull)  # or SDL, which some draw with, misses it aloud
        frame = envs[row].render() if envs else (self.env.render() or {row: None})[row]
        if frame is None:
            raise ValueError(f"{self.env} renders no pictures: make it with render_mode='rgb_array'")
        return np.asarray(frame, np.uint8)

    def episodes(self) -> list[Episode]:
        """Return the episodes of all seeded rows, up to the current step."""
        columns = {name: np.stack(values, axis=1) for name, values in self._kept.items()}  # (N, T or T + 1, ...)
        made = []
        for row, seed in enumerate(self.seeds):
            surplus = columns["actions"].shape[1] - self.steps[row]  # steps of longer episodes
            infos = {name: values[row, : values.shape[1] - surplus] for name, values in columns.items()}
            if not self._keeps_success:
                del infos["success"]
            arrays = infos.pop("observations"), infos.pop("actions"), infos.pop("rewards")
            made.append(Episode(*arrays, self._terminated[row], self._truncated[row], seed, infos))
        return made

    def endings(self) -> list[Ending]:
        """Return the summaries of all seeded rows, up to the current step."""
        success = self._success if self._reports_success else np.full(len(self.ended), None)
        columns = self.steps, self.returns, self._goals, success
        rows = zip(self.seeds, *(each[: len(self.seeds)].tolist() for each in columns), strict=True)
        return [Ending._make(row) for row in rows]

    def _read_states(self) -> Array:
        """Return the state vectors (N, D) if the environment has them, otherwise the observations."""
        inner: Any = self.env.unwrapped
        if "goals_reached" not in self.infos:  # get_state of other environments may be anything
            return np.asarray(self.observation)
        if hasattr(inner, "get_state"):
            return np.asarray(inner.get_state())
        if hasattr(inner, "envs") and hasattr(inner.envs[0].unwrapped, "get_state"):
            return np.stack([env.unwrapped.get_state() for env in inner.envs])
        return np.asarray(self.observation)

    def _keep(self, **columns: Array) -> None:
        """Store the columns of a step, or none after a reset, with the current observations and infos."""
        for name in KEPT if columns else KEPT[:1]:
            if name in self.infos:
                columns[name] = np.array(self.infos[name], np.int16)
        columns["observations"] = self.observation if self._keeps_observations else self.states
        if self._keeps_states:
            columns["states"] = self.states
        for name, values in columns.items():
            if self._keeps_steps:
                self._kept[name].append(values)
            elif values.dtype.kind == "f" and not np.isfinite(values[~self.ended]).all():  # as Episode checks
                raise ValueError(
                    f"{name} have a NaN or infinite number at step {self.steps.max()}: fix the environment or policy"
                )


def check_policy(policy: Policy) -> None:
    """Raise ValueError for objects without `predict`, and for SB3 models that need other observations."""
    if not hasattr(policy, "predict"):
        raise ValueError(
            f"{reprlib.repr(policy)} has no predict: give an object with predict(observation, state, episode_start, "
            "deterministic) that returns actions (N, A) and state"
        )
    if hasattr(policy, "get_vec_normalize_env"):
        space: Any = getattr(policy, "observation_space", None)
        if policy.get_vec_normalize_env() or isinstance(space, spaces.Dict) or len(space.shape) == 2:
            raise ValueError(
                f"this {type(policy).__name__} model needs normalized, stacked or Dict observations: give "
                "pidm_nav.agents.sb3.to_policy(model) instead"
            )


def act(policy: Policy, observed: Array, memory: Any, begins: Array, space: Any) -> tuple[Array, Any]:
    """Return a policy's actions (N, A) in their space, or (N,) if discrete, and the policy's memory."""
    made = policy.predict(observed, memory, begins, deterministic=True)
    if not isinstance(made, tuple) or len(made) != 2:
        raise ValueError(f"{type(policy).__name__}.predict did not return a pair: return actions and state")
    choices = isinstance(space, spaces.Discrete)
    actions = np.asarray(made[0], np.int64 if choices else np.float32)
    if choices and actions.shape == (len(begins), 1):  # as episodes record them
        actions = actions[:, 0]
    if actions.shape != (wanted := (len(begins), *space.shape)):
        raise ValueError(
            f"{type(policy).__name__}.predict returned actions of shape {actions.shape} for observations of shape "
            f"{np.shape(observed)}: return {wanted}, one row per episode"
        )
    if choices and not all(map(space.contains, actions)):
        raise ValueError(f"{type(policy).__name__}.predict returned {actions.tolist()}: return actions of {space}")
    return actions if choices else np.clip(actions, space.low, space.high), made[1]


def rollout(
    policy: Policy,
    env: Rows,
    seeds: Sequence[int],
    *,
    keep_observations: bool = True,
    keep_steps: bool = True,
    watch: Callable[[Rollout], None] | None = None,
    progress: Progress | None = None,
) -> list[Episode]:
    """Roll out a policy: one episode per seed, in parallel over the rows of the environment.

    Args:
        policy: a policy with `predict`, which gets all rows until the last one has ended.
        env: vector environment that does not reset a row in the step that ends it.
        seeds: episode i begins with `reset(seed=seeds[i])`.
        keep_observations: keep the observations; otherwise the episodes hold state vectors.
        keep_steps: keep all steps; otherwise no episodes are returned, memory does not grow with their number or
            length, and `watch` can read the `endings` of a rollout that is done.
        watch: called with the rollout after its reset and after each step.
        progress: called with the number of episodes that have just ended.
    """
    watch = watch or (lambda running: None)
    progress = progress or (lambda ended: None)
    made: list[Episode] = []
    memory: Any = None
    for first in range(0, len(seeds), env.num_envs):
        running = Rollout(policy, env, seeds[first : first + env.num_envs], keep_observations, memory, keep_steps)
        watch(running)
        while not running.done:
            ended = running.step()
            watch(running)
            if ended:
                progress(ended)
        made += running.episodes() if keep_steps else []
        memory = running.memory
    return made


def episode_seeds(episodes: int, seed: int) -> range:
    """Return the seeds of all episodes, from the first upward."""
    check_number("the number of episodes", episodes, 1, MAX_EPISODES)
    check_number("the seed", seed, 0, MAX_SEED)
    return range(seed, seed + episodes)
