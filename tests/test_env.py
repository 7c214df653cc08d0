"""One environment: Gymnasium's manners, the state, the arguments."""

import copy
import importlib
import json
import multiprocessing
import pickle
import subprocess
import sys
import warnings
from pkgutil import resolve_name

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.env_match import check_environments_match

import pidm_nav
from pidm_nav.tasks import PAPER_TASKS, TASKS
from pidm_nav.world2d.layout import MARGIN
from pidm_nav.world2d.state import state_size

IDS = [task.env_id for task in PAPER_TASKS.values()]
CUSTOM = "..........\n.A..#...1.\n....#.....\n....#...2.\n..........\n"
EVERY_ID = [*IDS, "PIDMNav-Custom-v0"]


def make(env_id, **arguments):
    if env_id == "PIDMNav-Custom-v0":
        arguments.setdefault("layout", CUSTOM)
    return gym.make(env_id, **arguments)


def walk(env, steps, seed=0):
    """Observations and rewards of a random walk."""
    rng = np.random.default_rng(seed)
    return [env.step(rng.uniform(-1, 1, 2).astype(np.float32))[:2] for _ in range(steps)]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"observe_goals": False},
        {"relative_goals": True},
        {"random_start": True},
        {"random_goals": True},
        {"random_start": True, "random_goals": True, "clip_noise": False},
        {"obs_type": "pixels", "image_size": 64},
        {"render_mode": "rgb_array"},
    ],
    ids=str,
)
@pytest.mark.parametrize("env_id", EVERY_ID)
def test_gymnasium_s_check_env_without_a_warning(env_id, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make(env_id, **arguments)
        check_env(env.unwrapped, skip_render_check="render_mode" not in arguments)
        env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_stable_baselines_check_env(env_id):
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb3_check_env(gym.make(env_id))


@pytest.mark.parametrize("env_id", IDS)
def test_torchrl_check_env_specs(env_id):
    torchrl_envs = pytest.importorskip("torchrl.envs")
    torchrl_envs.check_env_specs(torchrl_envs.GymWrapper(gym.make(env_id)), seed=0)


@pytest.mark.parametrize("task", PAPER_TASKS.values(), ids=PAPER_TASKS)
def test_the_datasheet(task):
    env = gym.make(task.env_id)
    assert env.spec.max_episode_steps == task.max_steps
    assert env.observation_space.shape == (state_size(task.num_goals),)
    assert env.observation_space.dtype == np.float32
    assert np.isfinite(env.observation_space.low).all()
    assert np.isfinite(env.observation_space.high).all()
    assert env.action_space == gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation, info = env.reset(seed=0)
    np.testing.assert_array_equal(observation[:2], task.layout().starts[0])
    np.testing.assert_array_equal(observation[2:].reshape(-1, 3)[:, :2], task.layout().goals)
    assert not observation[4::3].any()
    assert info == {
        "goals_reached": 0,
        "num_goals": task.num_goals,
        "goal_ratio": 0.0,
        "is_success": False,
        "reached_goal": -1,
    }
    for _ in range(task.max_steps):
        *_, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize("env_id", IDS)
def test_the_same_seed_gives_the_same_environment(env_id):
    check_environments_match(gym.make(env_id), gym.make(env_id), num_steps=400, seed=3)
    env = gym.make(env_id)
    env.reset(seed=1)
    first = walk(env, 20)
    env.reset(seed=2)
    other = walk(env, 20)
    assert not np.array_equal(first[-1][0], other[-1][0])
    env.reset(seed=1)
    again = walk(env, 20)
    for (a, _), (b, _) in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_unseeded_episodes_differ():
    env = gym.make("PIDMNav-Maze-v0")
    env.reset(seed=0)
    first = walk(env, 5)
    env.reset()
    assert not np.array_equal(first[-1][0], walk(env, 5)[-1][0])


def test_every_call_returns_fresh_arrays():
    env = gym.make("PIDMNav-Maze-v0").unwrapped
    first, _ = env.reset(seed=0)
    kept = first.copy()
    second, *_ = env.step(np.ones(2, np.float32))
    second[:] = -1
    np.testing.assert_array_equal(first, kept)
    assert env.get_state()[2] == kept[2], "writing to an observation must not reach the environment"


def test_goals_count_in_order_and_the_observation_shows_the_next():
    """The reward belongs to the goal just touched; the observation returned with it shows that goal as reached."""
    layout = "............\n.A.1.2..3...\n............\n"
    env = gym.make("PIDMNav-Custom-v0", layout=layout, room_size=[600, 150], noise_std=0.0)
    observation, _ = env.reset(seed=0)
    reached, rewards = [], []
    terminated = False
    while not terminated:
        observation, reward, terminated, _, info = env.step([1.0, 0.0])
        rewards.append(reward)
        if reward:
            reached.append(info["reached_goal"])
            assert observation[4::3].tolist() == [1.0] * info["goals_reached"] + [0.0] * (3 - info["goals_reached"])
            assert info["goals_reached"] == info["reached_goal"] + 1
        else:
            assert info["reached_goal"] == -1
    assert reached == [0, 1, 2]
    assert sum(rewards) == 3
    assert info["is_success"]
    assert info["goal_ratio"] == 1.0


def test_a_later_goal_does_not_count_before_its_turn():
    env = gym.make("PIDMNav-Custom-v0", layout="........\n.A.2.1..\n........\n", room_size=[400, 150], noise_std=0.0)
    env.reset(seed=0)
    infos = [env.step([1.0, 0.0])[4] for _ in range(12)]
    assert [info["reached_goal"] for info in infos if info["reached_goal"] >= 0] == [0]


@pytest.mark.parametrize("action", [[0.1], [0.1, 0.2, 0.3], 0.5, [[0.1, 0.2]], [np.nan, 0.0], [0.0, float("nan")]])
def test_wrong_actions_are_a_value_error(action):
    env = gym.make("PIDMNav-Maze-v0").unwrapped
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(ValueError, match="the action"):
        env.step(action)
    np.testing.assert_array_equal(env.get_state(), before)


def test_large_actions_are_clipped():
    envs = [gym.make("PIDMNav-Maze-v0").unwrapped for _ in range(2)]
    for env in envs:
        env.reset(seed=0)
    a, *_ = envs[0].step(np.array([50.0, -np.inf]))
    b, *_ = envs[1].step(np.array([1.0, -1.0]))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("env_id", IDS)
def test_states_can_be_saved_and_restored(env_id):
    env = gym.make(env_id).unwrapped
    env.reset(seed=0)
    walk(env, 30)
    state = env.get_state()
    env.reset(seed=5)
    env.set_state(state)
    np.testing.assert_array_equal(env.get_state(), state)
    observation, info = env.reset(seed=5, options={"state": state})
    np.testing.assert_array_equal(observation, state)
    assert info["goals_reached"] == state[4::3].sum()


def test_impossible_states_are_refused_and_change_nothing():
    env = gym.make("PIDMNav-FourRoom-v0").unwrapped
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        env.set_state(gym.make("PIDMNav-FourRoom-v0").reset(seed=0)[0])
    good, _ = env.reset(seed=0)
    cases = {
        "give 14 finite numbers": good[:-1],
        r"nan.* is not one of this task": np.where(np.arange(14) == 1, np.nan, good),
        "goals are reached in order": np.where(np.arange(14) == 7, 1.0, good),
        "inside a wall": np.where(np.arange(14) == 0, 5.0, good),
        "outside the room": np.where(np.arange(14) == 1, 5000.0, good),
        "goal 1 of the state is at": np.where(np.arange(14) == 2, 80.0, good),
        "one is left to reach": np.where(np.isin(np.arange(14), [4, 7, 10, 13]), 1.0, good),
    }
    for said, state in cases.items():
        with pytest.raises(ValueError, match=said):
            env.set_state(state)
        with pytest.raises(ValueError, match=said):
            env.reset(options={"state": state})
    np.testing.assert_array_equal(env.get_state(), good)


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"]
)
def test_a_copy_goes_on_with_the_running_episode(clone):
    env = gym.make("PIDMNav-Multiroom-v0", render_mode="rgb_array")
    env.reset(seed=0)
    walk(env, 20)
    twin = clone(env)
    for (a, reward_a), (b, reward_b) in zip(walk(env, 300, seed=1), walk(twin, 300, seed=1), strict=True):
        np.testing.assert_array_equal(a, b)
        assert reward_a == reward_b
    np.testing.assert_array_equal(env.render(), twin.render())


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_the_spec_survives_json(env_id):
    arguments = {"noise_std": 0.1, "clip_noise": False, "random_start": True, "relative_goals": True}
    env = make(env_id, **arguments, max_episode_steps=33)
    text = env.spec.to_json()
    json.loads(text)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(text))
    assert again.spec.max_episode_steps == 33
    assert again.unwrapped.world.physics.noise_std == 0.1
    check_environments_match(env, again, num_steps=50, seed=0)


def test_observation_arguments():
    full, _ = gym.make("PIDMNav-Zigzag-v0").reset(seed=0)
    plain, _ = gym.make("PIDMNav-Zigzag-v0", observe_goals=False).reset(seed=0)
    np.testing.assert_array_equal(plain, full[:2])
    relative, _ = gym.make("PIDMNav-Zigzag-v0", relative_goals=True).reset(seed=0)
    np.testing.assert_array_equal(relative[2::3], full[2::3] - full[0])
    np.testing.assert_array_equal(relative[3::3], full[3::3] - full[1])
    np.testing.assert_array_equal(relative[4::3], full[4::3])
    env = gym.make("PIDMNav-Zigzag-v0", obs_type="pixels", image_size=84)
    pixels, _ = env.reset(seed=0)
    assert (pixels.shape, pixels.dtype) == ((84, 84, 3), np.uint8)
    moved, *_ = env.step(np.array([1.0, 0.0], np.float32))
    assert not np.array_equal(pixels, moved)


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_random_starts_and_goals_are_free_and_apart(env_id):
    env = make(env_id, random_start=True, random_goals=True).unwrapped
    starts = set()
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        goals = observation[2:].reshape(-1, 3)[:, :2]
        places = np.concatenate([observation[None, :2], goals])
        assert not env.world.physics.collides(places).any()
        apart = np.abs(places[:, None] - places[None]).max(axis=-1) + 1000 * np.eye(len(places))
        assert apart.min() >= 20, "no box overlaps another: the episode does not begin inside a goal"
        starts.add(tuple(observation[:2]))
    assert len(starts) > 50


def test_several_starts_are_drawn_from():
    env = gym.make("PIDMNav-Custom-v0", layout="..........\n.A......A.\n....1.....\n")
    assert len({tuple(env.reset(seed=seed)[0][:2]) for seed in range(20)}) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"obs_type": "words"}, "obs_type is 'words'"),
        ({"image_size": 4}, "image_size is 4"),
        ({"render_mode": "ascii"}, "render_mode is 'ascii'"),
        ({"noise_std": -1.0}, r"noise_std is -1\.0"),
    ],
)
def test_wrong_arguments_are_a_value_error(arguments, said):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=said):
            gym.make("PIDMNav-Maze-v0", **arguments)
    with pytest.raises(ValueError, match="needs layout="):
        gym.make("PIDMNav-Custom-v0")


HOSTILE = (-1, 0, np.nan, np.inf, 1e308, 1e-320, 10**20, "x", [], None)
NUMBERS = ("noise_std", "deadzone", "image_size", "room_size", "goal_order", "max_episode_steps", "num_envs")


@pytest.mark.parametrize("value", HOSTILE, ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_hostile_argument_is_a_sentence_or_works(name, value):
    if name == "max_episode_steps" and gym.__version__.startswith("1.1."):
        pytest.skip("Gymnasium 1.1 does not check its own argument")
    arguments = {"layout": CUSTOM, "obs_type": "pixels" if name == "image_size" else "state", name: value}
    if name == "room_size":
        arguments[name] = (value, 800)
    for make_it in (gym.make_vec,) if name == "num_envs" else (gym.make, gym.make_vec):
        try:
            env = make_it("PIDMNav-Custom-v0", **arguments)
        except ValueError as error:
            assert name == "max_episode_steps" or name in str(error)
            continue
        except TypeError:  # Gymnasium's own check of the step limit
            assert (name, make_it) == ("max_episode_steps", gym.make)
            continue
        env.reset(seed=0)
        observation, *_ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)


@pytest.mark.parametrize("value", HOSTILE[:7], ids=str)
@pytest.mark.parametrize("name", ["noise_std", "deadzone", "image_size", "frame_skip", "latency_ms", "drop_frames"])
def test_a_hostile_argument_of_a_3d_task_is_a_sentence_or_works(name, value):
    try:
        resolve_name(TASKS["maze-3d"].world)(**{name: (value, value) if name == "latency_ms" else value})
    except ValueError as error:
        assert name in str(error)


@pytest.mark.parametrize("env_id", IDS)
def test_a_task_with_a_map_takes_no_other(env_id):
    for make_it in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match="has its own map: use PIDMNav-Custom-v0"):
            make_it(env_id, layout=CUSTOM)


def test_positions_outside_the_room_are_in_the_space():
    """Zigzag's bottom row has gaps: a bounce there can end a few pixels outside."""
    env = gym.make("PIDMNav-Zigzag-v0", clip_noise=False, noise_std=0.5)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(20000):
        observation, _, terminated, truncated, _ = env.step([rng.uniform(-1, 1), 1.0])
        assert env.observation_space.contains(observation)
        if terminated or truncated:
            env.reset()
    assert env.observation_space.low[0] == -MARGIN


def make_in_a_worker(env_id):
    env = gym.make(env_id)
    return env.reset(seed=0)[0].tolist()


@pytest.mark.parametrize("method", [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()])
def test_ids_with_a_module_work_in_fresh_processes(method):
    expected = make_in_a_worker("PIDMNav-Maze-v0")
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(make_in_a_worker, ("pidm_nav:PIDMNav-Maze-v0",)) == expected


def run_python(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_the_id_imports_the_package_by_itself():
    done = run_python("import gymnasium; print(gymnasium.make('pidm_nav:PIDMNav-Maze-v0').reset(seed=0)[0].shape)")
    assert (done.returncode, done.stdout.strip()) == (0, "(32,)"), done.stderr


def test_importing_twice_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(pidm_nav)


def test_importing_stays_light():
    heavy = ["torch", "pygame", "matplotlib", "scipy", "stable_baselines3", "imageio"]
    done = run_python(f"import sys, pidm_nav; print([name for name in {heavy} if name in sys.modules])")
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_human_mode_shows_a_window_and_rgb_array_does_not():
    import pygame

    env = gym.make("PIDMNav-Maze-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert frame.ndim == 3
    assert frame.dtype == np.uint8
    assert pygame.display.get_surface() is None
    env = gym.make("PIDMNav-Maze-v0", render_mode="human")
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    assert pygame.display.get_surface() is not None
    env.close()
    env.close()
    assert not pygame.display.get_init()
