"""Stable-Baselines3: continue training an agent with PPO, and evaluate models of SB3.

`evaluate` and `collect` accept most models of SB3 as they are. `to_policy` wraps those that were trained on normalized,
stacked or Dict observations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, eval_mode, same_space
from pidm_nav.agents.heads import BoxActions
from pidm_nav.tasks import unflatten

# small updates, as the initial policy is good already
SETTINGS: dict[str, Any] = {"n_steps": 256, "batch_size": 512, "n_epochs": 5, "learning_rate": 1e-4, "target_kl": 0.02}
# the critic has separate layers; orthogonal initialization would overwrite the agent's weights
NETWORKS: dict[str, Any] = {"net_arch": {"pi": [], "vf": [256, 64]}, "ortho_init": False}
FIRST_LOG_STD = -1.5  # of actions, relative to half the width of their space


class ScaledStates(BaseFeaturesExtractor):
    """The agent's scaling of observations, shared by actor and critic."""

    def __init__(self, observation_space: spaces.Box, agent: Agent) -> None:
        super().__init__(observation_space, agent.state_size)
        self.scale = agent.scale

    def forward(self, observations: Tensor) -> Tensor:
        """Return scaled states (N, D)."""
        states: Tensor = self.scale(observations)
        return states


class Actor(nn.Module):
    """An agent as PPO's actor, sharing the agent's modules."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, states: Tensor) -> Tensor:
        """Return the means (N, A) of continuous actions, or logits (N, n) of discrete ones."""
        with eval_mode(self.agent):  # batch norm must not change while PPO compares old and new policy
            outputs = self.agent.outputs(states)
        return self.agent.actions.scale.inverse(outputs) if isinstance(self.agent.actions, BoxActions) else outputs


class AgentPolicy(ActorCriticPolicy):
    """Actor-critic policy with an agent as the actor and a separate critic."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        agent: Agent = self.features_extractor_kwargs["agent"]
        self.action_net = Actor(agent)
        if isinstance(agent.actions, BoxActions):
            self.log_std = nn.Parameter(FIRST_LOG_STD + agent.actions.scale.width.log())
        make_optimizer: Any = self.optimizer_class
        self.optimizer = make_optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def actor(self) -> list[nn.Parameter]:
        """Return the parameters of the actor."""
        noise = [self.log_std] if isinstance(getattr(self, "log_std", None), nn.Parameter) else []
        return [*self.action_net.parameters(), *noise]


def to_ppo(agent: Agent, env: Any, **settings: Any) -> PPO:
    """Return PPO with the agent as its actor, for further training in an environment of Gymnasium or SB3.

    PPO shares the agent's modules, so training PPO trains the agent, and supervised steps can alternate with PPO's. A
    PIDM's predictor is called without memory and is not trained; its inverse dynamics model is. Train with the callback
    `CriticFirst`. The settings are PPO's; the defaults suit a good initial policy.
    """
    if not isinstance(agent, Agent) or agent.vision is not None:
        raise ValueError(f"{agent!r} cannot be PPO's actor: give an agent that observes states, not images")
    for own, given in ((agent.observation_space, env.observation_space), (agent.action_space, env.action_space)):
        if not same_space(own, given):
            task = agent.description.get("task")
            give = f"make one with find_task('{task}').make()" if task else "give another one"
            raise ValueError(f"the agent was trained for {own}, and your environment has {given}: {give}")
    if isinstance(agent.action_space, spaces.Discrete) and agent.action_space.start != 0:
        raise ValueError(f"PPO needs discrete actions from 0, not {agent.action_space}: wrap the environment")
    _check_actor(agent)
    features = {"features_extractor_class": ScaledStates, "features_extractor_kwargs": {"agent": agent}}
    networks = {**NETWORKS, **features, **settings.pop("policy_kwargs", {})}
    return PPO(AgentPolicy, env, policy_kwargs=networks, **{**SETTINGS, **settings})


@torch.no_grad()
def _check_actor(agent: Agent) -> None:
    """Raise ValueError for agents without `outputs`, or whose first actions are not those of their outputs."""
    states = torch.linspace(-1, 1, 8, device=agent.scale.center.device)[:, None].repeat(1, agent.state_size)
    raw = agent.scale.inverse(states).cpu().numpy()
    with eval_mode(agent):
        outputs = agent.outputs(states)
        actions = agent.act(raw, None, np.ones(len(raw), dtype=bool))[0]
        near: Any = {"rtol": 1e-3, "atol": 1e-3 * np.abs(actions).max()}
        one_each = outputs.shape == (len(states), agent.actions.size)
        if not one_each or not np.allclose(agent.actions.decode(outputs), actions, **near):
            raise ValueError(
                f"{agent.name} does not act by its outputs, which PPO would train: define outputs(states) that "
                "returns those of one action, or give an agent such as bc"
            )


def to_agent(ppo: PPO) -> Agent:
    """Return the agent that PPO, made by `to_ppo`, has trained; the agent acts without noise."""
    policy: Any = ppo.policy
    if not isinstance(ppo.policy, AgentPolicy):
        raise ValueError(f"the policy {type(policy).__name__} holds no agent: give a PPO that to_ppo made")
    agent: Agent = policy.action_net.agent
    agent.description |= {"ppo": {"steps": ppo.num_timesteps}}
    return agent.eval()


class ModelPolicy:
    """Policy of an SB3 model, which converts vectors to the observations that the model was trained on."""

    def __init__(self, model: BaseAlgorithm, normalizer: VecNormalize | None) -> None:
        self.model, self.normalizer = model, normalizer
        self.settings = {"expert": type(model).__name__}  # named in datasets

    def predict(
        self, observation: NDArray[Any], state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], Any]:
        """Return actions (N, A) for observations (N, D) that may be flattened."""
        space: Any = self.model.observation_space
        model_input: Any = observation
        if isinstance(space, spaces.Dict) or len(space.shape) == 2:
            model_input = unflatten(space, observation)
        if self.normalizer is not None:
            model_input = self.normalizer.normalize_obs(model_input)
        return self.model.predict(model_input, state, episode_start, deterministic)


def to_policy(model: BaseAlgorithm, normalizer: VecNormalize | None = None) -> ModelPolicy:
    """Return a policy for `evaluate` and `collect` from a model of normalized, stacked or Dict observations.

    The normalizer defaults to the model's; a model from a file has none.
    """
    return ModelPolicy(model, normalizer or model.get_vec_normalize_env())


class CriticFirst(BaseCallback):
    """Callback that trains only the critic for the first `steps` steps: an untrained critic would spoil the actor."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.waiting: list[nn.Parameter] = []  # parameters of the actor to train later

    def _on_training_start(self) -> None:
        policy: Any = self.model.policy
        self.waiting = [parameter for parameter in policy.actor() if parameter.requires_grad]
        self._train_actor(False)

    def _on_rollout_start(self) -> None:
        self._train_actor(self.num_timesteps >= self.steps)

    def _on_training_end(self) -> None:
        self._train_actor(True)

    def _train_actor(self, learning: bool) -> None:
        for parameter in self.waiting:
            parameter.requires_grad_(learning)

    def _on_step(self) -> bool:
        return True


class GoalRatio(BaseCallback):
    """Callback that logs the mean fraction of goals reached as `rollout/goal_ratio`."""

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done and "goal_ratio" in info:
                self.logger.record_mean("rollout/goal_ratio", info["goal_ratio"])
        return True
