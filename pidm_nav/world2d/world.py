"""What one environment and thousands of them share: arguments, spaces, how an episode begins, what is observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.tasks import find_task
from pidm_nav.world2d.layout import BOX, MARGIN, Layout
from pidm_nav.world2d.physics import Physics
from pidm_nav.world2d.state import POSITION, REACHED, shift_goals, split_state, state_size

ObsType = Literal["state", "pixels"]

NOISE_BLOCK = 256
"""Steps of noise that each row draws at a time, so that no step calls every row's generator."""


def draw_pairs(rng: np.random.Generator, pairs: NDArray[np.complex64]) -> None:
    """Fill (NOISE_BLOCK,) pairs with uniform numbers in [0, 1): a real and an imaginary part for each step.

    `World.noise` turns them into normal numbers for all rows at once, which is far faster than drawing those here.
    """
    rng.random(dtype=np.float32, out=pairs.view(np.float32))


@dataclass(frozen=True)
class World:
    """A task with its arguments, as they are given to `gym.make`."""

    task: str | None = None  # one of our 2D tasks; None with `layout` for a map of your own
    layout: str | None = None  # the path or the text of a map of your own
    room_size: Sequence[int] = (800, 800)  # width and height of the room in pixels, for a map of your own
    goal_order: Sequence[int] | None = None  # visiting order of the goals, for a map whose goals are all `G`
    noise_std: float = 0.2  # standard deviation of the noise on each action component
    clip_noise: bool = True  # clip action plus noise to [-1, 1], as the paper says; its recordings did not
    deadzone: float = 0.1  # action components smaller than this count as 0, as on a gamepad
    obs_type: ObsType = "state"  # state vectors or RGB images
    image_size: int = 224  # side of the image observations in pixels
    observe_goals: bool = True  # whether the goals and their flags are part of the state observation
    relative_goals: bool = False  # observe goals relative to the agent
    random_start: bool = False  # start anywhere free instead of at the map's start
    random_goals: bool = False  # place goals anywhere free instead of where the map has them

    def __post_init__(self) -> None:
        if self.task is None and self.layout is None:
            raise ValueError("PIDMNav-Custom-v0 needs layout=: the path of a map or the map's text")
        if self.task is not None and self.layout is not None:
            raise ValueError(f"{self.task} has its own map: use PIDMNav-Custom-v0 with layout=")
        if self.obs_type not in get_args(ObsType):
            raise ValueError(f"obs_type is {self.obs_type!r}: choose 'state' or 'pixels'")
        if not (isinstance(self.image_size, int) and 16 <= self.image_size <= 4096):
            raise ValueError(f"image_size is {self.image_size!r}: it must be a whole number from 16 to 4096")
        self.physics  # noqa: B018 (a bad map or bad dynamics are refused now, not at the first step)

    @cached_property
    def map(self) -> Layout:
        """The map."""
        if self.task is None:
            return Layout.load(self.layout or "", self.room_size, self.goal_order)
        layout = find_task(self.task).layout()
        if layout is None:
            raise ValueError(f"{self.task} has no map: choose one of the 2D tasks")
        return layout

    @cached_property
    def physics(self) -> Physics:
        """The dynamics."""
        return Physics(self.map, self.noise_std, self.clip_noise, self.deadzone)

    @property
    def task_name(self) -> str:
        """The task's name, or `custom`."""
        return "custom" if self.task is None else find_task(self.task).name

    @property
    def num_goals(self) -> int:
        """How many goals there are."""
        return self.map.num_goals

    @cached_property
    def action_space(self) -> spaces.Box:
        """The velocities along x and y."""
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    @cached_property
    def observation_space(self) -> spaces.Box:
        """Bounds that hold every observation, including the few pixels outside the room where a bounce can end."""
        if self.obs_type == "pixels":
            return spaces.Box(0, 255, (self.image_size, self.image_size, 3), np.uint8)
        room = np.array(self.map.room_size, dtype=np.float32)
        low, high = np.full(2, -MARGIN, np.float32), room + MARGIN
        if self.observe_goals:
            reach = room + MARGIN
            goal_low, goal_high = (-reach, reach) if self.relative_goals else (np.zeros(2, np.float32), room)
            low = np.concatenate([low, np.tile(np.append(goal_low, np.float32(0)), self.num_goals)])
            high = np.concatenate([high, np.tile(np.append(goal_high, np.float32(1)), self.num_goals)])
        return spaces.Box(low, high, dtype=np.float32)

    @property
    def fixed_start(self) -> tuple[NDArray[np.float64], NDArray[np.float64], int] | None:
        """Position, goals and goals reached at the beginning of every episode, or None if episodes differ."""
        if self.random_start or self.random_goals or len(self.map.starts) > 1:
            return None
        return self.map.starts[0], self.map.goals, 0

    def spawn(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """Draw the beginning of an episode: position (2,), goals (G, 2) away from it, and 0 goals reached."""
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
        return start, goals, 0

    def noise(self, pairs: NDArray[np.complex64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Turn (N,) pairs of uniform numbers into N(0, noise_std) along x and y by the Box-Muller transform."""
        radius = np.sqrt(-2.0 * np.log(1.0 - pairs.real)) * self.physics.noise_std
        angle = (2.0 * np.pi) * pairs.imag
        return (radius * np.cos(angle)).astype(np.float64), (radius * np.sin(angle)).astype(np.float64)

    def observe(self, states: NDArray[np.float32]) -> NDArray[Any]:
        """Return fresh observations of (D,) or (N, D) states."""
        if self.obs_type == "pixels":
            from pidm_nav.world2d.render import render_state

            if states.ndim == 1:
                return render_state(self.map, states, (self.image_size, self.image_size))
            return np.stack([self.observe(state) for state in states])
        if not self.observe_goals:
            return states[..., POSITION].copy()
        return shift_goals(states, -1) if self.relative_goals else states.copy()

    def check_state(self, state: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """Return position, goals and goals reached of a state vector, or refuse one that this task cannot be in."""
        vector = np.asarray(state, dtype=np.float64)
        size = state_size(self.num_goals)
        if vector.shape != (size,):
            raise ValueError(
                f"the state has shape {vector.shape}, this task's has ({size},): "
                "[x, y, (goal_x, goal_y, reached) for each goal]"
            )
        if not np.isfinite(vector).all():
            raise ValueError(
                f"the state has a number that is not finite at index {int(np.argmin(np.isfinite(vector)))}"
            )
        position, goals, reached = split_state(vector)
        flags = vector[REACHED]
        if not np.array_equal(flags, np.arange(self.num_goals) < reached):
            raise ValueError(
                f"the reached flags are {flags.tolist()}: goals are reached in order, so 1s come before 0s"
            )
        if reached == self.num_goals:
            raise ValueError("all goals of this state are reached, so its episode is over: leave one to reach")
        limits = np.array(self.map.room_size) - 1
        if (position < -MARGIN).any() or (position > limits + MARGIN).any() or self.physics.collides(position):
            raise ValueError(f"the state's position {position.tolist()} is inside a wall or outside the room: move it")
        if not self.random_goals:
            other = np.flatnonzero((goals != self.map.goals).any(axis=1))
            if other.size:
                raise ValueError(
                    f"goal {other[0] + 1} of the state is at {goals[other[0]].tolist()}, this task's at "
                    f"{self.map.goals[other[0]].tolist()}: use this task's states, or random_goals=True"
                )
        elif (goals < 0).any() or (goals > limits).any() or self.physics.collides(goals).any():
            raise ValueError("a goal of the state is inside a wall or outside the room: move it")
        return position, goals, int(reached)

    @cached_property
    def _places(self) -> NDArray[np.float64]:
        """(P, 2) all places where a random start or goal can be."""
        return np.argwhere(self.map.reachable()).astype(np.float64)

    def _free_place(self, rng: np.random.Generator, taken: NDArray[np.float64], what: str) -> NDArray[np.float64]:
        """Draw a reachable place whose box overlaps none of those taken."""
        places = self._places
        for _ in range(1000):
            place: NDArray[np.float64] = places[rng.integers(len(places))]
            if not (np.abs(taken - place) < BOX).all(axis=1).any():
                return place
        raise ValueError(
            f"found no free place for a random {what} in 1000 tries: the map is too full, enlarge the room"
        )
