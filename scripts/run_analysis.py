"""Make docs/results/analysis: prediction errors on the paper's human and A* demonstrations.

Run it:  python scripts/run_analysis.py --data FOLDER [--only horizon] [--force]

FOLDER holds TASK_human.npz and TASK_astar.npz for the four tasks. A part whose table is already there is skipped;
--force makes parts again. Demonstrations themselves are never written.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from pidm_nav.analysis.predictor import error_curve, horizon_curve, plot_error_curves, plot_horizon_curves
from pidm_nav.analysis.states import Row
from pidm_nav.demos import DemoDataset, load_demos
from pidm_nav.files import write_rows
from pidm_nav.plots import save_figure
from pidm_nav.tasks import PAPER_TASKS

ROOT = Path(__file__).parents[1]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "reference_demos")
parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "analysis")
parser.add_argument("--only", nargs="*", help="parts to make: predictor, horizon")
parser.add_argument("--force", action="store_true", help="make parts again that are already there")
arguments = parser.parse_args()


def load(who: str) -> list[DemoDataset]:
    return [load_demos(arguments.data / f"{task.replace('-', '_')}_{who}.npz") for task in PAPER_TASKS]


def predictor() -> list[Row]:
    curves = [error_curve(each, rng=np.random.default_rng(0)) for each in (*load("human"), *load("astar"))]
    save_figure(plot_error_curves(curves), arguments.out / "predictor.png")
    return [row for each in curves for row in each.rows()]


def horizon() -> list[Row]:
    curves = [horizon_curve(each, rng=np.random.default_rng(0)) for each in (*load("human"), *load("astar"))]
    save_figure(plot_horizon_curves(curves), arguments.out / "horizon.png")
    return [row for each in curves for row in each.rows()]


for part in (predictor, horizon):
    name = part.__name__
    table = arguments.out / f"{name}.csv"
    if (arguments.only and name not in arguments.only) or (table.exists() and not arguments.force):
        continue
    began = time.perf_counter()
    write_rows(table, part())  # last, as it says that the part is whole
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
