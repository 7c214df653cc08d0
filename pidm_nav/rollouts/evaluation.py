"""evaluate(), and EvalResult with the goals reached, success, return and length of each episode."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from pidm_nav.limits import check_number
from pidm_nav.rollouts.episode import Episode, Plottable
from pidm_nav.rollouts.rollout import Ending, Policy, Progress, Rollout, episode_seeds, rollout
from pidm_nav.seeds import TEST
from pidm_nav.statistics import estimate_mean, interval_text
from pidm_nav.tasks import Metric, Task, find_task, task_of
from pidm_nav.video import Clip, write_video
from pidm_nav.world2d.layout import Layout


@dataclass(frozen=True, eq=False)
class EvalResult(Plottable):
    """Results of E episodes of a policy; every array is (E,)."""

    task: Task
    """The task."""
    episodes: tuple[Episode, ...]
    """The episodes; empty if they were not kept."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment."""
    film: Mapping[int, Sequence[NDArray[np.uint8]]] = field(default_factory=dict)
    """Pictures of filmed episodes, by index."""
    endings: tuple[Ending, ...] = ()
    """Summaries of the episodes, also if they were not kept."""
    max_steps: int | None = None
    """Step limit."""
    seeds: NDArray[np.int64] = field(init=False)
    """Seeds of the resets."""
    goal_ratio: NDArray[np.float64] | None = field(init=False)
    """Fraction of goals reached; None without goals."""
    success: NDArray[np.bool_] | None = field(init=False)
    """Whether each episode is a success; None if the task does not report success."""
    length: NDArray[np.int64] = field(init=False)
    """Number of steps."""
    returns: NDArray[np.float64] = field(init=False)
    """Sum of rewards."""

    def __post_init__(self) -> None:
        num_goals = self.num_goals
        endings = self.endings or tuple(map(Ending.of, self.episodes))
        object.__setattr__(self, "endings", endings)
        derived: dict[str, list[Any]] = {
            "seeds": [each.seed for each in endings],
            "length": [each.length for each in endings],
            "returns": [each.returns for each in endings],
            "goal_ratio": [each.goals_reached / num_goals for each in endings if num_goals],
            "success": [bool(each.success) for each in endings if num_goals or self.metric == "success rate"],
        }
        for name, values in derived.items():
            object.__setattr__(self, name, np.array(values) if values else None)

    @property
    def num_goals(self) -> int:
        """Number of goals of the task or map; 0 if there are none."""
        layout = self.task.layout(self.env_kwargs)
        return self.task.num_goals or (layout.num_goals if layout is not None else 0)

    @property
    def metric(self) -> Metric:
        """Metric of the task."""
        return self.task.metric

    @property
    def scores(self) -> NDArray[np.float64]:
        """Score of each episode, by `metric`."""
        known = {"goal ratio": self.goal_ratio, "success rate": self.success, "return": self.returns}
        return np.asarray(known[self.metric], np.float64)

    @property
    def mean_goal_ratio(self) -> float:
        """Mean fraction of goals reached, the paper's metric."""
        if self.goal_ratio is None:
            raise ValueError(f"{self.task.name} has no goals: use scores, by the {self.metric}")
        return float(self.goal_ratio.mean())

    @property
    def success_rate(self) -> float:
        """Fraction of successful episodes."""
        if self.success is None:
            raise ValueError(f"{self.task.name} does not report success: if its infos do, give metric='success rate'")
        return float(self.success.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the mean score over episodes."""
        bounds = (-math.inf, math.inf) if self.metric == "return" else (0.0, 1.0)
        _, low, high, *_ = estimate_mean(self.scores, bounds=bounds)
        return low, high

    def __repr__(self) -> str:
        score = f"{self.metric} {self.scores.mean():.3f}{interval_text(*self.interval)}"
        success = f", success {self.success_rate:.2f}" if self.metric == "goal ratio" else ""
        return f"EvalResult({self.task.name}, {len(self.endings)} episodes, {score}{success})"

    @property
    def drawn_layout(self) -> Layout | None:
        """Map of the episodes, if there is one."""
        self._check_kept()
        return self.task.layout(self.env_kwargs) if self.task.has_2d_state else None

    def table(self) -> list[dict[str, Any]]:
        """Return one row of plain JSON values per episode."""
        columns = {"seed": self.seeds, "goal_ratio": self.goal_ratio, "success": self.success}
        columns |= {"length": self.length, "return": self.returns}
        known = {name: each.tolist() for name, each in columns.items() if each is not None}
        return [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]

    def summary(self) -> dict[str, Any]:
        """Return the means over all episodes, as plain JSON values."""
        metric = self.metric.replace(" ", "_")
        found: dict[str, Any] = {"task": self.task.name, "episodes": len(self.endings)}
        found |= {metric: float(self.scores.mean()), f"{metric}_interval": list(self.interval)}
        if self.metric == "goal ratio":
            found["success"] = self.success_rate
        return found | {"length": float(self.length.mean()), "return": float(self.returns.mean())}

    def frames(self, episode: int = 0, size: int = 400) -> Sequence[NDArray[np.uint8]]:
        """Return the pictures of an episode, filmed or drawn from its states."""
        if not 0 <= episode < len(self.endings):
            raise ValueError(f"there is no episode {episode}: choose 0 to {len(self.endings) - 1}")
        if episode in self.film:
            return self.film[episode]
        if not self.task.has_2d_state:
            raise ValueError(f"episode {episode} was not filmed: call evaluate(..., film={episode})")
        self._check_kept()
        return self.task.draw(self.episodes[episode].observations, self.env_kwargs, size)

    def _check_kept(self) -> None:
        if not self.episodes:
            raise ValueError("the episodes were not kept: call evaluate without keep_episodes=False")

    @overload
    def video(self, path: str | Path, episode: int = 0, size: int = 400) -> Path: ...
    @overload
    def video(self, path: None = None, episode: int = 0, size: int = 400) -> Clip: ...
    def video(self, path: str | Path | None = None, episode: int = 0, size: int = 400) -> Path | Clip:
        """Write an episode to an mp4 or GIF file or, without a path, return a clip for notebooks."""
        frames, fps = self.frames(episode, size), self.task.fps
        return Clip(frames, fps) if path is None else write_video(frames, path, fps)


def evaluate(
    policy: Policy,
    task: str | Task | gym.Env[Any, Any],
    episodes: int = 50,
    seed: int = TEST.start,
    *,
    metric: Metric | None = None,
    max_steps: int | None = None,
    film: int | None = None,
    progress: Progress | None = None,
    keep_episodes: bool = True,
    **env_kwargs: Any,
) -> EvalResult:
    """Evaluate a policy; episode i begins with `reset(seed=seed + i)`.

    Args:
        policy: a policy with `predict`.
        task: name of a task, "custom" with `layout=` among the environment's arguments, or any Gymnasium id; or an
            environment, in which episodes run one after the other and which stays open.
        episodes: number of episodes.
        seed: seed of the first episode. Default: the first test seed (`pidm_nav.seeds`).
        metric: "goal ratio" (our tasks), "success rate" or "return". Default: the task's.
        max_steps: step limit. Default: the task's.
        film: index of the episode to film, in tasks that cannot be drawn from states.
        progress: called with the number of episodes that have just ended.
        keep_episodes: keep the episodes, for plots and videos; otherwise only their endings are kept, and memory does
            not grow with their length.
        env_kwargs: arguments of the environment.
    """
    given = task if isinstance(task, gym.Env) else None
    if isinstance(task, gym.Env):
        for name in env_kwargs:
            raise ValueError(f"{name} cannot be changed in an existing environment: give the environment's id instead")
        task, env_kwargs = task_of(task)
    task = find_task(task, metric)
    seeds = episode_seeds(episodes, seed)
    if film is not None:
        check_number("the episode to film", film, 0, episodes - 1)
    films: dict[int, list[NDArray[np.uint8]]] = {} if film is None or task.has_2d_state else {film: []}
    endings: list[Ending] = []

    def watch(running: Rollout) -> None:
        endings.extend(running.endings() if running.done else ())
        for episode, pictures in films.items():
            row = episode + seed - running.seeds[0]
            if 0 <= row < len(running.seeds) and len(pictures) <= running.steps[row]:
                pictures.append(running.picture(row))

    own_limit = None if given is None or given.spec is None else given.spec.max_episode_steps
    envs: AbstractContextManager[VectorEnv[Any, Any, Any]]
    if given is not None:
        if films and given.render_mode != "rgb_array":
            raise ValueError("the environment cannot be filmed: make it with render_mode='rgb_array'")
        envs = _one_row(given, task, max_steps)
    else:
        render_mode = "rgb_array" if films else None
        envs = closing(task.make_vec(task.rows_for(episodes), max_steps, render_mode, **env_kwargs))
    with envs as env:
        made = rollout(
            policy, env, seeds, keep_observations=False, keep_steps=keep_episodes, watch=watch, progress=progress
        )
    return EvalResult(task, tuple(made), env_kwargs, films, tuple(endings), max_steps or own_limit or task.max_steps)


@contextmanager
def _one_row(env: gym.Env[Any, Any], task: Task, max_steps: int | None) -> Iterator[VectorEnv[Any, Any, Any]]:
    """Yield an environment as a vector environment with one row and a step limit, and leave it open."""
    layer: Any = env
    while isinstance(layer, gym.Wrapper) and not isinstance(layer, gym.wrappers.TimeLimit):
        layer = layer.env
    if max_steps is not None or layer is env.unwrapped:
        env = gym.wrappers.TimeLimit(env, max_steps or task.max_steps)
    rows = SyncVectorEnv([lambda: task.plain(env)])
    try:
        yield rows
    finally:
        rows.closed = True  # otherwise garbage collection would close the environment
