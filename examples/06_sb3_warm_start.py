"""Stable-Baselines3: `evaluate_policy` takes our agents, and PPO starts from the weights of a BC agent.

Rewards are too sparse to learn from scratch. A small BC agent, trained briefly, reaches half of the goals; PPO begins
with the same network and improves it.

Run it:  python examples/06_sb3_warm_start.py [--fast]
"""

import argparse
from typing import Any

import numpy as np
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from pidm_nav import BC, AStarExpert, load_agent, load_demos, train
from pidm_nav.agents.sb3 import CriticFirst, GoalRatio, to_agent, to_ppo
from pidm_nav.seeds import TEST

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="train too briefly to improve much")
fast = parser.parse_args().fast
warm_up, steps = (2_048, 4_096) if fast else (20_000, 80_000)


def show(name: str, policy: Any) -> None:
    """Print the return as Stable-Baselines3 measures it; equal seeds give every policy the same episodes."""
    envs = make_vec_env("PIDMNav-FourRoom-v0", n_envs=4, seed=TEST.start)
    mean, deviation = evaluate_policy(policy, envs, n_eval_episodes=4 if fast else 48)
    print(f"{name:16} {mean:.2f} +- {deviation:.2f} of 4 goals")


demos = load_demos("four-room/human-like")[:3]
agent = train("bc", demos, steps=200 if fast else 600, encoder_sizes=(128, 128), head_sizes=(64,))
assert isinstance(agent, BC)
show("A* expert", AStarExpert("four-room"))
show("BC", agent)

envs = make_vec_env("PIDMNav-FourRoom-v0", n_envs=8, seed=0)
ppo = to_ppo(agent, envs, seed=0)
first = envs.reset()
assert np.allclose(ppo.predict(first, deterministic=True)[0], agent.predict(first)[0], atol=1e-5)
ppo.learn(warm_up + steps, callback=[CriticFirst(warm_up), GoalRatio()])  # the ratio goes to SB3's log
show("PPO", ppo)

to_agent(ppo).save("four-room-ppo")  # as an agent again, without pickle
show("saved and loaded", load_agent("four-room-ppo"))
