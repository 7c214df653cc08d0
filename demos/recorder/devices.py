"""Sticks, buttons and keys: SDL game controllers, other joysticks and the keyboard, plugged in at any time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pygame
from pygame._sdl2 import controller

from pidm_nav.demos.recorder.controls import AXES, BUTTONS, COMMANDS, DEFLECTED, KEYBOARD, Action, Controls, Reading
from pidm_nav.demos.recorder.sticks import Device, Sticks, deflection, further

RAW_BUTTONS = {"a": 0, "b": 1, "x": 2, "y": 3, "leftshoulder": 4, "rightshoulder": 5, "back": 6, "start": 7}
"""Where joysticks that SDL has no layout for most often have these buttons."""


class Keyboard(Device):
    """The keys of the window, which may also be closed."""

    name = KEYBOARD

    def __init__(self, controls: Controls) -> None:
        super().__init__()
        self._actions: dict[int, Action] = {}
        for action in controls.keys:
            for key in controls.keys_for(action):
                try:
                    self._actions[pygame.key.key_code(key)] = action
                except ValueError:
                    raise ValueError(
                        f"the mapping names a key '{key}' for {action}, which SDL does not know: "
                        "write it like 'a', 'left' or 'left shift'"
                    ) from None

    def read(self, events: Iterable[pygame.event.Event]) -> list[Action]:
        """Return the actions of the keys that are pressed in these events."""
        for event in events:
            if event.type == pygame.QUIT:
                self.pressed.append("quit")
            elif event.type == pygame.WINDOWFOCUSLOST:
                self.held.clear()  # the releases will go to another window
            elif event.type == pygame.KEYDOWN and event.key in self._actions:
                self.held.add(self._actions[event.key])
                self.pressed.append(self._actions[event.key])
            elif event.type == pygame.KEYUP and event.key in self._actions:
                self.held.discard(self._actions[event.key])
        return self.pressed


class Gamepad(Device):
    """One SDL device: a game controller where SDL knows its layout, else a joystick with numbered parts."""

    def __init__(self, index: int, controls: Controls) -> None:
        super().__init__()
        self._axes = controls.stick
        self._controller = controller.Controller(index) if controller.is_controller(index) else None
        self._joystick = self._controller.as_joystick() if self._controller else pygame.joystick.Joystick(index)
        self.kind = "game controller" if self._controller else "joystick"
        self.name = str(self._joystick.get_name())  # the name in the layout of a controller may be freed by SDL
        self.guid = str(self._joystick.get_guid())
        self.id = int(self._joystick.get_instance_id())
        self._wires: dict[str, str] = self._controller.get_mapping() if self._controller else {}
        self._down: set[str | int] = set()
        self._actions: dict[str | int, Action] = {}
        for action in controls.buttons:
            for button in controls.buttons_for(action):
                if isinstance(button, str) and not self._controller:
                    button = RAW_BUTTONS.get(button, self._joystick.get_numbuttons())
                if isinstance(button, str) or button < self._joystick.get_numbuttons():
                    self._actions.setdefault(button, action)

    def read(self, events: Iterable[pygame.event.Event]) -> list[Action]:
        """Return the actions of the buttons pressed since the last call.

        The state of the buttons counts, and events only for those let go already: SDL sends no more events for a
        controller's named buttons after some other part of the program has stopped and started it.
        """
        told = [event for event in events if event.type == pygame.JOYBUTTONDOWN and event.instance_id == self.id]
        wires = {f"b{event.button}" for event in told}
        tapped = {button for button in self._actions if self._wires.get(str(button), f"b{button}") in wires}
        down = {button for button in self._actions if self._is_down(button)}
        new = (down | tapped) - self._down
        self.pressed += [action for button, action in self._actions.items() if button in new]
        self.held = {self._actions[button] for button in down}
        self._down = down
        return self.pressed

    def move(self, seconds: float) -> Sticks:
        """Return both sticks, or what buttons such as the direction pad do in their place where that is further."""
        x, y, turn, look = (
            self._axis(getattr(self._axes, name)) * (-1 if getattr(self._axes, f"invert_{name}") else 1)
            for name in ("x", "y", "turn", "look")
        )
        return further(((x, y), (turn, look)), super().move(seconds))

    def _is_down(self, button: str | int) -> bool:
        if self._controller and isinstance(button, str):
            return bool(self._controller.get_button(BUTTONS[button]))
        return bool(self._joystick.get_button(int(button)))

    def _axis(self, axis: str | int) -> float:
        """Return an axis in [-1, 1]; one that the device does not have is 0."""
        if self._controller and isinstance(axis, str):
            return max(self._controller.get_axis(AXES[axis]) / 32767, -1.0)
        number = AXES[axis] if isinstance(axis, str) else axis
        if number >= self._joystick.get_numaxes():
            return 0.0
        return float(min(max(self._joystick.get_axis(number), -1.0), 1.0))


class Inputs:
    """All devices: one of them moves the agent, and the commands of every device work.

    The device is `keyboard`, a number or part of a name as `list_devices` shows them; None takes a gamepad if there is
    one, and between episodes whichever device is being used.
    """

    def __init__(self, controls: Controls, device: str | None = None) -> None:
        self.controls = controls
        self._wanted = device
        self._keyboard = Keyboard(controls)
        self._pads = {pad.id: pad for pad in list_devices(controls)}
        self.active: Keyboard | Gamepad = self._choose()

    def read(self, events: Sequence[pygame.event.Event], seconds: float, may_switch: bool = True) -> Reading:
        """Return what the person has done in the last seconds; another device may become the active one by its use."""
        unplugged = None
        for event in events:
            if event.type == pygame.JOYDEVICEADDED:
                self._plug_in(may_switch)
            elif event.type == pygame.JOYDEVICEREMOVED:
                unplugged = self._unplug(event.instance_id) or unplugged
        devices: list[Keyboard | Gamepad] = [self._keyboard, *self._pads.values()]
        actions = [action for device in devices for action in device.read(events)]
        sticks = {device: device.move(seconds) for device in devices}
        used = [device for device, both in sticks.items() if deflection(both) > DEFLECTED]
        if may_switch and self._wanted is None and used and self.active not in used:
            self.active = used[0]
        stick, camera = sticks.get(self.active, ((0.0, 0.0), (0.0, 0.0)))
        commands = tuple(command for action in actions for command in COMMANDS if command == action)
        return Reading(stick, commands, self.active.name, unplugged, camera)

    def _choose(self) -> Keyboard | Gamepad:
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

    def _plug_in(self, may_switch: bool) -> None:
        """Take up a new device where any device may be used, or where it is the chosen one that comes back."""
        for pad in list_devices(self.controls):
            if pad.id not in self._pads:
                lost = self.active not in (self._keyboard, *self._pads.values())
                self._pads[pad.id] = pad
                if (lost and pad.name == self.active.name) or (may_switch and self._wanted is None):
                    self.active = pad

    def _unplug(self, instance_id: int) -> str | None:
        """Forget a device, and return its name if it was the one in use."""
        pad = self._pads.pop(instance_id, None)
        if pad is None or pad is not self.active:
            return None
        if self._wanted is None:
            self.active = self._choose()
        return pad.name


def list_devices(controls: Controls) -> list[Gamepad]:
    """Return the gamepads that are plugged in, in the order in which they are counted."""
    pygame.joystick.init()
    controller.init()
    pads = []
    for index in range(pygame.joystick.get_count()):
        with suppress(pygame.error):  # raised where it cannot be opened or is gone again
            pads.append(Gamepad(index, controls))
    return pads
