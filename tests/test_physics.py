"""The dynamics: bit for bit those of the paper's recordings, alike for one agent and for many, never inside a wall."""

import contextlib
import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.layout import BOX, MARGIN, Layout
from pidm_nav.world2d.physics import SPEED, Physics, _push_tables, touches_many, touches_one
from pidm_nav.world2d.state import join_state, split_state

GOLDEN = Path(__file__).parent / "golden_physics.npz"  # made by scripts/make_golden_physics.py


def one_by_one(physics, position, velocity):
    pairs = zip(position.tolist(), velocity.tolist(), strict=True)
    return np.array([physics.move_one(*place, action, (0.0, 0.0)) for place, action in pairs])


def all_at_once(physics, position, velocity):
    return physics.move_many(position, velocity, np.zeros_like(position))


@pytest.mark.parametrize("step", [one_by_one, all_at_once])
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_the_paper_s_vectors_bit_for_bit(shared, name, step):
    golden = np.load(shared / "data" / "golden_physics" / f"{name.replace('-', '_')}.npz")
    physics = Physics(PAPER_TASKS[name].layout(), clip_noise=False, deadzone=0.0)
    moved = step(physics, golden["position"], golden["velocity"])
    assert len(moved) == 6000
    np.testing.assert_array_equal(moved, golden["next_position"])


@pytest.mark.parametrize("step", [one_by_one, all_at_once])
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_our_own_vectors_bit_for_bit(name, step):
    golden = np.load(GOLDEN)
    physics = Physics(PAPER_TASKS[name].layout(), clip_noise=False, deadzone=0.0)
    moved = step(physics, golden[f"{name}/position"], golden[f"{name}/velocity"])
    np.testing.assert_array_equal(moved, golden[f"{name}/next_position"])
    free_move = golden[f"{name}/position"] + SPEED * golden[f"{name}/velocity"]
    assert (np.abs(moved - free_move) > 1).any(axis=1).mean() > 0.1, "the vectors should include many collisions"


@pytest.mark.parametrize("who", ["human", "astar"])
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_the_goal_rule_on_all_recordings(shared, name, who):
    """Walking along a recorded trajectory, our rule reaches the goals in exactly the recorded steps."""
    data = np.load(shared / "data" / "reference_demos" / f"{name.replace('-', '_')}_{who}.npz")
    positions, goals, reached = split_state(data["states"])
    first = np.cumsum(data["lengths"] + 1) - (data["lengths"] + 1)
    after = np.setdiff1d(np.arange(len(positions)), first)  # the state after each action
    current = goals[after, reached[after - 1]]  # the goal that was current in that step
    touched = touches_many(positions[after], current)
    alone = [touches_one(*place, goal) for place, goal in zip(positions[after].tolist(), current.tolist(), strict=True)]
    np.testing.assert_array_equal(touched, alone)
    np.testing.assert_array_equal(touched.astype(np.float32), data["rewards"])
    np.testing.assert_array_equal(reached[after] - reached[after - 1], data["rewards"])


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_recorded_positions_are_free(shared, name):
    """No recorded position is inside one of our walls."""
    data = np.load(shared / "data" / "reference_demos" / f"{name.replace('-', '_')}_human.npz")
    physics = Physics(PAPER_TASKS[name].layout(), clip_noise=False)
    positions, _, _ = split_state(data["states"])
    assert not physics.collides(positions).any()


def test_the_order_of_deadzone_noise_and_clip():
    open_room = Layout.parse("." * 20 + "\n" + ".A" + "." * 16 + "1.\n" + "." * 20)
    physics = Physics(open_room)
    assert physics.move_one(400.0, 400.0, (0.09, -0.09), (0.0, 0.0)) == (400.0, 400.0)
    assert physics.move_one(400.0, 400.0, (0.1, -0.5), (0.0, 0.0)) == (402.0, 390.0)
    assert physics.move_one(400.0, 400.0, (0.0, 0.0), (0.05, -0.05)) == (401.0, 399.0), "noise has no deadzone"
    assert physics.move_one(400.0, 400.0, (1.0, -1.0), (0.5, -0.5)) == (420.0, 380.0)
    unclipped = Physics(open_room, clip_noise=False)
    assert unclipped.move_one(400.0, 400.0, (1.0, -1.0), (0.5, -0.5)) == (430.0, 370.0)
    assert physics.move_one(795.0, 3.0, (1.0, -1.0), (0.0, 0.0)) == (799.0, 0.0)
    assert physics.move_one(400.0, 400.0, (1 / 3, 0.0), (0.0, 0.0)) == (406.667, 400.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"noise_std": -0.1}, "noise_std is -0.1"),
        ({"noise_std": np.nan}, "noise_std is nan"),
        ({"deadzone": 1.0}, "deadzone is 1.0"),
    ],
)
def test_bad_arguments_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        Physics(PAPER_TASKS["maze"].layout(), **arguments)


def test_touching_is_half_to_even_and_open():
    assert touches_one(100.0, 100.0, (119.0, 81.0))
    assert not touches_one(100.0, 100.0, (120.0, 100.0))
    assert touches_one(100.5, 100.0, (119.0, 100.0)), "100.5 rounds to 100"
    assert not touches_one(100.0, 100.0, (100.0, 120.0))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(4, 12),
    st.integers(4, 12),
    st.integers(120, 600),
    st.integers(120, 600),
    st.integers(0, 10**6),
)
def test_no_agent_ever_rests_in_a_wall(columns, lines, width, height, seed):
    """Random maps, random walks without clip (the wildest moves): outside walls and within the margin, always."""
    rng = np.random.default_rng(seed)
    layout = None
    while layout is None:  # most maps drawn at random have a start or goal in a wall or out of reach
        grid = rng.choice(list("#..."), (lines, columns))
        grid[rng.integers(lines), rng.integers(columns)] = "1"
        grid[rng.integers(lines), rng.integers(columns)] = "A"
        with contextlib.suppress(ValueError):
            layout = Layout.parse("\n".join("".join(row) for row in grid), (width, height))
    physics = Physics(layout, noise_std=0.6, clip_noise=False)
    places = np.argwhere(layout.free()).astype(float)
    position = places[rng.integers(len(places), size=64)]
    for _ in range(60):
        action, noise = rng.uniform(-1, 1, (64, 2)), rng.normal(0, 0.6, (64, 2))
        before, position = position, physics.move_many(position, action, noise)
        assert not physics.collides(position).any()
        assert (position > -MARGIN).all()
        assert (position < np.array([width, height]) + MARGIN).all()
        single = zip(before.tolist(), action.tolist(), noise.tolist(), strict=True)
        assert [physics.move_one(*place, *rest) for place, *rest in single] == list(map(tuple, position.tolist()))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(PAPER_TASKS)), st.booleans(), st.integers(0, 10**6))
def test_floats_and_arrays_agree(name, clip_noise, seed):
    rng = np.random.default_rng(seed)
    physics = Physics(PAPER_TASKS[name].layout(), clip_noise=clip_noise)
    places = np.argwhere(PAPER_TASKS[name].layout().free())
    position = places[rng.integers(len(places), size=200)] + rng.uniform(-0.4, 0.4, (200, 2)).round(3)
    position = position[~physics.collides(position)]
    action, noise = rng.uniform(-1, 1, position.shape), rng.normal(0, 0.2, position.shape)
    single = zip(position.tolist(), action.tolist(), noise.tolist(), strict=True)
    expected = np.array([physics.move_one(*place, *rest) for place, *rest in single])
    assert physics.move_many(position, action, noise).tobytes() == expected.tobytes()


def test_tables_are_shared_and_bounded():
    """Small maps share their tables; those of large maps do not pile up."""
    lines = "." * 20 + "\n" + ".A" + "." * 16 + "1.\n" + "." * 20
    first, again = (Physics(Layout.parse(lines)) for _ in range(2))
    assert first._tables is again._tables
    before = _memory(lines, 1)
    assert _memory(lines, 7) - before < 300e6  # seven of 53 MB each


def _memory(lines, maps):
    """Return the bytes that are held after the tables of this many maps of 4,096 by 4,096 pixels were made."""
    gc.collect()
    tracemalloc.start()
    for number in range(maps):
        _push_tables(Layout.parse(lines, (4096 - number, 4096)))
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def test_state_vectors_split_and_join_exactly():
    layout = PAPER_TASKS["maze"].layout()
    rng = np.random.default_rng(0)
    positions = rng.uniform(-MARGIN, 1000, (500, 2)).round(3)
    reached = rng.integers(0, 11, 500)
    goals = np.broadcast_to(layout.goals, (500, 10, 2))
    again = split_state(join_state(positions, goals, reached))
    for part, expected in zip(again, (positions, goals, reached), strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_a_million_steps_stay_out_of_the_walls(name):
    rng = np.random.default_rng(1)
    layout = PAPER_TASKS[name].layout()
    physics = Physics(layout, clip_noise=False)
    positions = np.repeat(layout.starts, 1000, axis=0)
    for _ in range(1000):
        positions = physics.move_many(positions, rng.uniform(-1, 1, (1000, 2)), rng.normal(0, 0.2, (1000, 2)))
        assert not physics.collides(positions).any()
        assert (positions > -MARGIN).all()
        assert (positions < np.array(layout.room_size) + MARGIN).all()


def test_a_box_is_twenty_pixels():
    assert BOX == 20
    wall = Layout.parse(
        "..........#.........\n" * 2
        + ".A........#.........\n"
        + "...................1\n"
        + "....................\n" * 2
    )
    physics = Physics(wall)
    left = wall.walls[0, 0]
    assert not physics.collides(np.array([left - 10.0, 100.0]))
    assert physics.collides(np.array([left - 9.0, 100.0]))
