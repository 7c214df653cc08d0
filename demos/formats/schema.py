"""What the file formats of demonstrations share: the origin of a dataset, and limits of its size."""

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
    """Origin of demonstrations in our files."""

    task: str
    source: dict[str, Any]


class TooLarge(ValueError):
    """Raised for a dataset beyond the size limits."""


def check_size(arrays: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Raise TooLarge if arrays of these shapes and dtypes exceed the memory limits of a dataset."""
    numbers = images = 0
    for shape, dtype in arrays:
        if len(shape) == 4 and dtype == np.uint8:
            images += abs(math.prod(shape))
        else:
            numbers += abs(math.prod(shape)) * max(dtype.itemsize, 4)
    for taken, most, kind in ((numbers, MAX_NUMBERS, "numbers"), (images, MAX_IMAGES, "images")):
        if taken > most:
            raise TooLarge(
                f"it has {taken / 2**20:,.0f} MB of {kind}, and at most {most >> 20:,} MB are read: split it, or use "
                "smaller images"
            )


def parse_json(text: str | bytes, kind: type[Document]) -> Document:
    """Parse JSON that may hold infinities, which msgspec's strict parser rejects."""
    return msgspec.convert(json.loads(text), kind)


def refuse_links(file: Any) -> None:
    """Raise ValueError if an HDF5 file links to other files, none of which is opened."""
    import h5py

    own = (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT)
    if file.id.links.visit(lambda name, link: None if link.type in own else name, info=True) is not None:
        raise ValueError("it refers to other files: store it as one file")


def has_numbers(array: Any) -> bool:
    """Return whether a member of an HDF5 file is an array of numbers with at least one dimension."""
    if getattr(array, "is_virtual", False) or getattr(array, "external", None):  # the shape may open other files
        raise ValueError("it refers to other files: store it as one file")
    return bool(getattr(array, "shape", ())) and array.dtype.kind in "fiub"


def find_array(file: Any, name: str) -> Any:
    """Return an unread array of an HDF5 file; anything but numbers in this file raises ValueError."""
    array = file[name]
    if not has_numbers(array):
        raise ValueError(f"its {name} are not arrays of numbers: convert them")
    return array


def size_of(array: Any, rows: int | None = None) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of an HDF5 array for `check_size`; HDF5 reads complete chunks."""
    shape = array.shape if rows is None else (rows, *array.shape[1:])
    return max(shape, array.chunks or (), key=math.prod), array.dtype
