"""Training: it learns, repeats itself bit for bit, goes on after a kill, and says what is wrong."""

import contextlib
import json
import math
import re
import signal
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file, save

from pidm_nav.agents import (
    AGENTS,
    BC,
    PIDM,
    Agent,
    AgentConfig,
    Fit,
    PIDMConfig,
    TrainConfig,
    TrainingData,
    choose_preset,
    load_agent,
    train,
)
from pidm_nav.agents.agent import find_device, make_agent
from pidm_nav.agents.train import dataset_spaces
from pidm_nav.cli import main
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.seeds import VALIDATION
from pidm_nav.world2d.layout import Layout

if TYPE_CHECKING:
    from sandbox import Sandbox

SMALL: dict[str, Any] = {"encoder_sizes": (64, 64), "head_sizes": (32,)}
TINY: dict[str, Any] = {"steps": 60, "batch_size": 32, "log_every": 20, **SMALL}
MAP = """
###########
#.........#
#.A.....1.#
#.........#
#####.#####
#.........#
#.2.......#
#.........#
###########
"""


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=3, seed=0)


@pytest.fixture(scope="module")
def rooms() -> DemoDataset:
    layout = Layout.parse(MAP)
    return collect(AStarExpert(layout), "custom", episodes=5, seed=0, layout=layout.text)


def weights(agent: Agent) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in agent.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


OWN: dict[str, dict[str, Any]] = {
    "chunking": {"chunk": 2, "steps": 600},  # longer chunks learn this narrow gap worse
    "diffusion": {"steps": 800},
    "recurrent-bc": {"batch_size": 128, "sequence": 8},
    "recurrent-pidm": {"batch_size": 128, "sequence": 8},
}


@pytest.mark.thorough
@pytest.mark.parametrize("agent", list(AGENTS))
def test_every_agent_learns_a_small_task(agent: str, rooms: DemoDataset) -> None:
    layout = rooms.source["env_kwargs"]["layout"]
    settings = {"steps": 400, "batch_size": 64, **SMALL, **OWN.get(agent, {})}
    trained, untrained = (
        evaluate(train(agent, rooms, **{**settings, **changes}), "custom", 20, seed=1, max_steps=150, layout=layout)
        for changes in ({}, {"steps": 1})
    )
    assert trained.mean_goal_ratio >= 0.8
    if AGENTS[agent].trainable:
        assert untrained.mean_goal_ratio < 0.5


@pytest.mark.parametrize("agent", ["bc", "pidm"])
def test_a_seed_gives_the_same_weights_bit_for_bit(agent: str, dataset: DemoDataset) -> None:
    torch.manual_seed(1)
    first = weights(train(agent, dataset, **TINY))
    torch.manual_seed(2)  # global state must not matter
    again = weights(train(agent, dataset, **TINY))
    other = weights(train(agent, dataset, **TINY, seed=1))
    assert same(first, again)
    assert not same(first, other)


def test_global_state_of_torch_is_left_alone(dataset: DemoDataset) -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    train("bc", dataset, **TINY)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


KILLED = """
import sys
from pidm_nav.agents import train
from pidm_nav.demos.formats.npz import load_demos
import os, signal
agent, demos, out = sys.argv[1:]
def die(step, agent):
    os.kill(os.getpid(), signal.SIGKILL)
settings = {"steps": 400, "batch_size": 32, "save_every": 100, "log_every": 50, "average": 0.9, "checkpoints": (350,)}
train(agent, load_demos(demos), out=out, encoder_sizes=(64, 64), head_sizes=(32,), on_checkpoint=die, **settings)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["bc", "pidm"])
def test_a_killed_training_ends_with_the_same_weights(
    agent: str, dataset: DemoDataset, box: "Sandbox", tmp_path: Path
) -> None:
    demos = tmp_path / "demos.npz"
    save_demos(dataset, demos)
    out = tmp_path / "run"
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    done = box.run([str(program), agent, str(demos), str(out)], tmp_path)
    assert done.code == -signal.SIGKILL, done.err
    assert not (out / "agent.json").exists()
    settings = {"steps": 400, "batch_size": 32, "save_every": 100, "log_every": 50, "average": 0.9, **SMALL}
    settings["checkpoints"] = (350,)
    resumed = train(agent, load_demos(demos), out=out, **settings)
    whole = train(agent, load_demos(demos), **settings)
    assert same(weights(resumed), weights(whole))
    steps = [json.loads(line)["step"] for line in (out / "losses.jsonl").read_text().splitlines()]
    assert steps == [50, 100, 150, 200, 250, 300, 350, 400]
    assert not (out / "training.safetensors").exists() and not list(out.glob(".*"))  # the lock of the killed one


STOPPED: dict[str, Any] = {"steps": 60, "batch_size": 32, "save_every": 20, "checkpoints": (30,), **SMALL}


def stop(step: int, agent: Agent) -> None:
    raise KeyboardInterrupt


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


STATES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[:1000],
    "a bit of a weight": lambda content: flip(content, -1),
    "a bit of a name": lambda content: flip(content, content.index(b"agent.")),
    "another step": lambda content: content.replace(struct.pack("<q", 20), struct.pack("<q", 10)),
    "no checksum": lambda content: save(load(content), {"step": "20", "identity": "0"}),
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("change", STATES)
def test_a_damaged_state_is_refused(change: str, dataset: DemoDataset, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("bc", dataset, out=tmp_path, on_checkpoint=stop, **STOPPED)
    state = tmp_path / "training.safetensors"
    assert STATES[change](state.read_bytes()) != state.read_bytes()
    state.write_bytes(STATES[change](state.read_bytes()))
    with pytest.raises(ValueError, match="damaged, or of an earlier version without checksum: delete it"):
        train("bc", dataset, out=tmp_path, **STOPPED)
    state.unlink()
    train("bc", dataset, out=tmp_path, **STOPPED)


def test_an_unfinished_training_is_no_agent_yet(
    dataset: DemoDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("bc", dataset, out=tmp_path, on_checkpoint=stop, **STOPPED)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(tmp_path)])
    told = f"error: the training of '{tmp_path}' has not ended: rerun the command that began it\n"
    assert (end.value.code, capsys.readouterr().err) == (2, told)


def test_another_trainings_state_is_refused(dataset: DemoDataset, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("bc", dataset, out=tmp_path, on_checkpoint=stop, **STOPPED)
    with pytest.raises(ValueError, match="unfinished training run of another"):
        train("bc", dataset, out=tmp_path, **STOPPED, seed=5)


def test_one_training_per_folder(dataset: DemoDataset, tmp_path: Path) -> None:
    def train_too(step: int, agent: Agent) -> None:
        with pytest.raises(OSError, match="is being written to by another process: wait until it has ended"):
            train("bc", dataset, out=tmp_path / "x" / "..", **STOPPED)

    (tmp_path / "x").mkdir()
    train("bc", dataset, out=tmp_path, on_checkpoint=train_too, **STOPPED)
    assert not list(tmp_path.glob(".*"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_agent_is_replaced_only_by_a_whole_one(dataset: DemoDataset, tmp_path: Path) -> None:
    old = weights(train("bc", dataset, out=tmp_path, **STOPPED))
    before = contents(tmp_path)
    settings = {**STOPPED, "seed": 1, "checkpoints": (25, 40)}
    with pytest.raises(KeyboardInterrupt):
        train("bc", dataset, out=tmp_path, overwrite=True, on_checkpoint=stop, **settings)
    after = contents(tmp_path)
    assert all(after[name] == before[name] for name in before)
    assert same(weights(load_agent(tmp_path)), old) and (tmp_path / "unfinished" / "training.safetensors").exists()
    resumed = train("bc", dataset, out=tmp_path, overwrite=True, **settings)
    assert same(weights(resumed), weights(train("bc", dataset, **settings)))
    assert same(weights(load_agent(tmp_path)), weights(resumed))
    assert not (tmp_path / "unfinished").exists()
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-000025", "step-000040"}


def test_a_full_disk_is_told_and_harms_nothing(dataset: DemoDataset, box: "Sandbox", tmp_path: Path) -> None:
    demos, out = tmp_path / "demos.npz", tmp_path / "run"
    save_demos(dataset, demos)
    train("bc", dataset, out=out, **TINY)
    before = contents(out)
    words = ["train", "--agent", "bc", "--demos", str(demos), "--out", str(out), "--force", "--steps", "4"]
    words += ["--log-every", "1", "--save-every", "2"]
    (none, nothing), (few, losses), (some, state) = box.run(["originals:fill_disks", *words], tmp_path).result
    assert none == few == some == 2
    assert f"error: cannot write '{out}" in nothing
    logs = rf"error: cannot write '{out}/unfinished/(losses\.jsonl|tensorboard/\S+)' \(File too large\)"
    assert re.search(logs, losses)  # whichever log is written first
    assert f"error: cannot write '{out}/unfinished/training.safetensors' (File too large)" in state
    after = contents(out)
    assert all(after[name] == before[name] for name in before)
    lines = (out / "unfinished" / "losses.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    main(words)
    assert load_agent(out).description["training"]["steps"] == 4 and not (out / "training.safetensors").exists()


@pytest.mark.parametrize("name", ["run[/bold]x", "run[red]x", "run\x1b[31mx"])
def test_the_name_of_a_folder_is_not_markup(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--agent", "retrieval-bc", "--demos", "four-room/astar", "--out", str(tmp_path / name)])
    shown = name.replace("\x1b", "\\x1b")
    assert f"saved to {tmp_path}/{shown}; next: pidm-nav evaluate '{tmp_path}/{shown}'\n" in capsys.readouterr().out


HOSTILE = (-1, 0, math.nan, 1e308, 1e-320, 99999999999999999999)
NUMBERS = [(kind, each.name) for kind in (PIDMConfig, TrainConfig) for each in fields(kind)]


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_a_number_is_refused_in_a_sentence_or_can_be_trained_with(
    kind: type[PIDMConfig | TrainConfig], name: str, dataset: DemoDataset
) -> None:
    refused = 0
    for value in HOSTILE:
        for given in (value, (value,), (0, value)):
            settings: dict[str, Any] = {"steps": 1, **SMALL, name: given}
            try:
                agent = train("pidm", dataset[:1], **settings)
            except ValueError as error:
                refused += 1
                assert "\n" not in str(error) and (name in str(error) or str(given).strip("(,)") in str(error))
            else:
                assert all(tensor.isfinite().all() for tensor in weights(agent).values())
    assert refused >= len(HOSTILE)  # none of them is both a number and a list


def test_a_training_is_not_resumed_with_other_predictor_data(dataset: DemoDataset, tmp_path: Path) -> None:
    settings = STOPPED
    with pytest.raises(KeyboardInterrupt):
        train("pidm", dataset[:1], out=tmp_path, predictor_data=dataset[1:2], on_checkpoint=stop, **settings)
    with pytest.raises(ValueError, match="unfinished training run of another"):
        train("pidm", dataset[:1], out=tmp_path, predictor_data=dataset[2:3], **settings)


def test_checkpoints_are_agents_and_do_not_disturb(dataset: DemoDataset, tmp_path: Path) -> None:
    plain = train("bc", dataset, **TINY, average=0.9)
    seen: list[int] = []
    kept = train(
        "bc",
        dataset,
        out=tmp_path,
        on_checkpoint=lambda step, agent: seen.append(step),
        checkpoints=(20, 40, 60),
        average=0.9,
        **TINY,
    )
    assert same(weights(plain), weights(kept))
    assert seen == [20, 40, 60]
    folders = sorted(each.name for each in (tmp_path / "checkpoints").iterdir())
    assert folders == ["step-000020", "step-000040"]
    early = load_agent(tmp_path / "checkpoints" / "step-000020")
    assert not same(weights(early), weights(kept))
    assert same(weights(load_agent(tmp_path)), weights(kept))


@pytest.mark.parametrize(("agent", "own"), [("bc", {"average": 0.9}), ("pidm", {"predictor": "time"})])
def test_a_checkpoint_may_be_used_up(agent: str, own: dict[str, Any], dataset: DemoDataset) -> None:
    """What a callback does with its agent, evaluate it, train it, or break it, changes nothing that is trained."""

    def spoil(step: int, copied: Agent) -> None:
        evaluate(copied, "four-room", 2, max_steps=5)
        copied.train()
        with torch.no_grad():
            for tensor in copied.state_dict().values():
                tensor.zero_()
        if step < TINY["steps"]:
            Fit(copied, dataset).step(next(iter(copied.parameters())).sum())

    spoiled = train(agent, dataset, on_checkpoint=spoil, checkpoints=(10, 20, 40), **TINY, **own)
    assert same(weights(spoiled), weights(train(agent, dataset, **TINY, **own)))
    assert not spoiled.training


def test_losses_fall_and_are_written(dataset: DemoDataset, tmp_path: Path) -> None:
    train("bc", dataset, out=tmp_path, steps=200, batch_size=64, log_every=50, **SMALL)
    lines = [json.loads(line) for line in (tmp_path / "losses.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [50, 100, 150, 200]
    assert lines[-1]["loss"] < lines[0]["loss"]
    pytest.importorskip("tensorboard")
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_a_refused_training_leaves_no_folder(dataset: DemoDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too long"):
        train("pidm", dataset, out=tmp_path / "new", horizons=(9999,), **TINY)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("agent", "own"), [("bc", {"average": 0.9}), ("pidm", {"predictor": "time"})])
def test_scores_in_training_change_nothing(
    agent: str, own: dict[str, Any], dataset: DemoDataset, tmp_path: Path
) -> None:
    seen: list[dict[str, float]] = []
    scored = train(agent, dataset, out=tmp_path, eval_episodes=2, on_log=seen.append, **TINY, **own)
    plain = train(agent, dataset, **TINY, **own)
    assert same(weights(scored), weights(plain))
    results = [evaluate(each, "four-room", 2, 7, max_steps=50) for each in (scored, plain)]
    np.testing.assert_array_equal(results[0].episodes[1].actions, results[1].episodes[1].actions)
    lines = [json.loads(line) for line in (tmp_path / "losses.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [12, 20, 24, 36, 40, 48, 60]  # fifths of 60, and what is logged anyway
    assert [line["step"] for line in lines if 0 <= line.get("goal_ratio", -1) <= 1] == [12, 24, 36, 48, 60]
    assert [{**line, "seconds": 0} for line in lines] == [{**line, "seconds": 0} for line in seen]
    last = evaluate(load_agent(tmp_path), "four-room", 2, VALIDATION.start).mean_goal_ratio
    assert lines[-1]["goal_ratio"] == last


def test_a_training_that_is_scored_resumes_exactly(dataset: DemoDataset, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train("bc", dataset, out=tmp_path, eval_episodes=1, on_checkpoint=stop, **STOPPED)
    resumed = train("bc", dataset, out=tmp_path, eval_episodes=3, **STOPPED)  # scores are no part of a training
    assert same(weights(resumed), weights(train("bc", dataset, **STOPPED)))
    lines = [json.loads(line) for line in (tmp_path / "losses.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [12, 24, 36, 48, 60] and all("goal_ratio" in line for line in lines)


def test_a_bar_shows_the_score_beside_the_loss(dataset: DemoDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    @contextlib.contextmanager
    def bar(title: str, total: int, done: int, show: bool) -> Iterator[Callable[..., None]]:
        yield lambda steps, note: notes.append(note)

    monkeypatch.setattr("pidm_nav.agents.journal.progress_bar", bar)
    train("bc", dataset, eval_episodes=1, **{**TINY, "steps": 50})
    assert re.fullmatch(r"loss 0\.\d{4}, goals \d+%, \d+ steps/s", notes[0])
    assert notes[1].split(", ")[1] == notes[0].split(", ")[1]  # at step 20, which has no score of its own


def test_tensorboard_gets_the_score_too(dataset: DemoDataset, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train("bc", dataset, out=tmp_path, eval_episodes=1, **{**TINY, "steps": 5})
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert found.Tags()["scalars"] == ["loss", "learning_rate", "goal_ratio"]
    assert [event.step for event in found.Scalars("goal_ratio")] == [1, 2, 3, 4, 5]


def test_the_command_scores_where_that_is_cheap(dataset: DemoDataset, tmp_path: Path) -> None:
    demos = tmp_path / "demos.npz"
    save_demos(dataset, demos)
    for given, scored in (([], True), (["--eval-episodes", "0"], False)):
        main(
            ["train", "--agent", "bc", "--demos", str(demos), "--steps", "5", "--out", str(tmp_path), *given, "--force"]
        )
        (*_, last) = (tmp_path / "losses.jsonl").read_text().splitlines()
        assert ("goal_ratio" in last) == scored


@pytest.mark.parametrize(("name", "message"), [("gpu", "'gpu'"), ("cpu:9", "'cpu:9'"), ("cuda:99", "'cuda:99'")])
def test_a_device_that_is_not_there_is_refused(name: str, message: str, dataset: DemoDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"torch finds no device {message} here: choose auto or"):
        train("bc", dataset, out=tmp_path / "x", device=name, **TINY)
    with pytest.raises(ValueError, match="torch finds no device"):
        load_agent("zigzag/bc", device=name)
    assert not (tmp_path / "x").exists()


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, mps, found in ((2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert find_device("auto").type == found
        assert find_device("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda:1") == torch.device("cuda", 1)


ON_DEVICE: dict[str, dict[str, Any]] = {
    "bc": {},
    "chunking": {},
    "diffusion": {},
    "pidm": {"horizons": (1, 3)},
    "delta-pidm": {"predictor": "follow", "horizons": (1, 3)},
    "recurrent-bc": {},
    "corrective-bc": {},
}


@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_step_stays_on_the_device(name: str, dataset: DemoDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's meta device computes no numbers, but refuses to mix devices, and to bring a tensor back."""
    preset = choose_preset(name, dataset, **STOPPED, **ON_DEVICE[name])
    agents = [make_agent(AGENTS[name], dataset_spaces(dataset), preset.options) for _ in range(2)]
    here = Fit(agents[0], dataset, preset.training)
    here.step(agents[0].loss(next(here.batches()), here.rng))
    agents[1].prepare(TrainingData(dataset))  # which looks at numbers
    monkeypatch.setattr(agents[1], "prepare", lambda data: None)
    there = Fit(agents[1].to("meta"), dataset, preset.training)
    there.resume(here.state())  # which was written on the CPU
    loss = there.step(there.agent.loss(next(there.batches()), there.rng))
    kept = [there.trajectories.actions, there.trajectories.states.values, loss, *there.state().values()]
    assert {each.device.type for each in kept if each.ndim} == {"meta"} and there.steps == 2


def test_a_finished_folder_is_not_overwritten(dataset: DemoDataset, tmp_path: Path) -> None:
    train("retrieval-bc", dataset, out=tmp_path, **TINY)
    with pytest.raises(ValueError, match="already holds a trained agent: choose another folder, or overwrite=True"):
        train("retrieval-bc", dataset, out=tmp_path, **TINY)
    train("bc", dataset, out=tmp_path, overwrite=True, **TINY)
    assert load_agent(tmp_path).name == "bc"


def test_mse_and_whole_batches_train_too(dataset: DemoDataset) -> None:
    for agent in ("bc", "pidm"):
        trained = train(agent, dataset, steps=100, batch_size=4096, loss="mse", **SMALL)
        actions, _ = trained.predict(dataset[0].observations[:-1])
        assert np.square(actions - dataset[0].actions).mean() < 0.8 * np.square(dataset[0].actions).mean()


def test_the_papers_recipe_is_as_published() -> None:
    pidm = PIDM.preset("paper", "maze").training
    assert (pidm.steps, pidm.batch_size, pidm.rate(0), pidm.rate(99_999)) == (100_000, 4096, 1e-5, 1e-5)
    bc = BC.preset("paper", "four-room").training
    assert bc.rate(0) == 1e-3 and bc.rate(25_000) == pytest.approx((1e-3 + 1e-6) / 2)
    assert bc.rate(50_000) == pytest.approx(1e-6) and bc.rate(90_000) == pytest.approx(1e-6)
    assert BC.preset("paper", "multiroom").training.gradient_clip is None
    assert BC.preset("paper", "zigzag") == BC.preset("paper", "maze") == BC.preset("paper", "Pendulum-v1")
    assert not any(kind.preset("paper", "maze").options.scale_observations for kind in AGENTS.values())


def test_every_agent_has_its_own_learning_rate(dataset: DemoDataset) -> None:
    rates = {agent: choose_preset(agent, dataset, steps=5).training.learning_rate for agent in ("bc", "chunking")}
    assert rates == {"bc": 2e-3, "chunking": 3e-3}
    assert train("bc", dataset, **TINY).description["training"]["learning_rate"] == 2e-3
    with pytest.raises(TypeError, match="learning_rate"):
        TrainConfig(steps=5)  # type: ignore[call-arg]


def test_a_preset_can_be_changed_and_passed_as_a_whole(dataset: DemoDataset) -> None:
    preset = choose_preset("pidm", dataset, "paper", steps=20, horizons=(1, 2), **SMALL)
    assert isinstance(preset.options, PIDMConfig) and preset.options.horizons == (1, 2)
    assert (preset.training.steps, preset.training.checkpoints, preset.options.loss) == (20, (), "l1")
    whole = train("pidm", dataset, preset)
    named = train("pidm", dataset, "paper", steps=20, horizons=(1, 2), **SMALL)
    assert whole.config == named.config == preset.options and same(weights(whole), weights(named))
    assert choose_preset("bc", dataset, "paper", steps=7000).training.checkpoints == (5000,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0: expected `float` >= 1e-12"),
        ({"learning_rate": 1e30}, r"learning_rate is 1e\+30: expected `float` <= 10"),
        ({"seed": -1}, "seed is -1: expected `int` >= 0"),
        ({"steps": 10, "checkpoints": (11,)}, "at most steps=10"),
    ],
)
def test_impossible_configurations_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{"learning_rate": 1e-3, **changes})  # type: ignore[arg-type]


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="loss is huber: choose l1 or mse"):
        AgentConfig(loss="huber")  # type: ignore[arg-type]


def test_unknown_names_are_refused(dataset: DemoDataset) -> None:
    with pytest.raises(ValueError, match="choose one of bc, chunking"):
        train("gail", dataset)
    with pytest.raises(ValueError, match="choose one of fast, paper"):
        train("bc", dataset, "slow")
    with pytest.raises(ValueError, match="give a AgentConfig"):
        train("bc", dataset, PIDM.preset("fast"))
    with pytest.raises(ValueError, match="'horizon': did you mean 'horizons'"):
        train("pidm", dataset, horizon=3)
    with pytest.raises(ValueError, match="no setting of this agent or its training is called 'predictor'"):
        train("bc", dataset, predictor="learned")
    with pytest.raises(ValueError, match="frames, frame_size, history are for images"):
        train("bc", dataset, history=(0, 3))
    with pytest.raises(ValueError, match="is not for demonstrations with states: choose fast or paper"):
        train("bc", dataset, "pixels")


@pytest.mark.thorough
def test_it_works_on_somebody_elses_environment() -> None:
    env = gym.make("Pendulum-v1")
    rng = np.random.default_rng(0)
    episodes = []
    for seed in range(3):
        observations, actions = [env.reset(seed=seed)[0]], []
        for _ in range(50):
            action = np.clip(-2 * observations[-1][1:2] + rng.normal(0, 0.1, 1), -2, 2).astype(np.float32)
            actions.append(action)
            observations.append(env.step(action)[0])
        episodes.append(Episode(np.stack(observations), np.stack(actions), np.zeros(50), False, True))
    dataset = DemoDataset("Pendulum-v1", tuple(episodes))
    for agent in AGENTS:
        short = {"sequence": 8} if agent.startswith("recurrent") else {}
        trained = train(agent, dataset, steps=200, batch_size=32, **SMALL, **short)
        states = np.concatenate([each.observations[:-1] for each in dataset])
        wanted = np.concatenate([each.actions for each in dataset])
        actions, _ = trained.predict(states)
        assert actions.shape == wanted.shape
        assert np.abs(actions - wanted).mean() < 0.3
    with pytest.raises(ValueError, match="or give env_spaces"):
        train("bc", DemoDataset("Nobodys-Env-v0", tuple(episodes)), **TINY)


def test_the_commands_train_and_evaluate(
    dataset: DemoDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demos, out = str(tmp_path / "demos.npz"), tmp_path / "run"
    save_demos(dataset, demos)
    small = ["--steps", "20", "--batch-size", "32", "--eval-episodes", "0"]
    main(
        [
            "train",
            "--agent",
            "pidm",
            "--task",
            "FourRoom",
            "--demos",
            demos,
            "--num-demos",
            "2",
            "--out",
            str(out),
            *small,
        ]
    )
    assert load_agent(out).description["data"]["episodes"] == 2
    video = tmp_path / "episode.gif"
    main(["evaluate", str(out), "--episodes", "2", "--per-episode", "--video", str(video)])
    printed = capsys.readouterr().out
    assert "of the goals" in printed and video.stat().st_size > 0
    main(["train", "--agent", "bc", "--demos", demos, "--preset", "paper", "--out", str(tmp_path / "paper"), *small])
    agent = load_agent(tmp_path / "paper")
    assert agent.description["training"]["learning_rate"] == 1e-3 and not agent.config.scale_observations
    for words, message in (
        (["--agent", "bc", "--task", "maze", "--demos", demos], "are of four-room, not of maze"),
        (["--agent", "bc"], "no task is given"),
        (["--agent", "bc", "--demos", demos, "--num-demos", "9"], "sample 9 of 3"),
        (["--agent", "bc", "--demos", demos, "--predictor", "learned"], "error: "),
        (["--agent", "bc", "--demos", demos, "--history", "0", "3"], "are for images"),
        (["--agent", "bc", "--demos", demos, "--seed", "-1"], "seed is -1: expected `int` >= 0"),
        (["--agent", "bc", "--demos", demos, "--steps", "nan"], "error: --steps: 'nan' is not an integer"),
        (
            ["--agent", "bc", "--demos", demos, "--encoder-sizes", "40000"],
            "encoder_sizes is (40000,): expected `int` <= 8192",
        ),
    ):
        with pytest.raises(SystemExit):
            main(["train", *words, "--out", str(tmp_path / "other")])
        assert message in capsys.readouterr().err


def test_saved_tensors_are_plain_safetensors(dataset: DemoDataset, tmp_path: Path) -> None:
    train("pidm", dataset, out=tmp_path, **TINY)
    tensors = load_file(next(tmp_path.glob("weights-*.safetensors")))
    assert tensors["memory.predictor.observations"].shape == (dataset.num_steps + len(dataset), 14)


def test_a_stopped_training_says_that_and_when_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--agent", "bc", "--demos", "zigzag/astar", "--num-demos", "1", "--steps", "8"]
    words += ["--save-every", "2", "--eval-episodes", "0", "--out", str(tmp_path / "run")]
    step, calls = Fit.step, iter(range(99))

    def stop(run: Fit, *arguments: Any) -> Any:
        if next(calls) in (1, 6):
            raise KeyboardInterrupt
        return step(run, *arguments)

    monkeypatch.setattr(Fit, "step", stop)
    for told in ("rerun the command to start over: nothing is saved before 2 steps", "rerun the command to resume"):
        with pytest.raises(SystemExit):
            main(words)
        assert told in capsys.readouterr().out
    main(words)
    assert "at step 4 of 8" in capsys.readouterr().out
