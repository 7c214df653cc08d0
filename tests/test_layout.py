"""Maps: what they mean in pixels, and what is said about bad ones."""

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav.tasks import PAPER_TASKS, find_task
from pidm_nav.world2d.layout import BOX, GOAL_MARKS, Layout
from pidm_nav.world2d.state import state_size

SMALL = """
##########
#....#...#
#.A..#.1.#
#....#...#
#.2......#
##########
"""


def test_the_spec_of_every_task(shared):
    spec = json.loads((shared / "spec" / "tasks.json").read_text())
    assert len(spec) == len(PAPER_TASKS)
    for name, facts in spec.items():
        task = find_task(name)
        layout = task.layout()
        assert layout.room_size == tuple(facts["room_size_px"])
        assert layout.starts.tolist() == [facts["check_start_px"]]
        assert layout.goals.tolist() == facts["check_goals_px_in_visiting_order"]
        assert len(layout.walls) == facts["check_wall_rectangles"]
        assert (task.max_steps, task.num_goals, state_size(task.num_goals)) == (
            facts["max_steps"],
            facts["num_goals"],
            facts["state_dim"],
        )


@pytest.mark.parametrize("task", PAPER_TASKS.values(), ids=PAPER_TASKS)
def test_every_map_is_readable_and_agrees_with_its_task(task):
    assert task.layout().num_goals == task.num_goals
    assert Layout.parse(task.layout().text, task.room_size) == task.layout()


def test_pixels_of_a_small_map():
    layout = Layout.parse(SMALL, (200, 125))
    assert layout.starts.tolist() == [[40, 42]]
    assert layout.goals.tolist() == [[140, 42], [40, 84]]
    assert layout.num_goals == 2
    free = layout.free()
    assert free.shape == (200, 125)
    assert free[40, 42]
    assert not free[110, 42]  # inside the middle wall


def test_other_spellings_mean_the_same():
    spelled = SMALL.replace("#", "W").replace(".", " ").replace("1", "G").replace("2", "G")
    assert Layout.parse(spelled, goal_order=[0, 1]) == Layout.parse(SMALL)
    swapped = Layout.parse(spelled, goal_order=[1, 0])
    assert swapped.goals.tolist() == Layout.parse(SMALL).goals[::-1].tolist()


def test_load_takes_a_path_or_the_text(tmp_path):
    path = tmp_path / "map.txt"
    path.write_text(SMALL.strip("\n").replace("\n", "\r\n"))
    assert Layout.load(path) == Layout.load(str(path)) == Layout.load(SMALL)
    with pytest.raises(FileNotFoundError, match=r"there is no map 'nowhere\.txt'"):
        Layout.load("nowhere.txt")
    (tmp_path / "picture.txt").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(ValueError, match="not a text file"):
        Layout.load(tmp_path / "picture.txt")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the map is empty"),
        ("\n\n", "the map is empty"),
        ("####\n#A1#\n###", "map line 3 has 3 characters, and line 1 has 4"),
        ("####\n#1.#\n####", "no start"),
        ("####\n#A.#\n####", "no goal"),
        ("#####\n#A?1#\n#####", r"map line 2, column 3 has '\?'"),
        ("######\n#A1.3#\n######", "goal 3 at map line 2, column 5 .* the previous goal is missing"),
        ("######\n#A1.1#\n######", "goal 1 at map line 2, column 5 is repeated"),
        ("#########\n#...#...#\n#.A.#.1.#\n#########", r"no path .* goal 1 \(map line 3, column 7\)"),
        ("######\n#AG.G#\n######", "2 G goals and no order"),
        ("######\n#A1.G#\n######", "map line 2, column 3 has goal 1 beside G goals"),
    ],
)
def test_a_bad_map_is_refused_with_the_place(text, said):
    with pytest.raises(ValueError, match=said):
        Layout.parse(text)


def test_boxes_in_walls_and_bad_arguments_are_refused():
    tight = "#" * 40 + "\n#A" + "." * 36 + "1#\n" + "#" * 40
    with pytest.raises(ValueError, match=r"box of start \(map line 2, column 2\) overlaps a wall"):
        Layout.parse(tight)
    with pytest.raises(ValueError, match="touches the first goal"):
        Layout.parse("A1" + "." * 78 + "\n" + "." * 80)
    with pytest.raises(ValueError, match=r"goal_order is \[0, 0\]"):
        Layout.parse(SMALL.replace("1", "G").replace("2", "G"), goal_order=[0, 0])
    with pytest.raises(ValueError, match="the map has numbered goals"):
        Layout.parse(SMALL, goal_order=[0, 1])
    with pytest.raises(ValueError, match="the width of room_size is 30: it must be an integer from 40"):
        Layout.parse(SMALL, (30, 800))


def test_what_is_larger_than_any_map_is_refused_before_memory_is_taken(tmp_path):
    with pytest.raises(ValueError, match=r"the height of room_size is 60000: .* to 4,096"):
        Layout.parse(SMALL, (800, 60000))
    row = "." * 3000
    with pytest.raises(ValueError, match="more than 100,000 characters"):
        Layout.parse("\n".join([row] * 3000))
    (tmp_path / "long.txt").write_text("#" * 10_000_000)
    with pytest.raises(ValueError, match="has 10,000,000 bytes, and at most 400,000 are read"):
        Layout.load(tmp_path / "long.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes on Windows")
def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would never end
    for source in (tmp_path / "pipe", "/dev/zero", str(tmp_path)):
        with pytest.raises(ValueError, match=f"'{source}' is not a regular file: replace it"):
            Layout.load(source)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n" * 400_000, b"\x00" * 99, SMALL.encode("utf-16"), SMALL.replace(".", "·").encode("latin-1"),
     b"PK\x03\x04" + bytes(range(256)), "é\u2028½\n".encode(), b"A" * 90_000, b"A1\n" * 30_000, b"{" * 5000],
)  # fmt: skip
def test_what_is_no_map_is_a_sentence(tmp_path, content):
    path = tmp_path / "map.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"map|text file"):
        Layout.load(path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"source": 5}, "the map is 5: give a path"),
        ({"source": "a\0b"}, r"the map is 'a\\x00b': give a path"),
        ({"source": ["A.1", 5]}, r"the map is \['A.1', 5\]"),
        *(({"room_size": size}, "room_size") for size in (5, None, "ab", [400], [400, [300]], [400, float("nan")])),
        *(({"room_size": (400, side)}, "the height of room_size") for side in (-1, 0, float("inf"), 1e308, 10**20)),
        *(({"goal_order": order}, "goal_order") for order in (5, "ab", [0.5, 1], [None, 0], [10**20, 0], [-1, 0])),
    ],
)
def test_arguments_of_the_wrong_kind_are_a_sentence(arguments, said):
    goals = SMALL.replace("1", "G").replace("2", "G")
    with pytest.raises(ValueError, match=said):
        Layout.load(**{"source": goals, "goal_order": [0, 1], **arguments})


def test_a_byte_order_mark_is_no_part_of_the_map(tmp_path):
    (tmp_path / "map.txt").write_text(SMALL, encoding="utf-8-sig")
    assert Layout.load(tmp_path / "map.txt") == Layout.parse(SMALL)


def test_a_second_start_must_be_connected_too():
    with pytest.raises(ValueError, match=r"to start \(map line 3, column 9\)"):
        Layout.parse("##########\n#.....#..#\n#.A.1.#.A#\n##########")


def test_many_goals_count_on_into_letters():
    row = "A" + "".join(f".{mark}" for mark in GOAL_MARKS[:12])
    layout = Layout.parse(row + "\n" + "." * len(row), (2000, 400))
    assert layout.num_goals == 12
    assert (np.diff(layout.goals[:, 0]) > 0).all()


@settings(max_examples=80, deadline=None)
@given(st.integers(3, 9), st.integers(3, 9), st.integers(60, 500), st.integers(60, 500), st.randoms())
def test_walls_cover_exactly_the_wall_cells(columns, lines, width, height, random):
    """Every wall cell's center is inside a rectangle, no free cell's is: whatever the map and the room."""
    grid = [[random.choice("#..") for _ in range(columns)] for _ in range(lines)]
    layout = object.__new__(Layout)
    object.__setattr__(layout, "rows", tuple("".join(row) for row in grid))
    object.__setattr__(layout, "room_size", (width, height))
    walls = layout._wall_rectangles()
    for line in range(lines):
        for column in range(columns):
            x, y = (column + 0.5) * width / columns, (line + 0.5) * height / lines
            inside = (
                (walls[:, 0] <= x) & (x < walls[:, 0] + walls[:, 2])
                & (walls[:, 1] <= y) & (y < walls[:, 1] + walls[:, 3])
            ).any()  # fmt: skip
            assert inside == (grid[line][column] == "#")


def test_free_is_where_a_box_fits():
    layout = find_task("maze").layout()
    free = layout.free()
    rng = np.random.default_rng(0)
    for x, y in rng.integers(0, 800, (300, 2)):
        left, top, width, height = layout.walls.T
        half = BOX // 2
        apart = (x + half <= left) | (x - half >= left + width) | (y + half <= top) | (y - half >= top + height)
        assert free[x, y] == apart.all()


def test_a_map_may_have_more_cells_than_pixels():
    layout = Layout.parse("A" + "." * 799 + "1", (400, 100))
    assert layout.goals.tolist() == [[399.0, 0.0]]
    tall = Layout.parse("\n".join(["A", *["."] * 799, "1"]), (100, 400))
    assert tall.goals.tolist() == [[0.0, 399.0]]
