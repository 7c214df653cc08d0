"""Sticks, buttons and keys: SDL game controllers, other joysticks and the keyboard, plugged in at any time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pidm_nav.demos.recorder.keyboard import KEYBOARD, Keyboard, Ramp, Stick
from pidm_nav.demos.recorder.mapping import AXES, BUTTONS, CAMERA, COMMANDS, RAW_BUTTONS, Command, Mapping

if TYPE_CHECKING:
    import pygame
    from pygame._sdl2.controller import Controller

DEFLECTED = 0.3  # from here a stick is being used; below, it may only be worn


@dataclass(frozen=True)
class Reading:
    """What the person does now."""

    stick: Stick = (0.0, 0.0)
    commands: tuple[Command, ...] = ()
    device: str = KEYBOARD
    unplugged: str | None = None  # the device in use, if it has just gone
    camera: Stick = (0.0, 0.0)  # the right stick, which only 3D tasks look at


class Gamepad:
    """One SDL device: as a game controller where SDL knows its layout, else as a joystick of numbered parts."""

    def __init__(self, index: int, mapping: Mapping) -> None:
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
        self.attached = True
        self._mapping = mapping
        self._ramp, self._camera_ramp = Ramp(), Ramp(CAMERA)
        self._named: dict[int, str] = {}  # by the controller's layout
        self._numbered: dict[int, str] = {}  # by the device's own count
        self._wiring: dict[int, int] = {}  # numbered -> named button
        self._down: set[int] = set()
        self._tapped: set[int] = set()
        for action, buttons in mapping.buttons.items():
            for button in buttons:
                if isinstance(button, int):
                    self._numbered[button] = action
                elif self._controller is not None:
                    self._named[BUTTONS[button]] = action
                    wire = self._controller.get_mapping().get(button, "")  # such as b6; hats and axes are others
                    if wire[:1] == "b" and wire[1:].isdigit():
                        self._wiring[int(wire[1:])] = BUTTONS[button]
                elif button in RAW_BUTTONS:
                    self._numbered.setdefault(RAW_BUTTONS[button], action)

    @property
    def kind(self) -> str:
        """What SDL takes it for."""
        return "game controller" if self._controller is not None else "joystick"

    def feed(self, event: pygame.event.Event) -> str | None:
        """Take in an event; the action of the numbered button it presses."""
        import pygame

        if getattr(event, "instance_id", None) != self.id:
            return None
        if event.type not in (pygame.JOYBUTTONDOWN, pygame.JOYBUTTONUP):
            return None
        if event.type == pygame.JOYBUTTONDOWN and event.button in self._wiring:
            self._tapped.add(self._wiring[event.button])
        action = self._numbered.get(event.button)
        if action is not None and event.type == pygame.JOYBUTTONUP:
            self._release(action)
            return None
        if action is not None:
            self._press(action)
        return action

    def poll(self) -> list[str]:
        """The actions of named buttons pressed since the last time.

        Their state counts, and events for those already let go. The controller's own events would do, but SDL gives
        none after some other part of the program has stopped and started it.
        """
        if self._controller is None or not self.attached:
            return []
        down = {button for button in self._named if self._controller.get_button(button)}
        pressed = (down | self._tapped) - self._down
        for button in pressed:
            self._press(self._named[button])
        for button in (pressed | self._down) - down:
            self._release(self._named[button])
        self._down, self._tapped = down, set()
        return [self._named[button] for button in sorted(pressed)]

    def stick(self, seconds: float) -> Stick:
        """The stick, or the direction pad where that is deflected further."""
        mapping = self._mapping
        x = self._axis(mapping.x) * (-1 if mapping.invert_x else 1)
        y = self._axis(mapping.y) * (-1 if mapping.invert_y else 1)
        return self._further((x, y), self._ramp.move(seconds))

    def camera(self, seconds: float) -> Stick:
        """The right stick, or what buttons do in its place."""
        mapping = self._mapping
        turn = self._axis(mapping.turn) * (-1 if mapping.invert_turn else 1)
        look = self._axis(mapping.look) * (-1 if mapping.invert_look else 1)
        return self._further((turn, look), self._camera_ramp.move(seconds))

    def _further(self, stick: Stick, pad: Stick) -> Stick:
        """Whichever is deflected further."""
        if not self.attached:
            return 0.0, 0.0
        return stick if max(map(abs, stick)) >= max(map(abs, pad)) else pad

    def _press(self, action: str) -> None:
        self._ramp.press(action)
        self._camera_ramp.press(action)

    def _release(self, action: str) -> None:
        self._ramp.release(action)
        self._camera_ramp.release(action)

    def _axis(self, axis: str | int) -> float:
        """An axis in [-1, 1]; 0 if the device is gone or has no such axis."""
        if not self.attached:
            return 0.0
        if isinstance(axis, str) and self._controller is not None:
            return max(self._controller.get_axis(AXES[axis]) / 32767, -1.0)
        number = AXES[axis] if isinstance(axis, str) else axis
        if number >= self._joystick.get_numaxes():
            return 0.0
        return float(min(max(self._joystick.get_axis(number), -1.0), 1.0))


class Inputs:
    """All devices; one of them moves the agent, the keyboard's commands always work.

    Args:
        mapping: what stick, buttons and keys mean.
        device: `keyboard`, a number or part of a name as `list_devices` shows them; None takes a gamepad if there
            is one, and between episodes whichever device is being used.
    """

    def __init__(self, mapping: Mapping, device: str | None = None) -> None:
        self.mapping = mapping
        self._wanted = device
        self._pads: dict[int, Gamepad] = {}
        self._keyboard = Keyboard(mapping)
        for index in range(_init()):
            self._add(index)
        self.active: Gamepad | Keyboard = self._choose()

    def read(self, events: Iterable[pygame.event.Event], seconds: float, may_switch: bool = True) -> Reading:
        """What the person does, `seconds` after the last reading.

        Args:
            events: since the last reading.
            seconds: since the last reading.
            may_switch: another device may become the active one if it is used.
        """
        import pygame

        actions: list[str | None] = []
        unplugged = None
        devices: list[Gamepad | Keyboard]
        for event in events:
            if event.type == pygame.QUIT:
                actions.append("quit")
            elif event.type == pygame.JOYDEVICEADDED:
                self._plug_in(event.device_index, may_switch)
            elif event.type == pygame.JOYDEVICEREMOVED:
                unplugged = self._unplug(event.instance_id) or unplugged
            devices = [self._keyboard, *self._pads.values()]
            for device in devices:
                actions.append(device.feed(event))
        for pad in self._pads.values():
            actions += pad.poll()
        devices = [self._keyboard, *self._pads.values()]
        sticks = {device: device.stick(seconds) for device in devices}
        if may_switch and self._wanted is None and not _deflected(sticks.get(self.active, (0.0, 0.0))):
            self.active = next((d for d, stick in sticks.items() if _deflected(stick)), self.active)
        cameras = {device: device.camera(seconds) for device in devices}
        stick, camera = (each.get(self.active, (0.0, 0.0)) for each in (sticks, cameras))
        commands = tuple(command for action in actions for command in COMMANDS if command == action)
        return Reading(stick, commands, self.active.name, unplugged, camera)

    def _choose(self) -> Gamepad | Keyboard:
        pads = list(self._pads.values())
        if self._wanted is None:
            return pads[0] if pads else self._keyboard
        if self._wanted.lower() == KEYBOARD:
            return self._keyboard
        chosen = [pad for number, pad in enumerate(pads, start=1) if self._fits(pad, number)]
        if not chosen:
            found = ", ".join([f"'{pad.name}'" for pad in pads] + [KEYBOARD])
            raise ValueError(f"there is no device '{self._wanted}': choose one of {found}")
        return chosen[0]

    def _fits(self, pad: Gamepad, number: int) -> bool:
        wanted = (self._wanted or "").lower()
        return wanted == str(number) or (not wanted.isdigit() and wanted in (pad.name + pad.guid).lower())

    def _add(self, index: int) -> Gamepad | None:
        """Open a device; None if it is open already or gone again."""
        import pygame

        with suppress(pygame.error):
            pad = Gamepad(index, self.mapping)
            if pad.id not in self._pads:
                self._pads[pad.id] = pad
                return pad
        return None

    def _plug_in(self, index: int, may_switch: bool) -> None:
        pad = self._add(index)
        if pad is None or self._wanted == KEYBOARD:
            return
        lost = isinstance(self.active, Gamepad) and not self.active.attached
        if (lost and pad.name == self.active.name) or (may_switch and self._wanted is None):
            self.active = pad

    def _unplug(self, instance_id: int) -> str | None:
        """Forget a device; its name if it was the one in use."""
        pad = self._pads.pop(instance_id, None)
        if pad is None:
            return None
        pad.attached = False
        if pad is not self.active:
            return None
        if self._wanted is None:
            self.active = self._choose()
        return pad.name


def _deflected(stick: Sequence[float]) -> bool:
    return max(map(abs, stick)) > DEFLECTED


def _init() -> int:
    """Start SDL's parts for gamepads; how many there are."""
    import pygame
    from pygame._sdl2 import controller

    pygame.joystick.init()
    controller.init()
    return pygame.joystick.get_count()


def list_devices(mapping: Mapping) -> list[Gamepad]:
    """The gamepads that are plugged in, in the order `--device` counts them."""
    return [Gamepad(index, mapping) for index in range(_init())]
