"""Rollouts of any policy in any vector environment, and what they show: goals reached, success, return, length.

A policy is anything with Stable-Baselines3's `predict`: an agent, an expert, a replayed human. Episodes are the rows
of a Gymnasium vector environment, thousands at once in 2D, one at a time in 3D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.episode import Episode
from pidm_nav.tasks import Task, find_task

Array = NDArray[Any]
Progress = Callable[[int], None]
"""Called with the number of episodes that ended, whenever some did."""
KEPT = {"goals_reached": "goals_reached", "tics": "tics", "is_success": "success", "success": "success"}
"""What episodes keep of the infos of a step, and under which name."""


class Policy(Protocol):
    """What can be rolled out: it gives actions (N, A) for observations (N, ...) and what it must remember.

    A policy with the attribute `sees_state = True` is given state vectors, whatever the environment's observations are.
    """

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Return actions for observations, and the `state` to pass to the next call."""
        ...


class Rollout:
    """Episodes in progress, one per row of a vector environment; rows that have ended wait for the others.

    Args:
        policy: what acts.
        env: rows beyond the number of seeds are not used; it must not reset rows in the step that ends them.
        seeds: the seed of each row's episode.
        keep_observations: keep what was observed; without it, episodes hold the state vectors instead.
        memory: what the policy remembers of the episodes before.
    """

    def __init__(
        self,
        policy: Policy,
        env: VectorEnv[Any, Any, Any],
        seeds: Sequence[int],
        keep_observations: bool = True,
        memory: Any = None,
    ) -> None:
        self.policy, self.env, self.seeds, self.memory = policy, env, list(seeds), memory
        rows = env.num_envs
        self.observation, self.infos = env.reset(seed=[*self.seeds, *[self.seeds[-1]] * (rows - len(self.seeds))])
        self.states = self._read_states()
        self.ended = np.arange(rows) >= len(self.seeds)
        self.steps, self.returns = np.zeros(rows, np.int64), np.zeros(rows)
        self._terminated, self._truncated = np.zeros(rows, bool), np.zeros(rows, bool)
        self._begins = np.ones(rows, bool)
        self._keeps_states = not keep_observations or not np.array_equal(self.observation, self.states)
        self._columns: dict[str, list[Array]] = {"actions": [], "rewards": []}
        if keep_observations:
            self._columns["observations"] = [self.observation]
        if self._keeps_states:
            self._columns["states"] = [self.states]
        self._infos: dict[str, list[Array]] = {}
        if "goals_reached" in self.infos:
            self._note({"goals_reached": self.infos["goals_reached"]})

    @property
    def done(self) -> bool:
        """Whether every episode has ended."""
        return bool(self.ended.all())

    @property
    def goals_reached(self) -> NDArray[np.int64]:
        """(N,) goals that each row has reached so far; zeros where the environment has none."""
        told = self._infos.get("goals_reached")
        return told[-1].astype(np.int64) if told else np.zeros(len(self.ended), np.int64)

    def step(self) -> int:
        """Let the policy act once in every row; return how many episodes ended in this step."""
        seen = self.states if getattr(self.policy, "sees_state", False) else self.observation
        action, self.memory = self.policy.predict(seen, self.memory, self._begins, deterministic=True)
        space = self.env.single_action_space
        # What is stepped is what is stored, to the bit: replaying the actions then gives the same episode.
        action = np.clip(np.asarray(action, np.float32), space.low, space.high)
        self.observation, reward, terminated, truncated, self.infos = self.env.step(action)
        self.states = self._read_states()
        running = ~self.ended
        self.steps += running
        self.returns += np.where(running, reward, 0.0)
        for name, value in (("actions", action), ("rewards", reward), ("observations", self.observation)):
            if name in self._columns:
                self._columns[name].append(value)
        if self._keeps_states:
            self._columns["states"].append(self.states)
        self._note(self.infos)
        ending = (terminated | truncated) & running
        self._terminated |= terminated & ending
        self._truncated |= truncated & ending & ~terminated
        self.ended = self.ended | ending
        self._begins = np.zeros(len(running), bool)
        return int(ending.sum())

    def picture(self, row: int) -> NDArray[np.uint8]:
        """Return the picture of a row in an environment made with `render_mode="rgb_array"`."""
        envs = getattr(self.env.unwrapped, "envs", None)
        frame = envs[row].render() if envs else (self.env.render() or {row: None})[row]
        if frame is None:
            raise ValueError(f"{self.env} draws no pictures: make it with render_mode='rgb_array'")
        return np.asarray(frame, np.uint8)

    def episodes(self) -> list[Episode]:
        """Return the episodes of all rows that were seeded, as far as they have come."""
        columns = {name: np.stack(values, axis=1) for name, values in self._columns.items()}  # (N, T, ...)
        infos = {name: np.stack(values, axis=1) for name, values in self._infos.items()}
        if "observations" not in columns:
            columns["observations"] = columns["states"]
        elif self._keeps_states:
            infos = {"states": columns["states"], **infos}
        made = []
        for row, seed in enumerate(self.seeds):
            steps, whole = int(self.steps[row]), len(self._columns["actions"])
            kept = {name: values[row, : steps + values.shape[1] - whole] for name, values in infos.items()}
            observations, actions = columns["observations"][row, : steps + 1], columns["actions"][row, :steps]
            ends = bool(self._terminated[row]), bool(self._truncated[row])
            made.append(Episode(observations, actions, columns["rewards"][row, :steps], *ends, seed, kept))
        return made

    def _read_states(self) -> Array:
        """(N, D) state vectors where the environment has them, otherwise the observations."""
        inner = self.env.unwrapped
        if hasattr(inner, "get_state"):
            return np.asarray(inner.get_state())
        envs = getattr(inner, "envs", None)
        if envs and hasattr(envs[0].unwrapped, "get_state"):
            return np.stack([env.unwrapped.get_state() for env in envs])
        return np.asarray(self.observation)

    def _note(self, infos: Mapping[str, Any]) -> None:
        """Keep the infos worth keeping."""
        for key, name in KEPT.items():
            if key in infos and not (name == "success" and "goals_reached" in infos):
                kind = np.bool_ if name == "success" else np.int16
                self._infos.setdefault(name, []).append(np.asarray(infos[key]).astype(kind))


def rollout(
    policy: Policy,
    env: VectorEnv[Any, Any, Any],
    seeds: Sequence[int],
    *,
    keep_observations: bool = True,
    watch: Callable[[Rollout], None] | None = None,
    progress: Progress | None = None,
) -> list[Episode]:
    """Roll a policy out: one episode per seed, as many at once as the environment has rows.

    Args:
        policy: anything with `predict`, which gets all rows at once until the last of them has ended.
        env: a vector environment.
        seeds: episode i begins with `reset(seed=seeds[i])`.
        keep_observations: keep what was observed; without it, episodes hold the state vectors instead.
        watch: called with the running rollout after its reset and after each step, for example to draw it.
        progress: called with the number of episodes that ended, whenever some did.
    """
    made: list[Episode] = []
    memory: Any = None
    while len(made) < len(seeds):
        running = Rollout(policy, env, seeds[len(made) :][: env.num_envs], keep_observations, memory)
        if watch is not None:
            watch(running)
        while not running.done:
            ended = running.step()
            if watch is not None:
                watch(running)
            if progress is not None and ended:
                progress(ended)
        made += running.episodes()
        memory = running.memory
    return made


@dataclass(frozen=True, eq=False)
class EvalResult:
    """What E episodes of a policy showed; every array is (E,)."""

    task: Task
    episodes: tuple[Episode, ...]
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    film: Mapping[int, Sequence[NDArray[np.uint8]]] = field(default_factory=dict)  # pictures by episode

    @cached_property
    def seeds(self) -> NDArray[np.int64]:
        """The seed of each episode."""
        return np.array([episode.seed for episode in self.episodes])

    @cached_property
    def goal_ratio(self) -> NDArray[np.float64]:
        """Goals reached in order, as a fraction; without goals, 1 for a success and 0 otherwise."""
        layout = self.task.layout(self.env_kwargs)
        num_goals = self.task.num_goals or (layout.num_goals if layout is not None else 0)
        if not num_goals:
            return self.success.astype(np.float64)
        return np.array([episode.goals_reached for episode in self.episodes]) / num_goals

    @cached_property
    def success(self) -> NDArray[np.bool_]:
        """Whether all goals were reached, or what the environment calls a success."""
        return np.array([episode.success for episode in self.episodes])

    @cached_property
    def length(self) -> NDArray[np.int64]:
        """Steps per episode."""
        return np.array([len(episode) for episode in self.episodes])

    @cached_property
    def returns(self) -> NDArray[np.float64]:
        """The sum of rewards per episode."""
        return np.array([episode.rewards.sum(dtype=np.float64) for episode in self.episodes])

    @property
    def measure(self) -> str:
        """What performance means here: "goal ratio", "success rate", or "return" where nobody tells of success."""
        if self.task.flags is not None:
            return "goal ratio"
        told = any("success" in episode.infos or episode.terminated for episode in self.episodes)
        return "success rate" if told else "return"

    @property
    def scores(self) -> NDArray[np.float64]:
        """Performance per episode, by `measure`."""
        return self.returns if self.measure == "return" else self.goal_ratio

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
        """The 95% bootstrap interval of the mean score."""
        draws = np.random.default_rng(0).integers(len(self.scores), size=(2000, len(self.scores)))
        low, high = np.percentile(self.scores[draws].mean(axis=1), [2.5, 97.5])
        return float(low), float(high)

    def __repr__(self) -> str:
        low, high = self.interval
        score = f"{self.measure} {self.scores.mean():.3f} [{low:.3f}, {high:.3f}]"
        return f"EvalResult({self.task.name}, {len(self.episodes)} episodes, {score}, success {self.success_rate:.2f})"

    def table(self) -> list[dict[str, Any]]:
        """Return one row per episode, JSON-plain."""
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
        """Return the means, JSON-plain."""
        return {
            "task": self.task.name,
            "episodes": len(self.episodes),
            "goal_ratio": self.mean_goal_ratio,
            "goal_ratio_interval": list(self.interval),
            "success": self.success_rate,
            "length": float(self.length.mean()),
            "return": float(self.returns.mean()),
        }

    def frames(self, episode: int = 0, size: int = 400) -> Sequence[NDArray[np.uint8]]:
        """Return the pictures of an episode: those that were filmed, or drawn from its states."""
        if not 0 <= episode < len(self.episodes):
            raise ValueError(f"there is no episode {episode}: there are 0 to {len(self.episodes) - 1}")
        if episode in self.film:
            return self.film[episode]
        if not self.task.shows_goals:
            raise ValueError(f"episode {episode} was not filmed: call evaluate(..., film={episode})")
        return self.task.draw(self.episodes[episode].observations, self.env_kwargs, size)

    def video(self, path: str | Path, episode: int = 0, size: int = 400, fps: float | None = None) -> Path:
        """Write an episode to an mp4 or GIF file, by default at the speed at which a person plays."""
        from pidm_nav.video import write_video

        return write_video(self.frames(episode, size), path, fps or self.task.fps)


def evaluate(
    policy: Policy,
    task: str | Task,
    episodes: int = 50,
    seed: int = 0,
    *,
    max_steps: int | None = None,
    film: int | None = None,
    progress: Progress | None = None,
    **env_kwargs: Any,
) -> EvalResult:
    """Roll a policy out; episode i begins with `reset(seed=seed + i)`, for every policy alike.

    Args:
        policy: anything with `predict`.
        task: the name of a task, "custom" with `layout=` among the environment's arguments, or any Gymnasium id.
        episodes: the number of episodes.
        seed: the seed of the first episode.
        max_steps: a step limit other than the task's.
        film: the episode to take pictures of, for tasks that cannot be drawn from their states.
        progress: called with the number of episodes that ended, whenever some did.
        env_kwargs: the environment's arguments.
    """
    task = find_task(task)
    seeds = episode_seeds(episodes, seed)
    pictures: list[NDArray[np.uint8]] = []

    def watch(running: Rollout) -> None:
        if film is not None and seeds[film] in running.seeds:
            row = running.seeds.index(seeds[film])
            if len(pictures) <= running.steps[row]:
                pictures.append(running.picture(row))

    if film is not None and not 0 <= film < episodes:
        raise ValueError(f"film is {film}: there are episodes 0 to {episodes - 1}")
    filmed = film is not None and not task.shows_goals
    env = task.make_vec(task.rows_for(episodes), max_steps, "rgb_array" if filmed else None, **env_kwargs)
    with closing(env):
        keep: dict[str, Any] = {"keep_observations": False, "watch": watch if filmed else None, "progress": progress}
        made = rollout(policy, env, seeds, **keep)
    return EvalResult(task, tuple(made), env_kwargs, {film: pictures} if film is not None and filmed else {})


def episode_seeds(episodes: int, seed: int) -> range:
    """Return the seeds of so many episodes, counted up from the first."""
    if episodes < 1:
        raise ValueError(f"the number of episodes is {episodes}: it must be at least 1")
    if seed < 0:
        raise ValueError(f"the seed is {seed}: it must be 0 or more")
    return range(seed, seed + episodes)
