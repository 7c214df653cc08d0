"""Stable-Baselines3's PPO on FourRoom, warm-started with the weights of a BC agent, which it then improves.

Rewards are too rare to learn from scratch. A BC agent finds most goals, and PPO begins with the very same network.
Run it:  python examples/06_sb3_warm_start.py [--fast]
"""

import argparse
from copy import deepcopy

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from pidm_nav import BC, evaluate, load_demos, train


class AgentFeatures(BaseFeaturesExtractor):
    """A BC agent's scaled observations and encoder."""

    def __init__(self, observation_space: spaces.Box, agent: BC) -> None:
        super().__init__(observation_space, agent.encoder.output_size)
        self.layers = torch.nn.Sequential(deepcopy(agent.scale), deepcopy(agent.encoder))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Embeddings; batch norm must not move while PPO compares its old policy with the new."""
        return self.layers.eval()(observations)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="a training that is too short to improve much")
arguments = parser.parse_args()
warm_up, steps = (2_048, 4_096) if arguments.fast else (20_000, 80_000)

demos = load_demos("four-room/human-like")[:3]
agent = train("bc", demos, steps=200 if arguments.fast else 600, encoder_sizes=(128, 128), head_sizes=(64,))
assert isinstance(agent, BC)
print(f"BC agent of {len(demos)} demonstrations: {evaluate(agent, 'four-room').mean_goal_ratio:.0%} of the goals")

networks = {"net_arch": {"pi": [], "vf": [64]}, "share_features_extractor": False, "log_std_init": -1.5}
networks |= {"features_extractor_class": AgentFeatures, "features_extractor_kwargs": {"agent": agent}}
networks |= {"ortho_init": False}  # it would overwrite the agent's weights
envs = make_vec_env("PIDMNav-FourRoom-v0", n_envs=8, seed=0)
settings = {"n_steps": 256, "batch_size": 512, "n_epochs": 5, "learning_rate": 1e-4, "target_kl": 0.02, "seed": 0}
ppo = PPO("MlpPolicy", envs, policy_kwargs=networks, **settings)
ppo.policy.action_net = deepcopy(agent.head)
ppo.policy.optimizer = torch.optim.Adam(ppo.policy.parameters())
first = envs.reset()
assert np.allclose(ppo.predict(first, deterministic=True)[0], agent.predict(first)[0], atol=1e-5)
actor = [*ppo.policy.action_net.parameters(), *ppo.policy.pi_features_extractor.parameters(), ppo.policy.log_std]
for learning, count in ((False, warm_up), (True, steps)):  # a critic that knows nothing would spoil the actor
    _ = [parameter.requires_grad_(learning) for parameter in actor]
    ppo.learn(count, reset_num_timesteps=False)
print(f"PPO, {warm_up + steps:,} steps on:    {evaluate(ppo, 'four-room').mean_goal_ratio:.0%} of the goals")
