"""Registry of tasks: how to make, limit, play and score the environment of a name or of any Gymnasium id.

Environments are named by strings and imported on first use, so that the registry imports little.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from pidm_nav.limits import MAX_SIDE, MAX_STEPS, check_number, suggestion
from pidm_nav.world2d.layout import Layout

DEFAULT_MAX_STEPS = 1000  # for environments without a step limit
Metric = Literal["goal ratio", "success rate", "return"]
METRICS: dict[str, Metric] = dict.fromkeys(
    ("Meta-World/*", "Fetch*", "HandReach*", "HandManipulate*", "AdroitHand*", "PointMaze_*", "AntMaze_*"),
    "success rate",
)
"""Metrics of other environments by pattern of their ids; the default is the return.

These are Meta-World's and Gymnasium-Robotics' environments, whose infos report success. Add yours with
`METRICS["Mine-v0"] = "success rate"`, or give `metric=` to `find_task`, `evaluate` or `Sweep`.
"""
OBSERVED = ("obs_type", "image_size", "observe_goals", "relative_goals")
"""Arguments of observations, in which the environments of compared policies may differ."""
SET_BY_US = ("render_mode", "num_envs", "max_steps", "max_episode_steps", "autoreset_mode")
"""Arguments that `Task.make` and `Task.make_vec` set, which an environment of a dataset or an agent cannot have."""
MAX_CHANNELS = 4  # of an image; more are a stack of images


@dataclass(frozen=True)
class Task:
    """An environment with its properties; the defaults are for environments outside this package."""

    name: str  # name in files and on the command line; the Gymnasium id of other environments
    title: str  # title in tables and figures
    env_id: str
    max_steps: int = DEFAULT_MAX_STEPS
    num_goals: int = 0  # number of goals; 0 without goals, or if it depends on the map
    map: str | None = None  # name of the map's file
    room_size: tuple[int, int] = (800, 800)  # width and height of the map in pixels
    world: str | None = None  # dataclass of the environment's arguments, as module:class
    entry_point: str | None = None  # environment, as module:class
    vector_entry_point: str | None = None  # vector environment, as module:class
    rows: int = 16  # largest number of parallel episodes
    has_2d_state: bool = False  # whether the state vector is that of world2d/state.py
    flags: tuple[int, int] | None = None  # first column and stride of the flags of reached goals in the state vector
    metric: Metric = "return"
    experts: tuple[str, ...] = ()  # names of the task's experts; the first is the default
    fps: float = 30.0  # steps per second when a person plays
    sticks: tuple[str, ...] = ("x", "-y", "turn", "-look")  # stick axis of each action component when a person plays

    @property
    def defaults(self) -> dict[str, Any]:
        """Arguments of the environment with their defaults; empty for environments outside this package."""
        return {} if self.world is None else {each.name: each.default for each in fields(resolve_name(self.world))}

    def layout(self, env_kwargs: Mapping[str, Any] | None = None) -> Layout | None:
        """Return the map, or None if there is none."""
        if env_kwargs and "layout" in env_kwargs:
            room_size = env_kwargs.get("room_size", self.room_size)
            return Layout.load(env_kwargs["layout"], room_size, env_kwargs.get("goal_order"))
        return None if self.map is None else _read_map(self.map, self.room_size)

    def goal_flags(self, observation_size: int) -> tuple[int, ...]:
        """Return the columns of the flags of reached goals in a state."""
        if self.flags is None:
            return ()
        first, stride = self.flags
        num_goals = self.num_goals or (observation_size - first) // stride + 1
        columns = tuple(range(first, first + stride * num_goals, stride))
        return columns if columns and columns[-1] < observation_size else ()

    def make(
        self, /, render_mode: str | None = None, max_steps: int | None = None, **env_kwargs: Any
    ) -> gym.Env[Any, Any]:
        """Make one environment, with observations flattened unless they are vectors or images."""
        # some environments have no render_mode
        options = {"disable_env_checker": True} | ({"render_mode": render_mode} if render_mode else {})
        env: gym.Env[Any, Any] = self._made(gym.make, max_steps, options, env_kwargs)
        try:
            return self.plain(env)
        except ValueError:
            env.close()
            raise

    def plain(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Check an environment of this task, and return it with vectors or images as observations."""
        _check_env(env, self.name)
        space = env.observation_space
        plain = isinstance(space, spaces.Box) and (len(space.shape) == 1 or _is_image(space))
        return env if plain else gym.wrappers.FlattenObservation(env)

    def make_vec(
        self, rows: int, /, max_steps: int | None = None, render_mode: str | None = None, **env_kwargs: Any
    ) -> VectorEnv[Any, Any, Any]:
        """Make a vector environment for rollouts, which ignore rows after the end of their episodes."""
        if self.vector_entry_point is None or render_mode == "human":
            return SyncVectorEnv([partial(self.make, render_mode, max_steps, **env_kwargs)] * rows)
        options = {"num_envs": rows, "render_mode": render_mode, "autoreset_mode": AutoresetMode.DISABLED}
        env: VectorEnv[Any, Any, Any] = self._made(gym.make_vec, max_steps, options, env_kwargs)
        return env

    def rows_for(self, episodes: int) -> int:
        """Return the number of rows for these episodes: as few waves as possible, and few unused rows."""
        waves = -(-episodes // self.rows)
        return -(-episodes // waves)

    def draw(self, states: NDArray[Any], env_kwargs: Mapping[str, Any], size: int) -> list[NDArray[np.uint8]]:
        """Draw an episode from its state vectors (T+1, D), or enlarge its image observations (T+1, H, W, 3)."""
        check_number("the size of the picture", size, 16, MAX_SIDE)
        if states.ndim == 4:
            times = max(round(size / states.shape[2]), 1)
            return [frame.repeat(times, axis=0).repeat(times, axis=1) for frame in states]
        if not self.has_2d_state:
            raise ValueError(f"states of {self.name} cannot be drawn: record image observations")
        return list(resolve_name("pidm_nav.world2d.render:draw_states")(self.layout(env_kwargs), states, size))

    def _made(
        self, make: Callable[..., Any], max_steps: int | None, options: dict[str, Any], env_kwargs: dict[str, Any]
    ) -> Any:
        """Make an environment with Gymnasium; invalid arguments raise ValueError."""
        for name in env_kwargs:
            if self.world and name not in self.defaults:
                raise ValueError(f"{self.name} has no argument '{name}': choose among {', '.join(self.defaults)}")
        if max_steps is not None:
            check_number("max_steps", max_steps, 1, MAX_STEPS)
        try:
            return make(self.env_id, max_episode_steps=max_steps or self.max_steps, **options, **env_kwargs)
        except (TypeError, AssertionError, gym.error.Error) as error:
            raise ValueError(f"{self.name} cannot be made with {reprlib.repr(env_kwargs)}: {error}") from None


def unflatten(space: spaces.Space[Any], rows: NDArray[Any]) -> Any:
    """Return flattened observations (N, D) of `Task.make` in the structure of their space."""
    if isinstance(space, spaces.Dict):
        ends = np.cumsum([spaces.flatdim(part) for part in space.values()])
        parts = np.split(rows, ends[:-1], axis=1)
        return {name: unflatten(space[name], part) for name, part in zip(space, parts, strict=True)}
    if not isinstance(space, spaces.Box):
        raise ValueError(f"observations cannot be unflattened to {space}: give a Box or Dict space")
    return rows.reshape(len(rows), *space.shape)


def _is_image(space: spaces.Box) -> bool:
    return space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[-1] <= MAX_CHANNELS


def _check_env(env: gym.Env[Any, Any], name: str) -> None:
    """Raise ValueError for unsupported actions and images, and for wrappers that change from step to step."""
    if not isinstance(env.action_space, spaces.Box | spaces.Discrete):
        kind = type(env.action_space).__name__
        raise ValueError(f"{name} has {kind} actions: wrap it to have Box or Discrete actions")
    space = env.observation_space
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1 and not _is_image(space):
        raise ValueError(
            f"{name} observes bytes of shape {space.shape}, not images (height, width, channels): do not stack images, "
            "as agents have a history of their own, and keep the channel of gray images"
        )
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if getattr(layer, "update_running_mean", False):
            raise ValueError(
                f"{name} has a {type(layer).__name__} with statistics that change in every step: leave it out, as "
                "agents scale observations, or fix its statistics with update_running_mean=False"
            )
        layer = layer.env


@lru_cache(maxsize=16)
def _read_map(name: str, room_size: tuple[int, int]) -> Layout:
    text = (files("pidm_nav.world2d") / "maps" / f"{name}.txt").read_text(encoding="utf-8")
    return Layout.parse(text, room_size)


_2D: dict[str, Any] = {
    "world": "pidm_nav.world2d.world:World",
    "entry_point": "pidm_nav.world2d.env:NavEnv",
    "vector_entry_point": "pidm_nav.world2d.vector:NavVectorEnv",
    "rows": 1024,
    "has_2d_state": True,
    "metric": "goal ratio",
    "flags": (4, 3),
    "experts": ("astar", "human-like"),
    "sticks": ("x", "y"),
}
_3D: dict[str, Any] = {
    "world": "pidm_nav.world3d.env:World3D",
    "entry_point": "pidm_nav.world3d.env:NavEnv3D",
    "rows": 1,  # an engine has one row
    "metric": "goal ratio",
    "flags": (6, 1),
    "experts": ("scripted",),
    "fps": 35 / 3,  # tics per second of the game, and tics per step
    "sticks": ("-y", "x", "turn", "-look"),
}

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("four-room", "Four room", "PIDMNav-FourRoom-v0", 200, 4, "four-room", **_2D),
        Task("zigzag", "Zigzag", "PIDMNav-Zigzag-v0", 150, 6, "zigzag", **_2D),
        Task("maze", "Maze", "PIDMNav-Maze-v0", 300, 10, "maze", **_2D),
        Task("multiroom", "Multiroom", "PIDMNav-Multiroom-v0", 500, 6, "multiroom", (1000, 1000), **_2D),
        Task("custom", "Custom map", "PIDMNav-Custom-v0", **_2D),
        Task("four-room-3d", "Four room 3D", "PIDMNav3D-FourRoom-v0", 600, 4, "four-room", **_3D),
        Task("zigzag-3d", "Zigzag 3D", "PIDMNav3D-Zigzag-v0", 500, 6, "zigzag", **_3D),
        Task("maze-3d", "Maze 3D", "PIDMNav3D-Maze-v0", 900, 10, "maze", **_3D),
        Task("multiroom-3d", "Multiroom 3D", "PIDMNav3D-Multiroom-v0", 1200, 6, "multiroom", (1000, 1000), **_3D),
        Task("tour-3d", "Tour", "PIDMNav3D-Tour-v0", 700, 11, "tour", (1088, 704), **_3D),
    )
}
"""All tasks of this package."""
PAPER_TASKS: dict[str, Task] = {name: TASKS[name] for name in ("four-room", "zigzag", "maze", "multiroom")}
"""The four tasks of the paper."""


def find_task(name: str | Task, metric: Metric | None = None) -> Task:
    """Return the task of a name (`four-room`, `FourRoom`, `tour_3d`) or of any registered Gymnasium id.

    The metric is `metric` or, by default, the task's; `METRICS` has those of other environments.
    """
    task = name if isinstance(name, Task) else _named_task(name)
    if metric is None:
        return task
    has_goals = task.num_goals or task.flags is not None
    choices = [each for each in get_args(Metric) if each != "goal ratio" or has_goals]
    if metric not in choices:
        raise ValueError(f"{task.name} has no metric {metric!r}: choose {' or '.join(choices)}")
    return replace(task, metric=metric)


def check_env_kwargs(names: Iterable[str]) -> None:
    """Raise ValueError for arguments of environments, of files and datasets, that this package sets itself."""
    for name in names:
        if name in SET_BY_US:
            raise ValueError(
                f"the environment's arguments have '{name}', which is set elsewhere: register an id of your own with it"
            )


def known_task(name: str) -> Task | None:
    """Return the task of a name in files if it is one of this package, or a registered id that changes one."""
    return TASKS.get(name) or _registered_change(gym.registry.get(name))


def task_of(env: gym.Env[Any, Any]) -> tuple[Task, dict[str, Any]]:
    """Return the task of an environment and its arguments, as far as they are known."""
    inner, spec = env.unwrapped, env.spec
    task, world = TASKS.get(getattr(inner, "title", "")), getattr(inner, "world", None)
    if task is not None and task.entry_point and task.world and type(world) is resolve_name(task.world):
        given = {name: getattr(world, name) for name in task.defaults if name != "task"}
        given = {name: value for name, value in given.items() if value != task.defaults[name]}
        if type(inner) is resolve_name(task.entry_point):
            return task, given
        if spec is None or spec.id not in gym.registry:
            return _changed_task(task, type(inner), type(inner).__name__), given
    if spec is not None:
        usual = gym.registry[spec.id].kwargs if spec.id in gym.registry else {}
        known = {name for name, value in usual.items() if repr(value) == repr(spec.kwargs.get(name))} | {"render_mode"}
        return find_task(spec.id), {name: value for name, value in spec.kwargs.items() if name not in known}
    name = type(inner).__name__
    return Task(name, name, name), {}


def _changed_task(base: Task, kind: type[Any], name: str, **properties: Any) -> Task:
    """Return the task of a class derived from a task's environment, with the same map, goals and metric."""
    own = resolve_name(str(base.entry_point))
    methods = ("observe", "make_observation_space")
    if any(getattr(kind, method, None) is not getattr(own, method, None) for method in methods):
        properties |= {"flags": None, "has_2d_state": False}
    plain = {"title": name, "env_id": name, "world": None, "vector_entry_point": None, "rows": Task.rows}
    return replace(base, name=name, **{**plain, **properties})


def _registered_change(spec: EnvSpec | None) -> Task | None:
    """Return the task of a registered environment that is derived from ours and made for one of our tasks, or None."""
    base = None if spec is None else TASKS.get(str(spec.kwargs.get("task")))
    if spec is None or base is None or base.entry_point is None or spec.additional_wrappers:
        return None
    kind: Any = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    if not isinstance(kind, type) or not issubclass(kind, resolve_name(base.entry_point)):
        return None
    known: dict[str, Any] = {} if spec.max_episode_steps is None else {"max_steps": spec.max_episode_steps}
    if spec.vector_entry_point is not None:
        known |= {"vector_entry_point": str(spec.vector_entry_point), "rows": base.rows}
    return _changed_task(base, kind, spec.id, **known)


def _named_task(name: Any) -> Task:
    if not isinstance(name, str):
        swapped = "; the policy comes before the task" if hasattr(name, "predict") else ""
        raise ValueError(f"{reprlib.repr(name)} is not the name of a task: give a name or a Gymnasium id{swapped}")
    key = _plain(name.removeprefix("pidm_nav:"))
    for task in TASKS.values():
        if key in (_plain(task.name), _plain(task.env_id)):
            return task
    try:
        spec = gym.spec(name)
    except gym.error.Error:
        hint = suggestion(name, [*TASKS, *gym.registry], f"choose one of {', '.join(TASKS)}, or any Gymnasium id")
        raise ValueError(f"there is no task '{name}': {hint}") from None
    if changed := _registered_change(spec):
        return changed
    metric: Metric = next((each for ids, each in METRICS.items() if fnmatchcase(spec.id, ids)), "return")
    return Task(spec.id, spec.id, spec.id, spec.max_episode_steps or DEFAULT_MAX_STEPS, metric=metric)


def _plain(name: str) -> str:
    return re.sub("[-_ ]", "", name.lower())


def task_name(name: str) -> str:
    """Return the name of a task in files; other ids are unchanged, and ids with a module raise ValueError."""
    if ":" in name.removeprefix("pidm_nav:"):
        raise ValueError(f"the task '{name}' names a module to import: give the id alone")
    try:
        return find_task(name).name
    except ValueError:
        return name
