"""Check how often `pidm_nav.advise` was right, as docs/results/plans/advise.md says.

Run it:  python scripts/check_advice.py --data FOLDER [--most 8]

FOLDER holds TASK_human.npz and TASK_astar.npz for the four tasks; the demonstrations of other worlds are in
docs/results/worlds/jobs.zip. Cases that cases.csv holds already are not run again.
"""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import torch
import tyro

from pidm_nav.analysis import advice
from pidm_nav.analysis.held_out import find_spaces
from pidm_nav.demos import DemoDataset, load_demos
from pidm_nav.tasks import PAPER_TASKS

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SEED = 700
AGENTS = ("bc", "delta-pidm")  # whose outcomes were recorded


class Case(NamedTuple):
    """The demonstrations of a task in one size."""

    world: str
    task: str
    demos: int


def cases(worlds: list[str]) -> Iterator[Case]:
    """Yield all cases in the plan's order; those that need no training come first."""
    for task in worlds:
        yield from (Case("PointMaze" if task.startswith("Point") else "Meta-World", task, size) for size in (5, 25))
    for size in (5, 20, 2, 1, 10):
        for who in ("human", "astar") if size != 20 else ("human",):
            yield from (Case(f"2D, {who}", task, size) for task in PAPER_TASKS)


def recorded(case: Case) -> dict[str, float]:
    """Return the mean recorded score of each agent."""
    folder, score = ("one_demo", "goal_ratio") if case.world.startswith("2D") else ("worlds", "success")
    with (RESULTS / folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["task"], row["demos"]) == (case.task, str(case.demos))]
    rows = [row for row in rows if row.get("demonstrator", "") in case.world]
    return {agent: float(np.mean([float(row[score]) for row in rows if row["agent"] == agent])) for agent in AGENTS}


def check(case: Case, demos: DemoDataset) -> dict[str, Any]:
    """Return the advice without and with an experiment, and what was recorded."""
    began, chosen = time.process_time(), demos.sample(case.demos, np.random.default_rng(SEED))
    row: dict[str, Any] = {**case._asdict(), **recorded(case), "goals_vary": chosen.goals_vary}
    if chosen.goals_vary and not find_spaces(chosen)[1]:  # the rule needs nothing else, and nothing can be tried
        found = advice.decide(True, float("nan"), {}, {})
        return {**row, "rule": found.agent, "advice": found.agent, "sure": found.sure}
    made = advice.advise(chosen, seed=SEED)
    rule = advice.decide(made.goals_vary, made.linear_r2, made.steers_back, {})
    row |= {"linear_r2": round(made.linear_r2, 3), "rule": rule.agent, "advice": made.agent, "sure": made.sure}
    row |= {f"restoring_{name}": round(mean.value, 3) for name, mean in made.restoring.items()}
    row |= {f"experiment_{name}": round(float(np.mean(values)), 3) for name, values in made.scores.items()}
    return {**row, "cpu_seconds": round(time.process_time() - began)}


def report(rows: list[dict[str, Any]]) -> None:
    """Print how often each way to choose was right."""
    cases: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    for row in rows:
        scores = {agent: float(row[agent]) for agent in AGENTS}
        for how, agent in {**{each: each for each in AGENTS}, "rule": row["rule"], "advice": row["advice"]}.items():
            groups = [(how, row["world"]), (how, "all")] + [(how, f"sure: {row['sure']}")] * (how == "advice")
            cases.update(groups)
            right.update(groups if scores[agent] >= max(scores.values()) - advice.MARGIN else [])
    for how, group in sorted(cases):
        print(f"{how:11} {group:16} right in {right[how, group]} of {cases[how, group]}")


def main(data: Path, out: Path = RESULTS / "advise" / "cases.csv", most: int | None = None) -> None:
    """Run cases that are missing, at most so many, and count."""
    torch.set_num_threads(1)
    advice.AGENTS = AGENTS  # others have no recorded outcomes
    names = ("rule", "advice", "sure", "linear_r2", *(f"restoring_{each}" for each in AGENTS))
    columns = (*Case._fields, *AGENTS, "goals_vary", *names, *(f"experiment_{each}" for each in AGENTS), "cpu_seconds")
    rows = list(csv.DictReader(out.open(encoding="utf-8", newline=""))) if out.exists() else []
    done = {(row["world"], row["task"], int(row["demos"])) for row in rows}
    with TemporaryDirectory() as folder, ZipFile(RESULTS / "worlds" / "jobs.zip") as archive:
        worlds = [name for name in archive.namelist() if name.endswith(".npz")]
        archive.extractall(folder, worlds)
        for case in [case for case in cases([Path(name).stem for name in worlds]) if case not in done][:most]:
            path = Path(folder) / "demos" / f"{case.task}.npz"
            if case.world.startswith("2D"):
                path = data / f"{case.task.replace('-', '_')}_{case.world.removeprefix('2D, ')}.npz"
            rows.append(check(case, load_demos(path)))
            print(rows[-1], flush=True)
            out.parent.mkdir(exist_ok=True)
            with out.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    report(rows)


if __name__ == "__main__":
    tyro.cli(main)
