"""What a person does with sticks, buttons and keys, and what these mean: a JSON file that a person can edit.

Axes and buttons of game controllers have SDL's names; a number is an axis or a button as the device itself counts
them, which works for every joystick. An entry that a file leaves out keeps its default.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from pidm_nav.files import read_bytes, write_json

Command = Literal["pause", "redo", "finish", "quit"]
Action = Literal["left", "right", "up", "down", "slow", "turn_left", "turn_right", "look_up", "look_down", Command]
Axis = Literal["leftx", "lefty", "rightx", "righty"]
Button = Literal[
    "a", "b", "x", "y", "back", "guide", "start", "leftstick", "rightstick", "leftshoulder", "rightshoulder",
    "dpup", "dpdown", "dpleft", "dpright",
]  # fmt: skip
Number = Annotated[int, msgspec.Meta(ge=0)]
COMMANDS: tuple[Command, ...] = get_args(Command)
AXES: dict[str, int] = {name: number for number, name in enumerate(get_args(Axis))}  # as SDL counts them
BUTTONS: dict[str, int] = {name: number for number, name in enumerate(get_args(Button))}

MAX_BYTES = 2**20  # of a file
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


class Axes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The axes of a gamepad that move and that turn; the latter matter only where a task has a use for them."""

    x: Axis | Number = "leftx"
    y: Axis | Number = "lefty"
    turn: Axis | Number = "rightx"
    look: Axis | Number = "righty"
    invert_x: bool = False
    invert_y: bool = False
    invert_turn: bool = False
    invert_look: bool = False


class Controls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of sticks, buttons and keys.

    What is given here, one key or button or several, is merged into the defaults: it takes its keys and buttons from
    other actions.
    """

    stick: Axes = Axes()
    buttons: dict[Action, Button | Number | tuple[Button | Number, ...]] = {}
    keys: dict[Action, str | tuple[str, ...]] = {}

    def __post_init__(self) -> None:
        for column, section in enumerate(("keys", "buttons")):
            given = {action: _as_tuple(bound) for action, bound in getattr(self, section).items()}
            taken = {each for bound in given.values() for each in bound}
            owners: dict[str | int, Action] = {}
            for action, usual in DEFAULTS.items():
                given.setdefault(action, tuple(each for each in usual[column] if each not in taken))
                for each in given[action]:
                    if owners.setdefault(each, action) != action:
                        raise ValueError(f"'{section}' gives {each!r} to {owners[each]} and to {action}: choose one")
            msgspec.structs.force_setattr(self, section, {action: given[action] for action in DEFAULTS})

    def buttons_for(self, action: Action) -> tuple[str | int, ...]:
        """Return the buttons that do this."""
        return _as_tuple(self.buttons[action])

    def keys_for(self, action: Action) -> tuple[str, ...]:
        """Return the names of the keys that do this."""
        return _as_tuple(self.keys[action])


def _as_tuple(bound: Any) -> tuple[Any, ...]:
    return bound if isinstance(bound, tuple) else (bound,)


def write_controls(path: str | Path) -> None:
    """Write the default controls as a file to edit."""
    write_json(path, msgspec.to_builtins(Controls()), indent=2)


def read_controls(path: str | Path) -> Controls:
    """Read controls from a file; a ValueError says what is wrong with it."""
    try:
        return msgspec.json.decode(read_bytes(path, MAX_BYTES), type=Controls)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no mapping '{path}': `pidm-nav record --write-mapping {path}` makes one to edit"
        ) from None
    except msgspec.ValidationError as error:
        raise ValueError(
            f"the mapping '{path}' cannot be used: {error} (`pidm-nav record --write-mapping FILE` shows all names)"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the mapping '{path}' is not JSON: {error}") from None
