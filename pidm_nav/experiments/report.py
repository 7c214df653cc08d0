"""From results to a report: figures as PNG and PDF, tables as Markdown and CSV, and one HTML page with all of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pidm_nav.experiments import paper
from pidm_nav.experiments.curves import Curve
from pidm_nav.experiments.efficiency import EfficiencyRatio, Side
from pidm_nav.experiments.figures import CurveFigure, draw_svg, make_figures, write_figure
from pidm_nav.experiments.results import (
    Cell,
    JobResult,
    Manifest,
    agent_rank,
    make_curves,
    read_manifest,
    read_results,
    task_order,
    task_title,
)
from pidm_nav.experiments.tables import Table, Which, dataset_table, paper_side, ratio_table, score_table, welch_table
from pidm_nav.files import writable_folder, write_json, write_rows, write_text
from pidm_nav.plots import agent_title, demonstrator_title

HEADLINE = 0.90
MAIN_TEXT = {
    "human": " The paper's main figure and Table 1.",
    "human-like": " As the paper's Table 1, with a scripted player in place of its human one.",
    "astar": " The paper shows this for Multiroom (Appendix D).",
}
# colors of lines on a dark page: lighter than in print, where those would be too pale
DARK_COLORS = {
    **{"#d9480f": "#ff9057", "#1c6dd0": "#6fadff", "#0b8a5f": "#3fd0a0", "#8540c9": "#c197ff", "#b3860b": "#e5bd4f"},
    **{"#1f77b4": "#5fb0ee", "#9467bd": "#c197ff"},
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
    """A part of the report under one heading."""

    title: str
    text: str = ""
    pictures: Mapping[str, Path] = field(default_factory=dict)  # by what they show
    figures: Sequence[CurveFigure] = ()
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()  # tables that the page shows on demand
    commands: Mapping[str, str] = field(default_factory=dict)  # by what they do


@dataclass(frozen=True)
class Report:
    """All there is to say about some folders of results."""

    headlines: Sequence[Headline]
    sections: Sequence[Section]
    facts: Mapping[str, str]
    curves: Sequence[Curve]
    summary: Mapping[str, Any]  # every job's scores, JSON-plain
    failed: Mapping[Cell, JobResult] = field(default_factory=dict)
    title: str = "How many demonstrations does each method need?"
    lead: str = "Our sweep over the paper's navigation tasks, beside the paper's own numbers."
    found: str = ""  # the result in a sentence


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write the report of folders that `pidm-nav sweep` wrote; returns the page's path."""
    return save_report(make_report(folders), out)


def save_report(report: Report, out: Path) -> Path:
    """Write `index.html`, `report.md`, `summary.json`, `figures/` and `tables/`; returns the page's path."""
    writable_folder(out)
    for section in report.sections:
        for figure in section.figures:
            write_figure(figure, out / "figures")
        for table in (*section.tables, *section.folded):
            write_rows(out / "tables" / f"{table.name}.csv", table.records)
            write_text(out / "tables" / f"{table.name}.md", table.markdown())
    write_text(out / "report.md", markdown(report))
    write_json(out / "summary.json", report.summary)
    write_text(out / "index.html", render_page(report))
    return out / "index.html"


def make_report(folders: Sequence[Path]) -> Report:
    """Read folders that `pidm-nav sweep` wrote, and make their report."""
    curves: list[Curve] = []
    manifests: dict[str, Manifest] = {}
    results: dict[str, list[JobResult]] = {}
    failed: dict[Cell, JobResult] = {}
    for folder in folders:
        manifest = read_manifest(folder)
        done, errors = read_results(folder)
        label = manifest.demos_from
        if label in manifests:
            raise ValueError(f"'{folder}' is the second folder of {label} demonstrations: join their jobs in one folder")
        if not done:
            raise ValueError(f"'{folder}' holds no finished job: let the sweep run first")
        manifests[label], results[label] = manifest, [done[cell] for cell in sorted(done)]
        failed |= errors
        curves += make_curves(done, label)
    sections, headlines = _sections(curves, list(manifests))
    sections.append(Section("The demonstrations", "What the agents learned from.", tables=[dataset_table(list(manifests.values()))]))
    summary = {
        label: {"manifest": msgspec.to_builtins(manifest), "jobs": [_brief(result) for result in results[label]]}
        for label, manifest in manifests.items()
    }
    facts = _facts(curves, manifests, [result for each in results.values() for result in each])
    return Report(headlines, sections, facts, curves, summary, failed)


def _brief(result: JobResult) -> dict[str, Any]:
    """Return a job's scores without its single episodes."""
    checkpoints = msgspec.to_builtins(result.checkpoints)
    return {
        **{key: getattr(result, key) for key in ("task", "agent", "demos", "seed", "code", "seconds")},
        "checkpoints": [{key: value for key, value in each.items() if key != "goals"} for each in checkpoints],
    }


def _sections(curves: Sequence[Curve], labels: Sequence[str]) -> tuple[list[Section], list[Headline]]:
    """Return what there is to show of the curves: sections, and the numbers to remember."""
    figures = {figure.name: figure for figure in make_figures(curves)}
    headlines: list[Headline] = []
    sections: list[Section] = []

    def add(title: str, text: str, figure: str, sides: tuple[Side, Side], which: Which = "best") -> None:
        (agent, label), (baseline, _) = sides
        ratios = ratio_table(curves, *sides, which)
        if ratios and which == "best":
            headlines.append(_headline(ratios[1], *sides))
        welch = welch_table(curves, label, agent, baseline) if agent != baseline and which == "best" else None
        shown = [figures[figure]] if figure in figures else []
        if shown or ratios:
            tables, folded = [ratios[0]] if ratios else [], [welch] if welch else []
            sections.append(Section(title, text, figures=shown, tables=tables, folded=folded))

    for label in labels:
        words = f"{demonstrator_title(label)} demonstrations"
        need = f"How many demonstrations does each method need?{MAIN_TEXT.get(label, '')}"
        add(f"PIDM against BC on {words}", need, f"efficiency-{label}", (("pidm", label), ("bc", label)))
        add(
            f"Against retrieval BC on {words}",
            "Retrieval BC repeats the action of the nearest demonstrated state: the paper's Appendix E.",
            f"retrieval-{label}",
            (("pidm", label), ("retrieval-bc", label)),
        )
        if f"agents-{label}" in figures:
            sections.append(Section(f"All agents on {words}", figures=[figures[f"agents-{label}"]]))
    for label in labels:
        if paper.ASTAR in labels and label != paper.ASTAR:
            add(
                f"A* against {demonstrator_title(label)} demonstrations",
                "The same agent, taught by a deterministic planner: the paper's Appendix D.",
                "demonstrations",
                (("pidm", paper.ASTAR), ("pidm", label)),
            )
    for label in labels:
        if any(curve.scores.shape[2] > 1 for curve in curves if curve.demos_from == label):
            add(
                f"Best against last checkpoint on {demonstrator_title(label)} demonstrations",
                "Does choosing the best checkpoint decide the result? The paper's Appendix C.3.",
                f"best-last-{label}",
                (("pidm", label), ("bc", label)),
                "last",
            )
    scores = [score_table(curves, label, which) for label in labels for which in ("best", "last")]
    sections.append(Section("All scores", "Every cell of the sweep.", folded=scores))
    return sections, headlines


def _headline(ratios: Sequence[EfficiencyRatio], agent: Side, baseline: Side) -> Headline:
    """Say the average eta(90%) in words."""
    average = next(r for r in ratios if r.task == "average" and r.level == HEADLINE)
    printed = paper.TABLES.get((paper_side(agent), paper_side(baseline)))
    value = "?" if average.bound == "?" else f"{average}×"
    if agent[1] == baseline[1]:
        who = f"demonstrations for {agent_title(baseline[0])} as for {agent_title(agent[0])}"
        other = f"{demonstrator_title(agent[1])} demonstrations"
    else:
        who = f"{demonstrator_title(baseline[1])} as {demonstrator_title(agent[1])} demonstrations"
        other = agent_title(agent[0])
    note = f"paper: {printed.average[HEADLINE]:.3g}×" if printed else "not in the paper"
    return Headline(value, f"as many {who} to reach 90% ({other})", note)


def _facts(
    curves: Sequence[Curve], manifests: Mapping[str, Manifest], results: Sequence[JobResult]
) -> dict[str, str]:
    """Say how the results were made."""
    first = next(iter(manifests.values()))
    seeds = sorted({int(np.isfinite(c.scores).any(axis=2).sum(axis=1).max()) for c in curves})
    sizes = sorted({size for curve in curves for size in curve.sizes})
    presets = dict.fromkeys(manifest.preset for manifest in manifests.values())
    steps = sorted({config["steps"] for manifest in manifests.values() for config in manifest.training.values()})
    agents = sorted({curve.agent for curve in curves}, key=agent_rank)
    checkpoints = max(curve.scores.shape[2] for curve in curves)
    states = len({result.code for result in results})
    versions = f"pidm-nav {first.version}, torch {first.torch}"
    if states > 1:
        versions += f"; the jobs were run with {states} different states of the code"
    return {
        "Jobs": f"{len(results)}, {sum(result.seconds or 0 for result in results) / 3600:.1f} core hours",
        "Tasks": ", ".join(map(task_title, task_order(curve.task for curve in curves))),
        "Agents": ", ".join(map(agent_title, agents)),
        "Demonstrations": ", ".join(map(demonstrator_title, manifests)),
        "Numbers of demonstrations": ", ".join(map(str, sizes)),
        "Seeds": " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))),
        "Training": f"preset {', '.join(presets)}, {', '.join(f'{s:,}' for s in steps)} gradient steps",
        "Evaluation": f"{first.evaluation.episodes} episodes at each of up to {checkpoints} checkpoints",
        "Versions": versions,
    }


def markdown(report: Report) -> str:
    """Return the whole report as one Markdown text."""
    parts = ["# Results\n", *([f"{report.found}\n"] if report.found else [])]
    parts += [f"- **{item.value}** {item.text}" + (f" ({item.note})" if item.note else "") for item in report.headlines]
    for section in report.sections:
        parts.append(f"\n## {section.title}\n\n{section.text}\n")
        parts += [f"![{words}]({path.name})\n" for words, path in section.pictures.items()]
        parts += [f"![{f.title}](figures/{f.name}.png)\n\n{f.caption}\n" for f in section.figures]
        parts += [table.markdown() for table in (*section.tables, *section.folded)]
        parts += [f"{title}:\n\n```\n{commands}\n```\n" for title, commands in section.commands.items()]
    parts.append("\n## How it was made\n")
    parts += [f"- {name}: {value}" for name, value in report.facts.items()]
    if report.failed:
        parts.append(f"\n{len(report.failed)} jobs failed:\n")
        parts += [f"- {cell}: {result.error}" for cell, result in report.failed.items()]
    return "\n".join(parts) + "\n"


def render_page(report: Report) -> str:
    """Return the report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def embed(path: Path) -> str:
        return f"data:image/{path.suffix[1:]};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"

    def draw(figure: CurveFigure) -> list[Markup]:
        return [Markup(draw_svg(panel, f"{figure.name}-{index}")) for index, panel in enumerate(figure.panels)]

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"embed": embed, "draw": draw}
    template = environment.from_string((files("pidm_nav.experiments") / "report.html").read_text(encoding="utf-8"))
    return template.render(report=report, dark_colors=DARK_COLORS)
