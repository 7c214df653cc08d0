"""Thousands of 2D navigation environments at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pidm_nav.limits import MAX_BATCH, MAX_ROWS, MAX_STEPS, check_number
from pidm_nav.world2d.physics import touches_many
from pidm_nav.world2d.render import render_state
from pidm_nav.world2d.state import REACHED, split_state, state_size
from pidm_nav.world2d.world import NOISE_BLOCK, ChangeableWorld, FloatArray, ObsType, State, World, check_options

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class NavVectorEnv(ChangeableWorld, VectorEnv[NDArray[Any], NDArray[np.float32], NDArray[Any]]):
    """N environments as the rows of one, on the same physics: what `gym.make_vec(id, num_envs=N)` returns.

    Row i after `reset(seed=s)` equals the single environment after `reset(seed=s + i)`, step by step, noise included.
    It takes the arguments of `NavEnv`, the number of rows `num_envs`, the step limit `max_episode_steps`, and
    `autoreset_mode`, an `AutoresetMode` or its value:

    - NEXT_STEP (default): the step after an episode's end ignores that row's action, begins its next episode and
      returns reward 0.
    - SAME_STEP: the step that ends an episode returns the first observation of the next one; the last observation is
      in `infos["final_obs"]` and its info in `infos["final_info"]`.
    - DISABLED: an ended row stays as it is, with reward 0, until `reset(options={"reset_mask": mask})`.

    `reset(options={"state": states})` takes one state vector, or (N, D) of them. Episodes are truncated after
    `max_episode_steps`. For wrappers of single environments use `gym.make_vec(id, vectorization_mode="sync", ...)`.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        task: str | None = None,
        layout: str | Sequence[str] | None = None,
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
        observed = obs_type, image_size, observe_goals, relative_goals
        settings: Any = noise_std, clip_noise, deadzone, *observed, random_start, random_goals
        self.world = World(task, layout, room_size, goal_order, *settings)
        self.layout = self.world.map
        check_number("num_envs", num_envs, 1, MAX_ROWS)
        max_episode_steps = None if max_episode_steps == -1 else max_episode_steps  # as `gym.make` takes it
        if max_episode_steps is not None:
            check_number("max_episode_steps", max_episode_steps, 1, MAX_STEPS)
        single = self.make_observation_space()
        if num_envs * single.low.nbytes > MAX_BATCH:
            raise ValueError(
                f"{num_envs:,} environments that observe {single.shape} numbers do not fit into {MAX_BATCH:,} bytes: "
                "make fewer of them, or smaller images"
            )
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f"render_mode is {render_mode!r}: a vector environment renders to 'rgb_array' or not at all; "
                "use gym.make for a window"
            )
        self.num_envs, self.max_episode_steps, self.render_mode = num_envs, max_episode_steps, render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = single, self.world.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._every = np.arange(num_envs)
        self._begun = False  # whether there has been a reset
        self._rngs: dict[int, np.random.Generator] = {}  # one per row, made when they are first needed
        self._seeds: dict[int, int] = {}  # what they were made from
        self._noise = np.zeros((num_envs, NOISE_BLOCK, 2))  # each row's block, in units of noise_std
        self._noise_step = np.full(num_envs, NOISE_BLOCK)  # steps of its block that each row has used: all of them
        self._position = np.zeros((num_envs, 2))
        self._last_position = self._position  # one step before
        self._goals = np.zeros((num_envs, self.layout.num_goals, 2))
        self._goal = np.zeros((num_envs, 2))  # the current goal of each row
        self._goals_reached = np.zeros(num_envs, np.int64)
        self._state = np.zeros((num_envs, state_size(self.layout.num_goals)), np.float32)
        self._steps = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, bool)
        self._change_velocity = self._changed_velocity if self._is_changed("change_velocity") else None
        self._changes_reward = self._is_changed("change_reward")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generators of all rows, as in `SyncVectorEnv`; they cannot be replaced."""
        self._seed_rows(None, self._every)
        return tuple(self._rngs[row] for row in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds of all rows."""
        self._seed_rows(None, self._every)
        return tuple(self._seeds[row] for row in range(self.num_envs))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin episodes: in all rows, or in those of `options["reset_mask"]`."""
        options = check_options(options, ("state", "reset_mask"))
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise ValueError(
                f"reset_mask must be ({self.num_envs},) booleans with at least one True, got {mask.dtype} {mask.shape}"
            )
        if not self._begun and not mask.all():
            raise ResetNeeded("the first reset() begins all rows: call it once without reset_mask")
        rows = np.flatnonzero(mask)
        states = self._check_states(options["state"], rows) if "state" in options else None
        self._seed_rows(seed, rows if self._begun else self._every)
        self._begin(rows, states)
        self._begun = True
        return self.observe(self._state), self._infos(np.full(self.num_envs, -1), mask)

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[NDArray[Any], NDArray[np.float64], BoolArray, BoolArray, dict[str, Any]]:
        """Move every row once."""
        velocities = self._read_actions(actions)
        idle = self._ended.nonzero()[0]  # rows whose action does not count
        goal = self._goal.copy() if self._changes_reward else self._goal
        reached = self._move(velocities, idle)
        rewards, reached_goal = np.zeros(self.num_envs), np.full(self.num_envs, -1)
        rewards[reached] = 1.0
        reached_goal[reached] = self._goals_reached[reached] - 1
        if self._changes_reward:
            rewards = np.array(self.change_reward(self._last_position, self._position, goal, rewards), np.float64)
            rewards[idle] = 0.0
        if self.autoreset_mode == AutoresetMode.NEXT_STEP and idle.size:
            self._begin(idle)
        terminated = self._goals_reached == self.layout.num_goals
        truncated = self._steps >= (np.inf if self.max_episode_steps is None else self.max_episode_steps)
        self._ended = terminated | truncated
        final = {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP and self._ended.any():
            final = self._final_infos(reached_goal)
            reached_goal = np.where(self._ended, -1, reached_goal)
            self._begin(np.flatnonzero(self._ended))
        return self.observe(self._state), rewards, terminated, truncated, self._infos(reached_goal) | final

    def get_state(self) -> NDArray[np.float32]:
        """Return (N, D) copies of the state vectors, whatever the observations are."""
        return self._state.copy()

    def set_state(self, states: Any) -> None:
        """Put all rows at (N, D) state vectors; an impossible one is a ValueError and changes nothing.

        A row whose episode has ended begins a new one there.
        """
        if not self._begun:
            raise ResetNeeded("set_state() needs running episodes: call reset() first")
        self._place(self._every, self._check_states(states, self._every))
        self._steps[self._ended] = 0
        self._ended[:] = False

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return one RGB frame per row."""
        if self.render_mode is None:
            return None
        return tuple(render_state(self.layout, state) for state in self._state)

    def _move(self, actions: FloatArray, idle: IntArray) -> IntArray:
        """Move every row that is not idle; return the rows that have reached their goal by it."""
        noise = self._draw_noise(idle)
        position = self.world.physics.move_many(self._position, actions, noise, self._change_velocity)
        touched = touches_many(position, self._goal)
        if idle.size:
            position[idle], touched[idle] = self._position[idle], False
            self._steps[idle] -= 1
            self._noise_step[idle] -= 1
        self._steps += 1
        self._noise_step += 1
        self._last_position, self._position = self._position, position
        self._state[:, 0], self._state[:, 1] = position[:, 0], position[:, 1]
        reached: IntArray = touched.nonzero()[0]
        if reached.size:
            self._state[:, REACHED][reached, self._goals_reached[reached]] = 1.0
            self._goals_reached[reached] += 1
            self._aim(reached)
        return reached

    def _changed_velocity(self, position: FloatArray, velocity: FloatArray) -> FloatArray:
        return self._new_velocity(position, velocity, self._last_position)

    def _draw_noise(self, idle: IntArray) -> FloatArray:
        """Return this step's noise (N, 2), drawing new blocks where they are used up."""
        used_up = self._noise_step == NOISE_BLOCK
        used_up[idle] = False  # a new episode draws where it begins before it draws noise
        for row in used_up.nonzero()[0].tolist():
            self._rngs[row].standard_normal(out=self._noise[row])
            self._noise_step[row] = 0
        index = self._every * NOISE_BLOCK + self._noise_step
        noise = self._noise.reshape(-1, 2).take(index, axis=0, mode="clip")  # an idle row may be past its block
        noise *= self.world.physics.noise_std
        return np.asarray(noise, np.float64)

    def _begin(self, rows: IntArray, states: list[State] | None = None) -> None:
        """Begin episodes in these rows; each row draws its own state only where they differ."""
        if states is None:
            sampled_rows = rows[:1] if self.world.has_fixed_start else rows
            states = [self.world.spawn(self._rngs[row]) for row in sampled_rows.tolist()]
        self._place(rows, states)
        self._steps[rows] = 0
        self._ended[rows] = False

    def _place(self, rows: IntArray, states: list[State]) -> None:
        """Put rows into states: one for each of them, or one for all."""
        self._state[rows] = states
        position, self._goals[rows], self._goals_reached[rows] = split_state(np.array(states))
        self._position[rows] = self._last_position[rows] = position
        self._aim(rows)

    def _aim(self, rows: IntArray) -> None:
        """Look up the current goal of these rows, which is the last one once all are reached."""
        self._goal[rows] = self._goals[rows, np.minimum(self._goals_reached[rows], self.layout.num_goals - 1)]

    def _check_states(self, states: Any, rows: IntArray) -> list[State]:
        """Return the states of these rows, given one for all or one for each row of the environment."""
        try:
            one = np.ndim(states) < 2
        except ValueError:  # the states differ in length
            one = False
        given = [states] * self.num_envs if one else states
        if len(given) != self.num_envs:
            raise ValueError(f"{len(given)} states for {self.num_envs} rows: give one for each row")
        return [self.world.check_state(given[row]) for row in rows.tolist()]

    def _seed_rows(self, seed: int | Sequence[int | None] | None, rows: IntArray) -> None:
        """Give rows new generators: by seed + i, by the i-th of a list, or, without a seed, only if they have none."""
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + row for row in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} rows: give one for each row, or a single number")
        new = [row for row in rows.tolist() if seeds[row] is not None or row not in self._rngs]
        made = [seeding.np_random(seeds[row]) for row in new]  # an invalid seed changes nothing
        for row, (rng, own_seed) in zip(new, made, strict=True):
            self._rngs[row], self._seeds[row], self._noise_step[row] = rng, own_seed, NOISE_BLOCK

    def _read_actions(self, actions: Any) -> FloatArray:
        """Return all actions (N, 2), clipped to [-1, 1]."""
        if not self._begun:
            raise ResetNeeded("step() needs running episodes: call reset() first")
        given = np.asarray(actions)
        if not given.ndim:
            raise TypeError(f"the actions are {actions!r}: they must be ({self.num_envs}, 2) numbers")
        if given.shape != (self.num_envs, 2):
            raise ValueError(f"the actions have shape {given.shape}: they must be ({self.num_envs}, 2)")
        if np.isnan(given.max()):
            row = int(np.flatnonzero(np.isnan(given).any(axis=1))[0])
            raise ValueError(f"the action of row {row} is {given[row].tolist()}: give finite numbers")
        return given.clip(-1.0, 1.0).astype(np.float64)

    def _infos(self, reached_goal: IntArray, mask: BoolArray | None = None) -> dict[str, Any]:
        """Return infos as Gymnasium batches them: one array per key, and under `_key` which rows have it."""
        mask = np.ones(self.num_envs, bool) if mask is None else mask
        infos: dict[str, Any] = {
            "goals_reached": self._goals_reached.copy(),
            "num_goals": np.full(self.num_envs, self.layout.num_goals),
            "goal_ratio": self._goals_reached / self.layout.num_goals,
            "is_success": self._goals_reached == self.layout.num_goals,
            "reached_goal": reached_goal,
        }
        return infos | {f"_{key}": mask for key in infos}

    def _final_infos(self, reached_goal: IntArray) -> dict[str, Any]:
        """Return what SAME_STEP adds to the infos: the last observation and info of the rows that have ended."""
        ended = self._ended.copy()
        observations = np.full(self.num_envs, None, dtype=object)
        rows = np.flatnonzero(ended)
        for row, observation in zip(rows, self.observe(self._state[rows]), strict=True):
            observations[row] = observation
        info = self._infos(reached_goal, ended)
        return {"final_obs": observations, "_final_obs": ended, "final_info": info, "_final_info": ended.copy()}
