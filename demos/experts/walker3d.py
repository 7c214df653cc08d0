"""The scripted expert of the 3D tasks: a walker with a map and the habits of a person at a gamepad.

The walker heads for the farthest visible point on the route to a milestone, as the 2D human-like player does. The right
thumb turns the camera there. The left thumb pushes forward, less if the view is off, and a little sideways. Both thumbs
lag and tremble, and the view drifts. Speed and route vary between episodes and milestones. Sometimes the walker pauses
to look around. A varied walker has other habits in each episode: reaction time, speed, side of the path, pauses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import Expert
from pidm_nav.demos.experts.routes import TASTES, routes_for, wrap
from pidm_nav.limits import MAX_SEED, check_number
from pidm_nav.tasks import Task, find_task
from pidm_nav.world3d.env import FRAME_SKIP, POSE, THRUST
from pidm_nav.world3d.levels import LOOKING_UP, NEAR, UNITS, Milestone, load_level

FloatArray = NDArray[np.floating[Any]]

SLIDE = 100.0  # engine units that the walker slides after full speed
TURN, LOOK = (FRAME_SKIP * each for each in THRUST[2:])  # degrees per step at full deflection


@dataclass(frozen=True)
class Habits3D:
    """Habits of the walker."""

    speed: float = 0.93  # mean deflection of the stick at full speed
    speed_spread: float = 0.05  # standard deviation of the speed between milestones
    quickness: float = 0.35  # fraction of the view's error that each step corrects
    quickness_spread: float = 0.08  # standard deviation of the quickness between episodes
    thumb: float = 0.55  # fraction of the way to its target that a thumb moves each step
    sideways: float = 0.5  # sideways push if the view is off
    wander: float = 5.0  # standard deviation of the drift of the view, in degrees
    wander_keep: float = 0.93  # autocorrelation of the drift from step to step
    beside: float = 20.0  # standard deviation of the target from a milestone, in engine units
    tremor: float = 0.02  # standard deviation of the noise on each axis
    view: float = -2.0  # mean pitch of the view, in degrees above the horizon
    view_spread: float = 2.0  # standard deviation of the pitch between episodes
    hesitation: float = 0.006  # probability that a step begins a pause
    hesitation_steps: float = 6.0  # mean length of a pause
    glance: float = 20.0  # standard deviation of the view's turn in a pause, in degrees
    stroll: float = 0.0  # fraction of pauses in which the walker looks around without stopping
    lane: float = 0.0  # offset to the left of the route, in engine units, if there is space
    reaction: int = 0  # steps until the walker perceives a state

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Habits3D:
        """Return random habits."""
        reaction = int(rng.integers(4))
        return cls(
            speed=rng.uniform(0.75, 1.0),
            quickness=rng.uniform(0.3, 0.5) / (1 + 0.4 * reaction),  # quick turns after a late reaction oscillate
            quickness_spread=0.0,
            thumb=rng.uniform(0.4, 0.8),
            sideways=rng.uniform(0.2, 0.8),
            wander=rng.uniform(3.0, 10.0),
            view_spread=4.0,
            hesitation=rng.uniform(0.003, 0.015),
            hesitation_steps=rng.uniform(4.0, 9.0),
            glance=rng.uniform(20.0, 60.0),
            stroll=0.7,
            lane=rng.uniform(-60.0, 60.0),
            reaction=reaction,
        )


class _Walker:
    """State of one walker; `episode` is the number of its row's episode."""

    def __init__(self, habits: Habits3D, rng: np.random.Generator, episode: int) -> None:
        self.habits, self.rng, self.episode = habits, rng, episode
        self.quickness = max(rng.normal(habits.quickness, habits.quickness_spread), 0.15)
        self.view = rng.normal(habits.view, habits.view_spread)
        self.thumbs = np.zeros(4)
        self.drift = 0.0
        self.pause = 0
        self.strolls = False  # whether it keeps walking in a pause
        self.recent = deque[FloatArray](maxlen=habits.reaction + 1)  # states; it acts on the oldest
        self.aside = 0.0  # turn of the view in a pause
        self.number = -1  # of the milestone
        self.speed, self.taste, self.beside = habits.speed, 0, np.zeros(2)

    def choose(self, number: int) -> None:
        """Draw speed, taste and target for a new milestone."""
        if number == self.number:
            return
        habits, rng = self.habits, self.rng
        self.number = number
        self.speed = float(np.clip(rng.normal(habits.speed, habits.speed_spread), 0.6, 1.0))
        self.taste = int(rng.integers(len(TASTES)))
        self.beside = np.clip(rng.normal(0.0, habits.beside, 2), -40, 40)

    def hesitate(self) -> None:
        """Let the view drift, and sometimes begin a pause."""
        habits, rng = self.habits, self.rng
        keep, uniform = habits.wander_keep, rng.random()
        self.drift = keep * self.drift + habits.wander * np.sqrt(1 - keep**2) * rng.standard_normal()
        self.pause = max(self.pause - 1, 0)
        if not self.pause and uniform < habits.hesitation:
            self.pause = 1 + int(rng.poisson(habits.hesitation_steps))
            self.aside = rng.normal(0.0, habits.glance)
            self.strolls = habits.stroll > 0 and rng.random() < habits.stroll

    def push(self, wanted: FloatArray) -> FloatArray:
        """Move the thumbs toward their targets, and return their positions."""
        self.thumbs += self.habits.thumb * (wanted - self.thumbs)
        return np.clip(self.thumbs + self.habits.tremor * self.rng.standard_normal(4), -1.0, 1.0)


class Walker3D(Expert):
    """The scripted walker as a policy over state vectors; `state` holds the walkers.

    Args:
        task: name or id of a 3D task.
        seed: seed of the walker's randomness, which differs between rows and episodes.
        habits: habits. Default: `Habits3D()`.
        varied: draw other habits for each episode.
    """

    def __init__(self, task: str | Task, seed: int = 0, habits: Habits3D | None = None, varied: bool = False) -> None:
        if habits is not None and varied:
            raise ValueError("varied=True draws habits, and habits are given: leave one of them out")
        check_number("seed", seed, 0, MAX_SEED)
        self.level = load_level(find_task(task).name)
        self.state_size = POSE + self.level.num_goals
        self.seed, self.habits = int(seed), habits or Habits3D()
        self.varied = varied
        self.settings = {"expert": "scripted", **({"varied": True} if varied else asdict(self.habits))}
        self._routes = routes_for(self.level.layout)

    def act(
        self, states: NDArray[Any], memory: list[_Walker] | None, begins: NDArray[np.bool_]
    ) -> tuple[FloatArray, list[_Walker]]:
        """Return the actions (N, 4), and the walkers."""
        walkers = list(memory or [])
        for row in np.flatnonzero(begins).tolist():
            # episode i of a row equals the first episode of a walker with seed + i
            episode = walkers[row].episode + 1 if memory else 0
            rng = np.random.default_rng((self.seed + episode, row, 0))
            habits = Habits3D.drawn(rng) if self.varied else self.habits
            walkers[row : row + 1] = [_Walker(habits, rng, episode)]
        return np.stack(list(map(self._act, states.astype(np.float64), walkers))), walkers

    def _act(self, state: FloatArray, walker: _Walker) -> FloatArray:
        walker.recent.append(state)
        state = walker.recent[0]
        number = min(int(state[POSE:].sum()), self.level.num_goals - 1)
        walker.choose(number)
        walker.hesitate()
        milestone = self.level.milestones[number]
        away = float(np.hypot(*(np.array(milestone.place) - state[:2])))
        if milestone.kind == "stand still" and away < NEAR / 2:
            walker.thumbs[:] = 0.0
            return np.zeros(4)
        angle = float(np.degrees(np.arctan2(state[4], state[3])))
        heading, view = self._heading(state, walker, milestone), walker.view
        if milestone.kind == "look up" and away < 0.7 * NEAR:
            heading, view = angle, LOOKING_UP + 6.0
        error = wrap(heading - angle, 360.0)  # positive to the left
        forward, right = self._walk(walker, milestone, away, np.radians(error))
        turn = -walker.quickness * (error + (walker.aside if walker.pause else 0.0)) / TURN
        look = walker.quickness * (view - state[5]) / LOOK
        return walker.push(np.clip([forward, right, turn, look], -1.0, 1.0))

    def _heading(self, state: FloatArray, walker: _Walker, milestone: Milestone) -> float:
        """Return the heading in degrees."""
        if milestone.kind == "turn":
            return milestone.angle
        here, goal = self.level.to_layout(state[0], state[1]), self.level.to_layout(*milestone.place)
        point = self._routes.look(here[None], goal[None])[0, walker.taste]
        if (point == goal).all():
            point = self.level.to_layout(*(np.array(milestone.place) + walker.beside))
        way = point - here
        if walker.habits.lane:
            way = self._beside(here, way, walker.habits.lane / UNITS)
        drift = walker.drift * min(float(np.hypot(*way)) / 60, 1.0)
        return float(np.degrees(np.arctan2(-way[1], way[0]))) + drift

    def _beside(self, here: FloatArray, way: FloatArray, lane: float) -> FloatArray:
        """Return a way (2,) with its end moved `lane` to the left, if there is space."""
        length = float(np.hypot(*way))
        if length < 3 * abs(lane):
            return way
        moved = way + lane * np.array([way[1], -way[0]]) / length  # in the layout, y points down
        free = self._routes.free
        x, y = np.clip(np.rint(here + moved).astype(np.intp), 0, np.array(free.shape) - 1)
        return moved if free[x, y] else way

    def _walk(self, walker: _Walker, milestone: Milestone, away: float, error: float) -> tuple[float, float]:
        """Return the left thumb's deflection, forward and right."""
        if milestone.kind == "turn" or (walker.pause and not walker.strolls):
            return 0.0, 0.0
        speed = walker.speed
        if milestone.kind in ("look up", "stand still"):
            speed = 0.0 if away < NEAR / 2 else min(speed, 0.15 + away / SLIDE / 2)
        return speed * max(np.cos(error), 0.0) ** 2, -walker.habits.sideways * speed * float(np.sin(error))
