"""Batches: whatever is sampled, states, futures and actions are those of one episode, and every step counts alike."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from pidm_nav.agents import BC, PIDM, Batch, Fit, PIDMConfig, Sampling, TrainConfig, TrainingData
from pidm_nav.agents.agent import Agent, make_agent
from pidm_nav.agents.batches import Trajectories
from pidm_nav.demos.dataset import DemoDataset, Episode

SPACES = spaces.Box(-1000, 1000, (2,), np.float32), spaces.Box(-1000, 1000, (1,), np.float32)
Lengths = st.lists(st.integers(1, 9), min_size=1, max_size=4)
SMALL: dict[str, Any] = {"encoder_sizes": (4,), "head_sizes": ()}


def numbered(lengths: list[int], first: int = 0) -> DemoDataset:
    """Every state says its episode and step, every action does, too: (episode, step) and 10 * episode + step."""
    episodes = []
    for index, length in enumerate(lengths, first):
        states = np.stack([np.full(length + 1, index), np.arange(length + 1)], axis=1).astype(np.float32)
        actions = (10 * index + np.arange(length, dtype=np.float32))[:, None]
        episodes.append(Episode(states, actions, np.zeros(length), terminated=True, truncated=False))
    return DemoDataset("Numbered-v0", tuple(episodes))


def prepared(*lengths: list[int], **data: list[DemoDataset]) -> tuple[Agent, TrainingData]:
    agent = make_agent(BC, SPACES)
    return agent, TrainingData(numbered(*lengths), **data)


def raw(agent: Agent, states: torch.Tensor) -> np.ndarray:
    return np.asarray(agent.scale.inverse(states).round().numpy(), dtype=int)


def whole(agent: Agent, data: TrainingData, sampling: Sampling, window: int = 1) -> Batch:
    """All elements at once."""
    trajectories = Trajectories(agent, data, window)
    return trajectories.batch(torch.arange(trajectories.candidates(sampling, 1)[0]), sampling)


@given(lengths=Lengths, horizons=st.lists(st.integers(1, 12), max_size=3, unique=True))
def test_single_steps_are_the_transitions_of_the_dataset(lengths: list[int], horizons: list[int]) -> None:
    agent, data = prepared(lengths)
    batch, kinds = whole(agent, data, Sampling(horizons=tuple(horizons))), max(1, len(horizons))
    assert batch.future.shape == batch.horizon.shape == (len(batch.now), min(1, len(horizons)))
    for index, horizon in enumerate(horizons or [1]):
        transitions = data.demos.transitions(horizon)
        np.testing.assert_array_equal(raw(agent, batch.now_states)[index::kinds], transitions.state)
        np.testing.assert_allclose(agent.actions.decode(batch.action)[index::kinds], transitions.action, atol=1e-3)
        if horizons:
            np.testing.assert_array_equal(raw(agent, batch.future_states[index::kinds, 0]), transitions.future)
            assert (batch.horizon[index::kinds, 0] == index).all()
    assert (batch.has_action == 1).all() and (batch.is_demo == 1).all()


@given(lengths=Lengths, horizons=st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True))
def test_several_horizons_at_once(lengths: list[int], horizons: list[int]) -> None:
    agent, data = prepared(lengths)
    batch = whole(agent, data, Sampling(horizons=tuple(horizons), one_horizon=False))
    futures = np.stack([data.demos.transitions(horizon).future for horizon in horizons], axis=1)
    np.testing.assert_array_equal(raw(agent, batch.future_states), futures)
    np.testing.assert_array_equal(raw(agent, batch.now_states), data.demos.transitions().state)
    assert (batch.horizon == torch.arange(len(horizons))).all()


@given(lengths=Lengths, chunk=st.integers(1, 12))
def test_chunks_stay_in_their_episode_and_repeat_its_last_action(lengths: list[int], chunk: int) -> None:
    agent, data = prepared(lengths)
    batch = whole(agent, data, Sampling(chunk=chunk))
    actions = agent.actions.decode(batch.action)
    assert actions.shape == (data.demos.num_steps, chunk, 1)
    for (index, step), own in zip(raw(agent, batch.now_states), actions, strict=True):
        expected = [10 * index + min(step + later, lengths[index] - 1) for later in range(chunk)]
        np.testing.assert_allclose(own[:, 0], expected, atol=1e-3)


@given(lengths=Lengths, length=st.integers(1, 12), horizons=st.sampled_from([(), (1,), (2, 5)]))
def test_sequences_stay_in_their_episode_and_what_is_padded_does_not_count(
    lengths: list[int], length: int, horizons: tuple[int, ...]
) -> None:
    agent, data = prepared(lengths)
    batch = whole(agent, data, Sampling(length=length, horizons=horizons, one_horizon=False))
    now, actions = raw(agent, batch.now_states), agent.actions.decode(batch.action)
    assert now.shape == (data.demos.num_steps, length, 2)
    starts = data.demos.transitions().state.astype(int)
    for (index, first), own, acted, known in zip(starts, now, actions, batch.has_action, strict=True):
        steps = np.arange(first, first + length)
        assert (own[:, 0] == index).all()
        np.testing.assert_array_equal(own[:, 1], np.minimum(steps, lengths[index] - 1))
        np.testing.assert_allclose(acted[:, 0], 10 * index + own[:, 1], atol=1e-3)
        np.testing.assert_array_equal(known.numpy(), steps < lengths[index])
    for column, horizon in enumerate(horizons):
        future = raw(agent, batch.future_states[..., column, :])
        last = np.array(lengths)[now[..., 0]]
        np.testing.assert_array_equal(future[..., 0], now[..., 0])
        np.testing.assert_array_equal(future[..., 1], np.minimum(now[..., 1] + horizon, last))


@given(lengths=Lengths, window=st.integers(2, 15), horizons=st.sampled_from([(1,), (1, 3)]))
def test_windows_weigh_every_step_equally(lengths: list[int], window: int, horizons: tuple[int, ...]) -> None:
    agent, data = prepared(lengths)
    batch = whole(agent, data, Sampling(horizons=horizons), window)
    now = raw(agent, batch.now_states)
    assert (batch.has_action == 1).all()
    steps, counts = np.unique(np.column_stack([now, batch.horizon]), axis=0, return_counts=True)
    assert len(steps) == len(horizons) * data.demos.num_steps and set(counts.tolist()) == {window}
    last = np.array(lengths)[now[:, 0]]
    ahead = np.array(horizons)[batch.horizon[:, 0]]
    futures = raw(agent, batch.future_states[:, 0])
    np.testing.assert_array_equal(futures, np.column_stack([now[:, 0], np.minimum(now[:, 1] + ahead, last)]))
    np.testing.assert_allclose(agent.actions.decode(batch.action)[:, 0], 10 * now[:, 0] + now[:, 1], atol=1e-3)


@given(own=Lengths, others=Lengths)
def test_demonstrations_are_told_from_other_data(own: list[int], others: list[int]) -> None:
    agent = make_agent(PIDM, SPACES, PIDMConfig(idm_share=0.5, **SMALL))
    data = TrainingData(numbered(own), idm=[numbered(others, first=len(own))])
    batch = whole(agent, data, agent.sampling)
    from_demos = raw(agent, batch.now_states)[:, 0] < len(own)
    np.testing.assert_array_equal(batch.is_demo.numpy(), from_demos)
    assert set(np.unique(from_demos)) == {False, True}
    steps = {tuple(row) for row in raw(agent, batch.now_states).tolist()}
    assert len(steps) == sum(own) + sum(others)


def test_demonstrations_without_actions_teach_the_predictor_alone() -> None:
    """End to end, they are drawn, but their actions count for nothing."""
    demos, more, play = numbered([4, 5]), numbered([3], first=2), numbered([6, 2], first=3)
    config = PIDMConfig(predictor="learned", end_to_end=True, idm_share=0.5, **SMALL)
    agent = make_agent(PIDM, SPACES, config)
    batch = whole(agent, TrainingData(demos.without_actions(), [more], [play]), agent.sampling)
    episode = raw(agent, batch.now_states)[:, 0]
    assert set(episode.tolist()) == {0, 1, 2, 3, 4}
    np.testing.assert_array_equal(batch.has_action.numpy(), episode >= 3)
    np.testing.assert_array_equal(batch.is_demo.numpy(), episode < 3)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(horizons=(1, 3)), Sampling(chunk=2), Sampling(length=3)])
def test_a_pass_over_the_data_draws_every_element_once(sampling: Sampling) -> None:
    class Sampled(BC):
        name = "sampled"

        @property
        def sampling(self) -> Sampling:
            return sampling

    dataset = numbered([5, 7, 4])
    size = max(1, 4 // max(1, sampling.length))
    count = dataset.num_steps * max(1, len(sampling.horizons))
    run = Fit(make_agent(Sampled, SPACES), dataset, TrainConfig(1e-3, steps=count // size, batch_size=4))
    drawn = []
    for batch in run.batches():
        first = batch.now_states if not sampling.length else batch.now_states[:, 0]
        kinds = batch.horizon[:, 0] if sampling.horizons else torch.zeros(len(first))
        drawn += [(*row, int(kind)) for row, kind in zip(raw(run.agent, first).tolist(), kinds, strict=True)]
        run.steps += 1
    assert len(drawn) == len(set(drawn)) == count


@given(
    window=st.integers(1, 8),
    length=st.integers(0, 8),
    chunk=st.integers(0, 3),
    horizons=st.sampled_from([(), (1,), (1, 3)]),
    size=st.integers(1, 40),
)
def test_a_batch_is_no_larger_than_asked_for(
    window: int, length: int, chunk: int, horizons: tuple[int, ...], size: int
) -> None:
    agent, data = prepared([9, 8, 7])
    trajectories, sampling = Trajectories(agent, data, window), Sampling(horizons, True, length, chunk)
    count, drawn = trajectories.candidates(sampling, size)
    batch = trajectories.batch(torch.arange(min(drawn, count)), sampling)
    assert batch.now.numel() <= max(size, window, length)
    assert batch.has_action.shape == batch.is_demo.shape == batch.now.shape
    assert batch.action.shape == (*batch.now.shape, *([chunk] if chunk else []), 1)


@pytest.mark.parametrize("weight", [1e-3, 0.25, 1.0, 7.0])
def test_a_mean_does_not_depend_on_the_size_of_the_weights(weight: float) -> None:
    batch = whole(*prepared([3, 2]), Sampling())
    values = torch.arange(len(batch.now)).float()
    found = batch.mean(values, torch.full_like(values, weight)).item()
    assert found == pytest.approx(values.mean().item())


def test_a_mean_counts_elements_by_weight() -> None:
    batch = whole(*prepared([3, 2]), Sampling(length=3))
    values = torch.where(batch.has_action > 0, 2.0, torch.tensor(1e9))
    assert batch.mean(values).item() == 2
    assert batch.mean(values, torch.zeros_like(values)).item() == 0  # and no division by zero
