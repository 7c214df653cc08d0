"""Stable-Baselines3: PPO continues training an agent, which stays the agent that it is.

Most models of SB3 need no wrapper to be evaluated, collected from or compared: they have `predict`, which is all that
`evaluate` and `collect` ask for. `to_policy` is for those that know normalized, stacked or Dict observations.
"""

from __future__ import annotations

from typing import Any

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

# Small steps, as the first policy is good already.
SETTINGS: dict[str, Any] = {"n_steps": 256, "batch_size": 512, "n_epochs": 5, "learning_rate": 1e-4, "target_kl": 0.02}
# The critic has layers of its own, and orthogonal weights would overwrite the agent's.
NETWORKS: dict[str, Any] = {"net_arch": {"pi": [], "vf": [256, 64]}, "ortho_init": False}
FIRST_LOG_STD = -1.5  # of the actions, in half widths of their space


class ScaledStates(BaseFeaturesExtractor):
    """The agent's scale of observations, which actor and critic share."""

    def __init__(self, observation_space: spaces.Box, agent: Agent) -> None:
        super().__init__(observation_space, agent.state_size)
        self.scale = agent.scale

    def forward(self, observations: Tensor) -> Tensor:
        """Return scaled states (N, D)."""
        states: Tensor = self.scale(observations)
        return states


class Actor(nn.Module):
    """An agent as PPO's actor: its own modules, not copies of them."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, states: Tensor) -> Tensor:
        """Return the means (N, A) of continuous actions, or logits (N, n) of discrete ones."""
        with eval_mode(self.agent):  # batch norm must not move while PPO compares its old policy with the new
            outputs = self.agent.outputs(states)
        return self.agent.actions.scale.inverse(outputs) if isinstance(self.agent.actions, BoxActions) else outputs


class AgentPolicy(ActorCriticPolicy):
    """An actor that is an agent, and a critic of its own."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        agent: Agent = self.features_extractor_kwargs["agent"]
        self.action_net = Actor(agent)
        if isinstance(agent.actions, BoxActions):
            self.log_std = nn.Parameter(FIRST_LOG_STD + agent.actions.scale.width.log())
        make_optimizer: Any = self.optimizer_class
        self.optimizer = make_optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def actor(self) -> list[nn.Parameter]:
        """Return the parameters that decide the actions."""
        noise = [self.log_std] if isinstance(getattr(self, "log_std", None), nn.Parameter) else []
        return [*self.action_net.parameters(), *noise]


def to_ppo(agent: Agent, env: Any, **settings: Any) -> PPO:
    """Return PPO that acts as the agent does, to be trained further in an environment of Gymnasium or SB3.

    The agent's modules are PPO's actor, so the agent improves with PPO, and gradient steps of both kinds can take
    turns. A PIDM's predictor stays part of the policy: it is asked without memory, and what is trained is the inverse
    dynamics model. Train with the callback `CriticFirst`. The settings are PPO's; those that are not given suit a good
    first policy.
    """
    if not isinstance(agent, Agent) or agent.vision is not None:
        raise ValueError(f"{agent!r} cannot become PPO's actor: give an agent that observes states, not images")
    for own, given in ((agent.observation_space, env.observation_space), (agent.action_space, env.action_space)):
        if not same_space(own, given):
            task = agent.description.get("task")
            give = f"make one with find_task('{task}').make()" if task else "give another one"
            raise ValueError(f"the agent was trained for {own}, your environment has {given}: {give}")
    if isinstance(agent.action_space, spaces.Discrete) and agent.action_space.start != 0:
        raise ValueError(f"PPO chooses from 0 on, not within {agent.action_space}: wrap the environment")
    with torch.no_grad(), eval_mode(agent):
        agent.outputs(torch.zeros(1, agent.state_size, device=agent.scale.center.device))  # refuses what has no actor
    features = {"features_extractor_class": ScaledStates, "features_extractor_kwargs": {"agent": agent}}
    networks = {**NETWORKS, **features, **settings.pop("policy_kwargs", {})}
    return PPO(AgentPolicy, env, policy_kwargs=networks, **{**SETTINGS, **settings})


def to_agent(ppo: PPO) -> Agent:
    """Return the agent that PPO, made by `to_ppo`, has trained; it acts without noise and is saved as any agent."""
    policy: Any = ppo.policy
    if not isinstance(ppo.policy, AgentPolicy):
        raise ValueError(f"a {type(policy).__name__} is no agent of this package: use the model as it is, or to_ppo")
    agent: Agent = policy.action_net.agent
    agent.description |= {"ppo": {"steps": ppo.num_timesteps}}
    return agent.eval()


class ModelPolicy:
    """A model of SB3 that is shown rows of numbers, and makes of them the observations that it knows."""

    def __init__(self, model: BaseAlgorithm, normalizer: VecNormalize | None) -> None:
        self.model, self.normalizer = model, normalizer
        self.settings = {"expert": type(model).__name__}  # its name in datasets

    def predict(
        self, observation: NDArray[Any], state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], Any]:
        """Return actions (N, A) for observations (N, D) that may be flattened."""
        space: Any = self.model.observation_space
        seen: Any = observation
        if isinstance(space, spaces.Dict) or len(space.shape) == 2:
            seen = unflatten(space, observation)
        if self.normalizer is not None:
            seen = self.normalizer.normalize_obs(seen)
        return self.model.predict(seen, state, episode_start, deterministic)


def to_policy(model: BaseAlgorithm, normalizer: VecNormalize | None = None) -> ModelPolicy:
    """Return a policy for `evaluate` and `collect` of a model that knows normalized, stacked or Dict observations.

    The normalizer defaults to the one that the model was trained with, which a model from a file no longer has.
    """
    return ModelPolicy(model, normalizer or model.get_vec_normalize_env())


class CriticFirst(BaseCallback):
    """Trains the critic alone for the first `steps` steps: an untrained one would spoil the actor."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_rollout_start(self) -> None:
        self._train_actor(self.num_timesteps >= self.steps)

    def _on_training_end(self) -> None:
        self._train_actor(True)

    def _train_actor(self, learning: bool) -> None:
        policy: Any = self.model.policy
        for parameter in policy.actor():
            parameter.requires_grad_(learning)

    def _on_step(self) -> bool:
        return True


class GoalRatio(BaseCallback):
    """Logs the mean fraction of goals reached in the episodes that ended, as `rollout/goal_ratio`."""

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done and "goal_ratio" in info:
                self.logger.record_mean("rollout/goal_ratio", info["goal_ratio"])
        return True
