"""Actions: numbers within bounds, or one of n choices; every agent that can learns both."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from pidm_nav.agents import load_agent, train
from pidm_nav.agents.heads import BoxActions, DiscreteActions, make_actions
from pidm_nav.agents.sb3 import to_ppo
from pidm_nav.demos.dataset import DemoDataset, Episode

OBSERVATION = spaces.Box(-10, 10, (2,), np.float32)
CHOICES = spaces.Discrete(4, start=3)
MOVES = np.float32([[1, 0], [-1, 0], [0, 1], [0, -1]])
SMALL: dict[str, Any] = {"batch_size": 64, "encoder_sizes": (32,), "head_sizes": (32,)}


@given(
    low=st.floats(-100, 99), width=st.floats(0.5, 100), seed=st.integers(0, 1000), loss=st.sampled_from(["l1", "mse"])
)
def test_continuous_actions_come_back_and_fill_the_box(low: float, width: float, seed: int, loss: Any) -> None:
    space = spaces.Box(np.float32([low, -1]), np.float32([low + width, 1]))
    actions, rng = BoxActions(space, loss), np.random.default_rng(seed)
    recorded = rng.uniform(space.low, space.high, (3, 5, 2)).astype(np.float32)
    targets = actions.encode(recorded)
    assert targets.shape == (3, 5, 2) and targets.abs().max() <= 1 + 1e-5
    np.testing.assert_allclose(actions.decode(targets), recorded, atol=1e-3)
    np.testing.assert_allclose(
        actions.decode(actions.encode(recorded + 1000)), np.broadcast_to(space.high, (3, 5, 2)), rtol=1e-4, atol=1e-3
    )
    outputs = torch.tensor(rng.uniform(-1, 1, (3, 5, 2)), dtype=torch.float32)
    function = torch.nn.functional.l1_loss if loss == "l1" else torch.nn.functional.mse_loss
    torch.testing.assert_close(actions.distance(outputs, targets).mean(), function(outputs, targets))
    assert torch.equal(actions.as_targets(outputs), outputs)


@given(n=st.integers(1, 9), start=st.integers(-3, 5), seed=st.integers(0, 1000))
def test_choices_come_back_and_the_loss_is_cross_entropy(n: int, start: int, seed: int) -> None:
    actions, rng = DiscreteActions(spaces.Discrete(n, start=start)), np.random.default_rng(seed)
    recorded = rng.integers(start, start + n, (4, 3, 1)).astype(np.float32)
    targets = actions.encode(recorded)
    assert targets.shape == (4, 3, n)
    np.testing.assert_array_equal(actions.decode(5 * targets - 2), recorded)
    outputs = torch.tensor(rng.normal(size=(4, 3, n)), dtype=torch.float32)
    classes = torch.tensor(recorded[..., 0] - start).long()
    expected = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), classes.flatten(), reduction="none")
    torch.testing.assert_close(actions.distance(outputs, targets).flatten(), expected)
    soft = actions.as_targets(outputs)
    torch.testing.assert_close(soft.sum(dim=-1), torch.ones(4, 3))
    np.testing.assert_array_equal(actions.decode(soft), actions.decode(outputs))


def test_spaces_and_choices_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="take Box or Discrete actions, not MultiDiscrete"):
        make_actions(spaces.MultiDiscrete([2, 2]))
    with pytest.raises(ValueError, match="finite bounds"):
        make_actions(spaces.Box(-np.inf, np.inf, (2,)))
    for wrong in (2, 7):
        with pytest.raises(ValueError, match="not one of the 4 actions"):
            DiscreteActions(CHOICES).encode(np.float32([[wrong]]))


def walk(seed: int, steps: int = 40) -> Episode:
    """Go right in the lower half and left in the upper one, and up or down at the sides, by choice 3 to 6."""
    rng = np.random.default_rng(seed)
    positions, choices = [rng.uniform(-5, 5, 2)], []
    for _ in range(steps):
        x, y = positions[-1]
        choice = 0 if y < 0 and x < 5 else 1 if y >= 0 and x > -5 else 2 if y < 0 else 3
        choices.append(choice + CHOICES.start)
        positions.append(positions[-1] + MOVES[choice] + rng.normal(0, 0.05, 2))
    actions = np.float32(choices)[:, None]
    return Episode(np.float32(positions), actions, np.zeros(steps), terminated=False, truncated=True)


@pytest.fixture(scope="module")
def walks() -> DemoDataset:
    return DemoDataset("Choices-v0", tuple(walk(seed) for seed in range(8)))


AGENTS: dict[str, dict[str, Any]] = {
    "bc": {},
    "pidm": {},
    "delta-pidm": {},
    "chunking": {"chunk": 2},
    "recurrent-bc": {"sequence": 8, "batch_size": 256},
    "recurrent-pidm": {"sequence": 8, "batch_size": 256},
    "corrective-bc": {"distance": 0.3},
    "retrieval-bc": {},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", AGENTS)
def test_agents_learn_to_choose(name: str, walks: DemoDataset, tmp_path: Path) -> None:
    settings = {"steps": 300, **SMALL, **AGENTS[name]}
    agent = train(name, walks, env_spaces=(OBSERVATION, CHOICES), **settings)
    loaded, memory, right = load_agent(agent.save(tmp_path), OBSERVATION, CHOICES), None, []
    for step in range(30):
        seen = np.stack([episode.observations[step] for episode in walks])
        actions, after = agent.predict(seen, memory, np.full(8, step == 0))
        np.testing.assert_array_equal(loaded.predict(seen, memory, np.full(8, step == 0))[0], actions)
        assert actions.dtype == np.int64 and actions.shape == (8,) and all(each in CHOICES for each in actions)
        right.append(actions == [episode.actions[step, 0] for episode in walks])
        memory = after
    assert np.mean(right) > 0.8
    action, _ = agent.predict(walks[0].observations[0])
    assert action.shape == () and int(action) in CHOICES


class Field(gym.Env[Any, Any]):
    """Ten steps by choice; being further to the right is better."""

    observation_space = OBSERVATION

    def __init__(self, start: int = 0) -> None:
        self.action_space = spaces.Discrete(4, start=start)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.left = self.np_random.uniform(-5, 5, 2).astype(np.float32), 10
        return self.place, {}

    def step(self, action: Any) -> Any:
        self.place, self.left = np.clip(self.place + MOVES[int(action)], -10, 10), self.left - 1
        return self.place, float(self.place[0]), False, self.left == 0, {}


@pytest.mark.parametrize("name", ["bc", "delta-pidm"])
def test_ppo_goes_on_with_choices(name: str, walks: DemoDataset) -> None:
    from_zero = DemoDataset(walks.task, tuple(replace(episode, actions=episode.actions - 3) for episode in walks))
    agent = train(name, from_zero, env_spaces=(OBSERVATION, spaces.Discrete(4)), steps=100, **SMALL)
    ppo, seen = to_ppo(agent, Field(), n_steps=32, batch_size=32, n_epochs=1, seed=0), walks[0].observations
    np.testing.assert_array_equal(ppo.predict(seen, deterministic=True)[0], agent.predict(seen)[0])
    before = [parameter.detach().clone() for parameter in agent.parameters()]
    ppo.learn(32)
    assert any(not torch.equal(*pair) for pair in zip(before, agent.parameters(), strict=True))
    np.testing.assert_array_equal(ppo.predict(seen, deterministic=True)[0], agent.predict(seen)[0])


def test_ppo_takes_choices_from_zero_on_alone(walks: DemoDataset) -> None:
    """Stable-Baselines3 does not know where choices start, so PPO would choose other actions than the agent."""
    agent = train("bc", walks, env_spaces=(OBSERVATION, CHOICES), steps=2, **SMALL)
    with pytest.raises(ValueError, match="start"):
        to_ppo(agent, Field(start=3))


def test_diffusion_refuses_choices_in_a_sentence(walks: DemoDataset) -> None:
    with pytest.raises(ValueError, match=r"diffusion needs continuous actions, not Discrete.*: train bc or chunking"):
        train("diffusion", walks, env_spaces=(OBSERVATION, CHOICES), **SMALL)
