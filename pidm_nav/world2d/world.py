"""What one environment and thousands of them share: arguments, spaces, how an episode begins, what is observed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.tasks import get_task, split_state
from pidm_nav.world2d.layout import BOX, MARGIN, Layout
from pidm_nav.world2d.physics import Physics

ObsType = Literal["state", "pixels"]

NOISE_BLOCK = 256
"""Steps of noise drawn at a time: from one generator a row, without a call per row and step."""


def draw_pairs(rng: np.random.Generator, pairs: NDArray[np.complex64]) -> None:
    """Fill (NOISE_BLOCK,) pairs with uniform numbers in [0, 1), a real and an imaginary one for each step.

    Normal numbers come of them for all rows at once, in `World.noise`: drawing those here would take far longer.
    """
    rng.random(dtype=np.float32, out=pairs.view(np.float32))


class World:
    """A task with its arguments, as given to `gym.make`.

    Args:
        task: one of the four tasks; None with `layout` for a map of one's own.
        layout: a map's path or text.
        room_size: width and height of the room in pixels, for a map of one's own.
        goal_order: visiting order of `G` goals, for a map of one's own.
        noise_std: standard deviation of the noise on each action component.
        clip_noise: clip action plus noise to [-1, 1], as the paper says; its recordings were made without.
        deadzone: action components smaller than this count as 0, as on a gamepad.
        obs_type: state vectors or RGB images.
        image_size: side of the image observations.
        observe_goals: whether goals and which of them are reached are part of the state observation.
        relative_goals: goals relative to the agent.
        random_start: start anywhere free, instead of at the map's start.
        random_goals: goals anywhere free, instead of at the map's.
    """

    def __init__(
        self,
        task: str | None = None,
        layout: str | None = None,
        room_size: Sequence[int] = (800, 800),
        goal_order: Sequence[int] | None = None,
        noise_std: float = 0.2,
        clip_noise: bool = True,
        deadzone: float = 0.1,
        obs_type: ObsType = "state",
        image_size: int = 224,
        observe_goals: bool = True,
        relative_goals: bool = False,
        random_start: bool = False,
        random_goals: bool = False,
    ) -> None:
        if task is not None:
            self.task_name = get_task(task).name
            self.layout = get_task(task).layout
        elif layout is not None:
            self.task_name = "custom"
            self.layout = Layout.load(layout, room_size, goal_order)
        else:
            raise ValueError("PIDMNav-Custom-v0 needs layout=: the path of a map or the map's text")
        if obs_type not in get_args(ObsType):
            raise ValueError(f"obs_type is {obs_type!r}: choose 'state' or 'pixels'")
        if not (isinstance(image_size, int) and 16 <= image_size <= 4096):
            raise ValueError(f"image_size is {image_size!r}: it must be a whole number from 16 to 4096")
        self.physics = Physics(self.layout, noise_std, clip_noise, deadzone)
        self.obs_type = obs_type
        self.image_size = image_size
        self.observe_goals = observe_goals
        self.relative_goals = relative_goals
        self.random_start = random_start
        self.random_goals = random_goals
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = self._observation_space()

    @property
    def num_goals(self) -> int:
        """How many goals there are."""
        return self.layout.num_goals

    @property
    def fixed_start(self) -> tuple[NDArray[np.float64], NDArray[np.float64], int] | None:
        """Position, goals and goals reached with which every episode begins, if they all begin alike."""
        if self.random_start or self.random_goals or len(self.layout.starts) > 1:
            return None
        return self.layout.starts[0], self.layout.goals, 0

    def spawn(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where an episode begins: the agent's position (2,) and the goals (G, 2), never on the first of them."""
        starts, goals = self.layout.starts, self.layout.goals
        if not self.random_start:
            start = starts[rng.integers(len(starts)) if len(starts) > 1 else 0]
        if self.random_goals:
            taken = np.empty((0, 2)) if self.random_start else start[None]
            for _ in goals:
                taken = np.vstack([taken, self._free_place(rng, taken, "goal")])
            goals = taken[-len(goals) :]
        if self.random_start:
            start = self._free_place(rng, goals, "start")
        return start, goals

    def noise(self, pairs: NDArray[np.complex64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """N(0, noise_std) along x and along y from (N,) pairs of uniform numbers, by the Box-Muller transform."""
        radius = np.sqrt(-2.0 * np.log(1.0 - pairs.real)) * self.physics.noise_std
        angle = (2.0 * np.pi) * pairs.imag
        return (radius * np.cos(angle)).astype(np.float64), (radius * np.sin(angle)).astype(np.float64)

    def observe(self, states: NDArray[np.float32]) -> NDArray[Any]:
        """Fresh observations of (D,) or (N, D) states."""
        if self.obs_type == "pixels":
            from pidm_nav.world2d.render import render_state

            if states.ndim == 1:
                return render_state(self.layout, states, (self.image_size, self.image_size))
            return np.stack([self.observe(state) for state in states])
        if not self.observe_goals:
            return states[..., :2].copy()
        observations = states.copy()
        if self.relative_goals:
            observations[..., 2::3] -= states[..., 0:1]
            observations[..., 3::3] -= states[..., 1:2]
        return observations

    def check_state(self, state: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """A state vector given from outside as position, goals and goals reached; refused if it cannot be one."""
        vector = np.asarray(state, dtype=np.float64)
        if vector.shape != (2 + 3 * self.num_goals,):
            raise ValueError(
                f"the state has shape {vector.shape}, this task's has ({2 + 3 * self.num_goals},): "
                "[x, y, (goal_x, goal_y, reached) for each goal]"
            )
        if not np.isfinite(vector).all():
            raise ValueError(
                f"the state has a number that is not finite at index {int(np.argmin(np.isfinite(vector)))}"
            )
        position, goals, reached = split_state(vector)
        flags = vector[4::3]
        if not np.array_equal(flags, np.arange(self.num_goals) < reached):
            raise ValueError(
                f"the reached flags are {flags.tolist()}: goals are reached in order, so 1s come before 0s"
            )
        if reached == self.num_goals:
            raise ValueError("all goals of this state are reached, so its episode is over: leave one to reach")
        limits = np.array(self.layout.room_size) - 1
        if (position < -MARGIN).any() or (position > limits + MARGIN).any() or self.physics.collides(position):
            raise ValueError(f"the state's position {position.tolist()} is inside a wall or outside the room: move it")
        if not self.random_goals:
            other = np.flatnonzero((goals != self.layout.goals).any(axis=1))
            if other.size:
                raise ValueError(
                    f"goal {other[0] + 1} of the state is at {goals[other[0]].tolist()}, this task's at "
                    f"{self.layout.goals[other[0]].tolist()}: use this task's states, or random_goals=True"
                )
        elif (goals < 0).any() or (goals > limits).any() or self.physics.collides(goals).any():
            raise ValueError("a goal of the state is inside a wall or outside the room: move it")
        return position, goals, int(reached)

    @cached_property
    def _places(self) -> NDArray[np.float64]:
        """(P, 2) all places where a random start or goal can be."""
        return np.argwhere(self.layout.reachable()).astype(np.float64)

    def _free_place(self, rng: np.random.Generator, taken: NDArray[np.float64], what: str) -> NDArray[np.float64]:
        """A reachable place whose box keeps off those taken."""
        places = self._places
        for _ in range(1000):
            place: NDArray[np.float64] = places[rng.integers(len(places))]
            if not (np.abs(taken - place) < BOX).all(axis=1).any():
                return place
        raise ValueError(
            f"found no free place for a random {what} in 1000 tries: the map is too full, enlarge the room"
        )

    def _observation_space(self) -> spaces.Box:
        """Bounds that hold every observation, the few pixels outside the room included."""
        if self.obs_type == "pixels":
            return spaces.Box(0, 255, (self.image_size, self.image_size, 3), np.uint8)
        room = np.array(self.layout.room_size, dtype=np.float32)
        low, high = np.full(2, -MARGIN, np.float32), room + MARGIN
        if self.observe_goals:
            reach = room + MARGIN
            goal_low, goal_high = (-reach, reach) if self.relative_goals else (np.zeros(2, np.float32), room)
            low = np.concatenate([low, np.tile(np.append(goal_low, np.float32(0)), self.num_goals)])
            high = np.concatenate([high, np.tile(np.append(goal_high, np.float32(1)), self.num_goals)])
        return spaces.Box(low, high, dtype=np.float32)
