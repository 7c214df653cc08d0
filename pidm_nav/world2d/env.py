"""A single 2D navigation environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.ordered_goals import OrderedGoalsEnv, RenderMode, read_action
from pidm_nav.world2d.state import REACHED, split_state
from pidm_nav.world2d.world import State, World


class NavEnv(OrderedGoalsEnv):
    """Touch a series of goals in order, moving with a noisy velocity between walls that the agent bounces off.

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
    `render_mode` (`"human"`, `"rgb_array"`) and the fields of `pidm_nav.world2d.world.World`, such as `noise_std=0.2`;
    `layout`, `room_size` and `goal_order` are for `PIDMNav-Custom-v0`.

    ## Starting elsewhere
    `reset(options={"state": vector})` begins the episode at a state vector (not an observation); `set_state(vector)`
    puts the running episode there.
    """

    def __init__(self, render_mode: RenderMode | None = None, **arguments: Any) -> None:
        self.world = world = World(**arguments)
        self.layout = world.map
        super().__init__(world.task or "custom", world.map.num_goals, render_mode)
        self.observation_space = world.observation_space
        self.action_space = world.action_space
        self._x, self._y = 0.0, 0.0
        self._goals: list[list[float]] = []
        self._state: State = np.empty(0, np.float32)  # empty until the first reset
        self._trace: list[tuple[float, float]] = []
        self._noise: list[list[float]] = []  # what is left of the block, the next step's last

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode, at `options["state"]` if it is given."""
        super().reset(seed=seed)
        if seed is not None:
            self._noise = []  # the rest of the block belongs to the old seed
        if options and "state" in options:
            self._begin(self.world.check_state(options["state"]))
        else:
            self._begin(self.world.spawn(self.np_random))
        if self.render_mode == "human":
            self.render()
        return self.world.observe(self._state), self._info(-1)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Move once."""
        action_x, action_y = read_action(action, ("velocity along x", "velocity along y"))
        if not self._noise:
            self._noise = self.world.draw_noise([self.np_random])[0, ::-1].tolist()
        noise_x, noise_y = self._noise.pop()
        physics, goal = self.world.physics, self._goals_reached
        self._x, self._y = x, y = physics.move(self._x, self._y, action_x, action_y, noise_x, noise_y)
        self._state[0], self._state[1] = x, y
        reached = goal < self.num_goals and physics.touches(x, y, *self._goals[goal])
        if reached:
            self._state[REACHED][goal] = 1.0
        if self.render_mode is not None:
            self._trace.append((x, y))
        return self.world.observe(self._state), *self._outcome(reached)

    def get_state(self) -> NDArray[np.float32]:
        """Return a copy of the state vector, whatever the observations are."""
        return self._state.copy()

    def set_state(self, state: Any) -> None:
        """Put the running episode at a state vector; an impossible one is a ValueError and changes nothing."""
        state = self.world.check_state(state)
        if not self._state.size:
            raise ValueError("set_state needs a running episode: call reset() first, or reset(options={'state': ...})")
        self._begin(state)

    def picture(self) -> NDArray[np.uint8]:
        """Draw the state and the trace of this episode."""
        from pidm_nav.world2d.render import render_state

        return render_state(self.layout, self._state, size=800, trace=np.array(self._trace))

    def _begin(self, state: State) -> None:
        """Put the agent into a state; what steps need of it is kept as plain numbers, which are faster than arrays."""
        position, goals, reached = split_state(state)
        self._x, self._y = position.tolist()
        self._goals = goals.tolist()
        self._state, self._goals_reached, self._trace = state, int(reached), [(self._x, self._y)]
