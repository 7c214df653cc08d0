"""What analyses begin with and end in: states of demonstrations, and tables of numbers about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.plots import demonstrator_title
from pidm_nav.tasks import TASKS

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Finding:
    """Numbers about the demonstrations of a dataset."""

    dataset: DemoDataset
    columns: Row  # of a table: sequences of N values, or one value for all

    @property
    def task(self) -> str:
        """The task's name."""
        return self.dataset.task

    @property
    def demonstrator(self) -> str:
        """Who made the demonstrations, as figures and tables show it."""
        return demonstrator_title(self.dataset)

    def rows(self) -> list[Row]:
        """Return the table, one row of plain values per entry of the columns."""
        table = {"task": self.task, "demonstrator": self.demonstrator, **self.columns}
        values = (column.tolist() for column in np.broadcast_arrays(*table.values()))
        return [dict(zip(table, row, strict=True)) for row in zip(*values, strict=True)]


def in_pixels(dataset: DemoDataset) -> bool:
    """Return whether a dataset is of a 2D task, whose states are in pixels."""
    return dataset.task in TASKS and TASKS[dataset.task].has_2d_state


def check_states(dataset: DemoDataset) -> None:
    """Refuse demonstrations whose observations are images."""
    if dataset.episodes[0].observations.ndim != 2:
        raise ValueError("these demonstrations hold images: analyses need states, one row of numbers per step")
