"""State predictors: retrieval agrees with brute force, the others do what their names say."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav.agents.networks import Scale
from pidm_nav.agents.predictors import Follow, LearnedPredictor, NearestNeighbor, Oracle, TimeIndexed
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
    for query, found in zip(queries, index.query(queries), strict=True):
        expected, reached = brute_force(transitions.state, flags, query, order)
        state = transitions.state[found]
        assert state[list(flags)].sum() == reached
        difference = np.abs(state[features].astype(np.float64) - query[features])
        assert (difference**order).sum() ** (1 / order) == pytest.approx(expected, abs=1e-6)


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
    found = states[StateIndex(states, flags).query(query[None])[0]]
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
    assert StateIndex(states).query(query)[0] in (0, 1)
    assert StateIndex(states).query(np.float32([[4, 600]]))[0] == 2
    scale = Scale(spaces.Box(np.float32([-1, -1000]), np.float32([1, 1000])))
    assert StateIndex(states, scale=scale).query(query)[0] == 1


@pytest.mark.parametrize("horizon", [1, 5, 1000])
def test_nearest_neighbour_returns_the_same_episodes_future(dataset: DemoDataset, horizon: int) -> None:
    predictor = NearestNeighbor().fit(dataset[[1]], horizon)
    observations = dataset[1].observations
    steps = np.arange(len(observations) - 1)
    distinct = np.unique(observations[:-1], axis=0, return_index=True)[1]  # a wall can hold the agent in place
    futures = predictor.predict(observations[:-1])
    expected = observations[np.minimum(steps + horizon, len(observations) - 1)]
    np.testing.assert_array_equal(futures[distinct], expected[distinct])


def test_training_futures_come_from_the_other_episodes(dataset: DemoDataset) -> None:
    predictor = NearestNeighbor().fit(dataset)
    futures = predictor.training_futures(dataset)
    assert [part.shape for part in futures] == [each.observations.shape for each in dataset]
    others = {row.tobytes() for index in (1, 2) for row in dataset[index].observations}
    assert all(row.tobytes() in others for row in futures[0])


def test_retrieval_bc_repeats_demonstrated_actions(dataset: DemoDataset) -> None:
    agent = RetrievalBC(*dataset_spaces(dataset))
    agent.prepare(dataset[[0]])
    observations, index = np.unique(dataset[0].observations[:-1], axis=0, return_index=True)
    np.testing.assert_array_equal(agent.predict(observations)[0], dataset[0].actions[index])


def test_time_indexed_follows_one_demonstration_and_restarts(dataset: DemoDataset) -> None:
    predictor = TimeIndexed(seed=3).fit(dataset, horizon=2)
    rows = np.zeros((2, dataset.observation_dim), dtype=np.float32)
    state = predictor.advance(None, np.zeros(2, dtype=bool), rows)
    followed = state[:, 1].copy()
    for step in range(400):
        for row, demonstration in enumerate(followed):
            own = dataset[int(demonstration)].observations
            np.testing.assert_array_equal(predictor.predict(rows, state)[row], own[min(step + 2, len(own) - 1)])
        state = predictor.advance(state, np.zeros(2, dtype=bool), rows)
    state = predictor.advance(state, np.array([True, False]), rows)
    assert state[0, 0] == 0 and state[1, 0] == 401 and state[1, 1] == followed[1]
    with pytest.raises(ValueError, match="not that of 1 rows"):
        predictor.advance(state, np.zeros(1, dtype=bool), rows[:1])
    drawn = {int(predictor.advance(None, np.ones(1, dtype=bool), rows[:1])[0, 1]) for _ in range(50)}
    assert drawn == {0, 1, 2}


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
        state = predictor.advance(state, np.array([step == 0, True]), rows)
        np.testing.assert_array_equal(predictor.predict(rows, state), [path[step + 1], path[1]])
    state = predictor.advance(state, np.array([False, True]), path[[0, 0]])
    assert state[0, 0] > 50 and state[1, 0] == 0  # nothing leads back but a new episode


def test_follow_passes_pauses_and_changes_to_a_demonstration_that_is_nearer() -> None:
    along = np.stack([np.arange(30.0), np.zeros(30)], axis=1).astype(np.float32)
    paused = np.concatenate([along[:10], along[9:10].repeat(5, axis=0), along[10:]])
    predictor = Follow().fit(DemoDataset("Somebody-Elses-v0", (episode(paused), episode(along + np.float32([0, 8])))))
    begins = np.zeros(1, dtype=bool)
    state = predictor.advance(None, begins, along[[8]])
    state = predictor.advance(state, begins, along[[9]])
    np.testing.assert_array_equal(predictor.predict(along[[9]], state), along[[10]])
    for away, row in ((4.3, 0), (7.0, 8)):  # a usual step nearer is not enough, more is
        here = along[[12]] + np.float32([0, away])
        state = predictor.advance(state, begins, here)
        assert predictor.predict(here, state)[0, 1] == row


def test_follow_frees_an_agent_that_a_corner_holds_up() -> None:
    """The demonstrator passes a corner that stops the agent: waiting at one place for long leads on, step by step."""
    path = np.stack([np.arange(20.0), np.zeros(20)], axis=1).astype(np.float32)
    predictor = Follow().fit(DemoDataset("Somebody-Elses-v0", (episode(path),)))
    held, state, aims = path[[5]], None, []
    for _ in range(2 * predictor.window):
        state = predictor.advance(state, np.zeros(1, dtype=bool), held)
        aims.append(float(predictor.predict(held, state)[0, 0]))
    assert aims[: predictor.window] == [6.0] * predictor.window and aims[-1] > 6.0
    state = predictor.advance(state, np.ones(1, dtype=bool), held)
    assert predictor.predict(held, state)[0, 0] == 6.0  # a new episode has not waited


def test_follow_goes_on_where_a_goal_was_reached_and_not_beyond_one_that_is_not(dataset: DemoDataset) -> None:
    predictor = Follow().fit(dataset)
    flags, own = list(dataset.goal_flags), dataset[0].observations
    touch = int(np.flatnonzero(own[:, flags[0]])[0])  # the step after which the first goal counts
    missed = own[touch : touch + 3].copy()
    missed[:, flags] = 0
    state = predictor.advance(None, np.ones(1, dtype=bool), own[[touch - 1]])
    for here in missed[:, None]:
        state = predictor.advance(state, np.zeros(1, dtype=bool), here)
        assert predictor.predict(here, state)[0, flags].sum() <= 1
        assert predictor.observations[state[0, 0], flags].sum() == 0
    early = own[[0]].copy()
    early[:, flags[0]] = 1
    state = predictor.advance(predictor.advance(None, np.ones(1, dtype=bool), own[[0]]), np.zeros(1, dtype=bool), early)
    assert predictor.observations[state[0, 0], flags].sum() == 1


def test_learned_predictor_learns_a_known_motion() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for seed in range(5):
        start, velocity = rng.uniform(-5, 5, 2), np.array([0.3, -0.2])
        path = start + np.arange(41)[:, None] * velocity + np.sin(start.sum())
        episodes.append(episode(path.astype(np.float32), seed))
    dataset = DemoDataset("Somebody-Elses-v0", tuple(episodes))
    from gymnasium import spaces

    scale = Scale(spaces.Box(-20, 20, (2,), np.float32))
    predictor = LearnedPredictor(scale, steps=300).fit(dataset, horizon=3)
    transitions = dataset.transitions(3)
    inside = transitions.step < 37  # beyond, the end repeats
    error = np.abs(predictor.predict(transitions.state) - transitions.future)[inside].mean()
    unchanged = np.abs(transitions.state - transitions.future)[inside].mean()
    assert error < 0.1 * unchanged


def test_learned_predictor_rounds_flags(dataset: DemoDataset) -> None:
    scale = Scale(dataset_spaces(dataset)[0])  # type: ignore[arg-type]
    predictor = LearnedPredictor(scale, steps=20).fit(dataset)
    futures = predictor.predict(dataset[0].observations)
    assert set(np.unique(futures[:, list(dataset.goal_flags)])) <= {0.0, 1.0}


def test_oracle_says_what_its_function_says(dataset: DemoDataset) -> None:
    oracle = Oracle(lambda observations: observations + 1).fit(dataset)
    np.testing.assert_array_equal(oracle.predict(dataset[0].observations), dataset[0].observations + 1)
