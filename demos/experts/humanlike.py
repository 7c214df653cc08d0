"""A scripted player with a gamepad's habits, whose demonstrations look like a person's.

The player steers for a point in sight on the way to the goal, but not at every step: the stick is held until the
direction is off by more than a tolerance, that is noticed only some steps later, and the new direction has an
error of its own. So goals are overshot, or missed and returned to, corners are cut, and doors are bumped into;
a player that does not get anywhere looks again in the end, more carefully. In haste it takes a goal for reached
that is not, and has to come back. The thumb needs a few steps to swing over.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.astar import Place, layout_of, read_states
from pidm_nav.demos.experts.routes import TASTES, routes_for
from pidm_nav.world2d.state import current_goals, split_state

BLOCK = 64
"""Steps of chance drawn at a time, from each row's own generator."""
NOWHERE = 16.0
"""A player that has moved less than this many pixels in the last `len(trail)` steps does not get anywhere."""
ALMOST = 45.0
"""Pixels from a goal at which a hasty player believes to have reached it."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Habits:
    """What makes the player human; one set for all tasks, fitted to the paper's recordings."""

    tolerance: float = 7.5  # degrees the direction may be off before it is corrected
    follow: float = 0.07  # part of the error within the tolerance that the thumb takes back each step
    reaction: float = 1.6  # mean steps until a correction begins
    lapse: float = 0.03  # how often the mind is elsewhere
    lapse_steps: float = 4.8  # mean steps by which that delays the reaction
    aim_error: float = 8.0  # degrees, of each new direction
    goal_error: float = 8.1  # pixels beside the goal's centre that are aimed for
    wander: float = 3.0  # degrees of slow drift between intention and direction
    wander_keep: float = 0.93  # part of that drift which stays from step to step
    thumb: float = 0.54  # part of the way to the new direction that the thumb moves each step
    ease: float = 0.3  # how much the stick springs back while it swings over: 0 not at all, 1 through the centre
    gate: float = 1.137  # how far the stick can be pushed
    gate_spread: float = 0.017  # between episodes
    tremor: float = 0.019  # of each axis of the stick
    inertia: float = 1.5  # how much the route that needs the smaller turn is preferred
    patience: float = 6.0  # mean steps of getting nowhere until the player looks again
    haste: float = 0.16  # how often a goal is taken for reached just before it is


class Chance(NamedTuple):
    """What is drawn for one step of N players."""

    normals: FloatArray  # (N, 6): direction, stick x and y, drift, beside the goal x and y
    delays: NDArray[np.int64]  # (N,) steps
    uniforms: FloatArray  # (N,)
    whims: FloatArray  # (N, tastes)


class Memory:
    """What N players remember from step to step; row i's chance is its own, whatever the other rows do."""

    def __init__(self, rows: int, seed: int, habits: Habits) -> None:
        self.seed = seed
        self.habits = habits
        self.episodes = np.zeros(rows, np.int64)
        self.rngs: list[np.random.Generator] = [np.random.default_rng(0)] * rows
        self.cursor = np.zeros(rows, np.int64)
        self.normals = np.zeros((rows, BLOCK, 6))
        self.delays = np.zeros((rows, BLOCK), np.int64)
        self.uniforms = np.zeros((rows, BLOCK))
        self.whims = np.zeros((rows, BLOCK, len(TASTES)))
        self.gate = np.zeros(rows)
        self.goal = np.full((rows, 2), np.nan)  # gone for
        self.asked = np.full((rows, 2), np.nan)  # to be gone for
        self.hasty = np.zeros(rows, bool)  # about this goal
        self.fooled = np.zeros(rows, np.int64)  # steps left in the belief that it is reached
        self.beside = np.zeros((rows, 2))  # what is aimed for beside the goal's centre
        self.taste = np.zeros(rows, np.int64)
        self.direction = np.zeros(rows)  # held, radians
        self.drift = np.zeros(rows)
        self.thumb = np.zeros((rows, 2))
        self.delay = np.zeros(rows, np.int64)  # steps until the next correction begins
        self.overdue = np.zeros(rows, np.int64)  # steps for which it has been called for
        self.patience = np.zeros(rows)  # steps of getting nowhere until the next look
        self.nowhere = np.zeros(rows, np.int64)  # such steps so far
        self.trail = np.zeros((rows, 4, 2))

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

    def draw(self) -> Chance:
        """This step's chance."""
        habits = self.habits
        for row in np.flatnonzero(self.cursor == BLOCK).tolist():
            rng = self.rngs[row]
            self.normals[row] = rng.standard_normal((BLOCK, 6))
            lapses = rng.random(BLOCK) < habits.lapse
            self.delays[row] = rng.poisson(habits.reaction, BLOCK) + lapses * rng.poisson(habits.lapse_steps, BLOCK)
            self.uniforms[row] = rng.random(BLOCK)
            self.whims[row] = rng.gumbel(0.0, 0.5, (BLOCK, len(TASTES)))
            self.cursor[row] = 0
        every = np.arange(len(self.cursor))
        step = self.cursor
        self.cursor = step + 1
        return Chance(
            self.normals[every, step], self.delays[every, step], self.uniforms[every, step], self.whims[every, step]
        )


class HumanLikePlayer:
    """The scripted player as a policy; what it remembers goes through `state`, and is changed in place.

    Equal seeds play equally in equal episodes: row i, episode j of a batch has a chance of its own, whatever the
    size of the batch. Without `state` each call is the first of an episode.

    Args:
        env_or_task: as for `AStarExpert`.
        seed: of the player's chance.
        habits: other habits than the fitted ones.
    """

    sees_state = True  # predict() is given state vectors, whatever the environment's observations are

    def __init__(self, env_or_task: Place, seed: int = 0, habits: Habits | None = None) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}: it must be 0 or a positive number")
        self.layout = layout_of(env_or_task)
        self.seed = int(seed)
        self.habits = habits or Habits()
        self._routes = routes_for(self.layout)

    @property
    def settings(self) -> dict[str, Any]:
        """What a dataset made with this player says about it."""
        return {"expert": "human-like", "seed": self.seed, **asdict(self.habits)}

    def predict(
        self,
        observation: NDArray[Any],
        state: Memory | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.float32], Memory]:
        """The action (2,) for a state vector (D,), or (N, 2) for (N, D), and the memory to hand in next time."""
        positions, goals, _ = read_states(observation, self.layout)
        begins = np.broadcast_to(np.asarray(False if episode_start is None else episode_start), len(positions))
        if state is None:
            state, begins = Memory(len(positions), self.seed, self.habits), np.ones(len(positions), bool)
        if len(state.gate) != len(positions):
            raise ValueError(
                f"the state remembers {len(state.gate)} players and there are {len(positions)} observations: "
                "begin with state=None"
            )
        state.begin(np.flatnonzero(begins))
        chance = state.draw()
        begins = np.isnan(state.goal[:, 0])
        believed = self._believe(state, positions, goals, self._upcoming(observation), chance)
        wanted, exact = self._look(state, positions, believed, chance)
        careful = self._notice(state, positions)
        self._decide(state, np.where(careful, exact, wanted), careful, begins, chance)
        actions = self._push(state, begins, chance.normals[:, 1:3])
        return actions.astype(np.float32).reshape(*np.shape(observation)[:-1], 2), state

    def _upcoming(self, observation: NDArray[Any]) -> FloatArray:
        """(N, 2): the goal after the current one, or the last."""
        _, goals, reached = split_state(np.atleast_2d(observation))
        return current_goals(goals, reached, ahead=1)

    def _believe(
        self, memory: Memory, positions: FloatArray, goals: FloatArray, upcoming: FloatArray, chance: Chance
    ) -> FloatArray:
        """(N, 2): the goals the players go for, which in haste are the next ones too early."""
        new = (memory.asked != goals).any(axis=1)
        memory.asked = goals
        memory.hasty = np.where(new, chance.uniforms < self.habits.haste, memory.hasty)
        memory.fooled = np.where(new, 0, np.maximum(memory.fooled - 1, 0))
        almost = memory.hasty & (np.hypot(*(goals - positions).T) < ALMOST)
        memory.fooled[almost] = 3 + chance.delays[almost]
        memory.hasty[almost] = False
        return np.where((memory.fooled > 0)[:, None], upcoming, goals)

    def _look(
        self, memory: Memory, positions: FloatArray, goals: FloatArray, chance: Chance
    ) -> tuple[FloatArray, FloatArray]:
        """(N,) direction wanted, and the exact one to where the player looks."""
        habits, every = self.habits, np.arange(len(positions))
        aims = self._routes.look(positions, goals)  # (N, tastes, 2)
        new = np.flatnonzero((memory.goal != goals).any(axis=1))
        if new.size:
            way = aims[new] - positions[new, None]
            turn = np.abs(_angle(np.arctan2(way[..., 1], way[..., 0]) - memory.direction[new, None]))
            turn[np.isnan(memory.goal[new, 0])] = 0.0  # nobody moves yet
            memory.taste[new] = (habits.inertia * turn - chance.whims[new]).argmin(axis=1)
            memory.beside[new] = np.clip(habits.goal_error * chance.normals[new, 4:6], -22, 22)
            memory.goal[new] = goals[new]
        aim = aims[every, memory.taste]
        at_goal = (aim == goals).all(axis=1)
        way = aim + memory.beside * at_goal[:, None] - positions
        exact = np.arctan2(way[:, 1], way[:, 0])
        # Close to where one looks, a drift of some degrees is no longer noticed.
        wanted = exact + memory.drift * np.minimum(np.hypot(way[:, 0], way[:, 1]) / 60, 1)
        memory.drift *= habits.wander_keep
        memory.drift += np.radians(habits.wander) * np.sqrt(1 - habits.wander_keep**2) * chance.normals[:, 3]
        return wanted, exact

    def _notice(self, memory: Memory, positions: FloatArray) -> NDArray[np.bool_]:
        """(N,) who has noticed that nothing moves."""
        nowhere = np.abs(memory.trail[:, 0] - positions).max(axis=1) < NOWHERE
        memory.trail = np.concatenate([memory.trail[:, 1:], positions[:, None]], axis=1)
        memory.nowhere = np.where(nowhere, memory.nowhere + 1, 0)
        return memory.nowhere > memory.patience

    def _decide(
        self,
        memory: Memory,
        wanted: FloatArray,
        careful: NDArray[np.bool_],
        begins: NDArray[np.bool_],
        chance: Chance,
    ) -> None:
        """Hold the direction, or correct it where that is called for and has been noticed."""
        habits = self.habits
        memory.direction = np.where(begins, wanted, memory.direction)
        memory.delay = np.where(begins, chance.delays, memory.delay)
        error = _angle(wanted - memory.direction)
        off = np.abs(error) > np.radians(habits.tolerance)
        memory.direction += np.where(off, 0.0, habits.follow * error)
        memory.overdue = np.where(off, memory.overdue + 1, 0)
        now = (memory.overdue > memory.delay) | careful | begins
        missed = now & (np.abs(error) > np.pi / 3)  # the second try at a goal is more careful
        memory.beside[missed] = np.clip(0.6 * habits.goal_error * chance.normals[missed, 4:6], -15, 15)
        mistake = np.radians(habits.aim_error) * chance.normals[:, 0] * ~careful
        memory.direction = np.where(now, wanted + mistake, memory.direction)
        memory.delay = np.where(now, chance.delays, memory.delay)
        patience = -habits.patience * np.log1p(-chance.uniforms)
        memory.patience = np.where(now & ~careful, patience, memory.patience)
        memory.overdue[now] = 0

    def _push(self, memory: Memory, begins: NDArray[np.bool_], normals: FloatArray) -> FloatArray:
        """(N, 2) stick: the thumb moves towards the direction held, against the rim of the gamepad's gate."""
        habits = self.habits
        target = np.stack([np.cos(memory.direction), np.sin(memory.direction)], axis=1)
        swing = np.where(begins, 1.0, habits.thumb)[:, None]
        memory.thumb += swing * (target - memory.thumb)
        depth = np.maximum(np.hypot(memory.thumb[:, 0], memory.thumb[:, 1]), 1e-6)[:, None]
        stick = memory.gate[:, None] * memory.thumb / depth * depth**habits.ease + habits.tremor * normals
        return np.clip(stick, -1.0, 1.0)


def _angle(radians: FloatArray) -> FloatArray:
    """The same angle within [-pi, pi)."""
    return (radians + np.pi) % (2 * np.pi) - np.pi
