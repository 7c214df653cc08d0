"""Our agents on somebody else's environment: any Gymnasium task with Box observations and actions will do.

A one-line controller rocks Gymnasium's mountain car up its hill; BC and PIDM learn from a few of its episodes.

Run it:  python examples/10_another_environment.py [--fast]
"""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from pidm_nav.agents import TrainConfig, train
from pidm_nav.demos import DemoDataset, Episode

TASK = "MountainCarContinuous-v0"


class Controller:
    """Push the way the car is rolling."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Actions (..., 1) for observations (..., 2)."""
        velocity = np.asarray(observation)[..., 1:]
        return np.clip(60 * velocity + 0.2, -1, 1).astype(np.float32), state


def play(env: gym.Env[Any, Any], player: Controller, seed: int) -> Episode:
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards = [observation], [], []
    terminated = truncated = False
    while not (terminated or truncated):
        action, _ = player.predict(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        actions.append(action)
        rewards.append(reward)
    return Episode(np.array(observations), np.array(actions), np.array(rewards), terminated, truncated, seed)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="a shorter training")
arguments = parser.parse_args()

env, controller = gym.make(TASK), Controller()
demos = DemoDataset(TASK, tuple(play(env, controller, seed) for seed in range(5)), {"made_by": "controller"})
print(demos.summary())
config = TrainConfig(steps=150 if arguments.fast else 1000)
policies: dict[str, Any] = {"controller": controller}
policies |= {"BC": train("bc", demos, config), "PIDM": train("pidm", demos, config)}
for name, policy in policies.items():
    envs = make_vec_env(TASK, n_envs=5, seed=1000)
    mean, deviation = evaluate_policy(policy, envs, n_eval_episodes=5 if arguments.fast else 50)
    print(f"{name:10} return {mean:6.1f} +- {deviation:4.1f}   (100 for the hilltop, less for effort)")
