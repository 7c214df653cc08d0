"""The dynamics, written twice side by side: `move_one` on numbers for one agent, `move_many` on arrays for thousands.

Both take the same step, and the tests hold them to the same bits:

    velocity = action, where components below the deadzone count as 0, + noise, clipped to [-1, 1]
    position = position + SPEED * velocity, within the room, with three decimals
    while the agent's box overlaps a wall: push it back against its direction of travel, by the largest overlap plus 1

A push depends only on the pixel at the center of the box, so all pushes are tabulated once per map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.limits import cache_by_bytes, check_number
from pidm_nav.world2d.layout import BOX, MARGIN, Layout

SPEED = 20.0  # pixels per step at a velocity of 1
MAX_PUSHES = 100  # an agent that is still inside a wall after so many pushes stays where it was
PAD = MARGIN + 2  # pixels around the room that the tables cover, so that no lookup is out of range
FEW = 16  # agents for which a loop over numbers is faster than arrays

FloatArray = NDArray[np.float64]
ChangeVelocity = Callable[[FloatArray, FloatArray], FloatArray]


class Physics:
    """The dynamics on one map; positions are float64 pixels, and the caller draws the noise.

    Actions must lie within [-1, 1]. `change_velocity(position, velocity)`, if given, returns another velocity to move
    with; it gets and returns arrays (2,) or (N, 2).
    """

    def __init__(self, layout: Layout, noise_std: float = 0.2, clip_noise: bool = True, deadzone: float = 0.1) -> None:
        check_disturbance(noise_std, deadzone)
        self.layout = layout
        self.noise_std = float(noise_std)
        self.clip_noise = bool(clip_noise)
        self.deadzone = float(deadzone)
        self.max_x, self.max_y = layout.room_size[0] - 1.0, layout.room_size[1] - 1.0
        self._tables = _push_tables(layout)

    def __reduce__(self) -> Any:
        """Pickle the arguments alone: a copy finds or makes the tables."""
        return Physics, (self.layout, self.noise_std, self.clip_noise, self.deadzone)

    def move_one(
        self,
        x: float,
        y: float,
        action: Sequence[float],
        noise: Sequence[float],
        change_velocity: ChangeVelocity | None = None,
    ) -> tuple[float, float]:
        """Return the position of one agent after a step."""
        velocity_x = (action[0] if abs(action[0]) >= self.deadzone else 0.0) + noise[0]
        velocity_y = (action[1] if abs(action[1]) >= self.deadzone else 0.0) + noise[1]
        if self.clip_noise:
            velocity_x, velocity_y = _clip(velocity_x, -1.0, 1.0), _clip(velocity_y, -1.0, 1.0)
        if change_velocity is not None:
            velocity_x, velocity_y = change_velocity(np.array([x, y]), np.array([velocity_x, velocity_y])).tolist()
        new_x = round(_clip(x + SPEED * velocity_x, 0.0, self.max_x) * 1000.0) / 1000.0
        new_y = round(_clip(y + SPEED * velocity_y, 0.0, self.max_y) * 1000.0) / 1000.0
        if self._tables.solid_view[self._tables.pixel(new_x, new_y)]:
            return self._push_one((x, y), (new_x, new_y), MAX_PUSHES)
        return new_x, new_y

    def _push_one(self, start: Sequence[float], new: Sequence[float], tries: int) -> tuple[float, float]:
        """Push one agent that came from `start` until it is free; one that never gets free stays there."""
        (x, y), (new_x, new_y) = start, new
        push, solid, height = self._tables.push_view, self._tables.solid_view, self._tables.height
        visited = set()
        for _ in range(tries + 1):
            pixel = (round(new_x) + PAD) * height + round(new_y) + PAD
            if not solid[pixel]:
                return new_x, new_y
            if (new_x, new_y) in visited:
                break  # pushed around in a circle: it never gets free
            visited.add((new_x, new_y))
            new_x -= ((new_x > x) - (new_x < x)) * push[pixel, 0]
            new_y -= ((new_y > y) - (new_y < y)) * push[pixel, 1]
        return x, y

    def move_many(
        self,
        position: FloatArray,
        action: FloatArray,
        noise: FloatArray,
        change_velocity: ChangeVelocity | None = None,
    ) -> FloatArray:
        """Return the positions (N, 2) of many agents after a step; all arguments are (N, 2)."""
        velocity = np.where(np.abs(action) >= self.deadzone, action, 0.0) + noise
        if self.clip_noise:
            velocity.clip(-1.0, 1.0, out=velocity)
        if change_velocity is not None:
            velocity = change_velocity(position, velocity)
        new = position + SPEED * velocity
        # The borders are whole pixels, so clipping before rounding gives the same numbers, and never -0.0.
        new[:, 0].clip(0.0, self.max_x, out=new[:, 0])
        new[:, 1].clip(0.0, self.max_y, out=new[:, 1])
        new.round(3, out=new)  # as round(1000 * x) / 1000, in NumPy as in move_one
        self._push_many(position, new)
        return new

    def _push_many(self, position: FloatArray, new: FloatArray) -> None:
        """Push (N, 2) agents that came from `position` out of the walls, in place: all at once, the last few singly."""
        pushes, solid, pixel = self._tables.pushes, self._tables.solid, self._tables.pixels(new)
        inside = solid.take(pixel).nonzero()[0]
        pixel = pixel.take(inside)
        tries = MAX_PUSHES
        while len(inside) > FEW and tries:
            tries -= 1
            pushed = new.take(inside, axis=0)
            pushed -= np.sign(pushed - position.take(inside, axis=0)) * pushes.take(pixel, axis=0)
            new[inside] = pushed
            pixel = self._tables.pixels(pushed)
            still = solid.take(pixel).nonzero()[0]
            inside, pixel = inside.take(still), pixel.take(still)
        if len(inside):
            pairs = zip(position[inside].tolist(), new[inside].tolist(), strict=True)
            new[inside] = [self._push_one(start, moved, tries) for start, moved in pairs]

    def collides(self, positions: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether boxes centered on (..., 2) positions overlap a wall; far outside the room none does."""
        room = np.array(self.layout.room_size) + PAD - 1
        solid: NDArray[np.bool_] = self._tables.solid[self._tables.pixels(np.clip(positions, -PAD, room))]
        return solid


def touches_one(x: float, y: float, goal: Sequence[float]) -> bool:
    """Return whether the box of one agent overlaps its goal's."""
    return abs(round(x) - goal[0]) < BOX and abs(round(y) - goal[1]) < BOX


def touches_many(position: FloatArray, goal: NDArray[Any]) -> NDArray[np.bool_]:
    """Return (N,) whether the boxes of agents at (N, 2) overlap their goals' at (N, 2)."""
    near: NDArray[np.bool_] = np.abs(np.rint(position) - goal) < BOX
    touched: NDArray[np.bool_] = near[:, 0] & near[:, 1]
    return touched


def check_disturbance(noise_std: float, deadzone: float) -> None:
    """Refuse a noise or a deadzone that makes no sense, in 2D and in 3D."""
    check_number("noise_std", noise_std, 0, 1000, integer=False)
    check_number("deadzone", deadzone, 0, 0.99, integer=False)


def _clip(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value


class PushTables(NamedTuple):
    """What each center pixel of an agent's box asks for."""

    pushes: NDArray[np.uint8]  # (pixels, 2) pushes along x and y
    solid: NDArray[np.bool_]  # (pixels,) whether there is one
    push_view: memoryview  # the same two, which are faster to look up with a number
    solid_view: memoryview
    height: int  # pixels of a column, with the padding

    def pixel(self, x: float, y: float) -> int:
        """Return the index of the pixel at the center of a box."""
        return (round(x) + PAD) * self.height + round(y) + PAD

    def pixels(self, positions: NDArray[Any]) -> NDArray[np.intp]:
        """Return the same for boxes at (..., 2)."""
        centers = np.rint(positions)
        pixels = centers[..., 0] * self.height
        pixels += centers[..., 1]
        pixels += PAD * (self.height + 1)
        return np.asarray(pixels, np.intp)


@cache_by_bytes(lambda tables: tables.pushes.nbytes + tables.solid.nbytes)  # environments on the same map share them
def _push_tables(layout: Layout) -> PushTables:
    """Tabulate the pushes for each center pixel."""
    width, height = layout.room_size
    pushes = np.zeros((width + 2 * PAD, height + 2 * PAD, 2), dtype=np.uint8)
    for columns, lines, overlap_x, overlap_y in layout.wall_overlaps(PAD):
        wide, high = overlap_x[:, None], overlap_y[None, :]
        vertical = wide > high  # a wide, flat overlap asks for a vertical push
        asked = np.stack([np.where(vertical, 0, wide + 1), np.where(vertical, high + 1, 0)], axis=-1)
        pushes[columns, lines] = np.maximum(pushes[columns, lines], asked)
    pairs, solid = pushes.reshape(-1, 2), np.asarray(pushes.any(axis=-1)).reshape(-1)
    pairs.flags.writeable = solid.flags.writeable = False
    return PushTables(pairs, solid, pairs.data, solid.data, height + 2 * PAD)
