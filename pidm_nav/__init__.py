"""2D navigation tasks for Gymnasium, demonstrations, and imitation agents that predict the future.

Importing the package registers the ids `PIDMNav-FourRoom-v0`, `-Zigzag-`, `-Maze-`, `-Multiroom-` and `-Custom-v0`,
and in a 3D world, with the extra `3d`, `PIDMNav3D-FourRoom-v0`, `-Zigzag-`, `-Maze-`, `-Multiroom-` and `-Tour-v0`.
"""

import gymnasium as gym

from pidm_nav.tasks import TASKS, Task, get_task
from pidm_nav.world2d.env import NavEnv
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.vector import NavVectorEnv
from pidm_nav.world3d.levels import LEVELS

__version__ = "0.1.0"
__all__ = ["TASKS", "Layout", "NavEnv", "NavVectorEnv", "Task", "__version__", "get_task"]


def _register() -> None:
    entries: list[tuple[str, int | None, dict[str, str]]] = [
        (task.env_id, task.max_steps, {"task": task.name}) for task in TASKS.values()
    ]
    for level in LEVELS.values():
        if level.env_id not in gym.registry:
            gym.register(
                level.env_id,
                entry_point="pidm_nav.world3d.env:NavEnv3D",  # imports the engine when it is made
                max_episode_steps=level.max_steps,
                kwargs={"task": level.name},
            )
    for env_id, max_steps, arguments in [*entries, ("PIDMNav-Custom-v0", None, {})]:
        if env_id not in gym.registry:  # importing twice must not warn
            gym.register(
                env_id,
                entry_point="pidm_nav.world2d.env:NavEnv",
                vector_entry_point="pidm_nav.world2d.vector:NavVectorEnv",
                max_episode_steps=max_steps,
                kwargs=arguments,
            )


_register()
