"""Frames, the window, maps on matplotlib axes and videos."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import binary_dilation, binary_erosion

from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.video import Window, side_by_side, write_video
from pidm_nav.world2d.drawing import COLORS, FLOOR, WALL, view_room
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.render import draw_map, render_state
from pidm_nav.world2d.state import join_state

WIDE = Layout.parse("###########\n#.........#\n#.A.....1.#\n#.........#\n###########", (600, 200))
NO_DISPLAY = {
    name: value
    for name, value in os.environ.items()
    if name not in ("DISPLAY", "WAYLAND_DISPLAY") and not name.startswith("SDL_")
}


def state_of(layout: Layout, goals_reached: int = 0) -> np.ndarray:
    return join_state(layout.starts[0], layout.goals, np.asarray(goals_reached))


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=NO_DISPLAY | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_colors_say_what_is_what(task: str) -> None:
    layout = PAPER_TASKS[task].layout()
    for goals_reached in range(layout.num_goals + 1):
        frame = render_state(layout, state_of(layout, goals_reached))
        x, y = layout.starts[0].astype(int)
        assert tuple(frame[y, x]) == COLORS["agent"]
        for rank, (x, y) in enumerate(layout.goals.astype(int)):
            later = "current" if rank == goals_reached else "later"
            # Above the number, which is white.
            assert tuple(frame[y - 8, x]) == COLORS["reached" if rank < goals_reached else later]
            assert (frame[y - 6 : y + 6, x - 8 : x + 8] > 230).all(-1).any(), "the number is missing"


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_walls_are_drawn_where_the_agent_meets_them(task: str) -> None:
    layout = PAPER_TASKS[task].layout()
    width, height = layout.room_size
    walls = np.zeros((height, width), dtype=bool)
    for left, top, wide, high in layout.walls:
        walls[max(top, 0) : top + high, max(left, 0) : left + wide] = True
    frame = render_state(layout, state_of(layout))
    drawn = frame.max(axis=-1) < 60
    around = np.ones((9, 9), dtype=bool)
    assert drawn[binary_erosion(walls, around, border_value=1)].all()
    assert not drawn[~binary_dilation(walls, around)].any()
    assert (frame[drawn] == WALL).all(-1).mean() > 0.9
    assert (frame == FLOOR).all(-1).sum() > 0.3 * (~walls).sum()


@pytest.mark.parametrize("task", PAPER_TASKS)
@pytest.mark.parametrize("size", [None, 400, 224, 84, (96, 64)])
def test_frames_are_fresh_contiguous_and_repeatable(task: str, size: int | tuple[int, int] | None) -> None:
    layout = PAPER_TASKS[task].layout()
    state = state_of(layout, 1)
    trace = np.linspace(layout.starts[0], layout.goals[0], 30)
    first, second = (render_state(layout, state, size, trace) for _ in range(2))
    assert first.shape == shape_of(layout, size)
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous and first.flags.writeable
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)
    first[:] = 0  # must not reach what is kept for the next frame
    np.testing.assert_array_equal(render_state(layout, state, size, trace), second)


def shape_of(layout: Layout, size: int | tuple[int, int] | None = None) -> tuple[int, int, int]:
    view = view_room(layout.room_size, size)
    return view.height, view.width, 3


def test_size_is_the_longest_side_or_a_box() -> None:
    assert render_state(WIDE, state_of(WIDE)).shape == (200, 600, 3)
    assert render_state(WIDE, state_of(WIDE), 90).shape == (30, 90, 3)
    assert render_state(WIDE, state_of(WIDE), (84, 84)).shape == (84, 84, 3)
    square = render_state(WIDE, state_of(WIDE), (600, 600))
    np.testing.assert_array_equal(square[:190], np.broadcast_to(WALL, (190, 600, 3)))
    x, y = WIDE.starts[0].astype(int)
    assert tuple(square[200 + y, x]) == COLORS["agent"]


@pytest.mark.parametrize("size", [84, 224])
def test_small_frames_show_every_move(size: int) -> None:
    """Pixel observations must tell positions apart that differ by less than a frame pixel."""
    layout = PAPER_TASKS["maze"].layout()
    state = state_of(layout)
    frame = render_state(layout, state, size)
    state[0] += 0.3 * 800 / size
    assert (render_state(layout, state, size) != frame).any()


def test_trace_is_drawn_and_fades() -> None:
    layout = PAPER_TASKS["four-room"].layout()
    trace = np.stack([np.linspace(100, 360, 60), np.full(60, 300)], axis=-1)
    frame = render_state(layout, state_of(layout), trace=trace).astype(int)
    plain = render_state(layout, state_of(layout)).astype(int)
    old, new = frame[300, 120], frame[300, 350]
    assert (old[2] - old[0]) > 30 and (new[2] - new[0]) > 100
    changed = np.argwhere((frame != plain).any(-1))
    assert changed[:, 0].min() >= 296 and changed[:, 0].max() <= 304
    np.testing.assert_array_equal(render_state(layout, state_of(layout), trace=trace[:1]), plain)


@settings(max_examples=50, deadline=None)
@given(
    x=st.floats(-32, 832),
    y=st.floats(-32, 832),
    goals_reached=st.integers(0, 10),
    size=st.sampled_from([16, 84, 200, 333, (64, 100)]),
)
def test_any_state_can_be_drawn(x: float, y: float, goals_reached: int, size: int | tuple[int, int]) -> None:
    layout = PAPER_TASKS["maze"].layout()
    state = state_of(layout, goals_reached)
    state[:2] = x, y
    frame = render_state(layout, state, size)
    assert frame.shape == shape_of(layout, size)
    if size == 333 and 10 < x < 790 and 10 < y < 790:
        blue = frame.astype(int)[int(y * 333 / 800), int(x * 333 / 800)]
        assert np.abs(blue - COLORS["agent"]).max() < 10


@pytest.mark.parametrize("state", [[1.0], [[1.0, 2.0]], [1.0, np.nan], [1.0, 2.0, 3.0], []])
def test_what_is_no_state_is_refused(state: list[float]) -> None:
    with pytest.raises(ValueError, match="cannot draw a state of shape"):
        render_state(WIDE, state)


@pytest.mark.parametrize("size", [0, 15, -84, (84, 3), 4097, 10**20, (84, 1e308), float("nan")])
def test_frames_without_a_sensible_size_are_refused(size: int | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="a side of the picture is"):
        render_state(WIDE, state_of(WIDE), size)


def test_frames_need_no_display_and_no_audio() -> None:
    done = run(
        """
import numpy as np
from pidm_nav.world2d.render import render_state
from pidm_nav.video import side_by_side
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.state import join_state
import pygame
def forbidden(*_): raise AssertionError("initialized too much")
pygame.init = pygame.display.init = pygame.display.set_mode = pygame.mixer.init = forbidden
for task in PAPER_TASKS.values():
    layout = task.layout()
    for size in (None, 224, 84):
        state = join_state(layout.starts[0], layout.goals, np.asarray(1))
        frame = render_state(layout, state, size, trace=layout.goals)
        side_by_side([frame, frame], ["one", "two"])
assert not pygame.display.get_init() and not pygame.get_init() and pygame.mixer.get_init() is None
print("ok")
"""
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr  # not even pygame's greeting


def test_importing_brings_neither_pygame_nor_matplotlib() -> None:
    program = "import sys, pidm_nav.video, pidm_nav.world2d.render\n"
    done = run(program + "print({'pygame', 'matplotlib', 'imageio', 'scipy', 'PIL'} & {*sys.modules})")
    assert done.stdout == "set()\n", done.stderr


def test_window_opens_late_shows_frames_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    import pygame

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = Window("a title")
    window.close()  # nothing to close, no complaint
    assert not pygame.display.get_init()
    frame = render_state(WIDE, state_of(WIDE))
    for shown in (frame, frame[:, ::-1], frame[:100, :300]):
        window.show(shown, fps=1000)
        screen = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
        np.testing.assert_array_equal(screen, shown)
    assert pygame.display.get_caption()[0] == "a title"
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_a))
    assert pygame.KEYDOWN in [event.type for event in window.show(frame, fps=1000)]
    assert not window.closed
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    window.show(frame, fps=1000)
    assert window.closed and not pygame.display.get_init()
    assert window.show(frame, fps=1000) == []
    assert not pygame.display.get_init()
    window.close()
    window.show(frame, fps=1000)
    assert pygame.display.get_init()
    window.close()
    assert not pygame.display.get_init()


def test_a_frame_larger_than_the_desktop_is_shown_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    import pygame

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(pygame.display, "get_desktop_sizes", lambda: [(1366, 768)])
    window = Window()
    for _ in range(2):
        window.show(np.full((800, 800, 3), 200, np.uint8), fps=1000)
        surface = pygame.display.get_surface()
        assert surface.get_size() == (688, 688) and surface.get_at((344, 344)).r == pytest.approx(200, abs=4)
    window.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need no display server")
@pytest.mark.parametrize("driver", ["x11", None])
def test_window_without_a_display_says_so(driver: str | None) -> None:
    if driver is None and Path("/dev/dri").exists():
        pytest.skip("SDL can draw on this console without a display server")
    done = run(
        """
import numpy as np
from pidm_nav.video import Window
window = Window()
try:
    window.show(np.zeros((40, 40, 3), np.uint8))
except OSError as error:
    print(error)
window.close()
""",
        **({"SDL_VIDEODRIVER": driver} if driver else {}),
    )
    assert done.returncode == 0, done.stderr
    assert "window" in done.stdout and "rgb_array" in done.stdout and done.stdout.count("\n") == 1


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_map_on_axes(task: str) -> None:
    from matplotlib.figure import Figure

    layout = PAPER_TASKS[task].layout()
    ax = Figure().add_subplot()
    draw_map(ax, layout)
    width, height = layout.room_size
    assert ax.get_xlim() == (0, width) and ax.get_ylim() == (height, 0)
    assert ax.get_aspect() == 1
    assert [text.get_text() for text in ax.texts] == [str(i + 1) for i in range(layout.num_goals)]
    walls, starts, goals = ax.collections
    assert len(walls.get_paths()) == len(layout.walls)
    assert len(starts.get_paths()) == len(layout.starts)
    centers = [path.get_extents().get_points().mean(axis=0) for path in goals.get_paths()]
    np.testing.assert_allclose(centers, layout.goals)


def test_map_on_axes_with_other_goals() -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    draw_map(ax, WIDE, goals=[[100, 100], [300, 100]])
    assert [text.xy for text in ax.texts] == [(100, 100), (300, 100)]


def test_side_by_side_keeps_the_frames() -> None:
    left = np.full((60, 40, 3), 10, np.uint8)
    right = np.full((50, 80, 3), 200, np.uint8)
    titled, plain = (
        side_by_side([left, right], ["BC", "a title too long for its frame"]),
        side_by_side([left, right]),
    )
    for frame in (titled, plain):
        assert (frame == 10).all(-1).sum() >= left[..., 0].size
        assert (frame == 200).all(-1).sum() >= right[..., 0].size
        assert (frame[0, 0] == 255).all() and frame.flags.c_contiguous
    assert titled.shape[0] > plain.shape[0]
    bar = titled[: titled.shape[0] - plain.shape[0]]
    assert (bar[:, :44] < 128).any() and (bar[:, 50:] < 128).any()


def test_side_by_side_refuses_missing_titles() -> None:
    frame = np.zeros((20, 20, 3), np.uint8)
    with pytest.raises(ValueError, match="2 frames and 1 titles"):
        side_by_side([frame, frame], ["one"])
    with pytest.raises(ValueError, match="0 frames"):
        side_by_side([])


def episode(size: int = 101) -> list[np.ndarray]:
    layout = PAPER_TASKS["maze"].layout()
    path = np.linspace(layout.starts[0], layout.goals[0], 12)
    states = np.repeat(state_of(layout)[None], 12, axis=0)
    states[:, :2] = path
    return [render_state(layout, state, size, path[: i + 1]) for i, state in enumerate(states)]


@pytest.mark.parametrize("name", ["a.gif", "deep/er/b.mp4", "UPPER.GIF"])
def test_video_holds_the_frames(tmp_path: Path, name: str) -> None:
    import imageio.v3 as imageio

    frames = episode()
    path = write_video(iter(frames), tmp_path / name, fps=10)
    assert path == tmp_path / name
    assert [p.name for p in path.parent.iterdir() if p.is_file()] == [path.name]  # no temporary file is left
    seen = imageio.imread(path)
    assert len(seen) == len(frames)
    for frame, saved in zip(frames, seen, strict=True):
        difference = np.abs(saved[:101, :101].astype(int) - frame)
        assert difference.mean() < 4
        assert np.percentile(difference, 99) < 40


def test_gif_keeps_colors_and_speed(tmp_path: Path) -> None:
    from PIL import Image

    frames = episode(400)
    path = write_video(frames, tmp_path / "a.gif", fps=20)
    with Image.open(path) as image:
        assert image.info["duration"] == 50 and image.info["loop"] == 0
        image.seek(11)
        saved = np.asarray(image.convert("RGB"))
    for color in (*COLORS.values(), FLOOR, WALL):
        if (frames[-1] == color).all(-1).any():
            assert (saved == color).all(-1).any()
    assert path.stat().st_size < 100_000


def test_frames_can_be_skipped_at_the_same_speed(tmp_path: Path) -> None:
    import imageio.v3 as imageio
    from PIL import Image

    frames = episode()
    path = write_video(frames, tmp_path / "a.gif", fps=20, every=3)
    with Image.open(path) as image:
        assert image.info["duration"] == 150
    seen = imageio.imread(path)
    assert len(seen) == 5  # 0, 3, 6, 9 and the last
    assert np.abs(seen[-1].astype(int) - frames[-1]).mean() < 4


def test_bad_videos_are_refused_and_harm_nothing(tmp_path: Path) -> None:
    frames = episode()
    kept = write_video(frames, tmp_path / "kept.gif")
    before = kept.read_bytes()
    with pytest.raises(ValueError, match=r"ends with \.gif or \.mp4"):
        write_video(frames, tmp_path / "a.avi")
    with pytest.raises(ValueError, match="needs frames"):
        write_video([], kept)
    with pytest.raises(ValueError, match="one shape"):
        write_video([frames[0], frames[0][1:]], kept)
    with pytest.raises(ValueError, match="every is 0"):
        write_video(frames, kept, every=0)
    for name in ("a.gif", "a.mp4"):
        with pytest.raises(OSError, match=r"cannot write .* choose another place"):
            write_video(frames, kept / name)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(OSError, match=r"cannot write|is a folder"):
        write_video(frames, tmp_path / "folder.gif")
    assert kept.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.gif", "kept.gif"]
