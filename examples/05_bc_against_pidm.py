"""Behavior cloning against PIDM: the same few demonstrations, the same evaluation episodes, several seeds.

BC learns the action from the state. PIDM, a predictive inverse dynamics model, predicts a future state and learns which
action leads there. Each trains with its own `fast` preset, but for the same number of steps.

Run it:  python examples/05_bc_against_pidm.py [--fast] [--task maze] [--num-demos 3] [--seeds 3]
"""

import argparse

import numpy as np

from pidm_nav import evaluate, load_demos, train

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="one seed and a training that is too short for a good agent")
parser.add_argument("--task", default="four-room")
parser.add_argument("--num-demos", type=int, default=3)
parser.add_argument("--seeds", type=int, default=3)
arguments = parser.parse_args()
steps = 100 if arguments.fast else 2000
seeds = 1 if arguments.fast else arguments.seeds

pool = load_demos(f"{arguments.task}/human-like")
print(f"{arguments.task}, {arguments.num_demos} demonstrations, {steps} training steps")
means: dict[str, list[float]] = {"bc": [], "pidm": []}
for seed in range(seeds):
    demos = pool.sample(arguments.num_demos, seed=seed)
    for agent, scores in means.items():
        policy = train(agent, demos, steps=steps, seed=seed)
        result = evaluate(policy, arguments.task, episodes=50)
        low, high = result.interval
        scores.append(result.mean_goal_ratio)
        print(f"  seed {seed}  {agent:5} {result.mean_goal_ratio:.2f} of the goals ({low:.2f} to {high:.2f}), ", end="")
        print(f"all of them in {result.success_rate:.0%} of the episodes", flush=True)
bc, pidm = np.mean(means["bc"]), np.mean(means["pidm"])
print(f"mean over {seeds} seed(s): BC {bc:.2f}, PIDM {pidm:.2f} of the goals")
if arguments.fast:
    print("(--fast trains too little to compare the two: leave it out, or see pidm-nav quickstart)")
