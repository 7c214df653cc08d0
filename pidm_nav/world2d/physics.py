"""The dynamics, written once: for one agent as floats and for N agents as (N,) arrays.

Each step moves both axes and then leaves the walls:

    action -> 0 if |action| < deadzone -> + noise -> clip to [-1, 1] -> x SPEED -> 3 decimals -> clip to the room
    while the box overlaps a wall: push back against the direction of travel, by the largest overlap plus 1

The push depends only on the integer center of the box, so it is tabulated once per layout: a lookup says whether an
agent collides, and only the few that do are pushed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pidm_nav.limits import check_number
from pidm_nav.world2d.layout import BOX, MARGIN, Layout

SPEED = 20.0  # pixels per step at an action of 1
MAX_PUSHES = 100  # after so many pushes, an agent that is still inside a wall goes back to where it was
PAD = MARGIN + 2  # pixels around the room that the tables cover, so that no lookup is out of range

FloatArray = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)


class _Floats:
    """The operations that the dynamics need, for one agent: plain Python, without NumPy's cost per call."""

    rint = round

    @staticmethod
    def clip(value: float, low: float, high: float) -> float:
        return low if value < low else high if value > high else value

    @staticmethod
    def sign(value: float) -> int:
        return (value > 0) - (value < 0)


class _Arrays:
    """The same operations for (N,) agents."""

    rint = np.rint
    sign = np.sign

    @staticmethod
    def clip(value: FloatArray, low: float, high: float) -> FloatArray:
        return value.clip(low, high, out=value)  # in place; half the time of np.minimum and np.maximum


class Physics:
    """The dynamics in one layout; positions are float64 pixels, and the caller draws the noise."""

    def __init__(self, layout: Layout, noise_std: float = 0.2, clip_noise: bool = True, deadzone: float = 0.1) -> None:
        check_disturbance(noise_std, deadzone)
        self.layout = layout
        self.noise_std = float(noise_std)
        self.clip_noise = bool(clip_noise)
        self.deadzone = float(deadzone)
        self._limits = layout.room_size[0] - 1.0, layout.room_size[1] - 1.0
        push_x, push_y = _push_tables(layout)
        self._shape = push_x.shape
        self._origin = PAD * (self._shape[1] + 1)  # the index of (0, 0) in the tables
        self._tables = push_x.ravel(), push_y.ravel(), (np.maximum(push_x, push_y) > 0).ravel()
        # Bytes, because indexing them with an int is the fastest lookup in Python.
        self._byte_tables = tuple(table.tobytes() for table in self._tables)

    def move(
        self, x: Number, y: Number, action_x: Number, action_y: Number, noise_x: Number, noise_y: Number
    ) -> tuple[Number, Number]:
        """Return the positions after one step, as floats for floats or as (N,) arrays for arrays.

        Actions must lie within [-1, 1]. The noise is N(0, noise_std) on each axis, or 0 for the mean dynamics.
        """
        math, push_out = (_Arrays, self._push_out_many) if isinstance(x, np.ndarray) else (_Floats, self._push_out)
        new_x = self._advance(math, x, action_x, noise_x, self._limits[0])
        new_y = self._advance(math, y, action_y, noise_y, self._limits[1])
        return push_out(x, y, new_x, new_y)

    def touches(self, x: Number, y: Number, goal_x: Number, goal_y: Number) -> Any:
        """Return whether the agent's box overlaps the goal's, as bool or (N,) bool."""
        rint: Any = np.rint if isinstance(x, np.ndarray) else round
        away_x, away_y = rint(x), rint(y)  # new arrays, so what follows can be in place
        away_x -= goal_x
        away_y -= goal_y
        return (abs(away_x) < BOX) & (abs(away_y) < BOX)

    def collides(self, positions: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether boxes centered on (..., 2) positions overlap a wall; far outside the room none does."""
        cell = np.clip(np.rint(positions).astype(np.intp) + PAD, 0, np.array(self._shape) - 1)
        return np.asarray(self._tables[2][cell[..., 0] * self._shape[1] + cell[..., 1]])

    def _advance(self, math: Any, position: Any, action: Any, noise: Any, limit: float) -> Any:
        """Move along one axis as if there were no walls."""
        moved = action * (abs(action) >= self.deadzone)  # a new array, so what follows can be in place
        moved += noise
        if self.clip_noise:
            moved = math.clip(moved, -1.0, 1.0)
        moved *= SPEED
        moved += position
        moved *= 1000.0
        moved = math.rint(moved)
        moved /= 1000.0
        return math.clip(moved, 0.0, limit)

    def _index(self, math: Any, x: Any, y: Any) -> Any:
        """Return the index of the box centered on (x, y) in the tables, as a whole number."""
        index = math.rint(x)
        index *= self._shape[1]
        index += math.rint(y)
        index += self._origin
        return index

    def _push_out(self, x: float, y: float, new_x: float, new_y: float, tries: int = MAX_PUSHES) -> tuple[float, float]:
        """Push one agent until it is free; if it never gets free, it stays at (x, y)."""
        push_x, push_y, solid = self._byte_tables
        seen_x, seen_y = x, y
        for attempt in range(tries):
            index = self._index(_Floats, new_x, new_y)
            if not solid[index]:
                return new_x, new_y
            # Between walls an agent may be pushed around in a circle. A place that is visited again and was
            # remembered at attempt 1, 2, 4, 8 ... reveals any circle (Brent's algorithm).
            if attempt and new_x == seen_x and new_y == seen_y:
                break
            if attempt & (attempt - 1) == 0:
                seen_x, seen_y = new_x, new_y
            new_x = _push(_Floats, x, new_x, push_x[index])
            new_y = _push(_Floats, y, new_y, push_y[index])
        return (x, y) if solid[self._index(_Floats, new_x, new_y)] else (new_x, new_y)

    def _push_out_many(
        self, x: FloatArray, y: FloatArray, new_x: FloatArray, new_y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Do the same for (N,) agents: all that collide at once, and the last few, in corners, one by one."""
        push_x, push_y, solid = self._tables
        index = self._index(_Arrays, new_x, new_y).astype(np.intp)
        hit = np.flatnonzero(solid.take(index))
        index = index.take(hit)
        tries = MAX_PUSHES
        while hit.size > 8 and tries > MAX_PUSHES - 8:  # for fewer agents a loop over floats is faster
            tries -= 1
            new_x[hit] = pushed_x = _push(_Arrays, x.take(hit), new_x.take(hit), push_x.take(index))
            new_y[hit] = pushed_y = _push(_Arrays, y.take(hit), new_y.take(hit), push_y.take(index))
            index = self._index(_Arrays, pushed_x, pushed_y).astype(np.intp)
            still = np.flatnonzero(solid.take(index))
            hit, index = hit.take(still), index.take(still)
        for agent in hit.tolist():
            places = x.item(agent), y.item(agent), new_x.item(agent), new_y.item(agent)
            new_x[agent], new_y[agent] = self._push_out(*places, tries)
        return new_x, new_y


def _push(math: Any, old: Any, new: Any, distance: Any) -> Any:
    """Push back along one axis, against the way that the agent came from `old`."""
    return new - math.sign(new - old) * distance


def check_disturbance(noise_std: float, deadzone: float) -> None:
    """Refuse a noise or a deadzone that makes no sense, in 2D and in 3D."""
    check_number("noise_std", noise_std, 0, 1000, whole=False)
    check_number("deadzone", deadzone, 0, 0.99, whole=False)


def _push_tables(layout: Layout) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the pushes along x and y for each integer center, (width + 2 PAD, height + 2 PAD); 0 means no push."""
    width, height = layout.room_size
    push_x = np.zeros((width + 2 * PAD, height + 2 * PAD), dtype=np.uint8)
    push_y = np.zeros_like(push_x)
    for columns, lines, overlap_x, overlap_y in layout.wall_overlaps(PAD):
        wide, high = overlap_x[:, None], overlap_y[None, :]
        vertical = wide > high  # a wide, flat overlap asks for a vertical push
        push_x[columns, lines] = np.maximum(push_x[columns, lines], np.where(vertical, 0, wide + 1))
        push_y[columns, lines] = np.maximum(push_y[columns, lines], np.where(vertical, high + 1, 0))
    return push_x, push_y
