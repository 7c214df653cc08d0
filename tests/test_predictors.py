"""State predictors: retrieval agrees with brute force, the others do what their names say."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav.agents.batches import TrainingData
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.networks import Scale
from pidm_nav.agents.predictors import Follow, Lookup, Nearest, Neighbors, Oracle, TimeIndexed
from pidm_nav.agents.retrieval import RetrievalBC, StateIndex
from pidm_nav.agents.train import dataset_spaces
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.tasks import PAPER_TASKS


def episode(observations: np.ndarray, seed: int = 0) -> Episode:
    steps = len(observations) - 1
    actions = np.random.default_rng(seed).uniform(-1, 1, (steps, 2))
    return Episode(observations, actions, np.zeros(steps), terminated=True, truncated=False)


@pytest.fixture(scope="module", params=list(PAPER_TASKS))
def dataset(request: pytest.FixtureRequest) -> DemoDataset:
    return collect(AStarExpert(request.param), request.param, episodes=3, seed=0)


def brute_force(states: np.ndarray, flags: tuple[int, ...], query: np.ndarray, order: int) -> tuple[float, int]:
    """Distance and number of goals of the nearest state, over all features but the flags."""
    reached = states[:, list(flags)].sum(axis=1)
    own = query[list(flags)].sum()
    numbers = np.unique(reached)
    wanted = numbers[np.abs(numbers - own).argmin()]
    features = [index for index in range(states.shape[1]) if index not in flags]
    rows = states[reached == wanted][:, features].astype(np.float64)
    difference = np.abs(rows - query[features].astype(np.float64))
    distances = (difference**order).sum(axis=1) ** (1 / order)
    return float(distances.min()), int(wanted)


@pytest.mark.parametrize("distance", ["l2", "l1"])
def test_retrieval_agrees_with_brute_force(dataset: DemoDataset, distance: str) -> None:
    order = 2 if distance == "l2" else 1
    transitions = dataset.transitions()
    flags = dataset.goal_flags
    index = StateIndex(transitions.state, flags, distance=distance)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    queries = transitions.state[rng.integers(len(transitions.state), size=200)].copy()
    queries[:, :2] += rng.normal(0, 40, (200, 2))
    features = [feature for feature in range(queries.shape[1]) if feature not in flags]
    nearest, distances = index.query(queries)
    for query, found, away in zip(queries, nearest[:, 0], distances[:, 0], strict=True):
        expected, reached = brute_force(transitions.state, flags, query, order)
        state = transitions.state[found]
        assert state[list(flags)].sum() == reached
        difference = np.abs(state[features].astype(np.float64) - query[features])
        assert (difference**order).sum() ** (1 / order) == pytest.approx(expected, abs=1e-6)
        assert away == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), missing=st.integers(0, 3))
def test_random_goals_count_and_empty_groups_fall_back(seed: int, missing: int) -> None:
    rng = np.random.default_rng(seed)
    states = rng.uniform(0, 800, (60, 11)).astype(np.float32)  # three goals that stand elsewhere in each state
    flags = (4, 7, 10)
    reached = rng.choice([number for number in range(4) if number != missing], size=60)
    states[:, list(flags)] = np.arange(3) < reached[:, None]
    query = rng.uniform(0, 800, 11).astype(np.float32)
    query[list(flags)] = np.arange(3) < missing
    found = states[StateIndex(states, flags).query(query[None])[0][0, 0]]
    expected, wanted = brute_force(states, flags, query, 2)
    features = [feature for feature in range(11) if feature not in flags]
    assert found[list(flags)].sum() == wanted
    assert np.linalg.norm(found[features] - query[features]) == pytest.approx(expected, rel=1e-5)


def test_fixed_goals_leave_only_the_position_to_compare(dataset: DemoDataset) -> None:
    transitions = dataset.transitions()
    assert StateIndex(transitions.state, dataset.goal_flags).features.tolist() == [0, 1]


def test_without_flags_features_are_compared_in_their_units() -> None:
    states = np.float32([[0, 0], [10, 0], [0, 1000]])
    query = np.float32([[7, 400]])
    assert StateIndex(states).query(query)[0][0, 0] in (0, 1)
    assert StateIndex(states).query(np.float32([[4, 600]]))[0][0, 0] == 2
    scale = Scale(spaces.Box(np.float32([-1, -1000]), np.float32([1, 1000])))
    assert StateIndex(states, scale=scale).query(query)[0][0, 0] == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), stored=st.integers(1, 8), k=st.integers(1, 10), order=st.sampled_from([1, 2]))
def test_the_k_nearest_agree_with_sorting_all(seed: int, stored: int, k: int, order: int) -> None:
    rng = np.random.default_rng(seed)
    states, queries = (rng.uniform(0, 10, (rows, 3)).astype(np.float32) for rows in (stored, 5))
    nearest, distances = StateIndex(states, distance="l1" if order == 1 else "l2").query(queries, k)
    assert nearest.shape == distances.shape == (5, k)
    features = np.arange(3) if stored > 1 else np.arange(2)
    for query, found, away in zip(queries, nearest, distances, strict=True):
        all_distances = np.linalg.norm((states - query)[:, features].astype(float), order, axis=1)
        known = min(k, stored)
        np.testing.assert_allclose(away[:known], np.sort(all_distances)[:known], atol=1e-6)
        np.testing.assert_allclose(all_distances[found[:known]], away[:known], atol=1e-6)
        assert np.isinf(away[known:]).all() and len(set(found[:known].tolist())) == known


@pytest.mark.parametrize("horizon", [1, 5, 1000])
def test_nearest_neighbour_returns_the_same_episodes_future(dataset: DemoDataset, horizon: int) -> None:
    predictor = Nearest().fit(dataset[[1]], horizon)
    observations = dataset[1].observations
    steps = np.arange(len(observations) - 1)
    distinct = np.unique(observations[:-1], axis=0, return_index=True)[1]  # a wall can hold the agent in place
    futures, _ = predictor.predict(observations[:-1])
    expected = observations[np.minimum(steps + horizon, len(observations) - 1)]
    np.testing.assert_array_equal(futures[distinct], expected[distinct])


def test_held_out_futures_come_from_the_other_episodes(dataset: DemoDataset) -> None:
    predictor = Nearest().fit(dataset)
    futures = predictor.held_out_futures(dataset)
    assert [part.shape for part in futures] == [each.observations.shape for each in dataset]
    others = {row.tobytes() for index in (1, 2) for row in dataset[index].observations}
    assert all(row.tobytes() in others for row in futures[0])


def test_held_out_futures_of_a_network_owe_nothing_to_the_held_out_episode(dataset: DemoDataset) -> None:
    scale = Scale(dataset_spaces(dataset)[0])
    seen = Learned(steps=100, sizes=(16,)).build(scale).fit(dataset)
    other = Learned(steps=100, sizes=(16,)).build(scale).fit(dataset[1:])
    futures = other.predict(dataset[0].observations)[0]  # one state at a time rounds otherwise
    np.testing.assert_allclose(seen.held_out_futures(dataset)[0], futures, atol=1e-2)


def test_retrieval_bc_repeats_demonstrated_actions(dataset: DemoDataset) -> None:
    agent = RetrievalBC(*dataset_spaces(dataset))
    agent.prepare(TrainingData(dataset[[0]]))
    observations, index = np.unique(dataset[0].observations[:-1], axis=0, return_index=True)
    np.testing.assert_array_equal(agent.predict(observations)[0], dataset[0].actions[index])


def test_time_indexed_follows_one_demonstration_and_restarts(dataset: DemoDataset) -> None:
    predictor = TimeIndexed().fit(dataset, horizon=2)
    rows, memory = np.zeros((2, dataset.observation_dim), dtype=np.float32), None
    for step in range(400):
        futures, memory = predictor.predict(rows, memory, np.zeros(2, dtype=bool))
        if step == 0:
            followed = memory[:, 1].copy()
        for row, demonstration in enumerate(followed):
            own = dataset[int(demonstration)].observations
            np.testing.assert_array_equal(futures[row], own[min(step + 2, len(own) - 1)])
    _, memory = predictor.predict(rows, memory, np.array([True, False]))
    assert memory[0, 0] == 0 and memory[1, 0] == 400 and memory[1, 1] == followed[1]
    with pytest.raises(ValueError, match=r"not \(1, "):
        predictor.predict(rows[:1], memory)


def test_time_indexed_draws_by_seed_row_and_episode_alone(dataset: DemoDataset) -> None:
    """No call changes what another one says: an agent that is evaluated twice acts the same."""

    def followed(seed: int, rows: int, episodes: int = 30) -> list[tuple[int, ...]]:
        predictor, memory, drawn = TimeIndexed().fit(dataset), None, []
        predictor.seed = seed
        states = np.zeros((rows, dataset.observation_dim), dtype=np.float32)
        for _ in range(episodes):
            _, memory = predictor.predict(states, memory, np.ones(rows, dtype=bool))
            drawn.append(tuple(memory[:, 1].tolist()))
        return drawn

    assert followed(0, 4) == followed(0, 4) != followed(1, 4)
    assert {demo for row in followed(0, 1) for demo in row} == {0, 1, 2}


def test_follow_keeps_its_place_where_a_path_crosses_itself() -> None:
    """A path to the right, a loop, and through its own middle again: only the place tells the two passages apart."""
    angle = np.linspace(0, 2 * np.pi, 41)
    loop = np.stack([10 * np.sin(angle), 10 - 10 * np.cos(angle)], axis=1)
    path = np.concatenate([np.linspace([-10, 0], [-1, 0], 10), loop, np.linspace([1, 0], [10, 0], 10)]).astype(
        np.float32
    )
    predictor = Follow().fit(DemoDataset("Somebody-Elses-v0", (episode(path),)))
    state = None
    for step, position in enumerate(path[:-1]):
        rows = np.stack([position + np.float32([0, 0.3]), path[0]])
        futures, state = predictor.predict(rows, state, np.array([step == 0, True]))
        np.testing.assert_array_equal(futures, [path[step + 1], path[1]])
    _, state = predictor.predict(path[[0, 0]], state, np.array([False, True]))
    assert state[0, 0] > 50 and state[1, 0] == 0  # nothing leads back but a new episode


def test_follow_passes_pauses_and_changes_to_a_demonstration_that_is_nearer() -> None:
    along = np.stack([np.arange(30.0), np.zeros(30)], axis=1).astype(np.float32)
    paused = np.concatenate([along[:10], along[9:10].repeat(5, axis=0), along[10:]])
    same_units = Scale(spaces.Box(-1, 1, (2,), np.float32))
    dataset = DemoDataset("Somebody-Elses-v0", (episode(paused), episode(along + np.float32([0, 8]))))
    predictor = Follow().build(same_units).fit(dataset)
    _, state = predictor.predict(along[[8]])
    futures, state = predictor.predict(along[[9]], state)
    np.testing.assert_array_equal(futures, along[[10]])
    for away, row in ((4.3, 0), (7.0, 8)):  # a usual step nearer is not enough, more is
        here = along[[12]] + np.float32([0, away])
        futures, state = predictor.predict(here, state)
        assert futures[0, 1] == row


def test_follow_frees_an_agent_that_a_corner_holds_up() -> None:
    """The demonstrator passes a corner that stops the agent: waiting at one place for long leads on, step by step."""
    path = np.stack([np.arange(20.0), np.zeros(20)], axis=1).astype(np.float32)
    predictor = Follow().fit(DemoDataset("Somebody-Elses-v0", (episode(path),)))
    held, state, aims = path[[5]], None, []
    for _ in range(2 * predictor.window):
        futures, state = predictor.predict(held, state)
        aims.append(float(futures[0, 0]))
    assert aims[: predictor.window] == [6.0] * predictor.window and aims[-1] > 6.0
    assert predictor.predict(held, state, np.ones(1, dtype=bool))[0][0, 0] == 6.0  # a new episode has not waited


def test_follow_goes_on_where_a_goal_was_reached_and_not_beyond_one_that_is_not(dataset: DemoDataset) -> None:
    predictor = Follow().fit(dataset)
    flags, own = list(dataset.goal_flags), dataset[0].observations
    touch = int(np.flatnonzero(own[:, flags[0]])[0])  # the step after which the first goal counts
    missed = own[touch : touch + 3].copy()
    missed[:, flags] = 0
    _, state = predictor.predict(own[[touch - 1]])
    for here in missed[:, None]:
        futures, state = predictor.predict(here, state)
        assert futures[0, flags].sum() <= 1
        assert predictor.observations[state[0, 0], flags].sum() == 0
    early = own[[0]].copy()
    early[:, flags[0]] = 1
    _, state = predictor.predict(early, predictor.predict(own[[0]])[1])
    assert predictor.observations[state[0, 0], flags].sum() == 1


def test_learned_predictor_learns_a_known_motion() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for seed in range(5):
        start, velocity = rng.uniform(-5, 5, 2), np.array([0.3, -0.2])
        path = start + np.arange(41)[:, None] * velocity + np.sin(start.sum())
        episodes.append(episode(path.astype(np.float32), seed))
    dataset = DemoDataset("Somebody-Elses-v0", tuple(episodes))
    predictor = Learned(steps=300).fit(dataset, horizon=3)
    transitions = dataset.transitions(3)
    inside = transitions.step < 37  # beyond, the end repeats
    error = np.abs(predictor.predict(transitions.state)[0] - transitions.future)[inside].mean()
    unchanged = np.abs(transitions.state - transitions.future)[inside].mean()
    assert error < 0.1 * unchanged


def test_learned_predictor_rounds_flags(dataset: DemoDataset) -> None:
    futures, _ = Learned(steps=20).fit(dataset).predict(dataset[0].observations)
    assert set(np.unique(futures[:, list(dataset.goal_flags)])) <= {0.0, 1.0}


def test_oracle_says_what_its_function_says(dataset: DemoDataset) -> None:
    oracle = Oracle(lambda observations: observations + 1).fit(dataset)
    np.testing.assert_array_equal(oracle.predict(dataset[0].observations)[0], dataset[0].observations + 1)


@pytest.mark.parametrize("horizon", [2, 7, 1000])
@pytest.mark.parametrize("kind", [Nearest, Neighbors, Follow, TimeIndexed])
def test_a_horizon_set_later_is_obeyed(kind: type[Lookup], horizon: int, dataset: DemoDataset) -> None:
    """As if the predictor had been fitted with it, also in the middle of an episode."""
    later, fitted = kind().fit(dataset[[1]], 1), kind().fit(dataset[[1]], horizon)
    memories = [None, None]
    for step, state in enumerate(dataset[1].observations[:12]):
        later.horizon = 1 if step < 3 else horizon
        (one, memories[0]), (other, memories[1]) = (
            each.predict(state[None], memory) for each, memory in zip((later, fitted), memories, strict=True)
        )
        assert np.array_equal(one, other) == (step >= 3)


def test_a_learned_predictor_refuses_another_horizon(dataset: DemoDataset) -> None:
    predictor = Learned(steps=2).fit(dataset, 3)
    predictor.horizon = 4
    with pytest.raises(ValueError, match="trained for horizon 3, not 4: fit it again"):
        predictor.predict(dataset[0].observations)
    assert predictor.fit(dataset, 4).predict(dataset[0].observations)[0].shape == dataset[0].observations.shape


# how strongly the demonstrations pull


@pytest.mark.parametrize("kind", [Nearest, Follow, TimeIndexed, Neighbors])
def test_pull_mixes_the_demonstrated_state_with_the_demonstrated_change(
    kind: type[Lookup], dataset: DemoDataset
) -> None:
    flags = list(dataset.goal_flags)
    numbers = [column for column in range(dataset.observation_dim) if column not in flags]
    states = dataset[0].observations[:-1:9].copy()
    states[:, :2] += np.float32([7, -3])
    own, half, demonstrated = (kind(pull=pull).fit(dataset, 5).predict(states)[0] for pull in (0.0, 0.5, 1.0))
    np.testing.assert_allclose(half[:, numbers], ((own + demonstrated) / 2)[:, numbers], atol=1e-3)
    for futures in (own, half, demonstrated):
        assert set(np.unique(futures[:, flags])) <= {0.0, 1.0}
    if kind is not Neighbors:
        known = {row.tobytes() for each in dataset for row in each.observations}
        assert all(row.tobytes() in known for row in demonstrated)


def test_without_pull_the_change_of_the_nearest_state_is_repeated(dataset: DemoDataset) -> None:
    observations = dataset[0].observations
    alone = dataset[[0]]
    states = observations[5:-5].copy()
    states[:, :2] += np.float32([0.25, 0.25])  # less than half a step: the nearest state is the own one
    futures, _ = Nearest(pull=0).fit(alone, 3).predict(states)
    expected = states[:, :2] + observations[8:-2, :2] - observations[5:-5, :2]
    close = np.linalg.norm(np.diff(observations[4:, :2], axis=0), axis=1)[: len(states)] > 2  # not held by a wall
    np.testing.assert_allclose(futures[close, :2], expected[close], atol=1e-3)
    pulled, _ = Nearest().fit(alone, 3).predict(states)
    np.testing.assert_array_equal(pulled[close], observations[8:-2][close])


def test_noise_on_its_inputs_makes_a_learned_predictor_return_to_the_demonstrations() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for seed in range(4):
        path = np.stack([np.arange(60) * 0.5, rng.normal(0, 0.02, 60)], axis=1).astype(np.float32)
        episodes.append(episode(path, seed))
    dataset = DemoDataset("Somebody-Elses-v0", tuple(episodes))
    beside = np.stack([np.linspace(2, 25, 40), np.tile([0.06, -0.06], 20)], axis=1).astype(np.float32)
    away = []
    for noise in (0.0, 1.0):
        futures, _ = Learned(steps=400, noise=noise).fit(dataset).predict(beside)
        assert np.abs(futures[:, 0] - beside[:, 0] - 0.5).mean() < 0.3
        away.append(float(np.abs(futures[:, 1]).mean()))
    assert away[1] < 0.5 * away[0]
