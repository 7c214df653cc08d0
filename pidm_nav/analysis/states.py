"""Common parts of analyses: checks of demonstrations, and tables of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.plots import demonstrator_title
from pidm_nav.tasks import known_task

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Finding:
    """Result of an analysis of a dataset, as a table."""

    dataset: DemoDataset
    columns: Row  # sequences of N values, or one value for all rows

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.dataset.task

    @property
    def demonstrator(self) -> str:
        """Title of the demonstrator in figures and tables."""
        return demonstrator_title(self.dataset)

    def rows(self) -> list[Row]:
        """Return the rows of the table, as plain values."""
        table = {"task": self.task, "demonstrator": self.demonstrator, **self.columns}
        values = (column.tolist() for column in np.broadcast_arrays(*table.values()))
        return [dict(zip(table, row, strict=True)) for row in zip(*values, strict=True)]


def in_pixels(dataset: DemoDataset) -> bool:
    """Return whether the states of a dataset are in pixels, as in 2D tasks."""
    task = known_task(dataset.task)
    return task is not None and task.has_2d_state


def check_states(dataset: DemoDataset) -> None:
    """Raise ValueError if observations are images."""
    if dataset.episodes[0].observations.ndim != 2:
        raise ValueError("these demonstrations hold images: give demonstrations with states")
