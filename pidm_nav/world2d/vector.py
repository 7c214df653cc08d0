"""Thousands of navigation environments at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import current_goals, join_state, reached_column, state_size
from pidm_nav.world2d.world import NOISE_BLOCK, World, draw_pairs

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class NavVectorEnv(VectorEnv[NDArray[Any], NDArray[np.float32], NDArray[Any]]):
    """N environments as the rows of one, on the same physics: what `gym.make_vec(id, num_envs=N)` returns.

    Row i of `reset(seed=s)` is the single environment of `reset(seed=s + i)`, step by step, noise included. Arguments
    are those of `NavEnv`, and `autoreset_mode`, an `AutoresetMode` or its value:

    - NEXT_STEP (default): the step after an episode's end ignores that row's action, begins its next episode and
      returns reward 0.
    - SAME_STEP: the step that ends an episode returns the next one's first observation; the last one is in
      `infos["final_obs"]`, its info in `infos["final_info"]`.
    - DISABLED: an ended row stays as it is (reward 0) until `reset(options={"reset_mask": mask})`.

    `reset(options={"state": states})` takes one state vector or (N, D) of them. It truncates by itself after
    `max_episode_steps`. For wrappers of single environments use `gym.make_vec(id, vectorization_mode="sync", ...)`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["rgb_array"],
        "render_fps": 30,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        world: World,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}: it must be at least 1")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode is {render_mode!r}: many at once render to 'rgb_array' or not at all; "
                "use gym.make for a window"
            )
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.world = world
        self.single_observation_space = world.observation_space
        self.single_action_space = world.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        num_goals = self.world.num_goals
        self._rngs: list[np.random.Generator] | None = None
        self._every = np.arange(num_envs)
        # A row is longer than its block of noise: rows a power of two apart would share few lines of the cache.
        self._noise = np.zeros((num_envs, NOISE_BLOCK + 8), np.complex64)
        self._blocks = self._every * self._noise.shape[1]  # where each row's block begins
        self._x, self._y = np.zeros(num_envs), np.zeros(num_envs)
        self._goals = np.zeros((num_envs, num_goals, 2))
        self._goal_x, self._goal_y = np.zeros(num_envs), np.zeros(num_envs)  # the current goal's
        self._goals_reached = np.zeros(num_envs, np.int64)
        self._goal_ratio = np.zeros(num_envs)
        self._steps = np.zeros(num_envs, np.int64)
        self._state = np.zeros((num_envs, state_size(num_goals)), np.float32)
        self._cursor = np.zeros(num_envs, np.int64)  # each row's place in its block of noise
        self._terminated = np.zeros(num_envs, bool)
        self._truncated = np.zeros(num_envs, bool)

    @property
    def layout(self) -> Layout:
        """The map."""
        return self.world.map

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin episodes: in all rows, or in those of `options["reset_mask"]`."""
        options = options or {}
        mask = self._read_mask(options["reset_mask"]) if "reset_mask" in options else np.ones(self.num_envs, bool)
        rows = np.flatnonzero(mask)
        self._seed_rows(seed, rows)
        states = None
        if "state" in options:
            states = np.broadcast_to(np.asarray(options["state"]), (self.num_envs, self._state.shape[1]))
        self._begin(rows, states)
        return self.world.observe(self._state), self._infos(np.full(self.num_envs, -1), mask)

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[NDArray[Any], NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """Move every row once."""
        columns = self._read_actions(actions)
        ended = self._terminated | self._truncated
        idle = np.flatnonzero(ended) if ended.any() else None  # rows whose action does not count
        rows = self._move(columns, idle)
        self._terminated = self._goals_reached == self.world.num_goals
        if self.max_episode_steps is not None:
            self._truncated = self._steps >= self.max_episode_steps
        rewards, reached_goal = np.zeros(self.num_envs), np.full(self.num_envs, -1)
        rewards[rows] = 1.0
        reached_goal[rows] = self._goals_reached[rows] - 1

        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            return self._same_step(rewards, reached_goal)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP and idle is not None:
            self._begin(idle)
        observations = self.world.observe(self._state)
        return (
            observations,
            rewards,
            self._terminated.copy(),
            self._truncated.copy(),
            self._infos(reached_goal),
        )

    def get_state(self) -> NDArray[np.float32]:
        """(N, D) state vectors, whatever is observed."""
        return self._state.copy()

    def set_state(self, states: Any) -> None:
        """Put the running episodes at (N, D) state vectors; a refused one changes nothing."""
        if self._rngs is None:
            raise ValueError("set_state needs running episodes: call reset() first")
        parts = [self.world.check_state(state) for state in states]
        if len(parts) != self.num_envs:
            raise ValueError(f"{len(parts)} states for {self.num_envs} rows: give one each")
        self._place(self._every, parts)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """One RGB frame a row."""
        if self.render_mode is None:
            return None
        from pidm_nav.world2d.render import render_state

        return tuple(render_state(self.layout, state) for state in self._state)

    def _move(self, columns: NDArray[np.float64], idle: IntArray | None) -> IntArray:
        """One step of the physics in every row that is not idle; the rows that reached their goal in it."""
        used_up = self._cursor == NOISE_BLOCK
        if used_up.any():
            self._draw_noise(np.flatnonzero(used_up))
        noise = self.world.noise(self._noise.take(self._blocks + self._cursor))
        x, y = self.world.physics.move(self._x, self._y, columns[0], columns[1], *noise)
        reached: BoolArray = self.world.physics.touches(x, y, self._goal_x, self._goal_y)
        if idle is not None:
            x[idle], y[idle], reached[idle] = self._x[idle], self._y[idle], False
            self._steps[idle] -= 1
            self._cursor[idle] -= 1
        self._x, self._y = x, y
        self._state[:, 0], self._state[:, 1] = x, y
        self._steps += 1
        self._cursor += 1
        rows = np.flatnonzero(reached)
        if rows.size:
            self._state[rows, reached_column(self._goals_reached[rows])] = 1.0
            self._goals_reached[rows] += 1
            self._aim(rows)
        return rows

    def _same_step(
        self, rewards: NDArray[np.float64], reached_goal: IntArray
    ) -> tuple[NDArray[Any], NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """What SAME_STEP returns: ended rows show their next episode, and their last one in the infos."""
        terminated, truncated = self._terminated, self._truncated
        ended = terminated | truncated
        final: dict[str, Any] = {}
        if ended.any():
            rows = np.flatnonzero(ended)
            final_obs = np.full(self.num_envs, None, dtype=object)
            for row, observation in zip(rows, self.world.observe(self._state[rows]), strict=True):
                final_obs[row] = observation
            final = {
                "final_obs": final_obs,
                "_final_obs": ended,
                "final_info": self._infos(reached_goal, ended),
                "_final_info": ended.copy(),
            }
            self._begin(rows)
            reached_goal = np.where(ended, -1, reached_goal)
        return (
            self.world.observe(self._state),
            rewards,
            terminated,
            truncated,
            {**self._infos(reached_goal), **final},
        )

    def _begin(self, rows: IntArray, states: NDArray[Any] | None = None) -> None:
        """Begin episodes in these rows; a loop over them only where each begins differently."""
        assert self._rngs is not None
        if states is not None:
            self._place(rows, [self.world.check_state(states[row]) for row in rows])
        elif self.world.fixed_start is not None:
            self._place(rows, [self.world.fixed_start])
        else:
            self._place(rows, [self.world.spawn(self._rngs[row]) for row in rows.tolist()])
        self._steps[rows] = 0
        # New arrays: those of the step that ended are in the caller's hands.
        self._terminated, self._truncated = self._terminated.copy(), self._truncated.copy()
        self._terminated[rows] = self._truncated[rows] = False

    def _place(self, rows: IntArray, parts: list[tuple[NDArray[np.float64], NDArray[np.float64], int]]) -> None:
        """Put rows at positions, goals and goals reached: one part each, or one for all."""
        positions, goals, goals_reached = (np.array(part) for part in zip(*parts, strict=True))
        self._x[rows], self._y[rows] = positions.T
        self._goals[rows] = goals
        self._goals_reached[rows] = goals_reached
        self._state[rows] = join_state(positions, goals, goals_reached)
        self._aim(rows)

    def _aim(self, rows: IntArray) -> None:
        """Look up the current goal of these rows (the last one once all are reached) and how far they are."""
        goals_reached = self._goals_reached[rows]
        self._goal_ratio[rows] = goals_reached / self.world.num_goals
        self._goal_x[rows], self._goal_y[rows] = current_goals(self._goals[rows], goals_reached).T

    def _draw_noise(self, rows: IntArray) -> None:
        """A new block of noise for these rows, each from its own generator."""
        assert self._rngs is not None
        for row in rows.tolist():
            draw_pairs(self._rngs[row], self._noise[row, :NOISE_BLOCK])
        self._cursor[rows] = 0

    def _seed_rows(self, seed: int | Sequence[int | None] | None, rows: IntArray) -> None:
        """Give rows their generators: seed + i, the i-th of a list, or what they have already."""
        seeds: Sequence[int | None]
        if seed is None:
            seeds = [None] * self.num_envs
        elif isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + row for row in range(self.num_envs)]
        else:
            seeds = seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} rows: give one each, or a single number")
        if self._rngs is None:
            self._rngs = [seeding.np_random(row_seed)[0] for row_seed in seeds]
            self._cursor[:] = NOISE_BLOCK
            return
        for row in rows.tolist():
            if seeds[row] is not None:
                self._rngs[row] = seeding.np_random(seeds[row])[0]
                self._cursor[row] = NOISE_BLOCK

    def _read_actions(self, actions: Any) -> NDArray[np.float64]:
        """(2, N): the actions' two components, clipped."""
        if self._rngs is None:
            raise ValueError("step() needs running episodes: call reset() first")
        given = np.asarray(actions)
        if given.shape != (self.num_envs, 2):
            raise ValueError(f"the actions have shape {given.shape}: they must be ({self.num_envs}, 2)")
        if np.isnan(given.max()):
            row = int(np.flatnonzero(np.isnan(given).any(axis=1))[0])
            raise ValueError(f"the action of row {row} is {given[row].tolist()}: NaN is not a velocity")
        columns: NDArray[np.float64] = np.clip(given, -1.0, 1.0).T.astype(np.float64, order="C")
        return columns

    def _read_mask(self, mask: Any) -> BoolArray:
        array = np.asarray(mask)
        if array.shape != (self.num_envs,) or array.dtype != bool or not array.any():
            raise ValueError(
                f"reset_mask must be ({self.num_envs},) booleans, one of them True, got {array.dtype} {array.shape}"
            )
        return array

    def _infos(self, reached_goal: IntArray, mask: BoolArray | None = None) -> dict[str, Any]:
        """Infos as Gymnasium batches them: an array a key, and which rows have it under `_key`."""
        if mask is None:
            mask = np.ones(self.num_envs, bool)
        infos: dict[str, Any] = {
            "goals_reached": self._goals_reached.copy(),
            "num_goals": np.full(self.num_envs, self.world.num_goals),
            "goal_ratio": self._goal_ratio.copy(),
            "is_success": self._goals_reached == self.world.num_goals,
            "reached_goal": reached_goal,
        }
        return {**infos, **{f"_{key}": mask for key in infos}}


def make_vector_env(
    num_envs: int = 1,
    max_episode_steps: int | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    render_mode: str | None = None,
    **arguments: Any,
) -> NavVectorEnv:
    """Make the environment of `gym.make_vec`, whose further arguments are those of `World`."""
    return NavVectorEnv(World(**arguments), num_envs, max_episode_steps, autoreset_mode, render_mode)
