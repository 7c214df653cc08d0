"""NavEnv: the 2D navigation environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from pidm_nav.ordered_goals import OrderedGoalsEnv, RenderMode, read_action
from pidm_nav.world2d.physics import touches_one
from pidm_nav.world2d.render import render_state
from pidm_nav.world2d.state import REACHED, split_state
from pidm_nav.world2d.world import NOISE_BLOCK, ChangeableWorld, FloatArray, ObsType, State, World, check_options


class NavEnv(ChangeableWorld, OrderedGoalsEnv):
    """2D navigation: reach a series of goals in order, with noisy velocity control between walls.

    ## Ids
    | id | goals | observation | step limit | room |
    |---|---|---|---|---|
    | `PIDMNav-FourRoom-v0` | 4 | 14 numbers | 200 | 800 x 800 px |
    | `PIDMNav-Zigzag-v0` | 6 | 20 numbers | 150 | 800 x 800 px |
    | `PIDMNav-Maze-v0` | 10 | 32 numbers | 300 | 800 x 800 px |
    | `PIDMNav-Multiroom-v0` | 6 | 20 numbers | 500 | 1000 x 1000 px |
    | `PIDMNav-Custom-v0` | those of your map | 2 + 3 per goal | none (pass `max_episode_steps`) | `room_size` |

    ## Observation
    `Box(float32)`: `[x, y, (goal_x, goal_y, reached) for each goal in visiting order]` in pixels, x to the right and y
    down. The bounds extend 32 px beyond the room, where a bounce can end. `observe_goals=False` leaves only `[x, y]`;
    `relative_goals=True` subtracts the agent's position from the goals'; `obs_type="pixels"` gives an RGB image.

    ## Action
    `Box(-1, 1, (2,), float32)`: the velocity along x and y; 1 means 20 px per step. Larger values are clipped; an
    action of the wrong shape or with a NaN raises a ValueError.

    ## Transition
    Components below the `deadzone` count as 0, N(0, `noise_std`) is added to each, and the sum is clipped to [-1, 1]
    (unless `clip_noise=False`, which is how the paper's recordings were made). Then the agent, a 20 px box, moves
    and is pushed out of any wall that it has run into.

    ## Reward and end
    The reward is 1 in the step that touches the current goal and 0 otherwise; a step reaches at most one goal. The
    observation returned with the reward already shows the goal as reached. The episode terminates when the last goal
    is reached; the step limit truncates it.

    ## Info
    `goals_reached`, `num_goals`, `goal_ratio`, `is_success` (all goals reached), and `reached_goal`: the index of the
    goal that this step's reward is for, or -1.

    ## Arguments
    | argument | default | meaning |
    |---|---|---|
    | `render_mode` | None | `"human"` opens a window, `"rgb_array"` draws in memory |
    | `task` | None | name of a 2D task; the id sets it |
    | `layout` | None | path, text or list of lines of your own map (`PIDMNav-Custom-v0`) |
    | `room_size` | (800, 800) | width and height of your own map in pixels |
    | `goal_order` | None | visiting order of the goals of your own map, if all of them are `G` |
    | `noise_std` | 0.2 | standard deviation of the noise on each action component |
    | `clip_noise` | True | clip action plus noise to [-1, 1] |
    | `deadzone` | 0.1 | action components below this value count as 0 |
    | `obs_type` | "state" | observe state vectors, or RGB images with `"pixels"` |
    | `image_size` | 224 | side of the images in pixels |
    | `observe_goals` | True | observe the goals and their flags, not only `[x, y]` |
    | `relative_goals` | False | observe the goals relative to the agent |
    | `random_start` | False | start at a random free position |
    | `random_goals` | False | place the goals at random free positions |

    To change the dynamics, the reward or the observations, override the methods of
    `pidm_nav.world2d.world.ChangeableWorld`.

    ## Starting elsewhere
    `reset(options={"state": vector})` begins the episode at a state vector (not an observation); `set_state(vector)`
    puts the running episode there.
    """

    def __init__(
        self,
        render_mode: RenderMode | None = None,
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
        super().__init__(task or "custom", self.layout.num_goals, render_mode)
        self.observation_space = self.make_observation_space()
        self.action_space = self.world.action_space
        self._x, self._y = 0.0, 0.0
        self._last = 0.0, 0.0  # the position one step before
        self._goals: list[tuple[float, float]] = []  # empty until the first reset
        self._state: State = np.empty(0, np.float32)
        self._trace: list[tuple[float, float]] = []
        self._noise: list[tuple[float, float]] = []  # rest of the block, in reverse order
        self._change_velocity = self._changed_velocity if self._is_changed("change_velocity") else None
        self._changes_reward = self._is_changed("change_reward")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode, at `options["state"]` if it is given."""
        options = check_options(options, ("state",))
        state = self.world.check_state(options["state"]) if "state" in options else None
        super().reset(seed=seed)
        if seed is not None:
            self._noise = []  # its rest belongs to the old seed
        self._begin(self.world.spawn(self.np_random) if state is None else state)
        if self.render_mode == "human":
            self.render()
        return self.observe(self._state), self._info(-1)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take one step."""
        if not self._goals:
            raise ResetNeeded("step() needs a running episode: call reset() first")
        velocity = read_action(action, ("velocity along x", "velocity along y"))
        if not self._noise:
            self._noise = (self.np_random.standard_normal((NOISE_BLOCK, 2)) * self.world.noise_std)[::-1].tolist()
        start = self._x, self._y
        x, y = self.world.physics.move_one(*start, velocity, self._noise.pop(), self._change_velocity)
        self._last, self._x, self._y = start, x, y
        self._state[0], self._state[1] = x, y
        number = self._goals_reached
        reached = number < self.num_goals and touches_one(x, y, self._goals[number])
        if reached:
            self._state[REACHED][number] = 1.0
        if self.render_mode is not None:
            self._trace.append((x, y))
        reward, terminated, truncated, info = self._outcome(reached)
        if self._changes_reward:
            goal = self._goals[min(number, self.num_goals - 1)]
            reward = float(self.change_reward(np.array(start), np.array([x, y]), np.array(goal), reward))
        return self.observe(self._state), reward, terminated, truncated, info

    def get_state(self) -> NDArray[np.float32]:
        """Return a copy of the state vector, for any type of observations."""
        return self._state.copy()

    def set_state(self, state: Any) -> None:
        """Continue the episode from a state vector; an invalid one raises ValueError and changes nothing."""
        state = self.world.check_state(state)
        if not self._goals:
            raise ResetNeeded("set_state() needs a running episode: call reset(), or reset(options={'state': ...})")
        self._begin(state)

    def picture(self) -> NDArray[np.uint8]:
        """Draw the state and the trace of this episode."""
        return render_state(self.layout, self._state, size=800, trace=np.array(self._trace))

    def _begin(self, state: State) -> None:
        """Set the state; position and goals are kept as Python floats, which are faster than arrays."""
        position, goals, reached = split_state(state)
        self._x, self._y = self._last = tuple(position.tolist())
        self._goals = goals.tolist()
        self._state, self._goals_reached, self._trace = state, int(reached), [(self._x, self._y)]

    def _changed_velocity(self, position: FloatArray, velocity: FloatArray) -> FloatArray:
        return self._new_velocity(position, velocity, self._last)
