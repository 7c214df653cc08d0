"""Behavior cloning (BC) against PIDM: the same demonstrations, the same evaluation episodes, several training seeds.

BC learns the action from the state. PIDM, a predictive inverse dynamics model, predicts a future state and learns which
action leads there. Each trains with its preset `fast`.

Run it:  python examples/05_bc_against_pidm.py [--fast] [--task maze] [--num-demos 3] [--seeds 3]
"""

import argparse
from typing import Any

import numpy as np

from pidm_nav import evaluate, load_demos, train

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="one seed and too few training steps for a comparison")
parser.add_argument("--task", default="four-room")
parser.add_argument("--num-demos", type=int, default=3)
parser.add_argument("--seeds", type=int, default=3)
arguments = parser.parse_args()
settings: dict[str, Any] = {"steps": 100} if arguments.fast else {}

pool = load_demos(f"{arguments.task}/human-like")
scores: dict[str, list[float]] = {"bc": [], "pidm": []}
for seed in range(1 if arguments.fast else arguments.seeds):
    demos = pool.sample(arguments.num_demos, seed=seed)
    for agent in scores:
        result = evaluate(train(agent, demos, seed=seed, **settings), arguments.task, episodes=50)
        scores[agent].append(result.mean_goal_ratio)
        print(f"  seed {seed}  {agent:5} {result.mean_goal_ratio:.2f} of the goals", flush=True)
means = ", ".join(f"{agent} {np.mean(values):.2f}" for agent, values in scores.items())
print(f"{arguments.task}, {arguments.num_demos} demonstrations, mean over {len(scores['bc'])} seed(s): {means}")
