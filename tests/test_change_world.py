"""Changes of the world: one method does for one environment and for thousands, and nothing else changes."""

import inspect
import pickle
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pidm_nav import (
    AStarExpert,
    Comparison,
    NavEnv,
    NavVectorEnv,
    RandomPlay,
    collect,
    evaluate,
    find_task,
)
from pidm_nav.tasks import known_task, task_of
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


@pytest.mark.parametrize("velocity", [np.array([np.nan, 0.0]), np.array([np.inf, 0.0]), 0.0, None])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_velocity_that_cannot_be_is_refused(velocity, many):
    class Wrong:
        def change_velocity(self, position, own, last_velocity):
            return None if velocity is None else np.zeros_like(own) + velocity if np.ndim(velocity) else velocity

    env = pair(Wrong)[many](**({"num_envs": 20} if many else {}), task="maze")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"change_velocity returned .*: return finite numbers of shape"):
        env.step(np.zeros((20, 2)) if many else np.zeros(2))


@pytest.fixture
def ids():
    before = dict(gym.registry)
    yield
    for name in gym.registry.keys() - before.keys():
        del gym.registry[name]


class WindyEnv(Wind, NavEnv): ...


class WindyVectorEnv(Wind, NavVectorEnv): ...


class BorderEnv(Borders, NavEnv): ...


@pytest.mark.usefixtures("ids")
@pytest.mark.parametrize("entry", [WindyEnv, f"{__name__}:WindyEnv"], ids=["class", "text"])
def test_a_registered_change_of_a_task_keeps_its_map_goals_and_metric(entry):
    gym.register("Windy-v0", entry, vector_entry_point=WindyVectorEnv, max_episode_steps=70, kwargs={"task": "maze"})
    task, maze = find_task("Windy-v0"), find_task("maze")
    assert (task.metric, task.max_steps, task.num_goals, task.layout()) == ("goal ratio", 70, 10, maze.layout())
    demos = collect(AStarExpert("maze"), "Windy-v0", 2)
    assert demos.task == "Windy-v0" and demos.goal_flags == maze.goal_flags(32) and demos.num_goals == 10
    named = evaluate(AStarExpert("maze"), "Windy-v0", 5)
    calm, given, made = (
        evaluate(AStarExpert("maze"), world, 5, max_steps=70)
        for world in ("maze", gym.make("Windy-v0"), WindyEnv(task="maze"))
    )
    for same in (given, made):
        np.testing.assert_array_equal(named.scores, same.scores)
    assert 0 < named.mean_goal_ratio < 1 and named.task == given.task and made.task.name == "WindyEnv"
    assert given.env_kwargs == {} and evaluate(AStarExpert("maze"), gym.make("Windy-v0", noise_std=0.0), 1).env_kwargs
    for other in (named, made):
        with pytest.raises(ValueError, match="have not played the same episodes"):
            Comparison({"windy": other, "calm": calm})


@pytest.mark.usefixtures("ids")
def test_a_registered_change_of_what_is_seen_has_no_state_to_read():
    gym.register("Borders-v0", BorderEnv, kwargs={"task": "maze"})
    task = find_task("Borders-v0")
    assert (task.metric, task.max_steps, task.flags, task.has_2d_state) == ("goal ratio", 300, None, False)
    demos = collect(AStarExpert("maze"), "Borders-v0", 1)
    assert demos.goal_flags == () and demos[0].observations.shape[1:] == (4,)
    assert evaluate(AStarExpert("maze"), "Borders-v0", 2).mean_goal_ratio > 0.5


@pytest.mark.usefixtures("ids")
def test_what_is_not_derived_from_a_task_s_environment_is_no_change_of_it():
    gym.register("Other-v0", lambda task: gym.make("Pendulum-v1"), kwargs={"task": "maze"})
    assert find_task("Other-v0").metric == "return" and known_task("Other-v0") is None
    assert known_task("Pendulum-v1") is None and known_task("nothing") is None


@pytest.mark.usefixtures("ids")
def test_registered_arguments_are_not_given_ones():
    gym.register("Listed-v0", lambda numbers: gym.make("Pendulum-v1").unwrapped, kwargs={"numbers": [1, 2]})
    assert task_of(gym.make("Listed-v0"))[1] == {}
    assert task_of(gym.make("Listed-v0", numbers=[3]))[1] == {"numbers": [3]}


def test_how_an_environment_is_drawn_is_no_argument_of_it():
    seen = evaluate(AStarExpert("maze"), gym.make("PIDMNav-Maze-v0", render_mode="rgb_array"), 1)
    other = task_of(gym.make("Pendulum-v1", render_mode="rgb_array", g=9.0))[1]
    assert seen.env_kwargs == {} and other == {"g": 9.0}
    with pytest.raises(ValueError, match="arguments have 'render_mode', which is set elsewhere"):
        replace(collect(RandomPlay("maze"), "maze", 1), source={"env_kwargs": {"render_mode": "human"}})
