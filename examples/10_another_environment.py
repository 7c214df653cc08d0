"""Our agents in somebody else's environment: any Gymnasium task with Box observations and actions will do.

A one-line controller rocks Gymnasium's mountain car up its hill; BC and PIDM learn from a few of its episodes.

Run it:  python examples/10_another_environment.py [--fast]
"""

import argparse
from typing import Any

import numpy as np

from pidm_nav import collect, evaluate, train

TASK = "MountainCarContinuous-v0"


class Controller:
    """Pushes the way the car is rolling."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Return actions (..., 1) for observations (..., 2)."""
        velocity = np.asarray(observation)[..., 1:]
        return np.clip(60 * velocity + 0.2, -1, 1).astype(np.float32), state


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="train for fewer steps and evaluate fewer episodes")
arguments = parser.parse_args()
steps, episodes = (150, 5) if arguments.fast else (1000, 50)

demos = collect(Controller(), TASK, episodes=5)
print(demos)
policies: dict[str, Any] = {"controller": Controller()}
policies |= {"BC": train("bc", demos, steps=steps), "PIDM": train("pidm", demos, steps=steps)}
for name, policy in policies.items():
    result = evaluate(policy, TASK, episodes)
    mean, deviation = result.returns.mean(), result.returns.std()
    print(f"{name:10} return {mean:6.1f} +- {deviation:4.1f}   (100 for the hilltop, less for effort)")
