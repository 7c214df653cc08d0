"""Action chunking: chunks end with their episode, predictions are averaged as ACT does, and batches agree."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pidm_nav.agents import Chunking, load_agent, train
from pidm_nav.agents.batches import TrainingData, Trajectories
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.rollouts.evaluation import evaluate

TINY: dict[str, Any] = {"steps": 5, "batch_size": 32, "encoder_sizes": (16,), "head_sizes": (16,), "chunk": 4}


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=3)


@pytest.fixture(scope="module")
def agent(dataset: DemoDataset) -> Chunking:
    trained = train("chunking", dataset, ensemble=0.2, **TINY)
    assert isinstance(trained, Chunking)
    return trained


def chunk(agent: Chunking, observation: Any) -> Any:
    """The actions (chunk, A) that the network alone predicts."""
    with torch.no_grad():
        return agent.actions.decode(agent.outputs(agent.scaled(observation[None])))[0]


def test_chunks_stay_within_their_episode(agent: Chunking, dataset: DemoDataset) -> None:
    trajectories = Trajectories(agent, TrainingData(dataset))
    batch = trajectories.batch(torch.arange(dataset.num_steps), agent.sampling)
    chunks = agent.actions.decode(batch.action)
    row = 0
    for episode in dataset:
        for step in range(len(episode)):
            expected = [episode.actions[min(step + later, len(episode) - 1)] for later in range(4)]
            np.testing.assert_allclose(chunks[row], expected, atol=1e-6)
            row += 1
    assert row == len(chunks)


def test_predictions_are_averaged_with_exponential_weights(agent: Chunking, dataset: DemoDataset) -> None:
    observations, state = dataset[0].observations, None
    for step in range(7):
        action, state = agent.predict(observations[step], state, [step == 0])
        ages = np.arange(min(step, 3) + 1)  # how many steps ago a prediction was made
        said = np.stack([chunk(agent, observations[step - age])[age] for age in ages])
        weights = np.exp(-0.2 * ages[::-1])  # ACT: exp(-m i), i = 0 for the oldest
        np.testing.assert_allclose(action, np.average(said, axis=0, weights=weights), atol=1e-5)


def test_rows_are_independent_and_begin_anew(agent: Chunking, dataset: DemoDataset) -> None:
    observations = np.stack([episode.observations[:9] for episode in dataset], axis=1)  # (9, N, D)
    begins = np.zeros((9, 3), dtype=bool)
    begins[0], begins[5, 1] = True, True
    state, alone = None, [None] * 3
    for seen, starts in zip(observations, begins, strict=True):
        actions, state = agent.predict(seen, state, starts)
        for row in range(3):
            own, alone[row] = agent.predict(seen[row], None if starts[row] else alone[row])
            np.testing.assert_allclose(actions[row], own, atol=1e-5)


def test_a_state_of_other_rows_is_refused(agent: Chunking, dataset: DemoDataset) -> None:
    _, state = agent.predict(dataset[0].observations[:3])
    with pytest.raises(ValueError, match=r"not \(2, "):
        agent.predict(dataset[0].observations[:2], state)


def test_a_saved_agent_goes_on_in_the_middle(agent: Chunking, dataset: DemoDataset, tmp_path: Path) -> None:
    _, state = agent.predict(dataset[0].observations[:3])
    loaded = load_agent(agent.save(tmp_path))
    for one, other in zip(*(each.predict(dataset[1].observations[:3], state) for each in (agent, loaded)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_images(tmp_path: Path) -> None:
    looks: dict[str, Any] = {"obs_type": "pixels", "image_size": 32}
    demos = collect(AStarExpert("four-room"), "four-room", 1, max_steps=20, **looks)
    agent = train("chunking", demos, **{**TINY, "steps": 2}, frame_size=8)
    first, again = (
        evaluate(each, "four-room", 2, max_steps=8, **looks) for each in (agent, load_agent(agent.save(tmp_path)))
    )
    assert all((a.actions == b.actions).all() for a, b in zip(first.episodes, again.episodes, strict=True))


@pytest.mark.parametrize("settings", [{"chunk": 0}, {"chunk": 501}, {"ensemble": 2.0}, {"ensemble": float("nan")}])
def test_settings_beyond_their_limits_are_refused(settings: dict[str, Any], dataset: DemoDataset) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        train("chunking", dataset, **{**TINY, **settings})
