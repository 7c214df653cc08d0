"""The agents that come with the package: found by name everywhere, small, and as good as their card says."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from pidm_nav import PAPER_TASKS, __version__, evaluate, load_agent, load_demos
from pidm_nav.cli import main
from pidm_nav.packaged import packaged_agents, packaged_folder

NAMES = [f"{task}/{agent}" for task in PAPER_TASKS for agent in ("bc", "pidm", "delta-pidm")]


def test_the_card_names_every_agent_and_all_are_small() -> None:
    assert list(packaged_agents()) == NAMES
    files = [path for path in packaged_folder().rglob("*") if path.is_file()]
    assert {path.name for path in files if path.suffix != ".safetensors"} == {"card.json", "agent.json"}
    assert len(files) == 1 + 2 * len(NAMES)
    assert sum(path.stat().st_size for path in files) < 10_000_000


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_does_what_its_card_says(name: str) -> None:
    """New presets or demonstrations must remake them: scripts/make_agents.py."""
    agent, card = load_agent(name), packaged_agents()[name]
    task, kind = name.split("/")
    assert (agent.name, agent.description["task"], card["version"]) == (kind, task, __version__)
    learned_from = {**asdict(load_demos(card["demos"]).summary()), "made_by": "human-like"}
    assert agent.description["data"] == pytest.approx(learned_from) and learned_from["episodes"] == card["episodes"]
    result = evaluate(agent, task, card["rollouts"], card["first_seed"])
    assert result.mean_goal_ratio == pytest.approx(card["goal ratio"][0], abs=0.05)  # other CPUs round otherwise


def test_a_folder_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load_agent("zigzag/pidm").save("maze/pidm")
    assert load_agent("maze/pidm").description["task"] == "zigzag"
    Path("maze/bc").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no trained agent"):
        load_agent("maze/bc")
    with pytest.raises(FileNotFoundError, match="did you mean 'zigzag/bc'"):
        load_agent("zigzack/bc")
    with pytest.raises(
        FileNotFoundError, match="give the folder of a trained agent, or one of four-room/bc, four-room/pidm"
    ):
        load_agent("runs/nobody")


def test_commands_take_them_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    main(["agents"])
    table = capsys.readouterr().out.splitlines()
    assert sum("human-like" in line for line in table) == len(NAMES)
    assert any(line.startswith("maze/delta-pidm") and "50 of maze/human-like" in line for line in table)
    assert any("predictor" in line and "neighbors(" in line for line in table)
    highs = [float(high) for line in table for high in re.findall(r"to (\d\.\d+)\)", line)]
    assert len(highs) == 2 * len(NAMES) and max(highs) == 1  # ratios
    main(["evaluate", "zigzag/pidm", "zigzag/bc", "astar", "--episodes", "3", "--device", "auto"])
    printed = capsys.readouterr().out
    assert "zigzag, 3 episodes, the same for all" in printed and "difference from zigzag/pidm" in printed
