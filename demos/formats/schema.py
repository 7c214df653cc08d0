"""What all files of demonstrations have in common: what they say about their origin, and how much they may hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from pidm_nav.limits import MAX_IMAGES, MAX_NUMBERS


class Origin(msgspec.Struct):
    """What a file of ours says about where its demonstrations come from."""

    task: str
    source: dict[str, Any]


class TooLarge(ValueError):
    """Raised for a dataset that is larger than the limits."""


def check_size(arrays: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Refuse arrays, given by their shapes and types, that would take more memory together than a dataset may."""
    numbers = images = 0
    for shape, dtype in arrays:
        if len(shape) == 4 and dtype == np.uint8:
            images += abs(math.prod(shape))
        else:
            numbers += abs(math.prod(shape)) * max(dtype.itemsize, 4)
    for taken, most, kind in ((numbers, MAX_NUMBERS, "numbers"), (images, MAX_IMAGES, "images")):
        if taken > most:
            raise TooLarge(
                f"it would take {taken / 2**20:,.0f} MB of {kind}, and a dataset may take {most >> 20:,} MB: "
                "split it, or use smaller images"
            )
