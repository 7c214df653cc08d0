"""The human-like player: a script with the habits of a person at a gamepad.

The player steers toward a visible point on the route to the goal, but corrects the stick only when the direction is off
by more than a tolerance. The correction is delayed by a reaction time and has an error. So the player overshoots goals,
misses and returns to them, cuts corners and bumps into doors. A stuck player finally corrects carefully. A hasty
player turns to the next goal before reaching the current one, and has to come back. The thumb moves in a few steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import EnvOrTask, Expert, layout_of, read_states
from pidm_nav.demos.experts.routes import TASTES, routes_for, wrap
from pidm_nav.limits import MAX_SEED, check_number
from pidm_nav.world2d.state import current_goals, split_state, state_size

BLOCK = 64  # steps whose random numbers are drawn at once, from each row's generator
NOWHERE = 16.0  # px: a player that has moved less in the last 4 steps is stuck
ALMOST = 45.0  # px: distance at which a hasty player believes that a goal is reached

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Habits:
    """Habits of the human-like player; one set for all tasks, fitted to the paper's recordings."""

    tolerance: float = 7.5  # degrees by which the direction may be off before it is corrected
    follow: float = 0.07  # fraction of an error within the tolerance that each step corrects
    reaction: float = 1.6  # mean steps until a correction begins
    lapse: float = 0.03  # probability of a lapse of attention
    lapse_steps: float = 4.8  # mean further delay of the reaction by a lapse, in steps
    aim_error: float = 8.0  # standard deviation of the error of each new direction, in degrees
    goal_error: float = 8.1  # standard deviation of the target from the goal's center, in pixels
    wander: float = 3.0  # standard deviation of the slow drift of the direction, in degrees
    wander_keep: float = 0.93  # autocorrelation of the drift from step to step
    thumb: float = 0.54  # fraction of the way to the new direction that the thumb moves each step
    ease: float = 0.3  # how much the stick relaxes while it moves: 0 not at all, 1 through the center
    gate: float = 1.137  # largest deflection of the stick
    gate_spread: float = 0.017  # standard deviation of the gate between episodes
    tremor: float = 0.019  # standard deviation of the noise on each axis of the stick
    inertia: float = 1.5  # preference for the route with the smaller turn
    patience: float = 6.0  # mean steps of being stuck until the player corrects carefully
    haste: float = 0.16  # probability of turning to the next goal too early


class Draws(NamedTuple):
    """Random numbers of one step of N players, or of a block of steps (N, BLOCK, ...)."""

    normals: FloatArray  # (N, 6): direction, stick x and y, drift, target x and y
    delays: FloatArray  # (N,) integer steps
    uniforms: FloatArray  # (N,)
    whims: FloatArray  # (N, tastes)


class Players:
    """State of N players; each row has its own random generator."""

    def __init__(self, rows: int, seed: int, habits: Habits) -> None:
        self.seed, self.habits = seed, habits
        self.episodes = np.zeros(rows, np.int64)
        self.rngs: list[np.random.Generator] = [np.random.default_rng(0)] * rows
        self.cursor = np.zeros(rows, np.int64)  # the next step in the block
        shapes: Any = ((rows, BLOCK, 6), (rows, BLOCK), (rows, BLOCK), (rows, BLOCK, len(TASTES)))
        self.block = Draws(*map(np.zeros, shapes))
        self.gate = np.zeros(rows)
        self.goal = np.full((rows, 2), np.nan)  # the goal that the player steers toward
        self.asked = np.full((rows, 2), np.nan)  # the current goal of the task
        self.hasty = np.zeros(rows, bool)  # about this goal
        self.fooled = np.zeros(rows, np.int64)  # remaining steps of believing that it is reached
        self.beside = np.zeros((rows, 2))  # from the goal's center to the target
        self.taste = np.zeros(rows, np.int64)
        self.direction = np.zeros(rows)  # held, in radians
        self.drift = np.zeros(rows)
        self.thumb = np.zeros((rows, 2))
        self.delay = np.zeros(rows, np.int64)  # steps until the next correction begins
        self.overdue = np.zeros(rows, np.int64)  # steps since a correction was needed
        self.patience = np.zeros(rows)  # steps of being stuck until a careful correction
        self.nowhere = np.zeros(rows, np.int64)  # steps of being stuck so far
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
        """Draw the random numbers of this step."""
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
        self.draws = Draws(*chosen)
        self.cursor = self.cursor + 1

    def believe(self, positions: FloatArray, goals: FloatArray, upcoming: FloatArray) -> FloatArray:
        """Return the goals (N, 2) that the players steer toward; hasty players turn to the next one too early."""
        draws, new = self.draws, (self.asked != goals).any(axis=1)
        self.asked = goals
        self.hasty = np.where(new, draws.uniforms < self.habits.haste, self.hasty)
        self.fooled = np.where(new, 0, np.maximum(self.fooled - 1, 0))
        almost = self.hasty & (np.hypot(*(goals - positions).T) < ALMOST)
        self.fooled[almost] = 3 + draws.delays[almost]
        self.hasty[almost] = False
        return np.where((self.fooled > 0)[:, None], upcoming, goals)

    def look(self, aims: FloatArray, positions: FloatArray, goals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the wanted and the exact direction (N,), given the target of each taste (N, tastes, 2)."""
        habits, draws = self.habits, self.draws
        new = np.flatnonzero((self.goal != goals).any(axis=1))
        if new.size:
            way = aims[new] - positions[new, None]
            turn = np.abs(wrap(np.arctan2(way[..., 1], way[..., 0]) - self.direction[new, None], 2 * np.pi))
            turn[np.isnan(self.goal[new, 0])] = 0.0  # at the start of an episode
            self.taste[new] = (habits.inertia * turn - draws.whims[new]).argmin(axis=1)
            self.beside[new] = np.clip(habits.goal_error * draws.normals[new, 4:6], -22, 22)
            self.goal[new] = goals[new]
        aim = aims[np.arange(len(self)), self.taste]
        at_goal = (aim == goals).all(axis=1)
        way = aim + self.beside * at_goal[:, None] - positions
        exact = np.arctan2(way[:, 1], way[:, 0])
        # near the target, the drift fades
        wanted = exact + self.drift * np.minimum(np.hypot(way[:, 0], way[:, 1]) / 60, 1)
        self.drift *= habits.wander_keep
        self.drift += np.radians(habits.wander) * np.sqrt(1 - habits.wander_keep**2) * draws.normals[:, 3]
        return wanted, exact

    def notice(self, positions: FloatArray) -> BoolArray:
        """Return (N,) whether each player has noticed being stuck."""
        nowhere = np.abs(self.trail[:, 0] - positions).max(axis=1) < NOWHERE
        self.trail = np.concatenate([self.trail[:, 1:], positions[:, None]], axis=1)
        self.nowhere = np.where(nowhere, self.nowhere + 1, 0)
        return self.nowhere > self.patience

    def decide(self, wanted: FloatArray, careful: BoolArray, begins: BoolArray) -> None:
        """Hold the direction, or correct it after the reaction time."""
        habits, draws = self.habits, self.draws
        self.direction = np.where(begins, wanted, self.direction)
        self.delay = np.where(begins, draws.delays, self.delay)
        error = wrap(wanted - self.direction, 2 * np.pi)
        off = np.abs(error) > np.radians(habits.tolerance)
        self.direction += np.where(off, 0.0, habits.follow * error)
        self.overdue = np.where(off, self.overdue + 1, 0)
        now = (self.overdue > self.delay) | careful | begins
        missed = now & (np.abs(error) > np.pi / 3)  # the second attempt at a goal is more careful
        self.beside[missed] = np.clip(0.6 * habits.goal_error * draws.normals[missed, 4:6], -15, 15)
        mistake = np.radians(habits.aim_error) * draws.normals[:, 0] * ~careful
        self.direction = np.where(now, wanted + mistake, self.direction)
        self.delay = np.where(now, draws.delays, self.delay)
        patience = -habits.patience * np.log1p(-draws.uniforms)
        self.patience = np.where(now & ~careful, patience, self.patience)
        self.overdue[now] = 0

    def push(self, begins: BoolArray) -> FloatArray:
        """Return the stick (N, 2), after the thumb has moved toward the held direction."""
        habits = self.habits
        target = np.stack([np.cos(self.direction), np.sin(self.direction)], axis=1)
        swing = np.where(begins, 1.0, habits.thumb)[:, None]
        self.thumb += swing * (target - self.thumb)
        depth = np.maximum(np.hypot(self.thumb[:, 0], self.thumb[:, 1]), 1e-6)[:, None]
        stick = self.gate[:, None] * self.thumb / depth * depth**habits.ease
        return np.clip(stick + habits.tremor * self.draws.normals[:, 1:3], -1.0, 1.0)


class HumanLikePlayer(Expert):
    """The human-like player as a policy; `state` holds the players and is changed in place.

    The randomness of row i in episode j depends on the seed, i and j alone, not on the size of the batch.

    Args:
        env_or_task: as for `AStarExpert`.
        seed: seed of the player's randomness.
        habits: habits. Default: the fitted ones.
    """

    def __init__(self, env_or_task: EnvOrTask, seed: int = 0, habits: Habits | None = None) -> None:
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
