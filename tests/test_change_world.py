"""Changes of the world: one method does for one environment and for thousands, and nothing else changes."""

import inspect
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pidm_nav import NavEnv, NavVectorEnv
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.world import World

OPEN = ["..........", ".A........", "..........", ".......1..", ".........."]


class Wind:
    def change_velocity(self, position, velocity, last_velocity):
        return velocity + [0.3, 0.0] * (position[..., 1:] > 100)


class Momentum:
    def change_velocity(self, position, velocity, last_velocity):
        return 0.7 * last_velocity + 0.3 * velocity


class Progress:
    def change_reward(self, start, end, goal, reward):
        return reward + (np.abs(goal - start).max(axis=-1) - np.abs(goal - end).max(axis=-1)) / SPEED


class Borders:
    def make_observation_space(self):
        return gym.spaces.Box(-100.0, 1100.0, (4,), np.float32)

    def observe(self, states):
        return np.concatenate([states[..., :2], self.layout.room_size - states[..., :2]], axis=-1).astype(np.float32)


def pair(change):
    return type("One", (change, NavEnv), {}), type("Many", (change, NavVectorEnv), {})


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("change", [Wind, Momentum, Progress, Borders])
def test_rows_equal_single_environments(change, mode):
    one, many = pair(change)
    ours = many(num_envs=3, max_episode_steps=40, autoreset_mode=mode, task="maze")
    limited = lambda: gym.wrappers.TimeLimit(one(task="maze"), 40)  # noqa: E731
    judge = SyncVectorEnv([limited] * 3, autoreset_mode=mode)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], judge.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        for value, expected in zip(ours.step(actions)[:4], (ended := judge.step(actions))[:4], strict=True):
            np.testing.assert_array_equal(value, expected)
        if mode == AutoresetMode.DISABLED and (ended[2] | ended[3]).any():
            for envs in (ours, judge):
                envs.reset(options={"reset_mask": ended[2] | ended[3]})


@pytest.mark.parametrize("change", [Wind, Momentum, Progress, Borders])
def test_a_changed_environment_is_a_good_one(change):
    check_env(pair(change)[0](task="zigzag"), skip_render_check=True)


def test_what_the_changes_do():
    still = {"layout": OPEN, "noise_std": 0.0}
    windy, plain = pair(Wind)[0](**still), NavEnv(**still)
    start = windy.reset(seed=0)[0]
    plain.reset(seed=0)
    assert windy.step([0.0, 0.0])[0][0] == start[0] + 0.3 * SPEED
    assert plain.step([0.0, 0.0])[0][0] == start[0]
    slow = pair(Momentum)[0](**still)
    slow.reset(seed=0)
    xs = [slow.step([1.0, 0.0])[0][0] for _ in range(3)]
    assert np.diff([start[0], *xs]) == pytest.approx([6.0, 10.2, 13.14])
    slow.reset(seed=0)
    assert slow.step([0.0, 0.0])[0][0] == start[0], "an episode begins at rest"
    dense = pair(Progress)[0](**still)
    dense.reset(seed=0)
    assert dense.step([1.0, 0.0])[1] == 1.0


def test_a_map_is_text_lines_or_a_file(tmp_path):
    text = "\n".join(OPEN) + "\n"
    (tmp_path / "map.txt").write_text(text)
    assert Layout.load(OPEN) == Layout.load(tuple(OPEN)) == Layout.load(text) == Layout.load(tmp_path / "map.txt")
    env = gym.make("PIDMNav-Custom-v0", layout=OPEN)
    assert gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json())).unwrapped.layout == Layout.load(text)
    with pytest.raises(ValueError, match="give a path, the map's text or its lines"):
        gym.make("PIDMNav-Custom-v0", layout=[1, 2])


@pytest.mark.parametrize("kind", [NavEnv, NavVectorEnv])
def test_arguments_are_spelled_out(kind):
    shown = inspect.signature(kind).parameters
    for name, expected in inspect.signature(World).parameters.items():
        assert shown[name].default == expected.default, name
        assert f"`{name}`" in (NavEnv.__doc__ or "")
    assert not any(each.kind is each.VAR_KEYWORD for each in shown.values())


@pytest.mark.parametrize("make", [NavEnv, lambda **named: NavVectorEnv(num_envs=2, **named)], ids=["one", "many"])
def test_pickles_are_small(make):
    env = make(task="maze", random_start=True, random_goals=True)
    env.reset(seed=0)
    env.step(np.zeros((2, 2)) if isinstance(env, NavVectorEnv) else np.zeros(2))
    assert len(pickle.dumps(env)) < 100_000


def test_a_pickle_does_not_need_the_map_s_file(tmp_path):
    (tmp_path / "map.txt").write_text("\n".join(OPEN))
    env = NavEnv(layout=str(tmp_path / "map.txt"))
    (tmp_path / "map.txt").unlink()
    pickle.loads(pickle.dumps(env)).reset(seed=0)


@pytest.mark.parametrize("make", [NavEnv, lambda **named: NavVectorEnv(num_envs=2, **named)], ids=["one", "many"])
def test_reset_and_step_say_what_is_wrong(make):
    env = make(task="maze")
    actions = np.zeros((2, 2)) if isinstance(env, NavVectorEnv) else np.zeros(2)
    with pytest.raises(gym.error.ResetNeeded, match=r"step\(\) needs .*: call reset\(\) first"):
        env.step(actions)
    with pytest.raises(ValueError, match="reset has no option 'stat': did you mean 'state'"):
        env.reset(options={"stat": np.zeros(32)})
    for impossible in ("here", None, [[1, 2], [3]], 5.0):
        with pytest.raises(ValueError, match="state"):
            env.reset(options={"state": impossible})


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_ended_rows_go_on_where_they_are_put(mode):
    envs = NavVectorEnv(num_envs=2, max_episode_steps=3, autoreset_mode=mode, task="maze", noise_std=0.0)
    states = envs.reset(seed=0)[0]
    still = np.zeros((2, 2))
    for _ in range(3):
        *_, truncated, _ = envs.step(still)
    assert truncated.all()
    states[:, 0] += [10.0, 20.0]
    envs.set_state(states)
    observations, _, terminated, truncated, _ = envs.step(still)
    np.testing.assert_array_equal(observations, states)
    assert not (terminated | truncated).any(), "a row that had ended begins a new episode"
