"""A gamepad made of software: SDL's own virtual joysticks, which reach pygame as a plugged-in device does."""

import ctypes

import pygame
import pytest

CONTROLLER, OTHER = 1, 0


def load_sdl() -> ctypes.CDLL:
    """The SDL that pygame itself uses."""
    try:
        sdl = ctypes.CDLL(pygame.base.__file__)
        attach = sdl.SDL_JoystickAttachVirtual
    except (OSError, AttributeError):
        pytest.skip("pygame's SDL cannot be reached on this platform, so no virtual gamepad can be plugged in")
    attach.restype = ctypes.c_int
    sdl.SDL_JoystickFromInstanceID.restype = ctypes.c_void_p
    sdl.SDL_JoystickSetVirtualAxis.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int16]
    sdl.SDL_JoystickSetVirtualButton.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint8]
    return sdl


class VirtualGamepad:
    """Plugged in when made. The kind and the numbers of axes and buttons are the device's."""

    def __init__(self, kind: int = CONTROLLER, axes: int = 6, buttons: int = 15) -> None:
        self._sdl = load_sdl()
        pygame.joystick.init()
        index = self._sdl.SDL_JoystickAttachVirtual(kind, axes, buttons, 0)
        assert index >= 0
        self._opened = pygame.joystick.Joystick(index)
        self.id = self._opened.get_instance_id()

    def _handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._sdl.SDL_JoystickFromInstanceID(self.id))

    def axis(self, number: int, value: float) -> None:
        self._sdl.SDL_JoystickSetVirtualAxis(self._handle(), number, round(value * 32767))

    def stick(self, x: float, y: float) -> None:
        self.axis(0, x)
        self.axis(1, y)

    def button(self, number: int, pressed: bool) -> None:
        self._sdl.SDL_JoystickSetVirtualButton(self._handle(), number, int(pressed))

    def unplug(self) -> None:
        self._opened.quit()  # else it is closed some time later, perhaps when its memory is another device's
        for index in range(pygame.joystick.get_count()):
            if self._sdl.SDL_JoystickGetDeviceInstanceID(index) == self.id:
                self._sdl.SDL_JoystickDetachVirtual(index)
                return
