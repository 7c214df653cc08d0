"""What all files of demonstrations have in common: what they say about their origin, and how much they may hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np

from pidm_nav.limits import MAX_IMAGES, MAX_NUMBERS

Document = TypeVar("Document")


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


def parse_json(text: str | bytes, kind: type[Document]) -> Document:
    """Read a JSON text of other people's, who may write infinite numbers, which strict JSON has none of."""
    return msgspec.convert(json.loads(text), kind)


def has_numbers(array: Any) -> bool:
    """Return whether a member of an HDF5 file is an array of numbers with at least one axis."""
    return bool(getattr(array, "shape", ())) and array.dtype.kind in "fiub"


def find_array(file: Any, name: str) -> Any:
    """Return an array of an HDF5 file before it is read; what is no numbers, or in another file, is refused."""
    array = file[name]
    if not has_numbers(array):
        raise ValueError(f"its {name} are a dict, a tuple or no numbers: arrays of numbers are needed")
    if array.external or array.is_virtual or array.file != file:
        raise ValueError("it takes arrays from other files: store it as one")
    return array


def size_of(array: Any, rows: int | None = None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return what `check_size` takes for an array of an HDF5 file, of which whole chunks are read."""
    shape = array.shape if rows is None else (rows, *array.shape[1:])
    return max(shape, array.chunks or (), key=math.prod), array.dtype
