"""Rows of numbers: what every analysis writes to its CSV files and prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Row = dict[str, Any]


def to_rows(columns: Mapping[str, Any]) -> list[Row]:
    """Turn columns into rows of plain values; columns are arrays that are broadcast against each other."""
    arrays = np.broadcast_arrays(*columns.values())
    return [
        dict(zip(columns, row, strict=True)) for row in zip(*(each.ravel().tolist() for each in arrays), strict=True)
    ]
