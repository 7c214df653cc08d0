"""The paper's figures: what they show, as plain data, and how matplotlib draws them for print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pidm_nav.demos.formats.npz import atomic_file
from pidm_nav.experiments.curves import Checkpoint, Curve, Floats, mean_curve, std_curve
from pidm_nav.experiments.efficiency import demos_needed, task_maximum
from pidm_nav.tasks import TASKS

AGENT_TITLES = {"bc": "BC", "pidm": "PIDM", "retrieval-bc": "Retrieval BC"}
DEMO_TITLES = {"human": "human", "human-like": "human-like", "astar": "A*"}
# tones by what a line stands for; the page has a lighter set of the same names for dark screens
TONES = {"bc": "#d9480f", "pidm": "#1c6dd0", "retrieval-bc": "#0b8a5f", "other": "#8540c9", "third": "#b3860b"}
LEVEL = 0.90


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a panel; arrays are (sizes,)."""

    label: str
    tone: str  # a key of TONES
    sizes: tuple[int, ...]
    mean: Floats
    std: Floats  # nan below two seeds
    needed: float  # demonstrations to reach 90% of the task's maximum, nan if it never does
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Panel:
    """One task's part of a figure."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, eq=False)
class Figure:
    """One row of panels."""

    name: str  # of its files
    title: str
    caption: str
    panels: tuple[Panel, ...]


def agent_title(agent: str) -> str:
    """As in tables and figures."""
    return AGENT_TITLES.get(agent, agent)


def demos_title(demos_from: str) -> str:
    """As in tables and figures."""
    return DEMO_TITLES.get(demos_from, demos_from)


def make_figures(curves: Sequence[Curve]) -> list[Figure]:
    """Every figure of the paper that these curves suffice for."""
    figures = []
    labels = list(dict.fromkeys(curve.demos_from for curve in curves))
    seeds = max((curve.scores.shape[1] for curve in curves), default=0)
    bands = f"Lines and shading are the mean and standard deviation over {seeds} seeds"
    dotted = "dotted lines show where a curve reaches 90% of the task's maximum"
    for label in labels:
        own = [curve for curve in curves if curve.demos_from == label]
        agents = {curve.agent for curve in own}
        words = f"{demos_title(label)} demonstrations"
        if agents & {"bc", "pidm"}:
            figures.append(
                Figure(
                    f"efficiency-{label}",
                    f"Goal ratio against number of {words}",
                    f"Best checkpoint. {bands}; {dotted}.",
                    _panels([c for c in own if c.agent in ("bc", "pidm")], own),
                )
            )
        if "retrieval-bc" in agents and len(agents) > 1:
            figures.append(
                Figure(
                    f"retrieval-{label}",
                    f"Against the retrieval baseline, {words}",
                    f"Does retrieval alone explain PIDM's gain? {bands}; {dotted}.",
                    _panels(own, own),
                )
            )
        if any(curve.scores.shape[2] > 1 for curve in own):
            figures.append(
                Figure(
                    f"best-last-{label}",
                    f"Best against last checkpoint, {words}",
                    "Solid: for each point the checkpoint with the highest mean. Dashed: the end of training.",
                    _best_last_panels([c for c in own if c.scores.shape[2] > 1]),
                )
            )
    pidm = [curve for curve in curves if curve.agent == "pidm"]
    if len({curve.demos_from for curve in pidm}) > 1:
        names = " and ".join(demos_title(label) for label in dict.fromkeys(c.demos_from for c in pidm))
        figures.append(
            Figure(
                "demonstrations",
                f"PIDM on {names} demonstrations",
                f"Fewer ways to act make the future easier to predict. {bands}; {dotted}.",
                _panels(pidm, curves, by_demos=True),
            )
        )
    return figures


def _panels(curves: Sequence[Curve], peers: Sequence[Curve], by_demos: bool = False) -> tuple[Panel, ...]:
    """A panel a task; the peers decide the task's maximum."""
    panels = []
    labels = list(dict.fromkeys(curve.demos_from for curve in curves))
    for task in TASKS:
        own = [curve for curve in curves if curve.task == task]
        if own:
            top = task_maximum([curve for curve in peers if curve.task == task])
            lines = []
            for curve in own:
                tone, label = _tone(curve.agent), agent_title(curve.agent)
                if by_demos:
                    tone = ("pidm", "other", "third")[min(2, labels.index(curve.demos_from))]
                    label = f"{label}, {demos_title(curve.demos_from)}"
                lines.append(_line(curve, label, tone, top))
            panels.append(Panel(TASKS[task].title, tuple(lines)))
    return tuple(panels)


def _best_last_panels(curves: Sequence[Curve]) -> tuple[Panel, ...]:
    panels = []
    for task in TASKS:
        lines = []
        for curve in (curve for curve in curves if curve.task == task):
            for checkpoint in ("best", "last"):
                label = f"{agent_title(curve.agent)}, {checkpoint}"
                lines.append(_line(curve, label, _tone(curve.agent), np.nan, checkpoint))
        if lines:
            panels.append(Panel(TASKS[task].title, tuple(lines)))
    return tuple(panels)


def _tone(agent: str) -> str:
    return agent if agent in TONES else "other"


def _line(curve: Curve, label: str, tone: str, top: float, checkpoint: Checkpoint = "best") -> Line:
    mean = mean_curve(curve, checkpoint)
    needed = float(demos_needed(curve.sizes, mean, LEVEL * top)) if np.isfinite(top) else np.nan
    std = std_curve(curve, checkpoint)
    return Line(label, tone, curve.sizes, mean, std, needed, dashed=checkpoint == "last")


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as PNG and PDF."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    style: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42}
    with matplotlib.rc_context(style):
        count = len(figure.panels)
        canvas = Canvas(figsize=(2.7 * count + 0.3, 2.7), layout="constrained")
        axes = canvas.subplots(1, count, sharey=True, squeeze=False)[0]
        for ax, panel in zip(axes, figure.panels, strict=True):
            _draw_panel(ax, panel)
        axes[0].set_ylabel("goal ratio")
        known = {line.label: line for panel in figure.panels for line in panel.lines}
        handles, names = axes[0].get_legend_handles_labels()
        for ax in axes[1:]:
            for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
                if name not in names:
                    handles, names = [*handles, handle], [*names, name]
        canvas.legend(handles, names, loc="outside lower center", ncols=min(6, len(known)), frameon=False)
        paths = []
        for kind, settings in (("png", {"dpi": 200}), ("pdf", {"metadata": {"CreationDate": None}})):
            path = folder / f"{figure.name}.{kind}"
            with atomic_file(path) as temporary:
                canvas.savefig(temporary, format=kind, **settings)
            paths.append(path)
    return paths


def _draw_panel(ax: Any, panel: Panel) -> None:
    """Curves over a logarithmic axis: most happens below 10 demonstrations."""
    sizes = sorted({size for line in panel.lines for size in line.sizes})
    for index, line in enumerate(panel.lines):
        color = TONES[line.tone]
        style = "--" if line.dashed else "-"
        ax.plot(line.sizes, line.mean, style, marker="o", markersize=3, color=color, label=line.label)
        if not line.dashed:
            std = np.nan_to_num(line.std)
            low, high = np.clip(line.mean - std, 0, 1), np.clip(line.mean + std, 0, 1)
            ax.fill_between(line.sizes, low, high, color=color, alpha=0.15, linewidth=0)
        if np.isfinite(line.needed):
            # lines at the same size take turns with their dots, so that none hides another
            ax.axvline(line.needed, linestyle=(1.8 * index, (1.2, 4.2)), color=color, linewidth=1.4)
    ax.set_xscale("log")
    ax.set_xticks(visible_ticks(sizes), labels=[str(size) for size in visible_ticks(sizes)])
    ax.minorticks_off()
    ax.set_ylim(0, 1.03)
    ax.grid(axis="y", alpha=0.25, linewidth=0.6)
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlabel("number of demonstrations")


def visible_ticks(sizes: Sequence[int]) -> list[int]:
    """The sizes that can carry a number on a logarithmic axis without touching the next; the last always."""
    span = max(np.log(sizes[-1] / sizes[0]), 1e-9)
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if np.log(kept[0] / size) / span > 0.07:
            kept.insert(0, size)
    return kept
