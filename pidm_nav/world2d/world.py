"""What one environment and thousands of them share: arguments, spaces, how episodes begin, and what can be changed."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.limits import MAX_SIDE, check_number, suggestion
from pidm_nav.tasks import find_task
from pidm_nav.world2d.layout import BOX, MARGIN, Layout
from pidm_nav.world2d.physics import SPEED, Physics
from pidm_nav.world2d.render import render_state
from pidm_nav.world2d.state import POSITION, REACHED, join_state, shift_goals, split_state, state_size

ObsType = Literal["state", "pixels"]
State = NDArray[np.float32]  # (D,) or (N, D), as in state.py
FloatArray = NDArray[np.float64]

NOISE_BLOCK = 200
"""Steps of noise that a generator draws at a time, because each call costs more than the numbers.

The noise comes from `Generator.standard_normal`, which gives the same numbers on every CPU. NumPy's log, cos and sin of
arrays do not: they are computed by different instructions on different CPUs."""


@dataclass(frozen=True)
class World:
    """A 2D task with its arguments, as they are passed to `gym.make`."""

    task: str | None = None  # the name of a 2D task, or None for a map of your own
    layout: str | Sequence[str] | None = None  # the path, the text or the lines of a map of your own
    room_size: Sequence[int] = (800, 800)  # width and height of the room in pixels, for a map of your own
    goal_order: Sequence[int] | None = None  # visiting order of the goals, for a map whose goals are all `G`
    noise_std: float = 0.2  # standard deviation of the noise on each action component
    clip_noise: bool = True  # clip action plus noise to [-1, 1], as the paper says; its recordings did not
    deadzone: float = 0.1  # action components smaller than this count as 0, as on a gamepad
    obs_type: ObsType = "state"  # observe state vectors or RGB images
    image_size: int = 224  # side of the image observations in pixels
    observe_goals: bool = True  # include the goals and their flags in state observations
    relative_goals: bool = False  # observe the goals relative to the agent
    random_start: bool = False  # start anywhere free instead of at the map's start
    random_goals: bool = False  # place goals anywhere free instead of where the map has them

    def __post_init__(self) -> None:
        if self.task is None and self.layout is None:
            raise ValueError("PIDMNav-Custom-v0 needs layout=: the path of a map or the map's text")
        if self.task is not None and self.layout is not None:
            raise ValueError(f"{self.task} has its own map: use PIDMNav-Custom-v0 with layout=")
        if self.obs_type not in get_args(ObsType):
            raise ValueError(f"obs_type is {self.obs_type!r}: choose 'state' or 'pixels'")
        check_number("image_size", self.image_size, 16, MAX_SIDE)
        self.physics  # noqa: B018 (a bad map or bad dynamics are refused now, not at the first step)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the arguments and the map, whose file may be gone later; all else is made from them again."""
        return {name: getattr(self, name) for name in [*(field.name for field in fields(self)), "map"]}

    @cached_property
    def map(self) -> Layout:
        """The map."""
        layout = find_task(self.task or "custom").layout(vars(self) if self.task is None else None)
        if layout is None:
            raise ValueError(f"{self.task} has no map: choose one of the 2D tasks")
        return layout

    @cached_property
    def physics(self) -> Physics:
        """The dynamics."""
        return Physics(self.map, self.noise_std, self.clip_noise, self.deadzone)

    @cached_property
    def action_space(self) -> spaces.Box:
        """The velocities along x and y."""
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    @cached_property
    def observation_space(self) -> spaces.Box:
        """Bounds of every observation, including the few pixels outside the room where a bounce can end."""
        if self.obs_type == "pixels":
            return spaces.Box(0, 255, (self.image_size, self.image_size, 3), np.uint8)
        width, height = self.map.room_size
        low, high = [-MARGIN, -MARGIN], [width + MARGIN, height + MARGIN]
        if self.observe_goals:
            goal_low, goal_high = ([-high[0], -high[1]], high) if self.relative_goals else ([0, 0], [width, height])
            low, high = low + [*goal_low, 0] * self.map.num_goals, high + [*goal_high, 1] * self.map.num_goals
        return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))

    @property
    def has_fixed_start(self) -> bool:
        """Whether all episodes begin in the same state."""
        return not self.random_start and not self.random_goals and len(self.map.starts) == 1

    def spawn(self, rng: np.random.Generator) -> State:
        """Draw the state at the beginning of an episode, with the goals away from the agent."""
        starts, goals = self.map.starts, self.map.goals
        if not self.random_start:
            start = starts[rng.integers(len(starts)) if len(starts) > 1 else 0]
        if self.random_goals:
            taken = np.empty((0, 2)) if self.random_start else start[None]
            for _ in goals:
                taken = np.vstack([taken, self._free_place(rng, taken, "goal")])
            goals = taken[-len(goals) :]
        if self.random_start:
            start = self._free_place(rng, goals, "start")
        return join_state(start, goals, 0)

    def observe(self, states: State) -> NDArray[Any]:
        """Return fresh observations of (D,) or (N, D) states."""
        if self.obs_type == "pixels":
            if states.ndim == 1:
                return render_state(self.map, states, (self.image_size, self.image_size))
            return np.stack([self.observe(state) for state in states])
        if not self.observe_goals:
            return states[..., POSITION].copy()
        return shift_goals(states, -1) if self.relative_goals else states.copy()

    def check_state(self, state: Any) -> State:
        """Return a given state vector as the environment has it; one that this task cannot be in is a ValueError."""
        size = state_size(self.map.num_goals)
        try:
            vector = np.asarray(state, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"the state is {reprlib.repr(state)}: give {size} numbers") from None
        if vector.shape != (size,) or not np.isfinite(vector).all():
            form = "[x, y, (goal_x, goal_y, reached) for each goal]"
            raise ValueError(
                f"the state {vector.tolist()} is not one of this task's: give {size} finite numbers {form}"
            )
        position, goals, reached = split_state(vector)
        if reached == self.map.num_goals or (vector[REACHED] != (np.arange(self.map.num_goals) < reached)).any():
            flags = vector[REACHED].tolist()
            raise ValueError(f"the reached flags are {flags}: goals are reached in order, and one is left to reach")
        limits = np.array(self.map.room_size) - 1
        if (position < -MARGIN).any() or (position > limits + MARGIN).any() or self.physics.collides(position):
            raise ValueError(f"the state's position {position.tolist()} is inside a wall or outside the room: move it")
        misplaced = ((goals < 0) | (goals > limits)).any(axis=1) | self.physics.collides(goals)
        if not self.random_goals:
            misplaced = (goals != self.map.goals).any(axis=1)
        if misplaced.any():
            goal = int(np.argmax(misplaced))
            place = f"goal {goal + 1} of the state is at {goals[goal].tolist()}"
            raise ValueError(f"{place}, where this task cannot have it: use a state of this task, or random_goals=True")
        return join_state(position, goals, reached)

    @cached_property
    def _places(self) -> NDArray[np.float64]:
        """(P, 2) all places where a random start or goal can be."""
        return np.argwhere(self.map.reachable()).astype(np.float64)

    def _free_place(self, rng: np.random.Generator, taken: NDArray[np.float64], what: str) -> NDArray[np.float64]:
        """Draw a reachable place whose box overlaps none of those taken."""
        for _ in range(1000):
            place = self._places[rng.integers(len(self._places))]
            if not (np.abs(taken - place) < BOX).all(axis=1).any():
                return np.asarray(place)
        raise ValueError(
            f"found no free place for a random {what} in 1000 tries: the map is too full, enlarge the room"
        )


class ChangeableWorld:
    """The methods that change a task: override them in a class that `NavEnv` and `NavVectorEnv` are mixed with.

    Positions and velocities are arrays (2,) in one environment and (N, 2) in a vector environment, so that one method
    does for both.
    """

    world: World

    def change_velocity(self, position: FloatArray, velocity: FloatArray, last_velocity: FloatArray) -> FloatArray:
        """Return the velocity to move with, where 1 is 20 px per step.

        Args:
            position: where the agent is.
            velocity: the action with its noise, after deadzone and clip.
            last_velocity: what the agent moved in the step before, divided by 20 px; 0 at the beginning.
        """
        return velocity

    def change_reward(self, start: FloatArray, end: FloatArray, goal: FloatArray, reward: Any) -> Any:
        """Return the reward of a step from `start` to `end`, given the goal that was current and the task's reward."""
        return reward

    def observe(self, states: State) -> NDArray[Any]:
        """Return new observations of state vectors (D,) or (N, D)."""
        return self.world.observe(states)

    def make_observation_space(self) -> spaces.Box:
        """Return the space of the observations of one environment."""
        return self.world.observation_space

    def _new_velocity(self, position: FloatArray, velocity: FloatArray, last_position: Any) -> FloatArray:
        """Return what `change_velocity` makes of a velocity; another shape, NaN or infinity raise ValueError."""
        changed = self.change_velocity(position, velocity, (position - last_position) / SPEED)
        if np.shape(changed) != velocity.shape or not np.isfinite(changed).all():
            raise ValueError(
                f"change_velocity returned {reprlib.repr(changed)}: return finite numbers of shape {velocity.shape}"
            )
        return np.asarray(changed, np.float64)

    def _is_changed(self, name: str) -> bool:
        """Return whether a method is overridden; those that are not need not be called."""
        return getattr(type(self), name) is not getattr(ChangeableWorld, name)


def check_options(options: dict[str, Any] | None, known: Iterable[str]) -> dict[str, Any]:
    """Return the options of a reset; one that is not known is a ValueError."""
    for name in (options or {}).keys() - known:
        remedy = suggestion(str(name), known, f"choose from {', '.join(known)}")
        raise ValueError(f"reset has no option {name!r}: {remedy}")
    return options or {}
