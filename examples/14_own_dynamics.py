"""My own dynamics in ten lines: wind, momentum and a slippery floor, for one environment and for thousands.

A class with the method `change_velocity` is mixed with `NavEnv` and `NavVectorEnv`. Positions and velocities are arrays
(2,) in the one and (N, 2) in the other, so the same line of NumPy does for both. `change_reward`, `observe` and
`make_observation_space` are changed in the same way: see docs/own_world.md.

Run it:  python examples/14_own_dynamics.py [--fast]
"""

import argparse

import gymnasium as gym
import numpy as np

from pidm_nav import AStarExpert, NavEnv, NavVectorEnv

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="play fewer episodes")
arguments = parser.parse_args()


class Storm:
    """Wind from above, and momentum on the slippery right half of the room."""

    def change_velocity(self, position, velocity, last_velocity):
        """Return the velocity to move with, where 1 is 20 px per step."""
        slippery = position[..., :1] > 400
        velocity = np.where(slippery, 0.4 * velocity + 0.6 * last_velocity, velocity)
        return velocity + np.array([0.0, 0.3])


class StormyEnv(Storm, NavEnv):
    """One environment."""


class StormyVectorEnv(Storm, NavVectorEnv):
    """Thousands of them."""


gym.register(
    "StormyMaze-v0", StormyEnv, vector_entry_point=StormyVectorEnv, max_episode_steps=300, kwargs={"task": "maze"}
)

episodes = 20 if arguments.fast else 500
for env_id in ("PIDMNav-Maze-v0", "StormyMaze-v0"):
    envs = gym.make_vec(env_id, num_envs=episodes, autoreset_mode="Disabled")
    expert = AStarExpert("maze")
    observations, infos = envs.reset(seed=0)
    ended, lengths = np.zeros(episodes, bool), np.zeros(episodes)
    while not ended.all():
        lengths += ~ended
        observations, _, terminated, truncated, infos = envs.step(expert.predict(observations)[0])
        ended = terminated | truncated
    reached = infos["goal_ratio"].mean()
    print(f"{env_id}: the A* expert reaches {reached:.0%} of the goals in {lengths.mean():.0f} steps")
