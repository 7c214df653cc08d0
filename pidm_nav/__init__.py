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
    entries: list[tuple[str, int | None, dict[str, str]]] = [
        (task.env_id, task.max_steps, {"task": task.name}) for task in TASKS.values()
    ]
    for env_id, max_steps, arguments in [*entries, ("PIDMNav-Custom-v0", None, {})]:
        if env_id not in gym.registry:  # importing twice must not warn
            gym.register(
                env_id,
                entry_point="pidm_nav.env:NavEnv",
                vector_entry_point="pidm_nav.vector:NavVectorEnv",
                max_episode_steps=max_steps,
                kwargs=arguments,
            )


_register()
