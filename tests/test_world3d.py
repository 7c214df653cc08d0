"""The 3D environment, in the real engine."""

import copy
import mmap
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray

from pidm_nav.world3d.env import NavEnv3D
from pidm_nav.world3d.levels import LEVELS, NEAR, TOUCH

pytest.importorskip("vizdoom", reason="the extra 3d is not installed")

FORWARD, BACK = np.array([1, 0, 0, 0], np.float32), np.array([-1, 0, 0, 0], np.float32)
TURN = np.array([0, 0, 1, 0], np.float32)
NOTHING = np.zeros(4, np.float32)


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes environments, and closes them in the end."""
    made: list[NavEnv3D] = []

    def build(task: str = "tour-3d", **arguments: Any) -> NavEnv3D:
        made.append(NavEnv3D(task=task, **arguments))
        return made[-1]

    yield build
    for env in made:
        env.close()


def _engines(parent: int) -> list[int]:
    """The engine's processes below one of ours."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.endswith("(vizdoom") and int(rest.split()[1]) == parent:
            found.append(int(status.parent.name))
    return found


def _play(env: NavEnv3D, seed: int, steps: int = 25) -> list[NDArray[Any]]:
    """Everything that an episode shows, with actions of another generator."""
    rng = np.random.default_rng(3)
    observation, info = env.reset(seed=seed)
    shown = [observation, info["state"]]
    for _ in range(steps):
        observation, *_, info = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
        shown += [observation, info["state"]]
    return shown


@pytest.mark.filterwarnings("error")
def test_check_env_passes() -> None:
    env = gym.make("PIDMNav3D-Tour-v0", disable_env_checker=True)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("level", LEVELS)
def test_check_env_passes_with_states(make: Any, level: str) -> None:
    check_env(make(level, obs_type="state"), skip_render_check=True)


@pytest.mark.parametrize("arguments", [{}, {"latency_ms": (0, 250), "drop_frames": 0.3}], ids=["plain", "delayed"])
def test_one_seed_gives_one_episode_to_the_bit(make: Any, arguments: dict[str, Any]) -> None:
    first, second = make(**arguments), make(**arguments)
    expected = _play(first, seed=5)
    _play(second, seed=6, steps=10)
    for env in (first, second):  # again in the same engine, and in another that played something else before
        for shown, wanted in zip(_play(env, seed=5), expected, strict=True):
            np.testing.assert_array_equal(shown, wanted)
    other = _play(first, seed=6)
    assert any((a != b).any() for a, b in zip(other, expected, strict=True))


def test_the_four_axes_do_what_they_say(make: Any) -> None:
    env = make("zigzag-3d", noise_std=0.0, obs_type="state")

    def move(*action: float) -> NDArray[np.float64]:
        """Forward, left, degrees turned left and looked up."""
        before, _ = env.reset(seed=0)
        for _ in range(6):
            after, *_ = env.step(np.array(action, np.float32))
        east, north = (after - before)[:2]
        cos, sin = before[3], before[4]
        turned = np.degrees(np.arctan2(after[4] * cos - after[3] * sin, after[3] * cos + after[4] * sin))
        return np.array([east * cos + north * sin, north * cos - east * sin, turned, after[5] - before[5]])

    forward, right, turn, look = move(1, 0, 0, 0), move(0, 1, 0, 0), move(0, 0, 1, 0), move(0, 0, 0, 1)
    assert forward[0] > 50 and np.abs(forward[1:]).max() < 1
    assert right[1] < -40 and np.abs(right[[0, 2, 3]]).max() < 1
    np.testing.assert_allclose(turn, [0, 0, -90, 0], atol=1)
    assert look[3] > 25 and np.abs(look[:3]).max() < 1
    np.testing.assert_allclose(move(-1, 0, 0, 0)[0], -forward[0], rtol=0.05)


def test_noise_and_deadzone_are_those_of_the_2d_tasks(make: Any) -> None:
    quiet = make(noise_std=0.0, obs_type="state", deadzone=0.3)
    start, _ = quiet.reset(seed=0)
    for _ in range(5):
        state, *_ = quiet.step(np.full(4, 0.29, np.float32))
    np.testing.assert_array_equal(state, start)
    noisy = make(noise_std=0.2, obs_type="state")
    start, _ = noisy.reset(seed=0)
    for _ in range(5):
        state, *_ = noisy.step(NOTHING)
    assert (state[:6] != start[:6]).sum() >= 5


def test_latency_delays_what_an_action_does(make: Any) -> None:
    traveled = {}
    for latency in ((0, 0), (200, 200)):
        env = make("zigzag-3d", noise_std=0.0, obs_type="state", latency_ms=latency)
        start, _ = env.reset(seed=0)
        traveled[latency] = [float(np.hypot(*(env.step(FORWARD)[0] - start)[:2])) for _ in range(6)]
    assert traveled[(200, 200)][:2] == [0.0, 0.0]  # 7 tics: two whole steps, and a third of the next
    assert traveled[(0, 0)][0] > 0 and traveled[(200, 200)][2] > 0
    assert traveled[(200, 200)][5] < traveled[(0, 0)][5]


def test_dropped_frames_repeat_what_was_seen_and_not_the_state(make: Any) -> None:
    env = make(drop_frames=0.5, noise_std=0.0)
    before, info = env.reset(seed=1)
    repeated = 0
    for _ in range(30):
        angle = info["state"][3:5]
        observation, *_, info = env.step(TURN * 0.5)
        repeated += bool((observation == before).all())
        assert (info["state"][3:5] != angle).any()
        before = observation
    assert 5 < repeated < 25


def test_milestones_come_in_order_and_are_seen_to(make: Any) -> None:
    env = make("tour-3d", noise_std=0.0, render_mode="rgb_array")
    _, info = env.reset(seed=0)
    assert (info["milestone"], info["goals_reached"], info["num_goals"]) == ("turn round", 0, 11)
    rewards, names = [], []
    for _ in range(12):
        _, reward, terminated, truncated, info = env.step(TURN)
        rewards.append(reward)
        names.append(info["milestone"])
        if reward:
            assert info["reached_goal"] == 0
            break
    assert sum(rewards) == 1 and names[-1] == "cross the hall" and not (terminated or truncated)
    assert info["state"][6:].tolist() == [1.0] + [0.0] * 10 and info["goal_ratio"] == 1 / 11
    before = env.render()
    for _ in range(3):
        env.step(NOTHING)
    after = env.render()
    assert before is not None and after is not None and (before != after).any()  # one torch went out, one was lit


def test_a_milestone_out_of_order_is_achieved_but_not_reached(make: Any) -> None:
    env = make("tour-3d", noise_std=0.0)
    _, info = env.reset(seed=0)
    assert info["achieved"].tolist() == [False] * 11
    env.place(*env.level.milestones[10].place)  # where to stand still
    achieved = []
    for _ in range(12):
        *_, info = env.step(NOTHING)
        achieved.append(info["achieved"])
    assert info["state"][:2] == pytest.approx(env.level.milestones[10].place, abs=0.1)
    assert info["achieved"].tolist() == [False] * 10 + [True] and info["goals_reached"] == 0
    assert not achieved[10].any()  # a second has 12 steps of 3 tics
    _, info = env.reset(seed=0)
    assert not info["achieved"].any()


def test_a_placed_walker_keeps_its_speed(make: Any) -> None:
    env = make("zigzag-3d", noise_std=0.0, obs_type="state")
    tracks = []
    for moved in (0.0, 30.0):
        env.reset(seed=0)
        for _ in range(4):
            state, *_ = env.step(FORWARD)
        env.place(state[0], state[1] + moved)
        tracks.append([env.step(NOTHING)[0][:2] for _ in range(3)])
    stayed, placed = np.array(tracks)
    assert np.abs(np.diff(stayed, axis=0)).max() > 5
    np.testing.assert_allclose(placed - stayed, np.tile([0.0, 30.0], (3, 1)), atol=0.01)


def test_places_count_from_as_near_as_said() -> None:
    env = NavEnv3D(task="tour-3d", obs_type="state")  # what is asked here needs no engine
    from pidm_nav.world3d.engine import Pose

    milestones = {milestone.kind: milestone for milestone in env.level.milestones}
    x, y = milestones["reach"].place
    assert env._passes(milestones["reach"], Pose(x + TOUCH - 1, y - TOUCH + 1, 0, 0, 0))
    assert not env._passes(milestones["reach"], Pose(x + TOUCH + 1, y, 0, 0, 0))
    x, y = milestones["look up"].place
    assert env._passes(milestones["look up"], Pose(x + NEAR - 1, y, 0, 0, 16))
    assert not env._passes(milestones["look up"], Pose(x, y, 0, 0, 14))
    x, y = milestones["stand still"].place
    assert not env._passes(milestones["stand still"], Pose(x, y, 0, 0, 0))


def test_realtime_goes_on_while_the_policy_thinks(make: Any) -> None:
    env = make(realtime=True, obs_type="state")
    env.reset(seed=0)
    assert env.step(NOTHING)[4]["tics"] >= 3
    # Real time is the clock's: the process stops for eight tics and has missed at least five of them.
    subprocess.run([sys.executable, "-I", "-c", f"import select; select.select([], [], [], {8 / 35})"], check=True)
    assert env.step(NOTHING)[4]["tics"] >= 8


def test_pictures_have_the_size_asked_for(make: Any) -> None:
    env = make(image_size=64, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    assert observation.shape == (48, 64, 3) and observation.dtype == np.uint8
    picture = env.render()
    assert picture is not None and picture.shape == (240, 320, 3) and picture.std() > 10


def test_a_window_shows_the_world(make: Any) -> None:
    import pygame

    env = make(render_mode="human", image_size=32)
    env.reset(seed=0)
    env.step(FORWARD)
    surface = pygame.display.get_surface()
    assert surface is not None and surface.get_size() == (640, 480)
    assert np.asarray(pygame.surfarray.array3d(surface)).std() > 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "cellar"}, "there is no task 'cellar'"),
        ({"task": "maze"}, "maze is not a 3D task"),
        ({"render_mode": "ascii"}, "render_mode is 'ascii'"),
        ({"noise_std": -1.0}, "noise_std is -1.0"),
        ({"deadzone": 1.0}, "deadzone is 1.0"),
        ({"obs_type": "depth"}, "obs_type is 'depth'"),
        ({"image_size": 8}, "image_size is 8"),
        ({"frame_skip": 0}, "frame_skip is 0"),
        ({"latency_ms": (50, 20)}, "latency_ms is"),
        ({"drop_frames": 1.0}, "drop_frames is 1.0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NavEnv3D(**arguments)


def test_wrong_actions_and_times_are_named(make: Any) -> None:
    env = make(obs_type="state")
    with pytest.raises(ValueError, match="call reset"):
        env.step(NOTHING)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="NaN"):
        env.step(np.full(4, np.nan, np.float32))


def test_the_step_limit_truncates() -> None:
    env = gym.make("PIDMNav3D-Zigzag-v0", max_episode_steps=3, obs_type="state", disable_env_checker=True)
    env.reset(seed=0)
    ends = [env.step(NOTHING)[3] for _ in range(3)]
    env.close()
    assert ends == [False, False, True]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
class TestProcesses:
    def test_close_leaves_no_process_and_no_file_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        env = NavEnv3D(task="zigzag-3d")
        assert not _engines(os.getpid())  # an environment that has not begun has no engine
        for _ in range(2):
            env.reset(seed=0)
            assert len(_engines(os.getpid())) == 1
            env.close()
            assert not _engines(os.getpid())
            assert not list(tmp_path.iterdir())
        env.close()

    def test_several_at_once(self) -> None:
        envs = gym.make_vec(
            "PIDMNav3D-Zigzag-v0", 2, vectorization_mode="async", vector_kwargs={"context": "spawn"}, image_size=32
        )
        observations, _ = envs.reset(seed=[1, 1])
        assert observations.shape == (2, 24, 32, 3)
        for _ in range(5):
            observations, *_ = envs.step(np.tile(FORWARD, (2, 1)))
        np.testing.assert_array_equal(observations[0], observations[1])
        envs.close()
        assert not _engines(os.getpid())

    @pytest.mark.parametrize("number", [signal.SIGTERM, getattr(signal, "SIGKILL", 9)])  # Windows has no SIGKILL
    def test_a_killed_process_takes_its_engine_along_and_leaves_nothing(self, tmp_path: Path, number: int) -> None:
        program = (
            "import sys\nfrom pidm_nav.world3d.env import NavEnv3D\n"
            "env = NavEnv3D(task='zigzag-3d'); env.reset(seed=0); print('running', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", program]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None and process.stdout.readline().strip() == "running"
            (engine,) = _engines(process.pid)
            words = Path(f"/proc/{engine}/cmdline").read_text().split("\0")
            name = words[words.index("+viz_instance_id") + 1]
            descriptor = os.pidfd_open(engine)
            process.send_signal(number)
            process.wait()
            # A process's descriptor becomes readable when it has ended.
            ended, _, _ = select.select([descriptor], [], [], 30)
            os.close(descriptor)
        assert ended
        assert not list(tmp_path.iterdir()) and not list(Path("/dev/shm").glob(f"ViZDoom*{name}"))

    def test_the_next_start_removes_what_a_killed_start_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        left, living = (Path(f"/dev/shm/ViZDoomSM{word}{os.getpid()}") for word in ("left", "living"))
        for path in (left, living):
            path.write_bytes(bytes(4096))
        try:
            with living.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
                env = NavEnv3D(task="zigzag-3d")
                env.reset(seed=0)
                env.close()
                assert living.exists() and not left.exists() and not list(tmp_path.iterdir())
        finally:
            living.unlink()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"])
def test_a_copy_starts_an_engine_of_its_own(make: Any, copied: Any) -> None:
    env = make("zigzag-3d", obs_type="state")
    env.reset(seed=3)
    env.step(FORWARD)
    other = copied(env)
    try:
        with pytest.raises(ValueError, match="call reset"):
            other.step(FORWARD)
        # Its generator is where the original's is: both go on alike.
        np.testing.assert_array_equal(other.reset()[0], env.reset()[0])
        np.testing.assert_array_equal(other.step(FORWARD)[0], env.step(FORWARD)[0])
    finally:
        other.close()
