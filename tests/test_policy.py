"""Every agent runs in every loop, survives saving, and refuses what it was not made for."""

import contextlib
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load, save

import pidm_nav  # noqa: F401 (registers the ids)
from pidm_nav.agents import AGENTS, BC, Agent, Predictor, TrainingData, load_agent, register, train
from pidm_nav.agents.networks import Encoder
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.rollouts.evaluation import evaluate

ENV_ID = "PIDMNav-FourRoom-v0"
TINY: dict[str, Any] = {"steps": 5, "batch_size": 32}


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=3, seed=0)


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {}),
    "retrieval-bc": ("retrieval-bc", {}),
    "corrective-bc": ("corrective-bc", {}),
    "recurrent-bc": ("recurrent-bc", {"sequence": 4}),
    "pidm": ("pidm", {}),
    "pidm-neighbors": ("pidm", {"predictor": "neighbors(pull=0.5, k=2)"}),
    "pidm-time": ("pidm", {"predictor": "time"}),
    "pidm-learned": ("pidm", {"predictor": "learned(steps=20)", "idm": "delta"}),
    "delta-pidm": ("delta-pidm", {}),
    "recurrent-pidm": ("recurrent-pidm", {"sequence": 4}),
}


@pytest.fixture(scope="module", params=KINDS)
def agent(request: pytest.FixtureRequest, dataset: DemoDataset) -> Agent:
    name, settings = KINDS[request.param]
    return train(name, dataset, **TINY, **settings)


def test_one_and_many_observations_agree(agent: Agent, dataset: DemoDataset) -> None:
    observations = dataset[0].observations[::20]
    actions, _ = agent.predict(observations)
    assert actions.shape == (len(observations), 2) and actions.dtype == np.float32
    assert isinstance(actions, np.ndarray)
    by_time = getattr(getattr(agent, "predictor", None), "name", "") == "time"  # draws a demonstration for each row
    alone = [agent.predict(observation)[0] for observation in observations]
    assert all(action.shape == (2,) for action in alone)
    rows = slice(0, 1) if by_time else slice(None)
    np.testing.assert_allclose(alone[rows], actions[rows], atol=1e-5)


def test_actions_fill_the_action_space(dataset: DemoDataset) -> None:
    wide = spaces.Box(np.float32([-3, 10]), np.float32([5, 20]), dtype=np.float32)
    agent = BC(spaces.Box(-32, 832, (14,), np.float32), wide)
    actions, _ = agent.predict(1e3 * np.random.default_rng(0).normal(size=(100, 14)))
    assert all(action in wide for action in actions)


def test_a_bare_loop_and_the_vector_environment(agent: Agent) -> None:
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


def test_stable_baselines_evaluates_it(agent: Agent) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    venv = make_vec_env(ENV_ID, 3, seed=0, env_kwargs={"max_episode_steps": 20})
    rewards, lengths = evaluate_policy(agent, venv, n_eval_episodes=4, return_episode_rewards=True)
    assert len(rewards) == 4 and all(length <= 20 for length in lengths)


def test_predict_leaves_statistics_and_modes_alone(agent: Agent, dataset: DemoDataset) -> None:
    before = {name: tensor.clone() for name, tensor in agent.state_dict().items()}
    parts = list(agent.modules())
    try:
        for training in (lambda part: True, lambda part: False, lambda part: part is not parts[-1]):
            for part in parts:  # each its own mode, as where somebody keeps an encoder from moving
                part.training = training(part)
            agent.predict(dataset[0].observations)
            assert [part.training for part in parts] == [training(part) for part in parts]
    finally:
        agent.eval()
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.state_dict().items())


def test_batch_norm_in_training_mode_is_not_used_to_act(dataset: DemoDataset) -> None:
    agent, observations = train("bc", dataset, **TINY), dataset[0].observations[:5]
    expected, _ = agent.predict(observations)
    agent.train()
    np.testing.assert_array_equal(agent.predict(observations)[0], expected)
    agent.eval()
    agent.encoder.train()  # type: ignore[union-attr]
    np.testing.assert_array_equal(agent.predict(observations)[0], expected)


def test_evaluating_twice_gives_the_same_actions(agent: Agent) -> None:
    first, again = (evaluate(agent, "four-room", 4, max_steps=8).episodes for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)


def test_a_saved_agent_acts_alike(agent: Agent, dataset: DemoDataset, tmp_path: Path) -> None:
    agent.save(tmp_path)
    loaded = load_agent(tmp_path)
    rng = np.random.default_rng(0)
    memories: list[Any] = [None, None]
    for step in range(12):
        observations = np.stack([episode.observations[step] for episode in dataset])
        observations[:, :2] += rng.normal(0, 15, (len(dataset), 2)).astype(np.float32)
        starts = np.array([step == 0, step in (0, 5), step == 0])
        one, memories[0] = agent.predict(observations, memories[0], starts)
        other, memories[1] = loaded.predict(observations, memories[1], starts)
        np.testing.assert_array_equal(one, other)
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
    "is truncated": truncate,
    "is truncated or changed": tamper,
    "damaged": lambda folder: (folder / "agent.json").write_text('{"format": 1, "age'),
    "is damaged or incomplete": lambda folder: (folder / "agent.json").write_text("[1, 2]"),
    "update pidm-nav": lambda folder: edit(folder, format=99),
    "there is no agent 'dqn'": lambda folder: edit(folder, agent="dqn"),
    "is inconsistent": lambda folder: edit(folder, config={"encoder_sizes": [8, 8]}),
    r"<= 8192 - at `\$.encoder_sizes": lambda folder: edit(folder, config={"encoder_sizes": [40000, 30000]}),
    "was changed after it was written": lambda folder: edit(folder, seed=1, description_sha256="0" * 64),
    "maximum recursion depth": lambda folder: (folder / "agent.json").write_text("[" * 100_000),
    r"matching regex .* at `\$.task`": lambda folder: edit(folder, task="this:Zen-v0"),
    r"matching regex .* at `\$.action_space.dtype`": lambda folder: edit(folder, action_space=box(dtype="i4,f8")),
    r"Expected `int` <= 10000000": lambda folder: edit(folder, observation_space=box(shape=[10**20])),
    "more than 10,000,000 values": lambda folder: edit(folder, observation_space=box(shape=[10**4, 10**4])),
    "has an unknown setting": lambda folder: edit(folder, config={"layers": 3}),
    "name the file of a map": lambda folder: edit(folder, task="custom", env_kwargs={"layout": "/etc/passwd"}),
    "are missing": lambda folder: next(folder.glob("weights-*")).unlink(),
    "no trained agent": lambda folder: (folder / "agent.json").unlink(),
    r"matching regex .* at `\$.weights`": lambda folder: edit(folder, weights="../outside.bin"),
    "the settings or spaces in": lambda folder: edit(folder, config={"reach": "far"}),
    r"Expected `int`, got `str` - at `\$.seed`": lambda folder: edit(folder, seed="zero"),
    r"got `array` - at `\$.env_kwargs`": lambda folder: edit(folder, env_kwargs=[1]),
    "an action has 10,000,000 values": lambda folder: edit(folder, action_space=box(shape=[10**7])),
    "and at most 67,108,864 are read": lambda folder: os.truncate(folder / "agent.json", 2**34),
    "and at most 2,147,483,648 are read": lambda folder: os.truncate(next(folder.glob("weights-*")), 2**34),
    "spaces in": lambda folder: edit(folder, action_space=box(low=1, high=0)),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_a_sentence(message: str, dataset: DemoDataset, tmp_path: Path) -> None:
    train("bc", dataset, **TINY).save(tmp_path)
    DAMAGES[message](tmp_path)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        load_agent(tmp_path)
    assert "\n" not in str(caught.value)


EMPTY = torch.zeros(0, 14)
FLAGS = torch.zeros(0, dtype=torch.int64)
MEMORIES: dict[str, tuple[str, dict[str, torch.Tensor]]] = {
    "no states": ("retrieval-bc", {"states": EMPTY, "demo_actions": EMPTY[:, :2], "flags": FLAGS}),
    "was saved before training": ("retrieval-bc", {}),
    "states and 0 actions": ("retrieval-bc", {"states": torch.ones(3, 14), "demo_actions": EMPTY, "flags": FLAGS}),
    "lacks the array 'lengths'": ("pidm", {"predictor.observations": torch.ones(3, 14)}),
    "do not make up": (
        "pidm-time",
        {"predictor.observations": torch.ones(3, 14), "predictor.lengths": torch.tensor([2, 2])},
    ),
    "agent in .* is inconsistent: train again": (
        "retrieval-bc",
        {"states": EMPTY.bfloat16(), "demo_actions": EMPTY, "flags": FLAGS},
    ),
    "inconsistent .* of type bool, not float32": (
        "pidm-time",
        {"predictor.observations": torch.ones(3, 14, dtype=torch.bool), "predictor.lengths": torch.tensor([3])},
    ),
    "holds NaN in memory.states: use another copy, or train": (
        "retrieval-bc",
        {"states": torch.full((3, 14), math.nan), "demo_actions": torch.ones(3, 2), "flags": FLAGS},
    ),
    "is inconsistent": (
        "pidm-learned",
        {"predictor.flags": torch.tensor([99]), "predictor.trained_horizon": torch.ones(())},
    ),
}


@pytest.mark.parametrize("message", MEMORIES)
def test_a_memory_that_cannot_be_is_refused(message: str, dataset: DemoDataset, tmp_path: Path) -> None:
    kind, memory = MEMORIES[message]
    name, settings = KINDS[kind]
    train(name, dataset, **TINY, **settings).save(tmp_path)
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
    with pytest.raises(ValueError, match=r"takes \(14,\) \(four-room\)"):
        agent.predict(maze.reset(seed=0)[0])
    own = gym.make(ENV_ID)
    load_agent(tmp_path, own.observation_space, own.action_space)


def test_bad_input_is_refused(agent: Agent) -> None:
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
    ours = {"bc", "chunking", "corrective-bc", "delta-pidm", "diffusion", "pidm", "recurrent-bc", "recurrent-pidm"}
    assert set(AGENTS) == {*ours, "retrieval-bc"}
    assert all(agent.name == name for name, agent in AGENTS.items())


SAVED = Path(__file__).parent / "saved_agents"  # trained before the code was reordered
ROUNDING = 1e-5  # CPUs add up float32 numbers in different orders: 1.4e-6 has been seen, of actions within [-1, 1]


@pytest.mark.parametrize("name", ["bc", "pidm", "retrieval-bc"])
def test_agents_that_were_trained_long_ago_act_alike(name: str) -> None:
    expected = np.load(SAVED / "expected.npz")
    agent = load_agent(SAVED / name)
    actions = np.array([agent.predict(state)[0] for state in expected["states"]])
    np.testing.assert_allclose(actions, expected[name], atol=ROUNDING)
    assert agent.description["data"]["made_by"] == "human-like"


EXPECTED = np.load(SAVED / "expected_kinds.npz")  # recorded before PIDM became several classes


@pytest.mark.parametrize("name", [name for name in EXPECTED.files if name not in ("states", "frames")])
def test_agents_of_every_kind_that_were_trained_long_ago_act_alike(name: str) -> None:
    agent = load_agent(SAVED / name)
    memory, actions = None, []
    for step, seen in enumerate(EXPECTED["states" if agent.vision is None else "frames"]):
        action, memory = agent.predict(seen, memory, np.full(3, step == 0))
        actions.append(action)
    np.testing.assert_allclose(actions, EXPECTED[name], atol=ROUNDING)
    kinds = {"change": "delta-pidm", "frozen": "pidm", "states": "pidm", "end": "pidm"}
    if name.split("-")[0] in kinds and name != "frozen-change":
        assert agent.name == kinds[name.split("-")[0]]


def test_agents_that_were_trained_long_ago_can_be_saved_again(tmp_path: Path) -> None:
    for name in ("change-learned", "states-nearest", "pixels-time", "frozen-nearest", "chunking"):
        agent = load_agent(SAVED / name)
        again = load_agent(agent.save(tmp_path / name))
        seen = EXPECTED["states" if agent.vision is None else "frames"][0]
        np.testing.assert_array_equal(again.predict(seen)[0], agent.predict(seen)[0])
        assert again.config == agent.config


def test_agents_print_in_one_line(dataset: DemoDataset) -> None:
    agent = train("pidm", dataset, **TINY, encoder_sizes=(4, 4), head_sizes=())
    assert repr(agent) == "PIDM(task=four-room, 3 demonstrations, 106 parameters, predictor=nearest)"
    assert repr(BC(agent.observation_space, agent.action_space)).startswith("BC(untrained, ")


def test_acting_leaves_the_number_of_threads_alone(dataset: DemoDataset) -> None:
    agent = train("bc", dataset, **TINY)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    agent.predict(dataset[0].observations[0])
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


# parts of one's own


@pytest.fixture
def Drift(own_parts: None) -> type[Predictor]:
    @register
    class Drift(Predictor):
        """A constant change of the state, as a weight; fitting draws it anew."""

        name = "drift"
        fits = 0

        def build(self, scale: Any, seed: int = 0) -> Any:
            super().build(scale, seed)
            self.layer = torch.nn.Linear(scale.center.numel(), scale.center.numel())
            return self

        def learn(self, dataset: DemoDataset) -> None:
            type(self).fits += 1
            with torch.no_grad():
                self.layer.bias += 1

        @torch.no_grad()
        def predict(self, states: Any, memory: Any = None, episode_start: Any = None) -> Any:
            return states + self.layer.bias.numpy(), memory

    return Drift


@pytest.mark.parametrize("frames", ["", "random", "cnn"])
def test_a_learned_predictor_of_ones_own_is_loaded_with_its_weights(
    Drift: Any,
    frames: str,
    dataset: DemoDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIDM_NAV_CACHE", str(tmp_path / "cache"))
    settings: dict[str, Any] = {**TINY, "predictor": "drift", "horizons": (1,), "encoder_sizes": (8,)}
    if frames:
        dataset = collect(AStarExpert("four-room"), "four-room", 1, max_steps=12, obs_type="pixels", image_size=32)
        settings |= {"frames": frames, "frame_size": 8, "window": 2}
    agent = train("pidm", dataset, out=tmp_path / "agent", **settings)
    fits, seen = Drift.fits, dataset[0].observations[:4]
    loaded = load_agent(tmp_path / "agent")
    assert Drift.fits == fits > 0, "a saved predictor was fitted again"
    assert torch.equal(loaded.predictor.layer.bias, agent.predictor.layer.bias)  # type: ignore[union-attr]
    np.testing.assert_array_equal(loaded.predict(seen)[0], agent.predict(seen)[0])


def test_after_training_is_called_in_evaluation_mode(dataset: DemoDataset, own_parts: None) -> None:
    modes: list[bool] = []

    class Looking(BC):
        name = "looking"

        def after_training(self, data: TrainingData) -> None:
            modes.append(any(part.training for part in self.modules()))

    train(Looking, dataset, checkpoints=(2, 4), on_checkpoint=lambda step, agent: None, **TINY)
    assert modes == [False] * 3
