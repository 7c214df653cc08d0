import dataclasses
import os
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tyro

import pidm_nav
from pidm_nav import TASKS
from pidm_nav import rollout as evaluate_module
from pidm_nav.commands import demos as commands
from pidm_nav.demos import DemoDataset, Episode, load_demos, save_demos
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.replay import check_demos, demo_states

MAP = "##########\n#........#\n#..A.....#\n#....##..#\n#..2....1#\n##########\n"


def run(command: str, *arguments: Any) -> None:
    """A command as the command line calls it."""
    tyro.cli(getattr(commands, command), args=list(map(str, arguments)))


def refused(*words: str) -> Any:
    return pytest.raises((ValueError, OSError), match=".*".join(words))


@pytest.fixture(scope="module")
def four_room(tmp_path_factory):
    path = tmp_path_factory.mktemp("demos") / "four.npz"
    run("collect", "--task", "four-room", "--episodes", 3, "--seed", 5, "--out", path)
    return path


# ---- collect


@pytest.mark.parametrize("task", TASKS)
def test_collected_episodes_are_those_of_the_single_environment(task):
    expert = AStarExpert(task)
    data = collect(expert, task, episodes=3, seed=11, noise_std=0.3)
    env = gym.make(TASKS[task].env_id, noise_std=0.3)
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
    assert data.source["made_by"] == "AStarExpert" and data.source["version"] == pidm_nav.__version__
    assert data.source["settings"] == expert.settings


class Spinner:
    """A policy with a state of its own, which must see each episode's start once."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        state = 0 if state is None else state + 1
        self.starts.append(int(episode_start.sum()))
        return np.full((len(observation), 2), [5.0 * (-1) ** state, np.cos(state)]), state


def test_policies_keep_their_state_and_may_overshoot_the_stick(monkeypatch):
    monkeypatch.setattr(evaluate_module, "BATCH", 2)
    policy = Spinner()
    ended: list[int] = []
    episodes = rollout(policy, "maze", episodes=5, max_steps=4, progress=ended.append)
    assert policy.starts == [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0] and sum(ended) == 5
    assert [episode.seed for episode in episodes] == [0, 1, 2, 3, 4]
    for episode in episodes:
        assert episode.truncated and not episode.terminated and len(episode) == 4
        assert episode.actions[:, 0].tolist() == [1, -1, 1, -1]
    monkeypatch.undo()
    at_once = rollout(Spinner(), "maze", episodes=5, max_steps=4)
    assert all(np.array_equal(a.observations, b.observations) for a, b in zip(episodes, at_once, strict=True))


def test_collect_writes_and_shows(four_room, capsys):
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
    run("replay", tmp_path / "c.npz", "--check", "--gif", tmp_path / "c.gif", "--size", 100)
    run("plot", tmp_path / "c.npz", "--out", tmp_path / "c.png")


def test_collect_refuses_before_it_works(tmp_path):
    (tmp_path / "old.npz").write_text("precious")
    with refused("old.npz' exists", "--force"):
        run("collect", "--task", "maze", "--out", tmp_path / "old.npz")
    with refused("must|that ends in .npz"):
        run("collect", "--task", "maze", "--out", tmp_path / "new.h5")
    with refused("no task is called 'mase'"):
        run("collect", "--task", "mase", "--out", tmp_path / "new.npz")
    with refused("needs --layout"):
        run("collect", "--task", "custom", "--out", tmp_path / "new.npz")
    with refused("episodes is 0"):
        run("collect", "--task", "maze", "--episodes", 0, "--out", tmp_path / "new.npz")
    assert os.listdir(tmp_path) == ["old.npz"] and (tmp_path / "old.npz").read_text() == "precious"
    run("collect", "--task", "maze", "--episodes", 1, "--out", tmp_path / "old.npz", "--force")
    assert len(load_demos(tmp_path / "old.npz")) == 1


# ---- info


def test_info_prints_the_papers_table(shared, capsys):
    folder = shared / "data" / "reference_demos"
    run("info", folder / "four_room_human.npz", folder / "zigzag_human.npz", folder / "multiroom_astar.npz")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][-9:] == ["4", "200", "14", "50", "5821", "103", "116.42", "154", "100%"]
    assert lines[2][-9:] == ["6", "150", "20", "50", "4009", "66", "80.18", "106", "100%"]
    assert lines[3][-6:] == ["50", "13146", "245", "262.92", "277", "100%"]


def test_info_takes_other_environments_and_refuses_none(tmp_path, capsys):
    episode = Episode(np.zeros((3, 4)), np.zeros((2, 1)), np.zeros(2), False, True)
    save_demos(DemoDataset("Swing-v1", (episode,)), tmp_path / "swing.npz")
    run("info", tmp_path / "swing.npz")
    assert "Swing-v1" in capsys.readouterr().out
    with refused("no demonstrations given"):
        run("info")
    with refused("swing.npz"):
        run("info", tmp_path / "more" / "swing.npz")


# ---- convert


def test_convert_through_every_format(four_room, tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    run("convert", four_room, "minari:pidmnav/four-room/astar-v0")
    run("convert", "minari:pidmnav/four-room/astar-v0", tmp_path / "back.npz")
    assert (tmp_path / "back.npz").read_bytes() == four_room.read_bytes()
    with refused("already has"):
        run("convert", four_room, "minari:pidmnav/four-room/astar-v0")
    run("convert", four_room, "minari:pidmnav/four-room/astar-v0", "--force")


def test_convert_reads_the_papers_folders(shared, tmp_path):
    folder = shared / "data" / "reference_format" / "maze_human_data"
    run("convert", folder, tmp_path / "maze.npz")
    assert load_demos(tmp_path / "maze.npz").summary() == load_demos(folder).summary()


def test_convert_never_harms_a_file(four_room, tmp_path):
    target = tmp_path / "there.npz"
    target.write_text("precious")
    with refused("there.npz' exists"):
        run("convert", four_room, target)
    (tmp_path / "cut.npz").write_bytes(four_room.read_bytes()[:-40])
    with refused("cut.npz' cannot be read"):
        run("convert", tmp_path / "cut.npz", target, "--force")
    assert target.read_text() == "precious"
    with refused("ends in .npz, or minari:ID"):
        run("convert", four_room, tmp_path / "folder")
    run("convert", four_room, target, "--force")
    assert target.read_bytes() == four_room.read_bytes()


# ---- replay


@pytest.mark.parametrize("name", ["out.gif", "out.mp4"])
def test_replay_draws_every_step(four_room, tmp_path, name):
    import imageio.v3 as imageio

    run("replay", four_room, "--gif", tmp_path / name, "--episode", 1, "--size", 96)
    frames = imageio.imread(tmp_path / name)
    steps = len(load_demos(four_room)[1])
    assert frames.shape[1:] == (96, 96, 3)
    # A GIF merges equal frames in a row; there are none while the agent moves every step.
    assert abs(len(frames) - (steps + 1)) <= 2
    assert not np.array_equal(frames[0], frames[-1])


def test_replay_refuses(four_room, tmp_path):
    with refused("nothing to do"):
        run("replay", four_room)
    with refused("no episode 3"):
        run("replay", four_room, "--gif", tmp_path / "x.gif", "--episode", 3)
    with refused(r"\.gif or \.mp4"):
        run("replay", four_room, "--gif", tmp_path / "x.avi")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kwargs", [{"relative_goals": True}, {"observe_goals": False}])
def test_states_are_drawn_whatever_was_observed(kwargs):
    full = collect(Spinner(), "zigzag", 2, max_steps=9)
    other = collect(Spinner(), "zigzag", 2, max_steps=9, **kwargs)
    for index in range(2):
        assert np.allclose(demo_states(other, index), demo_states(full, index), atol=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_collected_episodes_simulate_again_to_the_bit(task):
    data = collect(AStarExpert(task), task, 4, clip_noise=False)
    found = check_demos(data)
    assert (found.resimulated, found.tested, found.mismatches) == (4, 0, ())
    actions = data[2].actions.copy()
    actions[10] = -actions[10]
    forged = (*data.episodes[:2], dataclasses.replace(data[2], actions=actions), data[3])
    found = check_demos(DemoDataset(task, forged, data.source))
    assert [(each.episode, each.step) for each in found.mismatches] == [(2, 11)]


@pytest.mark.parametrize("who", ["human", "astar"])
@pytest.mark.parametrize("task", TASKS)
def test_the_papers_recordings_are_possible(shared, task, who):
    path = shared / "data" / "reference_demos" / f"{task.replace('-', '_')}_{who}.npz"
    found = check_demos(load_demos(path)[:20])
    assert (found.resimulated, found.tested, found.mismatches) == (0, 20, ())


def unseeded(task: str = "four-room", **env_kwargs: Any) -> DemoDataset:
    data = collect(AStarExpert(task), task, 1, **env_kwargs)
    return DemoDataset(task, (dataclasses.replace(data[0], seed=None),), data.source)


@pytest.mark.parametrize("clip_noise", [True, False])
@pytest.mark.parametrize("noise_std", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("task", TASKS)
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


def test_check_reports_and_fails(tmp_path, capsys):
    data = unseeded()
    observations = data[0].observations.copy()
    observations[5, 0] += 60
    forged = DemoDataset(data.task, (dataclasses.replace(data[0], observations=observations),), data.source)
    save_demos(forged, tmp_path / "forged.npz")
    with refused("1 of 1 episodes", "are not what the environment does"):
        run("replay", tmp_path / "forged.npz", "--check")
    assert "episode 0, step 5: no action with noise" in capsys.readouterr().out
    save_demos(data, tmp_path / "fine.npz")
    run("replay", tmp_path / "fine.npz", "--check")
    assert "all of them are what the environment does" in capsys.readouterr().out


# ---- plot


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_plot_draws_files_and_tasks(four_room, tmp_path, suffix):
    save_demos(collect(AStarExpert("maze"), "maze", 2), tmp_path / "maze.npz")
    out = tmp_path / "deep" / f"traces.{suffix}"
    run("plot", four_room, tmp_path / "maze.npz", "--out", out, "--episodes", 2)
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


def test_plot_refuses(four_room, tmp_path):
    with refused("no demonstrations given"):
        run("plot", "--out", tmp_path / "x.png")
    with refused(r"\.png, \.pdf or \.svg"):
        run("plot", four_room, "--out", tmp_path / "x.docx")
    with refused("--episodes is 0"):
        run("plot", four_room, "--episodes", 0, "--out", tmp_path / "x.png")
    episode = Episode(np.zeros((3, 4)), np.zeros((2, 1)), np.zeros(2), False, True)
    save_demos(DemoDataset("Swing-v1", (episode,)), tmp_path / "swing.npz")
    with refused("'Swing-v1' have no map"):
        run("plot", tmp_path / "swing.npz", "--out", tmp_path / "x.png")
    assert os.listdir(tmp_path) == ["swing.npz"]
