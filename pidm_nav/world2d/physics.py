"""The dynamics, written once: for one agent as floats and for N agents as (N,) arrays, by NumPy or compiled.

Each step moves both axes and then leaves the walls:

    action -> 0 if |action| < deadzone -> + noise -> clip to [-1, 1] -> x SPEED -> 3 decimals -> clip to the room
    while the box overlaps a wall: push back against the direction of travel, by the largest overlap plus 1

The push depends only on the integer center of the box, so it is tabulated once per layout: a lookup says whether an
agent collides, and only the few that do are pushed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pidm_nav.limits import check_number
from pidm_nav.world2d.layout import BOX, MARGIN, Layout

SPEED = 20.0  # pixels per step at an action of 1
MAX_PUSHES = 100  # after so many pushes, an agent that is still inside a wall goes back to where it was
PAD = MARGIN + 2  # pixels around the room that the tables cover, so that no lookup is out of range

FloatArray = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)
Formula = Callable[..., Any]


class Formulas(NamedTuple):
    """The formulas of a step, as functions of nothing but their arguments, so that numba can compile them."""

    advance: Formula
    touches: Formula
    index: Formula
    push: Formula
    push_out: Formula


def write_formulas(
    rint: Formula, clip: Formula, sign: Formula, compiled: Formula = lambda written: written
) -> Formulas:
    """Write the formulas with these operations, for numbers or for arrays, and have them `compiled`."""
    return Formulas(*_write_moves(rint, clip, compiled), *_write_pushes(rint, sign, compiled))


def _write_moves(rint: Formula, clip: Formula, compiled: Formula) -> tuple[Formula, Formula]:
    """Write how an agent moves and what it touches."""

    @compiled
    def advance(position: Any, action: Any, noise: Any, limit: float, deadzone: float, clip_noise: bool) -> Any:
        """Move along one axis as if there were no walls."""
        moved = action * (abs(action) >= deadzone)  # a new array, so what follows can be in place
        moved += noise
        if clip_noise:
            moved = clip(moved, -1.0, 1.0)
        moved *= SPEED
        moved += position
        moved *= 1000.0
        moved = rint(moved)
        moved /= 1000.0
        return clip(moved, 0.0, limit)

    @compiled
    def touches(x: Any, y: Any, goal_x: Any, goal_y: Any) -> Any:
        """Return whether the agent's box overlaps the goal's."""
        away_x, away_y = rint(x), rint(y)  # new arrays, so what follows can be in place
        away_x -= goal_x
        away_y -= goal_y
        return (abs(away_x) < BOX) & (abs(away_y) < BOX)

    return advance, touches


def _write_pushes(rint: Formula, sign: Formula, compiled: Formula) -> tuple[Formula, Formula, Formula]:
    """Write how an agent is pushed out of the walls."""

    @compiled
    def index(x: Any, y: Any, origin: int, height: int) -> Any:
        """Return the index of the box centered on (x, y) in the tables, as a whole number."""
        place = rint(x)
        place *= height
        place += rint(y)
        place += origin
        return place

    @compiled
    def push(old: Any, new: Any, distance: Any) -> Any:
        """Push back along one axis, against the way that the agent came from `old`."""
        return new - sign(new - old) * distance

    @compiled
    def push_out(x: float, y: float, new_x: float, new_y: float, tries: int, tables: Any) -> Any:
        """Push one agent until it is free; if it never gets free, it stays at (x, y)."""
        push_x, push_y, solid, origin, height = tables
        seen_x, seen_y = x, y
        for attempt in range(tries):
            place = index(new_x, new_y, origin, height)
            if not solid[place]:
                return new_x, new_y
            # Between walls an agent may be pushed around in a circle. A place that is visited again and was
            # remembered at attempt 1, 2, 4, 8 ... reveals any circle (Brent's algorithm).
            if attempt and new_x == seen_x and new_y == seen_y:
                break
            if attempt & (attempt - 1) == 0:
                seen_x, seen_y = new_x, new_y
            new_x = push(x, new_x, push_x[place])
            new_y = push(y, new_y, push_y[place])
        return (x, y) if solid[index(new_x, new_y, origin, height)] else (new_x, new_y)

    return index, push, push_out


def clip_float(value: float, low: float, high: float) -> float:
    """Clip one number."""
    return low if value < low else high if value > high else value


def sign_float(value: float) -> int:
    """Return the sign of one number."""
    return (value > 0) - (value < 0)


def _clip_array(value: FloatArray, low: float, high: float) -> FloatArray:
    return value.clip(low, high, out=value)  # in place; half the time of np.minimum and np.maximum


FLOATS = write_formulas(round, clip_float, sign_float)  # plain Python, without NumPy's cost per call
ARRAYS = write_formulas(np.rint, _clip_array, np.sign)


@cache
def _compiled() -> Any:
    """Return the module that needs numba, which nobody else needs."""
    from pidm_nav.world2d import compiled

    return compiled


class Physics:
    """The dynamics in one layout; positions are float64 pixels, and the caller draws the noise."""

    def __init__(self, layout: Layout, noise_std: float = 0.2, clip_noise: bool = True, deadzone: float = 0.1) -> None:
        check_disturbance(noise_std, deadzone)
        self.layout = layout
        self.noise_std = float(noise_std)
        self.clip_noise = bool(clip_noise)
        self.deadzone = float(deadzone)
        self.compiled = False  # whether arrays are moved by numba, which takes seconds to compile at the first step
        self._limits = layout.room_size[0] - 1.0, layout.room_size[1] - 1.0
        self._shape, self._tables, self._byte_tables = _push_tables(layout)

    def move(
        self, x: Number, y: Number, action_x: Number, action_y: Number, noise_x: Number, noise_y: Number
    ) -> tuple[Number, Number]:
        """Return the positions after one step, as floats for floats or as (N,) arrays for arrays.

        Actions must lie within [-1, 1]. The noise is N(0, noise_std) on each axis, or 0 for the mean dynamics.
        """
        deadzone, clip_noise, (limit_x, limit_y) = self.deadzone, self.clip_noise, self._limits
        many = isinstance(x, np.ndarray)
        advance = (_compiled().advance_rows if self.compiled else ARRAYS.advance) if many else FLOATS.advance
        new_x = advance(x, action_x, noise_x, limit_x, deadzone, clip_noise)
        new_y = advance(y, action_y, noise_y, limit_y, deadzone, clip_noise)
        if not many:
            return FLOATS.push_out(x, y, new_x, new_y, MAX_PUSHES, self._byte_tables)  # type: ignore[no-any-return]
        push_out: Formula = _compiled().push_out_rows if self.compiled else self._push_out_many
        return push_out(x, y, new_x, new_y, self._tables)  # type: ignore[no-any-return]

    def touches(self, x: Number, y: Number, goal_x: Number, goal_y: Number) -> Any:
        """Return whether the agent's box overlaps the goal's, as bool or (N,) bool."""
        if not isinstance(x, np.ndarray):
            return FLOATS.touches(x, y, goal_x, goal_y)
        return (_compiled().touch_rows if self.compiled else ARRAYS.touches)(x, y, goal_x, goal_y)

    def collides(self, positions: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether boxes centered on (..., 2) positions overlap a wall; far outside the room none does."""
        cell = np.clip(np.rint(positions).astype(np.intp) + PAD, 0, np.array(self._shape) - 1)
        return np.asarray(self._tables[2][cell[..., 0] * self._shape[1] + cell[..., 1]])

    def _push_out_many(
        self, x: FloatArray, y: FloatArray, new_x: FloatArray, new_y: FloatArray, tables: Any
    ) -> tuple[FloatArray, FloatArray]:
        """Push (N,) agents out: all that collide at once, and the last few, in corners, one by one."""
        push_x, push_y, solid, *grid = tables
        index = ARRAYS.index(new_x, new_y, *grid).astype(np.intp)
        hit = solid.take(index).nonzero()[0]
        index = index.take(hit)
        tries = MAX_PUSHES
        while hit.size > 8 and tries > MAX_PUSHES - 8:  # for fewer agents a loop over floats is faster
            tries -= 1
            new_x[hit] = pushed_x = ARRAYS.push(x.take(hit), new_x.take(hit), push_x.take(index))
            new_y[hit] = pushed_y = ARRAYS.push(y.take(hit), new_y.take(hit), push_y.take(index))
            index = ARRAYS.index(pushed_x, pushed_y, *grid).astype(np.intp)
            still = solid.take(index).nonzero()[0]
            hit, index = hit.take(still), index.take(still)
        for agent in hit.tolist():
            places = x.item(agent), y.item(agent), new_x.item(agent), new_y.item(agent)
            new_x[agent], new_y[agent] = FLOATS.push_out(*places, tries, self._byte_tables)
        return new_x, new_y


def check_disturbance(noise_std: float, deadzone: float) -> None:
    """Refuse a noise or a deadzone that makes no sense, in 2D and in 3D."""
    check_number("noise_std", noise_std, 0, 1000, whole=False)
    check_number("deadzone", deadzone, 0, 0.99, whole=False)


@lru_cache(maxsize=16)  # environments on the same map share them
def _push_tables(layout: Layout) -> tuple[tuple[int, int], Any, Any]:
    """Tabulate the pushes for each integer center: the tables' shape, and what `push_out` takes as arrays and as bytes.

    Those are the pushes along x and along y, whether there is one, the index of (0, 0) and the height of the tables.
    """
    width, height = layout.room_size
    push_x = np.zeros((width + 2 * PAD, height + 2 * PAD), dtype=np.uint8)
    push_y = np.zeros_like(push_x)
    for columns, lines, overlap_x, overlap_y in layout.wall_overlaps(PAD):
        wide, high = overlap_x[:, None], overlap_y[None, :]
        vertical = wide > high  # a wide, flat overlap asks for a vertical push
        push_x[columns, lines] = np.maximum(push_x[columns, lines], np.where(vertical, 0, wide + 1))
        push_y[columns, lines] = np.maximum(push_y[columns, lines], np.where(vertical, high + 1, 0))
    tables = push_x.ravel(), push_y.ravel(), (np.maximum(push_x, push_y) > 0).ravel()
    for table in tables:
        table.setflags(write=False)
    grid = PAD * (push_x.shape[1] + 1), push_x.shape[1]
    # Bytes, because indexing them with an int is the fastest lookup in Python.
    return push_x.shape, (*tables, *grid), (*(table.tobytes() for table in tables), *grid)
