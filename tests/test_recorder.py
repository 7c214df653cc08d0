import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pygame
import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_gamepad import VirtualGamepad

import pidm_nav
from pidm_nav.cli import main
from pidm_nav.commands.record import Record
from pidm_nav.demos import DemoDataset, load_demos, save_demos
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.failed import without_failed
from pidm_nav.demos.recorder import demo_file
from pidm_nav.demos.recorder import loop as recorder
from pidm_nav.demos.recorder.controls import Controls, Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.devices import Inputs
from pidm_nav.demos.recorder.loop import Pace, run
from pidm_nav.demos.recorder.screen import FAILURE, HIGH, LOW, PANEL, SUCCESS, Screen
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.demos.replay import check_demos
from pidm_nav.tasks import PAPER_TASKS, find_task
from pidm_nav.world2d.state import REACHED

MAP = "########\n#......#\n#.A..1.#\n#......#\n########\n"
ENV_KWARGS = {"clip_noise": True, "noise_std": 0.2}
STILL = Reading()
RIGHT = Reading((1.0, 0.0))


def do(*commands: str) -> Reading:
    return Reading(commands=commands)


def written(session: Session) -> Session:
    """The session when its file is on disk."""
    session.file._worker.submit(int).result()  # waits
    return session


def new_session(path, task="four-room", episodes=3, steps=None, **rules) -> Session:
    """A session, of a shorter task if steps are given."""
    found = find_task(task)
    found = dataclasses.replace(found, max_steps=steps or found.max_steps)
    file = DemoFile(path, found, ENV_KWARGS)
    return Session(found, ENV_KWARGS, Rules(episodes, **rules), file)


def play(session: Session, device="keyboard") -> None:
    """Let the expert's hand play one episode."""
    expert = AStarExpert(session.layout, speed=1.0, directions=None)
    session.tick(STILL)
    written(session)
    ended = len(session.results)
    while len(session.results) == ended:
        session.tick(Reading(tuple(expert.predict(session.person.state)[0].tolist()), device=device))


def truncate(session: Session, reading=RIGHT) -> None:
    """Play an episode of a short environment up to its step limit."""
    written(session)
    session.tick(STILL)
    ended = len(session.results)
    while len(session.results) == ended:
        session.tick(reading)


def test_an_episode_is_said_to_be_kept_when_it_is_on_disk(tmp_path, monkeypatch):
    session = new_session(tmp_path / "mine.npz", steps=5)
    with monkeypatch.context() as patch:
        patch.setattr(session.file._worker, "submit", lambda work: None)  # the disk takes its time
        session.tick(STILL)
        while not session.results:
            session.tick(RIGHT)
        session.tick(STILL)
        assert session.message == "Saving episode 1" and session.file.num_written == 0
    assert session.file.save() and session.message.startswith("Episode 1 kept") and session.file.num_written == 1
    session.close()


# ---- what is recorded


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_recorded_episodes_are_what_the_environment_does(tmp_path, task):
    session = new_session(tmp_path / "mine.npz", task, episodes=2, seed=7)
    play(session, "Pad")
    play(session, "Pad")
    session.file.close()
    assert session.phase == "complete" and session.kept == 2
    data = load_demos(tmp_path / "mine.npz")
    assert data.task == task and len(data) == 2 and data.summary().success == 1
    assert data.source == {
        "made_by": "human",
        "settings": {"device": "Pad", "fps": 30.0},
        "env_kwargs": ENV_KWARGS,
        "version": pidm_nav.__version__,
    }
    assert [episode.seed for episode in data] == [7, 8]
    for episode in data:
        assert np.array_equal(episode.infos["goals_reached"], episode.observations[:, REACHED].sum(axis=1))
        assert episode.rewards.sum() == PAPER_TASKS[task].num_goals
    found = check_demos(data)
    assert found.resimulated == 2 and not found.mismatches


def test_a_map_of_ones_own_is_kept_with_the_recording(tmp_path):
    kwargs = {"layout": MAP, "room_size": [320, 200], **ENV_KWARGS}
    custom = find_task("custom")
    session = Session(custom, kwargs, Rules(1), DemoFile(tmp_path / "mine.npz", custom, kwargs))
    play(session)
    session.file.close()
    with closing(DemoFile(tmp_path / "mine.npz", custom, kwargs)) as again:
        assert len(again) == 1 and not check_demos(load_demos(tmp_path / "mine.npz")).mismatches
    with pytest.raises(ValueError, match="another room_size"):
        DemoFile(tmp_path / "mine.npz", custom, kwargs | {"room_size": [400, 200]})


# ---- the phases of a session


def test_the_first_input_begins_the_episode_and_is_its_first_step(tmp_path):
    session = new_session(tmp_path / "mine.npz")
    for _ in range(5):
        session.tick(Reading((0.1, -0.1)))  # a worn stick is no input
    assert session.phase == "ready" and session.person.steps == 0
    session.tick(Reading((0.0, -0.9)))
    assert session.phase == "running" and session.person.steps == 1
    assert np.array_equal(session.person.rollout.episodes()[0].actions, np.float32([[0.0, -0.9]]))


def test_a_stick_still_held_from_the_last_episode_does_not_begin_the_next(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    for _ in range(10):
        written(session).tick(RIGHT)
    assert session.phase == "ready"
    session.tick(STILL)
    session.tick(RIGHT)
    assert session.phase == "running"


def test_a_countdown_begins_the_episode_by_itself(tmp_path):
    session = new_session(tmp_path / "mine.npz", countdown=2.0, fps=10.0)
    for frame in range(19):
        session.tick(RIGHT if frame == 5 else STILL)
        assert session.phase == "ready" and session.seconds_left > 0
    session.tick(STILL)
    assert session.phase == "running" and session.person.steps == 1


def test_a_countdown_can_be_paused(tmp_path):
    session = new_session(tmp_path / "mine.npz", countdown=1.0, fps=10.0)
    session.tick(do("pause"))
    for _ in range(50):
        session.tick(STILL)
    assert session.phase == "paused"
    session.tick(do("pause"))
    assert session.phase == "ready" and session.seconds_left > 0


def test_nothing_moves_while_paused(tmp_path):
    session = new_session(tmp_path / "mine.npz")
    session.tick(STILL)
    session.tick(RIGHT)
    session.tick(do("pause"))
    state = session.person.state
    for _ in range(10):
        session.tick(RIGHT)
    assert session.phase == "paused" and np.array_equal(session.person.state, state)
    session.tick(Reading((1.0, 0.0), ("pause",)))
    assert session.phase == "running" and session.person.steps == 2


def test_redo_drops_the_running_episode_and_keeps_the_ones_before(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    written(session).tick(STILL)
    session.tick(RIGHT)
    dropped = session.person.rollout.seeds
    session.tick(do("redo"))
    assert session.phase == "ready" and session.kept == 1
    assert session.person.rollout.seeds != dropped  # with noise of its own
    session.tick(do("redo"))  # pressed once too often
    assert session.kept == 1 and len(load_demos(tmp_path / "mine.npz")) == 1


def test_redo_between_episodes_drops_the_last_one_only(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    truncate(session, Reading((0.0, 1.0)))
    assert session.meanings()["redo"] == "drop episode 2"
    session.tick(do("redo"))
    assert session.kept == 1 and session.meanings()["redo"] == ""
    assert len(load_demos(written(session).file.path)) == 1
    session.tick(do("redo"))
    truncate(session, Reading((0.0, -1.0)))
    data = load_demos(written(session).file.path)
    assert session.kept == len(data) == 2
    assert [episode.actions[0].tolist() for episode in data] == [[1, 0], [0, -1]]


def test_redo_of_the_only_episode_leaves_no_file(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    assert written(session).file.path.exists()
    session.tick(do("redo"))
    assert not written(session).file.path.exists()
    truncate(session)
    assert len(load_demos(written(session).file.path)) == 1


def test_the_last_episode_can_be_redone_when_all_are_recorded(tmp_path):
    session = new_session(tmp_path / "mine.npz", episodes=1, steps=4)
    truncate(session)
    assert session.phase == "complete"
    session.tick(RIGHT)
    session.tick(do("redo"))
    assert session.phase == "ready" and session.kept == 0
    truncate(session)
    session.tick(do("finish"))
    assert session.phase == "over" and len(load_demos(written(session).file.path)) == 1


def test_only_success_keeps_no_others(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4, only_success=True)
    truncate(session)
    assert session.kept == 0 and not session.file.path.exists() and "Not kept" in session.message
    session.tick(do("redo"))
    assert session.phase == "ready"
    session.file.close()
    whole = new_session(tmp_path / "mine.npz", only_success=True)
    play(whole)
    written(whole).tick(STILL)
    whole.tick(RIGHT)
    whole.tick(do("finish"))
    assert whole.kept == 1 and len(load_demos(written(whole).file.path)) == 1


def test_finish_ends_the_episode_here_and_then_the_session(tmp_path):
    session = new_session(tmp_path / "mine.npz")
    session.tick(STILL)
    for _ in range(3):
        session.tick(RIGHT)
    session.tick(do("finish"))
    assert session.phase == "ready" and session.kept == 1
    (episode,) = load_demos(written(session).file.path)
    assert len(episode) == 3 and episode.truncated and not episode.terminated
    session.tick(do("finish"))
    assert session.phase == "over"


@pytest.mark.parametrize("before", [(), (STILL, RIGHT), (STILL, RIGHT, do("pause"))])
def test_quit_leaves_from_anywhere_without_the_running_episode(tmp_path, before):
    session = new_session(tmp_path / "mine.npz")
    for reading in (*before, do("quit")):
        session.tick(reading)
    session.file.close()
    assert session.phase == "over" and not session.file.path.exists()


def test_a_gamepad_pulled_out_pauses_and_the_recording_names_both_devices(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4)
    session.tick(STILL)
    session.tick(Reading((1.0, 0.0), device="Pad"))
    session.tick(Reading(unplugged="Pad"))
    assert session.phase == "paused" and "Pad was unplugged" in session.message
    session.tick(do("pause"))
    while session.kept == 0:
        session.tick(STILL)
    assert load_demos(written(session).file.path).source["settings"]["device"] == "Pad, keyboard"


def test_a_gamepad_replugged_in_the_pause_plays_on(tmp_path, display):
    pad = VirtualGamepad()
    session = new_session(tmp_path / "mine.npz")
    inputs = Inputs(Controls())

    def frames_of(count: int) -> None:
        for _ in range(count):
            session.tick(inputs.read(pygame.event.get(), 1 / 30, session.phase != "running"))

    frames_of(2)
    pad.stick(1.0, 0.0)
    frames_of(2)
    pad.unplug()
    frames_of(2)
    assert session.phase == "paused" and inputs.active.name == "keyboard"
    pad = VirtualGamepad()
    frames_of(2)
    pad.button(6, True)  # Start
    frames_of(1)
    assert session.phase == "running"
    pad.stick(0.0, 1.0)
    frames_of(2)
    pad.button(3, True)  # Y ends the episode; the stick is still held
    frames_of(5)
    assert session.phase == "ready" and session.kept == 1
    (episode,) = load_demos(written(session).file.path)
    assert episode.actions[-1] == pytest.approx([0, 1], abs=1e-3)
    assert load_demos(session.file.path).source["settings"]["device"] == "Virtual Controller"
    pad.unplug()


def test_a_stick_held_on_the_device_that_is_not_in_use_does_not_begin_the_next_episode(tmp_path, display):
    pad = VirtualGamepad()
    session = new_session(tmp_path / "mine.npz")
    inputs = Inputs(Controls())
    session.tick(STILL)
    session.tick(RIGHT)
    inputs.active = inputs._keyboard  # which was played with while the pad was away
    pad.stick(1.0, 0.0)
    pygame.event.clear()
    for events in ([key("return")], [], [], []):
        session.tick(inputs.read(events, 1 / 30, session.phase != "running"))
        written(session)
    assert session.phase == "ready" and session.kept == 1
    pad.unplug()


@pytest.mark.parametrize("option", [{"episodes": 0}, {"fps": 0.0}, {"countdown": -1.0}, {"seed": -1}])
def test_bad_numbers_are_refused(tmp_path, option):
    with pytest.raises(ValueError, match=f"^{next(iter(option))} is"):
        new_session(tmp_path / "mine.npz", **option)


READINGS = st.sampled_from([STILL, RIGHT, RIGHT, RIGHT, do("pause"), do("redo"), do("finish")])


@settings(max_examples=25, deadline=None)
@given(before=st.integers(0, 2), readings=st.lists(READINGS, max_size=60), only_success=st.booleans())
def test_the_count_is_always_that_of_the_file(tmp_path_factory, before, readings, only_success):
    path = tmp_path_factory.mktemp("count") / "mine.npz"
    if before:
        save_demos(collect(AStarExpert("four-room"), "four-room", before, **ENV_KWARGS), path)
    session = new_session(path, episodes=4, steps=3, only_success=only_success)
    file = session.file
    for reading in readings:
        session.tick(reading)
        assert len(file) == before + session.kept and 0 <= session.kept <= 4
        assert (session.phase == "complete") <= (session.kept == 4)
        written(session)
        assert (len(load_demos(path)) if path.exists() else 0) == before + session.kept
    file.close()
    if path.exists():
        seeds = [episode.seed for episode in load_demos(path)]
        assert len(set(seeds)) == len(seeds)


# ---- the file


def test_a_later_run_adds_and_uses_other_seeds(tmp_path):
    path = tmp_path / "mine.npz"
    for run_number in (1, 2, 3):
        session = new_session(path, steps=4, episodes=2)
        assert session.file.num_before == 2 * (run_number - 1)
        truncate(session)
        truncate(session)
        session.file.close()
    data = load_demos(path)
    assert [episode.seed for episode in data] == [0, 1, 2, 3, 4, 5]
    assert check_demos(data).resimulated == 6


def test_the_next_episode_waits_until_the_last_one_is_on_disk(tmp_path, monkeypatch):
    may_write = threading.Event()

    def slow(dataset, path):
        assert may_write.wait(60)
        save_demos(dataset, path)

    monkeypatch.setattr(demo_file, "save_demos", slow)
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    for reading in (STILL, RIGHT, STILL, RIGHT):
        session.tick(reading)
    assert session.phase == "ready"
    may_write.set()
    written(session).tick(RIGHT)
    assert session.phase == "running"


@pytest.fixture
def disk(monkeypatch):
    """A disk that is full when it is told to be."""
    original, disk = np.savez_compressed, SimpleNamespace(full=False)

    def save(*args, **kwargs):
        if disk.full:
            raise OSError(28, "No space left on device")
        original(*args, **kwargs)

    monkeypatch.setattr(np, "savez_compressed", save)
    return disk


def test_a_full_disk_is_said_and_the_person_can_free_space_and_go_on(tmp_path, disk):
    path = tmp_path / "mine.npz"
    session = new_session(path, episodes=2, steps=4)
    truncate(session)
    content = written(session).file.path.read_bytes()
    disk.full = True
    truncate(session)
    for reading in (STILL, RIGHT, do("finish"), STILL, RIGHT):
        written(session).tick(reading)
    assert session.phase == "complete" and path.read_bytes() == content
    assert f"cannot write '{path}' (No space left on device)" in session.problem
    assert session.meanings()["finish"] == "save and finish"
    not_saved = Screen("Four room", "test", Controls(), 480).draw(session, STILL)
    disk.full = False
    session.tick(do("finish"))
    assert session.phase == "over" and len(load_demos(path)) == 2 and not session.problem
    assert (Screen("Four room", "test", Controls(), 480).draw(session, STILL) != not_saved).any()
    session.file.close()


def test_one_can_leave_while_the_disk_is_full_and_what_was_on_it_stays(tmp_path, disk):
    path = tmp_path / "mine.npz"
    session = new_session(path, steps=4)
    truncate(session)
    written(session)
    disk.full = True
    truncate(session)
    written(session).tick(do("quit"))
    assert session.phase == "over"
    with pytest.raises(OSError, match=r"mine\.npz.*No space left"):
        session.file.close()
    assert os.listdir(tmp_path) == ["mine.npz"] and len(load_demos(path)) == 1


def test_two_cannot_record_to_one_file_at_once(tmp_path):
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    with pytest.raises(BlockingIOError, match=r"mine\.npz' is being written to by another process: .*another file"):
        new_session(tmp_path / "mine.npz")
    with closing(DemoFile(tmp_path / "other.npz", session.task, ENV_KWARGS)):
        session.file.close()
    with closing(DemoFile(tmp_path / "mine.npz", session.task, ENV_KWARGS)) as file:
        assert file.num_before == 1
    assert os.listdir(tmp_path) == ["mine.npz"]


@pytest.mark.parametrize("kind", ["task", "noise", "damaged", "foreign"])
def test_a_file_that_does_not_fit_is_refused_and_left_alone(tmp_path, kind):
    path = tmp_path / "mine.npz"
    data = collect(AStarExpert("maze"), "maze", 1, **ENV_KWARGS)
    if kind == "task":
        save_demos(data, path)
    elif kind == "noise":
        save_demos(dataclasses.replace(data, source={"env_kwargs": {"noise_std": 0.5}}), path)
    elif kind == "damaged":
        save_demos(data, path)
        path.write_bytes(path.read_bytes()[:-100])
    else:
        np.savez(path, something=np.zeros(3))
    content = path.read_bytes()
    task = "zigzag" if kind == "task" else "maze"
    words = {"task": "of maze, not of zigzag", "noise": "another noise_std", "damaged": "truncated"}
    with pytest.raises(ValueError, match=words.get(kind, "no known format")) as error:
        DemoFile(path, find_task(task), ENV_KWARGS)
    assert "\n" not in str(error.value) and path.read_bytes() == content
    assert os.listdir(tmp_path) == ["mine.npz"]


@pytest.mark.parametrize("name", ["mine.txt", "mine", "file.npz/mine.npz"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path, name):
    (tmp_path / "file.npz").write_bytes(b"")
    with pytest.raises((ValueError, OSError), match=r"cannot (record|write) to"):
        DemoFile(tmp_path / name, find_task("maze"), ENV_KWARGS)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems have no folder that nobody can write to"
)
def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_played():
    with pytest.raises(OSError, match="choose another folder"):
        DemoFile("/proc/mine.npz", find_task("maze"), ENV_KWARGS)


def test_arguments_that_equal_the_defaults_are_the_same_environment(tmp_path):
    """Files of earlier versions name the noise even where it is the default."""
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)
    session.file.close()
    with closing(DemoFile(tmp_path / "mine.npz", session.task, {})) as file:
        assert file.num_before == 1
    with pytest.raises(ValueError, match=r"another noise_std \(0.2, not 0.0\)"):
        DemoFile(tmp_path / "mine.npz", session.task, {"noise_std": 0.0})


# ---- anybody's environment


def test_any_environment_with_continuous_actions_can_be_recorded(tmp_path):
    task = dataclasses.replace(find_task("Pendulum-v1"), max_steps=5)
    session = Session(task, {"g": 9.0}, Rules(1), DemoFile(tmp_path / "p.npz", task, {"g": 9.0}))
    before = Screen(task.title, "test", Controls(), 480).draw(session, STILL)
    truncate(session, Reading((0.5, 0.0)))
    session.close()
    session.file.close()
    assert before.shape == (480, 480 + round(PANEL * 480 / LOW), 3) and before[:, :480].std() > 20
    assert session.phase == "complete" and "kept: 5 steps, return -" in session.message
    data = load_demos(tmp_path / "p.npz")
    assert data.task == "Pendulum-v1" and data[0].observations.shape == (6, 3)
    assert data[0].actions.tolist() == [[1.0]] * 5  # half of the torque's bound, which is 2
    assert check_demos(data).resimulated == 1 and not check_demos(data).mismatches
    with pytest.raises(ValueError, match="another g"):
        DemoFile(tmp_path / "p.npz", task, {})


def test_an_environment_with_more_actions_than_sticks_is_refused():
    class Crane(gym.Env):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
        observation_space = action_space = gym.spaces.Box(-1, 1, (5,))

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

    gym.register("Crane-v0", Crane)
    try:
        with pytest.raises(ValueError, match=r"Crane-v0 has shape \(5,\), and two sticks give at most 4"):
            Session(find_task("Crane-v0"), {}, Rules())
    finally:
        gym.registry.pop("Crane-v0")


# ---- the frame rate


class Clock:
    """A clock that stands still but for what it is told; `script` gives what the person does in each frame."""

    def __init__(self, script: Iterator[list[pygame.event.Event]] | None = None) -> None:
        self.time, self._script = 0.0, script

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.time += seconds
        for event in next(self._script, [pygame.event.Event(pygame.QUIT)]) if self._script else []:
            pygame.event.post(event)


def test_frames_are_one_period_apart_however_long_they_take():
    clock = Clock()
    pace = Pace(25, clock.now, clock.sleep)
    for work in (0.0, 0.01, 0.039, 0.02):
        clock.time += work
        pace.wait(measure=True)
    assert pace.intervals == pytest.approx([0.04] * 4)
    assert pace.report() == "25.00 steps per second (asked for: 25), 0.0% of them late"


def test_after_a_long_halt_frames_are_not_rushed():
    clock = Clock()
    pace = Pace(10, clock.now, clock.sleep)
    pace.wait(measure=True)
    clock.time += 5.0
    assert pace.late
    for _ in range(10):
        pace.wait(measure=True)
    assert clock.time == pytest.approx(0.1 + 5.0 + 0.8)  # one frame is caught up with, the others take their time
    assert "9.1% of them late" in pace.report()


# ---- devices, window and session together


def key(name: str, down: bool = True) -> pygame.event.Event:
    return pygame.event.Event(pygame.KEYDOWN if down else pygame.KEYUP, key=pygame.key.key_code(name))


def press(name: str) -> list[pygame.event.Event]:
    return [key(name), key(name, down=False)]


def frames(events: list[pygame.event.Event], then: int) -> list[list[pygame.event.Event]]:
    return [events, *[[] for _ in range(then)]]


def record(monkeypatch, script: list[list[pygame.event.Event]], *arguments: object) -> None:
    """`pidm-nav record`, on a clock of its own."""
    clock = Clock(iter(script))
    monkeypatch.setattr(recorder, "Pace", lambda fps: Pace(fps, clock.now, clock.sleep))
    tyro.cli(Record, args=list(map(str, arguments))).run()


@pytest.fixture
def display():
    pygame.display.init()
    yield
    pygame.display.quit()


@pytest.fixture
def saved_at_once(monkeypatch):
    """Writing ends before the next frame, so that a script can count frames."""
    original = DemoFile.write

    def write(self):
        original(self)
        self._worker.submit(int).result()

    monkeypatch.setattr(DemoFile, "write", write)


def test_the_command_records_what_the_keys_do(tmp_path, monkeypatch, capsys, display, saved_at_once):
    out = tmp_path / "new folder" / "mine.npz"
    script = [
        *frames([], 2),
        *frames([key("up")], 9),
        *frames([key("right")], 9),
        *frames([*press("p"), key("up", False), key("right", False)], 9),
        *frames(press("space"), 4),
        *frames(press("return"), 4),
        *frames([key("a")], 5),
        *frames([key("a", False), *press("r")], 4),
        *frames([key("s")], 5),
        *frames([key("s", False), *press("return")], 2),
        *frames(press("return"), 2),
    ]
    arguments = ("--task", "maze", "--episodes", 5, "--out", out, "--noise-std", 0.1, "--no-clip-noise")
    record(monkeypatch, script, *arguments, "--video", tmp_path / "clip.gif", "--seed", 3)
    data = load_demos(out)
    assert len(data) == 2 and data.source["env_kwargs"] == {"clip_noise": False, "noise_std": 0.1}
    assert data.source["settings"] == {"device": "keyboard", "fps": 30.0}
    first, second = (episode.actions for episode in data)
    assert first[0, 0] == 0 and -1 < first[0, 1] < -0.3  # on its way up
    assert first[8].tolist() == [0, -1] and first[17] == pytest.approx([0.5**0.5, -(0.5**0.5)])
    assert len(first) < 30  # the pause is not in it
    assert (second[:, 0] == 0).all() and second[:, 1].max() == 1
    assert not check_demos(data).mismatches
    printed = capsys.readouterr().out
    assert "2 episodes recorded, 2 in" in printed and "30.00 steps per second" in printed
    assert f"next: pidm-nav train --demos '{out}'\n" in printed
    assert sorted(path.name for path in tmp_path.glob("*.gif")) == ["clip-1.gif", "clip-2.gif"]


def test_the_command_adds_to_a_file_and_numbers_its_videos_on(tmp_path, monkeypatch, capsys, display, saved_at_once):
    script = [
        *frames([], 2),
        *frames([key("up")], 6),
        *frames([key("up", False), *press("return")], 2),
        press("escape"),
    ]
    for _ in range(2):
        record(monkeypatch, script, "--task", "zigzag", "--out", tmp_path / "z.npz", "--video", tmp_path / "z.gif")
    assert len(load_demos(tmp_path / "z.npz")) == 2
    assert "1 episode recorded, 2 in" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.glob("*.gif")) == ["z-1.gif", "z-2.gif"]


def test_closing_the_window_keeps_what_was_kept(tmp_path, monkeypatch, capsys, display, saved_at_once):
    script = [*frames([], 2), *frames([key("up")], 5), *frames([key("up", False), *press("return")], 9)]
    script += frames([key("up")], 5)  # and then the window is closed
    record(monkeypatch, script, "--task", "maze", "--out", tmp_path / "mine.npz")
    assert len(load_demos(tmp_path / "mine.npz")) == 1


def test_the_command_records_anybodys_environment(tmp_path, monkeypatch, capsys, display, saved_at_once):
    script = [*frames([], 2), *frames([key("right")], 9), *frames([key("right", False), *press("return")], 2)]
    record(monkeypatch, script, "--task", "Pendulum-v1", "--out", tmp_path / "p.npz")
    data = load_demos(tmp_path / "p.npz")
    assert data.task == "Pendulum-v1" and data.source["env_kwargs"] == {} and data[0].actions.max() == 2
    assert "1 episode recorded" in capsys.readouterr().out and not check_demos(data).mismatches


def test_a_session_played_with_a_gamepad(tmp_path, display, saved_at_once):
    pad = VirtualGamepad()
    session = new_session(tmp_path / "mine.npz", task="zigzag", episodes=1)
    expert = AStarExpert("zigzag", speed=1.0, directions=None)

    class Hand(Clock):
        """Lets the stick go, plays the episode as the expert does, and presses Y."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if session.phase == "complete":
                pad.button(3, True)
            elif self.time > 0.2:
                pad.stick(*expert.predict(session.person.state)[0].tolist())

    clock = Hand()
    run(session, Inputs(Controls()), Screen("Zigzag", "test", Controls()), Pace(30, clock.now, clock.sleep))
    pad.unplug()
    data = load_demos(tmp_path / "mine.npz")
    assert data.summary().success == 1 and not check_demos(data).mismatches
    assert data.source["settings"]["device"] == "Virtual Controller"


def test_control_c_keeps_what_was_kept(tmp_path, display, saved_at_once):
    session = new_session(tmp_path / "mine.npz", steps=4)
    truncate(session)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    run(session, Inputs(Controls()), Screen("Four room", "test", Controls()), Pace(30, Clock().now, interrupt))
    assert session.phase == "over" and len(load_demos(tmp_path / "mine.npz")) == 1


class Script(Iterator[list[pygame.event.Event]]):
    """What happens in each frame; functions are called."""

    def __init__(self, *steps) -> None:
        self._steps = iter(steps)

    def __next__(self) -> list[pygame.event.Event]:
        step = next(self._steps)
        return step() or [] if callable(step) else step


def test_sigterm_ends_the_command_and_keeps_what_was_kept(tmp_path, monkeypatch, capsys, display, saved_at_once):
    keep = [*frames([], 2), *frames([key("up")], 5), *frames([key("up", False), *press("return")], 2)]
    clock = Clock(Script(*keep, *frames([key("up")], 5), lambda: signal.raise_signal(signal.SIGTERM)))
    monkeypatch.setattr(recorder, "Pace", lambda fps: Pace(fps, clock.now, clock.sleep))
    with pytest.raises(SystemExit) as stop:
        main(["record", "--task", "maze", "--out", str(tmp_path / "mine.npz")])
    assert stop.value.code == 128 + signal.SIGTERM and capsys.readouterr().err == "stopped\n"
    assert os.listdir(tmp_path) == ["mine.npz"] and len(load_demos(tmp_path / "mine.npz")) == 1


@pytest.mark.parametrize("others", [0, 1])
def test_the_command_says_how_many_episodes_failed(others, tmp_path, monkeypatch, capsys, display, saved_at_once):
    out = tmp_path / "mine.npz"
    if others:
        save_demos(collect(AStarExpert("maze"), "maze", others), out)
    keep = [*frames([], 2), *frames([key("up")], 5), *frames([key("up", False), *press("return")], 2)]
    clock = Clock(Script(*keep, press("escape"), *frames([], 5)))
    monkeypatch.setattr(recorder, "Pace", lambda fps: Pace(fps, clock.now, clock.sleep))
    main(["record", "--task", "maze", "--out", str(out)])
    said = capsys.readouterr().out
    clean = f"demos edit {out} --keep successes --in-place"
    if others:
        assert "1 of 2 episodes failed" in said and clean in said
        main(clean.split())
        assert len(load_demos(out)) == others
    else:  # there is nothing that this command could keep
        assert "none of 1 episode succeeded, and training then uses them all: record" in said and clean not in said
        assert len(without_failed(load_demos(out))) == 1


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_the_picture_shows_every_phase_differently(tmp_path, task):
    session = new_session(tmp_path / "mine.npz", task)

    def picture(size=700) -> bytes:
        frame = Screen(PAPER_TASKS[task].title, "test", Controls(), size).draw(session, STILL)
        assert frame.shape == (size, size + PANEL, 3) and frame.dtype == np.uint8
        return frame.tobytes()

    seen = [picture()]
    for readings in ([STILL, RIGHT], [do("pause")], [do("pause"), do("finish")], [do("redo")]):
        for reading in readings:
            session.tick(reading)
        written(session)
        seen.append(picture())
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(("size", "panel"), [(480, PANEL * 480 / LOW), (LOW, PANEL), (HIGH, PANEL), (1600, PANEL * 2)])
def test_the_panel_grows_with_the_world_and_messages_are_seen_to_their_end(tmp_path, size, panel):
    session = new_session(tmp_path / "mine.npz")
    seen = set()
    for end in "AB":
        session.message = f"Episode 10 kept, though not all goals are reached: 3 of 10 goals in 150 steps {end}"
        frame = Screen("Maze", "test", Controls(), size).draw(session, STILL)
        assert frame.shape == (size, size + round(panel), 3)
        seen.add(frame.tobytes())
    assert len(seen) == 2


@pytest.mark.parametrize("desktop", [(1024, 600), (1366, 768), (1920, 1080), (3840, 2160)])
def test_the_picture_fills_the_desktop_and_fits(desktop, display, monkeypatch):
    monkeypatch.setattr(pygame.display, "get_desktop_sizes", lambda: [desktop])
    screen = Screen("Maze", "test", Controls())
    assert screen.width <= desktop[0] and desktop[1] * 0.7 < screen.size <= desktop[1] - 80


def has(session: Session, color) -> bool:
    """Whether the picture has an area of this color."""
    frame = Screen("Maze", "test", Controls(), 800).draw(session, STILL)
    return int((np.abs(frame.astype(int) - color).sum(axis=2) < 60).sum()) > 100


def test_what_to_do_is_said_and_success_and_failure_look_different(tmp_path):
    session = new_session(tmp_path / "mine.npz")
    assert session.message == "Touch the red goal, one goal after the other"
    assert not has(session, SUCCESS)
    play(session)
    written(session)
    assert session.message == "Episode 1 kept: 4 of 4 goals in " + session.message.split(" in ")[1]
    assert session.outcome == "success" and has(session, SUCCESS)
    for reading in (STILL, RIGHT, do("finish")):
        session.tick(reading)
    written(session)
    assert session.message == "Episode 2 kept, though not all goals are reached: 0 of 4 goals in 1 step"
    assert session.outcome == "failure" and has(session, FAILURE) and not has(session, SUCCESS)
    for reading in (STILL, RIGHT):
        session.tick(reading)
    assert session.message == session.outcome == ""
    session.close()


def test_commands_without_a_session(tmp_path, monkeypatch, capsys, display):
    record(monkeypatch, [], "--write-mapping", tmp_path / "pad.json")
    assert "pad.json" in capsys.readouterr().out and (tmp_path / "pad.json").exists()
    with pytest.raises(FileExistsError, match=r"pad\.json"):
        record(monkeypatch, [], "--write-mapping", tmp_path / "pad.json")
    pad = VirtualGamepad()
    record(monkeypatch, [], "--list-controllers", "--mapping", tmp_path / "pad.json")
    pad.unplug()
    printed = capsys.readouterr().out
    assert "Virtual Controller" in printed and "keyboard" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--task"),
        (("--task", "lobby"), "'lobby'"),
        (("--task", "custom"), "--layout"),
        (("--task", "maze", "--video", "clip.avi"), "clip.avi"),
        (("--task", "maze", "--video", "/dev/null/clip.mp4"), "cannot write to '/dev/null'"),
        (("--task", "maze", "--out", "mine.txt"), "npz"),
        (("--task", "maze", "--mapping", "none.json"), "none.json"),
        (("--task", "maze", "--controller", "Xbox"), "'Xbox'"),
        (("--task", "maze", "--size", "20"), "size is 20"),
        (("--task", "maze", "--layout", "map.txt"), "--layout"),
        (("--task", "tour-3d", "--random-start"), "--random-start does not apply to tour-3d"),
        (("--task", "Pendulum-v1", "--video", "clip.mp4"), "--video"),
        (("--task", "CartPole-v1"), "two sticks give at most"),
    ],
)
def test_bad_arguments_are_refused_and_leave_nothing(tmp_path, monkeypatch, display, arguments, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError), match=words):
        record(monkeypatch, [], *arguments)
    assert os.listdir(tmp_path) == []


# ---- real processes

CLI = "from pidm_nav.cli import main; main()"


def without_display() -> dict[str, str]:
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER")
    return {key: value for key, value in os.environ.items() if key not in hidden}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a display")
@pytest.mark.parametrize("command", ["record", "play"])
def test_without_a_display_one_sentence_says_so(tmp_path, command):
    arguments = [sys.executable, "-c", CLI, command, "--task", "maze"]
    ended = subprocess.run(arguments, env=without_display(), cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "without a display" in line and "run pidm-nav studio" in line
    assert os.listdir(tmp_path) == []


RECORD_FOREVER = """
import dataclasses, itertools, sys
from pidm_nav.demos.recorder.controls import Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.tasks import find_task

kwargs = {"clip_noise": True, "noise_std": 0.2}
task = dataclasses.replace(find_task("four-room"), max_steps=20)
file = DemoFile(sys.argv[1], task, kwargs)
session = Session(task, kwargs, Rules(), file)
print("began", len(file), flush=True)
for stick in itertools.cycle([(0.0, 0.0), (1.0, 0.5)]):
    phase = session.phase
    session.tick(Reading(stick))
    if phase == "ready" and session.phase == "running" and session.kept:
        print("next", len(file), flush=True)  # the next episode has begun
"""


def test_a_killed_recording_loses_at_most_the_running_episode(tmp_path):
    path = tmp_path / "mine.npz"
    total = 0
    for kept in (1, 4, 2):
        arguments = [sys.executable, "-c", "import pidm_nav\n" + RECORD_FOREVER, str(path)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == f"began {total}\n"
            for _ in range(kept):
                announced = int(process.stdout.readline().split()[1])
            process.kill()
        data = load_demos(path)
        assert len(data) >= announced == total + kept
        assert not check_demos(data).mismatches
        total = len(data)
    session = new_session(path, steps=4)
    truncate(session)
    session.file.close()
    assert os.listdir(tmp_path) == ["mine.npz"] and len(load_demos(path)) == total + 1


@pytest.mark.skipif(not (shutil.which("Xvfb") and shutil.which("xdotool")), reason="Xvfb and xdotool are not installed")
def test_a_real_window_is_played_with_real_keys(tmp_path):
    def tool(*arguments: object) -> str:
        command = ["xdotool", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout

    def window_under_pointer() -> str:
        return tool("getmouselocation").partition("window:")[2].strip()

    readable, writable = os.pipe()
    display = ["Xvfb", "-displayfd", str(writable), "-screen", "0", "1280x800x24", "-noreset"]
    # With -noreset it does not start anew, deaf for a moment, whenever the only xdotool has ended.
    server = subprocess.Popen(display, pass_fds=[writable], stderr=subprocess.DEVNULL)
    os.close(writable)
    try:
        with os.fdopen(readable) as number:
            environment = without_display() | {"DISPLAY": f":{number.readline().strip()}"}
        tool("mousemove", 400, 400)  # without a window manager the keys go to the window under the pointer
        arguments = ["record", "--task", "zigzag", "--fps", "240", "--out", str(tmp_path / "mine.npz")]
        process = subprocess.Popen([sys.executable, "-c", CLI, *arguments], env=environment, stdout=subprocess.PIPE)
        while "pidm-nav: Zigzag" not in tool("getwindowname", window_under_pointer()):
            assert process.poll() is None
        while not (tmp_path / "mine.npz").exists():  # the window may come before it listens
            assert process.poll() is None
            tool("keydown", "Up", "sleep", 0.3, "keyup", "Up")  # begins the episode; its step limit ends it
        tool("key", "Escape")
        assert process.wait(60) == 0 and b"1 episode recorded" in process.stdout.read()
    finally:
        server.terminate()
        server.wait()
    data = load_demos(tmp_path / "mine.npz")
    assert isinstance(data, DemoDataset) and len(data) == 1 and not check_demos(data).mismatches
    assert (data[0].actions[:, 1] < -0.3).any()
