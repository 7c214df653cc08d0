"""Count the failed episodes that end in one place: docs/results/what_wins/stalls.csv.

Run it:  python scripts/run_stalls.py --data FOLDER [--jobs 2]

Exploratory, with agents, demonstrations and seeds of part F of the study of what makes PIDM win (five human
demonstrations). FOLDER holds TASK_human.npz for the four tasks. An episode stalls if it fails and, over its last 80
steps, the standard deviation of both coordinates is below one step (20 px).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import torch
import tyro
from report_what_wins import FOLDER
from run_what_wins import EPISODES, SEEDS, SPEED, fitted, load, roll_out, shuffle, with_predictor

from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.pull import Pull
from pidm_nav.agents.train import train
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.files import write_rows
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.seeds import TEST
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.state import POSITION

DEMOS, LAST = 5, 80


def policies(demos: DemoDataset, seed: int) -> Iterator[tuple[str, Policy]]:
    """Yield BC and delta-PIDM, with and without pull, and delta-PIDM with learned predictors."""
    settings: dict[str, Any] = {"progress": False, "seed": seed, "failed": "keep"}
    bc = train("bc", demos, **settings)
    yield from {"bc": bc, "bc+pull/1": Pull(bc, demos, 1.0)}.items()
    delta = train("delta-pidm", demos, predictor="nearest", **settings)
    assert isinstance(delta, PIDM)
    for pull in (1.0, 0.0):
        yield f"delta/nearest/{pull:g}", with_predictor(delta, delta.predictor, pull)
    for name, predictor in {"learned": "learned", "denoising": "learned(noise=2)"}.items():
        yield f"delta/{name}", with_predictor(delta, fitted(delta, predictor, demos))


def run(task: str, seed: int, folder: Path) -> list[dict[str, Any]]:
    """Return the counts of one task and seed."""
    torch.set_num_threads(1)
    demos, rows = shuffle(load(folder, "human", task), seed, DEMOS)[:DEMOS], []
    for name, policy in policies(demos, seed):
        episodes = roll_out(policy, demos, TEST[:EPISODES], keep_steps=True).episodes()
        failed = [episode.observations[-LAST:, POSITION] for episode in episodes if not episode.success]
        stalled = sum(bool((ended.std(axis=0) < SPEED).all()) for ended in failed)
        rows.append({"task": task, "seed": seed, "agent": name, "failed": len(failed), "stalled": stalled})
    return rows


def main(data: Path, out: Path = FOLDER / "stalls.csv", jobs: int = 1) -> None:
    """Write the counts of all tasks and seeds."""
    cells = itertools.product(PAPER_TASKS, SEEDS)
    found = joblib.Parallel(jobs)(joblib.delayed(run)(*cell, data) for cell in cells)
    write_rows(out, [row for rows in found for row in rows])


if __name__ == "__main__":
    tyro.cli(main)
