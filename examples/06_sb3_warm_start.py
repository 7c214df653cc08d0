"""Stable-Baselines3's PPO on FourRoom, warm-started with the weights of a BC agent, which it then improves.

Rewards are too rare to learn from scratch. A BC agent finds most goals, and PPO begins with the very same network.
Run it:  python examples/06_sb3_warm_start.py [--fast]
"""

import argparse

import numpy as np
from stable_baselines3.common.env_util import make_vec_env

from pidm_nav import BC, evaluate, load_agent, load_demos, train
from pidm_nav.agents.sb3 import CriticFirst, GoalRatio, to_agent, to_ppo

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="a training that is too short to improve much")
arguments = parser.parse_args()
warm_up, steps = (2_048, 4_096) if arguments.fast else (20_000, 80_000)

demos = load_demos("four-room/human-like")[:3]
agent = train("bc", demos, steps=200 if arguments.fast else 600, encoder_sizes=(128, 128), head_sizes=(64,))
assert isinstance(agent, BC)
print(f"BC agent of {len(demos)} demonstrations: {evaluate(agent, 'four-room').mean_goal_ratio:.0%} of the goals")

envs = make_vec_env("PIDMNav-FourRoom-v0", n_envs=8, seed=0)
ppo = to_ppo(agent, envs, seed=0)
first = envs.reset()
assert np.allclose(ppo.predict(first, deterministic=True)[0], agent.predict(first)[0], atol=1e-5)
ppo.learn(warm_up + steps, callback=[CriticFirst(warm_up), GoalRatio()])  # the ratio goes to SB3's log
print(f"PPO, {warm_up + steps:,} steps on:    {evaluate(ppo, 'four-room').mean_goal_ratio:.0%} of the goals")

to_agent(ppo).save("four-room-ppo")  # as an agent again, without pickle
print(
    f"saved and loaded:         {evaluate(load_agent('four-room-ppo'), 'four-room').mean_goal_ratio:.0%} of the goals"
)
