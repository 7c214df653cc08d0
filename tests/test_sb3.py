"""Stable-Baselines3: PPO begins as the agent, learns, becomes an agent again; SB3 models are policies."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from pidm_nav.agents import BC, Agent, load_agent, train
from pidm_nav.agents.sb3 import AgentPolicy, CriticFirst, GoalRatio, to_agent, to_ppo
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.rollouts.evaluation import evaluate

ENV_ID = "PIDMNav-FourRoom-v0"
SHORT: dict[str, Any] = {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "seed": 0}


@pytest.fixture(scope="module")
def demos() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=2)


@pytest.fixture(scope="module")
def trained(demos: DemoDataset) -> Agent:
    return train("bc", demos, steps=100, batch_size=32, encoder_sizes=(32,), head_sizes=(16,))


@pytest.fixture
def agent(trained: Agent) -> Agent:
    return deepcopy(trained)  # as PPO trains the agent itself


@pytest.fixture
def envs() -> Any:
    return make_vec_env(ENV_ID, 2, seed=0, env_kwargs={"max_episode_steps": 20})


def test_ppo_begins_as_the_agent(agent: Agent, envs: Any) -> None:
    ppo = to_ppo(agent, envs, **SHORT)
    observations = collect(AStarExpert("four-room"), "four-room", 1, seed=5)[0].observations
    np.testing.assert_allclose(
        ppo.predict(observations, deterministic=True)[0], agent.predict(observations)[0], atol=1e-5
    )


def test_the_critic_learns_first_and_goal_ratios_are_logged(agent: Agent, envs: Any) -> None:
    ppo = to_ppo(agent, envs, **SHORT)
    policy: Any = ppo.policy

    def actor() -> list[Any]:
        return [parameter.detach().clone() for parameter in policy.actor()]

    before, critic = actor(), policy.value_net.weight.detach().clone()
    logged: dict[str, Any] = {}

    class Look(GoalRatio):
        def _on_rollout_end(self) -> None:
            logged.update(self.logger.name_to_value)

    ppo.learn(64, callback=[CriticFirst(64), Look()])
    assert all(bool((one == other).all()) for one, other in zip(before, actor(), strict=True))
    assert not bool((critic == policy.value_net.weight).all())
    assert 0 <= logged["rollout/goal_ratio"] <= 1
    assert all(parameter.requires_grad for parameter in policy.actor())
    ppo.learn(64, callback=CriticFirst(64), reset_num_timesteps=False)
    assert not all(bool((one == other).all()) for one, other in zip(before, actor(), strict=True))


def test_what_was_frozen_before_stays_frozen_when_the_critic_has_learned(agent: Agent, envs: Any) -> None:
    frozen: Any = agent.get_submodule("encoder").requires_grad_(False)
    before = deepcopy(frozen.state_dict())
    to_ppo(agent, envs, **SHORT).learn(192, callback=CriticFirst(64))
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(bool((frozen.state_dict()[name] == own).all()) for name, own in before.items())
    assert all(parameter.requires_grad for parameter in agent.get_submodule("head").parameters())


def test_ppo_becomes_an_agent_that_is_saved_without_pickle(agent: Agent, envs: Any, tmp_path: Path) -> None:
    ppo, before = to_ppo(agent, envs, **SHORT), deepcopy(agent)
    ppo.learn(64)
    loaded = load_agent(to_agent(ppo).save(tmp_path))
    observations = envs.reset()
    actions = ppo.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(loaded.predict(observations)[0], actions, atol=1e-5)
    np.testing.assert_allclose(agent.predict(observations)[0], actions, atol=1e-5)  # PPO trains the agent itself
    assert not np.allclose(before.predict(observations)[0], actions, atol=1e-6)
    assert loaded.description["ppo"] == {"steps": 64}


def test_stable_baselines_own_files_keep_the_policy(agent: Agent, envs: Any, tmp_path: Path) -> None:
    ppo = to_ppo(agent, envs, **SHORT)
    ppo.save(tmp_path / "ppo.zip")
    loaded, observations = PPO.load(tmp_path / "ppo.zip"), envs.reset()
    assert isinstance(loaded.policy, AgentPolicy)
    one, other = (each.predict(observations, deterministic=True)[0] for each in (ppo, loaded))
    np.testing.assert_array_equal(one, other)


def test_actions_of_another_width() -> None:
    class Wide(gym.ActionWrapper[Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(gym.make(ENV_ID))
            self.action_space = spaces.Box(np.float32([-4, 0]), np.float32([4, 20]))

        def action(self, action: Any) -> Any:
            return action / [4, 10] - [0, 1]

    env = Wide()
    agent = BC(env.observation_space, env.action_space).eval()
    ppo, observation = to_ppo(agent, env, **{**SHORT, "batch_size": 32}), env.reset(seed=0)[0]
    np.testing.assert_allclose(
        ppo.predict(observation, deterministic=True)[0], agent.predict(observation)[0], atol=1e-4
    )
    np.testing.assert_allclose(np.exp(ppo.policy.log_std.detach().numpy()), np.exp(-1.5) * np.array([4, 10]), rtol=1e-5)


def test_a_plain_model_of_stable_baselines_is_a_policy() -> None:
    model = PPO("MlpPolicy", ENV_ID, n_steps=16, batch_size=16, seed=0)
    result = evaluate(model, "four-room", 3, 0, max_steps=10)
    demos = collect(model, "four-room", 3, max_steps=10)
    assert len(result.episodes) == 3 and demos.source["made_by"] == "PPO"
    for one, other in zip(result.episodes, demos, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)
    assert train("bc", demos, steps=1, encoder_sizes=(8,)).description["data"]["made_by"] == "PPO"


@pytest.mark.parametrize("name", ["pidm", "delta-pidm"])
def test_pidm_goes_on_with_ppo_through_its_inverse_dynamics(
    name: str, demos: DemoDataset, envs: Any, tmp_path: Path
) -> None:
    agent = train(name, demos, steps=100, batch_size=32, encoder_sizes=(32,), head_sizes=(16,))
    ppo, observations = to_ppo(agent, envs, **SHORT), demos[0].observations[::7]
    before = agent.predict(observations)[0]
    np.testing.assert_allclose(ppo.predict(observations, deterministic=True)[0], before, atol=1e-5)
    ppo.learn(64)
    after = to_agent(ppo).predict(observations)[0]
    assert not np.allclose(after, before, atol=1e-6)
    np.testing.assert_allclose(load_agent(agent.save(tmp_path)).predict(observations)[0], after, atol=1e-6)


class Halting(BC):
    """BC that acts at half its speed, which its outputs do not say."""

    name = "halting"

    def act(self, states: Any, memory: Any, episode_start: Any) -> tuple[Any, Any]:
        actions, memory = super().act(states, memory, episode_start)
        return actions / 2, memory


@pytest.mark.usefixtures("own_parts")
def test_what_cannot_become_ppo_is_refused(agent: Agent, envs: Any, demos: DemoDataset) -> None:
    other: Any = train("retrieval-bc", demos)
    with pytest.raises(ValueError, match="retrieval-bc has no actor for PPO"):
        to_ppo(other, envs)
    small: Any = {"steps": 1, "encoder_sizes": (8,), "head_sizes": ()}
    with pytest.raises(ValueError, match="chunking does not act by its outputs"):
        to_ppo(train("chunking", demos, **small), envs)
    with pytest.raises(ValueError, match="recurrent-pidm has no actor for PPO"):
        to_ppo(train("recurrent-pidm", demos, **small), envs)
    with pytest.raises(ValueError, match="halting does not act by its outputs"):
        to_ppo(train(Halting, demos, **small), envs)
    with pytest.raises(ValueError, match="your environment has"):
        to_ppo(agent, gym.make("PIDMNav-Maze-v0"))
    with pytest.raises(ValueError, match="holds no agent"):
        to_agent(PPO("MlpPolicy", ENV_ID))
