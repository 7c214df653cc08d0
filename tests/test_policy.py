"""Every agent runs in every loop, survives saving, and refuses what it was not made for."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load, save

import pidm_nav  # noqa: F401 (registers the ids)
from pidm_nav.agents import AGENTS, BC, NavPolicy, load_agent, train
from pidm_nav.agents.networks import Encoder
from pidm_nav.agents.predictors import LearnedPredictor
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert

ENV_ID = "PIDMNav-FourRoom-v0"
TINY: dict[str, Any] = {"steps": 5, "batch_size": 32}


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    """A predictor that learns takes 20 steps instead of 2,000; no test here asks what it has learned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LearnedPredictor.__init__, "__defaults__", ("l2", 0, 20))
        yield


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=3, seed=0)


@pytest.fixture(scope="module", params=["bc", "pidm", "retrieval-bc", "pidm-nearest", "pidm-time", "pidm-learned"])
def agent(request: pytest.FixtureRequest, dataset: DemoDataset) -> NavPolicy:
    name, _, predictor = request.param.partition("-") if request.param.startswith("pidm") else (request.param, "", "")
    return train(name, dataset, **TINY, **({"predictor": predictor} if predictor else {}))


def test_one_and_many_observations_agree(agent: NavPolicy, dataset: DemoDataset) -> None:
    observations = dataset[0].observations[::20]
    actions, _ = agent.predict(observations)
    assert actions.shape == (len(observations), 2) and actions.dtype == np.float32
    assert isinstance(actions, np.ndarray)
    if getattr(getattr(agent, "predictor", None), "name", "") == "time":
        return  # draws a demonstration a row
    for observation, expected in zip(observations, actions, strict=True):
        action, _ = agent.predict(observation)
        assert action.shape == (2,)
        np.testing.assert_allclose(action, expected, atol=1e-5)


def test_actions_fill_the_action_space(dataset: DemoDataset) -> None:
    wide = spaces.Box(np.float32([-3, 10]), np.float32([5, 20]), dtype=np.float32)
    agent = BC(spaces.Box(-32, 832, (14,), np.float32), wide)
    actions, _ = agent.predict(1e3 * np.random.default_rng(0).normal(size=(100, 14)))
    assert all(action in wide for action in actions)


def test_a_bare_loop_and_the_vector_environment(agent: NavPolicy) -> None:
    env = gym.make(ENV_ID)
    observation, _ = env.reset(seed=0)
    for _ in range(3):
        observation, *_ = env.step(agent.predict(observation)[0])
    env.close()
    vector = gym.make_vec(ENV_ID, num_envs=4)
    observations, _ = vector.reset(seed=0)
    state, starts = None, np.ones(4, dtype=bool)
    for _ in range(3):
        actions, state = agent.predict(observations, state, starts)
        observations, _, terminated, truncated, _ = vector.step(actions)
        starts = terminated | truncated
    vector.close()


def test_stable_baselines_evaluates_it(agent: NavPolicy) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    venv = make_vec_env(ENV_ID, 3, seed=0, env_kwargs={"max_episode_steps": 20})
    rewards, lengths = evaluate_policy(agent, venv, n_eval_episodes=4, return_episode_rewards=True)
    assert len(rewards) == 4 and all(length <= 20 for length in lengths)


def test_predict_leaves_training_statistics_alone(dataset: DemoDataset) -> None:
    agent = train("bc", dataset, **TINY)
    agent.train()
    before = {name: tensor.clone() for name, tensor in agent.state_dict().items()}
    agent.predict(dataset[0].observations)
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.state_dict().items())


def test_a_saved_agent_acts_alike(agent: NavPolicy, dataset: DemoDataset, tmp_path: Path) -> None:
    agent.save(tmp_path)
    loaded = load_agent(tmp_path)
    rng = np.random.default_rng(0)
    observations = dataset[0].observations + rng.normal(0, 15, dataset[0].observations.shape).astype(np.float32)
    observations[:, 2:] = dataset[0].observations[:, 2:]
    starts = np.zeros(len(observations), dtype=bool)
    rows = np.arange(len(observations))
    state = np.stack([rows // 2, rows % 3], axis=1)  # a step or place, and a demonstration or wait
    np.testing.assert_array_equal(
        agent.predict(observations, state, starts)[0], loaded.predict(observations, state, starts)[0]
    )
    assert type(loaded) is type(agent) and loaded.config == agent.config
    assert loaded.description == agent.description
    assert loaded.description["task"] == "four-room" and loaded.description["data"]["episodes"] == 3


def test_saving_again_replaces_and_leaves_one_weights_file(dataset: DemoDataset, tmp_path: Path) -> None:
    train("bc", dataset, **TINY).save(tmp_path)
    second = train("bc", dataset, steps=6, batch_size=32).save(tmp_path)
    assert len(list(second.glob("weights-*.safetensors"))) == 1
    assert load_agent(tmp_path).description["training"]["steps"] == 6


def edit(folder: Path, **changes: object) -> None:
    """Change a description as a hostile person would, who leaves its checksum out."""
    path = folder / "agent.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "description_sha256": "", **changes}))


def replace_tensors(folder: Path, **tensors: torch.Tensor) -> None:
    """Change what an agent remembers, with a checksum that fits."""
    (weights,) = folder.glob("weights-*")
    kept = {name: tensor for name, tensor in load(weights.read_bytes()).items() if not name.startswith("memory.")}
    content = save(kept | {f"memory.{name}": tensor for name, tensor in tensors.items()})
    weights.write_bytes(content)
    edit(folder, sha256=hashlib.sha256(content).hexdigest())


def truncate(folder: Path) -> None:
    weights = next(folder.glob("weights-*"))
    weights.write_bytes(weights.read_bytes()[:-100])


def tamper(folder: Path) -> None:
    weights = next(folder.glob("weights-*"))
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(bytes(content))


def box(**changes: object) -> dict[str, object]:
    return {"shape": [2], "dtype": "float32", "low": 0, "high": 1, **changes}


DAMAGES = {
    "cut short": truncate,
    "was cut short or changed": tamper,
    "damaged": lambda folder: (folder / "agent.json").write_text('{"format": 1, "age'),
    "misses what this package writes": lambda folder: (folder / "agent.json").write_text("[1, 2]"),
    "update pidm-nav": lambda folder: edit(folder, format=99),
    "no agent is called 'dqn'": lambda folder: edit(folder, agent="dqn"),
    "do not fit together": lambda folder: edit(folder, config={"encoder_sizes": [8, 8]}),
    "has 1,208,.* weights .*at most 100,000,000": lambda folder: edit(folder, config={"encoder_sizes": [40000, 30000]}),
    "not as it was written": lambda folder: edit(folder, seed=1, description_sha256="0" * 64),
    "maximum recursion depth": lambda folder: (folder / "agent.json").write_text("[" * 100_000),
    r"matching regex .* at `\$.task`": lambda folder: edit(folder, task="this:Zen-v0"),
    r"matching regex .* at `\$.action_space.dtype`": lambda folder: edit(folder, action_space=box(dtype="i4,f8")),
    r"Expected `int` <= 10000000": lambda folder: edit(folder, observation_space=box(shape=[10**20])),
    "more than 10,000,000 numbers": lambda folder: edit(folder, observation_space=box(shape=[10**4, 10**4])),
    "is not one of this agent's": lambda folder: edit(folder, config={"layers": 3}),
    "are missing": lambda folder: next(folder.glob("weights-*")).unlink(),
    "no trained agent": lambda folder: (folder / "agent.json").unlink(),
    r"matching regex .* at `\$.weights`": lambda folder: edit(folder, weights="../outside.bin"),
    "are damaged": lambda folder: edit(folder, config={"reach": "far"}),
    r"Expected `int`, got `str` - at `\$.seed`": lambda folder: edit(folder, seed="zero"),
    r"got `array` - at `\$.env_kwargs`": lambda folder: edit(folder, env_kwargs=[1]),
    "the spaces in": lambda folder: edit(folder, action_space=box(low=1, high=0)),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_a_sentence(message: str, dataset: DemoDataset, tmp_path: Path) -> None:
    train("bc", dataset, **TINY).save(tmp_path)
    DAMAGES[message](tmp_path)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        load_agent(tmp_path)
    assert "\n" not in str(caught.value)


EMPTY = torch.zeros(0, 14)
MEMORIES: dict[str, tuple[str, dict[str, torch.Tensor]]] = {
    "no states": ("retrieval-bc", {"states": EMPTY, "actions": EMPTY[:, :2], "flags": torch.zeros(0)}),
    "had seen demonstrations": ("retrieval-bc", {}),
    "do not go with actions": ("retrieval-bc", {"states": torch.ones(3, 14), "actions": EMPTY, "flags": EMPTY[:, 0]}),
    "do not go with futures": ("pidm-nearest", {"states": torch.ones(3, 14), "futures": EMPTY, "flags": EMPTY[:, 0]}),
    "do not make up": ("pidm-time", {"observations": torch.ones(3, 14), "lengths": torch.tensor([2, 2])}),
    "do not fit": ("pidm-learned", {"flags": torch.tensor([99])}),
}


@pytest.mark.parametrize("message", MEMORIES)
def test_a_memory_that_cannot_be_is_refused(message: str, dataset: DemoDataset, tmp_path: Path) -> None:
    kind, memory = MEMORIES[message]
    name, _, predictor = kind.partition("-") if kind.startswith("pidm-") else (kind, "", "")
    train(name, dataset, **TINY, **({"predictor": predictor} if predictor else {})).save(tmp_path)
    replace_tensors(tmp_path, **memory)
    with pytest.raises(ValueError, match=message):
        load_agent(tmp_path)


def test_a_flipped_bit_never_gives_another_agent(dataset: DemoDataset, tmp_path: Path) -> None:
    agent = train("pidm", dataset, **TINY, encoder_sizes=(4, 4))
    path = agent.save(tmp_path) / "agent.json"
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for place, bit in zip(rng.integers(len(content), size=200), rng.integers(8, size=200), strict=True):
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        with contextlib.suppress(ValueError, OSError):
            loaded = load_agent(tmp_path)
            assert loaded.config == agent.config and loaded.seed == agent.seed


def test_what_a_killed_save_left_is_removed(dataset: DemoDataset, tmp_path: Path) -> None:
    for name in ("weights-0123456789ab.safetensors", ".weights-0123456789ab.somewhere-1.tmp.safetensors"):
        (tmp_path / name).touch()
    train("bc", dataset, **TINY).save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_other_spaces_and_observations_are_refused(dataset: DemoDataset, tmp_path: Path) -> None:
    agent = train("bc", dataset, **TINY)
    agent.save(tmp_path)
    maze = gym.make("PIDMNav-Maze-v0")
    with pytest.raises(ValueError, match="was trained for Box"):
        load_agent(tmp_path, maze.observation_space, maze.action_space)
    with pytest.raises(ValueError, match=r"made for \(14,\) \(four-room\)"):
        agent.predict(maze.reset(seed=0)[0])
    own = gym.make(ENV_ID)
    load_agent(tmp_path, own.observation_space, own.action_space)


def test_bad_input_is_refused(agent: NavPolicy) -> None:
    with pytest.raises(ValueError, match="NaN"):
        agent.predict(np.full(14, np.nan))
    with pytest.raises(ValueError, match="dict"):
        agent.predict({"state": np.zeros(14)})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Box"):
        BC(spaces.Discrete(4), spaces.Box(-1, 1, (2,)))
    with pytest.raises(ValueError, match="finite"):
        BC(spaces.Box(-1, 1, (4,)), spaces.Box(-np.inf, np.inf, (2,)))


def test_an_agent_with_its_own_encoder_needs_it_again(dataset: DemoDataset, tmp_path: Path) -> None:
    agent = train("bc", dataset, encoder=Encoder(14, (8, 4)), **TINY)
    agent.save(tmp_path)
    with pytest.raises(ValueError, match="pass it as encoder="):
        load_agent(tmp_path)
    loaded = load_agent(tmp_path, encoder=Encoder(14, (8, 4)))
    observations = dataset[0].observations
    np.testing.assert_array_equal(agent.predict(observations)[0], loaded.predict(observations)[0])


def test_the_registry_names_every_agent() -> None:
    assert set(AGENTS) == {"bc", "chunking", "diffusion", "pidm", "retrieval-bc"}
    assert all(agent.name == name for name, agent in AGENTS.items())


SAVED = Path(__file__).parent / "saved_agents"  # written by version 0.1 before its code was reordered


@pytest.mark.parametrize("name", ["bc", "pidm", "retrieval-bc"])
def test_agents_of_the_first_version_load_and_act_alike(name: str) -> None:
    expected = np.load(SAVED / "expected.npz")
    agent = load_agent(SAVED / name)
    actions = np.array([agent.predict(state)[0] for state in expected["states"]])
    np.testing.assert_allclose(actions, expected[name], atol=1e-6)
    assert agent.description["data"]["made_by"] == "human-like"


def test_agents_print_in_one_line(dataset: DemoDataset) -> None:
    agent = train("pidm", dataset, **TINY, encoder_sizes=(4, 4), head_sizes=())
    assert repr(agent) == "PIDM(task=four-room, 3 demonstrations, 118 parameters, predictor=follow)"
    assert repr(BC(agent.observation_space, agent.action_space)).startswith("BC(untrained, ")


def test_acting_leaves_the_number_of_threads_alone(dataset: DemoDataset) -> None:
    agent = train("bc", dataset, **TINY)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    agent.predict(dataset[0].observations[0])
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
