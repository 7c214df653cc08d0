"""The keyboard as a stick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pidm_nav.demos.recorder.mapping import CAMERA, Mapping

if TYPE_CHECKING:
    import pygame

Stick = tuple[float, float]

KEYBOARD = "keyboard"
PRESS = 8.0  # stick per second: a held key deflects fully in an eighth of a second
RELEASE = 16.0
SLOW = 0.5


class Ramp:
    """Held directions as a stick: it moves at a finite speed and stays within the unit circle.

    Args:
        directions: what left, right, up and down are called.
    """

    def __init__(self, directions: tuple[str, str, str, str] = ("left", "right", "up", "down")) -> None:
        self._left, self._right, self._up, self._down = directions
        self.held: set[str] = set()
        self.position: Stick = (0.0, 0.0)
        self._new: set[str] = set()
        self._tapped: set[str] = set()

    def press(self, action: str) -> None:
        """Hold a direction."""
        self.held.add(action)
        self._new.add(action)
        self._tapped.discard(action)

    def release(self, action: str) -> None:
        """Let it go; after it has counted for a frame, if it was only just pressed."""
        if action in self._new:
            self._tapped.add(action)
        else:
            self.held.discard(action)

    def release_all(self) -> None:
        """Let everything go."""
        self.held.clear()

    def move(self, seconds: float) -> Stick:
        """Where the stick is, so much later."""
        held = set(self.held)
        self.held -= self._tapped
        self._new, self._tapped = set(), set()
        x = float(self._right in held) - float(self._left in held)
        y = float(self._down in held) - float(self._up in held)
        reach = (0.5**0.5 if x and y else 1.0) * (SLOW if "slow" in held else 1.0)
        self.position = (
            _approach(self.position[0], x * reach, seconds),
            _approach(self.position[1], y * reach, seconds),
        )
        return self.position


def _approach(value: float, target: float, seconds: float) -> float:
    towards_centre = abs(target) < abs(value) or target * value < 0
    step = (RELEASE if towards_centre else PRESS) * seconds
    return min(value + step, target) if target > value else max(value - step, target)


class Keyboard:
    """Directions and commands from keys."""

    name = KEYBOARD

    def __init__(self, mapping: Mapping) -> None:
        import pygame

        self._ramp, self._camera = Ramp(), Ramp(CAMERA)
        self._actions: dict[int, str] = {}
        for action, keys in mapping.keys.items():
            for key in keys:
                try:
                    self._actions[pygame.key.key_code(key)] = action
                except ValueError:
                    raise ValueError(
                        f"the mapping names a key '{key}' for {action}, which SDL does not know: "
                        "write it like 'a', 'left' or 'left shift'"
                    ) from None

    def feed(self, event: pygame.event.Event) -> str | None:
        """Take in an event; the action of the key it presses."""
        import pygame

        if event.type == pygame.WINDOWFOCUSLOST:
            self._ramp.release_all()
            self._camera.release_all()  # the releases go to another window
        if event.type not in (pygame.KEYDOWN, pygame.KEYUP):
            return None
        action = self._actions.get(event.key)
        if action is not None and event.type == pygame.KEYUP:
            self._ramp.release(action)
            self._camera.release(action)
            return None
        if action is not None:
            self._ramp.press(action)
            self._camera.press(action)
        return action

    def stick(self, seconds: float) -> Stick:
        """The stick the keys stand for."""
        return self._ramp.move(seconds)

    def camera(self, seconds: float) -> Stick:
        """The right stick the camera's keys stand for."""
        return self._camera.move(seconds)
