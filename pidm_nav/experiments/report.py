"""Reports of sweeps: figures as PNG and PDF, tables as Markdown and CSV, and one HTML page."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from pidm_nav.console import counted
from pidm_nav.experiments import figures, paper, tables
from pidm_nav.experiments.curves import Curve, all_sizes, score_name
from pidm_nav.experiments.efficiency import EfficiencyRatio, Side
from pidm_nav.experiments.figures import LEVEL, CurveFigure
from pidm_nav.experiments.results import Cell, JobResult, Manifest, in_order, make_curves, read_manifest, read_results
from pidm_nav.experiments.tables import Table, Which
from pidm_nav.files import writable_folder, write_json, write_rows, write_text
from pidm_nav.plots import agent_title, demonstrator_title, task_title
from pidm_nav.tasks import PAPER_TASKS

MAIN_TEXT = {
    "human": " The paper's main figure and Table 1.",
    "human-like": " As the paper's Table 1, with a scripted player in place of its human one.",
    "astar": " The paper shows this for Multiroom (Appendix D).",
}


@dataclass(frozen=True)
class Headline:
    """One number to remember."""

    value: str
    text: str
    note: str = ""  # the paper's number
    color: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the report."""

    title: str
    text: str = ""
    pictures: Mapping[str, Path] = field(default_factory=dict)  # by caption
    panes: int = 1  # panels of each picture side by side, which a phone stacks
    figures: Sequence[CurveFigure] = ()
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()  # collapsed tables
    commands: Mapping[str, str] = field(default_factory=dict)  # by title
    headlines: Sequence[Headline] = ()


@dataclass(frozen=True)
class Report:
    """Contents of a report on folders of results."""

    sections: Sequence[Section]
    facts: Mapping[str, str]
    curves: Sequence[Curve]
    summary: Mapping[str, Any]  # scores of all jobs, as plain JSON values
    failed: Mapping[Cell, JobResult] = field(default_factory=dict)
    title: str = "How many demonstrations does each method need?"
    lead: str = ""
    found: str = ""  # the result in a sentence


def write_report(folders: Sequence[str | Path], out: str | Path = "report") -> Path:
    """Write the report of folders of sweeps, and return the page's path."""
    check_page(Path(out))
    return save_report(make_report(folders), Path(out))


def check_page(out: Path) -> None:
    """Raise an error for a folder whose `index.html` is not of a report, which writes it after its other files."""
    page = out / "index.html"
    if page.exists() and not all((out / name).is_file() for name in ("report.md", "summary.json")):
        raise FileExistsError(f"'{page}' is not the page of a report: choose another folder")


def save_report(report: Report, out: Path) -> Path:
    """Write `index.html`, `report.md`, `summary.json`, `figures/` and `tables/`, and return the page's path."""
    writable_folder(out)
    for section in report.sections:
        for figure in section.figures:
            figures.write_figure(figure, out / "figures")
        for table in (*section.tables, *section.folded):
            write_rows(out / "tables" / f"{table.name}.csv", table.records)
            write_text(out / "tables" / f"{table.name}.md", render("report.md.jinja", report=None, table=table))
    write_text(out / "report.md", render("report.md.jinja", report=report))
    write_json(out / "summary.json", report.summary)
    write_text(out / "index.html", render("report.html", report=report))
    return out / "index.html"


def make_report(folders: Sequence[str | Path]) -> Report:
    """Return the report of folders of sweeps."""
    curves: list[Curve] = []
    manifests: dict[str, Manifest] = {}
    results: list[JobResult] = []
    failed: dict[Cell, JobResult] = {}
    missing = 0
    summary = {}
    for folder in map(Path, [folders] if isinstance(folders, str | Path) else folders):
        manifest = read_manifest(folder)
        done, errors = read_results(folder)
        label = manifest.demos_from
        if label in manifests:
            raise ValueError(f"'{folder}' is the second folder of {label} demonstrations: merge the two")
        if not done:
            raise ValueError(f"'{folder}' holds no finished job: run the sweep first")
        manifests[label] = manifest
        missing += count_missing(manifest, {**done, **errors})
        own = [done[cell] for cell in sorted(done)]
        results += own
        failed |= errors
        curves += make_curves(done, label)
        summary[label] = {"manifest": msgspec.to_builtins(manifest), "jobs": [_brief(result) for result in own]}
    sections = _sections(curves, manifests)
    shared = {curve.task for curve in curves} & set(PAPER_TASKS)
    lead = "Beside the numbers of the same tasks in the paper." if shared else "None of these tasks is in the paper."
    facts = _facts(curves, manifests, results)
    if missing:
        facts["Missing"] = f"{counted(missing, 'job')} of all tasks, agents, numbers and seeds above"
    return Report(sections, facts, curves, summary, failed, lead=lead)


def count_missing(manifest: Manifest, ended: Collection[Cell]) -> int:
    """Return the number of jobs without scores or error in the grid of a sweep's tasks, agents, numbers and seeds."""
    sizes, seeds = {cell.demos for cell in ended}, {cell.seed for cell in ended}
    return len(manifest.demos) * len(manifest.agents) * len(sizes) * len(seeds) - len(ended)


def _brief(result: JobResult) -> dict[str, Any]:
    """Return a job's scores without those of single episodes."""
    content = msgspec.to_builtins(result)
    brief = {key: content.get(key) for key in ("task", "agent", "demos", "seed", "code", "seconds", "checkpoints")}
    for checkpoint in brief["checkpoints"]:
        del checkpoint["goals"]
    return brief


def _compare(
    title: str, text: str, figure: CurveFigure, curves: Sequence[Curve], sides: tuple[Side, Side], which: Which = "best"
) -> Section:
    """Return a section with a figure and the ratios of one side over the other."""
    sizes = all_sizes(line.curve for line in figure.lines)
    shown = [figure] if len(sizes) > 1 else []  # a curve needs several numbers of demonstrations
    found = None if sides[0] == sides[1] else tables.ratio_table(curves, *sides, which)
    section = Section(title, text, figures=shown, tables=[found[0]] if found else [])
    if sides[0] == sides[1] or which == "last":
        return section
    tests = tables.paired_table(curves, *sides)
    headline = _headline(found[1], *sides) if found else None
    return replace(section, folded=[tests] if tests else [], headlines=[headline] if headline else [])


def _comparisons(curves: Sequence[Curve], labels: Iterable[str]) -> Iterator[Section]:
    """Yield the paper's comparisons: agents, demonstrations, and checkpoints."""
    seeds = max(curve.scores.shape[1] for curve in curves)
    best = "Best checkpoint. " if any(curve.checkpoints > 1 for curve in curves) else ""
    caption = (
        f"{best}Lines and shading are the mean {score_name(curves)} and its standard deviation over "
        f"{counted(seeds, 'seed')}; dotted lines show where a curve reaches 90% of the task's maximum."
    )
    by_label = {label: [curve for curve in curves if curve.demos_from == label] for label in labels}
    for label, own in by_label.items():
        words = f"{demonstrator_title(label)} demonstrations"
        lines = figures.compare_curves(own, own)
        agent, baseline, *others = _ranked(curve.agent for curve in own)
        both = [line for line in lines if line.curve.agent in (agent, baseline)]
        known = {curve.task for curve in own} <= set(PAPER_TASKS)
        text = f"How many demonstrations does each method need?{MAIN_TEXT.get(label, '') if known else ''}"
        figure = CurveFigure(f"efficiency-{label}", caption, both)
        title = f"{agent_title(agent)} against {agent_title(baseline)} on {words}"
        yield _compare(title, text, figure, curves, ((agent, label), (baseline, label)))
        if (agent, others) == ("pidm", ["retrieval-bc"]):
            text = "Does copying the action of the nearest state explain PIDM's gain? The paper's Appendix E."
            sides = ("pidm", label), ("retrieval-bc", label)
            figure = CurveFigure(f"retrieval-{label}", caption, lines)
            yield _compare(f"Against retrieval BC on {words}", text, figure, curves, sides)
        elif others:
            found = [tables.ratio_table(curves, (other, label), (baseline, label)) for other in others]
            tests = [tables.paired_table(curves, (other, label), (baseline, label)) for other in others]
            ratios = [each[0] for each in found if each is not None]
            yield Section(
                f"All agents on {words}",
                figures=[CurveFigure(f"agents-{label}", caption, lines)],
                folded=[*ratios, *(test for test in tests if test is not None)],
            )
    for label in (label for label in by_label if label != paper.ASTAR and paper.ASTAR in by_label):
        text = "A planner that always acts alike makes the future easier to predict: the paper's Appendix D."
        pidm = [curve for curve in curves if curve.agent == "pidm"]
        figure = CurveFigure("demonstrations", caption, figures.compare_curves(pidm, curves, by_demonstrator=True))
        title = f"A* against {demonstrator_title(label)} demonstrations"
        yield _compare(title, text, figure, curves, (("pidm", paper.ASTAR), ("pidm", label)))
    caption = "Solid: for each point the checkpoint with the highest mean. Dashed: the end of training."
    for label, own in by_label.items():
        title = f"Best against last checkpoint on {demonstrator_title(label)} demonstrations"
        text = "Does choosing the best checkpoint decide the result? The paper's Appendix C.3."
        if several := [curve for curve in own if curve.checkpoints > 1]:
            figure = CurveFigure(f"best-last-{label}", caption, figures.compare_checkpoints(several))
            agent, baseline, *_ = _ranked(curve.agent for curve in own)
            yield _compare(title, text, figure, curves, ((agent, label), (baseline, label)), "last")


def _ranked(agents: Iterable[str]) -> list[str]:
    """Return the main agent, its baseline, and the others; a single agent is both."""
    names = in_order(agents)
    baseline = "bc" if "bc" in names else names[0]
    others = [name for name in names if name != baseline] or [baseline]
    agent = "pidm" if "pidm" in others else others[0]
    return [agent, baseline, *(name for name in others if name not in (agent, baseline))]


def _sections(curves: Sequence[Curve], manifests: Mapping[str, Manifest]) -> list[Section]:
    """Return all sections."""
    sections = [each for each in _comparisons(curves, manifests) if each.figures or each.tables or each.folded]
    several = any(curve.checkpoints > 1 for curve in curves)
    kinds: tuple[Which, ...] = ("best", "last") if several else ("best",)
    scores = [tables.score_table(curves, label, which) for label in manifests for which in kinds]
    datasets = tables.dataset_table(list(manifests.values()))
    return [
        *sections,
        Section("All scores", "Every cell of the sweep.", folded=scores),
        Section("The demonstrations", "What the agents learned from.", tables=[datasets]),
    ]


def _headline(ratios: Sequence[EfficiencyRatio], agent: Side, baseline: Side) -> Headline | None:
    """Return the average eta(90%) as a headline; None if it is unknown."""
    average = next(r for r in ratios if r.task == "average" and r.level == LEVEL)
    if average.bound == "?":
        return None
    tasks = [r.task for r in ratios if r.level == LEVEL and r.task != "average"]
    printed = paper.TABLES.get((tables.paper_side(agent), tables.paper_side(baseline)))
    number = tables.paper_numbers(printed and printed.ratios[LEVEL], tasks)[-1]  # of the same tasks, or nan
    if agent[1] == baseline[1]:
        who = f"demonstrations for {agent_title(baseline[0])} as for {agent_title(agent[0])}"
        other = f"{demonstrator_title(agent[1])} demonstrations"
    else:
        who = f"{demonstrator_title(baseline[1])} as {demonstrator_title(agent[1])} demonstrations"
        other = agent_title(agent[0])
    note = "not in the paper" if math.isnan(number) else f"paper: {number:.3g}× on the same tasks"
    return Headline(f"{average}×", f"as many {who} to reach 90% ({other})", note)


def _facts(curves: Sequence[Curve], manifests: Mapping[str, Manifest], results: Sequence[JobResult]) -> dict[str, str]:
    """Return how the results were made."""
    first = next(iter(manifests.values()))
    seeds = sorted({result.seed for result in results})
    presets = dict.fromkeys(manifest.preset for manifest in manifests.values())
    steps = sorted({config["steps"] for manifest in manifests.values() for config in manifest.training.values()})
    checkpoints = max(curve.checkpoints for curve in curves)
    states = len({result.code for result in results})
    mixed = f"; the jobs were run with {states} different states of the code" if states > 1 else ""
    return {
        "Jobs": f"{len(results)}, {sum(result.seconds or 0 for result in results) / 3600:.1f} core hours",
        "Tasks": ", ".join(map(task_title, in_order(curve.task for curve in curves))),
        "Agents": ", ".join(map(agent_title, in_order(curve.agent for curve in curves))),
        "Demonstrations": ", ".join(map(demonstrator_title, manifests)),
        "Numbers of demonstrations": ", ".join(map(str, all_sizes(curves))),
        "Seeds": f"{', '.join(map(str, seeds))}: each draws the demonstrations (for all agents), weights and batches",
        "Training": f"preset {', '.join(presets)}, {', '.join(f'{s:,}' for s in steps)} gradient steps",
        "Evaluation": f"{first.evaluation.episodes} episodes at each of up to {checkpoints} checkpoints",
        "Versions": f"pidm-nav {first.version}, torch {first.torch}{mixed}",
    }


def render(template: str, **content: Any) -> str:
    """Render a template of this folder; HTML is escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from PIL import Image

    def embed(path: Path) -> str:
        return f"data:image/{path.suffix[1:]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"

    def image_size(path: Path) -> tuple[int, int]:
        with Image.open(path) as image:
            return image.size

    def draw(figure: CurveFigure) -> list[Markup]:
        panels = enumerate(figure.panels.items())
        return [Markup(figures.draw_svg(*panel, f"{figure.name}-{index}")) for index, panel in panels]

    text = (files("pidm_nav.experiments") / template).read_text(encoding="utf-8")
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(autoescape=template.endswith(".html"), keep_trailing_newline=True, **options)
    environment.filters |= {"embed": embed, "size": image_size, "draw": draw, "plain": _plain, "counted": counted}
    return environment.from_string(text).render(**content)


def _plain(text: str) -> str:
    """Return a text as one line of escaped Markdown."""
    return re.sub(r"([\\`*_\[\]<>#|~&])", r"\\\1", " ".join(text.split()))
