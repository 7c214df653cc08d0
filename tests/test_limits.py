"""Limits: caches that are bounded by bytes, and the check of numbers."""

import gc
import weakref

import numpy as np
import pytest

from pidm_nav import limits
from pidm_nav.limits import CACHE_BYTES, check_number
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.physics import _push_tables


class Table:
    """Something that takes memory."""

    def __init__(self, nbytes: int) -> None:
        self.array = np.zeros(nbytes, np.uint8)


def test_a_cache_keeps_what_was_used_last_within_its_bytes(monkeypatch):
    monkeypatch.setattr(limits, "CACHE_BYTES", 100)
    made: list[tuple[str, weakref.ref]] = []

    @limits.cache_by_bytes(lambda table: table.array.nbytes)
    def table(name: str, nbytes: int = 30) -> Table:
        result = Table(nbytes)
        made.append((name, weakref.ref(result)))
        return result

    first = table("a")
    assert table("a") is first and len(made) == 1
    table("b")
    table("c")
    table("a")  # used again: now "b" is the oldest
    table("d")
    del first
    gc.collect()
    assert [name for name, result in made if result() is not None] == ["a", "c", "d"]
    assert table("large", nbytes=101).array.nbytes == 101  # made, and not kept
    gc.collect()
    assert not any(result() for _, result in made)


@pytest.mark.slow
def test_maps_of_any_number_leave_bounded_memory():
    free = "#" + "." * 30 + "#"
    arrays = []
    for number in range(6):  # another map each time, of 4096 x 4096 pixels
        wall = "#" + "." * number + "#" + "." * (29 - number) + "#"
        rows = ["#" * 32, free, "#..A..1" + "." * 24 + "#", free, wall, "#" * 32]
        tables = _push_tables(Layout.parse("\n".join(rows), (4096, 4096)))
        arrays += [weakref.ref(tables.pushes), weakref.ref(tables.solid)]
    size = tables.pushes.nbytes + tables.solid.nbytes
    assert 6 * size > CACHE_BYTES  # so that the test means something
    del tables
    gc.collect()
    assert sum(array.nbytes for each in arrays if (array := each()) is not None) <= CACHE_BYTES


@pytest.mark.parametrize("value", [0, 11, float("nan"), "x" * 5000, None, 1.5, 10**30])
def test_a_number_outside_its_range_is_a_short_sentence(value):
    with pytest.raises(ValueError, match=r"^steps is .* it must be an integer from 1 to 10$") as caught:
        check_number("steps", value, 1, 10)
    assert len(str(caught.value)) < 120
    check_number("steps", 10, 1, 10)
