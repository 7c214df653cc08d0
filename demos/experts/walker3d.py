"""A scripted walker with a gamepad player's habits: it knows the map and its place, and looks where it walks.

The way to a milestone is that of the 2D human-like player: the farthest point in sight on a route that keeps off walls.
The right thumb turns the camera there, the left one pushes forward, less so the further the view is off, and a little
sideways. Both thumbs lag and tremble, the view wanders, speed and route differ from episode to episode and from
milestone to milestone, and now and then the walker stops to look around.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.routes import TASTES, routes_for
from pidm_nav.tasks import Task, find_task
from pidm_nav.world3d.env import FRAME_SKIP, POSE, THRUST
from pidm_nav.world3d.levels import LOOKING_UP, NEAR, Milestone, load_level

FloatArray = NDArray[np.float64]

SLIDE = 100.0
"""Units that the walker slides on from full speed."""
TURN, LOOK = (FRAME_SKIP * each for each in THRUST[2:])
"""Degrees a step at full deflection."""


@dataclass(frozen=True)
class Habits3D:
    """What makes the walker human."""

    speed: float = 0.93  # mean deflection of the stick at full speed
    speed_spread: float = 0.05  # between milestones
    quickness: float = 0.35  # part of the view's error that is asked for in each step
    quickness_spread: float = 0.08  # between episodes
    thumb: float = 0.55  # part of the way to where it wants to be that a thumb moves each step
    sideways: float = 0.5  # how much the left thumb helps where the view is off
    wander: float = 5.0  # degrees by which the view drifts off the way
    wander_keep: float = 0.93  # part of that drift which stays from step to step
    beside: float = 20.0  # units beside a milestone that are aimed for
    tremor: float = 0.02  # of each axis
    view: float = -2.0  # degrees above the horizon that the walker likes to look
    view_spread: float = 2.0
    hesitation: float = 0.006  # how often a step begins a pause
    hesitation_steps: float = 6.0  # mean length of one
    glance: float = 20.0  # degrees by which the view goes elsewhere in a pause


class _Walker:
    """One walker's chance and memory."""

    def __init__(self, habits: Habits3D, rng: np.random.Generator) -> None:
        self.habits, self.rng = habits, rng
        self.quickness = max(rng.normal(habits.quickness, habits.quickness_spread), 0.15)
        self.view = rng.normal(habits.view, habits.view_spread)
        self.thumbs = np.zeros(4)
        self.drift = 0.0
        self.pause = 0
        self.aside = 0.0  # where the view goes in a pause
        self.number = -1
        self.speed, self.taste, self.beside = habits.speed, 0, np.zeros(2)

    def choose(self, number: int) -> None:
        """Make up one's mind about a new milestone."""
        habits, rng = self.habits, self.rng
        self.number = number
        self.speed = float(np.clip(rng.normal(habits.speed, habits.speed_spread), 0.6, 1.0))
        self.taste = int(rng.integers(len(TASTES)))
        self.beside = np.clip(rng.normal(0.0, habits.beside, 2), -40, 40)

    def hesitate(self) -> None:
        """Begin a pause now and then, and let the view wander."""
        habits, rng = self.habits, self.rng
        keep, chance = habits.wander_keep, rng.random()
        self.drift = keep * self.drift + habits.wander * np.sqrt(1 - keep**2) * rng.standard_normal()
        self.pause = max(self.pause - 1, 0)
        if not self.pause and chance < habits.hesitation:
            self.pause = 1 + int(rng.poisson(habits.hesitation_steps))
            self.aside = rng.normal(0.0, habits.glance)

    def push(self, wanted: FloatArray) -> FloatArray:
        """Where the thumbs are after they have moved towards where they should be."""
        self.thumbs += self.habits.thumb * (wanted - self.thumbs)
        return np.clip(self.thumbs + self.habits.tremor * self.rng.standard_normal(4), -1.0, 1.0)


class Walker3D:
    """The scripted walker as a policy over state vectors; what it remembers goes through `state`.

    Args:
        task: a level's name or id.
        seed: of its chance; row i of a batch has a chance of its own, and so has each of its episodes.
        habits: other habits than the usual ones.
    """

    sees_state = True  # predict() is given states, whatever is observed

    def __init__(self, task: str | Task, seed: int = 0, habits: Habits3D | None = None) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}: it must be 0 or a positive number")
        self.task = find_task(task)
        self.level = load_level(self.task.name)
        self.seed = int(seed)
        self.habits = habits or Habits3D()
        self._routes = routes_for(self.level.layout)

    @property
    def settings(self) -> dict[str, Any]:
        """What a dataset made with this walker says about it."""
        return {"expert": "scripted", **asdict(self.habits)}

    def predict(
        self,
        observation: NDArray[Any],
        state: list[tuple[int, _Walker]] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], list[tuple[int, _Walker]]]:
        """The action (4,) for a state vector (D,), or (N, 4) for (N, D), and the memory to hand in next time."""
        rows = np.atleast_2d(np.asarray(observation, dtype=np.float64))
        expected = POSE + self.level.num_goals
        if rows.shape[1:] != (expected,):
            raise ValueError(
                f"observations of shape {np.shape(observation)} are not states of {self.task.name}, which have "
                f"{expected} numbers: give the environment's get_state()"
            )
        begins = np.broadcast_to(np.asarray(False if episode_start is None else episode_start), len(rows))
        memory = state if state is not None else [self._walker(row, 0) for row in range(len(rows))]
        if len(memory) != len(rows):
            raise ValueError(
                f"the state remembers {len(memory)} walkers and there are {len(rows)} observations: "
                "begin with state=None"
            )
        if state is not None:
            memory = [
                self._walker(row, each[0]) if new else each
                for row, (each, new) in enumerate(zip(memory, begins, strict=True))
            ]
        actions = np.stack([self._act(row, walker) for row, (_, walker) in zip(rows, memory, strict=True)])
        return actions.astype(np.float32).reshape(*np.shape(observation)[:-1], 4), memory

    def _walker(self, row: int, episode: int) -> tuple[int, _Walker]:
        """Return a new walker, and the number of the row's next episode.

        One row plays episode i as another walker with seed + i plays its first.
        """
        return episode + 1, _Walker(self.habits, np.random.default_rng((self.seed + episode, row, 0)))

    def _act(self, row: FloatArray, walker: _Walker) -> FloatArray:
        number = min(int(row[POSE:].sum()), self.level.num_goals - 1)
        if number != walker.number:
            walker.choose(number)
        walker.hesitate()
        milestone = self.level.milestones[number]
        away = float(np.hypot(*(np.array(milestone.place) - row[:2])))
        if milestone.kind == "stand still" and away < NEAR / 2:
            walker.thumbs[:] = 0.0  # off the sticks
            return np.zeros(4)
        angle = float(np.degrees(np.arctan2(row[4], row[3])))
        heading, view = self._intend(row, walker, milestone, away)
        error = _turn(heading - angle)  # positive to the left
        seen = error + (walker.aside if walker.pause else 0.0)
        forward, right = self._walk(walker, milestone, away, np.radians(error))
        turn = -walker.quickness * seen / TURN
        look = walker.quickness * (view - row[5]) / LOOK
        return walker.push(np.clip([forward, right, turn, look], -1.0, 1.0))

    def _intend(self, row: FloatArray, walker: _Walker, milestone: Milestone, away: float) -> tuple[float, float]:
        """The angle and the pitch at which to look."""
        if milestone.kind == "turn":
            return milestone.angle, walker.view
        aim = self.level.to_layout(milestone.place[0] + walker.beside[0], milestone.place[1] + walker.beside[1])
        here, goal = self.level.to_layout(row[0], row[1]), self.level.to_layout(*milestone.place)
        point = self._routes.look(here[None], goal[None])[0, walker.taste]
        if (point == goal).all():
            point = aim
        way = point - here
        drift = walker.drift * min(float(np.hypot(*way)) / 60, 1.0)
        up = milestone.kind == "look up" and away < 0.7 * NEAR
        if up:
            return float(np.degrees(np.arctan2(row[4], row[3]))), LOOKING_UP + 6.0
        return float(np.degrees(np.arctan2(-way[1], way[0]))) + drift, walker.view

    def _walk(self, walker: _Walker, milestone: Milestone, away: float, error: float) -> tuple[float, float]:
        """How far the left thumb is pushed, forward and right."""
        if milestone.kind == "turn" or walker.pause:
            return 0.0, 0.0
        speed = walker.speed
        if milestone.kind in ("look up", "stand still"):
            speed = 0.0 if away < NEAR / 2 else min(speed, 0.15 + away / SLIDE / 2)
        return speed * max(np.cos(error), 0.0) ** 2, -self.habits.sideways * speed * float(np.sin(error))


def _turn(degrees: float) -> float:
    """The same angle within [-180, 180)."""
    return (degrees + 180.0) % 360.0 - 180.0
