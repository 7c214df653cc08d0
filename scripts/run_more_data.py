"""Look at part X of docs/results/plans/horizons.md: what more demonstrations for the lookup do to PIDM's pull.

Run it:  python scripts/run_more_data.py --data FOLDER

FOLDER holds TASK_human.npz for the four tasks. Writes docs/results/horizons/more_data.csv: the first seed of the study,
one demonstration with actions, k = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from run_horizons import SEEDS, UNLABELED, acting, goals
from run_what_wins import Exact, load, shuffle

from pidm_nav.agents.train import train
from pidm_nav.analysis.offline import action_error, restoring_coefficient
from pidm_nav.console import say
from pidm_nav.files import write_rows
from pidm_nav.tasks import PAPER_TASKS

OUT = Path(__file__).parents[1] / "docs/results/horizons/more_data.csv"


def look(task: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row without and with 45 demonstrations without actions; four others are held out."""
    seed, most = SEEDS[0], UNLABELED[-1]
    shuffled = shuffle(load(folder, "human", task), seed, 1)
    demos, more, held_out = shuffled[:1], shuffled[1 : most + 1], shuffled[most + 1 :]
    options: dict[str, Any] = {"horizons": (1, 5), "progress": False, "failed": "keep"}
    agent = train("pidm", demos, preset="paper-fast", seed=seed, **options)
    for unlabeled in ((), (more,)):
        twin = acting(agent, 1, demos, *unlabeled)
        yield {
            "task": task,
            "unlabeled": sum(map(len, unlabeled)),
            "goals": goals(twin, demos),
            "exact_goals": goals(Exact(twin.predictor), demos),
            "restoring": restoring_coefficient(twin, held_out, np.random.default_rng(0)),
            "error": action_error(twin, held_out),
        }


def main(data: Path, out: Path = OUT) -> None:
    """Write the rows of all tasks."""
    torch.set_num_threads(1)
    rows = []
    for task in PAPER_TASKS:
        rows += look(task, data)
        say(f"{task}: {rows[-2]['goals']:.3f} of the goals without more demonstrations, {rows[-1]['goals']:.3f} with")
    write_rows(out, rows)


if __name__ == "__main__":
    tyro.cli(main)
