"""torchrl collects rollouts from our environment, and a demonstration dataset comes out of them.

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

import pidm_nav  # noqa: F401, registers the ids
from pidm_nav.demos import DemoDataset, Episode
from pidm_nav.demos.experts.astar import AStarExpert

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="fewer episodes")
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
    """(T,) steps of torchrl, each with its `next`, as T+1 observations and T actions."""
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
