"""2D and 3D navigation tasks for Gymnasium, demonstrations, and imitation agents that predict the future.

Importing the package registers the ids `PIDMNav-FourRoom-v0`, `-Zigzag-`, `-Maze-`, `-Multiroom-` and `-Custom-v0`,
and in a 3D world, with the extra `3d`, `PIDMNav3D-FourRoom-v0`, `-Zigzag-`, `-Maze-`, `-Multiroom-` and `-Tour-v0`.
The public names of `pidm_nav.demos`, `pidm_nav.analysis` and `pidm_nav.agents` are names of the package too; they are
imported when they are first used, so that `import pidm_nav` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from pidm_nav.rollouts.comparison import Comparison
from pidm_nav.rollouts.episode import Episode
from pidm_nav.rollouts.evaluation import EvalResult
from pidm_nav.rollouts.rollout import Policy, Rollout, rollout
from pidm_nav.tasks import PAPER_TASKS, TASKS, Task, find_task
from pidm_nav.version import __version__
from pidm_nav.world2d.env import NavEnv
from pidm_nav.world2d.goals import GoalObservation
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.vector import NavVectorEnv

if TYPE_CHECKING:  # so that type checkers know every name, and that there are no others
    from pidm_nav.agents import *  # noqa: F403
    from pidm_nav.analysis import *  # noqa: F403
    from pidm_nav.demos import *  # noqa: F403
    from pidm_nav.policies import evaluate
else:

    def __getattr__(name: str) -> Any:
        """Import what `pidm_nav.demos`, `.policies`, `.analysis` or `.agents` exports."""
        if name in __all__:
            modules = ("pidm_nav.demos", "pidm_nav.policies", "pidm_nav.analysis", "pidm_nav.agents")
            for module in map(import_module, modules):  # the later ones only if need be
                if name in module.__all__:
                    return getattr(module, name)
        raise AttributeError(f"module 'pidm_nav' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


__all__ = [
    "AGENTS",
    "BC",
    "IDMS",
    "PAPER_TASKS",
    "PIDM",
    "PREDICTORS",
    "TASKS",
    "AStarExpert",
    "Advice",
    "Agent",
    "AgentConfig",
    "Batch",
    "Chunking",
    "ChunkingConfig",
    "Comparison",
    "CorrectiveBC",
    "CorrectiveConfig",
    "DeltaIDM",
    "DeltaPIDM",
    "DemoDataset",
    "Diffusion",
    "DiffusionConfig",
    "Episode",
    "EvalResult",
    "Fit",
    "Follow",
    "GoalObservation",
    "HumanLikePlayer",
    "InverseDynamics",
    "Layout",
    "Learned",
    "LinearIDM",
    "Lookup",
    "NavEnv",
    "NavVectorEnv",
    "Nearest",
    "Neighbors",
    "PIDMConfig",
    "Policy",
    "PredictiveAgent",
    "Predictor",
    "Preset",
    "Pull",
    "RandomPlay",
    "RecurrentBC",
    "RecurrentConfig",
    "RecurrentPIDM",
    "RecurrentPIDMConfig",
    "RetrievalBC",
    "Rollout",
    "Sampling",
    "StateIDM",
    "Summary",
    "Task",
    "TimeIndexed",
    "TrainConfig",
    "TrainingData",
    "Transitions",
    "__version__",
    "advise",
    "choose_preset",
    "collect",
    "collect_random_play",
    "dagger",
    "edit_demos",
    "evaluate",
    "find_task",
    "from_minari",
    "load_agent",
    "load_demos",
    "load_plugin",
    "make_expert",
    "push_to_hub",
    "register",
    "rollout",
    "save_demos",
    "to_minari",
    "train",
]


def _register() -> None:
    for task in TASKS.values():
        if task.env_id not in gym.registry:  # importing twice must not warn
            gym.register(
                task.env_id,
                entry_point=task.entry_point,
                vector_entry_point=task.vector_entry_point,
                max_episode_steps=None if task.name == "custom" else task.max_steps,
                kwargs={} if task.name == "custom" else {"task": task.name},
            )


_register()
