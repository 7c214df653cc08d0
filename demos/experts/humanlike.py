"""A scripted player with the habits of a person at a gamepad, whose demonstrations look like a person's.

The player steers for a point in sight on the way to the goal, but not at every step: the stick is held until the
direction is off by more than a tolerance, which is noticed only some steps later, and the new direction has an
error of its own. So goals are overshot, or missed and returned to, corners are cut, and doors are bumped into;
a player that does not get anywhere finally looks again, more carefully. In haste it takes a goal for reached
that is not, and has to come back. The thumb needs a few steps to swing over.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import Expert, Place, layout_of, read_states
from pidm_nav.demos.experts.routes import TASTES, routes_for, wrap
from pidm_nav.limits import MAX_SEED, check_number
from pidm_nav.world2d.state import current_goals, split_state, state_size

BLOCK = 64  # steps for which chance is drawn at once, from each row's own generator
NOWHERE = 16.0  # a player that has moved less than this many pixels in the last 4 steps does not get anywhere
ALMOST = 45.0  # distance from a goal in pixels at which a hasty player believes to have reached it

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Habits:
    """What makes the player human; one set for all tasks, fitted to the paper's recordings."""

    tolerance: float = 7.5  # degrees by which the direction may be off before it is corrected
    follow: float = 0.07  # part of the error within the tolerance that the thumb takes back each step
    reaction: float = 1.6  # mean steps until a correction begins
    lapse: float = 0.03  # how often the mind is elsewhere
    lapse_steps: float = 4.8  # mean steps by which that delays the reaction
    aim_error: float = 8.0  # standard deviation of the error of each new direction, in degrees
    goal_error: float = 8.1  # pixels from the goal's center to the point that is aimed for
    wander: float = 3.0  # degrees of slow drift between intention and direction
    wander_keep: float = 0.93  # part of that drift which stays from step to step
    thumb: float = 0.54  # part of the way to the new direction that the thumb moves each step
    ease: float = 0.3  # how much the stick springs back while it swings over: 0 not at all, 1 through the center
    gate: float = 1.137  # how far the stick can be pushed
    gate_spread: float = 0.017  # standard deviation of that between episodes
    tremor: float = 0.019  # standard deviation of the noise on each axis of the stick
    inertia: float = 1.5  # how much the route that needs the smaller turn is preferred
    patience: float = 6.0  # mean steps of getting nowhere until the player looks again
    haste: float = 0.16  # how often a goal is taken for reached just before it is


class Chance(NamedTuple):
    """What is drawn for one step of N players, or for a block of steps (N, BLOCK, ...)."""

    normals: FloatArray  # (N, 6): direction, stick x and y, drift, beside the goal x and y
    delays: FloatArray  # (N,) steps, whole numbers
    uniforms: FloatArray  # (N,)
    whims: FloatArray  # (N, tastes)


class Players:
    """N players and what they remember from step to step; row i's chance is its own, whatever the other rows do."""

    def __init__(self, rows: int, seed: int, habits: Habits) -> None:
        self.seed, self.habits = seed, habits
        self.episodes = np.zeros(rows, np.int64)
        self.rngs: list[np.random.Generator] = [np.random.default_rng(0)] * rows
        self.cursor = np.zeros(rows, np.int64)  # the next step in the block
        shapes: Any = ((rows, BLOCK, 6), (rows, BLOCK), (rows, BLOCK), (rows, BLOCK, len(TASTES)))
        self.block = Chance(*map(np.zeros, shapes))
        self.gate = np.zeros(rows)
        self.goal = np.full((rows, 2), np.nan)  # the goal that the player goes for
        self.asked = np.full((rows, 2), np.nan)  # the goal that is really next
        self.hasty = np.zeros(rows, bool)  # about this goal
        self.fooled = np.zeros(rows, np.int64)  # steps left in the belief that it is reached
        self.beside = np.zeros((rows, 2))  # from the goal's center to what is aimed for
        self.taste = np.zeros(rows, np.int64)
        self.direction = np.zeros(rows)  # held, in radians
        self.drift = np.zeros(rows)
        self.thumb = np.zeros((rows, 2))
        self.delay = np.zeros(rows, np.int64)  # steps until the next correction begins
        self.overdue = np.zeros(rows, np.int64)  # steps for which it has been called for
        self.patience = np.zeros(rows)  # steps of getting nowhere until the next look
        self.nowhere = np.zeros(rows, np.int64)  # such steps so far
        self.trail = np.zeros((rows, 4, 2))  # the last positions

    def __len__(self) -> int:
        return len(self.gate)

    def begin(self, rows: NDArray[np.int64]) -> None:
        """Begin an episode in these rows."""
        for row in rows.tolist():
            self.rngs[row] = np.random.default_rng((self.seed, row, int(self.episodes[row])))
            self.gate[row] = self.rngs[row].normal(self.habits.gate, self.habits.gate_spread)
        self.episodes[rows] += 1
        self.cursor[rows] = BLOCK
        self.goal[rows] = self.asked[rows] = np.nan
        self.overdue[rows] = self.fooled[rows] = self.nowhere[rows] = 0
        self.trail[rows] = np.inf

    def draw(self) -> None:
        """Draw this step's chance."""
        habits, block = self.habits, self.block
        for row in np.flatnonzero(self.cursor == BLOCK).tolist():
            rng = self.rngs[row]
            block.normals[row] = rng.standard_normal((BLOCK, 6))
            lapses = rng.random(BLOCK) < habits.lapse
            block.delays[row] = rng.poisson(habits.reaction, BLOCK) + lapses * rng.poisson(habits.lapse_steps, BLOCK)
            block.uniforms[row] = rng.random(BLOCK)
            block.whims[row] = rng.gumbel(0.0, 0.5, (BLOCK, len(TASTES)))
            self.cursor[row] = 0
        chosen: Any = [each[np.arange(len(self)), self.cursor] for each in block]
        self.chance = Chance(*chosen)
        self.cursor = self.cursor + 1

    def believe(self, positions: FloatArray, goals: FloatArray, upcoming: FloatArray) -> FloatArray:
        """Return the goals (N, 2) that the players go for, which in haste are the next ones too early."""
        chance, new = self.chance, (self.asked != goals).any(axis=1)
        self.asked = goals
        self.hasty = np.where(new, chance.uniforms < self.habits.haste, self.hasty)
        self.fooled = np.where(new, 0, np.maximum(self.fooled - 1, 0))
        almost = self.hasty & (np.hypot(*(goals - positions).T) < ALMOST)
        self.fooled[almost] = 3 + chance.delays[almost]
        self.hasty[almost] = False
        return np.where((self.fooled > 0)[:, None], upcoming, goals)

    def look(self, aims: FloatArray, positions: FloatArray, goals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the direction wanted (N,), and the exact one, given what each taste steers for (N, tastes, 2)."""
        habits, chance = self.habits, self.chance
        new = np.flatnonzero((self.goal != goals).any(axis=1))
        if new.size:
            way = aims[new] - positions[new, None]
            turn = np.abs(wrap(np.arctan2(way[..., 1], way[..., 0]) - self.direction[new, None], 2 * np.pi))
            turn[np.isnan(self.goal[new, 0])] = 0.0  # nobody moves yet
            self.taste[new] = (habits.inertia * turn - chance.whims[new]).argmin(axis=1)
            self.beside[new] = np.clip(habits.goal_error * chance.normals[new, 4:6], -22, 22)
            self.goal[new] = goals[new]
        aim = aims[np.arange(len(self)), self.taste]
        at_goal = (aim == goals).all(axis=1)
        way = aim + self.beside * at_goal[:, None] - positions
        exact = np.arctan2(way[:, 1], way[:, 0])
        # Close to where one looks, a drift of some degrees is no longer noticed.
        wanted = exact + self.drift * np.minimum(np.hypot(way[:, 0], way[:, 1]) / 60, 1)
        self.drift *= habits.wander_keep
        self.drift += np.radians(habits.wander) * np.sqrt(1 - habits.wander_keep**2) * chance.normals[:, 3]
        return wanted, exact

    def notice(self, positions: FloatArray) -> BoolArray:
        """Return (N,) who has noticed that nothing moves."""
        nowhere = np.abs(self.trail[:, 0] - positions).max(axis=1) < NOWHERE
        self.trail = np.concatenate([self.trail[:, 1:], positions[:, None]], axis=1)
        self.nowhere = np.where(nowhere, self.nowhere + 1, 0)
        return self.nowhere > self.patience

    def decide(self, wanted: FloatArray, careful: BoolArray, begins: BoolArray) -> None:
        """Hold the direction, or correct it where that is called for and has been noticed."""
        habits, chance = self.habits, self.chance
        self.direction = np.where(begins, wanted, self.direction)
        self.delay = np.where(begins, chance.delays, self.delay)
        error = wrap(wanted - self.direction, 2 * np.pi)
        off = np.abs(error) > np.radians(habits.tolerance)
        self.direction += np.where(off, 0.0, habits.follow * error)
        self.overdue = np.where(off, self.overdue + 1, 0)
        now = (self.overdue > self.delay) | careful | begins
        missed = now & (np.abs(error) > np.pi / 3)  # the second try at a goal is more careful
        self.beside[missed] = np.clip(0.6 * habits.goal_error * chance.normals[missed, 4:6], -15, 15)
        mistake = np.radians(habits.aim_error) * chance.normals[:, 0] * ~careful
        self.direction = np.where(now, wanted + mistake, self.direction)
        self.delay = np.where(now, chance.delays, self.delay)
        patience = -habits.patience * np.log1p(-chance.uniforms)
        self.patience = np.where(now & ~careful, patience, self.patience)
        self.overdue[now] = 0

    def push(self, begins: BoolArray) -> FloatArray:
        """Return the stick (N, 2): the thumb moves towards the direction held, against the rim of the gate."""
        habits = self.habits
        target = np.stack([np.cos(self.direction), np.sin(self.direction)], axis=1)
        swing = np.where(begins, 1.0, habits.thumb)[:, None]
        self.thumb += swing * (target - self.thumb)
        depth = np.maximum(np.hypot(self.thumb[:, 0], self.thumb[:, 1]), 1e-6)[:, None]
        stick = self.gate[:, None] * self.thumb / depth * depth**habits.ease
        return np.clip(stick + habits.tremor * self.chance.normals[:, 1:3], -1.0, 1.0)


class HumanLikePlayer(Expert):
    """The scripted player as a policy; what it remembers goes through `state`, and is changed in place.

    Equal seeds play equally in equal episodes: row i, episode j of a batch has a chance of its own, whatever the
    size of the batch.

    Args:
        env_or_task: as for `AStarExpert`.
        seed: the seed of the player's chance.
        habits: other habits than the fitted ones.
    """

    def __init__(self, env_or_task: Place, seed: int = 0, habits: Habits | None = None) -> None:
        check_number("seed", seed, 0, MAX_SEED)
        self.layout = layout_of(env_or_task)
        self.state_size = state_size(self.layout.num_goals)
        self.seed, self.habits = int(seed), habits or Habits()
        self.settings = {"expert": "human-like", "seed": self.seed, **asdict(self.habits)}
        self._routes = routes_for(self.layout)

    def act(self, states: NDArray[Any], memory: Players | None, begins: BoolArray) -> tuple[FloatArray, Players]:
        """Return the actions (N, 2), and the players."""
        positions, goals, _ = read_states(states, self.layout)
        _, every_goal, reached = split_state(states)
        players = Players(len(states), self.seed, self.habits) if memory is None else memory
        players.begin(np.flatnonzero(begins))
        players.draw()
        begins = np.isnan(players.goal[:, 0])
        believed = players.believe(positions, goals, current_goals(every_goal, reached, ahead=1))
        wanted, exact = players.look(self._routes.look(positions, believed), positions, believed)
        careful = players.notice(positions)
        players.decide(np.where(careful, exact, wanted), careful, begins)
        return players.push(begins), players
