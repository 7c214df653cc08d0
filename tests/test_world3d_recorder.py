"""Recording in the 3D world with a real (virtual) gamepad and with keys."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pygame
import pytest
from virtual_gamepad import VirtualGamepad

from pidm_nav.cli import main
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.demos.recorder.controls import Controls, Reading, read_controls, write_controls
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.devices import Inputs
from pidm_nav.demos.recorder.loop import Pace, run
from pidm_nav.demos.recorder.screen import LOW, PANEL, Screen
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.demos.traces import plot_traces
from pidm_nav.tasks import TASKS, find_task

pytest.importorskip("vizdoom", reason="the extra 3d is not installed")


def _new_session(path: Path, steps: int) -> Session:
    task = dataclasses.replace(find_task("tour-3d"), max_steps=steps)
    arguments = {"image_size": 32}
    return Session(task, arguments, Rules(1, fps=task.fps), DemoFile(path, task, arguments))


def _key(name: str, down: bool) -> pygame.event.Event:
    return pygame.event.Event(pygame.KEYDOWN if down else pygame.KEYUP, key=pygame.key.key_code(name))


def test_the_right_stick_turns_the_camera_and_the_left_one_moves(tmp_path: Path) -> None:
    pygame.display.init()
    pad = VirtualGamepad()
    session = _new_session(tmp_path / "tour.npz", steps=20)
    hand = {0: 0.25, 1: -0.5, 2: 0.75, 3: -1.0}  # right, up; right, up
    now = 0.0

    def sleep(seconds: float) -> None:
        """Leaves the sticks alone, then holds them, and ends the session when all is recorded."""
        nonlocal now
        now += max(seconds, 0.01)
        if session.phase == "complete":
            pad.button(3, True)
        elif now > 0.5:
            for axis, value in hand.items():
                pad.axis(axis, value)

    run(session, Inputs(Controls()), Screen("Tour", "test", Controls(), 480), Pace(35 / 3, lambda: now, sleep))
    pad.unplug()
    session.close()
    session.file.close()
    (episode,) = load_demos(tmp_path / "tour.npz")
    assert episode.observations.shape == (21, 24, 32, 3)
    np.testing.assert_allclose(episode.actions, np.tile([0.5, 0.25, 0.75, 1.0], (20, 1)), atol=0.01)
    assert episode.infos["states"].shape == (21, 17) and episode.infos["goals_reached"][-1] == 1  # turned round


def test_keys_turn_the_camera() -> None:
    pygame.display.init()
    inputs = Inputs(Controls(), "keyboard")
    events = [_key("w", True), _key("l", True), _key("i", True)]
    for _ in range(5):
        reading = inputs.read(events, 0.1)
        events = []
    assert reading.stick == (0.0, -1.0)
    np.testing.assert_allclose(reading.camera, (0.5**0.5, -(0.5**0.5)))
    for _ in range(5):
        reading = inputs.read([_key(name, False) for name in "wli"], 0.1)
    assert reading.stick == reading.camera == (0.0, 0.0)


def test_the_right_stick_alone_begins_an_episode_here(tmp_path: Path) -> None:
    session = _new_session(tmp_path / "tour.npz", steps=5)
    session.tick(Reading())
    assert session.phase == "ready"
    session.tick(Reading(camera=(1.0, 0.0)))
    assert session.phase == "running" and session.person.rollout.episodes()[0].actions[0].tolist() == [
        0.0,
        0.0,
        1.0,
        0.0,
    ]
    frame = Screen("Tour", "test", Controls(), 480).draw(session, Reading())
    assert frame.shape == (480, 480 + round(PANEL * 480 / LOW), 3) and frame[:, :480].std() > 20
    session.close()
    session.file.close()


@pytest.mark.parametrize("size", [480, 1200])
def test_how_to_move_and_turn_is_said_to_the_end(size: int, tmp_path: Path) -> None:
    session = _new_session(tmp_path / "tour.npz", steps=5)
    last = [Controls(), Controls(keys={"slow": "f"}), Controls(keys={"turn_right": "f"})]  # "..., Shift slows"
    frames = {Screen("Tour", "test", each, size).draw(session, Reading()).tobytes() for each in last}
    assert len(frames) == 3 and session.message == "Do what Next says, one goal after the other"
    session.close()
    session.file.close()


def test_a_mapping_can_give_the_camera_other_axes(tmp_path: Path) -> None:
    path = tmp_path / "mapping.json"
    write_controls(path)
    assert read_controls(path) == Controls()
    path.write_text('{"stick": {"turn": 4, "invert_look": true}, "keys": {"turn_left": "q"}}')
    mapping = read_controls(path)
    assert (mapping.stick.turn, mapping.stick.look, mapping.stick.invert_look) == (4, "righty", True)
    assert mapping.keys["turn_left"] == ("q",)


def _shorten(monkeypatch: pytest.MonkeyPatch, name: str, steps: int) -> None:
    """Give a task a step limit with which it takes less time."""
    monkeypatch.setitem(TASKS, name, dataclasses.replace(TASKS[name], max_steps=steps))


def test_the_command_collects_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _shorten(monkeypatch, "zigzag-3d", 12)
    out = tmp_path / "zigzag.npz"
    main(["collect", "--task", "zigzag-3d", "--episodes", "2", "--image-size", "32", "--out", str(out)])
    data = load_demos(out)
    assert (len(data), data.task) == (2, "zigzag-3d") and data[0].observations.shape == (13, 24, 32, 3)
    main(["demos", "replay", str(out), "--gif", str(tmp_path / "z.gif"), "--size", "64"])
    main(["demos", "replay", str(out), "--check"])
    assert "2 episodes resimulated" in capsys.readouterr().out
    changed = [dataclasses.replace(data[0], actions=-data[0].actions), data[1]]
    save_demos(dataclasses.replace(data, episodes=tuple(changed)), tmp_path / "changed.npz")
    with pytest.raises(SystemExit):
        main(["demos", "replay", str(tmp_path / "changed.npz"), "--check"])
    assert "1 of 2 episodes" in capsys.readouterr().err
    assert (tmp_path / "z.gif").stat().st_size > 1000
    (ax,) = plot_traces({"mine": data}).axes
    first, _ = next(each.get_segments() for each in ax.collections if hasattr(each, "get_segments"))
    np.testing.assert_allclose(first[0], find_task("zigzag-3d").layout().starts[0], atol=1)  # in pixels of the map
    with pytest.raises(SystemExit):
        main(["collect", "--task", "zigzag-3d", "--expert", "astar", "--out", str(tmp_path / "no.npz")])
    assert "zigzag-3d has no expert 'astar': choose one of scripted" in capsys.readouterr().err


def monkeypatch_make(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `gym.make` is called with from now on."""
    made, make = [], gym.make

    def spy(*arguments: Any, **named: Any) -> Any:
        made.append(named)
        return make(*arguments, **named)

    monkeypatch.setattr(gym, "make", spy)
    return made


@pytest.mark.thorough
def test_the_commands_train_and_evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    _shorten(monkeypatch, "zigzag-3d", 12)
    demos, agent, video = str(tmp_path / "zigzag.npz"), str(tmp_path / "bc"), tmp_path / "bc.mp4"
    main(["collect", "--task", "zigzag-3d", "--episodes", "1", "--image-size", "32", "--out", demos])
    few = ["--steps", "2", "--batch-size", "8"]
    main(["train", "--agent", "bc", "--task", "zigzag-3d", "--demos", demos, *few, "--out", agent])
    main(["evaluate", agent, "--episodes", "2", "--per-episode", "--video", str(video), "--render"])
    assert "bc on zigzag-3d: " in capsys.readouterr().out and video.stat().st_size > 1000
    made = monkeypatch_make(monkeypatch)
    main(["evaluate", agent, "--episodes", "1", "--realtime"])
    assert made and all(arguments["realtime"] for arguments in made)
    for wrong, message in (
        (["--task", "zigzag"], "trained on zigzag-3d, and the observations of zigzag have shape"),
        (
            ["--video", str(video), "--video-episode", "10"],
            "--video-episode is 10: ",
        ),
        (["--video", str(tmp_path / "bc.avi")], "ends with .gif or .mp4"),
        (["--episodes", "0"], "the number of episodes is 0"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["evaluate", agent, *wrong])
        assert stop.value.code == 2 and message in capsys.readouterr().err
