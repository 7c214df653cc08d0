"""Limits of sizes and counts, checked before any memory is taken, and suggestions for names that are not known."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

MAX_SIDE = 4096  # pixels of a room or a picture along one side
MAX_CELLS = 100_000  # characters of a map
MAX_ROWS = 262_144  # environments that are stepped at once
MAX_BATCH = 2**30  # bytes of the observations of one step, of all rows together
MAX_STEPS = 1_000_000_000  # steps of an episode
MAX_EPISODES = 100_000  # episodes of one evaluation, collection or file
MAX_INFOS = 32  # different infos of an episode in a file
MAX_NUMBERS = 2**28  # bytes of a file's arrays but images, each number counted with at least the four of a float32
MAX_IMAGES = 2**31  # bytes of a file's images
MAX_SEED = 10**18  # fits into 64 bits, also with the number of an episode added
MAX_FEATURES = 100_000  # distractors that are appended to an observation


def check_number(name: str, value: Any, low: float, high: float, whole: bool = True) -> None:
    """Refuse a value that is not a number, or by default not a whole number, from `low` to `high`; NaN never is."""
    number: Any = value if isinstance(value, Integral if whole else Real) else math.nan
    if not low <= number <= high:
        kind = "whole number" if whole else "number"
        raise ValueError(f"{name} is {reprlib.repr(value)}: it must be a {kind} from {low:,} to {high:,}")


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the end of an error about an unknown name: the known name that it resembles, or what else to do."""
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else otherwise
