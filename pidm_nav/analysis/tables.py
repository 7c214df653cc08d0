"""What every analysis returns: numbers about demonstrations, as rows for its CSV files and tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.plots import demonstrator_title

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Finding(ABC):
    """Numbers about the demonstrations of a dataset."""

    dataset: DemoDataset

    @property
    def task(self) -> str:
        """The task's name."""
        return self.dataset.task

    @property
    def demonstrator(self) -> str:
        """Who made the demonstrations, as figures and tables show it."""
        return demonstrator_title(self.dataset)

    @abstractmethod
    def columns(self) -> Row:
        """Return the columns of the table besides the names: arrays that are broadcast against each other."""

    def rows(self) -> list[Row]:
        """Return the table, one row of plain values per entry of the columns."""
        table = {"task": self.task, "demonstrator": self.demonstrator, **self.columns()}
        values = (each.ravel().tolist() for each in np.broadcast_arrays(*table.values()))
        return [dict(zip(table, row, strict=True)) for row in zip(*values, strict=True)]
