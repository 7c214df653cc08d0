"""One navigation environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.goal_env import GoalEnv, RenderMode, read_action
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import join_state, reached_column
from pidm_nav.world2d.world import NOISE_BLOCK, World, draw_pairs

FRAME_SIDE = 800
"""Longest side of a rendered frame, in pixels, whatever the room's size."""


class NavEnv(GoalEnv):
    """Touch a series of goals in order, with a noisy velocity, between walls that one bounces off.

    ## Ids
    | id | goals | observation | step limit | room |
    |---|---|---|---|---|
    | `PIDMNav-FourRoom-v0` | 4 | 14 numbers | 200 | 800 x 800 px |
    | `PIDMNav-Zigzag-v0` | 6 | 20 numbers | 150 | 800 x 800 px |
    | `PIDMNav-Maze-v0` | 10 | 32 numbers | 300 | 800 x 800 px |
    | `PIDMNav-Multiroom-v0` | 6 | 20 numbers | 500 | 1000 x 1000 px |
    | `PIDMNav-Custom-v0` | your map's | 2 + 3 per goal | none (give `max_episode_steps`) | `room_size` |

    ## Observation
    `Box(float32)`: `[x, y, (goal_x, goal_y, reached) for each goal in visiting order]` in pixels, x to the right and y
    down. The bounds reach 32 px beyond the room, where a bounce can end. With `observe_goals=False` only `[x, y]`, with
    `relative_goals=True` goals minus the agent's position. With `obs_type="pixels"` an RGB image.

    ## Action
    `Box(-1, 1, (2,), float32)`: the velocity along x and y, 20 px a step at 1. Larger ones are clipped; one of the
    wrong shape or with a NaN is a ValueError.

    ## Transition
    Components below the `deadzone` count as 0, N(0, `noise_std`) is added to each, and the sum is clipped to [-1, 1]
    (unless `clip_noise=False`, which is how the paper's recordings were made). Then the agent, a 20 px box, moves
    and is pushed out of any wall it has run into.

    ## Reward and end
    1 in the step that touches the current goal, else 0; at most one goal a step. The observation returned with that
    reward shows the goal as reached already. The episode terminates with the last goal; the step limit truncates it.

    ## Info
    `goals_reached`, `num_goals`, `goal_ratio`, `is_success` (all goals reached), and `reached_goal`: the index of the
    goal that this step's reward is for, else -1.

    ## Arguments
    `render_mode` (`"human"`, `"rgb_array"`) and those of `World`: `noise_std=0.2`, `clip_noise=True`,
    `deadzone=0.1`, `obs_type="state"`, `image_size=224`, `observe_goals=True`, `relative_goals=False`,
    `random_start=False`, `random_goals=False`; for `PIDMNav-Custom-v0` also `layout`, `room_size` and `goal_order`.

    ## Starting elsewhere
    `reset(options={"state": vector})` begins at a state vector (not an observation), as does `set_state(vector)`.
    """

    def __init__(self, world: World, render_mode: RenderMode | None = None) -> None:
        super().__init__(render_mode)
        self.world, self.title = world, world.task_name
        self.observation_space = world.observation_space
        self.action_space = world.action_space
        self._x, self._y = 0.0, 0.0
        self._goals: list[list[float]] = []
        self._state: NDArray[np.float32] = np.empty(0, np.float32)  # empty until the first reset
        self._trace: list[tuple[float, float]] = []
        self._cursor = NOISE_BLOCK  # place in the block of noise: used up
        self._noise_x: list[float] = []
        self._noise_y: list[float] = []

    @property
    def layout(self) -> Layout:
        """The map."""
        return self.world.map

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode, at `options["state"]` if given."""
        super().reset(seed=seed)
        if seed is not None:
            self._cursor = NOISE_BLOCK  # what is left of the old seed's noise does not count
        if options and "state" in options:
            self._begin(*self.world.check_state(options["state"]))
        else:
            self._begin(*self.world.spawn(self.np_random))
        if self.render_mode == "human":
            self.render()
        return self.world.observe(self._state), self.goal_info(len(self._goals), -1)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Move once."""
        action_x, action_y = read_action(action, ("velocity along x", "velocity along y"))
        if self._cursor == NOISE_BLOCK:
            pairs = np.empty(NOISE_BLOCK, np.complex64)
            draw_pairs(self.np_random, pairs)
            self._noise_x, self._noise_y = (axis.tolist() for axis in self.world.noise(pairs))
            self._cursor = 0
        noise_x, noise_y = self._noise_x[self._cursor], self._noise_y[self._cursor]
        self._cursor += 1
        physics, state = self.world.physics, self._state
        self._x, self._y = physics.move(self._x, self._y, action_x, action_y, noise_x, noise_y)
        state[0], state[1] = self._x, self._y

        reached_goal = -1
        if self._goals_reached < len(self._goals) and physics.touches(
            self._x, self._y, *self._goals[self._goals_reached]
        ):
            reached_goal = self._goals_reached
            state[reached_column(reached_goal)] = 1.0
            self._goals_reached += 1
        if self.render_mode is not None:
            self._trace.append((self._x, self._y))
            if self.render_mode == "human":
                self.render()
        terminated = self._goals_reached == len(self._goals)
        reward = 1.0 if reached_goal >= 0 else 0.0
        return self.world.observe(state), reward, terminated, False, self.goal_info(len(self._goals), reached_goal)

    def get_state(self) -> NDArray[np.float32]:
        """The state vector, whatever is observed."""
        return self._state.copy()

    def set_state(self, state: Any) -> None:
        """Put the running episode at a state vector; what cannot be a state is a ValueError and changes nothing."""
        parts = self.world.check_state(state)
        if not self._state.size:
            raise ValueError("set_state needs a running episode: call reset() first, or reset(options={'state': ...})")
        self._begin(*parts)

    def picture(self) -> NDArray[np.uint8]:
        """Draw the state and the trace of this episode."""
        from pidm_nav.world2d.render import render_state

        return render_state(self.layout, self._state, size=FRAME_SIDE, trace=np.array(self._trace))

    def _begin(self, position: NDArray[np.float64], goals: NDArray[np.float64], goals_reached: int) -> None:
        self._x, self._y = position.tolist()
        self._goals = goals.tolist()
        self._goals_reached = goals_reached
        self._state = join_state(position, goals, np.asarray(goals_reached))
        self._trace = [(self._x, self._y)]


def make_env(render_mode: RenderMode | None = None, **arguments: Any) -> NavEnv:
    """Make the environment of `gym.make`, whose arguments are those of `World`."""
    return NavEnv(World(**arguments), render_mode)
