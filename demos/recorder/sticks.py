"""Keys and buttons as sticks that move like those of a gamepad: one definition for the window and the studio.

A gamepad's own sticks count as they are: what little deflection an environment ignores is its `deadzone`.
"""

from __future__ import annotations

import math

from pidm_nav.demos.recorder.controls import Action

PRESS, RELEASE = 8.0, 16.0
"""Speed of a stick made of keys, per second: a held key deflects it fully within an eighth of a second."""
SLOW = 0.5  # how far the keys deflect it while the key for `slow` is held
NEGATIVE: tuple[Action, ...] = ("left", "up", "turn_left", "look_up")
POSITIVE: tuple[Action, ...] = ("right", "down", "turn_right", "look_down")
"""The actions that deflect x, y, turn and look to either side."""
Sticks = tuple[tuple[float, float], tuple[float, float]]  # (x, y), (turn, look)


class Device:
    """Keys or buttons as two sticks, which move at a finite speed and stay within the unit circle."""

    def __init__(self) -> None:
        self.held: set[Action] = set()  # whose keys or buttons are down
        self.pressed: list[Action] = []  # since the last `move`
        self.position = (0.0, 0.0, 0.0, 0.0)  # x, y, turn, look

    def move(self, seconds: float) -> Sticks:
        """Return where both sticks are after this time; what was let go again at once still counts."""
        held = self.held.union(self.pressed)
        self.pressed = []
        target = [float(right in held) - float(left in held) for left, right in zip(NEGATIVE, POSITIVE, strict=True)]
        slow = SLOW if "slow" in held else 1.0
        reach = [slow * (0.5**0.5 if a and b else 1.0) for a, b in (target[:2], target[2:]) for _ in range(2)]
        x, y, turn, look = (
            _approach(value, towards * most, seconds)
            for value, towards, most in zip(self.position, target, reach, strict=True)
        )
        (x, y), (turn, look) = sticks = _within_circle(x, y), _within_circle(turn, look)
        self.position = (x, y, turn, look)
        return sticks


def _within_circle(x: float, y: float) -> tuple[float, float]:
    """Hold the axis that is deflected further back where it would be ahead of the other one's return."""
    if x * x + y * y <= 1:
        return x, y
    if abs(x) < abs(y):
        return _within_circle(y, x)[::-1]
    return math.copysign((1 - y * y) ** 0.5, x), y


def _approach(value: float, target: float, seconds: float) -> float:
    towards_center = abs(target) < abs(value) or target * value < 0
    step = (RELEASE if towards_center else PRESS) * seconds
    return min(max(target, value - step), value + step)


def further(sticks: Sticks, keys: Sticks) -> Sticks:
    """Return each stick of a gamepad, or what keys or buttons do in its place where that is further."""
    (stick, camera), (key_stick, key_camera) = sticks, keys
    return max(stick, key_stick, key=_length), max(camera, key_camera, key=_length)


def deflection(sticks: Sticks) -> float:
    """Return how far the stick that is deflected further is, along its longer axis."""
    return max(map(_length, sticks))


def _length(stick: tuple[float, float]) -> float:
    return max(map(abs, stick))
