"""The report holds the paper's figures and tables with our numbers, as files that stand on their own."""

import csv
import json
import re
import shutil
import subprocess
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pidm_nav import AStarExpert, Layout, collect, save_demos
from pidm_nav.cli import main
from pidm_nav.experiments import paper
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.report import make_report, render, write_report
from pidm_nav.experiments.results import Checkpoint, JobResult, identity, open_folder, read_manifest, write_result
from pidm_nav.experiments.sweep import Sweep
from pidm_nav.tasks import PAPER_TASKS

SIZES = (1, 2, 5, 10, 20, 50)
# the first size at which each agent's made-up curve reaches 1; before it is at 0.3
REACHED = {
    "human": {"bc": 20, "pidm": 5, "retrieval-bc": 10},
    "astar": {"bc": 10, "pidm": 1},
}


def make_results(folder: Path, label: str, seeds: int = 3, never: str = "") -> Path:
    """A finished sweep of made-up scores; on `never`, BC reaches nothing."""
    kind = "human-like" if label == "human" else label
    sweep = Sweep(agents=tuple(REACHED[label]), num_demos=SIZES, seeds=seeds, demos_from=kind, label=label)
    manifest = open_folder(folder, sweep.manifest())
    for cell in sweep.cells():
        score = 1.0 if cell.demos >= REACHED[label][cell.agent] else 0.3 + 0.01 * cell.seed
        if (cell.task, cell.agent) == (never, "bc"):
            score = 0.2
        steps = (1000,) if cell.agent == "retrieval-bc" or label == "astar" else (50, 1000)
        checkpoints = [Checkpoint(step=step, goal_ratio=score * step / 1000, length=1.0, goals=[1]) for step in steps]
        result = {"identity": identity(manifest, cell), "checkpoints": checkpoints, "seconds": 3.0}
        write_result(folder, JobResult(**asdict(cell), **result))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two sweeps."""
    folder = tmp_path_factory.mktemp("report")
    human, astar = make_results(folder / "human", "human", never="maze"), make_results(folder / "astar", "astar")
    main(["report", str(human), str(astar), "--out", str(folder / "out")])
    return folder / "out"


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.thorough
def test_figures_are_png_and_pdf(made: Path) -> None:
    names = {path.name for path in (made / "figures").iterdir()}
    for name in ("efficiency-human", "retrieval-human", "best-last-human", "efficiency-astar", "demonstrations"):
        assert {f"{name}.png", f"{name}.pdf"} <= names
        assert (made / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (made / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_ratios_stand_beside_the_papers(made: Path) -> None:
    rows = records(made / "tables" / "ratio-pidm-human-over-bc-human.csv")
    by_task = {row["task"]: row for row in rows if row["level"] == "0.9"}
    assert float(by_task["zigzag"]["ratio"]) == 20 / 5 and by_task["zigzag"]["bound"] == "="
    assert float(by_task["maze"]["ratio"]) == 50 / 5 and by_task["maze"]["bound"] == ">"  # BC never reached it
    assert [float(by_task[task]["paper"]) for task in (*PAPER_TASKS, "average")] == [4, 2, 4, 4, 3.5]
    rows = records(made / "tables" / "ratio-pidm-astar-over-pidm-human.csv")
    average = next(row for row in rows if row["task"] == "average" and row["level"] == "0.9")
    assert float(average["ratio"]) == 5 and float(average["paper"]) == 5.625
    text = (made / "tables" / "ratio-pidm-human-over-bc-human.md").read_text()
    assert "| paper η(90%) | 4 | 2 | 4 | 4 | 3.5 |" in text and "more than 10" in text and "inf" not in text


def test_scores_of_best_and_last_checkpoint(made: Path) -> None:
    rows = records(made / "tables" / "scores-human-best.csv")
    assert len(rows) == len(PAPER_TASKS) * 3 * len(SIZES)
    row = next(r for r in rows if (r["task"], r["agent"], r["demos"]) == ("maze", "pidm", "2"))
    assert float(row["mean"]) == pytest.approx(0.31) and float(row["std"]) == pytest.approx(0.01)
    assert float(row["low"]) <= float(row["iqm"]) <= float(row["high"])
    assert (made / "tables" / "scores-human-last.csv").exists()
    assert (made / "tables" / "paired-pidm-bc-human.csv").exists()


def test_the_summary_holds_every_job(made: Path) -> None:
    summary = json.loads((made / "summary.json").read_text())
    assert {label: len(part["jobs"]) for label, part in summary.items()} == {"human": 216, "astar": 144}
    assert summary["human"]["manifest"]["preset"] == "fast"


class Page(HTMLParser):
    """Collects what a page links to and checks that its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "data"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass


def test_the_page_needs_nothing_else(made: Path) -> None:
    text = (made / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.links and all(link.removeprefix("#") in page.ids for link in page.links)
    assert not re.search(r"https?://|url\(|@import|<script|<img", text)
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert len(text) < 1_000_000 and "nan" not in re.sub(r"<style>.*?</style>", "", text, flags=re.S).lower()


def test_the_page_shows_curves_and_the_papers_numbers(made: Path) -> None:
    text = (made / "index.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 5 * 4  # figures, tasks
    assert "PIDM, 5 demonstrations: 1.00" in text
    assert "PIDM reaches 90% of the task&#x27;s maximum with 5 demonstrations" in text
    assert "var(--c1c6dd0, #1c6dd0)" in text and "--c1c6dd0: #" in text  # lines in the page's colors, light or dark
    assert len(set(re.findall(r' id="([^"]+)"', text))) == text.count(' id="')
    assert "paper: 3.5×" in text and "paper: 5.62×" in text


@pytest.mark.thorough
def test_reports_are_the_same_every_time(made: Path) -> None:
    report = make_report([made.parent / "human", made.parent / "astar"])
    assert render("report.html", report=report) == (made / "index.html").read_text(encoding="utf-8")
    assert render("report.md.jinja", report=report) == (made / "report.md").read_text(encoding="utf-8")


def test_a_sweep_that_has_only_begun(tmp_path: Path) -> None:
    folder = make_results(tmp_path / "begun", "human", seeds=1)
    for path in (folder / "jobs").iterdir():
        if not path.name.startswith(("zigzag_bc_1_", "zigzag_pidm_2_")):
            path.unlink()
    write_result(folder, JobResult("maze", "bc", 5, 0, error="RuntimeError: <script>", traceback=""))
    text = write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    assert "1 job failed" in text and "RuntimeError: &lt;script&gt;" in text
    assert "1 job failed" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kept", [("",), ("maze_bc_1_", "maze_bc_5_", "maze_pidm_2_")], ids=["whole", "interrupted"])
def test_a_sweep_that_has_not_ended_says_how_much_is_missing(
    kept: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_results(tmp_path / "begun", "human", seeds=1)
    for path in (folder / "jobs").iterdir():
        if not path.name.startswith(kept):
            path.unlink()
    manifest, sizes = read_manifest(folder), 3
    missing = len(manifest.demos) * len(manifest.agents) * sizes - 3
    main(["report", str(folder), "--out", str(tmp_path / "out")])
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    for told in (text, capsys.readouterr().out):
        assert (f"issing: {missing} jobs of all tasks, agents, numbers and seeds" in told) == (kept != ("",))
        assert ("issing:" in told) == (kept != ("",))


def test_what_is_unknown_is_no_headline_and_one_seed_is_no_plural(tmp_path: Path) -> None:
    folder = make_results(tmp_path / "begun", "human", seeds=1)
    for path in (folder / "jobs").iterdir():  # neither PIDM nor BC comes near retrieval BC yet
        task, agent, size, _ = path.name.split("_")
        if task != "maze" or (agent != "retrieval-bc" and size not in ("1", "2")):
            path.unlink()
    text = write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    told = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "over 1 seed;" in text and "not reached" in told and "**?**" not in told


@pytest.mark.parametrize("case", ["nothing", "absent", "empty", "twice", "no folder", "unwritable", "website"])
def test_bad_input_is_one_sentence(case: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    human = str(made.parent / "human")
    (tmp_path / "file").write_text("")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("mine")
    empty = tmp_path / "empty"
    shutil.copytree(made.parent / "human", empty, ignore=shutil.ignore_patterns("*_*.json"))
    words, sentence = {
        "nothing": ([], "no results are given"),
        "absent": ([str(tmp_path / "absent")], "holds no manifest.json"),
        "empty": ([str(empty)], "no finished job"),
        "twice": ([human, human], "second folder of human demonstrations"),
        "no folder": ([str(tmp_path / "file")], "holds no manifest.json"),
        "unwritable": ([human, "--out", str(tmp_path / "file" / "out")], "choose another folder"),
        "website": ([human, "--out", str(tmp_path / "web")], "is not the page of a report: choose another folder"),
    }[case]
    if "--out" not in words:
        words = [*words, "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stopped:
        main(["report", *words])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error and error.count("\n") == 1
    assert (tmp_path / "web" / "index.html").read_text() == "mine" and len(list((tmp_path / "web").iterdir())) == 1


def test_a_full_disk_names_the_file_and_spares_the_former_report(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    shutil.copytree(made, tmp_path / "out")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["report", str(made.parent / "human"), "--out", str(tmp_path / "out")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert stopped.value.code == 2
    assert f"cannot write '{tmp_path / 'out' / 'figures' / 'efficiency-human.png'}'" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


@pytest.mark.parametrize("table", list(paper.TABLES.values()), ids=lambda table: table.name)
def test_the_papers_averages_are_those_of_its_rows(table: paper.PaperTable) -> None:
    for *row, average in table.ratios.values():
        assert np.mean(row) == pytest.approx(average, abs=0.005)


@pytest.mark.parametrize("kind", sorted(paper.DATASETS))
def test_the_papers_dataset_statistics_are_consistent(kind: str) -> None:
    for total_steps, _, mean_length, _ in paper.DATASETS[kind].values():
        assert total_steps / 50 == pytest.approx(mean_length, abs=0.005)


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
@pytest.mark.parametrize(("width", "scheme"), [(1280, 1), (390, 1), (1280, 0)], ids=["desktop", "phone", "dark"])
def test_the_page_in_a_browser(width: int, scheme: int, made: Path, tmp_path: Path) -> None:
    from PIL import Image

    picture = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}"]
    flags += [f"--screenshot={picture}", f"--window-size={width},1400"]
    subprocess.run([str(BROWSER), *flags, (made / "index.html").as_uri()], capture_output=True, timeout=120)
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert pixels.shape[:2] == (1400, width)
    background = pixels[:, 2].mean()
    assert background > 200 if scheme else background < 60
    assert (pixels[:, -8:] == pixels[0, 0]).all()  # nothing runs over the right edge
    assert len(np.unique(pixels @ [1 << 16, 1 << 8, 1])) > 200  # curves and text were drawn


def test_any_agents_are_compared_and_folders_may_be_texts(tmp_path: Path) -> None:
    """Agents of other names than PIDM and BC get the same tables; the first in order is the baseline."""
    variants = {name: Recipe("bc", {"batch_size": 8 + index}) for index, name in enumerate(("ours", "theirs", "third"))}
    sweep = Sweep(agents=tuple(variants), recipes=variants, tasks=("maze",), num_demos=(1, 5), seeds=3, label="mine")
    manifest = open_folder(tmp_path / "results", sweep.manifest())
    for cell in sweep.cells():
        score = {"ours": 0.5, "theirs": 0.7, "third": 0.9}[cell.agent] + 0.01 * cell.seed + 0.01 * cell.demos
        result = {"identity": identity(manifest, cell), "checkpoints": [Checkpoint(step=1, goal_ratio=score)]}
        write_result(tmp_path / "results", JobResult(**asdict(cell), **result))
    write_report([str(tmp_path / "results")], str(tmp_path / "report"))
    for agent in ("theirs", "third"):
        rows = records(tmp_path / "report" / "tables" / f"paired-{agent}-ours-mine.csv")
        assert [float(row["difference"]) for row in rows] == pytest.approx([0.2 if agent == "theirs" else 0.4] * 2)
        assert (tmp_path / "report" / "tables" / f"ratio-{agent}-mine-over-ours-mine.csv").exists()
    assert "theirs against ours on mine demonstrations" in (tmp_path / "report" / "report.md").read_text()


def test_the_paper_stands_beside_the_same_tasks_only(tmp_path: Path) -> None:
    def report(name: str, tasks: tuple[str, ...], **demos: Any) -> str:
        sweep = Sweep(agents=("bc", "pidm"), tasks=tasks, num_demos=(1, 2), seeds=2, label="human-like", **demos)
        manifest = open_folder(tmp_path / name, sweep.manifest())
        for cell in sweep.cells():
            score = 0.5 + 0.2 * (cell.agent == "pidm") + 0.1 * cell.demos
            result = {"identity": identity(manifest, cell), "checkpoints": [Checkpoint(step=1, goal_ratio=score)]}
            write_result(tmp_path / name, JobResult(**asdict(cell), **result))
        return write_report(tmp_path / name, tmp_path / f"{name}-report").read_text(encoding="utf-8")

    page = report("two", ("maze", "zigzag"))
    assert "paper: 3× on the same tasks" in page  # the mean of 4 and 2, not the 3.5 of all four
    assert "the same tasks in the paper" in page
    assert "goal ratio</text>" in page and "number of demonstrations</text>" in page  # axes have names
    room = "##########\n#........#\n#..A..1..#\n#........#\n##########\n"
    own = {"layout": room, "room_size": [800, 800]}
    save_demos(collect(AStarExpert(Layout.parse(room)), "custom", 3, max_steps=99, **own), tmp_path / "own.npz")
    page = report("own", ("custom",), demos=(str(tmp_path / "own.npz"),))
    assert "None of these tasks is in the paper" in page and "Table 1" not in page and "paper:" not in page
