"""Make docs/results/one_demo: how far PIDM, its variants and BC come with few of the paper's demonstrations.

Run it:  python scripts/run_one_demo.py [--data FOLDER] [--by human astar] [--jobs 2]

FOLDER holds TASK_human.npz and TASK_astar.npz for the four tasks. The seeds of draws and trainings were not looked at
before (docs/results/one_demo/search.md says which settings were chosen with which seeds). Besides PIDM and BC there are
controls and, on the human recordings, the other baselines. It is one sweep per demonstrator, so a stopped run goes on
where it was; results.csv keeps what was run before and adds what the sweeps of this machine have. Without anybody after
--by, nothing is run and the report is written again.
"""

from __future__ import annotations

import csv
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import tyro

from pidm_nav.console import counted, say
from pidm_nav.experiments.efficiency import efficiency_table
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.figures import CurveFigure, Gain, compare_curves, plot_gains, write_figure
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.results import MANIFEST, Cell, Checkpoint, JobResult, make_curves, paired_gains, read_results
from pidm_nav.experiments.sweep import Sweep, run_sweep
from pidm_nav.files import write_rows
from pidm_nav.plots import agent_style, save_figure
from pidm_nav.tasks import PAPER_TASKS

ROOT = Path(__file__).parents[1]
SIZES = (1, 2, 5, 10, 20, 50)
FIRST_SEED = 500
PARTS = {  # by demonstrator: agents and numbers of demonstrations, the quick ones first
    "human": (
        (("bc", "delta-pidm", "delta-pidm-play", "delta-pidm-states"), SIZES),
        (("bc-play", "delta-pidm-nearest"), (1, 2, 5)),
        (("delta-pidm-play-500", "delta-pidm-play-10000"), (1,)),
        (("retrieval-bc", "chunking", "diffusion"), (1, 5, 20, 50)),
        (("bc-dagger",), (1, 5, 20, 50)),
    ),
    "astar": ((("bc", "delta-pidm", "delta-pidm-play", "delta-pidm-states"), (1, 2, 5, 10)),),
}
OTHERS = ("bc-dagger", "retrieval-bc", "chunking", "diffusion", "delta-pidm")
RECIPES = {
    "delta-pidm-nearest": Recipe("delta-pidm", {"predictor": "nearest"}),
    "delta-pidm-play-500": Recipe("delta-pidm", play_steps=500),
    "delta-pidm-play-10000": Recipe("delta-pidm", play_steps=10_000),
}


def read_record(path: Path) -> dict[str, dict[Cell, JobResult]]:
    """Return what results.csv holds, by demonstrator; nothing if there is no such file yet."""
    record: dict[str, dict[Cell, JobResult]] = {}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines() if path.exists() else ()):
        cell = Cell(int(row["seed"]), row["task"], int(row["demos"]), row["agent"])
        scores = Checkpoint(goal_ratio=float(row["goal_ratio"]), success=float(row["success"]))
        result = JobResult(**asdict(cell), checkpoints=[scores], seconds=float(row["seconds"]))
        record.setdefault(row["demonstrator"], {})[cell] = result
    return record


def gains_by_size(done: dict[Cell, JobResult]) -> dict[str, list[Gain]]:
    """Return what each of `OTHERS` gains on BC over all tasks, by the number of demonstrations."""
    panels = {}
    for size in (1, 5, 20, 50):
        scores = {cell: each.score for cell, each in done.items() if cell.demos == size}
        rows = [row for row in paired_gains(scores) if row["task"] == "all" and row["agent"] in OTHERS]
        own = [Gain(*agent_style(row["agent"])[:2], row["gain"], row["low"], row["high"]) for row in rows]
        panels[counted(size, "demonstration")] = own
    return panels


def main(
    data: Path = ROOT.parent / "shared" / "data" / "reference_demos",
    by: tuple[str, ...] = ("human", "astar"),
    jobs: int = 2,
    work: Path = ROOT / "runs" / "one_demo",
    out: Path = ROOT / "docs" / "results" / "one_demo",
) -> None:
    """Run what is missing, and write the report.

    Args:
        data: folder of the demonstrations.
        by: demonstrators.
        jobs: number of processes.
        work: folder for the scores of every job.
        out: folder for the report.
    """
    record = read_record(out / "results.csv")
    for demonstrator in by:
        for agents, sizes in PARTS[demonstrator]:
            sweep = Sweep(
                agents=agents,
                num_demos=sizes,
                seeds=5,
                first_seed=FIRST_SEED,
                demos=tuple(str(data / f"{task.replace('-', '_')}_{demonstrator}.npz") for task in PAPER_TASKS),
                label=demonstrator,
                checkpoint_fractions=(),
                clip_noise=True,
                recipes=RECIPES,
            )
            run = partial(run_local, workers=jobs)
            run_sweep(sweep, work / demonstrator, run, on_result=lambda result: say(str(result)))
    for manifest in sorted(work.glob(f"*/{MANIFEST}")):
        record.setdefault(manifest.parent.name, {}).update(read_results(manifest.parent)[0])
    curves, rows, gains = [], [], []
    for demonstrator, done in record.items():
        curves += make_curves(done, demonstrator)
        for cell, result in sorted(done.items()):
            scores = {"goal_ratio": result.score, "success": result.checkpoints[-1].success, "seconds": result.seconds}
            rows.append({"demonstrator": demonstrator, **asdict(cell), **scores})
        for baseline in ("bc", "delta-pidm"):
            found = paired_gains({cell: result.score for cell, result in done.items()}, baseline)
            gains += [{"demonstrator": demonstrator, "baseline": baseline, **row} for row in found]
    write_rows(out / "results.csv", rows)
    write_rows(out / "gains.csv", gains)
    for curve in curves:
        means = dict(zip(curve.sizes, curve.mean.round(3).tolist(), strict=True))
        say(f"{curve.demos_from} {curve.task} {curve.agent}: {means}")
    ratios = []
    for demonstrator in record:
        for agent in PARTS[demonstrator][0][0]:  # which have the same sizes
            pair = (agent, demonstrator), ("bc", demonstrator)
            for ratio in efficiency_table(curves, *pair, rng=np.random.default_rng(0)) if agent != "bc" else ():
                low, high = ratio.interval
                ratios.append(
                    {"agent": agent, "demonstrator": demonstrator, "task": ratio.task, "level": ratio.level}
                    | {"ratio": str(ratio), "low": low, "high": high, "undefined": ratio.undefined}
                )
    write_rows(out / "efficiency.csv", ratios)
    for demonstrator in record:
        shown = [curve for curve in curves if curve.demos_from == demonstrator and curve.agent in ("bc", "delta-pidm")]
        write_figure(CurveFigure(demonstrator, "", compare_curves(shown, shown)), out)
    save_figure(plot_gains(gains_by_size(record["human"]), "goals reached, minus BC"), out / "agents.png")
    say(f"{len(rows)} jobs are done; wrote results.csv, gains.csv, efficiency.csv and the figures to {out}")


if __name__ == "__main__":
    tyro.cli(main)
