"""Collect rollouts from our environment with torchrl, and turn them into a dataset of demonstrations.

Needs torchrl:  pip install torchrl
Run it:  python examples/08_torchrl_rollouts.py [--fast]
"""

import argparse

import gymnasium as gym
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.envs import GymWrapper
from torchrl.envs.utils import check_env_specs

from pidm_nav import AStarExpert, DemoDataset, Episode

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="collect fewer episodes")
arguments = parser.parse_args()

env = GymWrapper(gym.make("PIDMNav-FourRoom-v0"))
check_env_specs(env, seed=0)

expert = AStarExpert("four-room")
policy = TensorDictModule(
    lambda observation: torch.from_numpy(expert.predict(observation.numpy())[0]),
    in_keys=["observation"],
    out_keys=["action"],
)


def to_episode(rollout: TensorDict) -> Episode:
    """Turn (T,) steps of torchrl, each with its `next`, into T+1 observations and T actions."""
    following = rollout["next"]
    return Episode(
        observations=torch.cat([rollout["observation"], following["observation"][-1:]]).numpy(),
        actions=rollout["action"].numpy(),
        rewards=following["reward"][:, 0].numpy(),
        terminated=bool(following["terminated"][-1]),
        truncated=bool(following["truncated"][-1] & ~following["terminated"][-1]),
    )


episodes = []
for index in range(2 if arguments.fast else 20):
    rollout = env.rollout(max_steps=1000, policy=policy)
    episodes.append(to_episode(rollout))
    print(f"episode {index}: {len(rollout)} steps, return {rollout['next', 'reward'].sum():.0f}")
print(DemoDataset("four-room", tuple(episodes), {"made_by": "A* through torchrl"}).summary())
