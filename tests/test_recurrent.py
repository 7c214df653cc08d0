"""Recurrent agents: acting step by step is what was trained on sequences, and a memory solves what needs one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pidm_nav.agents import Agent, RecurrentBC, RecurrentPIDM, load_agent, train
from pidm_nav.demos.dataset import DemoDataset, Episode

SPACES = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (1,), np.float32)
SETTINGS: dict[str, Any] = {"batch_size": 256, "sequence": 8, "encoder_sizes": (32,), "head_sizes": (32,)}


def told_first(seed: int, steps: int = 8) -> Episode:
    """The first state alone says whether to go up or down: later states are the same either way."""
    way = 1 if seed % 2 else -1
    states = np.zeros((steps + 1, 2), dtype=np.float32)
    states[0, 0] = way
    states[:, 1] = np.arange(steps + 1) / steps
    actions = np.full((steps, 1), 0.8 * way, dtype=np.float32)
    return Episode(states, actions, np.zeros(steps), terminated=True, truncated=False)


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return DemoDataset("Told-v0", tuple(told_first(seed) for seed in range(10)))


@pytest.fixture(scope="module", params=["recurrent-bc", "recurrent-pidm"])
def agent(request: pytest.FixtureRequest, dataset: DemoDataset) -> Agent:
    return train(request.param, dataset, env_spaces=SPACES, steps=150, **SETTINGS)


def acted(agent: Agent, states: np.ndarray) -> np.ndarray:
    """The actions (T, N, A) in states (T, N, D) of N episodes."""
    memory, actions = None, []
    for step, seen in enumerate(states):
        action, memory = agent.predict(seen, memory, np.full(len(seen), step == 0))
        actions.append(action)
    return np.stack(actions)


def test_a_memory_keeps_what_only_the_first_state_tells(agent: Agent, dataset: DemoDataset) -> None:
    states = np.stack([dataset[0].observations[:-1], dataset[1].observations[:-1]], axis=1)
    wanted = np.stack([dataset[0].actions, dataset[1].actions], axis=1)
    assert np.abs(acted(agent, states) - wanted).mean() < 0.2
    forgetful = train("bc", dataset, env_spaces=SPACES, steps=150, batch_size=64, encoder_sizes=(32,), head_sizes=(32,))
    assert np.abs(acted(forgetful, states)[1:] - wanted[1:]).mean() > 0.6


def test_acting_step_by_step_is_what_was_trained_on_sequences(agent: Agent, dataset: DemoDataset) -> None:
    states = np.stack([episode.observations[:-1] for episode in dataset[:4]])  # (N, T, D)
    now = agent.scaled(states)
    with torch.no_grad():
        if isinstance(agent, RecurrentBC):
            outputs = agent.head(agent.gru(agent.encoder(now))[0])
        else:
            assert isinstance(agent, RecurrentPIDM)
            futures = [agent.predictor.predict(states[:, step])[0] for step in range(states.shape[1])]
            outputs = agent.idm(now, agent.scaled(np.stack(futures, axis=1)))
    expected = agent.actions.decode(outputs).swapaxes(0, 1)
    np.testing.assert_allclose(acted(agent, states.swapaxes(0, 1)), expected, atol=1e-5)


def test_rows_are_independent_and_begin_anew(agent: Agent, dataset: DemoDataset) -> None:
    states = np.stack([episode.observations[:-1] for episode in dataset[:3]], axis=1)
    begins = np.zeros((len(states), 3), dtype=bool)
    begins[0], begins[5, 1] = True, True
    memory, alone = None, [None] * 3
    for seen, starts in zip(states, begins, strict=True):
        actions, memory = agent.predict(seen, memory, starts)
        for row in range(3):
            own, alone[row] = agent.predict(seen[row], None if starts[row] else alone[row])
            np.testing.assert_allclose(actions[row], own, atol=1e-5)
    with pytest.raises(ValueError, match=r"not \(2, "):
        agent.predict(states[0][:2], memory)


def test_a_saved_agent_goes_on_in_the_middle(agent: Agent, dataset: DemoDataset, tmp_path: Path) -> None:
    _, memory = agent.predict(dataset[0].observations[:3])
    loaded = load_agent(agent.save(tmp_path))
    seen = dataset[1].observations[:3]
    np.testing.assert_array_equal(loaded.predict(seen, memory)[0], agent.predict(seen, memory)[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizons": (1, 2)}, "one horizon"),
        ({"idm": "state"}, "needs idm='recurrent'"),
        ({"sequence": 1}, "sequence is 1: expected `int` >= 2"),
        ({"predictor": "learned", "end_to_end": True}, "end_to_end=False"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str, dataset: DemoDataset) -> None:
    with pytest.raises(ValueError, match=message):
        train("recurrent-pidm", dataset, env_spaces=SPACES, **{**SETTINGS, **settings})
