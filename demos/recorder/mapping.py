"""What stick, buttons and keys mean: a JSON file that a person can edit.

Axes and buttons of game controllers have SDL's names; a number is an axis or button of the device as it counts them
itself, which every joystick has. An entry that a file leaves out stays as it is here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Command = Literal["pause", "redo", "finish", "quit"]
COMMANDS: tuple[Command, ...] = get_args(Command)
CAMERA = ("turn_left", "turn_right", "look_up", "look_down")
ACTIONS = ("left", "right", "up", "down", "slow", *CAMERA, *COMMANDS)
STICKS = ("x", "y", "turn", "look")
STICK_ENTRIES = (*STICKS, *(f"invert_{axis}" for axis in STICKS))

AXES = {"leftx": 0, "lefty": 1, "rightx": 2, "righty": 3}
BUTTONS = {
    "a": 0,
    "b": 1,
    "x": 2,
    "y": 3,
    "back": 4,
    "guide": 5,
    "start": 6,
    "leftstick": 7,
    "rightstick": 8,
    "leftshoulder": 9,
    "rightshoulder": 10,
    "dpup": 11,
    "dpdown": 12,
    "dpleft": 13,
    "dpright": 14,
}
RAW_BUTTONS = {"a": 0, "b": 1, "x": 2, "y": 3, "leftshoulder": 4, "rightshoulder": 5, "back": 6, "start": 7}
"""Where joysticks that SDL has no layout for most often have them."""

Bindings = dict[str, tuple[Any, ...]]


def _default_buttons() -> Bindings:
    pad = {name: (f"dp{name}",) for name in ("left", "right", "up", "down")}
    camera: Bindings = dict.fromkeys(CAMERA, ())
    return {**pad, "slow": (), **camera, "pause": ("start",), "redo": ("b",), "finish": ("y",), "quit": ("back",)}


def _default_keys() -> Bindings:
    return {
        "left": ("left", "a"),
        "right": ("right", "d"),
        "up": ("up", "w"),
        "down": ("down", "s"),
        "slow": ("left shift", "right shift"),
        "turn_left": ("j",),
        "turn_right": ("l",),
        "look_up": ("i",),
        "look_down": ("k",),
        "pause": ("p", "space"),
        "redo": ("r", "backspace"),
        "finish": ("return",),
        "quit": ("escape",),
    }


@dataclass(frozen=True)
class Mapping:
    """A mapping; by default the left stick, the direction pad, the arrow keys and WASD.

    In 3D tasks the right stick or I, J, K and L turn the camera as well.
    """

    x: str | int = "leftx"
    y: str | int = "lefty"
    turn: str | int = "rightx"
    look: str | int = "righty"
    invert_x: bool = False
    invert_y: bool = False
    invert_turn: bool = False
    invert_look: bool = False
    buttons: Bindings = field(default_factory=_default_buttons)
    keys: Bindings = field(default_factory=_default_keys)


def write_mapping(path: str | Path, mapping: Mapping | None = None) -> None:
    """Write a mapping, by default the usual one, as a file to edit."""
    from pidm_nav.demos.formats.npz import atomic_file

    mapping = mapping or Mapping()
    sections = {
        "stick": {name: getattr(mapping, name) for name in STICK_ENTRIES},
        "buttons": mapping.buttons,
        "keys": mapping.keys,
    }
    lines = []
    for section, entries in sections.items():
        rows = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
        lines.append(f"  {json.dumps(section)}: {{\n{rows}\n  }}")
    with atomic_file(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read_mapping(path: str | Path) -> Mapping:
    """The mapping of a file; ValueError says what is wrong with it."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no mapping '{path}': --write-mapping {path} makes one to edit") from None
    except ValueError as error:
        raise ValueError(f"the mapping '{path}' is not JSON: {error}") from None
    try:
        return _parse(content)
    except ValueError as error:
        raise ValueError(f"the mapping '{path}' cannot be used: {error}") from None


def _parse(content: Any) -> Mapping:
    sections = _entries(content, "it", ("stick", "buttons", "keys"))
    stick = _entries(sections.get("stick", {}), "'stick'", STICK_ENTRIES)
    for axis in STICKS:
        if axis in stick and not _is_one_of(stick[axis], AXES):
            raise ValueError(f"'stick' has {axis}={stick[axis]!r}: choose {', '.join(AXES)} or a number from 0")
    for flag in STICK_ENTRIES[len(STICKS) :]:
        if not isinstance(stick.get(flag, False), bool):
            raise ValueError(f"'stick' has {flag}={stick[flag]!r}: write true or false")
    buttons = _bindings(sections.get("buttons", {}), "buttons", _default_buttons())
    for button in (button for bound in buttons.values() for button in bound):
        if not _is_one_of(button, BUTTONS):
            raise ValueError(f"there is no button {button!r}: choose {', '.join(BUTTONS)} or a number from 0")
    keys = _bindings(sections.get("keys", {}), "keys", _default_keys())
    for key in (key for bound in keys.values() for key in bound):
        if not isinstance(key, str):
            raise ValueError(f"'keys' has {key!r}: write a key's name, like 'a', 'left' or 'left shift'")
    return Mapping(**stick, buttons=buttons, keys=keys)


def _entries(value: Any, name: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}: it must be an object with {', '.join(known)}")
    for key in value:
        if key not in known:
            raise ValueError(f"{name} has an entry '{key}': known are {', '.join(known)}")
    return value


def _bindings(value: Any, name: str, default: Bindings) -> Bindings:
    """The default with what a file says; nothing may mean two things."""
    given: Bindings = {}
    for action, bound in _entries(value, f"'{name}'", ACTIONS).items():
        given[action] = tuple(bound) if isinstance(bound, list) else (bound,)
    taken = {str(each) for bound in given.values() for each in bound}
    # What a file gives to one action, the defaults take from another.
    others = {action: tuple(each for each in bound if str(each) not in taken) for action, bound in default.items()}
    bindings: Bindings = {**others, **given}
    meanings: dict[str, str] = {}
    for action, bound in bindings.items():
        for each in bound:
            if meanings.setdefault(str(each), action) != action:
                raise ValueError(f"'{name}' gives {each!r} to {meanings[str(each)]} and to {action}: choose one")
    return bindings


def _is_one_of(value: Any, names: dict[str, int]) -> bool:
    """Whether it is one of the names or a number from 0."""
    if isinstance(value, str):
        return value in names
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
