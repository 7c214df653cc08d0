"""Make docs/results/analysis: the analyses of the paper's human and A* demonstrations.

Run it:  python scripts/run_analysis.py --data FOLDER [--results SWEEP...] [--only gap ...]

FOLDER holds TASK_human.npz and TASK_astar.npz for the four tasks. A part whose table is already there is skipped,
and trained agents are kept in --work, so a stopped run goes on where it was; --force makes parts again.
Demonstrations themselves are never written.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from pidm_nav.agents import load_agent, train
from pidm_nav.analysis.correlation import plot_correlation, sweep_correlation
from pidm_nav.analysis.field import measure_field, plot_field
from pidm_nav.analysis.gap import Gap, measure_gap, plot_gap
from pidm_nav.analysis.predictor import error_curve, horizon_curve, plot_error_curves, plot_horizon_curves
from pidm_nav.analysis.states import Finding, Row
from pidm_nav.demos import DemoDataset, load_demos
from pidm_nav.files import write_rows
from pidm_nav.plots import demonstrator_title, save_figure
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.state import split_state

ROOT = Path(__file__).parents[1]
TOP = 0.5  # end of the color scale of Delta(s), the same for people and planner

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "reference_demos")
parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "analysis")
parser.add_argument("--work", type=Path, default=ROOT / "runs" / "analysis", help="folder for trained agents")
parser.add_argument("--results", type=Path, nargs="*", default=[], help="folders that pidm-nav sweep wrote")
parser.add_argument("--only", nargs="*", help="parts to make: gap, settings, reaction, neighbours, field, ...")
parser.add_argument("--force", action="store_true", help="make parts again that are already there")
arguments = parser.parse_args()


def load(who: str) -> list[DemoDataset]:
    return [load_demos(arguments.data / f"{task.replace('-', '_')}_{who}.npz") for task in PAPER_TASKS]


def gap() -> list[Row]:
    rows = []
    for who, data in ((who, load(who)) for who in ("human", "astar")):
        found = [measure_gap(each, rng=np.random.default_rng(0)) for each in data]
        save_figure(plot_gap(found, TOP), arguments.out / f"gap_{who}.png")
        rows += [each.summary() for each in found]
    return rows


def settings() -> list[Row]:
    """The gap with other numbers of clusters, with raw states, and with other first centers."""
    rows = []
    cases = [(clusters, True, 0) for clusters in (125, 250, 500, 1000)]
    cases += [(500, False, 0)] + [(500, True, seed) for seed in (1, 2, 3, 4)]
    for data in (*load("human"), *load("astar")):
        for clusters, apart, seed in cases:
            found = measure_gap(data, clusters, keep_goals_apart=apart, rng=np.random.default_rng(seed))
            rows.append({"K": clusters, "keep_goals_apart": apart, "seed": seed, **found.summary()})
    return rows


def reaction() -> list[Row]:
    """Cosine of the action some steps after a goal was reached and the one that reached it."""
    rows = []
    for data in (*load("human"), *load("astar")):
        turned: dict[int, list[float]] = {}
        for episode in data:
            reached = split_state(episode.observations)[2]
            for step in np.flatnonzero(np.diff(reached)):  # the action that reached the goal
                for after in range(1, 9):
                    if step + after < len(episode) and reached[step + after] == reached[step + 1]:
                        pair = episode.actions[[step, step + after]].astype(np.float64)
                        length = np.linalg.norm(pair, axis=1).prod()
                        turned.setdefault(after, []).append(float(pair[0] @ pair[1] / max(length, 1e-9)))
        cosines = {f"after_{after}": float(np.mean(values)) for after, values in sorted(turned.items())}
        rows.append({"task": data.task, "demonstrator": demonstrator_title(data), **cosines})
    return rows


def neighbours() -> list[Row]:
    """Half the mean squared difference of actions in states with equal goals, by px between them."""
    rows = []
    for data in (*load("human"), *load("astar")):
        transitions = data.transitions()
        positions, _, reached = split_state(transitions.state)
        points = np.column_stack([positions, 1e4 * reached])
        pairs = cKDTree(points).query_pairs(16, output_type="ndarray")
        apart = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
        actions = transitions.action.astype(np.float64)
        half = 0.5 * ((actions[pairs[:, 0]] - actions[pairs[:, 1]]) ** 2).sum(axis=1)
        row: Row = {"task": data.task, "demonstrator": demonstrator_title(data)}
        for low, high in ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16)):
            inside = (apart >= low) & (apart < high)
            row |= {f"pairs_{low}_{high}": int(inside.sum()), f"half_{low}_{high}": float(half[inside].mean())}
        rows.append(row)
    return rows


def expected_gain(found: Finding, gap: Gap) -> Row:
    """V / (v + 0.04) from the action's variance v per axis in the three clusters nearest to each place."""
    scale = {"x": 1, "y": 1, "goals_reached": 1e4}
    here, there = (np.column_stack([each.columns[k] * v for k, v in scale.items()]) for each in (found, gap))
    count, delta = gap.columns["count"], found.columns["delta"]
    unbiased = gap.columns["variance"] * count / np.maximum(count - 1, 1)
    variance = unbiased[cKDTree(there).query(here, k=3)[1]].mean(axis=1) / 2
    expected = variance / (variance + 0.04)
    large = delta >= np.quantile(delta, 0.75)
    means = {"large": float(expected[large].mean()), "elsewhere": float(expected[~large].mean())}
    return {f"expected_gain_{where}": value for where, value in means.items()}


def field() -> list[Row]:
    found, rows = [], []
    for data in load("human"):
        folder = arguments.work / f"{data.task}-pidm-human"
        agent = load_agent(folder) if (folder / "agent.json").is_file() else train("delta-pidm", data, out=folder)
        gaps = measure_gap(data, rng=np.random.default_rng(0))
        found.append(measure_field(agent, data, gap=gaps, rng=np.random.default_rng(0)))
        rows.append({**found[-1].summary(), **expected_gain(found[-1], gaps)})
    save_figure(plot_field(found), arguments.out / "field.png")
    return rows


def predictor() -> list[Row]:
    curves = [error_curve(each, rng=np.random.default_rng(0)) for each in (*load("human"), *load("astar"))]
    save_figure(plot_error_curves(curves), arguments.out / "predictor.png")
    return [row for each in curves for row in each.rows()]


def horizon() -> list[Row]:
    curves = [horizon_curve(each, rng=np.random.default_rng(0)) for each in (*load("human"), *load("astar"))]
    save_figure(plot_horizon_curves(curves), arguments.out / "horizon.png")
    return [row for each in curves for row in each.rows()]


def correlation() -> list[Row]:
    bundled = [load_demos(f"{task}/astar") for task in PAPER_TASKS]  # sweep --demos-from astar learns from these
    found = sweep_correlation(arguments.results, [*load("human"), *load("astar"), *bundled])
    save_figure(plot_correlation(found), arguments.out / "correlation.png")
    print(f"Spearman {found.spearman:.3f}, p = {found.p:.2g}")
    return [row for each in found.curves for row in each.rows()]


PARTS: tuple[Callable[[], list[Row]], ...] = (gap, settings, reaction, neighbours, field, predictor, horizon)
for part in (*PARTS, correlation) if arguments.results else PARTS:
    name = part.__name__
    table = arguments.out / f"{name}.csv"
    if (arguments.only and name not in arguments.only) or (table.exists() and not arguments.force):
        continue
    began = time.perf_counter()
    write_rows(table, part())  # last, as it says that the part is whole
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
