"""The dynamics, written once: for one agent as floats and for N agents as (N,) arrays.

One step of one axis, and then the walls:

    action -> 0 if |action| < deadzone -> + noise -> clip to [-1, 1] -> x SPEED -> round to 3 decimals -> clip to the room
    while the box overlaps a wall: push back against the direction travelled, by the largest overlap plus 1

The push depends only on the integer centre of the box, so it is tabulated once per layout: a look-up says whether an
agent collides, and only the few that do are pushed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pidm_nav.layout import BOX, MARGIN, Layout

SPEED = 20.0
"""Pixels per step at an action of 1."""
MAX_PUSHES = 100
"""Tries to leave the walls before the agent stays where it was."""

FloatArray = NDArray[np.float64]
Number = TypeVar("Number", float, FloatArray)


def _clip_float(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value


def _clip_array(value: FloatArray, low: float, high: float) -> FloatArray:
    return np.minimum(np.maximum(value, low), high)  # half the overhead of np.clip


class Physics:
    """The dynamics in one layout. Positions are float64 pixels; noise is drawn by the caller and handed in."""

    def __init__(
        self, layout: Layout, noise_std: float = 0.2, clip_noise: bool = True, deadzone: float = 0.1
    ) -> None:
        if not (np.isfinite(noise_std) and noise_std >= 0):
            raise ValueError(f"noise_std is {noise_std}: it must be 0 or a positive number")
        if not 0 <= deadzone < 1:
            raise ValueError(f"deadzone is {deadzone}: it must be at least 0 and below 1")
        self.layout = layout
        self.noise_std = float(noise_std)
        self.clip_noise = bool(clip_noise)
        self.deadzone = float(deadzone)
        # Two pixels more than an agent can leave the room by, so that no look-up is out of range.
        self._pad = MARGIN + 2
        self._push_x, self._push_y = _push_tables(layout, self._pad)
        self._solid = ((self._push_x > 0) | (self._push_y > 0)).ravel()
        self._solid_bytes = self._solid.tobytes()  # indexing bytes by an int is the fastest look-up of one agent
        self._stride = self._push_x.shape[1]

    def move(
        self, x: Number, y: Number, action_x: Number, action_y: Number, noise_x: Number, noise_y: Number
    ) -> tuple[Number, Number]:
        """Where the agents are after one step: floats in and out, or (N,) arrays in and out.

        Actions must lie within [-1, 1]. The noise is N(0, noise_std) for each axis, or 0 for the mean dynamics.
        """
        clip: Callable[..., Any]
        rint: Callable[..., Any]
        if isinstance(x, np.ndarray):
            clip, rint = _clip_array, np.rint
        else:
            clip, rint = _clip_float, round
        width, height = self.layout.room_size
        new_x = self._advance(x, action_x, noise_x, width - 1.0, clip, rint)
        new_y = self._advance(y, action_y, noise_y, height - 1.0, clip, rint)
        index = (rint(new_x) + self._pad) * self._stride + (rint(new_y) + self._pad)
        if isinstance(index, int):
            if self._solid_bytes[index]:
                pushed = self._push_out(*(np.array([value]) for value in (x, y, new_x, new_y)))
                new_x, new_y = float(pushed[0][0]), float(pushed[1][0])
        else:
            hit = np.flatnonzero(self._solid.take(index.astype(np.intp)))
            if hit.size:
                new_x[hit], new_y[hit] = self._push_out(x[hit], y[hit], new_x[hit], new_y[hit])
        return new_x, new_y

    def touches(self, x: Number, y: Number, goal_x: Number, goal_y: Number) -> Any:
        """Whether the agent's box overlaps the goal's: bool, or (N,) bool."""
        if isinstance(x, np.ndarray):
            return (np.abs(np.rint(x) - goal_x) < BOX) & (np.abs(np.rint(y) - goal_y) < BOX)
        return abs(round(x) - goal_x) < BOX and abs(round(y) - goal_y) < BOX

    def collides(self, positions: NDArray[Any]) -> NDArray[np.bool_]:
        """(...,) whether boxes centred on (..., 2) positions overlap a wall; far outside the room nothing does."""
        limit = np.array(self._push_x.shape) - 1
        cell = np.clip(np.rint(positions).astype(np.intp) + self._pad, 0, limit)
        overlapping: NDArray[np.bool_] = self._solid[cell[..., 0] * self._stride + cell[..., 1]]
        return overlapping

    def _advance(
        self,
        position: Any,
        action: Any,
        noise: Any,
        limit: float,
        clip: Callable[..., Any],
        rint: Callable[..., Any],
    ) -> Any:
        """One axis of the free movement."""
        velocity = action * (abs(action) >= self.deadzone) + noise
        if self.clip_noise:
            velocity = clip(velocity, -1.0, 1.0)
        return clip(rint((position + SPEED * velocity) * 1000.0) / 1000.0, 0.0, limit)

    def _push_out(
        self, x: FloatArray, y: FloatArray, new_x: FloatArray, new_y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Push (M,) colliding agents back against the way they came from (x, y), until they are free."""
        new_x, new_y = new_x.copy(), new_y.copy()
        stuck = np.arange(len(x))
        for _ in range(MAX_PUSHES):
            column = np.rint(new_x[stuck]).astype(np.intp) + self._pad
            line = np.rint(new_y[stuck]).astype(np.intp) + self._pad
            push_x, push_y = self._push_x[column, line], self._push_y[column, line]
            still = (push_x > 0) | (push_y > 0)
            if not still.any():
                return new_x, new_y
            stuck, push_x, push_y = stuck[still], push_x[still], push_y[still]
            new_x[stuck] -= np.sign(new_x[stuck] - x[stuck]) * push_x
            new_y[stuck] -= np.sign(new_y[stuck] - y[stuck]) * push_y
        still = self.collides(np.stack([new_x[stuck], new_y[stuck]], axis=-1))
        new_x[stuck[still]], new_y[stuck[still]] = x[stuck[still]], y[stuck[still]]
        return new_x, new_y


def _push_tables(layout: Layout, pad: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """(width + 2 pad, height + 2 pad) pushes along x and y for each integer centre; 0 where there is none."""
    width, height = layout.room_size
    push_x = np.zeros((width + 2 * pad, height + 2 * pad), dtype=np.int16)
    push_y = np.zeros_like(push_x)
    for columns, lines, overlap_x, overlap_y in layout.wall_overlaps(pad):
        wide, high = overlap_x[:, None], overlap_y[None, :]
        vertical = wide > high  # a wide, flat overlap asks for a vertical push
        np.maximum(push_y[columns, lines], np.where(vertical, high + 1, 0), out=push_y[columns, lines])
        np.maximum(push_x[columns, lines], np.where(vertical, 0, wide + 1), out=push_x[columns, lines])
    return push_x, push_y
