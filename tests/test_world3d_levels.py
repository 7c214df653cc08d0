"""The 3D levels and the files the engine reads, without the engine."""

import re
import struct
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import pidm_nav
from pidm_nav import PAPER_TASKS, TASKS, find_task
from pidm_nav.world3d.levels import LEVELS, UNITS, WALL, Level, load_level
from pidm_nav.world3d.wad import build_wad

ALL = [load_level(name) for name in LEVELS]


def _lumps(level: Level) -> dict[str, str]:
    """The lumps of a WAD file, read as the format says."""
    wad = build_wad(level)
    kind, count, directory = struct.unpack("<4sii", wad[:12])
    assert kind == b"PWAD"
    lumps = {}
    for index in range(count):
        start, size, name = struct.unpack("<ii8s", wad[directory + 16 * index : directory + 16 * (index + 1)])
        lumps[name.rstrip(b"\0").decode()] = wad[start : start + size].decode()
    return lumps


def _blocks(text: str, kind: str) -> list[dict[str, str]]:
    """The blocks of one kind of a map's text, as their fields."""
    found = re.findall(rf"^{kind}\{{(.*)\}}$", text, re.M)
    return [dict(field.split("=") for field in block.rstrip(";").split(";")) for block in found]


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_the_rooms_have_the_goals_of_the_2d_task_in_its_order(name: str) -> None:
    level, layout = load_level(f"{name}-3d"), PAPER_TASKS[name].layout()
    assert level.num_goals == len(level.milestones) == layout.num_goals
    for milestone, goal in zip(level.milestones, layout.goals, strict=True):
        assert milestone.kind == "reach"
        np.testing.assert_allclose(level.to_layout(*milestone.place), goal)
    np.testing.assert_allclose(level.to_layout(*level.start), layout.starts[0])


def test_the_tour_asks_for_eleven_things() -> None:
    milestones = load_level("tour-3d").milestones
    assert len(milestones) == TASKS["tour-3d"].num_goals == 11
    assert milestones[0].name == "turn round"
    assert [milestone.kind for milestone in milestones if milestone.kind != "reach"] == [
        "turn",
        "pick up",
        "look up",
        "stand still",
    ]
    assert milestones[-1].kind == "stand still"


@pytest.mark.parametrize("level", ALL, ids=LEVELS)
def test_places_are_on_free_ground(level: Level) -> None:
    xs, ys = level.edges
    for x, y in [level.start, *(milestone.place for milestone in level.milestones)]:
        column, line = np.searchsorted(xs, x) - 1, np.searchsorted(-ys, -y) - 1
        around = level.cells[line : line + 2, column : column + 2]  # a place is a corner between cells
        assert (around != WALL).all()


@pytest.mark.parametrize("level", ALL, ids=LEVELS)
def test_steps_can_be_climbed(level: Level) -> None:
    """Neighboring free cells of the layout differ by less than the engine's step of 24 units."""
    heights = np.array([zone.floor_height for zone in level.zones] + [10_000])[level.cells]
    walkable = np.array([[mark != "#" for mark in row] for row in level.layout.rows])
    for axis in (0, 1):
        both = np.diff(walkable.astype(int), axis=axis) == 0
        both &= np.take(walkable, range(1, walkable.shape[axis]), axis=axis)
        assert (np.abs(np.diff(heights, axis=axis))[both] <= 24).all()


@pytest.mark.parametrize("level", ALL, ids=LEVELS)
def test_the_wad_says_what_the_level_says(level: Level) -> None:
    lumps = _lumps(level)
    assert list(lumps) == ["MAP01", "TEXTMAP", "ENDMAP", "DECORATE"]
    text = lumps["TEXTMAP"]
    lines, sides, points = _blocks(text, "linedef"), _blocks(text, "sidedef"), _blocks(text, "vertex")
    assert len(_blocks(text, "sector")) == len(level.zones)
    assert len(_blocks(text, "thing")) == 1 + level.num_goals
    used = set()
    for line in lines:
        assert line["v1"] != line["v2"] and {int(line["v1"]), int(line["v2"])} <= set(range(len(points)))
        used |= {int(line[key]) for key in ("sidefront", "sideback") if key in line}
        assert ("sideback" in line) == ("twosided" in line) == ("blocking" not in line)
    assert used == set(range(len(sides)))
    assert lumps["DECORATE"].count("ACTOR") == 1 + level.num_goals


@pytest.mark.parametrize("level", ALL, ids=LEVELS)
def test_every_sector_is_closed_and_lies_to_the_right_of_its_lines(level: Level) -> None:
    """The area to the right of a zone's lines, by the shoelace formula, is that of its cells."""
    text = _lumps(level)["TEXTMAP"]
    lines, sides, points = _blocks(text, "linedef"), _blocks(text, "sidedef"), _blocks(text, "vertex")
    corners = np.array([[float(point["x"]), float(point["y"])] for point in points])
    area = np.zeros(len(level.zones))
    for line in lines:
        a, b = corners[int(line["v1"])], corners[int(line["v2"])]
        turn = (b[0] * a[1] - a[0] * b[1]) / 2  # clockwise is positive
        area[int(sides[int(line["sidefront"])]["sector"])] += turn
        if "sideback" in line:
            area[int(sides[int(line["sideback"])]["sector"])] -= turn
    width, height = level.layout.room_size
    cell = UNITS * width / level.cells.shape[1] * UNITS * height / level.cells.shape[0]
    expected = np.array([(level.cells == zone).sum() * cell for zone in range(len(level.zones))])
    np.testing.assert_allclose(area, expected, atol=10)


def test_names_are_found_in_every_spelling() -> None:
    for name in (
        "four-room-3d",
        "four_room_3d",
        "FourRoom3D",
        "PIDMNav3D-FourRoom-v0",
        "pidm_nav:PIDMNav3D-FourRoom-v0",
    ):
        assert find_task(name) is TASKS["four-room-3d"]
        np.testing.assert_array_equal(load_level(name).layout.walls, PAPER_TASKS["four-room"].layout().walls)
    with pytest.raises(ValueError, match="maze is not a 3D task: choose one of four-room-3d"):
        load_level("maze")


def test_the_ids_are_registered_with_their_step_limits() -> None:
    assert pidm_nav.__version__
    for name in LEVELS:
        assert gym.spec(TASKS[name].env_id).max_episode_steps == TASKS[name].max_steps
        assert TASKS[name].num_goals == load_level(name).num_goals


def test_without_the_engine_one_sentence_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['vizdoom'] = None\n"
        "import gymnasium as gym, pidm_nav\n"
        "try: gym.make('PIDMNav3D-Tour-v0')\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip().endswith('pip install "pidm-nav[3d]"'), ended.stderr
    assert ended.stdout.count("\n") == 1


def test_importing_the_package_does_not_import_the_engine() -> None:
    program = "import pidm_nav, sys; assert 'vizdoom' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
