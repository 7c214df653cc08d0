"""OrderedGoalsEnv: base class of the 2D and 3D environments, with infos, rewards, actions and rendering."""

from __future__ import annotations

from math import isnan
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pidm_nav.video import Window

RenderMode = Literal["human", "rgb_array"]


class OrderedGoalsEnv(gym.Env[NDArray[Any], NDArray[Any]]):
    """Base class of environments with goals to reach in order; subclasses define dynamics and pictures."""

    metadata: dict[str, Any] = {"render_modes": list(get_args(RenderMode)), "render_fps": 30}  # noqa: RUF012

    def __init__(self, title: str, num_goals: int, render_mode: RenderMode | None) -> None:
        if render_mode is not None and render_mode not in get_args(RenderMode):
            raise ValueError(f"render_mode is {render_mode!r}: choose 'human', 'rgb_array' or None")
        self.title, self.num_goals, self.render_mode = title, num_goals, render_mode
        self._goals_reached = 0
        self._window: Window | None = None

    def get_state(self) -> NDArray[np.float32]:
        """Return a copy of the state vector, for any type of observations."""
        raise NotImplementedError

    def picture(self) -> NDArray[np.uint8]:
        """Draw the current state."""
        raise NotImplementedError

    def render(self) -> NDArray[np.uint8] | None:
        """Return the RGB frame in `rgb_array` mode, or show it in the window in `human` mode."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a mode: call gym.make with render_mode='rgb_array' or 'human'")
            return None
        frame = self.picture()
        if self.render_mode == "rgb_array":
            return frame
        if self._window is None:
            self._window = Window(f"pidm-nav: {self.title}")
        self._window.show(frame, fps=self.metadata["render_fps"])
        return None

    def close(self) -> None:
        """Close the window if it is open."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a copy opens its own window

    def _info(self, reached_goal: int) -> dict[str, Any]:
        """Return the infos about goals; `reached_goal` is the goal reached in this step, or -1."""
        return {
            "goals_reached": self._goals_reached,
            "num_goals": self.num_goals,
            "goal_ratio": self._goals_reached / self.num_goals,
            "is_success": self._goals_reached == self.num_goals,
            "reached_goal": reached_goal,
        }

    def _outcome(self, reached: bool) -> tuple[float, bool, bool, dict[str, Any]]:
        """Update the reached goals, and return reward, terminated, truncated and info."""
        reached_goal = self._goals_reached if reached else -1
        self._goals_reached += reached
        if self.render_mode == "human":
            self.render()
        return float(reached), self._goals_reached == self.num_goals, False, self._info(reached_goal)


def read_action(action: Any, components: tuple[str, ...]) -> list[float]:
    """Return an action as floats clipped to [-1, 1]; a wrong shape or a NaN raises ValueError."""
    array = np.asarray(action, dtype=np.float64)
    if array.shape != (len(components),):
        names = ", ".join(components)
        raise ValueError(f"the action has shape {array.shape}: it must be ({len(components)},) for {names}")
    values: list[float] = array.tolist()
    for value in values:
        if not -1.0 <= value <= 1.0:  # also if NaN
            if any(map(isnan, values)):
                raise ValueError(f"the action {values} has a NaN: give finite numbers")
            return [min(max(each, -1.0), 1.0) for each in values]
    return values
