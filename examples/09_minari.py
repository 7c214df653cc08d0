"""Convert demonstrations to Minari, the dataset store of the Gymnasium family, and back.

Needs the extra:  pip install "pidm-nav[minari]"
Run it:  python examples/09_minari.py [--fast] [--store minari_store]
"""

import argparse
import os
from pathlib import Path

import numpy as np

from pidm_nav import AStarExpert, collect, load_demos, to_minari

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="collect fewer episodes")
parser.add_argument(
    "--store", default="minari_store", help="folder to use as the store, so that your own Minari store stays as it is"
)
arguments = parser.parse_args()
os.environ["MINARI_DATASETS_PATH"] = str(Path(arguments.store).absolute())
import minari  # noqa: E402, after the store is set

demos = collect(AStarExpert("maze"), "maze", episodes=2 if arguments.fast else 20)
to_minari(demos, "pidmnav/maze/astar-v0", force=True)

# Anyone can read it with Minari alone, including the environment.
stored = minari.load_dataset("pidmnav/maze/astar-v0")
env = stored.recover_environment()
print(f"Minari: {stored.total_episodes} episodes, {stored.total_steps} steps, made in {env.spec.id}")

# And so can we: "minari:ID" works wherever demonstrations are asked for.
again = load_demos("minari:pidmnav/maze/astar-v0")
for before, after in zip(demos, again, strict=True):
    assert np.array_equal(before.observations, after.observations) and np.array_equal(before.actions, after.actions)
print(f"read back, bitwise identical: {again.summary()}")

# Replay an episode in the recovered environment, from its seed.
observation, _ = env.reset(seed=again[0].seed)
for action in again[0].actions:
    observation, _, terminated, _, info = env.step(action)
assert np.array_equal(observation, again[0].observations[-1])
print(f"replayed: {info['goals_reached']} of {info['num_goals']} goals, as recorded")
