import json
import os
import subprocess
import sys
from pathlib import Path

import pygame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_gamepad import OTHER, VirtualGamepad

from pidm_nav.demos.recorder.controls import BUTTONS, COMMANDS, Axes, Controls, read_controls, write_controls
from pidm_nav.demos.recorder.devices import Inputs, list_devices
from pidm_nav.demos.recorder.sticks import PRESS, RELEASE, Device

FRAME = 1 / 30


@pytest.fixture
def window():
    """A window that events arrive at."""
    pygame.display.init()
    pygame.display.set_mode((64, 64))
    pygame.event.clear()
    yield
    pygame.display.quit()


@pytest.fixture
def plug(window):
    """Plugs in gamepads, and pulls them out at the end."""
    pads = []

    def plug_in(*args):
        pads.append(VirtualGamepad(*args))
        return pads[-1]

    yield plug_in
    for pad in pads:
        pad.unplug()
    pygame.event.clear()


def read(inputs, frames=1, **kwargs):
    """The reading after some frames, with the commands of them all."""
    commands, unplugged = [], None
    for _ in range(frames):
        reading = inputs.read(pygame.event.get(), FRAME, **kwargs)
        commands += reading.commands
        unplugged = unplugged or reading.unplugged
    return reading.stick, commands, reading.device, unplugged


def key(name, down=True):
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN if down else pygame.KEYUP, key=pygame.key.key_code(name)))


# ---- the mapping's file


def test_a_written_mapping_reads_as_the_usual_one(tmp_path):
    write_controls(tmp_path / "pad.json")
    assert read_controls(tmp_path / "pad.json") == Controls()


def test_a_mapping_changes_what_it_names_and_nothing_else(tmp_path):
    path = tmp_path / "pad.json"
    path.write_text('{"stick": {"x": "rightx", "invert_y": true}, "buttons": {"pause": "b", "redo": [3, "x"]}}')
    mapping = read_controls(path)
    assert (mapping.stick.x, mapping.stick.y, mapping.stick.invert_x, mapping.stick.invert_y) == (
        "rightx",
        "lefty",
        False,
        True,
    )
    assert mapping.buttons["pause"] == ("b",) and mapping.buttons["redo"] == (3, "x")
    assert mapping.buttons["finish"] == ("y",) and mapping.keys == Controls().keys


def test_a_button_given_to_one_action_is_taken_from_its_usual_one(tmp_path):
    path = tmp_path / "pad.json"
    path.write_text('{"buttons": {"pause": ["b"]}}')
    assert read_controls(path).buttons["redo"] == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ('{"sticks": {}}', "unknown field `sticks`"),
        ('{"stick": {"x": "left"}}', "'left'"),
        ('{"stick": {"x": -1}}', ">= 0"),
        ('{"stick": {"x": true}}', r"got `bool` - at `\$.stick.x`"),
        ('{"stick": {"x": ["leftx"]}}', r"got `array` - at `\$.stick.x`"),
        ('{"stick": {"invert_x": 1}}', r"Expected `bool`, got `int` - at `\$.stick.invert_x`"),
        ('{"buttons": {"jump": ["a"]}}', "'jump'"),
        ('{"buttons": {"pause": ["z"]}}', "'z'"),
        ('{"buttons": {"pause": [{}]}}', r"got `object` - at `\$.buttons"),
        ('{"buttons": {"pause": ["a"], "redo": ["a"]}}', "pause and to redo"),
        ('{"keys": {"pause": [1]}}', r"Expected `str`, got `int` - at `\$.keys"),
        ('{"keys": {"pause": null}}', "got `null`"),
        ('{"stick": {"x": 1e308}}', "got `float`"),
        ('{"keys": ' * 10_000, "Invalid enum value 'keys'"),
        ('{"keys": ' + "[" * 10_000 + "]" * 10_000 + "}", "got `array`"),
        ('{"keys": {"pause": "' + chr(0xD800).encode("utf-8", "backslashreplace").decode() + '"}}', "not JSON"),
    ],
)
def test_a_bad_mapping_is_refused_in_one_sentence(tmp_path, text, words):
    path = tmp_path / "pad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        read_controls(path)
    assert "pad.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes on Windows")
def test_a_mapping_that_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would never end
    with pytest.raises(ValueError, match="pipe' is not a regular file"):
        read_controls(tmp_path / "pipe")


def test_a_missing_mapping_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="--write-mapping"):
        read_controls(tmp_path / "pad.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "stick", "buttons", "keys", "pause", "left"]), inner, max_size=4)
    ),
)


@settings(deadline=None)
@given(JSON)
def test_whatever_json_is_a_mapping_or_a_value_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("mapping") / "pad.json"
    path.write_text(json.dumps(content))
    try:
        mapping = read_controls(path)
    except ValueError:
        return
    assert set(mapping.buttons) == set(mapping.keys) == set(Controls().keys)


def test_an_unknown_key_is_refused(window, tmp_path):
    path = tmp_path / "pad.json"
    path.write_text('{"keys": {"pause": ["no such key"]}}')
    with pytest.raises(ValueError, match="'no such key'"):
        Inputs(read_controls(path))


# ---- keys as a stick


@settings(deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from(["left", "right", "up", "down", "slow"])), st.floats(0.001, 0.2))))
def test_held_keys_move_the_stick_at_a_finite_speed_within_the_unit_circle(pieces):
    ramp = Device()
    before = (0.0, 0.0)
    for held, seconds in pieces:
        ramp.held = set(held)
        after, _ = ramp.move(seconds)
        assert after[0] ** 2 + after[1] ** 2 <= 1 + 1e-9
        assert all(abs(a - b) <= max(PRESS, RELEASE) * seconds + 1e-9 for a, b in zip(after, before, strict=True))
        before = after
    ramp.held = set()
    for _ in range(10):
        ramp.move(FRAME)
    assert ramp.position == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("keys", "stick"),
    [
        (["left"], (-1, 0)),
        (["d"], (1, 0)),
        (["w"], (0, -1)),
        (["down"], (0, 1)),
        (["up", "right"], (0.5**0.5, -(0.5**0.5))),
        (["a", "s"], (-(0.5**0.5), 0.5**0.5)),
        (["left", "right"], (0, 0)),
        (["right", "left shift"], (0.5, 0)),
    ],
)
def test_arrows_and_wasd_deflect_the_stick(window, keys, stick):
    inputs = Inputs(Controls())
    for name in keys:
        key(name)
    first = read(inputs)[0]
    assert max(map(abs, first)) < 0.5  # it takes a few frames
    assert read(inputs, frames=10)[0] == pytest.approx(stick)
    for name in keys:
        key(name, down=False)
    assert read(inputs, frames=10)[0] == (0, 0)


def test_a_key_let_go_within_a_frame_counts(window):
    inputs = Inputs(Controls())
    key("left")
    key("left", down=False)
    assert read(inputs)[0][0] < 0
    assert read(inputs, frames=5)[0] == (0, 0)
    key("left")
    key("left", down=False)
    key("left")
    assert read(inputs, frames=10)[0] == (-1, 0)


def test_keys_are_let_go_when_the_window_loses_the_focus(window):
    inputs = Inputs(Controls())
    key("left")
    read(inputs, frames=10)
    pygame.event.post(pygame.event.Event(pygame.WINDOWFOCUSLOST))
    assert read(inputs, frames=10)[0] == (0, 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_key_of_a_command_gives_it_once(window, command):
    inputs = Inputs(Controls())
    for name in Controls().keys[command]:
        key(name)
        assert read(inputs, frames=3)[1] == [command]
        key(name, down=False)


def test_closing_the_window_quits(window):
    inputs = Inputs(Controls())
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert read(inputs)[1] == ["quit"]


# ---- gamepads


def test_without_a_gamepad_the_keyboard_is_used(window):
    assert Inputs(Controls()).active.name == "keyboard"


def test_the_left_stick_moves(plug):
    pad = plug()
    inputs = Inputs(Controls())
    pad.stick(-0.5, 1.0)
    stick, commands, device, _ = read(inputs)
    assert stick == pytest.approx((-0.5, 1.0), abs=1e-3)
    assert commands == [] and device == "Virtual Controller"
    pad.stick(-1.0, 0.05)
    assert read(inputs)[0] == pytest.approx((-1.0, 0.05), abs=1e-3)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_button_gives_its_command_once_while_it_is_held(plug, command):
    pad = plug()
    inputs = Inputs(Controls())
    number = BUTTONS[Controls().buttons[command][0]]
    pad.button(number, True)
    assert read(inputs, frames=5)[1] == [command]
    pad.button(number, False)
    assert read(inputs, frames=5)[1] == []


def test_a_button_let_go_within_a_frame_counts(plug):
    pad = plug()
    inputs = Inputs(Controls())
    for pressed in (True, False):
        pad.button(BUTTONS["start"], pressed)
        pygame.event.pump()
    assert read(inputs, frames=3)[1] == ["pause"]


STOP_AND_START = """
import pygame
from virtual_gamepad import VirtualGamepad
from pidm_nav.demos.recorder.controls import Controls
from pidm_nav.demos.recorder.devices import Inputs

for _ in range(3):
    pygame.joystick.quit()
    pygame.display.quit()
    pygame.display.init()
    pygame.display.set_mode((64, 64))
    inputs = Inputs(Controls())
pad = VirtualGamepad()
inputs = Inputs(Controls())
pad.button(6, True)
print(inputs.read(pygame.event.get(), 1.0).commands)
"""


def test_buttons_work_after_other_code_has_stopped_and_started_sdl(plug):
    """SDL then gives no more events of named buttons. In a process of its own, as others would suffer too."""
    plug()  # skips where there are no virtual gamepads
    arguments = [sys.executable, "-c", STOP_AND_START]
    ended = subprocess.run(arguments, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "('pause',)", ended.stderr


def test_the_direction_pad_moves_too(plug):
    pad = plug()
    inputs = Inputs(Controls())
    pad.button(BUTTONS["dpleft"], True)
    assert read(inputs, frames=10)[0] == (-1, 0)
    pad.button(BUTTONS["dpleft"], False)
    assert read(inputs, frames=10)[0] == (0, 0)


def test_a_mapping_moves_stick_and_buttons_elsewhere(plug):
    pad = plug()
    inputs = Inputs(Controls(Axes("rightx", 1, invert_x=True), buttons={"pause": (9, "a"), "quit": ()}))
    pad.axis(2, 0.75)
    pad.axis(1, 0.25)
    pad.button(9, True)  # by the device's own count
    stick, commands, *_ = read(inputs)
    assert stick == pytest.approx((-0.75, 0.25), abs=1e-3) and commands == ["pause"]
    pad.button(BUTTONS["a"], True)
    pad.button(BUTTONS["back"], True)
    assert read(inputs)[1] == ["pause"]


def test_a_joystick_that_sdl_has_no_layout_for_works_by_numbers(plug):
    pad = plug(OTHER, 2, 8)
    inputs = Inputs(Controls())
    pad.stick(0.5, -0.5)
    pad.button(7, True)
    stick, commands, device, _ = read(inputs)
    assert stick == pytest.approx((0.5, -0.5), abs=1e-3)
    assert commands == ["pause"] and device == "Virtual Joystick"


def test_an_axis_that_a_device_does_not_have_is_zero(plug):
    pad = plug(OTHER, 1, 2)
    inputs = Inputs(Controls(Axes(y=7)))
    pad.axis(0, 1.0)
    assert read(inputs)[0] == (pytest.approx(1.0, abs=1e-3), 0.0)


# ---- plugging in and out


def test_a_gamepad_plugged_in_later_takes_over(plug):
    inputs = Inputs(Controls())
    assert read(inputs)[2] == "keyboard"
    pad = plug()
    assert read(inputs)[2] == "Virtual Controller"
    pad.stick(0.5, 0.0)
    assert read(inputs)[0] == pytest.approx((0.5, 0.0), abs=1e-3)


def test_in_an_episode_a_new_gamepad_does_not_take_over(plug):
    inputs = Inputs(Controls())
    pad = plug()
    pad.stick(1.0, 0.0)
    assert read(inputs, may_switch=False)[:3] == ((0, 0), [], "keyboard")
    assert read(inputs, may_switch=True)[2] == "Virtual Controller"


def test_a_gamepad_pulled_out_is_said_and_the_keyboard_takes_over_until_it_is_back(plug):
    pad = plug()
    inputs = Inputs(Controls())
    pad.stick(1.0, 0.0)
    read(inputs)
    pad.unplug()
    stick, _, device, unplugged = read(inputs, may_switch=False)
    assert (stick, device, unplugged) == ((0, 0), "keyboard", "Virtual Controller")
    assert read(inputs, frames=3)[3] is None
    plug().stick(0.0, 1.0)
    assert read(inputs)[0] == pytest.approx((0.0, 1.0), abs=1e-3)


def test_between_episodes_the_device_in_use_is_the_active_one(plug):
    pad = plug()
    inputs = Inputs(Controls())
    key("left")
    assert read(inputs, frames=10)[2] == "keyboard"
    key("left", down=False)
    read(inputs, frames=10)
    pad.stick(0.0, 1.0)
    assert read(inputs)[2] == "Virtual Controller"


def test_a_worn_stick_does_not_take_over_from_the_keyboard(plug):
    pad = plug()
    inputs = Inputs(Controls())
    pad.stick(0.1, -0.2)
    key("left")
    assert read(inputs, frames=10)[2] == "keyboard"


@pytest.mark.parametrize("wanted", ["2", "virtual joy", "Virtual Joystick"])
def test_a_device_is_chosen_by_number_or_name(plug, wanted):
    plug()
    second = plug(OTHER, 2, 4)
    inputs = Inputs(Controls(), wanted)
    second.stick(1.0, 0.0)
    stick, _, device, _ = read(inputs)
    assert stick[0] == pytest.approx(1.0, abs=1e-3) and device == "Virtual Joystick"


def test_a_chosen_device_stays_the_one_and_is_waited_for(plug):
    plug(OTHER, 2, 4)
    pad = plug()
    inputs = Inputs(Controls(), "controller")
    key("left")
    assert read(inputs, frames=10)[:3] == ((0, 0), [], "Virtual Controller")
    pad.unplug()
    assert read(inputs, frames=10)[0] == (0, 0)
    plug().stick(0.0, -1.0)
    assert read(inputs, may_switch=False)[0] == pytest.approx((0.0, -1.0), abs=1e-3)


def test_the_keyboard_can_be_chosen_although_there_is_a_gamepad(plug):
    pad = plug()
    inputs = Inputs(Controls(), "keyboard")
    pad.stick(1.0, 1.0)
    assert read(inputs, frames=3)[:3] == ((0, 0), [], "keyboard")
    plug()
    assert read(inputs, frames=3)[2] == "keyboard"


def test_a_device_that_is_not_there_is_refused_with_those_that_are(plug):
    plug()
    with pytest.raises(ValueError, match=r"'Xbox'.*'Virtual Controller', keyboard"):
        Inputs(Controls(), "Xbox")


def test_devices_are_listed(plug):
    plug()
    plug(OTHER, 2, 4)
    listed = [(pad.name, pad.kind) for pad in list_devices(Controls())]
    assert listed == [("Virtual Controller", "game controller"), ("Virtual Joystick", "joystick")]
