"""What a person does with sticks, buttons and keys, and what these mean: a JSON file that a person can edit.

Axes and buttons of game controllers have SDL's names; a number is an axis or a button as the device itself counts
them, which works for every joystick. An entry that a file leaves out keeps its default.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import msgspec

from pidm_nav.files import write_text

Direction = Literal["left", "right", "up", "down", "slow", "turn_left", "turn_right", "look_up", "look_down"]
Command = Literal["pause", "redo", "finish", "quit"]
Action = Literal[Direction, Command]
COMMANDS: tuple[Command, ...] = get_args(Command)

AXES = {"leftx": 0, "lefty": 1, "rightx": 2, "righty": 3}
_FRONT = ("a", "b", "x", "y", "back", "guide", "start", "leftstick", "rightstick")
_OTHERS = ("leftshoulder", "rightshoulder", "dpup", "dpdown", "dpleft", "dpright")
BUTTONS = {name: number for number, name in enumerate((*_FRONT, *_OTHERS))}

Bound = str | int | tuple[str | int, ...]
# The keys and the buttons of every action.
DEFAULTS: dict[Action, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "left": (("left", "a"), ("dpleft",)),
    "right": (("right", "d"), ("dpright",)),
    "up": (("up", "w"), ("dpup",)),
    "down": (("down", "s"), ("dpdown",)),
    "slow": (("left shift", "right shift"), ()),
    "turn_left": (("j",), ()),
    "turn_right": (("l",), ()),
    "look_up": (("i",), ()),
    "look_down": (("k",), ()),
    "pause": (("p", "space"), ("start",)),
    "redo": (("r", "backspace"), ("b",)),
    "finish": (("return",), ("y",)),
    "quit": (("escape",), ("back",)),
}

Stick = tuple[float, float]
KEYBOARD = "keyboard"
DEFLECTED = 0.3  # from this deflection on, a stick is being used; below, it may only be worn out


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


def _as_tuple(bound: Bound) -> tuple[str | int, ...]:
    return bound if isinstance(bound, tuple) else (bound,)


def _merge(section: str, given: dict[Action, Bound], usual: dict[Action, tuple[str, ...]]) -> dict[Action, Bound]:
    """Return the usual bindings with the given ones, which take their keys or buttons from other actions."""
    taken = {each for bound in given.values() for each in _as_tuple(bound)}
    merged: dict[Action, Bound] = {}
    owners: dict[str | int, Action] = {}
    for action in DEFAULTS:
        left = tuple(each for each in usual[action] if each not in taken)
        merged[action] = bound = _as_tuple(given.get(action, left))
        for each in bound:
            if owners.setdefault(each, action) != action:
                raise ValueError(f"'{section}' gives {each!r} to {owners[each]} and to {action}: choose one")
    return merged


def _check_name(what: str, value: str | int, names: dict[str, int]) -> None:
    if value not in names if isinstance(value, str) else value < 0:
        raise ValueError(f"the {what} is {value!r}: choose {', '.join(names)} or a number from 0")


class Axes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The axes of a gamepad that move and that turn; the latter matter only where a task has a use for them."""

    x: str | int = "leftx"
    y: str | int = "lefty"
    turn: str | int = "rightx"
    look: str | int = "righty"
    invert_x: bool = False
    invert_y: bool = False
    invert_turn: bool = False
    invert_look: bool = False

    def __post_init__(self) -> None:
        for name in ("x", "y", "turn", "look"):
            _check_name(f"axis {name}", getattr(self, name), AXES)


class Controls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of sticks, buttons and keys; what is given here is merged into the defaults."""

    stick: Axes = Axes()
    buttons: dict[Action, Bound] = {}
    keys: dict[Action, Bound] = {}

    def __post_init__(self) -> None:
        for column, section in enumerate(("keys", "buttons")):
            usual = {action: both[column] for action, both in DEFAULTS.items()}
            msgspec.structs.force_setattr(self, section, _merge(section, getattr(self, section), usual))
        for action in DEFAULTS:
            for button in self.buttons_for(action):
                _check_name(f"button for {action}", button, BUTTONS)
            for key in _as_tuple(self.keys[action]):
                if not isinstance(key, str):
                    raise ValueError(f"the key for {action} is {key}: write a key's name, such as 'a' or 'left shift'")

    def buttons_for(self, action: Action) -> tuple[str | int, ...]:
        """Return the buttons that do this."""
        return _as_tuple(self.buttons[action])

    def keys_for(self, action: Action) -> tuple[str, ...]:
        """Return the names of the keys that do this."""
        return tuple(map(str, _as_tuple(self.keys[action])))


def write_controls(path: str | Path) -> None:
    """Write the default controls as a file to edit."""
    lines = []
    for section, entries in msgspec.to_builtins(Controls()).items():
        rows = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
        lines.append(f"  {json.dumps(section)}: {{\n{rows}\n  }}")
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_controls(path: str | Path) -> Controls:
    """Read controls from a file; a ValueError says what is wrong with it."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Controls)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no mapping '{path}': --write-mapping {path} makes one to edit") from None
    except msgspec.ValidationError as error:
        raise ValueError(f"the mapping '{path}' cannot be used: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the mapping '{path}' is not JSON: {error}") from None
