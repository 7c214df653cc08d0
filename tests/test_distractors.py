"""Distractors change what is observed, and nothing else."""

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pidm_nav  # noqa: F401
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.distractors import ExogenousNoise
from pidm_nav.world2d.drawing import COLORS, FLOOR

KINDS = ("iid", "random_walk")
Rollout = tuple[np.ndarray, np.ndarray]


def make(task: str = "maze", kind: str = "iid", obs_type: str = "state", **arguments: object) -> ExogenousNoise:
    env = gym.make(PAPER_TASKS[task].env_id, obs_type=obs_type, image_size=64)
    return ExogenousNoise(env, kind=kind, **arguments)


def roll(env: gym.Env, seed: int | None, steps: int = 25) -> Rollout:
    """Observations and rewards of a fixed sequence of actions."""
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, 2)).astype(np.float32)
    observations, rewards = [env.reset(seed=seed)[0]], []
    for action in actions:
        observation, reward, *_ = env.step(action)
        observations.append(observation)
        rewards.append(reward)
    return np.stack(observations), np.array(rewards)


@pytest.mark.parametrize("task", PAPER_TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_features_are_appended_and_the_task_is_untouched(task: str, kind: str) -> None:
    env = make(task, kind, features=5)
    noisy, rewards = roll(env, 3)
    plain, plain_rewards = roll(gym.make(PAPER_TASKS[task].env_id), 3)
    assert noisy.dtype == plain.dtype and noisy.shape[1] == plain.shape[1] + 5
    np.testing.assert_array_equal(noisy[:, :-5], plain)
    np.testing.assert_array_equal(rewards, plain_rewards)
    assert all(env.observation_space.contains(observation) for observation in noisy)
    assert np.isfinite(env.observation_space.low).all() and np.isfinite(env.observation_space.high).all()


@pytest.mark.parametrize(("kind", "std"), [("iid", None), ("random_walk", None), ("iid", 4.0), ("random_walk", 2.0)])
def test_features_have_the_stated_spread(kind: str, std: float | None) -> None:
    env = make(kind=kind, features=200, std=std)
    distractors = roll(env, 0, 60)[0][:, -200:].astype(float)
    expected = std or {"iid": 1.0, "random_walk": 0.3}[kind]
    if kind == "iid":
        assert abs(distractors.std() / expected - 1) < 0.05
        assert abs(np.corrcoef(distractors[1:].ravel(), distractors[:-1].ravel())[0, 1]) < 0.05
    else:
        assert (distractors[0] == 0).all()
        assert abs(np.diff(distractors, axis=0).std() / expected - 1) < 0.05
        assert abs(distractors[-1].std() / (expected * np.sqrt(60)) - 1) < 0.25


def test_walk_stays_inside_its_bounds() -> None:
    env = make(kind="random_walk", features=2)
    env.reset(seed=0)
    env._walk = np.array([29.99, -29.99])
    for _ in range(100):
        observation, *_ = env.step(np.zeros(2, np.float32))
        assert env.observation_space.contains(observation)


@pytest.mark.parametrize("kind", KINDS)
def test_pixel_noise_covers_the_floor_only(kind: str) -> None:
    env = make(kind=kind, obs_type="pixels")
    noisy, _ = roll(env, 1, 8)
    plain, _ = roll(gym.make("PIDMNav-Maze-v0", obs_type="pixels", image_size=64), 1, 8)
    assert noisy.dtype == np.uint8 and noisy.shape == plain.shape
    bright = (plain >= 200).all(-1)
    np.testing.assert_array_equal(noisy[~bright], plain[~bright])
    assert noisy[bright].min() >= 200 and noisy[bright].std() > 10
    assert not (noisy == FLOOR).all(-1).all()
    assert min(COLORS["agent"]) < 200, "the agent would drown in the noise"
    moves = np.abs(np.diff(noisy.astype(int), axis=0))[(bright[1:] & bright[:-1])]
    assert (moves.max() <= 16) == (kind == "random_walk")
    assert moves.max() > 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("obs_type", ["state", "pixels"])
def test_seed_decides_the_noise(kind: str, obs_type: str) -> None:
    env = make(kind=kind, obs_type=obs_type)
    first, second, other = (roll(env, seed, 8)[0] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    following = roll(env, None, 8)[0]  # a new episode without a seed draws new noise
    assert (following != other).any()
    np.testing.assert_array_equal(first, roll(make(kind=kind, obs_type=obs_type), 5, 8)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("obs_type", ["state", "pixels"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_as_the_original_does(kind: str, obs_type: str, duplicate: object) -> None:
    env = make(kind=kind, obs_type=obs_type)
    roll(env, 2, 5)
    twin = duplicate(env)  # type: ignore[operator]
    for _ in range(5):
        action = np.array([0.5, -0.5], np.float32)
        np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("obs_type", ["state", "pixels"])
def test_outside_judges(kind: str, obs_type: str) -> None:
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")  # so it is meant
        check_env(make(kind=kind, obs_type=obs_type), skip_render_check=True)
        sb3_check_env(make(kind=kind, obs_type=obs_type), skip_render_check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_spec_round_trip(kind: str) -> None:
    env = make(kind=kind, features=3, std=0.5)
    assert env.spec is not None
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    again = gym.make(spec)
    assert again.observation_space == env.observation_space
    np.testing.assert_array_equal(roll(again, 4)[0], roll(env, 4)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "pink"}, "choose 'iid' or 'random_walk'"),
        ({"features": 0}, "features is 0"),
        ({"std": -1.0}, "std is -1.0"),
        ({"std": float("nan")}, "std is nan"),
        ({"pixel_low": 256}, "pixel_low is 256: it must be an integer from 0 to 255"),
        ({"pixel_step": 0}, "pixel_step is 0"),
        *(
            ({name: value}, f"{name} is ")
            for name in ("features", "std", "pixel_low", "pixel_high", "pixel_step")
            for value in (-1, float("nan"), float("inf"), 1e308, 1e-320, 10**20)
            if (name, value) != ("std", 10**20)
        ),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)  # type: ignore[arg-type]


def test_other_observations_are_refused() -> None:
    with pytest.raises(ValueError, match="vectors or images"):
        ExogenousNoise(gym.make("FrozenLake-v1"))
    flattened = gym.wrappers.DtypeObservation(gym.make("PIDMNav-Maze-v0", obs_type="pixels", image_size=64), np.float32)
    with pytest.raises(ValueError, match="uint8"):
        ExogenousNoise(flattened)
