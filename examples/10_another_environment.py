"""Our agents in somebody else's environment, with discrete actions: BC and PIDM balance Gymnasium's cart pole.

A one-line controller demonstrates. Environments with Box actions work in the same way.

Run it:  python examples/10_another_environment.py [--fast]
"""

import argparse
from typing import Any

import numpy as np

from pidm_nav import collect, evaluate, train


class Controller:
    """Pushes the cart toward the side that the pole falls to."""

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return actions (N,), 0 for left and 1 for right, for observations (N, 4)."""
        position, speed, angle, turning = np.asarray(observation).T
        return (0.05 * position + 0.1 * speed + 2 * angle + turning > 0).astype(np.int64), state


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="train for fewer steps and evaluate fewer episodes")
fast = parser.parse_args().fast
settings: dict[str, Any] = {"steps": 150} if fast else {}

demos = collect(Controller(), "CartPole-v1", episodes=3)
policies = {"controller": Controller(), "BC": train("bc", demos, **settings), "PIDM": train("pidm", demos, **settings)}
for name, policy in policies.items():
    result = evaluate(policy, "CartPole-v1", episodes=5 if fast else 50)
    print(f"{name:10} balances for {result.returns.mean():.0f} of 500 steps")
