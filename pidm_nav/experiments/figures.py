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
from pidm_nav.experiments.results import task_order
from pidm_nav.plots import (
    agent_color,
    agent_title,
    demonstrator_color,
    demonstrator_title,
    outside_legend,
    save_figure,
    task_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.90
INK = "#010203"  # stands for the page's text color in its figures
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}
PAGE_STYLE: Any = {
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
            lines.append(f"{self.label} reaches {LEVEL:.0%} of the task's maximum with {self.needed:g} demonstrations")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Panel:
    """One task's part of a figure."""

    title: str
    lines: tuple[Line, ...]

    @property
    def measure(self) -> str:
        """What its vertical axis shows."""
        return "goal ratio" if all(line.curve.is_share for line in self.lines) else "return"


@dataclass(frozen=True, eq=False)
class CurveFigure:
    """One row of panels."""

    name: str  # the stem of its files
    caption: str
    panels: tuple[Panel, ...]

    @property
    def sizes(self) -> set[int]:
        """All numbers of demonstrations on its axes."""
        return {size for panel in self.panels for line in panel.lines for size in line.curve.sizes}

    @property
    def legend(self) -> dict[str, Line]:
        """One line for each label."""
        return {line.label: line for panel in self.panels for line in panel.lines}


def agent_look(curve: Curve) -> tuple[str, str]:
    """Return the label and the color of a curve where figures compare agents."""
    return agent_title(curve.agent), agent_color(curve.agent)


def demonstrator_look(curve: Curve) -> tuple[str, str]:
    """Return the label and the color of a curve where figures compare demonstrations."""
    return f"{agent_title(curve.agent)}, {demonstrator_title(curve.demos_from)}", demonstrator_color(curve.demos_from)


def compare_curves(
    curves: Sequence[Curve], peers: Sequence[Curve], look: Callable[[Curve], tuple[str, str]] = agent_look
) -> tuple[Panel, ...]:
    """Make a panel per task; the peers decide the task's maximum, and `look` gives a curve's label and color."""
    panels = []
    for task in task_order(curve.task for curve in curves):
        own = [curve for curve in curves if curve.task == task]
        is_share = all(curve.is_share for curve in own)
        level = LEVEL * task_maximum([curve for curve in peers if curve.task == task]) if is_share else np.nan
        lines = (Line(*look(c), c, float(demos_needed(c.sizes, mean_curve(c), level))) for c in own)
        panels.append(Panel(task_title(task), tuple(lines)))
    return tuple(panels)


def compare_checkpoints(curves: Sequence[Curve]) -> tuple[Panel, ...]:
    """Make a panel per task with every curve at its best checkpoint and at the end of training."""
    panels = []
    for task in task_order(curve.task for curve in curves):
        lines: list[Line] = []
        for curve in (curve for curve in curves if curve.task == task):
            title, color = agent_look(curve)
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
        axes = canvas.subplots(1, count, squeeze=False)[0]
        for ax, panel in zip(axes, figure.panels, strict=True):
            _draw_panel(ax, panel)
        axes[0].set_ylabel(figure.panels[0].measure)
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
        for artist in canvas.findobj():
            artist.set_clip_on(False)
        file = io.StringIO()
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue().partition("<svg")[2]
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", f"<svg{text}", flags=re.S)
    text = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"|font-family: [^;"]*;? ?', "", text)
    text = re.sub(r'(id="|href="#)', rf"\1{name}-", text)
    text = text.replace(INK, "currentColor")
    text = re.sub(r"(?<=[: ])#([0-9a-f]{6})", r"var(--c\1, #\1)", text)
    for index, line in enumerate(panel.lines):  # what the page shows when a reader points at a line
        mark = f'id="{name}-line-{index}">'
        text = text.replace(mark, f"{mark}<title>{escape(line.describe())}</title>")
    label = escape(f"{panel.measure.capitalize()} on {panel.title} against the number of demonstrations")
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{label}"', text)


def _draw_panel(ax: Axes, panel: Panel) -> None:
    """Draw curves over a logarithmic axis: most happens below 10 demonstrations."""
    sizes = sorted({size for line in panel.lines for size in line.curve.sizes})
    for index, line in enumerate(panel.lines):
        mean, std = mean_curve(line.curve), np.nan_to_num(std_curve(line.curve))
        style = "--" if line.dashed else "-"
        ax.plot(line.curve.sizes, mean, style, marker="o", markersize=3, color=line.color, gid=f"line-{index}")
        if not line.dashed:
            low, high = np.clip([mean - std, mean + std], *((0, 1) if line.curve.is_share else (None, None)))
            ax.fill_between(line.curve.sizes, low, high, color=line.color, alpha=0.15, linewidth=0)
        if np.isfinite(line.needed):
            # lines at the same size take turns with their dots, so that none hides another
            ax.axvline(line.needed, linestyle=(1.8 * index, (1.2, 4.2)), color=line.color, linewidth=1.4)
    ticks = visible_ticks(sizes)
    ax.set_xscale("log")
    ax.set_xticks(ticks, labels=[str(size) for size in ticks])
    ax.minorticks_off()
    if panel.measure == "goal ratio":
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
