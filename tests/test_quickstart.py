"""The quickstart: what it leaves, that it is honest, and that nothing of the user's is harmed."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from pidm_nav.agents import load_agent
from pidm_nav.cli import main
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.experiments import quickstart, quickstart_page
from pidm_nav.experiments.curves import Curve
from pidm_nav.rollout import evaluate

PLAN = quickstart.FAST
TRAININGS = 2 * len(PLAN.seeds) * (len(PLAN.sizes) + len(PLAN.astar_sizes))


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, str]:
    """A quickstart's folder and what it printed."""
    folder = tmp_path_factory.mktemp("user") / "quickstart"
    with pytest.MonkeyPatch.context() as patch:
        shown: list[str] = []
        patch.setattr("sys.stdout.write", lambda text: shown.append(text) or len(text), raising=False)
        main(["quickstart", "--fast", "--out", str(folder)])
    return folder, "".join(shown)


def scores(folder: Path) -> list[dict[str, str]]:
    with (folder / "scores.csv").open(newline="") as file:
        return [{key: row[key] for key in row if key != "seconds"} for row in csv.DictReader(file)]


def test_leaves_everything_and_nothing_else(done):
    folder, _ = done
    assert sorted(path.name for path in folder.iterdir()) == [
        "agents",
        "bc-and-pidm.gif",
        "curve.png",
        "demos",
        "index.html",
        "quickstart.json",
        "scores.csv",
        "scores.md",
        "traces.png",
    ]


def test_summary_says_scores_seeds_and_what_is_next(done):
    _, shown = done
    words = " ".join(shown.split())
    assert "PIDM, human-like" in words
    assert "seeds 0, 1" in words
    assert "2 gradient steps are too few to tell" in words
    assert "index.html" in words
    for command in ("play", "record", "train", "sweep", "report"):
        assert f"pidm-nav {command}" in words


def test_gif_moves_and_fits_a_page(done):
    folder, _ = done
    gif = Image.open(folder / "bc-and-pidm.gif")
    assert gif.n_frames > 50
    assert 780 <= gif.width <= 860
    assert (folder / "bc-and-pidm.gif").stat().st_size < 2_000_000


def test_page_needs_nothing_from_elsewhere(done):
    folder, _ = done
    page = (folder / "index.html").read_text(encoding="utf-8")
    sources = re.findall(r"(?:src|href)='([^']*)'", page)
    assert len(sources) == 2
    assert all(source.startswith("data:image/") for source in sources)
    assert "http" not in page
    assert "<script" not in page
    assert "<svg" in page
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page
    for name, value in (("Seeds", "0, 1"), ("Animation", "the middle one of 8 episodes")):
        assert re.search(f"<dt>{name}</dt><dd>{value}", page)


def test_every_training_has_a_line(done):
    folder, _ = done
    rows = scores(folder)
    assert len(rows) == TRAININGS
    assert {row["agent"] for row in rows} == {"bc", "pidm"}
    assert {row["demos_from"] for row in rows} == {"human-like", "astar"}
    content = json.loads((folder / "quickstart.json").read_text())
    assert len(content["trainings"]) == TRAININGS
    assert content["plan"]["seeds"] == list(PLAN.seeds)


def test_demonstrations_and_agents_can_be_used(done):
    folder, _ = done
    for kind in quickstart.KINDS:
        demos = load_demos(folder / "demos" / f"{kind}.npz")
        assert len(demos) == PLAN.demos
        assert demos.summary().success == 1
    shown = json.loads((folder / "quickstart.json").read_text())["gif"]
    for name in quickstart.AGENTS:
        agent = load_agent(folder / "agents" / name)
        assert agent.name == name
        result = evaluate(agent, PLAN.task, PLAN.episodes, quickstart.EVALUATION_SEED)
        assert result.rollouts[shown["episode"]].goals_reached[-1] == shown[f"{name}_goals"]


def test_again_replaces_the_former_with_the_same_scores_and_spares_other_files(done):
    folder, _ = done
    before = scores(folder)
    (folder / "mine.txt").write_text("keep me")
    (folder / "curve.png").write_bytes(b"old")
    main(["quickstart", "--fast", "--out", str(folder), "--jobs", "1"])
    assert scores(folder) == before
    assert (folder / "mine.txt").read_text() == "keep me"
    (folder / "mine.txt").unlink()
    assert (folder / "curve.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError("the disk is full")])
def test_stopped_half_way_leaves_the_former_as_it_was(done, stop, monkeypatch):
    folder, _ = done
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def run(*_, **__):
        raise stop

    monkeypatch.setattr(quickstart, "run_local", run)
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(folder)])
    assert end.value.code == (130 if stop is KeyboardInterrupt else 2)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_failed_training_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "run_local", lambda _, jobs, __: [(jobs[0], {"error": "ValueError: no luck"})])
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(tmp_path / "q")])
    assert end.value.code == 2
    assert "BC, 1 human-like, seed 0 failed: ValueError: no luck" in capsys.readouterr().err


def test_a_folder_with_other_things_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(tmp_path)])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--force" in told
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_folders_that_will_do(tmp_path):
    quickstart.check_folder(tmp_path, force=False)  # empty
    quickstart.check_folder(tmp_path / "new" / "deep", force=False)
    (tmp_path / "thesis.tex").touch()
    quickstart.check_folder(tmp_path, force=True)
    with pytest.raises(FileExistsError, match="is a file"):
        quickstart.check_folder(tmp_path / "thesis.tex", force=True)
    with pytest.raises(OSError, match="cannot write"):
        quickstart.check_folder(tmp_path / "thesis.tex" / "below", force=False)


def test_wrong_number_of_jobs_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--jobs", "0"])
    assert end.value.code == 2
    assert "--jobs is 0" in capsys.readouterr().err


def test_both_agents_learn_from_the_same_demonstrations_in_the_same_way(tmp_path):
    plan = replace(PLAN, demos=6)
    demos = quickstart.make_demos(plan, lambda *_: None)
    jobs = quickstart.make_jobs(plan, demos, tmp_path)
    assert len(jobs) == TRAININGS
    for bc, pidm in zip(jobs[::2], jobs[1::2], strict=True):
        assert (bc.cell.agent, pidm.cell.agent) == ("bc", "pidm")
        assert [episode.seed for episode in bc.dataset] == [episode.seed for episode in pidm.dataset]
        assert replace(bc.config, learning_rate=pidm.config.learning_rate) == pidm.config  # each its own rate
    drawn = {
        tuple(episode.seed for episode in job.dataset) for job in jobs if (job.kind, job.cell.demos) == ("astar", 2)
    }
    assert len(drawn) == len(plan.seeds)


def test_the_real_plan_uses_several_seeds_and_few_demonstrations():
    plan = quickstart.Plan()
    assert len(plan.seeds) >= 3
    assert max(plan.sizes) <= 10
    assert plan.episodes >= 50


goals = arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.integers(0, 10))


@given(goals, st.data())
def test_shown_episode_has_the_median_lead(bc, data):
    pidm = data.draw(arrays(np.int64, bc.shape, elements=st.integers(0, 10)))
    seed, episode = quickstart.typical_pair(bc, pidm)
    lead = pidm - bc
    assert (lead < lead[seed, episode]).sum() <= lead.size / 2
    assert (lead > lead[seed, episode]).sum() <= lead.size / 2


@pytest.mark.parametrize(
    ("bc", "pidm", "said"),
    [(0.4, 0.9, "PIDM is ahead"), (0.9, 0.4, "BC is ahead"), (0.5, 0.5, "Neither is ahead")],
)
def test_headline_says_who_is_ahead(bc, pidm, said):
    curves = {
        ("human-like", agent): Curve("maze", agent, "human-like", (1, 5), np.full((2, 3, 1), score))
        for agent, score in (("bc", bc), ("pidm", pidm))
    }
    curves |= {
        ("astar", agent): Curve("maze", agent, "astar", (5,), np.full((1, 3, 1), score))
        for agent, score in (("bc", 0.99), ("pidm", 0.97))
    }
    result = quickstart.Result(quickstart.Plan(), {}, [], curves, {}, {}, 0.0)
    sentence = quickstart_page.headline(result)
    assert sentence.startswith(said)
    assert f"PIDM reaches {pidm:.0%} of the goals, BC {bc:.0%}" in sentence
    assert f"in {6 if pidm > bc else 0} of 6 pairs" in sentence
    assert "A* planner, which does not vary its ways, PIDM reaches 97%, BC 99%" in sentence  # also where it is behind
