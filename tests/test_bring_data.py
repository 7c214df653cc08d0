"""Data from elsewhere: D4RL's arrays, trajectories of imitation, actions in other units, and files that are merged."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from pidm_nav import PAPER_TASKS, DemoDataset, edit_demos, load_demos, save_demos, train
from pidm_nav.cli import main


def pendulum(*without: str, **changes: Any) -> dict[str, Any]:
    """Three episodes of 4, 3 and 2 steps, the last of which is cut off; observations count the steps."""
    count = np.arange(9.0)[:, None].repeat(3, axis=1)
    arrays = {
        "observations": count,
        "next_observations": count + 0.5,
        "actions": np.linspace(-2, 2, 9)[:, None],
        "rewards": np.arange(9.0),
        "terminals": np.arange(9) == 3,
        "timeouts": np.arange(9) == 6,
        "infos/note": np.array(["x"] * 9),
    }
    return {key: value for key, value in {**arrays, **changes}.items() if key not in without}


def test_flat_arrays_are_cut_where_episodes_end():
    data = load_demos(pendulum(), task="Pendulum-v1")
    assert data.task == "Pendulum-v1" and [len(episode) for episode in data] == [4, 3, 2]
    assert [(each.terminated, each.truncated) for each in data] == [(True, False), (False, True), (False, True)]
    assert data[1].observations[:, 0].tolist() == [4, 5, 6, 6.5] and data[1].rewards.tolist() == [4, 5, 6]


def test_without_next_observations_the_last_action_is_left_out():
    flags = np.isin(np.arange(9), [3, 4, 8])  # the second episode has one row, which leads nowhere
    data = load_demos(pendulum("next_observations", "rewards", "timeouts", terminals=flags), "Pendulum-v1")
    assert [len(episode) for episode in data] == [3, 3]
    assert data[0].observations[:, 0].tolist() == [0, 1, 2, 3] and not data[0].rewards.any()
    assert all(episode.truncated and not episode.terminated for episode in data)


@pytest.mark.parametrize("flags", [np.eye(9)[3], np.eye(9, dtype=int)[3], np.eye(9, dtype=bool)[3][:, None]])
def test_from_arrays_takes_flags_as_people_store_them(flags):
    arrays = pendulum("timeouts", "infos/note", terminals=flags)
    data = DemoDataset.from_arrays("Pendulum-v1", {"made_by": "me", "env_kwargs": {"g": 9.0}}, **arrays)
    assert [len(episode) for episode in data] == [4, 5] and data.env_kwargs == {"g": 9.0}


def test_choices_and_images_are_taken():
    images = np.zeros((9, 16, 16, 3), np.uint8)
    arrays = pendulum("next_observations", observations=images, actions=np.arange(9) % 2)
    data = load_demos(arrays, "Elsewhere-v0")
    assert data[0].observations.shape == (4, 16, 16, 3) and data[0].actions.shape == (3, 1)


def test_files_of_flat_arrays_are_loaded_and_converted(tmp_path):
    np.savez(tmp_path / "swing.npz", **pendulum())
    data = load_demos(tmp_path / "swing.npz")
    assert data.task == "swing" and data.source == {"made_by": "arrays: swing"}
    main(["demos", "convert", str(tmp_path / "swing.npz"), str(tmp_path / "ours.npz"), "--task", "Pendulum-v1"])
    assert load_demos(tmp_path / "ours.npz").task == "Pendulum-v1"
    assert train("bc", load_demos(tmp_path / "ours.npz"), steps=2, progress=False).description["task"] == "Pendulum-v1"


def test_the_task_of_flat_arrays_shows_in_the_goals(tmp_path):
    episode = load_demos("maze/astar")[0]
    end = np.arange(len(episode)) == len(episode) - 1
    arrays = {"observations": episode.observations[:-1], "actions": episode.actions, "terminals": end}
    arrays["next_observations"] = episode.observations[1:]
    data = load_demos(arrays)
    assert data.task == "maze" and data[0].success and np.array_equal(data[0].observations, episode.observations)
    np.savez(tmp_path / "some.npz", **arrays)
    assert load_demos(tmp_path / "some.npz").task == "maze"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (pendulum("terminals", "timeouts"), "terminals or timeouts"),
        (pendulum("actions"), "observations, actions, and"),
        ({}, "the arrays are nothing"),
        (pendulum(rewards=np.zeros(8)), "rewards have 8 rows, and actions 9"),
        (pendulum(observations=np.full((9, 3), np.nan)), r"NaN or infinite number at \[0, 0\]"),
        (pendulum(actions=np.full((9, 1), np.inf)), "actions have a NaN or infinite"),
        (pendulum(observations=np.array([{}] * 9)), "observations are of type object"),
        (pendulum(observations=[[1.0], [1.0, 2.0]]), "observations have rows of different lengths"),
        (pendulum(actions=np.array(["up"] * 9)), "actions are of type <U2"),
        (pendulum(rewards=3.0), "rewards are one value"),
        (pendulum(rewards=np.zeros((9, 2))), r"rewards have shape \(4, 2\)"),
        (pendulum(terminals=np.arange(9)), "terminals have shape .* values besides 0 and 1"),
        (pendulum(terminals=np.zeros((9, 2))), r"terminals have shape \(9, 2\)"),
        (pendulum("next_observations", terminals=np.ones(9)), "no episode has two rows"),
        ({key: value[:0] for key, value in pendulum().items()}, "no episode|no actions"),
        (pendulum(next_observations=np.zeros((9, 4))), "next_observations and observations have different shapes"),
        (5, "5 is not a dataset"),
        (None, "None is not a dataset"),
        ([5], "item 0 is int: give trajectories"),
        ([], "at least one episode|do not name their task"),
    ],
)
@pytest.mark.parametrize("task", ["Pendulum-v1", None])
def test_unfit_data_give_one_sentence(arrays, words, task):
    with pytest.raises(ValueError, match=words if task else f"{words}|give task=") as caught:
        load_demos(arrays, task)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


def test_hostile_files_of_flat_arrays_give_one_sentence(tmp_path):
    for change in ({"actions": np.zeros(3)}, {"observations": np.full((9, 3), np.nan)}, {"terminals": np.arange(9)}):
        np.savez(tmp_path / "x.npz", **pendulum(**change))
        with pytest.raises(ValueError, match=r"x\.npz' cannot be used: "):
            load_demos(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", **pendulum(observations=np.array([{}] * 9)))
    with pytest.raises(ValueError, match="pickled objects, which are never loaded"):
        load_demos(tmp_path / "x.npz")


@dataclass
class Trajectory:
    """Like that of imitation 1.0.1."""

    obs: Any
    acts: Any
    infos: Any = None
    terminal: bool = True


@dataclass
class TrajectoryWithRew(Trajectory):
    rews: Any = None


def test_trajectories_of_imitation_are_taken():
    plain, scored = Trajectory(np.zeros((3, 3)), np.zeros((2, 1)), terminal=False), TrajectoryWithRew
    data = load_demos([plain, scored(np.zeros((2, 3)), np.zeros(1, int), rews=np.ones(1))], "Pendulum-v1")
    assert [(len(each), each.terminated, each.rewards.sum()) for each in data] == [(2, False, 0), (1, True, 1)]
    with pytest.raises(ValueError, match="do not name their task"):
        load_demos([plain])
    with pytest.raises(ValueError, match="trajectory 1 cannot be used: an episode has 3 observations for 4 actions"):
        load_demos([plain, Trajectory(np.zeros((3, 3)), np.zeros((4, 1)))], "Pendulum-v1")


def test_imitations_own_trajectories_are_taken():
    types = pytest.importorskip("imitation.data.types", reason="imitation is not installed")
    made = load_demos("zigzag/astar")[:2]
    given = [types.Trajectory(each.observations, each.actions, None, each.terminated) for each in made]
    again = load_demos(given)
    assert again.task == "zigzag" and np.array_equal(again[1].observations, made[1].observations)


def test_actions_outside_their_bounds_are_said(tmp_path, monkeypatch):
    data = load_demos(pendulum(actions=np.linspace(-5, 4, 9)[:, None]), "Pendulum-v1")
    said = "5 of 9 actions of Pendulum-v1 are out of bounds, up to -5, and are clipped: rescale"
    with pytest.warns(UserWarning, match=said):
        train("bc", data, steps=2, progress=False)
    save_demos(data, tmp_path / "far.npz")
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=said) as caught:
        main(["train", "--agent", "bc", "--demos", "far.npz", "--steps", "2", "--out", "agent"])
    shown = caught[0]
    text = warnings.formatwarning(shown.message, shown.category, shown.filename, shown.lineno)
    assert text.startswith(f"warning: {said}") and text.count("\n") == 1


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_own_recordings_and_shipped_ones_can_be_merged(task, tmp_path):
    """All have the environment's default, the noise that is clipped, as the paper describes it."""
    from pidm_nav.demos.recorder.demo_file import DemoFile
    from pidm_nav.tasks import find_task

    file = DemoFile(tmp_path / "mine.npz", find_task(task), {})
    file.append(load_demos(f"{task}/astar")[0], {"device": "keyboard"})
    file.close()
    merged = edit_demos(tmp_path / "mine.npz", merge=[f"{task}/human-like", f"{task}/astar"])
    assert len(merged) == 1 + len(load_demos(f"{task}/human-like")) + len(load_demos(f"{task}/astar"))
    assert "human" in merged.source["made_by"] and merged.env_kwargs == {}


def test_what_keeps_the_papers_recordings_from_being_merged_is_said(tmp_path):
    recorded = replace(load_demos("zigzag/astar"), source={"env_kwargs": {"clip_noise": False}})
    save_demos(recorded, tmp_path / "paper.npz")
    with pytest.raises(ValueError, match=r"paper\.npz' was made with another clip_noise \(False, not True\): merge"):
        edit_demos("zigzag/astar", merge=[tmp_path / "paper.npz"])


def test_the_default_is_the_environments():
    assert gym.make("PIDMNav-Maze-v0").unwrapped.world.clip_noise is True
