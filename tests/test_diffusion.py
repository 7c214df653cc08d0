"""Diffusion over chunks: noise is mixed in and taken out, chunks are followed as told, and acting repeats itself."""

import itertools
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from pidm_nav.agents import Diffusion, load_agent, train
from pidm_nav.agents.diffusion import Plan
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.rollouts.evaluation import evaluate

TINY: dict[str, Any] = {"steps": 5, "batch_size": 32, "encoder_sizes": (16,), "head_sizes": (16,), "chunk": 4}


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=3)


@pytest.fixture(scope="module")
def agent(dataset: DemoDataset) -> Diffusion:
    trained = train("diffusion", dataset, taken=3, **TINY)
    assert isinstance(trained, Diffusion)
    return trained


def test_the_schedule_goes_from_clean_to_noise(agent: Diffusion) -> None:
    levels = agent.config.noise_levels
    assert agent.signal[0] == 1 and agent.signal[levels] < 1e-6
    assert (agent.signal.diff() < 0).all()
    clean, noise = torch.full((1, 4, 2), 0.5), torch.randn(1, 4, 2)
    assert torch.equal(agent.mixed(clean, noise, torch.tensor([0])), clean)
    torch.testing.assert_close(agent.mixed(clean, noise, torch.tensor([levels])), noise)


def test_it_commits_to_one_of_two_ways() -> None:
    """In one and the same state, half of the demonstrations go left and half go right; their mean would stand still."""
    start, rng = gym.make("PIDMNav-FourRoom-v0").reset(seed=0)[0], np.random.default_rng(0)
    episodes = []
    for way in (-0.8, 0.8) * 20:
        states = np.tile(start, (9, 1))
        states[:, 0] += rng.normal(0, 0.1, 9)
        episodes.append(Episode(states, np.tile([way, 0], (8, 1)), np.zeros(8), False, True))
    demos = DemoDataset("four-room", tuple(episodes))
    agent = train("diffusion", demos, steps=600, encoder_sizes=(32,), head_sizes=(128,), chunk=4, denoising_steps=10)
    actions, _ = agent.predict(np.tile(start, (200, 1)))
    assert (np.abs(actions[:, 0]) > 0.5).mean() > 0.8
    assert 0.25 < (actions[:, 0] > 0).mean() < 0.75


def test_a_chunk_is_followed_and_then_planned_anew(agent: Diffusion, dataset: DemoDataset) -> None:
    observations, state, plans = dataset[0].observations, None, []
    for step in range(7):
        action, state = agent.predict(observations[step], state, [step in (0, 5)])
        assert isinstance(state, Plan) and state.calls == step + 1
        plans.append(state.actions)
        np.testing.assert_array_equal(action, np.clip(state.actions[0, state.taken[0] - 1], -1, 1))
    new = [not np.array_equal(before, after) for before, after in itertools.pairwise(plans)]
    assert new == [False, False, True, False, True, False]  # after three actions, and where an episode begins


def test_acting_depends_on_the_seed_and_the_state_alone(dataset: DemoDataset, agent: Diffusion) -> None:
    first, again = (evaluate(agent, "four-room", 3, max_steps=10).episodes for _ in range(2))
    assert all((one.actions == other.actions).all() for one, other in zip(first, again, strict=True))
    seen = dataset[0].observations[:3]
    action, state = agent.predict(seen)
    np.testing.assert_array_equal(action, agent.predict(seen)[0])
    other = with_seed(agent, 1)
    assert not np.array_equal(action, other.predict(seen)[0])
    before = [part.copy() for part in state[:2]]
    agent.predict(seen, state, [True] * 3)  # what was passed stays as it was
    assert all(np.array_equal(one, other) for one, other in zip(before, state[:2], strict=True))


def with_seed(agent: Diffusion, seed: int) -> Diffusion:
    """The same weights with another seed of what is drawn."""
    other = Diffusion(agent.observation_space, agent.action_space, agent.config, seed=seed)
    other.load_state_dict(agent.state_dict())
    return other


def test_a_state_of_other_rows_is_refused(agent: Diffusion, dataset: DemoDataset) -> None:
    _, state = agent.predict(dataset[0].observations[:3])
    for wrong in (state, np.zeros(2)):
        with pytest.raises(ValueError, match=r"not \(2, "):
            agent.predict(dataset[0].observations[:2], wrong)


def test_a_saved_agent_goes_on_in_the_middle(agent: Diffusion, dataset: DemoDataset, tmp_path: Path) -> None:
    _, state = agent.predict(dataset[0].observations[:3])
    loaded = load_agent(agent.save(tmp_path))
    for _ in range(4):
        one, state = agent.predict(dataset[1].observations[:3], before := state)
        np.testing.assert_array_equal(one, loaded.predict(dataset[1].observations[:3], before)[0])


def test_images(tmp_path: Path) -> None:
    looks: dict[str, Any] = {"obs_type": "pixels", "image_size": 32}
    demos = collect(AStarExpert("four-room"), "four-room", 1, max_steps=20, **looks)
    agent = train("diffusion", demos, **{**TINY, "steps": 2}, frame_size=8)
    first, again = (
        evaluate(each, "four-room", 2, max_steps=8, **looks) for each in (agent, load_agent(agent.save(tmp_path)))
    )
    assert all((a.actions == b.actions).all() for a, b in zip(first.episodes, again.episodes, strict=True))


@pytest.mark.parametrize("settings", [{"taken": 5}, {"denoising_steps": 51}, {"noise_levels": 0}, {"chunk": 10**9}])
def test_settings_beyond_their_limits_are_refused(settings: dict[str, Any], dataset: DemoDataset) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        train("diffusion", dataset, **{**TINY, **settings})
