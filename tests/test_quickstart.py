"""The quickstart: what it leaves, that it is honest, and that nothing of the user's is harmed."""

import json
import re
import shutil
import signal
import sys
from contextlib import closing
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
from pidm_nav.experiments import quickstart
from pidm_nav.experiments.curves import Curve
from pidm_nav.experiments.engines import attempt
from pidm_nav.experiments.results import read_results
from pidm_nav.files import only_writer
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.seeds import TEST

PLAN = quickstart.FAST
TWINS = PLAN.seeds * len(PLAN.num_demos)
TRAININGS = 2 * PLAN.seeds * (len(PLAN.num_demos) + len(PLAN.astar_num_demos)) + TWINS  # twins are only evaluated


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, str]:
    """A quickstart's folder and what it printed."""
    folder = tmp_path_factory.mktemp("user") / "quickstart"
    with pytest.MonkeyPatch.context() as patch:
        shown: list[str] = []
        patch.setattr("sys.stdout.write", lambda text: shown.append(text) or len(text), raising=False)
        main(["quickstart", "--fast", "--out", str(folder), "--jobs", "1"])
    return folder, "".join(shown)


def scores(folder: Path) -> dict[str, list]:
    results = {kind: read_results(folder / "sweeps" / kind)[0] for kind in quickstart.KINDS}
    return {
        f"{kind}: {cell}": result.checkpoints
        for kind, found in results.items()
        for cell, result in sorted(found.items())
    }


@pytest.mark.thorough
def test_leaves_everything_and_nothing_else(done):
    folder, _ = done
    assert sorted(path.name for path in folder.iterdir()) == [
        "bc-and-pidm.gif",
        "figures",
        "index.html",
        "quickstart.json",
        "report.md",
        "summary.json",
        "sweeps",
        "tables",
        "traces.png",
    ]
    assert sorted(path.name for path in (folder / "sweeps").iterdir()) == ["agents", "astar", "human-like"]
    kept = {cell.name for cell in PLAN.sweep("human-like", folder).cells()}
    assert {path.name for path in (folder / "sweeps" / "agents").iterdir()} == kept


@pytest.mark.thorough
def test_summary_says_scores_seeds_and_what_is_next(done):
    _, shown = done
    words = " ".join(shown.split())
    assert "Goal ratio by number of human-like demonstrations" in words
    assert "Four room, PIDM" in words
    assert "Seeds: 0, 1: each draws" in words
    assert "2 gradient steps are too few to tell" in words
    assert "index.html" in words
    for command in ("play", "record", "train", "sweep", "report"):
        assert f"pidm-nav {command}" in words


@pytest.mark.thorough
def test_gif_moves_and_fits_a_page(done):
    folder, _ = done
    gif = Image.open(folder / "bc-and-pidm.gif")
    assert gif.n_frames > 50
    assert 880 <= gif.width <= 960
    assert (folder / "bc-and-pidm.gif").stat().st_size < 2_000_000


@pytest.mark.thorough
def test_page_needs_nothing_from_elsewhere(done):
    folder, _ = done
    page = (folder / "index.html").read_text(encoding="utf-8")
    sources = [source for source in re.findall(r'(?:src|href)="([^"]*)"', page) if not source.startswith("#")]
    assert len(sources) == 1
    assert all(source.startswith("data:image/") for source in sources)
    assert page.count("data:image/gif") == 1  # all panes of the film show the same file
    assert "http" not in page
    assert "<script" not in page
    assert "<svg" in page
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page
    assert "<span>--task</span>" in page  # commands are not broken within options on a phone
    animation = r"of \d+ episodes after \d+ demonstrations, the one in which all agents are closest to their means"
    for name, value in (("Seeds", "0, 1"), ("Animation", animation)):
        assert re.search(f"<dt>{name}</dt><dd>{value}", page)


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "stacked"), [(390, True), (1366, False)])
def test_the_film_is_stacked_on_a_phone(width, stacked, done, browser):
    with closing(browser.new_page(viewport={"width": width, "height": 800})) as page:
        page.goto((done[0] / "index.html").absolute().as_uri())
        bc, pidm = (page.locator(".panes i").nth(index).bounding_box() for index in (0, 1))
    assert bc["width"] > (300 if stacked else 280) and abs(bc["width"] / bc["height"] - 310 / 335) < 0.1
    assert (pidm["y"] >= bc["y"] + bc["height"]) == stacked and (pidm["x"] > bc["x"]) != stacked


@pytest.mark.thorough
def test_every_training_is_a_job_of_a_sweep(done):
    folder, _ = done
    assert len(scores(folder)) == TRAININGS
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary) == {"human-like", "astar"}
    assert sum(len(part["jobs"]) for part in summary.values()) == TRAININGS
    assert json.loads((folder / "quickstart.json").read_text())["plan"]["seeds"] == PLAN.seeds


@pytest.mark.thorough
def test_agents_can_be_used(done):
    folder, _ = done
    report = (folder / "report.md").read_text()
    shown = re.search(r"training seed (\d), episode seed (\d+); BC (\d+), PIDM (\d+), PIDM without", report)
    seed, episode, *goals = map(int, shown.groups())
    for name, reached in zip(quickstart.AGENTS, goals, strict=True):
        cell = quickstart.Cell(seed, PLAN.task, PLAN.num_demos[-1], name)
        agent = load_agent(folder / "sweeps" / "agents" / cell.name)
        assert agent.name == name
        result = evaluate(agent, PLAN.task, PLAN.episodes, TEST.start)
        assert result.episodes[episode - TEST.start].goals_reached == reached
        job = read_results(folder / "sweeps" / "human-like")[0][cell]
        assert [each.goals_reached for each in result.episodes] == job.checkpoints[-1].goals


@pytest.mark.thorough
def test_again_gives_the_same_without_training_and_spares_other_files(done, monkeypatch):
    folder, _ = done
    before = scores(folder)
    page = (folder / "index.html").read_text()
    (folder / "mine.txt").write_text("keep me")
    (folder / "traces.png").write_bytes(b"old")
    shown = re.search(r"training seed (\d)", (folder / "report.md").read_text())
    middle = PLAN.num_demos[len(PLAN.num_demos) // 2]
    kept = folder / "sweeps" / "agents" / quickstart.Cell(int(shown[1]), PLAN.task, middle, "bc").name
    weights = {path.name: path.read_bytes() for path in kept.iterdir()}
    shutil.rmtree(kept)  # is made again, and nothing else
    monkeypatch.setattr(quickstart, "run_local", lambda *_, **__: pytest.fail("trained again"))
    main(["quickstart", "--fast", "--out", str(folder), "--jobs", "1"])
    assert scores(folder) == before
    assert (folder / "index.html").read_text() == page
    assert (folder / "mine.txt").read_text() == "keep me"
    (folder / "mine.txt").unlink()
    again = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert again.keys() == weights.keys()
    assert all(again[name] == weights[name] for name in weights if name.endswith(".safetensors"))
    assert (folder / "traces.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.thorough
def test_goes_on_where_it_was_stopped_and_begins_anew_with_another_plan(done, tmp_path, monkeypatch):
    """It trains in this process, to the same results as `done` in workers."""
    folder, _ = done
    ran = []
    monkeypatch.setattr(quickstart, "save_figure", lambda *_: None)  # drawing was tested above
    monkeypatch.setattr(quickstart, "save_report", lambda *_: None)

    def stop_after_three(function, jobs, workers=None):
        for job in jobs:
            outcome = attempt(function, job)
            ran.append(job.cell)
            yield job, outcome
            if len(ran) == 3:
                raise KeyboardInterrupt(signal.SIGTERM)

    monkeypatch.setattr(quickstart, "run_local", stop_after_three)
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(tmp_path / "q"), "--jobs", "1"])
    assert end.value.code == 143
    main(["quickstart", "--fast", "--out", str(tmp_path / "q"), "--jobs", "1"])
    assert len(ran) == TRAININGS
    assert scores(tmp_path / "q") == scores(folder)
    assert (tmp_path / "q" / "bc-and-pidm.gif").read_bytes() == (folder / "bc-and-pidm.gif").read_bytes()
    ran[:] = [None] * 9
    other = replace(PLAN, steps=3, num_demos=(1,), astar_num_demos=(1,), seeds=1)
    monkeypatch.setattr("pidm_nav.commands.experiments.FAST", other)
    monkeypatch.setattr(quickstart, "_animate", lambda *_: sys.exit("enough"))  # all is trained by then
    with pytest.raises(SystemExit, match="enough"):
        main(["quickstart", "--fast", "--out", str(tmp_path / "q"), "--jobs", "1", "--force"])
    assert len(ran) == 9 + other.work


@pytest.mark.thorough
@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError("the disk is full")])
def test_stopped_half_way_leaves_the_former_as_it_was(done, stop, monkeypatch):
    folder, _ = done
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def run(*_, **__):
        raise stop

    monkeypatch.setattr(quickstart, "evaluate", run)  # the first step of the animation
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(folder)])
    assert end.value.code == (130 if stop is KeyboardInterrupt else 2)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_failed_training_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        quickstart, "run_local", lambda _, jobs, workers: ((job, {"error": "ValueError: no luck"}) for job in jobs)
    )
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(tmp_path / "q")])
    assert end.value.code == 2
    assert "bc on four-room, 1 demonstration, seed 0 failed: ValueError: no luck" in capsys.readouterr().err


def test_a_folder_with_other_things_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(tmp_path)])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "--force" in told
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(("first", "second"), [([], ["--fast"]), (["--fast"], [])])
def test_a_quickstart_with_other_settings_is_replaced_on_request_only(first, second, tmp_path, monkeypatch, capsys):
    """The jobs fail here, so that no agent is trained."""

    def fail(_, jobs, workers=None):
        return ((job, {"error": "ValueError: no luck"}) for job in jobs)

    monkeypatch.setattr(quickstart, "run_local", fail)

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(["quickstart", "--out", str(tmp_path / "q"), "--jobs", "1", *words])
        assert end.value.code == 2
        return capsys.readouterr().err

    assert "no luck" in run(*first)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told = run(*second)
    assert "q' holds a quickstart with other settings" in told and "--force to replace it" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert "no luck" in run(*first)  # resumed
    assert "no luck" in run(*second, "--force")
    assert json.loads((tmp_path / "q" / "quickstart.json").read_text())["plan"]["task"] == (
        PLAN.task if second else quickstart.QuickstartPlan().task
    )


def test_folders_that_will_do(tmp_path):
    quickstart.check_folder(PLAN, tmp_path, force=False)  # empty
    (tmp_path / ".quickstart.host-1.tmp.json").touch()  # of one that was killed
    quickstart.check_folder(PLAN, tmp_path, force=False)
    quickstart.check_folder(PLAN, tmp_path / "new" / "deep", force=False)
    (tmp_path / "thesis.tex").touch()
    quickstart.check_folder(PLAN, tmp_path, force=True)
    (tmp_path / "index.html").touch()  # which the report would replace
    with pytest.raises(FileExistsError, match="is not the page of a report"):
        quickstart.check_folder(PLAN, tmp_path, force=True)
    with pytest.raises(FileExistsError, match="is a file"):
        quickstart.check_folder(PLAN, tmp_path / "thesis.tex", force=True)
    with pytest.raises(OSError, match="cannot write"):
        quickstart.check_folder(PLAN, tmp_path / "thesis.tex" / "below", force=False)


@pytest.mark.parametrize("jobs", ["-1", "0", "nan", "1e308", "1e-320", "99999999999999999999"])
def test_wrong_number_of_jobs_is_refused(jobs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["quickstart", f"--jobs={jobs}"])
    assert end.value.code == 2
    assert "--jobs" in capsys.readouterr().err


def test_two_in_one_folder_are_refused(tmp_path, capsys):
    with only_writer(tmp_path / "quickstart.json", ""), pytest.raises(SystemExit) as end:
        main(["quickstart", "--fast", "--out", str(tmp_path)])
    assert end.value.code == 2
    assert "is being written to by another process" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_both_agents_learn_from_the_same_demonstrations_in_the_same_way(done):
    folder, _ = done
    sweep = PLAN.sweep("human-like", folder)
    jobs = [sweep.job(cell) for cell in sweep.cells()]
    for bc, pidm in zip(jobs[::2], jobs[1::2], strict=True):
        assert (bc.cell.agent, pidm.cell.agent) == ("bc", "pidm")
        assert [episode.seed for episode in bc.dataset] == [episode.seed for episode in pidm.dataset]
        trainings = bc.settings.training, pidm.settings.training
        own = {name: getattr(trainings[1], name) for name in ("learning_rate", "batch_size")}  # of its preset
        assert replace(trainings[0], **own) == trainings[1]
    drawn = {tuple(episode.seed for episode in job.dataset) for job in jobs if job.cell.demos == 2}
    assert len(drawn) == PLAN.seeds


def test_the_real_plan_uses_several_seeds_and_few_demonstrations():
    plan = quickstart.QuickstartPlan()
    assert plan.seeds >= 3
    assert max(plan.num_demos) <= 10
    assert plan.episodes >= 50


shapes = st.tuples(st.just(3), st.integers(1, 4), st.integers(1, 6))


@given(arrays(np.int64, shapes, elements=st.integers(0, 10)))
def test_in_the_shown_episode_all_agents_are_closest_to_their_means(goals):
    seed, episode = quickstart.typical_episode(goals)
    distance = sum(np.abs(each - each.mean()) for each in goals)
    assert distance[seed, episode] <= distance.min() + 1e-9


@pytest.mark.parametrize(
    ("bc", "pidm", "said"),
    [(0.4, 0.9, "PIDM is ahead"), (0.9, 0.4, "BC is ahead"), (0.5, 0.5, "Neither is ahead")],
)
def test_headline_says_who_is_ahead(bc, pidm, said):
    curves = [
        Curve("maze", agent, "human-like", (1, 5), np.full((2, 3, 1), score))
        for agent, score in (("bc", bc), ("pidm", pidm), ("pidm-no-pull", 0.35))
    ]
    curves += [
        Curve("maze", agent, "astar", (5,), np.full((1, 3, 1), score))
        for agent, score in (("bc", 0.99), ("pidm", 0.97))
    ]
    sentence = quickstart.headline(curves, steps=750)
    assert sentence.startswith(said)
    assert f"PIDM reaches {pidm:.0%} of the goals, BC {bc:.0%}" in sentence
    assert f"in {6 if pidm > bc else 0} of 6 pairs" in sentence
    assert "Without its pull back to the demonstrations, PIDM reaches 35%" in sentence
    assert "A* planner, which does not vary its ways, PIDM reaches 97%, BC 99%" in sentence  # also where it is behind
