"""Thousands of mazes at once: the same physics as in one environment, with one array row per environment.

Every row equals the single environment with the same seed, including its noise; the end of this example checks that.

Run it:  python examples/02_vector_environment.py [--fast]
"""

import argparse
import time

import gymnasium as gym
import numpy as np

from pidm_nav import AStarExpert

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="use fewer environments")
arguments = parser.parse_args()
num_envs = 64 if arguments.fast else 2048

envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=num_envs)
expert = AStarExpert("maze")
observations, infos = envs.reset(seed=0)
finished = successes = steps = 0
begin = time.perf_counter()
while finished < num_envs:
    actions, _ = expert.predict(observations)  # (N, 2) for (N, 32)
    # A row whose episode has ended begins a new one in the next step, which ignores its action (Gymnasium's NEXT_STEP).
    observations, rewards, terminated, truncated, infos = envs.step(actions)
    finished += int((terminated | truncated).sum())
    successes += int(infos["is_success"][terminated].sum())
    steps += num_envs
seconds = time.perf_counter() - begin
print(f"{finished} episodes, {successes / finished:.0%} reach all {infos['num_goals'][0]} goals")
print(f"{steps:,} agent steps including the expert's planning: {steps / seconds:,.0f} per second")

# Take the same actions in row 3 and in a single environment with the seed 0 + 3.
env = gym.make("PIDMNav-Maze-v0")
rows, _ = envs.reset(seed=0)
one, _ = env.reset(seed=3)
rng = np.random.default_rng(0)
for _ in range(100):
    actions = rng.uniform(-1, 1, (num_envs, 2)).astype(np.float32)
    rows = envs.step(actions)[0]
    one = env.step(actions[3])[0]
    assert np.array_equal(rows[3], one)
print("row 3 equals the single environment with seed 3, bit for bit, for 100 steps")
