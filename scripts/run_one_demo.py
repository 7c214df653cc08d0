"""Make docs/results/one_demo: how far agents come with few of the paper's human demonstrations.

Run it:  python scripts/run_one_demo.py [--data FOLDER] [--demos 1 50] [--variants pidm bc ...] [--jobs 2]

FOLDER holds TASK_human.npz for the four tasks. Draws of demonstrations, trainings and rollouts have seeds that were not
used to choose any setting (docs/results/one_demo/search.md). Each row is written as it is ready, so a stopped run goes
on where it was.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from pidm_nav import evaluate, load_demos, train
from pidm_nav.agents.train import env_arguments
from pidm_nav.demos.experts.play import play
from pidm_nav.files import only_writer, write_rows
from pidm_nav.tasks import PAPER_TASKS

ROOT = Path(__file__).parents[1]
VARIANTS = ("pidm", "pidm+play", "pidm states only", "pidm paper", "bc")
SEEDS = range(100, 105)
FIRST_ROLLOUT, ROLLOUTS, PLAY = 1_000_000, 50, 2000
KEY = ("variant", "task", "demos", "seed")


def run(data: Path, out: Path, variant: str, task: str, demos: int, seed: int) -> None:
    """Train and evaluate one agent, and add its row."""
    pool = load_demos(data / f"{task.replace('-', '_')}_human.npz")
    dataset = pool.sample(demos, np.random.default_rng(seed))
    more: dict[str, Any] = {}
    began = time.process_time()
    if variant in ("pidm+play", "pidm states only"):
        more["idm_data"] = play(task, PLAY, 2_000_000 + 1000 * seed, **env_arguments(dataset))
    if variant == "pidm states only":
        dataset = dataset.without_actions()
    preset = "paper-fast" if variant == "pidm paper" else "fast"
    agent = train(variant.split()[0].split("+")[0], dataset, preset, seed=seed, progress=False, **more)
    seconds = time.process_time() - began
    result = evaluate(agent, task, ROLLOUTS, FIRST_ROLLOUT)
    row = dict(zip(KEY, (variant, task, demos, seed), strict=True))
    row |= {"goal_ratio": result.mean_goal_ratio, "success": result.success_rate, "cpu_seconds": round(seconds, 2)}
    with only_writer(out, "wait for it", wait=True):
        write_rows(out, [*read(out), row])


def read(out: Path) -> list[dict[str, Any]]:
    """Return the rows that are there."""
    if not out.exists():
        return []
    with out.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "reference_demos")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "one_demo" / "results.csv")
    parser.add_argument("--demos", type=int, nargs="+", default=[1, 2, 5, 10, 20, 50])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    done = {tuple(str(row[key]) for key in KEY) for row in read(options.out)}
    jobs = [
        (variant, task, demos, seed)
        for variant in options.variants
        for demos in options.demos
        for task in PAPER_TASKS
        for seed in SEEDS
        if (variant, task, str(demos), str(seed)) not in done
    ]
    Parallel(options.jobs)(delayed(run)(options.data, options.out, *job) for job in jobs)
    groups: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in read(options.out):
        cell = groups.setdefault((row["variant"], int(row["demos"])), {task: [] for task in PAPER_TASKS})
        cell[row["task"]].append(float(row["goal_ratio"]))
    for (variant, demos), cells in sorted(groups.items(), key=lambda item: (VARIANTS.index(item[0][0]), item[0][1])):
        shown = (f"{np.mean(each):.3f} ({min(each):.2f})" if each else "-" for each in cells.values())
        print(f"{variant:18} {demos:3}  {'  '.join(shown)}")


if __name__ == "__main__":
    main()
