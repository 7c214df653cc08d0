"""The pages of results: their tables say what the files beside them hold."""

import csv
import itertools
import json
import shutil
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from script_loader import load_script

from pidm_nav.demos import collect
from pidm_nav.statistics import Mean, estimate_mean, holm

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"


def test_one_demonstration() -> None:
    script = load_script("run_one_demo")
    page = (RESULTS / "one_demo" / "README.md").read_text(encoding="utf-8")
    record = script.read_record(RESULTS / "one_demo" / "results.csv")
    assert record.keys() == {"human", "astar"}
    for demonstrator, done in record.items():
        planned = {(agent, size) for agents, sizes in script.PARTS[demonstrator] for agent in agents for size in sizes}
        assert {(cell.agent, cell.demos) for cell in done} == planned
        for agent, size in planned:
            shown = []
            for task in script.PAPER_TASKS:
                wanted = agent, size, task
                scores = [each.score for cell, each in done.items() if (cell.agent, cell.demos, cell.task) == wanted]
                assert len(scores) == 5
                shown.append(f"{np.mean(scores):.3f} ({min(scores):.2f})")
            assert f"| {size} | {' | '.join(shown)} |" in page, (demonstrator, agent, size)


def test_other_people_s_worlds() -> None:
    script = load_script("run_worlds")
    page = (RESULTS / "worlds" / "README.md").read_text(encoding="utf-8")
    scores: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in csv.DictReader((RESULTS / "worlds" / "results.csv").read_text(encoding="utf-8").splitlines()):
        scores[f"{row['task']} {row['demos']}", row["agent"]].append(float(row["success"]))
    assert len(scores) == 8 * 5 * 5 and all(len(values) == 5 for values in scores.values())
    for cell in {cell for cell, _ in scores}:
        means = " | ".join(f"{np.mean(scores[cell, agent]):.2f}" for agent in script.AGENTS)
        assert f"| {cell.split()[1]} | {means} |" in page, cell
    gains: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in csv.DictReader((RESULTS / "worlds" / "gains.csv").read_text(encoding="utf-8").splitlines()):
        gain, low, high = (f"{float(row[name]):+.2f}" for name in ("gain", "low", "high"))
        star = r"\*" if float(row["p_holm"]) < 0.05 else ""
        if row["task"] != "all":
            gains[script.short(row["task"])][row["agent"]] = f"{gain} ({low} to {high}){star}"
    assert len(gains) == 8
    for task, cells in gains.items():
        assert f"| {task} | {' | '.join(cells[agent] for agent in script.AGENTS[1:])} |" in page


def test_the_figure_of_worlds_is_drawn_from_what_is_recorded(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "worlds", tmp_path / "worlds", ignore=shutil.ignore_patterns("*.png", "*.zip"))
    load_script("run_worlds").report(tmp_path / "nothing", tmp_path / "worlds")
    assert [path.stem for path in tmp_path.rglob("*.png")] == ["worlds"]


def test_what_makes_pidm_win() -> None:
    script = load_script("report_what_wins")
    page = (RESULTS / "what_wins" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = script.read(RESULTS / "what_wins" / "results.csv")
    found = [row for row in script.hypotheses(rows) if row["task"] == "all"]
    tests = {(row["part"], row["test"]): row for row in found if row["demos"] == 5}
    for row in found:
        if row["demos"] == 1:
            assert row["seeds"] == 10
            assert f"{row['difference']:.3f} | {row['low']:.3f} to {row['high']:.3f} | {row['p']:.1e} |" in page
    for name in ("lead", "H1", "H2"):
        row = tests["P", name]
        assert row["seeds"] == 10
        assert f"{row['difference']:.3f} | {row['low']:.3f} to {row['high']:.3f} | {row['p']:.1e} |" in page
    assert f"({tests['F', 'H1']['difference']:.3f} and {tests['F', 'H2']['difference']:.3f})" in page
    means = {(row["part"], row["agent"]): row for row in script.means(rows) if row["demos"] == 5}
    for pull in script.PULLS:
        bc = means["P", "bc" if pull == 0 else f"bc+pull/{pull:g}"]["goals"]
        assert f"| {pull:g} | {bc:.3f} | {means['P', f'state/nearest/{pull:g}']['goals']:.3f} |" in page
    for agents in (
        ["bc"],
        ["bc-noise", "bc-progress", "bc-history", "recurrent-bc"],
        ["corrective-bc"],
        *([f"{name}/1", f"{name}/0"] for name in ("state/nearest", "delta/nearest", "delta/follow", "exact/nearest")),
        ["state/learned", "delta/learned"],
        ["retrieval-bc", "follow-action", "replay"],
    ):
        shown = " / ".join(f"{means['F', agent]['goals']:.3f}" for agent in agents)
        assert f"| {shown} |" in page, agents
    ranks = {(row["agents"], row["correlation of goals with"]): row for row in script.ranks(rows)}
    for metric in ("error", "restoring"):
        for group in ("all agents", "not intervened on"):
            row = ranks[group, metric]
            assert f"{row['mean']:.2f} (" in page and f"{row['low']:.2f} to {row['high']:.2f})" in page


def test_other_demonstrators_and_sizes() -> None:
    script = load_script("report_what_wins")
    page = (RESULTS / "what_wins" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = script.choose(script.read(RESULTS / "what_wins" / "results.csv"), part="C")
    names = {"human": "human", "astar": r"A\*", "noisy-astar": r"A\* with noise"}
    tests, means = defaultdict(dict), defaultdict(dict)
    for row in (row for row in script.hypotheses(rows) if row["task"] == "all"):
        tests[row["demonstrator"], row["demos"]][row["test"]] = row
    for row in script.means(rows):
        means[row["demonstrator"], row["demos"]][row["agent"]] = row
    assert len(tests) == 10
    for (demonstrator, demos), found in tests.items():
        cells = [found[name] for name in ("lead", "H1", "H2")]
        assert {cell["seeds"] for cell in cells} == {10}
        each = [
            f"{cell['difference']:.3f} | {cell['low']:.3f} to {cell['high']:.3f} | {cell['p']:.1e}" for cell in cells
        ]
        assert f"| {names[demonstrator]}, {demos} | {' | '.join(each)} |" in page
        order = (
            "bc",
            "bc+pull/1",
            *(f"{idm}/nearest/{pull}" for idm in ("state", "delta") for pull in (1, 0)),
            "corrective-bc",
        )
        goals = [f"{means[demonstrator, demos][agent]['goals']:.3f}" for agent in order]
        assert f"| {names[demonstrator]}, {demos} | {' | '.join(goals)} |\n" in page
        corrective, *others = (
            means[demonstrator, demos][agent] for agent in ("corrective-bc", "bc", "state/nearest/1")
        )
        assert corrective["seeds"] == 10 and corrective["goals"] > max(each["goals"] for each in others)
    assert [sum(found[name]["p"] < 0.025 for found in tests.values()) for name in ("H1", "H2")] == [10, 9]


def test_how_agents_fail() -> None:
    page = (RESULTS / "what_wins" / "README.md").read_text(encoding="utf-8")
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in csv.DictReader((RESULTS / "what_wins" / "stalls.csv").read_text(encoding="utf-8").splitlines()):
        for place, name in enumerate(("failed", "stalled")):
            counts[row["agent"]][place] += int(row[name])
    assert len(counts) == 6
    for agent, (failed, stalled) in counts.items():
        assert f"| {failed} | {stalled} |" in page, agent


def test_how_far_ahead() -> None:
    script = load_script("report_horizons")
    page = (RESULTS / "horizons" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = script.read(RESULTS / "horizons" / "results.csv", ("goals",))
    for row in script.tests(rows):
        assert row["units"] == 10
        assert f"| {row['value']:.3f} | {row['low']:.3f} to {row['high']:.3f} | {row['p']:.1e} |" in page, row["of"]
    means = {row["agent"]: row["goals"] for row in script.means(rows) if row["part"] == "K"}
    noisy = {row["agent"]: row["goals"] for row in script.means(rows) if row["part"] == "N"}
    for noise in ("none", *script.NOISES):
        shown = " | ".join(f"{noisy[f'{name} {noise}']:.3f}" for name in ("bc", "1/1", f"{script.SEVERAL}/1"))
        assert f"| {shown} |" in page
    for trained in ("{k}", script.SEVERAL):
        shown = " | ".join(f"{means[f'{trained.format(k=k)}/{k}']:.3f}" for k in script.HORIZONS)
        assert f"| {shown} |" in page
    more = {(row["demos"], row["agent"]): row["goals"] for row in script.means(rows) if row["part"] == "X"}
    data = ("unlabeled 0", "unlabeled 10", "unlabeled 45"), ("zigzag", "play")
    for demos, names in itertools.product(script.SIZES, data):
        shown = " | ".join(f"{more[demos, f'{name}/{k}']:.3f}" for k in (1, 5) for name in names)
        assert f"| {demos} | {shown} |" in page
    for row in csv.DictReader((RESULTS / "horizons" / "more_data.csv").read_text(encoding="utf-8").splitlines()):
        shown = " | ".join(f"{float(row[name]):.3f}" for name in ("goals", "error", "restoring", "exact_goals"))
        assert f"| {row['unlabeled']} | {shown} |" in page


def test_horizons_are_tested_on_whole_seeds_and_contrasts_are_what_they_say(tmp_path: Path) -> None:
    script = load_script("report_horizons")
    jobs, tasks = [], script.PAPER_TASKS
    for seed, task in itertools.product(range(3), tasks):
        found = {f"{name} {noise}": 0.5 for name in ("bc", "1/1", f"{script.SEVERAL}/1") for noise in script.NOISES}
        found |= {"bc none": 0.8, "1/1 none": 0.9, f"{script.SEVERAL}/1 none": 0.9, "1/1 iid 8": 0.7}
        agents = {name: {"goals": goals + 0.01 * seed} for name, goals in found.items()}
        jobs.append({"part": "N", "task": task, "demos": 5, "seed": seed, "agents": agents})
    text = "\n".join(map(json.dumps, jobs[:-1]))  # one task of the last seed is missing
    (tmp_path / "jobs.jsonl").write_text(text, encoding="utf-8")
    tests = {(row["test"], row["of"]): row for row in script.tests(script.flatten(tmp_path / "jobs.jsonl"))}
    assert all(row["units"] == 2 for row in tests.values()) and len(tests) == 8
    assert tests["N1", "1/1 iid 8 + bc none - bc iid 8 - 1/1 none"]["value"] == pytest.approx(0.1)
    assert tests["N2", "1+5+10+25/1 iid 8 - 1/1 iid 8"]["value"] == pytest.approx(-0.2)


def test_where_the_pull_ends() -> None:
    script = load_script("report_limits")
    page = (RESULTS / "limits" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = script.read(RESULTS / "limits" / "results.csv", script.METRICS)
    means = {(row["part"], row["demos"], row["agent"]): row["score"] for row in script.means(rows)}
    for row in script.tests(rows):
        assert row["units"] == 10 or (row["part"] == "M" and f"UMaze, {row['units']} seeds" in page)
        told = f"{row['value']:.3f} | {row['low']:.3f} to {row['high']:.3f} | {row['p']:.1e} |"
        if row["test"] == "L2":
            told = f"| {means[row['part'], row['demos'], row['of'].removesuffix(' - bc')]:.3f} | {told}"
        if row["test"] == "L3":
            told = f"({row['of']} {row['value']:.3f}, 95% CI {row['low']:.3f} to {row['high']:.3f})"
        assert told in page or (row["test"], row["part"]) == ("L3", "M"), row


def test_the_study_of_limits_reports_whole_seeds_only(tmp_path: Path) -> None:
    script = load_script("report_limits")
    jobs = [("R", world, 5, 900) for world in "abcd"] + [("R", world, 5, 901) for world in "aabc"]
    jobs += [("M", "maze", 5, 900), ("M", "maze", 20, 900), ("M", "maze", 5, 901)]
    lines = [{**dict(zip(script.KEYS, job, strict=True)), "agents": {"bc": {"score": 0.5}}} for job in jobs]
    (tmp_path / "jobs.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = script.flatten(tmp_path / "jobs.jsonl")
    assert [(row["part"], row["demos"], row["seed"]) for row in found] == [
        *[("R", 5, 900)] * 4,
        ("M", 5, 900),
        ("M", 20, 900),
    ]


def world3d_jobs(script: Any) -> list[dict[str, Any]]:
    """Return made-up jobs of all parts, in which PIDM passes 0.1 more milestones than BC."""
    jobs = []
    agents = {"A": ("bc", "pidm"), "B": [pair[0] for pair in script.CONTROLS] + [pair[1] for pair in script.CONTROLS]}
    agents |= {"C": [name for name in script.TITLES if "/" in name], "D": ("bc", "pidm")}
    cells = [("A", 0.0, demos) for demos in script.SIZES] + [
        ("B", 0.0, 15),
        ("C", 0.0, 15),
        ("D", 0.5, 15),
        ("D", 1.0, 15),
    ]
    for seed, (part, variety, demos) in itertools.product(range(5), cells):
        rng = np.random.default_rng([seed, demos])
        common = 0.45 + demos / 100 + 0.01 * rng.standard_normal()
        found = {}
        for name in agents[part]:
            score = common + 0.1 * name.startswith("pidm") + 0.001 * rng.standard_normal()
            found[name] = {**dict.fromkeys(script.SCORES, score), "restoring12": 0.2 * name.startswith("pidm")}
        if part == "B":
            found = {name: each for name, each in found.items() if name not in agents["A"]}
        job = {"part": part, "variety": variety, "demos": demos, "seed": seed, "agents": found}
        jobs.append({**job, "about": dict.fromkeys(script.ABOUT, 0.5)})
    return [*jobs, {**jobs[0], "seed": 5}]  # the last seed is not whole


def test_the_report_of_the_3d_study_finds_what_is_there(tmp_path: Path) -> None:
    script = load_script("report_world3d")
    (tmp_path / "jobs.jsonl").write_text("\n".join(map(json.dumps, world3d_jobs(script))), encoding="utf-8")
    script.main(tmp_path / "jobs.jsonl", tmp_path)
    rows = script.load(tmp_path / "results.csv")
    assert {row["seed"] for row in rows} == {*range(5)}
    tests = {(row["test"], row["of"], row["metric"], row["demos"]): row for row in script.tests(rows)}
    lead = tests["primary", "pidm - bc", "alone", "all"]
    assert lead["value"] == pytest.approx(0.1, abs=0.002) and lead["p"] < 1e-4 and lead["units"] == 5
    assert lead["low"] < lead["value"] < lead["high"] and 0 < lead["smallest"] < 0.01
    assert tests["per size, Welch", "pidm - bc", "ordered", 5]["p"] < 0.01
    assert abs(tests["controls", "bc-time - bc", "alone", 15]["value"]) < 0.005
    assert tests["pull", "pidm - bc", "restoring12", 15]["value"] == pytest.approx(0.2)
    assert sum(name == "variety" for name, *_ in tests) == 3
    (alone, _) = (script.ratio(rows, metric) for metric in ("alone", "ordered"))
    assert (alone["pidm"], alone["bc"]) == (30, np.inf) and alone["ratio"] == np.inf
    assert {path.stem for path in tmp_path.glob("*.png")} == {"curves", "pull"}


def test_the_3d_world() -> None:
    script = load_script("report_world3d")
    page = (RESULTS / "world3d" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = script.load(RESULTS / "world3d" / "results.csv")
    means = {(row["part"], row["demos"], row["agent"]): row for row in script.means(rows)}
    tests = script.tests(rows)
    shown: dict[tuple[int, str], str] = {}
    for row in tests:
        difference, p = f"{row['value']:+.3f} ({row['low']:.3f} to {row['high']:.3f})", f"{row['p']:.3f}"
        if row["test"] == "per size, Welch":
            scores = [f"{means['A', row['demos'], agent][row['metric']]:.3f}" for agent in ("bc", "pidm")]
            shown[row["demos"], row["metric"]] = " | ".join([*scores, difference, p.replace("1.000", "1")])
        elif row["test"] in ("primary", "secondary"):
            assert f"{difference} | {p} |" in page
        elif row["test"] in ("controls", "pull"):
            assert row["units"] == 5
            interval = f"{row['low']:.3f} to {row['high']:.3f}"
            assert f"| {row['value']:.3f} | {interval} | {p.replace('1.000', '1')} |" in page, row["of"]
        else:
            variety = float(row["of"].rpartition(" ")[2])
            own = {each["agent"]: each["alone"] for each in script.means(rows) if each["variety"] == variety}
            cells = [f"{own[agent]:.3f}" for agent in ("bc", "pidm", "pidm/time/0", "bc+pull/0.25")] if variety else []
            assert row["units"] == 5 and f"{' | '.join([*cells, difference])} |" in page
    assert len(shown) == 10
    for (demos, _), cells in shown.items():
        assert f"| {demos} | {cells} |" in page


def test_the_3d_world_is_trained_long_enough() -> None:
    page = (RESULTS / "world3d" / "README.md").read_text(encoding="utf-8")
    for row in csv.DictReader((RESULTS / "world3d" / "flat.csv").read_text(encoding="utf-8").splitlines()):
        losses = ", ".join(f"{1e4 * float(row[f'loss_{part}']):.1f}" for part in (60, 80, 100))
        steps, rate, error = int(row["steps"]), float(row["learning_rate"]), float(row["held_out_error"])
        assert f"| {steps:,} | {rate:g} | {losses} | {error:.4f} |" in page


def test_the_smallest_difference_is_found_as_often_as_it_says() -> None:
    script = load_script("report_world3d")
    rng, seeds = np.random.default_rng(0), 5
    shift = script.smallest_seen(1 / np.sqrt(seeds), seeds - 1)
    found = ttest_1samp(shift + rng.standard_normal((20_000, seeds)), 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_the_papers_protocol_is_reported_on_whole_seeds(tmp_path: Path) -> None:
    script = load_script("report_paper_protocol")
    cells = itertools.product((1000, 1001, 1002), script.PAPER_TASKS, script.SIZES, script.AGENTS)
    rows = [
        {"seed": seed, "task": task, "demos": demos, "agent": agent}
        | dict.fromkeys(script.CHECKPOINTS, 1.0 if agent == "pidm" or demos >= 20 else 0.5 + 0.01 * (seed - 1000))
        | {"at_100": 0.4, "seconds": 1.0}
        for seed, task, demos, agent in cells
    ]
    script.write_rows(tmp_path / "results.csv", rows[:-1])  # the last seed lacks a job
    script.main(out=tmp_path)
    tests = list(csv.DictReader((tmp_path / "tests-best.csv").read_text().splitlines()))
    assert len(tests) == 32 and {row["seeds"] for row in tests} == {"2"}
    assert {float(row["difference"]) for row in tests if int(row["demos"]) < 20} == {0.495}
    ratios = list(csv.DictReader((tmp_path / "ratios-best.csv").read_text().splitlines()))
    assert {float(row["ratio"]) for row in ratios} == {20.0}  # BC needs 20, PIDM 1
    last = list(csv.DictReader((tmp_path / "ratios-last.csv").read_text().splitlines()))
    assert {float(row["ratio"]) for row in last} == {1.0}  # at the end of training all score alike
    assert (tmp_path / "curves.png").exists()


def test_the_page_of_the_papers_protocol_counts_its_jobs() -> None:
    folder = RESULTS / "paper_protocol"
    page = (folder / "README.md").read_text(encoding="utf-8")
    agents = [row["agent"] for row in csv.DictReader((folder / "results.csv").read_text().splitlines())]
    for agent, name in (("bc", "BC"), ("pidm", "PIDM")):
        with zipfile.ZipFile(folder / f"jobs-{agent}.zip") as jobs:
            assert sum(each.startswith("jobs/") for each in jobs.namelist()) == agents.count(agent)
        assert f"{name} {agents.count(agent)} of 640" in page


def test_the_tables_of_the_papers_protocol() -> None:
    folder = RESULTS / "paper_protocol"
    page = (folder / "README.md").read_text(encoding="utf-8").replace("−", "-").replace("**", "")
    ratios, tests, scores = (
        list(csv.DictReader((folder / f"{name}-best.csv").read_text(encoding="utf-8").splitlines()))
        for name in ("ratios", "tests", "scores")
    )
    for level in ("0.8", "0.9", "0.95"):
        rows = [row for row in ratios if row["level"] == level]
        assert len(rows) == 5 and {row["seeds"] for row in rows} == {"10"}
        numbers = [[f"{float(row[key]):.3g}" for key in ("ratio", "low", "high", "paper")] for row in rows]
        ours = " | ".join(f"{ratio} [{low}, {high}]" for ratio, low, high, _ in numbers)
        paper = " | ".join(each[-1] for each in numbers)
        assert f"| η({float(level):.0%}), ours | {ours} |\n| in the paper | {paper} |" in page
    for task in ("four-room", "zigzag", "maze", "multiroom"):
        differences = [(float(row["difference"]), float(row["p_holm"])) for row in tests if row["task"] == task]
        shown = [f"{value:.3f}" + (f" (p = {p:.2g})" if p < 0.05 else "") for value, p in differences]
        assert f"| {task.replace('-', ' ').capitalize()} | {' | '.join(shown)} |" in page
        for agent, name in (("bc", "BC"), ("pidm", "PIDM")):
            means = [float(row["mean"]) for row in scores if (row["task"], row["agent"]) == (task, agent)]
            shown = [f"{mean:.2f}" for mean in means]
            assert f"| {task.replace('-', ' ').capitalize()}, {name} | {' | '.join(shown)} |" in page
    assert sum(float(row["difference"]) > 0 for row in tests) == 28
    assert sum(float(row["p_holm"]) < 0.05 for row in tests) == 5


@pytest.mark.parametrize(("world", "metric", "digits"), [("pendulum", "return", 1), ("minigrid", "success", 3)])
def test_pendulum_and_minigrid(world: str, metric: str, digits: int) -> None:
    page = (RESULTS / "small_worlds" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    results, gains = (
        list(csv.DictReader((RESULTS / "small_worlds" / world / name).read_text(encoding="utf-8").splitlines()))
        for name in ("results.csv", "gains.csv")
    )
    scores: defaultdict[str, defaultdict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in results:
        scores[row["agent"]][row["task"], int(row["demos"])].append(float(row[metric]))
    for agent, cells in scores.items():
        assert all(len(values) == 10 for values in cells.values())
        shown = " | ".join(f"{np.mean(cells[cell]):.{digits}f}" for cell in sorted(cells))
        for row in (row for row in gains if (row["agent"], row["task"]) == (agent, "all")):
            assert row["seeds"] == "10"
            gain, low, high = (f"{float(row[name]):.{digits}f}" for name in ("gain", "low", "high"))
            shown += f" | {gain} | {low} to {high} | {float(row['p_holm']):.2g}"
        assert f"| {shown} |" in page, (agent, shown)


def test_meta_world() -> None:
    page = (RESULTS / "meta_world" / "README.md").read_text(encoding="utf-8").replace("−", "-").replace("**", "")
    results = list(csv.DictReader((RESULTS / "meta_world" / "results.csv").read_text(encoding="utf-8").splitlines()))
    score = {(r["agent"], r["task"], int(r["demos"]), int(r["seed"])): float(r["success"]) for r in results}
    agents, tasks, seeds = (sorted({key[index] for key in score}) for index in (0, 1, 3))
    assert len(score) == 4 * 6 * 2 * 10 and seeds == list(range(1200, 1210))
    for task, demos in itertools.product(tasks, (5, 25)):
        order = ("bc", "corrective-bc", "pidm", "delta-pidm")
        shown = " | ".join(f"{np.mean([score[agent, task, demos, seed] for seed in seeds]):.3f}" for agent in order)
        assert f"| {task.removeprefix('MetaWorld-').removesuffix('-v3')}, {demos} | {shown} |" in page

    def gain(agent: str, sizes: tuple[int, ...]) -> Mean:
        pairs = [
            [score[agent, task, demos, seed] - score["bc", task, demos, seed] for task in tasks for demos in sizes]
            for seed in seeds
        ]
        return estimate_mean(np.mean(pairs, axis=1))

    agents.remove("bc")
    columns = {sizes: [gain(agent, sizes) for agent in agents] for sizes in ((5, 25), (5,), (25,))}
    corrected = {sizes: holm([each.p for each in column]) for sizes, column in columns.items()}
    for index, name in enumerate(("corrective BC", "delta-PIDM", "PIDM")):  # in the order of `agents`
        shown = ""
        for sizes, column in columns.items():
            mean = column[index]
            interval = f" | {mean.low:.3f} to {mean.high:.3f}" if sizes == (5, 25) else ""
            shown += f" | {mean.value:.3f}{interval} | {corrected[sizes][index]:.2g}"
        assert f"| {name}{shown} |" in page, shown


def test_the_experts_of_small_worlds(tmp_path: Path) -> None:
    script = load_script("small_worlds")
    swings = collect(script.SwingUp(0.2), script.PENDULUM, 5, 0, made_by="scripted")
    assert np.mean([episode.rewards.sum() for episode in swings]) > -400  # at rest below, it is about -1,600
    pytest.importorskip("minigrid", reason="pip install --no-deps minigrid")
    for task in script.register_mini_grid():
        walks = collect(script.Walker(0.0), task, 5, 0, made_by="scripted")
        assert all(episode.success and len(episode) < 20 for episode in walks)
