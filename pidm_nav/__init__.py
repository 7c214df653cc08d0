"""2D navigation tasks for Gymnasium, demonstrations, and imitation agents that predict the future.

Importing the package registers the ids `PIDMNav-FourRoom-v0`, `-Zigzag-`, `-Maze-`, `-Multiroom-` and `-Custom-v0`.
"""

import gymnasium as gym

from pidm_nav.env import NavEnv
from pidm_nav.layout import Layout
from pidm_nav.tasks import TASKS, Task, get_task
from pidm_nav.vector import NavVectorEnv

__version__ = "0.1.0"
__all__ = ["TASKS", "Layout", "NavEnv", "NavVectorEnv", "Task", "__version__", "get_task"]


def _register() -> None:
    entry_points = {
        "entry_point": "pidm_nav.env:NavEnv",
        "vector_entry_point": "pidm_nav.vector:NavVectorEnv",
    }
    for task in TASKS.values():
        if task.env_id not in gym.registry:
            gym.register(
                task.env_id, max_episode_steps=task.max_steps, kwargs={"task": task.name}, **entry_points
            )
    if "PIDMNav-Custom-v0" not in gym.registry:
        gym.register("PIDMNav-Custom-v0", **entry_points)


_register()
