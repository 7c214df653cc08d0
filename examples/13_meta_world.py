"""Robot arms of Meta-World: its scripted experts demonstrate a task, and BC and delta-PIDM learn it.

Meta-World's own ids ignore the seed of `reset`, so this registers each task under an id that obeys it: object and
goal are somewhere else in every episode, observations show both, and an episode ends with success or after 200 steps.

Run it:  pip install metaworld packaging imageio;  python examples/13_meta_world.py [--fast]
"""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from metaworld import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE, policies, wrappers

from pidm_nav import collect, evaluate, train


class Seeded(gym.Wrapper[Any, Any, Any, Any]):
    """Obeys the seed of a reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Draw where object and goal are, by the seed if there is one."""
        if seed is not None:
            self.unwrapped.seed(seed)  # type: ignore[attr-defined]
        return self.env.reset(options=options)


def make(name: str, render_mode: str | None = None) -> gym.Env[Any, Any]:
    env = ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{name}-goal-observable"](seed=0, render_mode=render_mode)
    env._freeze_rand_vec, env.seeded_rand_vec = False, True
    return Seeded(wrappers.AutoTerminateOnSuccessWrapper(env))


def register(name: str) -> str:
    gym.register(f"MetaWorld-{name}", make, max_episode_steps=200, kwargs={"name": name})
    return f"MetaWorld-{name}"


class Expert:
    """Meta-World's scripted policy for a task, with noise on its actions so that its episodes vary."""

    def __init__(self, name: str, noise: float = 0.2) -> None:
        self.policy, self.noise, self.rng = policies.ENV_POLICY_MAP[name](), noise, np.random.default_rng(0)

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return actions (N, 4) for observations (N, 39)."""
        actions = np.clip([self.policy.get_action(row) for row in observation], -1, 1)
        return np.clip(actions + self.noise * self.rng.standard_normal(actions.shape), -1, 1), state


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="train for fewer steps and evaluate fewer episodes")
    steps, episodes = (200, 2) if parser.parse_args().fast else (1500, 20)
    task, demos = register("reach-v3"), collect(Expert("reach-v3"), "MetaWorld-reach-v3", episodes=25)
    for agent in ("bc", "delta-pidm"):
        print(agent, evaluate(train(agent, demos, steps=steps), task, episodes, metric="success rate"))
