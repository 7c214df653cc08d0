"""Failed demonstrations: which part of them agents learn from, and what is said about them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pidm_nav import DemoDataset, load_agent, load_demos, save_demos, train
from pidm_nav.agents import dagger
from pidm_nav.cli import main
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.failed import without_failed
from pidm_nav.studio.folder import Folder

TINY: dict[str, Any] = {"steps": 3, "batch_size": 32, "encoder_sizes": (8,), "head_sizes": (8,)}


@pytest.fixture(scope="module")
def demos() -> DemoDataset:
    """Two successes, one that ends after two of four goals and some steps, and one that reaches none."""
    first, second, third, fourth = load_demos("four-room/human-like")[:4]
    reached = int(np.flatnonzero(third.rewards)[1]) + 1
    episodes = (first, third.cut(0, reached + 7), fourth.cut(0, 5), second)
    return replace(load_demos("four-room/human-like"), episodes=episodes)


def reached_at(demos: DemoDataset) -> int:
    return len(demos[1]) - 7


def test_failed_episodes_are_counted_dropped_and_trimmed_after_their_last_goal(demos: DemoDataset) -> None:
    assert demos.num_failed == 2
    dropped, trimmed = without_failed(demos, "drop"), without_failed(demos, "trim")
    assert list(dropped) == [demos[0], demos[3]] and dropped.source == demos.source
    assert len(trimmed) == 3 and trimmed[0] is demos[0] and trimmed[2] is demos[3]
    assert len(trimmed[1]) == reached_at(demos) and trimmed[1].rewards[-1] == 1 and trimmed[1].goals_reached == 2
    assert without_failed(demos, "keep") is demos


def test_goals_that_only_the_infos_tell_are_found(demos: DemoDataset) -> None:
    frames = [np.zeros((len(each.observations), 8, 8, 3), np.uint8) for each in demos]
    episodes = [replace(each, observations=frame) for each, frame in zip(demos, frames, strict=True)]
    images = replace(demos, episodes=tuple(episodes), source={})
    assert [each.success for each in images] == [True, False, False, True] and not images.goal_flags
    assert [len(each) for each in without_failed(images, "trim")] == [len(demos[0]), reached_at(demos), len(demos[3])]
    short = [replace(each, infos={"goals_reached": each.infos["goals_reached"][-len(each) :]}) for each in episodes]
    trimmed = without_failed(replace(images, episodes=tuple(short)), "trim")
    assert len(trimmed[1]) == reached_at(demos)  # infos of the steps alone


def test_nothing_changes_where_no_success_is_told_or_there_is_none(demos: DemoDataset) -> None:
    blind = [replace(each, observations=each.observations[:, :2], infos={}) for each in demos]
    untold = DemoDataset("Blind-v0", tuple(blind), {})
    assert untold.num_failed == 0 and without_failed(untold, "drop") is untold is without_failed(untold, "trim")
    none = demos[[1, 2]]
    assert without_failed(none, "drop") is none is without_failed(none, "trim")
    with pytest.raises(ValueError, match="failed is 'skip': choose keep, drop, trim"):
        train("bc", demos, failed="skip", **TINY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "failed", "used"),
    [
        ("pidm", None, 2),
        ("delta-pidm", None, 2),
        ("recurrent-pidm", None, 2),
        ("pidm", "trim", 3),
        ("pidm", "keep", 4),
        ("bc", None, 3),
        ("retrieval-bc", None, 3),
        ("bc", "drop", 2),
    ],
)
def test_training_uses_what_is_best_for_the_agent_unless_told_otherwise(
    demos: DemoDataset, agent: str, failed: Any, used: int
) -> None:
    trained: Any = train(agent, demos, failed=failed, progress=False, **TINY)
    assert trained.description["data"]["episodes"] == used
    assert trained.description["failed_demos"]["episodes"] == 2
    if "pidm" in agent:
        assert len(trained.predictor.lengths) == used
    assert "failed_demos" not in train(agent, demos[[0, 3]], progress=False, **TINY).description


def test_further_demonstrations_of_the_predictor_are_treated_alike_and_other_data_are_not(demos: DemoDataset) -> None:
    trained: Any = train("pidm", demos, predictor_data=demos, idm_data=demos, progress=False, **TINY)
    assert len(trained.predictor.lengths) == 4
    assert trained.description["predictor_data"]["episodes"] == 2 and trained.description["idm_data"]["episodes"] == 4


def test_a_student_learns_from_its_own_failures(demos: DemoDataset) -> None:
    failing = collect(AStarExpert("four-room"), "four-room", 1, max_steps=5)
    both = DemoDataset.concatenate([load_demos("four-room/astar")[:1], failing])
    taught = dagger("bc", both, 1, progress=False, **TINY)
    assert taught.description["data"]["episodes"] == 2  # the success, and the student's episode
    assert taught.description["data"]["max_length"] == 200  # whole


def test_the_command_says_how_many_failed_and_what_is_done(demos: DemoDataset, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "mine.npz"
    save_demos(demos, file)
    tiny = ["--steps", "3", "--eval-episodes", "0", "--demos", str(file)]

    def said(*options: str, name: str) -> str:
        main(["train", *tiny, *options, "--out", str(tmp_path / name)])
        return " ".join(capsys.readouterr().out.split())

    assert "2 of 4 demonstrations failed: dropped (failed=drop)" in said(name="a")
    assert load_agent(tmp_path / "a").description["failed_demos"] == {"episodes": 2, "how": "drop"}
    assert "2 of 4 demonstrations failed: trimmed after the last reached goal" in said("--agent", "bc", name="b")
    assert "failed" not in said("--failed", "keep", name="c")
    save_demos(demos[[1, 2]], file)
    assert "warning: none of 2 demonstrations succeeds" in said(name="d")


def test_the_studio_lists_how_many_failed(demos: DemoDataset, tmp_path: Path) -> None:
    save_demos(demos, tmp_path / "mine.npz")
    listed = {each["name"]: each for each in Folder(tmp_path.resolve()).recordings()}
    assert listed["mine.npz"]["failed"] == 2 and listed["maze/astar"]["failed"] == 0
