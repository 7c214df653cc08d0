"""Sticks, buttons and keys: SDL game controllers, other joysticks and the keyboard, plugged in at any time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pidm_nav.demos.recorder.controls import ACTIONS, AXES, BUTTONS, COMMANDS, RAW_BUTTONS, Action, Command, Controls

if TYPE_CHECKING:
    import pygame
    from pygame._sdl2.controller import Controller

Stick = tuple[float, float]

KEYBOARD = "keyboard"
DEFLECTED = 0.3
"""From this deflection on, a stick is being used; below, it may only be worn out."""
PRESS, RELEASE = 8.0, 16.0
"""Speed of a stick made of keys, per second: a held key deflects it fully within an eighth of a second."""
SLOW = 0.5
"""How far the keys deflect it while the key for `slow` is held."""
DIRECTIONS: tuple[tuple[Action, Action], ...] = (
    ("left", "right"),
    ("up", "down"),
    ("turn_left", "turn_right"),
    ("look_up", "look_down"),
)
"""The actions that deflect x, y, turn and look to their negative and to their positive side."""


@dataclass(frozen=True)
class Reading:
    """What the person does at one moment."""

    stick: Stick = (0.0, 0.0)  # x to the right, y down
    commands: tuple[Command, ...] = ()
    device: str = KEYBOARD
    unplugged: str | None = None  # the name of the device in use, if it has just been unplugged
    camera: Stick = (0.0, 0.0)  # the right stick: turn to the right, look down

    def drive(self, source: str) -> float:
        """Return the value of an axis, such as `x` or `-look`, in [-1, 1]."""
        values = dict(zip(("x", "y", "turn", "look"), (*self.stick, *self.camera), strict=True))
        value = min(max(values[source.removeprefix("-")], -1.0), 1.0)
        return -value if source.startswith("-") else value


class Ramp:
    """Keys or buttons as two sticks, which move at a finite speed and stay within the unit circle."""

    def __init__(self) -> None:
        self.held: set[Action] = set()
        self.position = (0.0, 0.0, 0.0, 0.0)  # x, y, turn, look
        self._new: set[Action] = set()
        self._tapped: set[Action] = set()

    def press(self, action: Action) -> None:
        """Hold a direction."""
        self.held.add(action)
        self._new.add(action)
        self._tapped.discard(action)

    def release(self, action: Action) -> None:
        """Let a direction go; one that was only just pressed still counts for one frame."""
        if action in self._new:
            self._tapped.add(action)
        else:
            self.held.discard(action)

    def move(self, seconds: float) -> tuple[Stick, Stick]:
        """Return where both sticks are after this time."""
        target = [float(positive in self.held) - float(negative in self.held) for negative, positive in DIRECTIONS]
        slow = SLOW if "slow" in self.held else 1.0
        reach = [slow * (0.5**0.5 if a and b else 1.0) for a, b in (target[:2], target[2:]) for _ in range(2)]
        self.held -= self._tapped
        self._new, self._tapped = set(), set()
        x, y, turn, look = (
            _approach(value, towards * most, seconds)
            for value, towards, most in zip(self.position, target, reach, strict=True)
        )
        self.position = (x, y, turn, look)
        return (x, y), (turn, look)


def _approach(value: float, target: float, seconds: float) -> float:
    towards_center = abs(target) < abs(value) or target * value < 0
    step = (RELEASE if towards_center else PRESS) * seconds
    return min(value + step, target) if target > value else max(value - step, target)


class Keyboard:
    """The keyboard: directions and commands from keys."""

    name = KEYBOARD

    def __init__(self, controls: Controls) -> None:
        import pygame

        self._ramp = Ramp()
        self._actions: dict[int, Action] = {}
        for action in ACTIONS:
            for key in controls.keys_for(action):
                try:
                    self._actions[pygame.key.key_code(key)] = action
                except ValueError:
                    raise ValueError(
                        f"the mapping names a key '{key}' for {action}, which SDL does not know: "
                        "write it like 'a', 'left' or 'left shift'"
                    ) from None

    def feed(self, event: pygame.event.Event) -> Action | None:
        """Take in an event, and return the action of the key it presses."""
        import pygame

        if event.type == pygame.WINDOWFOCUSLOST:
            self._ramp.held.clear()  # the releases will go to another window
        pressed = event.type == pygame.KEYDOWN
        action = self._actions.get(event.key) if pressed or event.type == pygame.KEYUP else None
        if action is not None:
            (self._ramp.press if pressed else self._ramp.release)(action)
        return action if pressed else None

    def sticks(self, seconds: float) -> tuple[Stick, Stick]:
        """Return the two sticks that the keys stand for."""
        return self._ramp.move(seconds)


class Gamepad:
    """One SDL device: a game controller where SDL knows its layout, else a joystick with numbered parts."""

    def __init__(self, index: int, controls: Controls) -> None:
        import pygame
        from pygame._sdl2 import controller

        self._controller: Controller | None = None
        if controller.is_controller(index):
            self._controller = controller.Controller(index)
            self._joystick = self._controller.as_joystick()
        else:
            self._joystick = pygame.joystick.Joystick(index)
        self.name = str(self._controller.name if self._controller is not None else self._joystick.get_name())
        self.guid = str(self._joystick.get_guid())
        self.id = int(self._joystick.get_instance_id())
        self._stick = controls.stick
        self._ramp = Ramp()
        self._down: set[str | int] = set()
        self._tapped: set[str | int] = set()
        self._actions: dict[str | int, Action] = {}
        self._wires: dict[str, str] = self._controller.get_mapping() if self._controller is not None else {}
        for action in ACTIONS:
            for button in controls.buttons_for(action):
                if isinstance(button, str) and self._controller is None:
                    button = RAW_BUTTONS.get(button, self._joystick.get_numbuttons())
                if isinstance(button, str) or button < self._joystick.get_numbuttons():
                    self._actions.setdefault(button, action)

    @property
    def kind(self) -> str:
        """What SDL takes it for."""
        return "game controller" if self._controller is not None else "joystick"

    def feed(self, event: pygame.event.Event) -> None:
        """Take in an event: a button that is let go before the next `poll` still counts."""
        import pygame

        if event.type == pygame.JOYBUTTONDOWN and event.instance_id == self.id:
            wired = {button for button in self._actions if self._wires.get(str(button)) == f"b{event.button}"}
            self._tapped |= wired | ({event.button} & self._actions.keys())

    def poll(self) -> list[Action]:
        """Return the actions of the buttons pressed since the last call.

        The state of the buttons counts, and events only for those let go already: SDL sends no more events for a
        controller's named buttons after some other part of the program has stopped and started it.
        """
        down = {button for button in self._actions if self._is_down(button)}
        pressed = [button for button in self._actions if button in (down | self._tapped) - self._down]
        for button in pressed:
            self._ramp.press(self._actions[button])
        for button in (self._down | set(pressed)) - down:
            self._ramp.release(self._actions[button])
        self._down, self._tapped = down, set()
        return [self._actions[button] for button in pressed]

    def sticks(self, seconds: float) -> tuple[Stick, Stick]:
        """Return both sticks, or what buttons such as the direction pad do in their place where that is further."""
        x, y, turn, look = (
            self._axis(getattr(self._stick, name)) * (-1 if getattr(self._stick, f"invert_{name}") else 1)
            for name in ("x", "y", "turn", "look")
        )
        stick, camera = self._ramp.move(seconds)
        return max((x, y), stick, key=_deflection), max((turn, look), camera, key=_deflection)

    def _is_down(self, button: str | int) -> bool:
        if isinstance(button, str):
            assert self._controller is not None
            return bool(self._controller.get_button(BUTTONS[button]))
        return bool(self._joystick.get_button(button))

    def _axis(self, axis: str | int) -> float:
        """Return an axis in [-1, 1]; one that the device does not have is 0."""
        if isinstance(axis, str) and self._controller is not None:
            return max(self._controller.get_axis(AXES[axis]) / 32767, -1.0)
        number = AXES[axis] if isinstance(axis, str) else axis
        if number >= self._joystick.get_numaxes():
            return 0.0
        return float(min(max(self._joystick.get_axis(number), -1.0), 1.0))


class Inputs:
    """All devices: one of them moves the agent, and the commands of every device work.

    Args:
        controls: what sticks, buttons and keys mean.
        device: `keyboard`, a number or part of a name as `list_devices` shows them; None takes a gamepad if there
            is one, and between episodes whichever device is being used.
    """

    def __init__(self, controls: Controls, device: str | None = None) -> None:
        self.controls = controls
        self._wanted = device
        self._pads: dict[int, Gamepad] = {}
        self._keyboard = Keyboard(controls)
        self.active: Gamepad | Keyboard = self._keyboard
        for index in range(_start_sdl()):
            self._plug_in(index, may_switch=False)
        self.active = self._choose()

    def read(self, events: Iterable[pygame.event.Event], seconds: float, may_switch: bool = True) -> Reading:
        """Return what the person does.

        Args:
            events: what has happened since the last reading.
            seconds: the time since the last reading.
            may_switch: whether another device that is used becomes the active one.
        """
        import pygame

        actions: list[str | None] = []
        unplugged = None
        for event in events:
            if event.type == pygame.QUIT:
                actions.append("quit")
            elif event.type == pygame.JOYDEVICEADDED:
                self._plug_in(event.device_index, may_switch)
            elif event.type == pygame.JOYDEVICEREMOVED:
                unplugged = self._unplug(event.instance_id) or unplugged
            actions.append(self._keyboard.feed(event))
            for pad in self._pads.values():
                pad.feed(event)
        for pad in self._pads.values():
            actions += pad.poll()
        devices: list[Gamepad | Keyboard] = [self._keyboard, *self._pads.values()]
        nothing = ((0.0, 0.0), (0.0, 0.0))
        sticks = {device: device.sticks(seconds) for device in devices}
        used = [device for device, both in sticks.items() if max(map(_deflection, both)) > DEFLECTED]
        if may_switch and self._wanted is None and used and self.active not in used:
            self.active = used[0]
        stick, camera = sticks.get(self.active, nothing)
        commands = tuple(command for action in actions for command in COMMANDS if command == action)
        return Reading(stick, commands, self.active.name, unplugged, camera)

    def _choose(self) -> Gamepad | Keyboard:
        pads = list(self._pads.values())
        if self._wanted is None:
            return pads[0] if pads else self._keyboard
        wanted = self._wanted.lower()
        if wanted == KEYBOARD:
            return self._keyboard
        for number, pad in enumerate(pads, start=1):
            if wanted == str(number) or (not wanted.isdigit() and wanted in (pad.name + pad.guid).lower()):
                return pad
        found = ", ".join([f"'{pad.name}'" for pad in pads] + [KEYBOARD])
        raise ValueError(f"there is no device '{self._wanted}': choose one of {found}")

    def _plug_in(self, index: int, may_switch: bool) -> None:
        """Open a device, and take it up where any device may be, or where it is the chosen one that comes back."""
        import pygame

        lost = self.active is not self._keyboard and self.active not in self._pads.values()
        with suppress(pygame.error):  # raised where it is gone again
            pad = Gamepad(index, self.controls)
            if pad.id not in self._pads:
                self._pads[pad.id] = pad
                if (lost and pad.name == self.active.name) or (may_switch and self._wanted is None):
                    self.active = pad

    def _unplug(self, instance_id: int) -> str | None:
        """Forget a device, and return its name if it was the one in use."""
        pad = self._pads.pop(instance_id, None)
        if pad is None:
            return None
        if pad is not self.active:
            return None
        if self._wanted is None:
            self.active = self._choose()
        return pad.name


def _deflection(stick: Sequence[float]) -> float:
    return max(map(abs, stick))


def _start_sdl() -> int:
    """Start the parts of SDL that read gamepads, and return how many are plugged in."""
    import pygame
    from pygame._sdl2 import controller

    pygame.joystick.init()
    controller.init()
    return pygame.joystick.get_count()


def list_devices(controls: Controls) -> list[Gamepad]:
    """Return the gamepads that are plugged in, in the order in which `--device` counts them."""
    return [Gamepad(index, controls) for index in range(_start_sdl())]
