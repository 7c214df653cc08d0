"""Other people's environments, wrappers, models and datasets work, or a sentence names the remedy."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    FrameStackObservation,
    NormalizeObservation,
    NormalizeReward,
    RescaleAction,
    TimeLimit,
)
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from pidm_nav import (
    Comparison,
    collect,
    collect_random_play,
    dagger,
    evaluate,
    find_task,
    load_demos,
    rollout,
    save_demos,
    to_minari,
    train,
)
from pidm_nav.agents import BC
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.sb3 import GoalRatio, to_agent, to_policy, to_ppo
from pidm_nav.cli import main
from pidm_nav.tasks import unflatten

TINY: dict[str, Any] = {"steps": 3, "batch_size": 16, "encoder_sizes": (8,), "head_sizes": (8,), "progress": False}
SHORT: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}


class Slide(gym.Env[Any, Any]):
    """A point that moves to a goal; made without a render_mode, with a get_state of its own, as others may."""

    observation_space = spaces.Dict({"x": spaces.Box(-9, 9, (2,)), "goal": spaces.Box(-9, 9, (1,))})
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = np.zeros(2, np.float32)
        self.goal = self.np_random.uniform(1, 3, 1).astype(np.float32)
        return self.look(), {}

    def look(self) -> dict[str, Any]:
        return {"x": self.x.copy(), "goal": self.goal}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x = self.x + np.array([self.speed, 0], np.float32) * action
        return self.look(), 0.0, False, False, {"is_success": bool(abs(self.x[0] - self.goal[0]) < 0.5)}

    def get_state(self) -> tuple[Any, str]:
        return self.x, "something else than a state vector"


class Camera(gym.Env[Any, Any]):
    """Shows bytes of any shape."""

    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


class Toward:
    """Goes toward the goal of Slide: observations are flattened in the order of the Dict's keys."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        goal, x = observation[..., :1], observation[..., 1:2]
        return 3 * (goal - x), state  # beyond the bounds of the space, as those of many controllers


class Still:
    """Does nothing, with any number of rows."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        return np.zeros((len(observation), 1), np.float32), state


def pendulum(wrap: Any, **kwargs: Any) -> gym.Env[Any, Any]:
    return wrap(gym.make("Pendulum-v1", **kwargs))  # type: ignore[no-any-return]


def fixed(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    normal = NormalizeObservation(env)
    normal.obs_rms.mean, normal.obs_rms.var = np.zeros(3), np.array([1.0, 1.0, 16.0])
    normal.update_running_mean = False
    return normal


@pytest.fixture(autouse=True)
def ids() -> Iterator[None]:
    """Register environments as users do: by class, with wrappers in the registration, by a function that wraps."""
    inner = "gymnasium.envs.classic_control.pendulum:PendulumEnv"
    stack: Any = FrameStackObservation
    made: dict[str, dict[str, Any]] = {
        "Slide-v0": {"entry_point": f"{__name__}:Slide", "max_episode_steps": 9},
        "Listed-v0": {
            "entry_point": inner,
            "max_episode_steps": 9,
            "additional_wrappers": (stack.wrapper_spec(stack_size=4),),
        },
        "Stacked-v0": {"entry_point": partial(pendulum, lambda env: stack(env, 4)), "max_episode_steps": 9},
        "Moving-v0": {"entry_point": partial(pendulum, NormalizeObservation)},
        "Paid-v0": {"entry_point": partial(pendulum, lambda env: TimeLimit(NormalizeReward(env), 5))},
        "Fixed-v0": {"entry_point": partial(pendulum, fixed), "max_episode_steps": 9},
        "Limited-v0": {"entry_point": partial(pendulum, lambda env: TimeLimit(env, 7))},
        "Rescaled-v0": {
            "entry_point": partial(pendulum, lambda env: RescaleAction(env, -1, 1)),
            "max_episode_steps": 9,
        },
        "Camera-v0": {"entry_point": Camera, "max_episode_steps": 3},
    }
    for name, arguments in made.items():
        gym.register(name, **arguments)
    yield
    for name in made:
        del gym.registry[name]


# ---- environments and wrappers


@pytest.mark.parametrize(
    ("name", "size"), [("Slide-v0", 3), ("Listed-v0", 12), ("Stacked-v0", 12), ("Fixed-v0", 3), ("Rescaled-v0", 3)]
)
def test_wrapped_environments_from_demonstrations_to_an_evaluation(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learned.__init__, "__defaults__", (20, *Learned.__init__.__defaults__[1:]))
    demos = collect(Still(), name, 2)
    assert demos[0].observations.shape == (10, size)
    save_demos(demos, tmp_path / "demos.npz")
    for agent in ("bc", "pidm"):
        result = evaluate(train(agent, load_demos(tmp_path / "demos.npz"), **TINY), name, 3)
        assert result.length.tolist() == [9] * 3 and result.episodes[0].observations.shape == (10, size)


def test_stacked_observations_are_those_of_the_wrapper() -> None:
    env = FrameStackObservation(gym.make("Pendulum-v1"), 4)
    shown = [env.reset(seed=5)[0]] + [env.step(np.zeros(1, np.float32))[0] for _ in range(9)]
    np.testing.assert_array_equal(
        collect(Still(), "Stacked-v0", 1, seed=5)[0].observations, np.reshape(shown, (10, 12))
    )


def test_equal_seeds_give_equal_episodes_under_wrappers() -> None:
    for name in ("Slide-v0", "Listed-v0", "Fixed-v0"):
        few, many = collect(Still(), name, 3, seed=17), collect(Still(), name, 20)  # in other rows, and in waves
        for one, other in zip(few, many[17:], strict=True):
            np.testing.assert_array_equal(one.observations, other.observations)


@pytest.mark.parametrize("name", ["Moving-v0", "Paid-v0"])
def test_statistics_that_move_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"has a Normalize\w+ with statistics that change.* leave it out"):
        collect(Still(), name, 1)


def test_the_lower_of_two_step_limits_counts() -> None:
    assert evaluate(Still(), "Limited-v0", 1).length.tolist() == [7]
    assert evaluate(Still(), "Limited-v0", 1, max_steps=4).length.tolist() == [4]


def test_images_in_stacks_or_without_channels_are_refused() -> None:
    assert collect(Still(), "Camera-v0", 1, shape=(8, 8, 3))[0].observations.shape == (4, 8, 8, 3)
    for shape in ((4, 8, 8, 3), (8, 8), (4, 8, 8)):
        with pytest.raises(ValueError, match="do not stack images"):
            collect(Still(), "Camera-v0", 1, shape=shape)


def test_a_spec_or_a_function_in_place_of_an_id_is_refused() -> None:
    env: Any = FrameStackObservation(gym.make("Pendulum-v1"), 4)
    for given in (env.spec, partial(pendulum, NormalizeObservation)):
        with pytest.raises(ValueError, match="is not the name of a task: give a name or a Gymnasium id"):
            evaluate(Still(), given, 1)


class Single:
    """Thinks of one episode only."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        return np.zeros(1, np.float32), state


class Bare:
    """Returns the actions alone."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        return np.zeros((len(observation), 1), np.float32)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda observation: observation, "has no predict: give an object with predict"),
        (Single(), r"Single.predict returned actions of shape \(1,\) .* return \(3, 1\), one row per episode"),
        (Bare(), "Bare.predict did not return a pair: return actions and state"),
    ],
)
def test_policies_that_do_not_fit_are_refused(policy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collect(policy, "Pendulum-v1", 3)


def test_flattened_observations_are_put_together_again() -> None:
    space = spaces.Dict({"b": spaces.Box(-1, 1, (2, 2)), "a": spaces.Dict({"c": spaces.Box(-1, 1, (3,))})})
    samples = [space.sample() for _ in range(4)]
    whole = unflatten(space, np.stack([spaces.flatten(space, each) for each in samples]))
    for row, sample in enumerate(samples):
        np.testing.assert_array_equal(whole["b"][row], sample["b"])
        np.testing.assert_array_equal(whole["a"]["c"][row], sample["a"]["c"])
    with pytest.raises(ValueError, match="give a Box or Dict space"):
        unflatten(spaces.Discrete(3), np.zeros((1, 3)))


# ---- DAgger


def test_dagger_in_anybodys_environment_with_anybodys_expert() -> None:
    demos = collect(Toward(), "Slide-v0", 2, speed=0.5)
    agent = dagger("bc", demos, 1, Toward(), **TINY)
    assert agent.description["data"]["episodes"] == 4
    assert agent.description["data"]["made_by"] == "Toward + Toward, labeling bc"
    with pytest.raises(ValueError, match="Slide-v0 has no expert"):
        dagger("bc", demos, 1, **TINY)
    with pytest.raises(ValueError, match="has no predict"):
        dagger("bc", demos, 1, lambda observation: observation, **TINY)


def test_labels_are_inside_the_action_space() -> None:
    from pidm_nav.agents.dagger import labeled_episodes

    env = find_task("Slide-v0").make_vec(2)
    for episode in labeled_episodes(Still(), Toward(), env, range(2)):
        np.testing.assert_array_equal(episode.actions, np.ones((9, 1)))


# ---- Minari


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return minari


def test_dict_and_stacked_observations_go_to_minari_as_their_spaces_have_them(store: Any) -> None:
    for name in ("Slide-v0", "Listed-v0"):
        demos = collect(play_policy(name), name, 2)
        to_minari(demos, "mine/there-v0", force=True)
        stored, env = store.load_dataset("mine/there-v0"), gym.make(name)
        assert stored.spec.observation_space == env.observation_space == stored.recover_environment().observation_space
        observation = env.reset(seed=0)[0]
        first = next(iter(stored)).observations
        if isinstance(observation, dict):
            assert {key: first[key][0].tolist() for key in observation} == {
                key: value.tolist() for key, value in observation.items()
            }
        else:
            np.testing.assert_array_equal(first[0], observation)
        back = load_demos("minari:mine/there-v0")
        assert back.task == name
        for one, other in zip(demos, back, strict=True):
            np.testing.assert_array_equal(one.observations, other.observations)
            np.testing.assert_array_equal(one.actions, other.actions)


def play_policy(name: str) -> Any:
    return Toward() if name == "Slide-v0" else Still()


def test_an_environment_that_a_function_makes_is_left_out_of_minari(store: Any) -> None:
    demos = collect(Still(), "Stacked-v0", 1)
    to_minari(demos, "mine/stacked-v0")
    assert load_demos("minari:mine/stacked-v0").task == "Stacked-v0"
    assert store.load_dataset("mine/stacked-v0").spec.env_spec is None


@pytest.mark.filterwarnings("ignore")
def test_a_minari_dataset_of_a_wrapped_environment_is_not_taken_for_the_bare_one(store: Any) -> None:
    from minari.data_collector import EpisodeBuffer

    env = RescaleAction(gym.make("Pendulum-v1", max_episode_steps=4), -1, 1)
    seen = [env.reset(seed=0)[0]] + [env.step(np.ones(1, np.float32))[0] for _ in range(4)]
    ends = np.arange(4) == 3
    arrays = {"observations": np.stack(seen), "actions": np.ones((4, 1), np.float32), "rewards": np.zeros(4)}
    buffer = EpisodeBuffer(id=0, seed=0, **arrays, terminations=ends & False, truncations=ends, infos={})
    store.create_dataset_from_buffers("swing/rescaled-v0", [buffer], env=env)
    demos = load_demos("minari:swing/rescaled-v0")
    assert demos.task == "swing/rescaled-v0" and demos.source["made_by"].endswith("in Pendulum-v1 with RescaleAction")
    with pytest.raises(ValueError, match=r"in Pendulum-v1 with RescaleAction cannot be made.* dataclasses\.replace"):
        train("bc", demos, **TINY)
    agent = train("bc", replace(demos, task="Rescaled-v0"), **TINY)
    assert agent.action_space.high.tolist() == [1.0]


# ---- Stable-Baselines3


def test_a_model_that_knows_dict_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learned.__init__, "__defaults__", (20, *Learned.__init__.__defaults__[1:]))
    model = PPO("MultiInputPolicy", DummyVecEnv([lambda: gym.make("Slide-v0")]), **SHORT)
    with pytest.raises(ValueError, match=r"give pidm_nav\.agents\.sb3\.to_policy"):
        evaluate(model, "Slide-v0", 1)
    policy = to_policy(model)
    demos = collect(policy, "Slide-v0", 2)
    assert demos.source["made_by"] == "PPO"
    env = gym.make("Slide-v0")
    action = model.predict(env.reset(seed=1)[0], deterministic=True)[0]
    np.testing.assert_allclose(demos[1].actions[0], action, atol=1e-6)
    players = {"PPO": policy, "PIDM": train("pidm", demos, **TINY)}
    table = Comparison({name: evaluate(each, "Slide-v0", 3) for name, each in players.items()}).table()
    assert [row["agent"] for row in table] == ["PPO", "PIDM"]


def test_a_model_that_knows_stacked_observations() -> None:
    model = PPO("MlpPolicy", gym.make("Stacked-v0"), **SHORT)
    action = model.predict(gym.make("Stacked-v0").reset(seed=0)[0], deterministic=True)[0]
    np.testing.assert_allclose(collect(to_policy(model), "Stacked-v0", 1)[0].actions[0], action, atol=1e-6)


def test_a_model_that_knows_normalized_observations(tmp_path: Path) -> None:
    normalizer = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), clip_obs=2.0)
    model = PPO("MlpPolicy", normalizer, **SHORT)
    model.learn(32)
    with pytest.raises(ValueError, match="normalized, stacked or Dict"):
        collect(model, "Pendulum-v1", 1)
    demos = collect(to_policy(model), "Pendulum-v1", 2, max_steps=5)
    seen = normalizer.normalize_obs(demos[0].observations[:-1])
    expected = model.predict(seen, deterministic=True)[0]
    np.testing.assert_allclose(demos[0].actions, expected, atol=1e-6)
    model.save(tmp_path / "model.zip")
    loaded = to_policy(PPO.load(tmp_path / "model.zip"), normalizer)  # a file does not hold the normalizer
    np.testing.assert_array_equal(collect(loaded, "Pendulum-v1", 2, max_steps=5)[1].actions, demos[1].actions)


def test_ppo_goes_on_from_an_agent_of_a_dict_environment() -> None:
    agent = train("bc", collect(Toward(), "Slide-v0", 2), **TINY)
    assert isinstance(agent, BC)
    with pytest.raises(ValueError, match=r"make one with find_task\('Slide-v0'\)\.make\(\)"):
        to_ppo(agent, gym.make("Slide-v0"), **SHORT)
    ppo = to_ppo(agent, find_task("Slide-v0").make(), **SHORT)
    ppo.learn(16, callback=GoalRatio())  # there are no goals to log
    assert evaluate(to_agent(ppo), "Slide-v0", 2, metric="success rate").success is not None
    assert evaluate(ppo, "Slide-v0", 2).metric == "return"


# ---- torchrl


def test_agents_and_experts_in_torchrl() -> None:
    pytest.importorskip("torchrl")
    import torch
    from tensordict.nn import TensorDictModule
    from torchrl.envs import GymWrapper

    agent = train("bc", collect(Toward(), "Slide-v0", 2), **TINY)
    env = GymWrapper(find_task("Slide-v0").make())
    env.set_seed(3)
    act = TensorDictModule(
        lambda seen: torch.from_numpy(agent.predict(seen.numpy())[0]), in_keys=["observation"], out_keys=["action"]
    )
    there = env.rollout(9, policy=act)
    assert there["action"].shape == (9, 1)
    again = agent.predict(there["observation"].numpy())[0]
    np.testing.assert_allclose(there["action"].numpy(), again, atol=1e-6)


# ---- the command line


def test_the_command_in_a_wrapped_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_demos(collect(Toward(), "Slide-v0", 2), tmp_path / "slide.npz")
    options = ["--steps", "3", "--encoder-sizes", "8", "--head-sizes", "8", "--eval-episodes", "0"]
    main(["train", "--agent", "bc", "--demos", str(tmp_path / "slide.npz"), "--out", str(tmp_path / "bc"), *options])
    main(["evaluate", str(tmp_path / "bc"), "--episodes", "2", "--metric", "success rate"])
    assert "success rate" in capsys.readouterr().out
    assert collect_random_play("Slide-v0", 20).observation_dim == 3
    with pytest.raises(SystemExit, match="2"):
        main(
            ["train", "--agent", "bc", "--demos", str(tmp_path / "slide.npz"), "--out", "x", "--dagger", "1", *options]
        )
    assert "Slide-v0 has no expert" in capsys.readouterr().err


def test_rollouts_in_a_vector_environment_of_ones_own() -> None:
    envs = find_task("Stacked-v0").make_vec(2)
    assert [len(episode) for episode in rollout(Still(), envs, range(3))] == [9, 9, 9]


# ---- Ray


@pytest.mark.slow
def test_the_script_for_ray_that_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    page = (Path(__file__).parents[1] / "docs" / "your_environment.md").read_text(encoding="utf-8")
    code = page.partition("## Sweeps")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "mine.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    cells = [f"{agent} on StackedCar-v0, {size} demonstration" for size in (1, 2) for agent in ("bc", "pidm")]
    assert all(cell in ended.stdout for cell in cells), ended.stdout
