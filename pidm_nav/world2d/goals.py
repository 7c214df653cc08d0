"""Goal-conditioned observations, for hindsight experience replay (HER)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.world2d.env import NavEnv
from pidm_nav.world2d.layout import MARGIN
from pidm_nav.world2d.physics import touches_many
from pidm_nav.world2d.state import current_goals, split_state


class GoalObservation(gym.ObservationWrapper[dict[str, Any], Any, Any], gym.utils.RecordConstructorArgs):
    """Wrapper with the Dict observations of Gymnasium-Robotics' goal environments, for 2D tasks.

    - `observation`: the environment's observation; with `observe_goals=False` it is the position, which relabeled
      goals cannot contradict.
    - `achieved_goal`: the agent's position.
    - `desired_goal`: the position of the current goal, or of the last one at the end.

    The reward of a step is for the desired goal before the step, because the step that reaches a goal already returns
    the next one: `reward == compute_reward(after["achieved_goal"], before["desired_goal"], info)`.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        if not isinstance(env.unwrapped, NavEnv):
            raise ValueError(f"GoalObservation cannot wrap {env}: wrap a 2D task of pidm-nav")
        high = np.array(env.unwrapped.layout.room_size, np.float32) + MARGIN
        place = spaces.Box(np.full(2, -MARGIN, np.float32), high)
        parts = {"observation": env.observation_space, "achieved_goal": place, "desired_goal": place}
        self.observation_space = spaces.Dict(parts)
        self._nav = env.unwrapped

    def observation(self, observation: Any) -> dict[str, Any]:
        """Return the observation with the positions of the agent and the current goal."""
        position, goals, reached = split_state(self._nav.get_state()[None])
        places = np.stack([position[0], current_goals(goals, reached)[0]]).astype(np.float32)
        return {"observation": observation, "achieved_goal": places[0], "desired_goal": places[1]}

    def compute_reward(self, achieved_goal: NDArray[Any], desired_goal: NDArray[Any], info: Any) -> Any:
        """Return 1 if the agent at `achieved_goal` touches `desired_goal`, else 0; both are (2,) or (N, 2)."""
        achieved, desired = (np.atleast_2d(np.asarray(each, np.float64)) for each in (achieved_goal, desired_goal))
        rewards = touches_many(np.round(achieved, 3), np.rint(desired)).astype(np.float64)
        return float(rewards[0]) if np.ndim(achieved_goal) == 1 else rewards
