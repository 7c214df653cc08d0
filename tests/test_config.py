"""Runs write their options down, and `--config` repeats them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from pidm_nav import load_agent
from pidm_nav.agents.checkpoint import read_tensors
from pidm_nav.cli import main
from pidm_nav.commands import experiments
from pidm_nav.commands.config import RUN_FILE
from pidm_nav.experiments.engines import attempt
from pidm_nav.experiments.results import read_results


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def same_weights(one: Path, other: Path) -> bool:
    tensors, others = read_tensors(one), read_tensors(other)
    return tensors.keys() == others.keys() and all(torch.equal(tensors[name], others[name]) for name in tensors)


@pytest.mark.parametrize(
    "options",
    [
        "--agent bc --task four-room --num-demos 2",
        "--agent pidm --demos maze/astar --predictor nearest(pull=0.5) --horizons 1,3 --gradient-clip None --seed 3 "
        "--no-scale-observations --learning-rate 3e-4 --checkpoints 10 --num-demos 3 --idm-demos random "
        "--random-play-steps 50",
        "--agent bc --task maze --preset paper --batch-size 32 --num-demos 1",
    ],
)
def test_a_run_repeated_from_its_file_has_the_same_weights(options: str, tmp_path: Path) -> None:
    one, other, third = (tmp_path / name for name in ("one", "other", "third"))
    short = "--steps 20 --eval-episodes 0"
    main(["train", *options.split(), *short.split(), "--out", str(one)])
    main(["train", "--config", str(one / RUN_FILE), "--out", str(other)])
    assert same_weights(one, other)
    assert load_agent(one).description == load_agent(other).description
    assert (one / RUN_FILE).read_text() == (other / RUN_FILE).read_text()
    main(["train", f"--config={one / RUN_FILE}", "--seed", "9", "--out", str(third)])  # the command line comes first
    assert not same_weights(one, third)
    assert load_agent(third).description["training"]["seed"] == 9


def test_a_file_of_ones_own_gives_some_options(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("agent: bc\ntask: maze\nnum-demos: 2\nlearning_rate: 1e-3\nscale_observations: no\nsteps: 5\n")
    main(["train", "--config", str(file), "--scale-observations", "--out", str(tmp_path / "x")])
    agent = load_agent(tmp_path / "x")
    assert agent.name == "bc" and agent.config.scale_observations
    assert agent.description["training"]["learning_rate"] == 1e-3


def test_a_sweep_repeated_from_its_file_has_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = lambda function, jobs, workers: ((job, attempt(function, job)) for job in jobs)  # noqa: E731
    monkeypatch.setattr(experiments, "run_local", here)
    one, other = tmp_path / "one", tmp_path / "other"
    what = "--tasks four-room --agents bc,retrieval-bc --num-demos 1,2 --seeds 1 --steps 10 --episodes 2 --jobs 1"
    main(["sweep", *what.split(), "--checkpoint-fractions", "", "--out", str(one)])
    written = yaml.safe_load((one / RUN_FILE).read_text())
    assert written["agents"] == ["bc", "retrieval-bc"] and written["checkpoint_fractions"] == []
    main(["sweep", "--config", str(one / RUN_FILE), "--out", str(other)])
    results, repeated = (read_results(folder)[0] for folder in (one, other))
    assert len(results) == 4
    assert {cell: each.checkpoints for cell, each in results.items()} == {
        cell: each.checkpoints for cell, each in repeated.items()
    }


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("stepz: 5", "stepz", "did you mean --steps?"),
        ("steps: many", "steps", "not an integer"),
        ("loss: huber", "loss", "choose one of l1, mse"),
        ("agent: bd", "agent", "there is no agent 'bd'"),
        ("demos: nowhere.npz", "demos", "there are no demonstrations"),
        ("predictor: guess", "predictor", "there is no predictor 'guess'"),
        ("learning_rate: -1", "learning_rate", "expected `float` >= 1e-12"),
        ("steps: {a: 1}", "steps", "give a number, a text or a list"),
        ("label: --force", "label", "give a number, a text or a list"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_bad_line_is_named(text: str, key: str, reason: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    told = refusal(["train", "--task", "maze", "--config", str(file), "--out", str(tmp_path / "x")], capsys)
    assert told.startswith(f"error: {key} in '{file}'") and reason in told and told.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_bad_value_of_a_sweep_is_named(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("seeds: 0")
    told = refusal(["sweep", "--config", str(file), "--out", str(tmp_path / "x")], capsys)
    assert told.startswith(f"error: seeds in '{file}': --seeds is 0")


@pytest.mark.parametrize("text", ["", "- a\n- b", "a: [", "!!python/object/apply:os.system ['true']", "\x00", "5"])
def test_what_is_no_file_of_options_is_told(text: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    told = refusal(["train", "--config", str(file)], capsys)
    assert f"'{file}' is not a YAML file of options" in told and told.count("\n") == 1


def test_a_missing_file_is_told(tmp_path: Path, capsys: Any) -> None:
    assert "there is no config" in refusal(["train", "--config", str(tmp_path / "x.yaml")], capsys)
    assert "--config" in refusal(["train", "--task", "maze", "--config"], capsys)


def test_an_error_about_the_command_line_does_not_blame_the_file(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("task: maze\nsteps: many")
    assert refusal(["train", "--config", str(file), "--steps", "x"], capsys).startswith("error: --steps: 'x' is not")
