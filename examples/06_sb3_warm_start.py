"""Stable-Baselines3's PPO on FourRoom, warm-started with the weights of a BC agent, which it then improves.

From scratch the reward is too rare: 1 for each of four goals, far apart. A BC agent of a few demonstrations finds
some of them, and PPO begins where it stands: with the very same network.

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

from pidm_nav.agents import BC, TrainConfig, train
from pidm_nav.agents.policy import AgentConfig
from pidm_nav.demos import load_demos
from pidm_nav.evaluate import evaluate


class AgentFeatures(BaseFeaturesExtractor):
    """A BC agent's scaled observations and encoder."""

    def __init__(self, observation_space: spaces.Box, agent: BC) -> None:
        super().__init__(observation_space, agent.encoder.output_size)
        self.layers = torch.nn.Sequential(deepcopy(agent.scale), deepcopy(agent.encoder))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Embeddings; PPO compares the old policy with the new, so batch norm must not move."""
        return self.layers.eval()(observations)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="a training too short to improve much")
arguments = parser.parse_args()
steps = 4_096 if arguments.fast else 200_000

demos = load_demos("four-room/human-like")[:3]
config = TrainConfig(steps=300 if arguments.fast else 1000)
agent = train("bc", demos, config, options=AgentConfig(encoder_sizes=(128, 128), head_sizes=(64,)))
print(f"BC agent of {len(demos)} demonstrations: {evaluate(agent, 'four-room').mean_goal_ratio:.0%} of the goals")

features = {"features_extractor_class": AgentFeatures, "features_extractor_kwargs": {"agent": agent}}
networks = {"net_arch": {"pi": [], "vf": [64]}, "share_features_extractor": False, "log_std_init": -1.5}
networks["ortho_init"] = False  # it would overwrite the agent's weights
envs = make_vec_env("PIDMNav-FourRoom-v0", n_envs=8, seed=0)
ppo = PPO("MlpPolicy", envs, policy_kwargs=features | networks, n_steps=256, batch_size=256, learning_rate=1e-4, seed=0)
ppo.policy.action_net = deepcopy(agent.head)
ppo.policy.optimizer = torch.optim.Adam(ppo.policy.parameters(), lr=1e-4)
observations = envs.reset()
assert np.allclose(ppo.predict(observations, deterministic=True)[0], agent.predict(observations)[0], atol=1e-5)
ppo.learn(steps)
print(f"PPO, {steps:,} steps on:        {evaluate(ppo, 'four-room').mean_goal_ratio:.0%} of the goals")
