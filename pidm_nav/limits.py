"""Limits of sizes, counts and caches, and suggestions for unknown names."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

MAX_SIDE = 4096  # pixels of a room or a picture along one side
MAX_CELLS = 100_000  # characters of a map
MAX_ROWS = 262_144  # rows of a vector environment
MAX_BATCH = 2**30  # bytes of the observations of one step over all rows
MAX_STEPS = 1_000_000_000  # steps of an episode
MAX_EPISODES = 100_000  # episodes of one evaluation, collection or file
MAX_INFOS = 32  # different infos of an episode in a file
MAX_NUMBERS = 2**28  # bytes of a file's arrays except images, with at least 4 per number
MAX_IMAGES = 2**31  # bytes of a file's images
MAX_SEED = 10**18  # fits into 64 bits, also with an episode's index added
MAX_FEATURES = 100_000  # distractors in an observation

CACHE_BYTES = 2**28  # of each cache of data derived from maps

P = ParamSpec("P")
Made = TypeVar("Made")


def cache_by_bytes(nbytes: Callable[[Any], int]) -> Callable[[Callable[P, Made]], Callable[P, Made]]:
    """Return a decorator that caches the most recently used results, up to CACHE_BYTES in total."""

    def decorate(make: Callable[P, Made]) -> Callable[P, Made]:
        made: dict[Any, Made] = {}  # the most recently used last

        @wraps(make)
        def find(*args: P.args, **kwargs: P.kwargs) -> Made:
            key = (args, *kwargs.items())
            found = made.pop(key, None)
            result = make(*args, **kwargs) if found is None else found
            made[key] = result
            while made and sum(map(nbytes, list(made.values()))) > CACHE_BYTES:
                made.pop(next(iter(made)), None)
            return result

        return find

    return decorate


def check_number(name: str, value: Any, low: float, high: float, integer: bool = True) -> None:
    """Raise ValueError unless a value is an integer, or a number with `integer=False`, from `low` to `high`."""
    number: Any = value if isinstance(value, Integral if integer else Real) else math.nan
    if not low <= number <= high:
        kind = "an integer" if integer else "a number"
        raise ValueError(f"{name} is {reprlib.repr(value)}: it must be {kind} from {low:,} to {high:,}")


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the end of an error about an unknown name: the known name that it resembles, or what else to do."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else otherwise
