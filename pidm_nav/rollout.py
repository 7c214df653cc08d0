"""Rollouts of any policy in any vector environment, and their results: goals reached, success, return, length.

A policy is anything with Stable-Baselines3's `predict`: an agent, an expert, a replayed human. Episodes are the rows
of a Gymnasium vector environment, thousands at once in 2D, one at a time in 3D.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.episode import Episode
from pidm_nav.limits import MAX_EPISODES, MAX_SEED, check_number
from pidm_nav.tasks import Task, find_task
from pidm_nav.video import Clip, write_video
from pidm_nav.world2d.layout import Layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
Rows = VectorEnv[Any, Any, Any]
Progress = Callable[[int], None]  # called with the number of episodes that have ended, whenever some have
KEPT = ("goals_reached", "tics")  # the infos of a step that episodes keep, besides success


class Policy(Protocol):
    """Anything that acts; with an attribute `sees_state = True` it is given state vectors, whatever is observed."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Return actions (N, A) for observations (N, ...), and the `state` to pass to the next call."""


class Rollout:
    """Episodes in progress, one per row of a vector environment; rows that have ended wait for the others.

    The arguments are those of `rollout`, with at most one seed per row of `env`, and `memory`, which is what the policy
    remembers from earlier episodes.
    """

    def __init__(
        self, policy: Policy, env: Rows, seeds: Sequence[int], keep_observations: bool = True, memory: Any = None
    ) -> None:
        self.policy, self.env, self.seeds, self.memory = policy, env, list(seeds), memory
        rows = env.num_envs
        row_seeds: Any = [*self.seeds, *[self.seeds[-1]] * (rows - len(self.seeds))]
        self.observation, self.infos = env.reset(seed=row_seeds)
        self.states = self._read_states()
        self.ended = np.arange(rows) >= len(self.seeds)
        self.steps, self.returns = np.zeros(rows, np.int64), np.zeros(rows)
        self._success, self._tells_success = np.zeros(rows, bool), False  # by whatever name the environment tells it
        self._keeps_observations = keep_observations
        self._keeps_states = keep_observations and not np.array_equal(self.observation, self.states)
        self._kept: defaultdict[str, list[Array]] = defaultdict(list)  # one (N, ...) array per step
        self._keep()

    @property
    def done(self) -> bool:
        """Whether every episode has ended."""
        return bool(self.ended.all())

    @property
    def goals_reached(self) -> NDArray[np.int64]:
        """(N,) the number of goals that each row has reached so far; zeros if the environment has none."""
        return np.asarray(self.infos.get("goals_reached", np.zeros(len(self.ended))), np.int64)

    def step(self) -> int:
        """Let the policy act once in every row; return how many episodes ended in this step."""
        seen = self.states if getattr(self.policy, "sees_state", False) else self.observation
        begins = np.full(len(self.ended), not self._kept["actions"])
        action, self.memory = self.policy.predict(seen, self.memory, begins, deterministic=True)
        space: Any = self.env.single_action_space
        # What is stepped is what is stored, to the bit: replaying the actions then gives the same episode.
        action = np.clip(np.asarray(action, np.float32), space.low, space.high)
        self.observation, reward, terminated, truncated, self.infos = self.env.step(action)
        self.states = self._read_states()
        truncated = truncated & ~terminated
        running = ~self.ended
        told = self.infos.get("success", self.infos.get("is_success"))
        self._tells_success |= told is not None and "goals_reached" not in self.infos
        self._success = self._success | (running & np.asarray(told, bool) if told is not None else False)
        ends: dict[str, Array] = {"terminated": terminated, "truncated": truncated, "success": self._success}
        self._keep(actions=action, rewards=reward, **ends)
        self.steps += running
        self.returns += np.where(running, reward, 0.0)
        self.ended = self.ended | terminated | truncated
        return int((self.ended & running).sum())

    def picture(self, row: int) -> NDArray[np.uint8]:
        """Return the picture of a row in an environment that was made with `render_mode="rgb_array"`."""
        envs = getattr(self.env.unwrapped, "envs", None)
        frame = envs[row].render() if envs else (self.env.render() or {row: None})[row]
        if frame is None:
            raise ValueError(f"{self.env} draws no pictures: make it with render_mode='rgb_array'")
        return np.asarray(frame, np.uint8)

    def episodes(self) -> list[Episode]:
        """Return the episodes of all rows that were seeded, up to the present step."""
        columns = {name: np.stack(values, axis=1) for name, values in self._kept.items()}  # (N, T or T + 1, ...)
        made = []
        for row, seed in enumerate(self.seeds):
            surplus = columns["actions"].shape[1] - self.steps[row]  # steps of longer episodes
            infos = {name: values[row, : values.shape[1] - surplus] for name, values in columns.items()}
            if not self._tells_success:
                del infos["success"]
            arrays = infos.pop("observations"), infos.pop("actions"), infos.pop("rewards")
            ends = infos.pop("terminated")[-1], infos.pop("truncated")[-1]
            made.append(Episode(*arrays, *ends, seed, infos))
        return made

    def _read_states(self) -> Array:
        """Return the state vectors (N, D) if the environment has them, otherwise the observations."""
        inner: Any = self.env.unwrapped
        if hasattr(inner, "get_state"):
            return np.asarray(inner.get_state())
        if hasattr(inner, "envs") and hasattr(inner.envs[0].unwrapped, "get_state"):
            return np.stack([env.unwrapped.get_state() for env in inner.envs])
        return np.asarray(self.observation)

    def _keep(self, **columns: Array) -> None:
        """Keep these columns of a step, or none after a reset, with the present observations and infos."""
        for name in KEPT if columns else KEPT[:1]:
            if name in self.infos:
                columns[name] = np.array(self.infos[name], np.int16)
        columns["observations"] = self.observation if self._keeps_observations else self.states
        if self._keeps_states:
            columns["states"] = self.states
        for name, values in columns.items():
            self._kept[name].append(values)


def rollout(
    policy: Policy,
    env: Rows,
    seeds: Sequence[int],
    *,
    keep_observations: bool = True,
    watch: Callable[[Rollout], None] | None = None,
    progress: Progress | None = None,
) -> list[Episode]:
    """Roll a policy out: one episode per seed, as many at once as the environment has rows.

    Args:
        policy: anything with `predict`, which gets all rows at once until the last of them has ended.
        env: a vector environment that does not reset rows in the step that ends them.
        seeds: episode i begins with `reset(seed=seeds[i])`.
        keep_observations: keep the observations; otherwise the episodes hold the state vectors instead.
        watch: called with the running rollout after its reset and after each step, for example to draw it.
        progress: called with the number of episodes that have ended, whenever some have.
    """
    watch = watch or (lambda running: None)
    progress = progress or (lambda ended: None)
    made: list[Episode] = []
    memory: Any = None
    while len(made) < len(seeds):
        running = Rollout(policy, env, seeds[len(made) :][: env.num_envs], keep_observations, memory)
        watch(running)
        while not running.done:
            ended = running.step()
            watch(running)
            if ended:
                progress(ended)
        made += running.episodes()
        memory = running.memory
    return made


@dataclass(frozen=True, eq=False)
class EvalResult:
    """The results of E episodes of a policy; every array is (E,)."""

    task: Task
    episodes: tuple[Episode, ...]
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    film: Mapping[int, Sequence[NDArray[np.uint8]]] = field(default_factory=dict)  # pictures of filmed episodes
    seeds: NDArray[np.int64] = field(init=False)
    goal_ratio: NDArray[np.float64] = field(init=False)  # fraction of goals reached; without goals, 1 for a success
    success: NDArray[np.bool_] = field(init=False)  # all goals reached, or what the environment reports as success
    length: NDArray[np.int64] = field(init=False)  # number of steps
    returns: NDArray[np.float64] = field(init=False)  # sum of rewards

    def __post_init__(self) -> None:
        num_goals = self.num_goals
        derived: dict[str, list[Any]] = {
            "seeds": [episode.seed for episode in self.episodes],
            "goal_ratio": [e.goals_reached / num_goals if num_goals else float(e.success) for e in self.episodes],
            "success": [episode.success for episode in self.episodes],
            "length": [len(episode) for episode in self.episodes],
            "returns": [episode.rewards.sum(dtype=np.float64) for episode in self.episodes],
        }
        for name, values in derived.items():
            object.__setattr__(self, name, np.array(values))

    @property
    def num_goals(self) -> int:
        """The number of goals of the task or of the map; 0 if the environment has none."""
        layout = self.task.layout(self.env_kwargs)
        return self.task.num_goals or (layout.num_goals if layout is not None else 0)

    @property
    def measure(self) -> str:
        """How performance is measured: by "goal ratio", "success rate", or "return" if success is never reported."""
        if self.task.flags is not None:
            return "goal ratio"
        reported = any("success" in episode.infos or episode.terminated for episode in self.episodes)
        return "success rate" if reported else "return"

    @property
    def scores(self) -> NDArray[np.float64]:
        """The performance in each episode, by `measure`."""
        return self.returns if self.measure == "return" else self.goal_ratio

    @property
    def mean_goal_ratio(self) -> float:
        """The mean fraction of goals reached, which is the paper's measure of performance."""
        return float(self.goal_ratio.mean())

    @property
    def success_rate(self) -> float:
        """The fraction of successful episodes."""
        return float(self.success.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% bootstrap interval of the mean score."""
        return mean_interval(self.scores)

    def __repr__(self) -> str:
        low, high = self.interval
        score = f"{self.measure} {self.scores.mean():.3f} [{low:.3f}, {high:.3f}]"
        return f"EvalResult({self.task.name}, {len(self.episodes)} episodes, {score}, success {self.success_rate:.2f})"

    def _repr_html_(self) -> str:
        from pidm_nav.plots import html

        return html(self, self.plot)

    def plot(self) -> Figure:
        """Draw where the episodes went on their map or, where there is none to draw on, how their returns grew."""
        from pidm_nav.plots import plot_episodes

        return plot_episodes(self.episodes, self.drawn_layout, self.task.title)

    @property
    def drawn_layout(self) -> Layout | None:
        """The map that the episodes' states are places on, if there is one."""
        return self.task.layout(self.env_kwargs) if self.task.shows_goals else None

    def table(self) -> list[dict[str, Any]]:
        """Return one row per episode, of plain JSON types."""
        names = ("seed", "goal_ratio", "success", "length", "return")
        columns = (self.seeds, self.goal_ratio, self.success, self.length, self.returns)
        return [dict(zip(names, row, strict=True)) for row in zip(*(each.tolist() for each in columns), strict=True)]

    def summary(self) -> dict[str, Any]:
        """Return the means over all episodes, of plain JSON types."""
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
        """Return the pictures of an episode: those that were filmed, or new ones drawn from its states."""
        if not 0 <= episode < len(self.episodes):
            raise ValueError(f"there is no episode {episode}: choose one from 0 to {len(self.episodes) - 1}")
        if episode in self.film:
            return self.film[episode]
        if not self.task.shows_goals:
            raise ValueError(f"episode {episode} was not filmed: call evaluate(..., film={episode})")
        return self.task.draw(self.episodes[episode].observations, self.env_kwargs, size)

    @overload
    def video(self, path: str | Path, episode: int = 0, size: int = 400, fps: float | None = None) -> Path: ...
    @overload
    def video(self, path: None = None, episode: int = 0, size: int = 400, fps: float | None = None) -> Clip: ...
    def video(
        self, path: str | Path | None = None, episode: int = 0, size: int = 400, fps: float | None = None
    ) -> Path | Clip:
        """Write an episode to an mp4 or GIF file or, without a path, return a clip that notebooks show.

        It plays at the speed at which a person plays, unless `fps` is given.
        """
        frames, fps = self.frames(episode, size), fps or self.task.fps
        return Clip(frames, fps) if path is None else write_video(frames, path, fps)


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the mean of values (E,)."""
    rng = np.random.default_rng(0)
    means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(2000)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


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
    """Evaluate a policy; episode i begins with `reset(seed=seed + i)`, whatever the policy.

    Args:
        policy: anything with `predict`.
        task: the name of a task, "custom" with `layout=` among the environment's arguments, or any Gymnasium id.
        episodes: the number of episodes.
        seed: the seed of the first episode.
        max_steps: the step limit; defaults to the task's.
        film: the episode to take pictures of, for tasks that cannot be drawn from their states.
        progress: called with the number of episodes that have ended, whenever some have.
        env_kwargs: the environment's arguments.
    """
    task = find_task(task)
    seeds = episode_seeds(episodes, seed)
    if film is not None:
        check_number("the episode to film", film, 0, episodes - 1)
    films: dict[int, list[NDArray[np.uint8]]] = {} if film is None or task.shows_goals else {film: []}

    def watch(running: Rollout) -> None:
        for episode, pictures in films.items():
            row = episode + seed - running.seeds[0]
            if 0 <= row < len(running.seeds) and len(pictures) <= running.steps[row]:
                pictures.append(running.picture(row))

    render_mode = "rgb_array" if films else None
    with closing(task.make_vec(task.rows_for(episodes), max_steps, render_mode, **env_kwargs)) as env:
        made = rollout(policy, env, seeds, keep_observations=False, watch=watch, progress=progress)
    return EvalResult(task, tuple(made), env_kwargs, films)


def episode_seeds(episodes: int, seed: int) -> range:
    """Return the seeds of all episodes, counting up from the first."""
    check_number("the number of episodes", episodes, 1, MAX_EPISODES)
    check_number("the seed", seed, 0, MAX_SEED)
    return range(seed, seed + episodes)
