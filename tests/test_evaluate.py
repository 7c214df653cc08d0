"""Rollouts of any policy: the same episodes as a plain Gymnasium loop, and figures that follow from them."""

import gymnasium as gym
import numpy as np
import pytest

from pidm_nav import rollout as evaluate_module
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.rollout import evaluate, roll_out
from pidm_nav.tasks import TASKS

LANE = {"layout": "............\n.A.1.2..3...\n............\n", "room_size": [600, 150]}


class Constant:
    """Always the same action; remembers how it was called."""

    def __init__(self, action):
        self.action, self.calls = action, []

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        self.calls.append((state, episode_start))
        return np.tile(np.float32(self.action), (len(observation), 1)), (0 if state is None else state + 1)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_episodes_are_those_of_a_plain_loop(task):
    expert = AStarExpert(task)
    result = evaluate(expert, task, episodes=3, seed=20)
    env = gym.make(task.env_id)
    for row, seed in enumerate(result.seeds.tolist()):
        observation, info = env.reset(seed=seed)
        states = [observation]
        ended = False
        while not ended:
            observation, _, terminated, truncated, info = env.step(expert.predict(observation)[0])
            states.append(observation)
            ended = terminated or truncated
        np.testing.assert_array_equal(result.rollouts[row].states, states)
        assert result.length[row] == len(states) - 1
        assert result.goal_ratio[row] == info["goal_ratio"]
        assert result.success[row] == info["is_success"]


def test_figures_of_a_policy_that_stands_still_and_of_one_that_succeeds():
    still = evaluate(Constant([0, 0]), "maze", episodes=4)
    assert (still.mean_goal_ratio, still.success_rate, still.interval) == (0.0, 0.0, (0.0, 0.0))
    assert still.length.tolist() == [300] * 4
    right = evaluate(Constant([1, 0]), "custom", episodes=4, noise_std=0.0, **LANE)
    assert right.success.all()
    assert right.returns.tolist() == [3.0] * 4
    assert right.summary()["goal_ratio"] == 1.0
    assert right.table()[2] == {
        "seed": 2, "goal_ratio": 1.0, "success": True, "length": int(right.length[2]), "return": 3.0
    }  # fmt: skip


def test_the_interval_holds_the_mean():
    expert = AStarExpert("four-room")
    result = evaluate(expert, "four-room", episodes=40, max_steps=50, random_start=True)
    low, high = result.interval
    assert 0 < low < result.mean_goal_ratio < high < 1


def test_batches_give_the_same_episodes(monkeypatch):
    whole = evaluate(Constant([0.3, -0.2]), "four-room", episodes=7, seed=5, max_steps=30)
    monkeypatch.setattr(evaluate_module, "BATCH", 3)
    ended = []
    parts = evaluate(Constant([0.3, -0.2]), "four-room", episodes=7, seed=5, max_steps=30, progress=ended.append)
    assert sum(ended) == 7
    for a, b in zip(whole.rollouts, parts.rollouts, strict=True):
        np.testing.assert_array_equal(a.states, b.states)


def test_the_policy_s_memory_comes_back_and_starts_are_marked_once():
    policy = Constant([0, 0])
    roll_out(policy, "maze", episodes=2, max_steps=3)
    assert [state for state, _ in policy.calls] == [None, 0, 1]
    assert [start.tolist() for _, start in policy.calls] == [[True, True], [False, False], [False, False]]


def test_observations_are_what_the_environment_shows():
    kept = roll_out(Constant([0.5, 0]), "maze", episodes=1, max_steps=5, keep_observations=True, observe_goals=False)
    np.testing.assert_array_equal(kept[0].observations, kept[0].states[:, :2])
    assert roll_out(Constant([0.5, 0]), "maze", episodes=1, max_steps=5)[0].observations is None


def test_a_video_of_any_episode(tmp_path):
    result = evaluate(Constant([1, 0]), "custom", episodes=2, **LANE)
    path = result.video(tmp_path / "episode.gif", episode=1, size=120)
    assert path.read_bytes()[:3] == b"GIF"
    assert len(result.frames(1, 64)) == result.length[1] + 1
    with pytest.raises(ValueError, match="no episode 2"):
        result.video(tmp_path / "none.gif", episode=2)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="episodes is 0"):
        evaluate(Constant([0, 0]), "maze", episodes=0)
    with pytest.raises(ValueError, match="no task is called 'labyrinth'"):
        evaluate(Constant([0, 0]), "labyrinth")
