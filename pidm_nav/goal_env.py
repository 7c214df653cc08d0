"""What environments with goals to reach in order share, in 2D and in 3D: infos, actions, pictures and a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pidm_nav.video import Window

RenderMode = Literal["human", "rgb_array"]


class GoalEnv(gym.Env[NDArray[Any], NDArray[np.float32]]):
    """An environment with goals to reach in order; subclasses say how it moves and how it is drawn."""

    metadata: dict[str, Any] = {"render_modes": list(get_args(RenderMode)), "render_fps": 30}  # noqa: RUF012
    title: str  # the window's

    def __init__(self, render_mode: RenderMode | None = None) -> None:
        if render_mode is not None and render_mode not in get_args(RenderMode):
            raise ValueError(f"render_mode is {render_mode!r}: choose 'human', 'rgb_array' or None")
        self.render_mode = render_mode
        self._goals_reached = 0
        self._window: Window | None = None

    def get_state(self) -> NDArray[np.float32]:
        """Return the state vector, whatever is observed."""
        raise NotImplementedError

    def picture(self) -> NDArray[np.uint8]:
        """Draw the environment as it is now."""
        raise NotImplementedError

    def render(self) -> NDArray[np.uint8] | None:
        """Return the RGB frame in `rgb_array` mode, or show it in the window in `human` mode."""
        if self.render_mode is None:
            gym.logger.warn("render() does nothing without a mode: give gym.make render_mode='rgb_array' or 'human'")
            return None
        frame = self.picture()
        if self.render_mode == "rgb_array":
            return frame
        if self._window is None:
            from pidm_nav.video import Window

            self._window = Window(f"pidm-nav: {self.title}")
        self._window.show(frame, fps=self.metadata["render_fps"])
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a copy opens its own window

    def goal_info(self, num_goals: int, reached_goal: int) -> dict[str, Any]:
        """Return the infos about goals; `reached_goal` is the one that this step reached, or -1."""
        return {
            "goals_reached": self._goals_reached,
            "num_goals": num_goals,
            "goal_ratio": self._goals_reached / num_goals,
            "is_success": self._goals_reached == num_goals,
            "reached_goal": reached_goal,
        }


def read_action(action: Any, components: tuple[str, ...]) -> list[float]:
    """Return an action as floats within [-1, 1], or refuse one of another shape or with a NaN."""
    array = np.asarray(action, dtype=np.float64)
    if array.shape != (len(components),):
        raise ValueError(
            f"the action has shape {array.shape}: it must be ({len(components)},), for {', '.join(components)}"
        )
    values: list[float] = array.tolist()
    if any(value != value for value in values):
        raise ValueError(f"the action is {values}: NaN is not a number to move by")
    return [min(max(value, -1.0), 1.0) for value in values]
