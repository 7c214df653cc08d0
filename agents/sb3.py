"""Stable-Baselines3: PPO goes on from a BC agent, and becomes one again.

Most models of SB3 need no wrapper to be evaluated, collected from or compared: they have `predict`, which is all that
`evaluate` and `collect` ask for. `to_policy` is for those that know normalized, stacked or Dict observations. What
`to_agent` makes of a PPO model is saved without pickle, as every agent is.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor, nn

from pidm_nav.agents.bc import BC
from pidm_nav.agents.encoders import output_size
from pidm_nav.agents.policy import same_space
from pidm_nav.tasks import unflatten

# Small steps, as the first policy is good already.
SETTINGS: dict[str, Any] = {"n_steps": 256, "batch_size": 512, "n_epochs": 5, "learning_rate": 1e-4, "target_kl": 0.02}
# The critic has an encoder of its own, and orthogonal weights would overwrite the agent's.
NETWORKS: dict[str, Any] = {"net_arch": {"pi": [], "vf": [64]}, "share_features_extractor": False, "ortho_init": False}
FIRST_LOG_STD = -1.5  # of the actions, in half widths of their space


class AgentFeatures(BaseFeaturesExtractor):
    """An agent's scale and encoder of states."""

    def __init__(self, observation_space: spaces.Box, agent: BC) -> None:
        super().__init__(observation_space, output_size(agent.encoder))
        self.scale, self.encoder = deepcopy(agent.scale), deepcopy(agent.encoder)

    def forward(self, observations: Tensor) -> Tensor:
        """Return embeddings (N, E); batch norm must not move while PPO compares its old policy with the new."""
        embeddings: Tensor = self.encoder.eval()(self.scale(observations))
        return embeddings


class AgentHead(nn.Module):
    """An agent's head, with actions in the units of their space."""

    def __init__(self, agent: BC) -> None:
        super().__init__()
        self.head, self.scale = deepcopy(agent.head), deepcopy(agent.action_scale)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return the means (N, A) of the actions."""
        return self.scale.inverse(self.head(embeddings))


class AgentPolicy(ActorCriticPolicy):
    """An actor that begins as a BC agent, and a critic that begins with its encoder."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        agent = self.features_extractor_kwargs["agent"]
        self.action_net = AgentHead(agent)
        self.log_std = nn.Parameter(FIRST_LOG_STD + agent.action_scale.width.log())
        make_optimizer: Any = self.optimizer_class
        self.optimizer = make_optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def actor(self) -> list[nn.Parameter]:
        """Return the parameters that decide the actions."""
        return [*self.action_net.parameters(), *self.pi_features_extractor.parameters(), self.log_std]


def to_ppo(agent: BC, env: Any, **settings: Any) -> PPO:
    """Return PPO that acts as the agent does, to be trained further in an environment of Gymnasium or SB3.

    Train it with the callback `CriticFirst`. The settings are PPO's; those that are not given suit a good first policy.
    """
    if not isinstance(agent, BC) or agent.vision is not None:
        raise ValueError(f"{agent!r} cannot become PPO's actor: give a BC agent that observes states, not images")
    for own, given in ((agent.observation_space, env.observation_space), (agent.action_space, env.action_space)):
        if not same_space(own, given):
            task = agent.description.get("task")
            give = f"make one with find_task('{task}').make()" if task else "give another one"
            raise ValueError(f"the agent was trained for {own}, your environment has {given}: {give}")
    features = {"features_extractor_class": AgentFeatures, "features_extractor_kwargs": {"agent": agent}}
    networks = {**NETWORKS, **features, **settings.pop("policy_kwargs", {})}
    return PPO(AgentPolicy, env, policy_kwargs=networks, **{**SETTINGS, **settings})


def to_agent(ppo: PPO) -> BC:
    """Return the BC agent that acts as PPO, made by `to_ppo`, does now without noise; it can be saved as any agent."""
    policy: Any = ppo.policy
    if not isinstance(ppo.policy, AgentPolicy):
        raise ValueError(f"a {type(policy).__name__} is not a BC agent's network: use the model as it is, or to_ppo")
    agent: BC = deepcopy(policy.features_extractor_kwargs["agent"])
    agent.encoder.load_state_dict(policy.pi_features_extractor.encoder.state_dict())
    agent.head.load_state_dict(policy.action_net.head.state_dict())
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
    """Trains the critic alone for so many steps: one that knows nothing yet would spoil the actor."""

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
