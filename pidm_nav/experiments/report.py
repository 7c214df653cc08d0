"""From results to a report: figures as PNG and PDF, tables as Markdown and CSV, and one HTML page of all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pidm_nav.demos.formats.npz import atomic_file
from pidm_nav.experiments import paper
from pidm_nav.experiments.curves import Checkpoint, Curve
from pidm_nav.experiments.efficiency import EfficiencyRatio
from pidm_nav.experiments.figures import Figure, agent_title, demos_title, draw, make_figures
from pidm_nav.experiments.results import (
    Cell,
    agent_rank,
    make_curves,
    read_manifest,
    read_results,
    write_json,
)
from pidm_nav.experiments.tables import (
    Table,
    dataset_table,
    paper_side,
    ratio_table,
    score_table,
    welch_table,
)
from pidm_nav.tasks import TASKS

Side = tuple[str, str]  # agent, demos_from
HEADLINE = 0.90
MAIN_TEXT = {
    "human": "The paper's main figure and Table 1.",
    "human-like": "As the paper's Table 1, with a scripted player in place of its human one.",
    "astar": "The paper shows this for Multiroom (Appendix D).",
}


@dataclass(frozen=True)
class Headline:
    """One number to remember, and the paper's."""

    value: str
    text: str
    paper: str


@dataclass(frozen=True)
class Section:
    """A part of the report: figures and tables under one heading."""

    title: str
    text: str
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: list[Table] = field(default_factory=list)  # shown on demand


@dataclass(frozen=True)
class Report:
    """All there is to say about some folders of results."""

    headlines: list[Headline]
    sections: list[Section]
    facts: list[tuple[str, str]]
    failed: Mapping[Cell, Mapping[str, Any]]


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write `index.html`, `report.md`, `summary.json`, `figures/` and `tables/`; returns the page's path."""
    from pidm_nav.experiments.page import render_page

    report, summary = make_report(folders)
    try:
        for name in ("figures", "tables"):
            (out / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot write to '{out}' ({error.strerror}): choose another --out") from None
    for section in report.sections:
        for figure in section.figures:
            draw(figure, out / "figures")
        for table in section.tables + section.folded:
            _write(out / "tables" / f"{table.name}.csv", table.csv())
            _write(out / "tables" / f"{table.name}.md", table.markdown())
    _write(out / "report.md", markdown(report))
    write_json(out / "summary.json", summary)
    _write(out / "index.html", render_page(report))
    return out / "index.html"


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def make_report(folders: Sequence[Path]) -> tuple[Report, dict[str, Any]]:
    """The report, and the scores of every job as one JSON-plain summary."""
    curves: list[Curve] = []
    manifests: dict[str, dict[str, Any]] = {}
    failed: dict[Cell, dict[str, Any]] = {}
    summary: dict[str, Any] = {}
    seconds = 0.0
    for folder in folders:
        manifest = read_manifest(folder)
        done, errors = read_results(folder)
        label = str(manifest["demos_from"])
        if label in manifests:
            raise ValueError(
                f"'{folder}' is a second folder of {label} demonstrations: give one of them, or sweep with --label"
            )
        if not done:
            raise ValueError(f"'{folder}' holds no finished job: let the sweep run first")
        manifests[label] = manifest
        failed |= errors
        curves += make_curves(done, label)
        seconds += sum(float(content.get("seconds", 0)) for content in done.values())
        summary[label] = {"manifest": manifest, "jobs": [_brief(done[cell]) for cell in sorted(done)]}
    sections, headlines = _sections(curves, list(manifests.values()))
    return Report(headlines, sections, _facts(curves, manifests, summary, seconds), failed), summary


def _brief(content: Mapping[str, Any]) -> dict[str, Any]:
    """A job's scores without its single rollouts."""
    kept = {key: content[key] for key in ("task", "agent", "demos", "seed")}
    checkpoints = [{key: c[key] for key in c if key != "goals"} for c in content["checkpoints"]]
    return {**kept, "code": content.get("code"), "seconds": content.get("seconds"), "checkpoints": checkpoints}


def _sections(curves: Sequence[Curve], manifests: Sequence[Mapping[str, Any]]) -> tuple[list[Section], list[Headline]]:
    labels = [str(manifest["demos_from"]) for manifest in manifests]
    figures = {figure.name: figure for figure in make_figures(curves)}
    headlines: list[Headline] = []
    sections: list[Section] = []

    def ratios(agent: Side, baseline: Side, checkpoint: Checkpoint = "best") -> list[Table]:
        made = ratio_table(curves, agent, baseline, checkpoint)
        if made and checkpoint == "best":
            headlines.append(_headline(made[1], agent, baseline))
        return [made[0]] if made else []

    def add(title: str, text: str, figure: str, tables: list[Table], folded: Sequence[Table | None] = ()) -> None:
        shown = [figures[figure]] if figure in figures else []
        if shown or tables:
            sections.append(Section(title, text, shown, tables, [table for table in folded if table]))

    for label in labels:
        words = f"{demos_title(label)} demonstrations"
        pidm, bc, retrieval = ("pidm", label), ("bc", label), ("retrieval-bc", label)
        add(
            f"PIDM against BC on {words}",
            "How many demonstrations does each method need? " + MAIN_TEXT.get(label, ""),
            f"efficiency-{label}",
            ratios(pidm, bc),
            [welch_table(curves, label, "pidm", "bc")],
        )
        add(
            f"Against retrieval BC on {words}",
            "Retrieval BC repeats the action of the nearest demonstrated state: the paper's Appendix E.",
            f"retrieval-{label}",
            ratios(pidm, retrieval),
            [welch_table(curves, label, "pidm", "retrieval-bc")],
        )
    for label in labels:
        if paper.ASTAR in labels and label != paper.ASTAR:
            add(
                f"A* against {demos_title(label)} demonstrations",
                "The same agent, taught by a deterministic planner: the paper's Appendix D.",
                "demonstrations",
                ratios(("pidm", paper.ASTAR), ("pidm", label)),
            )
    for label in labels:
        add(
            f"Best against last checkpoint on {demos_title(label)} demonstrations",
            "Does choosing the best checkpoint decide the result? The paper's Appendix C.3.",
            f"best-last-{label}",
            ratios(("pidm", label), ("bc", label), "last"),
        )
    scores = [score_table(curves, label, which) for label in labels for which in ("best", "last")]
    sections.append(Section("All scores", "Every cell of the sweep.", [], [], scores))
    sections.append(Section("The demonstrations", "What the agents learned from.", [], [dataset_table(manifests)]))
    return sections, headlines


def _headline(ratios: Sequence[EfficiencyRatio], agent: Side, baseline: Side) -> Headline:
    """The average eta(90%) in words."""
    average = next(r for r in ratios if r.task == "average" and r.level == HEADLINE)
    printed = paper.TABLES.get((paper_side(agent), paper_side(baseline)))
    value = "?" if average.bound == "?" else f"{average}×"
    if agent[1] == baseline[1]:
        who = f"demonstrations for {agent_title(baseline[0])} as for {agent_title(agent[0])}"
        other = f"{demos_title(agent[1])} demonstrations"
    else:
        who = f"{demos_title(baseline[1])} as {demos_title(agent[1])} demonstrations"
        other = agent_title(agent[0])
    text = f"as many {who} to reach 90% ({other})"
    return Headline(value, text, f"paper: {printed.average[HEADLINE]:.3g}×" if printed else "not in the paper")


def _facts(
    curves: Sequence[Curve],
    manifests: Mapping[str, Mapping[str, Any]],
    summary: Mapping[str, Any],
    seconds: float,
) -> list[tuple[str, str]]:
    """How the results were made."""
    first = next(iter(manifests.values()))
    jobs = sum(len(part["jobs"]) for part in summary.values())
    seeds = sorted({int(np.isfinite(c.scores).any(axis=2).sum(axis=1).max()) for c in curves})
    sizes = sorted({size for curve in curves for size in curve.sizes})
    presets = dict.fromkeys(str(manifest["preset"]) for manifest in manifests.values())
    steps = sorted({config["steps"] for m in manifests.values() for config in m["training"].values()})
    agents = sorted({curve.agent for curve in curves}, key=agent_rank)
    checkpoints = max(curve.scores.shape[2] for curve in curves)
    states = len({job["code"] for part in summary.values() for job in part["jobs"]})
    versions = f"pidm-nav {first['version']}, torch {first['torch']}"
    if states > 1:
        versions += f"; the jobs were run with {states} different states of the code"
    return [
        ("Jobs", f"{jobs}, {seconds / 3600:.1f} core hours"),
        ("Tasks", ", ".join(TASKS[task].title for task in TASKS if any(c.task == task for c in curves))),
        ("Agents", ", ".join(agent_title(agent) for agent in agents)),
        ("Demonstrations", ", ".join(demos_title(label) for label in manifests)),
        ("Numbers of demonstrations", ", ".join(map(str, sizes))),
        ("Seeds", " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))),
        ("Training", f"preset {', '.join(presets)}, {', '.join(f'{s:,}' for s in steps)} gradient steps"),
        ("Evaluation", f"{first['evaluation']['episodes']} rollouts at each of up to {checkpoints} checkpoints"),
        ("Versions", versions),
    ]


def markdown(report: Report) -> str:
    """The whole report as one Markdown text."""
    parts = ["# Results\n"]
    parts += [f"- **{item.value}** {item.text} ({item.paper})" for item in report.headlines]
    for section in report.sections:
        parts.append(f"\n## {section.title}\n\n{section.text}\n")
        parts += [f"![{f.title}](figures/{f.name}.png)\n\n{f.caption}\n" for f in section.figures]
        parts += [table.markdown() for table in section.tables + section.folded]
    parts.append("\n## How it was made\n")
    parts += [f"- {name}: {value}" for name, value in report.facts]
    if report.failed:
        parts.append(f"\n{len(report.failed)} jobs failed:\n")
        parts += [f"- {cell}: {content['error']}" for cell, content in report.failed.items()]
    return "\n".join(parts) + "\n"
