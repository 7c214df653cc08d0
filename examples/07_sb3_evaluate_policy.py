"""Our agents in Stable-Baselines3: `evaluate_policy` takes anything with its `predict`, an agent or the expert.

Run it:  python examples/07_sb3_evaluate_policy.py [--fast]
"""

import argparse

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from pidm_nav import AStarExpert, load_demos, train
from pidm_nav.seeds import TEST

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="train for fewer steps and evaluate fewer episodes")
arguments = parser.parse_args()
episodes = 4 if arguments.fast else 20
steps = 100 if arguments.fast else 2000

demos = load_demos("zigzag/human-like")[:5]
policies = {
    "A* expert": AStarExpert("zigzag"),
    "retrieval BC": train("retrieval-bc", demos),
    "BC": train("bc", demos, steps=steps),
    "PIDM": train("pidm", demos, steps=steps),
}
print(f"return over {episodes} episodes of Zigzag (6 goals, 1 each), as Stable-Baselines3 measures it")
for name, policy in policies.items():
    # evaluate_policy takes no seed: seed the environments, and every policy gets the same episodes.
    envs = make_vec_env("PIDMNav-Zigzag-v0", n_envs=4, seed=TEST.start)
    mean, deviation = evaluate_policy(policy, envs, n_eval_episodes=episodes)
    print(f"  {name:13} {mean:.2f} +- {deviation:.2f}")
