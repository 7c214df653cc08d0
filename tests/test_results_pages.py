"""The pages of results: their tables say what the files beside them hold."""

import csv
import importlib.util
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_demonstration() -> None:
    script = load_script("run_one_demo")
    page = (RESULTS / "one_demo" / "README.md").read_text(encoding="utf-8")
    record = script.read_record(RESULTS / "one_demo" / "results.csv")
    assert record.keys() == {"human", "astar"}
    for demonstrator, done in record.items():
        planned = {(agent, size) for agents, sizes in script.PARTS[demonstrator] for agent in agents for size in sizes}
        assert {(cell.agent, cell.demos) for cell in done} == planned
        for agent, size in planned:
            shown = []
            for task in script.PAPER_TASKS:
                wanted = agent, size, task
                scores = [each.score for cell, each in done.items() if (cell.agent, cell.demos, cell.task) == wanted]
                assert len(scores) == 5
                shown.append(f"{np.mean(scores):.3f} ({min(scores):.2f})")
            assert f"| {size} | {' | '.join(shown)} |" in page, (demonstrator, agent, size)


def test_other_people_s_worlds() -> None:
    script = load_script("run_worlds")
    page = (RESULTS / "worlds" / "README.md").read_text(encoding="utf-8")
    scores: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in csv.DictReader((RESULTS / "worlds" / "results.csv").read_text(encoding="utf-8").splitlines()):
        scores[f"{row['task']} {row['demos']}", row["agent"]].append(float(row["success"]))
    assert len(scores) == 8 * 5 * 5 and all(len(values) == 5 for values in scores.values())
    for cell in {cell for cell, _ in scores}:
        means = " | ".join(f"{np.mean(scores[cell, agent]):.2f}" for agent in script.AGENTS)
        assert f"| {cell.split()[1]} | {means} |" in page, cell
    gains: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in csv.DictReader((RESULTS / "worlds" / "gains.csv").read_text(encoding="utf-8").splitlines()):
        gain, low, high = (f"{float(row[name]):+.2f}" for name in ("gain", "low", "high"))
        star = r"\*" if float(row["p_holm"]) < 0.05 else ""
        if row["task"] != "all":
            gains[script.short(row["task"])][row["agent"]] = f"{gain} ({low} to {high}){star}"
    assert len(gains) == 8
    for task, cells in gains.items():
        assert f"| {task} | {' | '.join(cells[agent] for agent in script.AGENTS[1:])} |" in page
