"""Several policies in the same episodes: the numbers, the test, the command, and what is refused before any work."""

import csv
import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from pidm_nav import AStarExpert, Comparison, Episode, EvalResult, collect, evaluate, find_task, save_demos, train
from pidm_nav.cli import main

LANE = "............\n.A.1.2..3...\n............\n"
ROOM = {"layout": LANE, "room_size": [600, 150]}


class Constant:
    def __init__(self, *action):
        self.action = action

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.tile(np.float32(self.action), (len(observation), 1)), state


@pytest.fixture(scope="module")
def lane():
    players = {"still": Constant(0, 0), "right": Constant(1, 0), "same": Constant(1, 0)}
    return Comparison({name: evaluate(each, "custom", 12, max_steps=90, **ROOM) for name, each in players.items()})


def test_differences_are_those_of_the_episodes(lane):
    first, right, same = lane.table()
    assert "p" not in first and first["mean"] == 0 == first["low"] == first["high"]
    scores = lane.results["right"].goal_ratio
    assert right["difference"] == pytest.approx(scores.mean()) and right["success"] == same["success"]
    assert right["difference_low"] <= right["difference"] <= right["difference_high"]
    assert right["p"] < 0.01
    backwards = Comparison({name: lane.results[name] for name in ("right", "same", "still")}).table()
    assert backwards[1]["p"] == 1 and backwards[1]["difference"] == 0
    assert backwards[2]["difference"] == -right["difference"] and backwards[2]["p"] == pytest.approx(right["p"])


def test_pairing_finds_what_two_intervals_hide():
    """A small gain in every one of very different episodes."""

    def result(gain):
        episodes = [
            Episode(np.zeros((2, 3)), np.zeros((1, 1)), [10 * seed + gain * (1 + seed / 100)], False, True, seed)
            for seed in range(20)
        ]
        return EvalResult(find_task("Pendulum-v1"), tuple(episodes))

    first, second = Comparison({"first": result(0), "second": result(1)}).table()
    assert second["low"] < first["mean"] < second["mean"] < first["high"]
    assert 1 < second["difference_low"] < second["difference_high"] < 1.2
    assert second["p"] == pytest.approx(2 / 2**20)  # the exact test: all of 20 signs are the same


def test_the_metric_is_the_tasks():
    swing = evaluate(Constant(2), "Pendulum-v1", episodes=3)
    comparison = Comparison({"a": swing, "b": evaluate(Constant(-2), "Pendulum-v1", episodes=3)})
    assert comparison.metric == "return" and "success" not in comparison.table()[0] | comparison.shown()[0]
    with pytest.raises(ValueError, match="different metrics"):
        Comparison({"a": swing, "b": evaluate(Constant(2), "Pendulum-v1", 3, metric="success rate")})


def test_results_from_different_worlds_are_refused(lane):
    quiet = evaluate(Constant(1, 0), "custom", 12, **{**ROOM, "noise_std": 0.1})
    with pytest.raises(ValueError, match=r"different step limits \(right 90, short 20\): evaluate them with the same"):
        short = evaluate(Constant(1, 0), "custom", 12, max_steps=20, **ROOM)
        Comparison({"right": lane.results["right"], "short": short})
    with pytest.raises(ValueError, match=r"different step limits \(named 300, given 20\)"):
        given = evaluate(Constant(1, 0), gym.make("PIDMNav-Maze-v0", max_episode_steps=20), 2)
        Comparison({"named": evaluate(Constant(1, 0), "maze", 2), "given": given})
    with pytest.raises(ValueError, match=r"right and quiet have different noise_std"):
        Comparison({"right": lane.results["right"], "quiet": quiet})
    states = evaluate(Constant(1, 0), "zigzag", 1, max_steps=2)
    pixels = evaluate(Constant(1, 0), "zigzag", 1, max_steps=2, obs_type="pixels", image_size=32)
    assert len(Comparison({"states": states, "pixels": pixels}).table()) == 2


def test_other_episodes_are_refused(lane):
    with pytest.raises(ValueError, match="a and right have not played the same episodes"):
        Comparison({"right": lane.results["right"], "a": evaluate(Constant(0, 0), "custom", 12, seed=1, **ROOM)})
    with pytest.raises(ValueError, match=r"\(1 episode of zigzag, 12 episodes of custom\)"):
        Comparison({"right": lane.results["right"], "a": evaluate(Constant(0, 0), "zigzag", 1, max_steps=2)})
    with pytest.raises(ValueError, match="no results"):
        Comparison({})


def test_the_film_waits_for_the_last(lane, tmp_path):
    frames = lane.frames(1, size=120)
    assert len(frames) == max(result.length[1] for result in lane.results.values()) + 1
    assert Image.open(lane.video(tmp_path / "lane.gif", episode=1, size=60)).n_frames > 1


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    """Agents of a few steps, trained on different tasks, maps and starts."""
    folder = tmp_path_factory.mktemp("agents")
    for name, task, arguments in (
        ("zigzag", "zigzag", {}),
        ("other", "zigzag", {}),
        ("starts", "zigzag", {"random_start": True}),
        ("maze", "maze", {}),
    ):
        demos = collect(AStarExpert(task), task, 1, max_steps=20, **arguments)
        train("bc", demos, out=folder / name, steps=2, seed=len(name))
    save_demos(demos, folder / "demos.npz")
    return folder


def test_the_command_compares_agents_and_experts(agents, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(agents)
    files = [f"--{kind}={tmp_path / f'out.{kind}'}" for kind in ("csv", "json")]
    video = ["--video", str(tmp_path / "out.gif"), "--video-episode", "1"]
    for path in (tmp_path / "out.csv", tmp_path / "out.json"):  # of an earlier run
        path.write_text("")
    main(["evaluate", "zigzag", "astar", "other", "--episodes", "3", "--seed", "5", "--per-episode", *files, *video])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:10]] == [
        [name, seed] for name in ("zigzag", "astar", "other") for seed in "567"
    ]
    assert lines[10].startswith("zigzag, 3 episodes, the same for all; took ")
    assert lines[11].split()[-4:] == ["difference", "from", "zigzag", "p"]
    assert lines[13].startswith("astar   1.000 (1.000 to 1.000)  100%")
    rows = json.loads((tmp_path / "out.json").read_text())
    assert len(rows) == 9 and rows[3]["agent"] == "astar" and rows[3]["goal_ratio"] == 1.0
    with (tmp_path / "out.csv").open() as file:
        assert [(row["agent"], row["seed"]) for row in csv.DictReader(file)] == [
            (row["agent"], str(row["seed"])) for row in rows
        ]
    assert rows[3]["length"] == evaluate(AStarExpert("zigzag"), "zigzag", 3, seed=5).length[0]
    wide = Image.open(tmp_path / "out.gif")
    assert wide.width > 2.5 * wide.height


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--csv demos.npz", "--csv is 'demos.npz': give a name that ends with .csv"),
        ("--csv rows.txt --json rows.txt", "--csv is 'rows.txt': give a name that ends with .csv"),
        ("--json rows.csv", "--json is 'rows.csv': give a name that ends with .json"),
        ("--video zigzag.mkv", "--video is 'zigzag.mkv': give a name that ends with .gif or .mp4"),
        ("--layout map.json --json ./map.json", "--json is 'map.json', which the command reads: give another name"),
    ],
)
def test_files_of_other_kinds_and_inputs_are_not_overwritten(options, sentence, agents, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("demos.npz", "rows.txt", "rows.csv", "zigzag.mkv"):
        Path(name).write_text("mine")
    Path("map.json").write_text(LANE)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(agents / "zigzag"), "--episodes", "1", *options.split()])
    assert (end.value.code, capsys.readouterr().err) == (2, f"error: {sentence}\n")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine", LANE}


def test_an_expert_alone_plays_the_task_that_is_named(capsys, tmp_path):
    (tmp_path / "map.txt").write_text(LANE)
    map_options = ["--layout", str(tmp_path / "map.txt"), "--room-size", "600", "150"]
    main(["evaluate", "human-like", "--episodes", "1", *map_options])
    assert capsys.readouterr().out.startswith("human-like on custom: 100.0% of the goals reached")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "no agent is given: give folders of trained agents, maze/pidm, astar, human-like, scripted"),
        ("zigzag zigzag", "'zigzag' is given twice"),
        ("zigzag nobody", "there is no agent 'nobody': give the folder of a trained agent, or one of astar"),
        ("zigzag/pidm mase/pidm", "there is no agent 'mase/pidm': did you mean 'maze/pidm'?"),
        ("zigzag/pidm maze/bc", "zigzag/pidm was trained on zigzag and maze/bc on maze: give agents of one task"),
        ("zigzag/pidm asta", "there is no agent 'asta': did you mean 'astar'?"),
        ("zigzag/pidm --device gpu", "torch finds no device 'gpu' here: choose auto or"),
        ("astar", "no task is given: add --task"),
        ("zigzag scripted", "zigzag has no expert 'scripted'"),
        ("zigzag maze", "zigzag was trained on zigzag and maze on maze: give agents of one task"),
        ("zigzag maze --task zigzag", "maze was trained on maze, and the observations of zigzag have"),
        (
            "zigzag astar starts",
            "zigzag and starts have different random_start (False and True): evaluate them separately",
        ),
        ("nobody --csv zigzag", "'zigzag' is a folder: give --csv the name of a file"),
        ("nobody --json demos.npz/rows.json", "cannot write to 'demos.npz'"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_episode(words, sentence, agents, monkeypatch, capsys):
    monkeypatch.chdir(agents)
    monkeypatch.setattr("pidm_nav.commands.evaluate.evaluate", None)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", *words.split()])
    told = capsys.readouterr().err
    assert end.value.code == 2 and sentence in told and told.count("\n") == 1, told


def test_worlds_that_are_made_equal_can_be_compared(agents, monkeypatch, capsys):
    monkeypatch.chdir(agents)
    main(["evaluate", "zigzag", "starts", "--random-start", "--episodes", "1"])
    assert "starts" in capsys.readouterr().out
