"""Write the tables and the figure of docs/results/paper_protocol from the folders of its two sweeps.

Run it:  python scripts/report_paper_protocol.py [--folders paper-bc paper-pidm]

With folders, results.csv is made from them first; without, the tables and the figure are made again. Tables hold the
training seeds of which both agents have all jobs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import tyro
from report_what_wins import read

from pidm_nav.experiments.curves import Curve
from pidm_nav.experiments.figures import CurveFigure, compare_curves, write_figure
from pidm_nav.experiments.report import render
from pidm_nav.experiments.tables import Table, paired_table, ratio_table, score_table
from pidm_nav.files import write_rows
from pidm_nav.tasks import PAPER_TASKS

FOLDER = Path(__file__).parents[1] / "docs/results/paper_protocol"
CHECKPOINTS = ("at_5", "at_10", "at_50", "at_100")  # percent of training
AGENTS, SIZES = ("bc", "pidm"), (1, 2, 5, 10, 20, 30, 40, 50)
PIDM, BC = ("pidm", "human"), ("bc", "human")
Rows = list[dict[str, Any]]


def flatten(folders: list[Path]) -> Rows:
    """Return one row per finished job of the sweeps' folders."""
    rows = []
    for path in (path for folder in folders for path in folder.glob("jobs/*.json")):
        job = json.loads(path.read_text(encoding="utf-8"))
        if job.get("error") is None:
            scores = [checkpoint["goal_ratio"] for checkpoint in job["checkpoints"]]
            named = {key: job[key] for key in ("seed", "task", "demos", "agent")}
            rows.append({**named, **dict(zip(CHECKPOINTS, scores, strict=True)), "seconds": job["seconds"]})
    tasks = list(PAPER_TASKS)
    return sorted(rows, key=lambda row: (row["agent"], row["seed"], row["demos"], tasks.index(row["task"])))


def whole_seeds(rows: Rows) -> Rows:
    """Return the rows of the seeds of which no job is missing."""
    jobs = Counter(row["seed"] for row in rows)
    return [row for row in rows if jobs[row["seed"]] == len(AGENTS) * len(SIZES) * len(PAPER_TASKS)]


def make_curves(rows: Rows) -> list[Curve]:
    """Return one curve per task and agent."""
    curves = []
    for task in PAPER_TASKS:
        for agent in AGENTS:
            own = [row for row in rows if (row["task"], row["agent"]) == (task, agent)]
            cells = {(row["demos"], row["seed"]): [row[name] for name in CHECKPOINTS] for row in own}
            curves.append(Curve.from_cells(task, agent, "human", cells))
    return curves


def make_tables(curves: list[Curve]) -> dict[str, Table]:
    """Return the plan's tables by the names of their files."""
    made = {f"ratios-{which}": ratio_table(curves, PIDM, BC, which) for which in ("best", "last")}
    tables = {name: found[0] for name, found in made.items() if found is not None}
    for which in ("best", "last"):
        tables[f"scores-{which}"] = score_table(curves, "human", which)
        pairs = paired_table([curve if which == "best" else curve.last() for curve in curves], PIDM, BC)
        assert pairs is not None
        tables[f"tests-{which}"] = pairs
    return tables


def main(folders: list[Path] | None = None, out: Path = FOLDER) -> None:
    """Write results.csv from the sweeps' folders, if given, and everything that is made of it."""
    if folders:
        write_rows(out / "results.csv", flatten(folders))
    rows = whole_seeds(read(out / "results.csv", (*CHECKPOINTS, "seconds")))
    curves = make_curves(rows)
    print(len({row["seed"] for row in rows}), "whole seeds")
    for name, table in make_tables(curves).items():
        write_rows(out / f"{name}.csv", table.records)
        print(render("report.md.jinja", report=None, table=table))
    write_figure(CurveFigure("curves", "", compare_curves(curves, curves)), out)
    (out / "curves.pdf").unlink()


if __name__ == "__main__":
    tyro.cli(main)
