"""Corrective BC returns to the demonstrations from beside them, where BC has never been."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pidm_nav.agents import Agent, CorrectiveBC, Fit, TrainConfig, TrainingData, load_agent, train
from pidm_nav.agents.agent import make_agent
from pidm_nav.demos.dataset import DemoDataset, Episode

SPACES = spaces.Box(-40, 40, (2,), np.float32), spaces.Box(-2, 2, (2,), np.float32)
SETTINGS: dict[str, Any] = {"steps": 600, "batch_size": 64, "encoder_sizes": (64, 64), "head_sizes": (64,)}


def along(seed: int, steps: int = 60) -> Episode:
    """Go right along y = 0, a little up or down by chance, and never correct it."""
    rng = np.random.default_rng(seed)
    actions = np.stack([rng.normal(0.6, 0.1, steps), rng.normal(0, 0.01, steps)], axis=1).astype(np.float32)
    positions = np.concatenate([np.float32([[-20, 0]]), np.float32([-20, 0]) + np.cumsum(actions, axis=0)])
    return Episode(positions, actions, np.zeros(steps), terminated=True, truncated=False)


def random_walk(seed: int, steps: int = 60) -> Episode:
    rng = np.random.default_rng(100 + seed)
    actions = rng.uniform(-1.5, 1.5, (steps, 2)).astype(np.float32)
    positions = np.concatenate([np.zeros((1, 2), np.float32), np.cumsum(actions, axis=0)])
    return Episode(positions, actions, np.zeros(steps), terminated=False, truncated=True)


@pytest.fixture(scope="module")
def demos() -> DemoDataset:
    return DemoDataset("Along-v0", tuple(along(seed) for seed in range(3)))


def distances(agent: Agent, beside: float, steps: int = 8) -> np.ndarray:
    """How far from the path an agent is, that begins beside it, after each step (T, N)."""
    place = np.stack([np.linspace(-15, 5, 20), np.tile([beside, -beside], 10)], axis=1).astype(np.float32)
    seen = [np.abs(place[:, 1])]
    for _ in range(steps):
        place = place + agent.predict(place)[0]
        seen.append(np.abs(place[:, 1]))
    return np.stack(seen)


def test_it_returns_to_the_path_where_bc_does_not(demos: DemoDataset) -> None:
    play = DemoDataset("Along-v0", tuple(random_walk(seed) for seed in range(6)))  # shows what leads up and down
    corrective = train("corrective-bc", demos, idm_data=play, env_spaces=SPACES, distance=3.0, **SETTINGS)
    bc = train("bc", demos, env_spaces=SPACES, **SETTINGS)
    assert distances(bc, 1.0)[-1].mean() > 0.5
    assert distances(corrective, 1.0)[-1].mean() < 0.2


def test_states_beside_are_displaced_along_the_datas_changes_and_lead_to_the_demonstrated_ones(
    demos: DemoDataset,
) -> None:
    agent = make_agent(CorrectiveBC, SPACES)
    assert isinstance(agent, CorrectiveBC)
    run = Fit(agent, demos, TrainConfig(1e-3, batch_size=32))
    batch = next(run.batches())
    now, future = batch.now_states, batch.future_states[:, 0]
    beside, target = agent.beside(now, future, np.random.default_rng(0))
    copies, distance = agent.config.copies, agent.config.distance
    assert len(beside) == len(target) == copies * len(now)
    assert torch.equal(target, future.repeat(copies, 1))
    moved = (beside - now.repeat(copies, 1)).norm(dim=1)
    longest = (future - now).norm(dim=1).max()
    assert 0 < moved.max() <= distance * longest + 1e-5 and moved.mean() > 0.3 * (future - now).norm(dim=1).mean()


def test_play_teaches_the_inverse_dynamics_and_not_what_to_do(demos: DemoDataset) -> None:
    """The loss of BC counts demonstrated states alone."""
    agent = make_agent(CorrectiveBC, SPACES)
    play = DemoDataset("Along-v0", tuple(random_walk(seed) for seed in range(3)))
    run = Fit(agent, TrainingData(demos, idm=[play]), TrainConfig(1e-3, batch_size=64))
    batch = next(run.batches())
    agent.eval()
    terms = agent.loss(batch, np.random.default_rng(0))
    own = batch.is_demo > 0
    outputs = agent.outputs(batch.now_states[own])
    torch.testing.assert_close(terms["bc"], agent.actions.distance(outputs, batch.action[own]).mean())
    assert set(terms) == {"bc", "idm", "corrective"} and 0 < own.float().mean() < 1


def test_it_is_saved_with_its_inverse_dynamics(demos: DemoDataset, tmp_path: Any) -> None:
    agent = train("corrective-bc", demos, out=tmp_path, env_spaces=SPACES, **{**SETTINGS, "steps": 5})
    loaded = load_agent(tmp_path)
    states = demos[0].observations
    np.testing.assert_array_equal(loaded.predict(states)[0], agent.predict(states)[0])
    assert loaded.config == agent.config
