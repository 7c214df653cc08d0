"""The dynamics compiled by numba, an optional accelerator: the formulas of `physics.py`, with the same bits.

The compiler may neither reorder nor merge float operations (no `fastmath`), so each one rounds as it does in NumPy.
Nothing is cached on disk: numba's cache is made of pickles, and does not notice when the formulas change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from pidm_nav.world2d.physics import MAX_PUSHES, clip_float, sign_float, write_formulas

# Division as in NumPy: a check for zeros would keep the loops from becoming vector instructions.
_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(error_model="numpy")
_advance, _touches, _index, _push, _push_out = write_formulas(
    _compiled(lambda value: round(value)), _compiled(clip_float), _compiled(sign_float), _compiled
)


@_compiled
def advance_rows(position: Any, action: Any, noise: Any, limit: float, deadzone: float, clip_noise: bool) -> Any:
    """Move (N,) agents along one axis as if there were no walls."""
    moved = np.empty(len(position))
    for row in range(len(position)):
        moved[row] = _advance(position[row], action[row], noise[row], limit, deadzone, clip_noise)
    return moved


@_compiled
def touch_rows(x: Any, y: Any, goal_x: Any, goal_y: Any) -> Any:
    """Return (N,) whether the agents' boxes overlap their goals'."""
    touched = np.empty(len(x), np.bool_)
    for row in range(len(x)):
        touched[row] = _touches(x[row], y[row], goal_x[row], goal_y[row])
    return touched


@_compiled
def push_out_rows(x: Any, y: Any, new_x: Any, new_y: Any, tables: Any) -> Any:
    """Push (N,) agents out of the walls, in place: all that collide once, and the few still inside one by one."""
    push_x, push_y, solid, origin, height = tables
    hit, hits, inside = np.empty(len(x), np.int64), 0, 0
    for row in range(len(x)):
        hit[hits] = row  # counted without a branch, which the processor could not predict
        hits += solid[_index(new_x[row], new_y[row], origin, height)]
    for row in hit[:hits]:
        place = _index(new_x[row], new_y[row], origin, height)
        new_x[row] = _push(x[row], new_x[row], push_x[place])
        new_y[row] = _push(y[row], new_y[row], push_y[place])
        hit[inside] = row
        inside += solid[_index(new_x[row], new_y[row], origin, height)]
    for row in hit[:inside]:
        places = x[row], y[row], new_x[row], new_y[row]
        new_x[row], new_y[row] = _push_out(*places, MAX_PUSHES - 1, tables)
    return new_x, new_y
