import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import pidm_nav
from pidm_nav import PAPER_TASKS, evaluate, load_agent
from pidm_nav.cli import main
from pidm_nav.commands import demos as commands
from pidm_nav.demos import DemoDataset, Episode, collect, edit_demos, load_demos, make_expert, save_demos
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.replay import check_demos, demo_states
from pidm_nav.files import only_writer
from pidm_nav.rollouts.rollout import rollout

MAP = "##########\n#........#\n#..A.....#\n#....##..#\n#..2....1#\n##########\n"


Refused = Callable[..., str]


def run(*arguments: Any) -> None:
    """A command as the command line calls it."""
    main(list(map(str, arguments)))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must end in this sentence, with exit code 2; return what it printed before."""

    def run_refused(sentence: str, *arguments: Any) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            run(*arguments)
        told = capsys.readouterr()
        assert end.value.code == 2
        assert told.err.startswith("error: ") and told.err.count("\n") == 1
        assert sentence in told.err, told.err
        return told.out

    return run_refused


@pytest.fixture(scope="module")
def four_room(tmp_path_factory):
    path = tmp_path_factory.mktemp("demos") / "four.npz"
    run("collect", "--task", "four-room", "--episodes", 3, "--seed", 5, "--out", path)
    return path


# ---- collect


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_collected_episodes_are_those_of_the_single_environment(task):
    expert = AStarExpert(task)
    data = collect(expert, task, episodes=3, seed=11, noise_std=0.3)
    env = gym.make(PAPER_TASKS[task].env_id, noise_std=0.3)
    for index, episode in enumerate(data):
        observation, _ = env.reset(seed=11 + index)
        assert episode.seed == 11 + index
        for step, action in enumerate(episode.actions):
            assert np.array_equal(observation, episode.observations[step])
            assert np.array_equal(expert.predict(observation)[0], action)
            observation, reward, terminated, truncated, info = env.step(action)
            assert reward == episode.rewards[step]
            assert info["goals_reached"] == episode.infos["goals_reached"][step + 1]
        assert np.array_equal(observation, episode.observations[-1])
        assert (terminated, truncated) == (episode.terminated, episode.truncated)
        assert terminated or truncated
    assert data.source["env_kwargs"] == {"noise_std": 0.3}
    assert data.source["made_by"] == "astar" and data.source["version"] == pidm_nav.__version__
    assert data.source["settings"] == expert.settings


class Spinner:
    """A policy with a state of its own, which must see each episode's start once."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        state = 0 if state is None else state + 1
        self.starts.append(int(episode_start.sum()))
        return np.full((len(observation), 2), [5.0 * (-1) ** state, np.cos(state)]), state


def test_policies_keep_their_state_and_may_overshoot_the_stick():
    policy = Spinner()
    ended: list[int] = []
    env = PAPER_TASKS["maze"].make_vec(2, max_steps=4)
    episodes = rollout(policy, env, range(5), progress=ended.append)
    assert policy.starts == [2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0] and sum(ended) == 5
    assert [episode.seed for episode in episodes] == [0, 1, 2, 3, 4]
    at_once = collect(Spinner(), "maze", 5, max_steps=4)
    assert at_once.source["made_by"] == "Spinner"
    for step in range(5):
        assert len(at_once[step]) == len(episodes[step]) == 4
        assert episodes[step].truncated and not episodes[step].terminated
        assert at_once[step].actions[:, 0].tolist() == episodes[step].actions[:, 0].tolist() == [1, -1, 1, -1]


def test_collect_writes_and_shows(four_room, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("collect", "--task", "FourRoom", "--episodes", 1, "--speed", 1, "--any-angle", "--out", "one.npz")
    shown = capsys.readouterr().out.splitlines()[1].split()
    assert shown[:4] == ["one.npz", "astar", "Four", "room"] and shown[-1] == "100%"
    assert load_demos("one.npz").source["settings"] == {"expert": "astar", "speed": 1.0, "directions": None}
    data = load_demos(four_room)
    assert data.task == "four-room" and [episode.seed for episode in data] == [5, 6, 7]
    assert data.source["made_by"] == "astar" and data.summary().success == 1.0
    assert data.source["settings"]["speed"] == 0.8


def test_collect_keeps_custom_maps_with_the_data(tmp_path):
    (tmp_path / "map.txt").write_text(MAP)
    place = ["--layout", tmp_path / "map.txt", "--room-size", 600, 500]
    run("collect", "--task", "custom", *place, "--episodes", 2, "--out", tmp_path / "c.npz")
    (tmp_path / "map.txt").unlink()
    data = load_demos(tmp_path / "c.npz")
    assert data.task == "custom" and data.env_kwargs["layout"] == MAP
    assert data.env_kwargs["room_size"] == [600, 500] and data.summary().success == 1.0
    run("demos", "replay", tmp_path / "c.npz", "--check", "--gif", tmp_path / "c.gif", "--size", 100)
    run("demos", "plot", tmp_path / "c.npz", "--out", tmp_path / "c.png")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--task", "maze", "--out", "old.npz"], "'old.npz' exists: choose another name, or --force"),
        (["--task", "maze", "--out", "new.txt"], "give a name that ends with .npz"),
        (["--task", "maze", "--out", "minari:x"], "'x' is not a Minari id"),
        (["--task", "maze", "--out", "minari:k/z-v0"], "'k/z-v0' is not a Minari id"),
        (["--task", "maze", "--out", "map.txt/x.npz"], "cannot write to 'map.txt'"),
        (["--task", "maze", "--speed", "nan"], "speed is nan"),
        (["--task", "maze", "--seed", "nan"], "--seed"),
        (["--task", "mase"], "there is no task 'mase': did you mean 'maze'?"),
        ([], "no task is given: add --task"),
        (["--task", "custom"], "--task custom has no map: add --layout"),
        (["--task", "maze", "--layout", "map.txt"], "maze has its own map: leave --layout out"),
        (["--task", "maze", "--room-size", "600", "500"], "--room-size is given without a map: add --layout"),
        (["--task", "maze", "--episodes", "0"], "the number of episodes is 0: it must be an integer from 1"),
        (["--task", "maze", "--seed", "-1"], "the seed is -1: it must be an integer from 0"),
        (["--task", "maze", "--speed", "0"], "speed is 0.0: it must be a number from 0.1 to 1"),
        (
            ["--task", "maze", "--expert", "human-like", "--speed", "0.5"],
            "--speed and --any-angle do not apply to the expert",
        ),
        (
            ["--task", "maze", "--expert", "human-like", "--any-angle"],
            "--speed and --any-angle do not apply to the expert",
        ),
        (["--task", "maze", "--expert", "scripted"], "maze has no expert 'scripted': choose one of astar"),
        (["--task", "maze", "--image-size", "64"], "--image-size is given, and maze observes states"),
        (["--task", "maze", "--realtime"], "--realtime does not apply to maze: leave it out"),
        (["--task", "Pendulum-v1"], "Pendulum-v1 has no expert: record a person"),
    ],
)
def test_collect_refuses_before_it_works(arguments, sentence, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    Path("old.npz").write_text("precious")
    Path("map.txt").write_text(MAP)
    refused(sentence, "collect", "--out", "new.npz", *arguments)
    assert sorted(os.listdir()) == ["map.txt", "old.npz"] and Path("old.npz").read_text() == "precious"


def test_collect_replaces_a_file_by_force(tmp_path):
    (tmp_path / "old.npz").write_text("precious")
    run("collect", "--task", "maze", "--episodes", 1, "--out", tmp_path / "old.npz", "--force")
    assert len(load_demos(tmp_path / "old.npz")) == 1


def test_collect_takes_images(tmp_path):
    images = ["--obs-type", "pixels", "--image-size", 32]
    run("collect", "--task", "zigzag", "--episodes", 1, *images, "--out", tmp_path / "images.npz")
    assert load_demos(tmp_path / "images.npz")[0].observations.shape[1:] == (32, 32, 3)


# ---- anybody's environment


class Swinger:
    """A policy for Pendulum-v1."""

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return 2 * np.sign(observation[:, 2:]), state


def test_another_environment_goes_through_all_commands(tmp_path, capsys, refused):
    swings, back = tmp_path / "swings.npz", tmp_path / "back.npz"
    data = collect(Swinger(), "Pendulum-v1", 20, seed=3, max_steps=30, g=9.0)
    assert data.task == "Pendulum-v1" and data.env_kwargs == {"g": 9.0} and data.source["made_by"] == "Swinger"
    save_demos(data, swings)
    run("demos", "info", swings)
    assert "Pendulum-v1" in capsys.readouterr().out
    run("demos", "replay", swings, "--check")
    assert "20 episodes resimulated from their seeds" in capsys.readouterr().out
    run("demos", "convert", swings, back)
    assert swings.read_bytes() == back.read_bytes()
    forged = dataclasses.replace(data[1], seed=99)
    save_demos(DemoDataset(data.task, (data[0], forged), data.source), back)
    refused("1 of 2 episodes", "demos", "replay", back, "--check")
    save_demos(DemoDataset(data.task, (dataclasses.replace(data[0], seed=None),), data.source), back)
    refused("without a seed or in real time cannot be checked", "demos", "replay", back, "--check")
    refused(
        "states of Pendulum-v1 cannot be drawn", "demos", "replay", back, "--gif", tmp_path / "x.gif"
    )  # has no seed
    refused("Pendulum-v1 has no map", "demos", "plot", swings, "--out", tmp_path / "x.png")
    run("train", "--agent", "bc", "--demos", swings, "--steps", 2, "--out", tmp_path / "bc")
    run("evaluate", tmp_path / "bc", "--episodes", 1)
    assert "bc on Pendulum-v1: return -" in capsys.readouterr().out
    refused("trained on Pendulum-v1, and the observations of maze have", "evaluate", tmp_path / "bc", "--task", "maze")


# ---- evaluate


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--episodes", "0"], "the number of episodes is 0: it must be an integer from 1"),
        (["--seed", "-1"], "the seed is -1: it must be an integer from 0"),
        (["--video-episode", "1"], "--video-episode is given without --video: add --video"),
        (["--video", "x.avi"], "ends with .gif or .mp4"),
        ([], "nowhere"),
    ],
)
def test_evaluate_refuses_before_it_loads_the_agent(arguments, sentence, refused):
    refused(sentence, "evaluate", "nowhere", *arguments)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a display")
def test_evaluate_asks_for_a_display_before_it_plays(agent, refused, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    refused("without a display: use a desktop, or use --video", "evaluate", agent, "--render")


@pytest.fixture(scope="module")
def agent(four_room, tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents") / "bc"
    run("train", "--agent", "bc", "--demos", four_room, "--steps", 2, "--out", folder)
    return folder


def test_evaluate_tells_demonstrations_from_an_agent(four_room, refused):
    refused("is a file of demonstrations, not an agent: give the folder", "evaluate", four_room)


def test_evaluate_says_what_was_reached(agent, capsys):
    run("evaluate", agent, "--episodes", 1, "--per-episode", "--noise-std", 0)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["seed", "goal_ratio", "success", "length", "return"]
    assert (
        "of the goals reached" in shown[2] and "% of the episodes complete; 1 episode, 200 steps on average" in shown[2]
    )


@pytest.mark.parametrize(
    ("words", "played"),
    [
        ([], {"random_goals": True, "noise_std": 0.0}),
        (["--no-random-goals"], {"random_goals": False, "noise_std": 0.0}),
        (["--noise-std", 0.2], {"random_goals": True, "noise_std": 0.2}),
    ],
)
def test_evaluate_plays_as_in_training_unless_an_option_says_otherwise(agent, tmp_path, monkeypatch, words, played):
    """An option with the value of a default is given all the same."""
    trained = load_agent(agent)
    trained.description["env_kwargs"] = {"random_goals": True, "noise_std": 0.0}
    trained.save(tmp_path / "bc")
    seen = []
    monkeypatch.setattr("pidm_nav.commands.evaluate.evaluate", lambda *_, **named: (seen.append(named), result)[1])
    result = evaluate(trained, "four-room", 1)
    run("evaluate", tmp_path / "bc", "--episodes", 1, *words)
    assert {name: seen[0][name] for name in played} == played


def test_evaluate_plays_tasks_with_the_same_observations_only(agent, tmp_path, refused):
    unseen = f"{agent} was trained on four-room, and the observations of "
    refused(unseen + "maze have shape (32,) instead of (14,)", "evaluate", agent, "--task", "maze")
    (tmp_path / "map.txt").write_text("##########\n#........#\n#.A.1.2..#\n#..3.4...#\n##########\n")
    other = ["--task", "custom", "--layout", tmp_path / "map.txt", "--room-size", 900, 900]
    refused(unseen + "custom have other bounds", "evaluate", agent, *other)
    film = ["--episodes", 2, "--video", "x.gif", "--video-episode", 5]
    refused("--video-episode is 5: it must be an integer from 0 to 1", "evaluate", agent, *film)


# ---- info


def test_info_prints_the_papers_table(shared, capsys):
    folder = shared / "data" / "reference_demos"
    run("demos", "info", folder / "four_room_human.npz", folder / "zigzag_human.npz", folder / "multiroom_astar.npz")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][-9:] == ["4", "200", "14", "50", "5821", "103", "116.42", "154", "100%"]
    assert lines[2][-9:] == ["6", "150", "20", "50", "4009", "66", "80.18", "106", "100%"]
    assert lines[3][-6:] == ["50", "13146", "245", "262.92", "277", "100%"]


def test_info_takes_other_environments_and_refuses_none(tmp_path, capsys, refused):
    episode = Episode(np.zeros((3, 4)), np.zeros((2, 1)), np.zeros(2), False, True)
    save_demos(DemoDataset("Swing-v1", (episode,)), tmp_path / "swing.npz")
    run("demos", "info", tmp_path / "swing.npz")
    assert "Swing-v1" in capsys.readouterr().out
    refused("no demonstrations are given", "demos", "info")
    refused("swing.npz", "demos", "info", tmp_path / "more" / "swing.npz")


def test_info_prints_what_files_say_as_it_is(tmp_path, capsys):
    episode = Episode(np.zeros((3, 4)), np.zeros((2, 1)), np.zeros(2), False, True)
    save_demos(DemoDataset("Swing[/b]-v1", (episode,), {"made_by": "[/red]\x1b[31m"}), tmp_path / "[bold]x.npz")
    run("demos", "info", tmp_path / "[bold]x.npz")
    shown = capsys.readouterr().out
    assert "[/red]\\x1b[31m" in shown and "Swing[/b]-v1" in shown and "[bold]x" in shown and "\x1b" not in shown


# ---- convert


def test_leftovers_of_dead_processes_are_ignored_and_removed(four_room, tmp_path):
    for name in (".there.tmp.npz", "..there.tmp.npz.lock"):
        (tmp_path / name).write_text("half a file")
    run("demos", "convert", four_room, tmp_path / "there.npz")
    assert os.listdir(tmp_path) == ["there.npz"]


def test_convert_through_every_format(four_room, tmp_path, monkeypatch, refused):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    run("demos", "convert", four_room, "minari:pidmnav/four-room/astar-v0")
    run("demos", "convert", "minari:pidmnav/four-room/astar-v0", tmp_path / "back.npz")
    assert (tmp_path / "back.npz").read_bytes() == four_room.read_bytes()
    run("demos", "convert", four_room, tmp_path / "four.hdf5")
    run("demos", "convert", tmp_path / "four.hdf5", tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == four_room.read_bytes()
    run("collect", "--task", "four-room", "--episodes", 1, "--out", "minari:pidmnav/four-room/one-v0")
    assert len(load_demos("minari:pidmnav/four-room/one-v0")) == 1
    refused("already has", "demos", "convert", four_room, "minari:pidmnav/four-room/astar-v0")
    refused("already has", "collect", "--task", "maze", "--out", "minari:pidmnav/four-room/one-v0")
    run("demos", "convert", four_room, "minari:pidmnav/four-room/astar-v0", "--force")


def test_convert_reads_the_papers_folders(shared, tmp_path):
    folder = shared / "data" / "reference_format" / "maze_human_data"
    run("demos", "convert", folder, tmp_path / "maze.npz")
    assert load_demos(tmp_path / "maze.npz").summary() == load_demos(folder).summary()


def test_convert_never_harms_a_file(four_room, tmp_path, refused):
    target = tmp_path / "there.npz"
    target.write_text("precious")
    refused("there.npz' exists", "demos", "convert", four_room, target)
    (tmp_path / "cut.npz").write_bytes(four_room.read_bytes()[:-40])
    refused("cut.npz' cannot be read", "demos", "convert", tmp_path / "cut.npz", target, "--force")
    assert target.read_text() == "precious"
    refused("ends with .npz or .hdf5, or minari:ID", "demos", "convert", four_room, tmp_path / "folder")
    run("demos", "convert", four_room, target, "--force")
    assert target.read_bytes() == four_room.read_bytes()


# ---- edit


def edited(path: Path, *arguments: Any) -> DemoDataset:
    """What `demos edit` makes of a file, which must stay as it was."""
    before, out = path.read_bytes(), path.with_name("edited.npz")
    run("demos", "edit", path, *arguments, "--out", out, "--force")
    assert path.read_bytes() == before
    return load_demos(out)


@pytest.fixture
def walks(tmp_path):
    """Five episodes: number 1 and 3 end early and fail."""
    data = collect(AStarExpert("four-room"), "four-room", 5, seed=20)
    short = collect(AStarExpert("four-room"), "four-room", 5, seed=20, max_steps=30)
    episodes = tuple((short if index in (1, 3) else data)[index] for index in range(5))
    save_demos(DemoDataset("four-room", episodes, data.source), tmp_path / "walks.npz")
    return tmp_path / "walks.npz"


@pytest.mark.parametrize(
    ("arguments", "seeds"),
    [
        (["--keep", "successes"], [20, 22, 24]),
        (["--drop", "0,3"], [21, 22, 24]),
        (["--keep", "1:4"], [21, 22, 23]),
        (["--keep", "4, 0"], [20, 24]),
        (["--keep", "successes", "--drop", "1,2"], [20, 24]),  # numbers are those of the file
        (["--keep", "successes", "--trim", ":9"], [20, 22, 24]),  # successes before they are trimmed
    ],
)
def test_edit_chooses_episodes(walks, arguments, seeds):
    assert [episode.seed for episode in edited(walks, *arguments)] == seeds


def test_edit_merges_after_everything_else_and_keeps_the_history(walks, four_room, capsys):
    data = edited(walks, "--keep", "successes", "--drop", 2, "--trim", "0:20", "--merge", four_room, four_room)
    assert [episode.seed for episode in data] == [20, 24, 5, 6, 7, 5, 6, 7]
    assert [len(episode) == 20 for episode in data] == [True] * 2 + [False] * 6
    (entry,) = data.source["history"]
    assert entry["done"] == "--keep successes --drop 2 --trim 0:20 --merge four.npz four.npz"
    assert entry["version"] == pidm_nav.__version__
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (walks, four_room, four_room)]
    assert [file["sha256"] for file in entry["files"]] == hashes
    assert [file["name"] for file in entry["files"]] == ["walks.npz", "four.npz", "four.npz"]
    first, spins = walks.with_name("edited.npz"), walks.with_name("spins.npz")
    save_demos(collect(Spinner(), "four-room", 1, max_steps=9), spins)
    run("demos", "edit", first, "--merge", spins, "--out", walks.with_name("twice.npz"))
    capsys.readouterr()
    run("demos", "info", walks.with_name("twice.npz"))
    told = capsys.readouterr().out
    assert f"twice was edited by pidm-nav {pidm_nav.__version__}: {entry['done']}" in told
    assert "--merge spins.npz" in told and all(f"sha256 {each}" in told for each in hashes)
    again = edit_demos(walks.with_name("twice.npz"), keep="0")
    assert [len(part["history"]) for part in again.source["parts"]] == [3, 2]  # each part keeps its own


@pytest.mark.parametrize(
    ("trim", "first", "end"), [("0:20", 0, 20), ("10:", 10, None), (":-5", 0, -5), ("-7:", -7, None)]
)
def test_trimmed_episodes_are_slices(walks, trim, first, end):
    whole, data = load_demos(walks), edited(walks, f"--trim={trim}")
    for before, after in zip(whole, data, strict=True):
        steps = slice(first, end).indices(len(before))[:2]
        cut_start, cut_end = steps[0] > 0, steps[1] < len(before)
        assert np.array_equal(after.observations, before.observations[steps[0] : steps[1] + 1])
        assert np.array_equal(after.actions, before.actions[steps[0] : steps[1]])
        assert np.array_equal(after.rewards, before.rewards[steps[0] : steps[1]])
        goals = before.infos["goals_reached"][steps[0] : steps[1] + 1]
        assert np.array_equal(after.infos["goals_reached"], goals)
        assert after.terminated == (before.terminated and not cut_end)
        assert after.truncated == (before.truncated or cut_end) and after.success == (before.success and not cut_end)
        assert after.seed == (None if cut_start else before.seed)


def test_one_episode_is_trimmed_and_the_others_stay(walks):
    whole, edited = load_demos(walks), edit_demos(walks, trim="1=2:5")
    assert [len(each) for each in edited] == [3 if number == 1 else len(each) for number, each in enumerate(whole)]
    np.testing.assert_array_equal(edited[1].actions, whole[1].actions[2:5])


def test_infos_of_every_step_are_trimmed_too(tmp_path):
    infos = {"each step": np.arange(4), "each state": np.arange(5)}
    episode = Episode(np.zeros((5, 1)), np.zeros((4, 1)), np.zeros(4), True, False, 3, infos)
    save_demos(DemoDataset("Swing-v1", (episode,)), tmp_path / "swing.npz")
    (trimmed,) = edit_demos(tmp_path / "swing.npz", trim="1:3")
    assert {key: array.tolist() for key, array in trimmed.infos.items()} == {
        "each step": [1, 2],
        "each state": [1, 2, 3],
    }


def test_a_trimmed_end_passes_the_check_and_a_trimmed_beginning_does_not(walks, refused, capsys):
    edited(walks, "--trim", ":25")
    run("demos", "replay", walks.with_name("edited.npz"), "--check")
    assert "5 episodes resimulated from their seeds" in capsys.readouterr().out
    edited(walks, "--trim", "3:")
    told = refused("5 of 5 episodes", "demos", "replay", walks.with_name("edited.npz"), "--check")
    assert "episode 0, step 0: the episode does not begin at the map's start" in told


def test_edit_in_place_only_when_asked(walks, refused):
    before = walks.read_bytes()
    refused("--out is the edited file", "demos", "edit", walks, "--drop", 0, "--out", walks, "--force")
    refused("give either --out", "demos", "edit", walks, "--drop", 0)
    refused("give either --out", "demos", "edit", walks, "--drop", 0, "--in-place", "--out", "x.npz")
    refused("needs a file, and 'maze/astar' is not one", "demos", "edit", "maze/astar", "--drop", 0, "--in-place")
    with only_writer(walks, ""):
        refused("is being written to by another process", "demos", "edit", walks, "--drop", 0, "--in-place")
    assert walks.read_bytes() == before
    run("demos", "edit", walks, "--drop", 0, "--in-place")
    assert [episode.seed for episode in load_demos(walks)] == [21, 22, 23, 24]
    assert os.listdir(walks.parent) == ["walks.npz"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to do: give keep, drop, trim or merge"),
        (["--drop", "5"], "there is no episode 5: choose 0 to 4"),
        (["--keep", "3:99"], "there is no episode 5"),
        (["--keep", "failures"], "'failures' is not an episode"),
        (["--drop=-1"], "'-1' is not an episode"),
        (["--drop", "0:5"], "no episode is left of"),
        (["--keep", "successes", "--drop", "0,2,4"], "no episode is left of"),
        (["--trim", "30:"], "trim '30:' leaves no step of episode 1, which has 30: drop it, or keep more"),
        (["--trim", "9:9"], "trim '9:9' leaves no step of episode 0"),
        (["--trim", "5"], "'5' is not a range of steps"),
        (["--trim", "1:9:2"], "'1:9:2' is not a range of steps"),
        (["--merge", "maze/astar"], "'maze/astar' holds demonstrations of maze, not of four-room"),
        (["--merge", "loud.npz"], "'loud.npz' was made with another noise_std (0.5, not 0.2)"),
        (["--merge", "nowhere.npz"], "no demonstrations 'nowhere.npz'"),
        (["--drop", "0", "--out", "loud.npz"], "'loud.npz' exists"),
    ],
)
def test_edit_refuses_before_it_writes(walks, arguments, sentence, monkeypatch, refused):
    monkeypatch.chdir(walks.parent)
    save_demos(collect(AStarExpert("four-room"), "four-room", 1, max_steps=3, noise_std=0.5), "loud.npz")
    before = walks.read_bytes()
    refused(sentence, "demos", "edit", "walks.npz", "--out", "new.npz", *arguments)
    assert sorted(os.listdir()) == ["loud.npz", "walks.npz"] and walks.read_bytes() == before


def test_merge_knows_the_defaults_of_the_environment(walks):
    data = collect(AStarExpert("four-room"), "four-room", 1, max_steps=3, noise_std=0.2, room_size=(800, 800))
    save_demos(data, walks.with_name("same.npz"))
    assert len(edit_demos(walks, merge=[walks.with_name("same.npz")])) == 6


@pytest.mark.parametrize("history", [5, ["x"], [{"done": 3}], {"done": "x"}])
def test_a_damaged_history_is_one_sentence(walks, history, refused):
    data = load_demos(walks)
    save_demos(DemoDataset(data.task, data.episodes, {**data.source, "history": history}), walks)
    refused("the history of these demonstrations is invalid", "demos", "info", walks)
    refused("the history of these", "demos", "edit", walks, "--drop", 0, "--in-place")


# ---- replay


@pytest.mark.parametrize("name", ["out.gif", "out.mp4"])
def test_replay_draws_every_step(four_room, tmp_path, name):
    import imageio.v3 as imageio

    run("demos", "replay", four_room, "--gif", tmp_path / name, "--episode", 1, "--size", 96)
    frames = imageio.imread(tmp_path / name)
    steps = len(load_demos(four_room)[1])
    assert frames.shape[1:] == (96, 96, 3)
    # A GIF merges equal frames in a row; there are none while the agent moves every step.
    assert abs(len(frames) - (steps + 1)) <= 2
    assert not np.array_equal(frames[0], frames[-1])


def test_replay_refuses(four_room, tmp_path, refused):
    (tmp_path / "file").write_text("")
    refused("cannot write to", "demos", "replay", four_room, "--gif", tmp_path / "file" / "x.mp4")  # not ffmpeg's words
    (tmp_path / "file").unlink()
    refused("nothing to do", "demos", "replay", four_room)
    refused("leave it out, as --check checks all episodes", "demos", "replay", four_room, "--check", "--episode", 99)
    refused("no episode 3", "demos", "replay", four_room, "--gif", tmp_path / "x.gif", "--episode", 3)
    refused("ends with .gif or .mp4", "demos", "replay", four_room, "--gif", tmp_path / "x.avi")
    for name, value in (("--episode", "-1"), ("--size", "-1"), ("--size", "nan"), ("--fps", "0"), ("--fps", "nan")):
        refused(value, "demos", "replay", four_room, "--gif", tmp_path / "x.gif", name, value)
    for fps in ("inf", "1e308", "1e-320"):
        for name in ("x.gif", "x.mp4"):
            refused("from 0.1 to 1,000", "demos", "replay", four_room, "--gif", tmp_path / name, "--fps", fps)
    assert os.listdir(tmp_path) == []


def test_environments_that_cannot_be_played_again_are_told(tmp_path, refused):
    swings = collect(Swinger(), "Pendulum-v1", 1, max_steps=3)
    for env_kwargs in ({"g": "x"}, {"rows": 3}, {"self": 1}, {"unknown": 1}):
        save_demos(DemoDataset("Pendulum-v1", swings.episodes, {"env_kwargs": env_kwargs}), tmp_path / "swing.npz")
        refused("Pendulum-v1 cannot be", "demos", "replay", tmp_path / "swing.npz", "--check")
    gray = Episode(np.zeros((3, 16, 16, 1), np.uint8), np.zeros((2, 1)), np.zeros(2), False, True)
    save_demos(DemoDataset("Pendulum-v1", (gray,)), tmp_path / "gray.npz")
    refused("give RGB images", "demos", "replay", tmp_path / "gray.npz", "--gif", tmp_path / "x.gif")


@pytest.mark.parametrize("infos", [{"states": np.zeros((10, 1))}, {"states": np.zeros((9, 20))}])
def test_odd_states_are_refused(infos):
    data = collect(Spinner(), "zigzag", 1, max_steps=9)
    odd = DemoDataset("zigzag", (dataclasses.replace(data[0], infos=infos),))
    with pytest.raises(ValueError, match="hold images or single numbers"):
        demo_states(odd, 0)


@pytest.mark.parametrize("kwargs", [{"relative_goals": True}, {"observe_goals": False}])
def test_states_are_drawn_whatever_was_observed(kwargs):
    full = collect(Spinner(), "zigzag", 2, max_steps=9)
    other = collect(Spinner(), "zigzag", 2, max_steps=9, **kwargs)
    for index in range(2):
        assert np.allclose(demo_states(other, index), demo_states(full, index), atol=1e-3)


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_collected_episodes_simulate_again_to_the_bit(task):
    data = collect(AStarExpert(task), task, 4, clip_noise=False)
    found = check_demos(data)
    assert (found.resimulated, found.tested, found.mismatches) == (4, 0, ())
    actions = data[2].actions.copy()
    actions[10] = -actions[10]
    forged = (*data.episodes[:2], dataclasses.replace(data[2], actions=actions), data[3])
    found = check_demos(DemoDataset(task, forged, data.source))
    assert [(each.episode, each.step) for each in found.mismatches] == [(2, 11)]


def test_merged_episodes_simulate_again_where_all_parts_have_the_same_arguments():
    quiet, loud = (collect(Spinner(), "zigzag", 2, max_steps=5, noise_std=noise_std) for noise_std in (0.1, 0.3))
    again = collect(Spinner(), "zigzag", 2, seed=7, made_by="another", max_steps=5, noise_std=0.1)
    found = check_demos(DemoDataset.concatenate([quiet, again]))
    assert (found.resimulated, found.tested, found.mismatches) == (4, 0, ())
    assert check_demos(DemoDataset.concatenate([quiet, loud])).resimulated == 0


@pytest.mark.parametrize("who", ["human", "astar"])
@pytest.mark.parametrize("task", PAPER_TASKS)
def test_the_papers_recordings_are_possible(shared, task, who):
    path = shared / "data" / "reference_demos" / f"{task.replace('-', '_')}_{who}.npz"
    found = check_demos(load_demos(path)[:20])
    assert (found.resimulated, found.tested, found.mismatches) == (0, 20, ())


def unseeded(task: str = "four-room", **env_kwargs: Any) -> DemoDataset:
    data = collect(AStarExpert(task), task, 1, **env_kwargs)
    return DemoDataset(task, (dataclasses.replace(data[0], seed=None),), data.source)


@pytest.mark.parametrize("clip_noise", [True, False])
@pytest.mark.parametrize("noise_std", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("task", PAPER_TASKS)
def test_unseeded_episodes_of_the_environment_are_possible(task, noise_std, clip_noise):
    assert check_demos(unseeded(task, noise_std=noise_std, clip_noise=clip_noise)).mismatches == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("wall", "overlaps a wall"),
        ("jump", "no action with noise"),
        ("start", "does not begin at the map's start"),
        ("early goal", "counted that is not touched"),
        ("late goal", "touched and not counted"),
        ("reward", "reward is not"),
        ("order", "not reached in order"),
        ("end", "does not end at its last goal"),
        ("outside", "outside the room"),
    ],
)
def test_impossible_recordings_are_found(change, reason):
    data = unseeded()
    episode = data[0]
    observations, rewards = episode.observations.copy(), episode.rewards.copy()
    first = int(np.argmax(rewards)) + 1  # the observation at which the first goal is reached
    terminated = True
    if change == "wall":
        observations[5, :2] = (400, 60)
    elif change == "jump":
        observations[5, 0] += 60
    elif change == "start":
        observations[0, 0] += 4
    elif change == "early goal":
        observations[first - 1, 4] = 1
    elif change == "late goal":
        observations[first, 4] = 0
    elif change == "reward":
        rewards[3] = 1
    elif change == "order":
        observations[1:, 7] = 1
    elif change == "end":
        terminated = False
    else:
        observations[5, 0] = -40
    forged = dataclasses.replace(episode, observations=observations, rewards=rewards, terminated=terminated)
    found = check_demos(DemoDataset(data.task, (forged,), data.source))
    assert any(reason in mismatch.reason for mismatch in found.mismatches), found.mismatches


def test_check_reports_and_fails(tmp_path, capsys, refused):
    data = unseeded()
    observations = data[0].observations.copy()
    observations[5, 0] += 60
    forged = DemoDataset(data.task, (dataclasses.replace(data[0], observations=observations),), data.source)
    save_demos(forged, tmp_path / "forged.npz")
    sentence = f"1 of 1 episode in '{tmp_path / 'forged.npz'}' do not match the environment"
    told = refused(sentence, "demos", "replay", tmp_path / "forged.npz", "--check")
    assert "1 episode tested step by step" in told and "episode 0, step 5: no action with noise" in told
    save_demos(data, tmp_path / "fine.npz")
    run("demos", "replay", tmp_path / "fine.npz", "--check")
    assert "every step matches the environment" in capsys.readouterr().out


# ---- plot


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_plot_draws_files_and_tasks(four_room, tmp_path, suffix):
    save_demos(collect(AStarExpert("maze"), "maze", 2), tmp_path / "maze.npz")
    out = tmp_path / "deep" / f"traces.{suffix}"
    run("demos", "plot", four_room, tmp_path / "maze.npz", "--out", out, "--episodes", 2)
    content = out.read_bytes()
    assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix])
    assert os.listdir(tmp_path / "deep") == [out.name]


def test_plotted_traces_have_their_demonstrators_colors(four_room, tmp_path):
    from pidm_nav.demos.traces import plot_traces
    from pidm_nav.plots import demonstrator_color, demonstrator_colors

    data = load_demos(four_room)
    figure = plot_traces({"first": data[:1], "second": data[1:]})
    (ax,) = figure.axes
    assert ax.get_title() == "Four room"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first (1)", "second (2)"]
    colors = [line.get_color() for line in ax.get_legend().get_lines()]
    assert colors == demonstrator_colors([data, data]) and colors[0] == demonstrator_color(data) != colors[1]
    drawn = [each for each in ax.collections if hasattr(each, "get_segments")]
    assert sorted(len(each.get_segments()) for each in drawn) == [1, 2]


def test_plot_refuses(four_room, tmp_path, refused):
    refused("no demonstrations are given", "demos", "plot", "--out", tmp_path / "x.png")
    refused(".png, .pdf or .svg", "demos", "plot", four_room, "--out", tmp_path / "x.docx")
    refused("--episodes is 0", "demos", "plot", four_room, "--episodes", 0, "--out", tmp_path / "x.png")
    episode = Episode(np.zeros((3, 4)), np.zeros((2, 1)), np.zeros(2), False, True)
    save_demos(DemoDataset("Swing-v1", (episode,)), tmp_path / "swing.npz")
    refused("Swing-v1 has no map", "demos", "plot", tmp_path / "swing.npz", "--out", tmp_path / "x.png")
    assert os.listdir(tmp_path) == ["swing.npz"]


def test_anybodys_episodes_are_filmed_while_they_are_played_again(tmp_path):
    class Push:
        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return np.ones((len(observation), 1), np.float32), None

    save_demos(collect(Push(), "Pendulum-v1", 2, max_steps=7), tmp_path / "swing.npz")
    main(["demos", "replay", str(tmp_path / "swing.npz"), "--episode", "1", "--gif", str(tmp_path / "swing.gif")])
    with Image.open(tmp_path / "swing.gif") as film:
        assert film.n_frames == 8 and film.size == (500, 500)


def test_of_two_that_write_one_file_one_is_refused(tmp_path, monkeypatch):
    """The second begins while the first collects, and neither says that it wrote what the other replaced."""
    target, told = str(tmp_path / "d.npz"), []
    words = ["collect", "--task", "zigzag", "--episodes", "1", "--out", target]
    first = commands.collect

    def collect_twice(*arguments, **settings):
        monkeypatch.setattr(commands, "collect", first)
        with pytest.raises(SystemExit) as ended:
            main([*words, "--force"])
        told.append(ended.value.code)
        return first(*arguments, **settings)

    monkeypatch.setattr(commands, "collect", collect_twice)
    main(words)
    assert told == [2] and len(load_demos(target)) == 1


def test_info_shows_the_return_of_other_environments(tmp_path, capsys):
    save_demos(collect(make_expert("random", "Pendulum-v1"), "Pendulum-v1", 2, max_steps=5), tmp_path / "p.npz")
    main(["demos", "info", str(tmp_path / "p.npz"), "maze/astar"])
    header, pendulum, maze = capsys.readouterr().out.splitlines()
    mean = np.mean([episode.rewards.sum() for episode in load_demos(tmp_path / "p.npz")])
    assert header.split()[-1] == "Return" and pendulum.split()[-1] == f"{mean:.4g}" and maze.split()[-1] == "–"
    main(["demos", "info", "maze/astar"])
    assert "Return" not in capsys.readouterr().out
