import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav import PAPER_TASKS
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset, Episode, infer_task
from pidm_nav.world2d.state import state_size


def numbered(lengths, task="Elsewhere-v0", source=None):
    """Observations hold (episode, step), actions their negative: misalignment shows."""
    episodes = []
    for index, length in enumerate(lengths):
        steps = np.arange(length + 1)
        observations = np.stack([np.full(length + 1, index), steps], axis=1)
        episodes.append(Episode(observations, -observations[:-1], np.zeros(length), True, False, seed=index))
    return DemoDataset(task, tuple(episodes), source or {"made_by": "test"})


class Still:
    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.zeros((len(observation), 2), np.float32), state


def nav(task, episodes=3, max_steps=5, **env_kwargs):
    return collect(Still(), task, episodes, max_steps=max_steps, **env_kwargs)


def good():
    return {
        "observations": np.zeros((4, 3)),
        "actions": np.zeros((3, 2)),
        "rewards": np.zeros(3),
        "terminated": True,
        "truncated": False,
    }


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 15),
)
def test_transitions_look_ahead_within_the_episode(lengths, horizon):
    transitions = numbered(lengths).transitions(horizon)
    assert len(transitions.state) == sum(lengths)
    assert transitions.episode.tolist() == [i for i, length in enumerate(lengths) for _ in range(length)]
    assert transitions.step.tolist() == [t for length in lengths for t in range(length)]
    assert np.array_equal(transitions.state[:, 0], transitions.episode)
    assert np.array_equal(transitions.state[:, 1], transitions.step)
    assert np.array_equal(transitions.action, -transitions.state)
    ends = np.array(lengths)[transitions.episode]
    assert np.array_equal(transitions.future[:, 0], transitions.episode)
    assert np.array_equal(transitions.future[:, 1], np.minimum(transitions.step + horizon, ends))


def test_horizon_below_one_is_refused():
    with pytest.raises(ValueError, match="horizon is 0"):
        numbered([3]).transitions(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": np.zeros((3, 3))}, "3 observations for 3 actions: give 4"),
        ({"observations": np.zeros((5, 3))}, "5 observations for 3 actions"),
        ({"observations": np.zeros(4)}, r"observations have shape \(4,\)"),
        ({"observations": np.zeros((4, 0))}, r"observations have shape \(4, 0\)"),
        ({"actions": np.zeros(3)}, r"actions have shape \(3,\)"),
        ({"rewards": np.zeros(2)}, r"rewards have shape \(2,\)"),
        ({"rewards": np.zeros((3, 1))}, r"rewards have shape \(3, 1\)"),
        (
            {"observations": np.zeros((1, 3)), "actions": np.zeros((0, 2)), "rewards": np.zeros(0)},
            "no actions",
        ),
        (
            {"observations": np.full((4, 3), np.nan)},
            r"observations have a NaN or infinite number at \[0, 0\]",
        ),
        ({"actions": np.array([[0, 0], [0, np.inf], [0, 0]])}, r"actions have a NaN .* at \[1, 1\]"),
        ({"rewards": np.array([0, 1e300, 0])}, "rewards have a NaN or infinite"),
        ({"actions": np.array([["a", "b"]] * 3)}, "actions are of type <U1"),
        ({"observations": np.array([[None] * 3] * 4)}, "observations are of type object"),
        ({"actions": np.full((3, 2), -1e10)}, r"actions have a number beyond 1e\+09"),
        ({"terminated": "no"}, "terminated is 'no': it must be True or False"),
        ({"truncated": 1}, "truncated is 1: it must be True or False"),
        ({"seed": -1}, "the seed is -1: it must be an integer of 0 or more"),
        ({"seed": 1.5}, "the seed is 1.5"),
        ({"seed": 2**63}, "the seed is 9223372036854775808"),
        ({"observations": np.zeros((4, 8, 0, 3), np.uint8)}, r"observations have shape \(4, 8, 0, 3\)"),
        ({"infos": {"goals_reached": np.zeros((4, 2))}}, r"info 'goals_reached' has shape \(4, 2\)"),
        ({"infos": {"speed": np.zeros(2)}}, r"info 'speed' has shape \(2,\)"),
        ({"infos": {"speed": np.array(1.0)}}, r"info 'speed' has shape \(\)"),
    ],
)
def test_bad_episodes_are_refused_in_a_sentence(change, message):
    Episode(**good())
    with pytest.raises(ValueError, match=message) as caught:
        Episode(**{**good(), **change})
    assert "\n" not in str(caught.value)


def test_arrays_are_float32_copies_that_cannot_be_changed():
    arrays = good()
    arrays["infos"] = {"goals_reached": np.arange(4)}
    episode = Episode(**arrays)
    arrays["observations"][:] = 7
    arrays["infos"]["goals_reached"][:] = 7
    assert episode.observations.dtype == episode.actions.dtype == episode.rewards.dtype == np.float32
    assert not episode.observations.any() and episode.infos["goals_reached"].tolist() == [0, 1, 2, 3]
    for array in (episode.observations, episode.actions, episode.rewards, episode.infos["goals_reached"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        episode.seed = 3


def test_images_stay_bytes():
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    episode = Episode(images, np.zeros((1, 2)), np.zeros(1), False, True)
    assert episode.observations.dtype == np.uint8 and np.array_equal(episode.observations, images)
    assert DemoDataset("Elsewhere-v0", (episode,)).transitions().future.shape == (1, 4, 4, 3)


def test_success_needs_every_goal():
    state = np.zeros((2, 8), np.float32)
    state[1, 4] = 1
    one_of_two = Episode(state, np.zeros((1, 2)), np.zeros(1), True, False)
    state[1, 7] = 1
    both = Episode(state, np.zeros((1, 2)), np.zeros(1), True, False)
    cut = Episode(state, np.zeros((1, 2)), np.zeros(1), False, True)
    assert (one_of_two.success, both.success, cut.success) == (False, True, False)
    assert numbered([2])[0].success is None  # not a navigation state: that it ended is no success


def test_indexing_slicing_and_iteration():
    data = numbered([1, 2, 3, 4])
    assert len(data) == 4 and data.num_steps == 10 and [len(episode) for episode in data] == [1, 2, 3, 4]
    assert len(data[-1]) == 4 and len(data[np.int64(1)]) == 2
    assert [len(episode) for episode in data[1:3]] == [2, 3]
    assert [len(episode) for episode in data[[3, 0]]] == [4, 1]
    assert [len(episode) for episode in data[np.array([True, False, False, True])]] == [1, 4]
    assert data[1:].source == data.source and data[1:].task == data.task
    assert (data.observation_dim, data.action_dim) == (2, 2)
    with pytest.raises(IndexError):
        data[4]
    with pytest.raises(ValueError, match="at least one episode"):
        data[2:2]


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 99))
def test_samples_are_whole_distinct_nested_and_seeded(n, seed):
    data = numbered(range(1, 9))
    chosen = [episode.seed for episode in data.sample(n, np.random.default_rng(seed))]
    assert len(set(chosen)) == n
    assert chosen == [episode.seed for episode in data.sample(n, np.random.default_rng(seed))]
    more = [episode.seed for episode in data.sample(8, np.random.default_rng(seed))]
    assert set(chosen) <= set(more) == set(range(8))


@pytest.mark.parametrize("n", [0, 5, -1])
def test_impossible_samples_are_refused(n):
    with pytest.raises(ValueError, match=f"cannot sample {n} of 4"):
        numbered([1] * 4).sample(n, np.random.default_rng(0))


@pytest.mark.parametrize(("first", "sizes"), [(3, (3, 7)), (0.5, (5, 5)), (0.9, (9, 1)), (1, (1, 9))])
def test_split_is_a_partition(first, sizes):
    data = numbered([1] * 10)
    parts = data.split(first, np.random.default_rng(0))
    assert tuple(map(len, parts)) == sizes
    assert sorted(episode.seed for part in parts for episode in part) == list(range(10))


@pytest.mark.parametrize("first", [0, 10, 11, 0.01, 0.99, -0.5, 1.0, 1.5])
def test_split_refuses_an_empty_part_and_what_is_no_number_of_episodes(first):
    with pytest.raises(ValueError, match="cannot split 10 episodes"):
        numbered([1] * 10).split(first, np.random.default_rng(0))


def test_concatenate_keeps_order_and_sources():
    first, second = numbered([1, 2], source={"made_by": "a"}), numbered([3], source={"made_by": "b"})
    both = DemoDataset.concatenate([first, second, first])
    assert [len(episode) for episode in both] == [1, 2, 3, 1, 2]
    assert both.source == {"made_by": "a + b", "parts": [{"made_by": "a"}, {"made_by": "b"}]}
    assert DemoDataset.concatenate([first, first]).source == {"made_by": "a"}
    assert DemoDataset.concatenate([both, second]).source == both.source
    with pytest.raises(ValueError, match="cannot concatenate no dataset"):
        DemoDataset.concatenate([])
    with pytest.raises(ValueError, match="Elsewhere-v0 and of Other-v0"):
        DemoDataset.concatenate([first, numbered([1], task="Other-v0")])


def test_episodes_of_different_shapes_are_refused():
    wide = Episode(np.zeros((2, 5)), np.zeros((1, 2)), np.zeros(1), True, False)
    with pytest.raises(ValueError, match=r"observations of episode 1 have shape \(5,\), and of episode 0 \(2,\)"):
        DemoDataset("Elsewhere-v0", (numbered([2])[0], wide))


def test_source_becomes_plain_json():
    data = numbered([1], source={"speed": np.float32(0.5), "size": np.array([1, 2]), "names": ("a",)})
    assert data.source == {"speed": 0.5, "size": [1, 2], "names": ["a"]}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"deeper": deep}
    for source in ({"thing": object()}, {"thing": {(1, 2): 3}}, {"thing": float("nan")}, deep):
        with pytest.raises(ValueError, match="not plain JSON"):
            numbered([1], source=source)


@pytest.mark.parametrize("source", [{"env_kwargs": [1]}, {"parts": 3}, {"parts": [{"env_kwargs": "none"}]}], ids=str)
def test_sources_of_wrong_types_are_refused(source):
    with pytest.raises(ValueError, match=r"Expected `(object|array)`, got"):
        numbered([1], source=source)


def test_repr_is_one_line_that_counts():
    data = numbered([1])
    assert repr(data) == "DemoDataset(Elsewhere-v0, 1 episode, 1 step, observations 2, actions 2, made by test)"
    assert "2 episodes, 3 steps" in repr(numbered([1, 2]))


def test_datasets_pickle_to_worker_processes():
    data = pickle.loads(pickle.dumps(numbered([2, 3])))
    assert data.num_steps == 5 and data.source == {"made_by": "test"}


def test_summary():
    data = numbered([2, 3, 10])
    summary = data.summary()
    assert (summary.task, summary.episodes, summary.total_steps) == ("Elsewhere-v0", 3, 15)
    assert (summary.min_length, summary.mean_length, summary.max_length, summary.success) == (2, 5.0, 10, None)


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_tasks_are_recognized_by_their_goals(task):
    data = nav(task)
    assert data.task == task and infer_task(data[0].observations) == task
    assert data.goal_flags == tuple(range(4, state_size(PAPER_TASKS[task].num_goals), 3))
    assert DemoDataset(PAPER_TASKS[task].env_id, data.episodes).task == task
    for other in PAPER_TASKS:
        if other != task:
            with pytest.raises(ValueError, match=f"states of {other}|goals of {other}: they are those of {task}"):
                DemoDataset(other, data.episodes)


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_other_observations_of_our_tasks_are_taken(task):
    assert nav(task, relative_goals=True).goal_flags == tuple(range(4, state_size(PAPER_TASKS[task].num_goals), 3))
    assert nav(task, random_goals=True).goal_flags
    blind = nav(task, observe_goals=False)
    assert blind.observation_dim == 2 and blind.goal_flags == ()
    assert nav(task, obs_type="pixels", image_size=64).goal_flags == ()
    with pytest.raises(ValueError, match="observations have 2 features"):
        DemoDataset(task, blind.episodes)
    mixed = DemoDataset.concatenate([nav(task), nav(task, random_goals=True)])
    assert len(mixed) == 6 and mixed.env_kwargs == {}


def test_distractors_behind_the_state_are_taken():
    plain = nav("maze")[0]
    noise = np.random.default_rng(0).normal(size=(len(plain) + 1, 3))
    wide = np.concatenate([plain.observations, noise], axis=1)
    data = DemoDataset("maze", (Episode(wide, plain.actions, plain.rewards, False, True),))
    assert data.goal_flags == tuple(range(4, 32, 3))
