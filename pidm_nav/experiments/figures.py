"""The paper's figures: what they show, as plain data, and how they are drawn for print and for the report's page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pidm_nav.experiments.curves import Curve, mean_curve, std_curve
from pidm_nav.experiments.efficiency import demos_needed, task_maximum
from pidm_nav.experiments.results import task_order, task_title
from pidm_nav.plots import agent_color, agent_title, demonstrator_colors, demonstrator_title, outside_legend, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.90
INK = "#010203"  # stands for the page's text color in its figures
STYLE: dict[str, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}
PAGE_STYLE: dict[str, Any] = {
    **STYLE,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "grid.color": INK,
    "svg.hashsalt": "pidm-nav",
}


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a panel."""

    label: str
    color: str
    curve: Curve
    needed: float = np.nan  # demonstrations to reach 90% of the task's maximum; nan to show none
    dashed: bool = False

    def describe(self) -> str:
        """Return the numbers behind the line, as the page shows them when a reader points at it."""
        lines = []
        for size, mean, std in zip(self.curve.sizes, mean_curve(self.curve), std_curve(self.curve), strict=True):
            if np.isfinite(mean):
                spread = f" ± {std:.2f}" if np.isfinite(std) else ""
                lines.append(f"{self.label}, {size} demonstrations: {mean:.2f}{spread}")
        if np.isfinite(self.needed):
            lines.append(f"{self.label} reaches {LEVEL:.0%} of the maximum with {self.needed:g} demonstrations")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Panel:
    """One task's part of a figure."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, eq=False)
class CurveFigure:
    """One row of panels."""

    name: str  # the stem of its files
    title: str
    caption: str
    panels: tuple[Panel, ...]

    @property
    def legend(self) -> dict[str, Line]:
        """One line for each label."""
        return {line.label: line for panel in self.panels for line in panel.lines}


def make_figures(curves: Sequence[Curve]) -> list[CurveFigure]:
    """Make every figure of the paper that these curves suffice for; one number of demonstrations makes no curve."""
    figures: list[CurveFigure] = []

    def add(name: str, title: str, caption: str, panels: tuple[Panel, ...]) -> None:
        if len({size for panel in panels for line in panel.lines for size in line.curve.sizes}) > 1:
            figures.append(CurveFigure(name, title, caption, panels))

    seeds = max((curve.scores.shape[1] for curve in curves), default=0)
    bands = f"Lines and shading are the mean and standard deviation over {seeds} seeds"
    dotted = "dotted lines show where a curve reaches 90% of the task's maximum"
    for label in dict.fromkeys(curve.demos_from for curve in curves):
        own = [curve for curve in curves if curve.demos_from == label]
        agents, words = {curve.agent for curve in own}, f"{demonstrator_title(label)} demonstrations"
        add(
            f"efficiency-{label}",
            f"Goal ratio against number of {words}",
            f"Best checkpoint. {bands}; {dotted}.",
            _panels([c for c in own if c.agent in ("bc", "pidm")], own),
        )
        others = agents - {"bc", "pidm"}
        if others == {"retrieval-bc"}:
            question = f"Does retrieval alone explain PIDM's gain? {bands}; {dotted}."
            add(f"retrieval-{label}", f"Against the retrieval baseline, {words}", question, _panels(own, own))
        elif others:
            add(f"agents-{label}", f"All agents, {words}", f"Best checkpoint. {bands}; {dotted}.", _panels(own, own))
        add(
            f"best-last-{label}",
            f"Best against last checkpoint, {words}",
            "Solid: for each point the checkpoint with the highest mean. Dashed: the end of training.",
            _best_last_panels([c for c in own if c.scores.shape[2] > 1]),
        )
    pidm = [curve for curve in curves if curve.agent == "pidm"]
    labels = list(dict.fromkeys(curve.demos_from for curve in pidm))
    if len(labels) > 1:
        colors = dict(zip(labels, demonstrator_colors(labels), strict=True))
        names = " and ".join(map(demonstrator_title, labels))
        add(
            "demonstrations",
            f"PIDM on {names} demonstrations",
            f"Fewer ways to act make the future easier to predict. {bands}; {dotted}.",
            _panels(
                pidm, curves, lambda c: (f"PIDM, {demonstrator_title(c.demos_from)}", colors[c.demos_from])
            ),
        )
    return figures


def _look(curve: Curve) -> tuple[str, str]:
    return agent_title(curve.agent), agent_color(curve.agent)


def _panels(
    curves: Sequence[Curve], peers: Sequence[Curve], look: Callable[[Curve], tuple[str, str]] = _look
) -> tuple[Panel, ...]:
    """Make a panel per task; the peers decide the task's maximum, and `look` gives a curve's label and color."""
    panels = []
    for task in task_order(curve.task for curve in curves):
        level = LEVEL * task_maximum([curve for curve in peers if curve.task == task])
        own = [curve for curve in curves if curve.task == task]
        lines = (Line(*look(c), c, float(demos_needed(c.sizes, mean_curve(c), level))) for c in own)
        panels.append(Panel(task_title(task), tuple(lines)))
    return tuple(panels)


def _best_last_panels(curves: Sequence[Curve]) -> tuple[Panel, ...]:
    panels = []
    for task in task_order(curve.task for curve in curves):
        lines: list[Line] = []
        for curve in (curve for curve in curves if curve.task == task):
            title, color = _look(curve)
            lines.append(Line(f"{title}, best", color, curve))
            lines.append(Line(f"{title}, last", color, curve.last(), dashed=True))
        panels.append(Panel(task_title(task), tuple(lines)))
    return tuple(panels)


def write_figure(figure: CurveFigure, folder: Path) -> None:
    """Write a figure as PNG and PDF."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with matplotlib.rc_context(STYLE):
        count = len(figure.panels)
        size = (5.4, 3.6) if count == 1 else (2.7 * count + 0.3, 2.7)
        canvas = Figure(figsize=size, layout="constrained", dpi=200)
        axes = canvas.subplots(1, count, sharey=True, squeeze=False)[0]
        for ax, panel in zip(axes, figure.panels, strict=True):
            _draw_panel(ax, panel)
        axes[0].set_ylabel("goal ratio")
        entries = [
            Line2D([], [], color=line.color, linestyle="--" if line.dashed else "-", marker="o", ms=3, label=label)
            for label, line in figure.legend.items()
        ]
        outside_legend(canvas, entries, columns=6)
        for kind in ("png", "pdf"):
            save_figure(canvas, folder / f"{figure.name}.{kind}")


def draw_svg(panel: Panel, name: str) -> str:
    """Draw a panel as an SVG element for the page, in the page's own colors and font.

    Args:
        panel: what to draw.
        name: a prefix for the ids in the element, which must be unique on the page.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(PAGE_STYLE):
        canvas = Figure(figsize=(3.4, 2.5), layout="constrained")
        ax = canvas.subplots()
        _draw_panel(ax, panel)
        canvas.patch.set_visible(False)
        ax.patch.set_visible(False)
        for artist in ax.get_children():
            artist.set_clip_on(False)
        file = io.StringIO()
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"|font-family: [^;"]*;? ?', "", text)
    text = re.sub(r'(id="|href="#)', rf"\1{name}-", text)
    text = text.replace(INK, "currentColor")
    text = re.sub(r"(?<=[: ])#([0-9a-f]{6})", r"var(--c\1, #\1)", text)
    for index, line in enumerate(panel.lines):  # what the page shows when a reader points at a line
        mark = f'id="{name}-line-{index}">'
        text = text.replace(mark, f"{mark}<title>{escape(line.describe())}</title>")
    label = escape(f"Goal ratio on {panel.title} against the number of demonstrations")
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{label}"', text)


def _draw_panel(ax: Axes, panel: Panel) -> None:
    """Draw curves over a logarithmic axis: most happens below 10 demonstrations."""
    sizes = sorted({size for line in panel.lines for size in line.curve.sizes})
    for index, line in enumerate(panel.lines):
        mean, std = mean_curve(line.curve), np.nan_to_num(std_curve(line.curve))
        style = "--" if line.dashed else "-"
        ax.plot(line.curve.sizes, mean, style, marker="o", markersize=3, color=line.color, gid=f"line-{index}")
        if not line.dashed:
            low, high = np.clip(mean - std, 0, 1), np.clip(mean + std, 0, 1)
            ax.fill_between(line.curve.sizes, low, high, color=line.color, alpha=0.15, linewidth=0)
        if np.isfinite(line.needed):
            # lines at the same size take turns with their dots, so that none hides another
            ax.axvline(line.needed, linestyle=(1.8 * index, (1.2, 4.2)), color=line.color, linewidth=1.4)
    ticks = visible_ticks(sizes)
    ax.set_xscale("log")
    ax.set_xticks(ticks, labels=[str(size) for size in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1.03)
    ax.grid(axis="y", alpha=0.25, linewidth=0.6)
    ax.set_title(panel.title, fontsize=10)
    ax.set_xlabel("number of demonstrations")


def visible_ticks(sizes: Sequence[int]) -> list[int]:
    """Return the sizes whose numbers do not touch each other on a logarithmic axis; the last is always shown."""
    span = max(np.log(sizes[-1] / sizes[0]), 1e-9)
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if np.log(kept[0] / size) / span > 0.07:
            kept.insert(0, size)
    return kept
