"""Jobs of a study as the lines of a file, so that a stopped run is resumed by running it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import joblib


def run_missing(cells: Iterable[Any], call: Callable[[Any], Any], out: Path, jobs: int) -> None:
    """Run the cells that the file does not hold yet, some at a time.

    Args:
        cells: named tuples, whose fields each job has as well.
        call: returns the delayed call (`joblib.delayed`) that runs a cell and returns its job.
        out: the file, one job a line.
        jobs: number of jobs at a time.
    """
    cells = list(cells)
    fields = cells[0]._fields if cells else ()
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    done = {tuple(job[name] for name in fields) for job in map(json.loads, lines)}
    workers = joblib.Parallel(jobs, return_as="generator_unordered", pre_dispatch=jobs, batch_size=1)
    for job in workers(call(cell) for cell in cells if cell not in done):
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(job) + "\n")
        print(*(job[name] for name in (*fields, "seconds")), flush=True)
