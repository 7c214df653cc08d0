"""The paper's figures: what they show, as plain data, and how they are drawn for print and for the report's page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pidm_nav import plots
from pidm_nav.experiments.curves import Curve, all_sizes, score_name, score_text
from pidm_nav.experiments.efficiency import demos_needed, task_maximum
from pidm_nav.experiments.results import in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LEVEL = 0.90
INK = "#010203"  # stands for the page's text color in its figures
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}
PAGE_STYLE: Any = {
    **STYLE,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "grid.color": INK,
}


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of a panel."""

    label: str
    color: str
    curve: Curve
    needed: float = np.nan  # demonstrations to reach 90% of the task's maximum; nan to show none
    style: str = "-"  # or "--"
    marker: str = "o"

    def describe(self) -> str:
        """Return the numbers behind the line, as the page shows them when a reader points at it."""
        lines = []
        for size, mean, std in zip(self.curve.sizes, self.curve.mean, self.curve.std, strict=True):
            if np.isfinite(mean):
                lines.append(f"{self.label}, {size} demonstrations: {score_text(mean, std)}")
        if np.isfinite(self.needed):
            lines.append(f"{self.label} reaches {LEVEL:.0%} of the task's maximum with {self.needed:g} demonstrations")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class CurveFigure:
    """Panels, one for each task, two in a row so that they can be read on a phone."""

    name: str  # the stem of its files
    caption: str
    lines: Sequence[Line]
    score: str = ""  # what the scores are; by default what the curves' values suggest

    @property
    def panels(self) -> dict[str, list[Line]]:
        """The lines of each task."""
        tasks = in_order(line.curve.task for line in self.lines)
        return {task: [line for line in self.lines if line.curve.task == task] for task in tasks}

    @property
    def legend(self) -> dict[str, Line]:
        """One line for each label."""
        return {line.label: line for line in self.lines}


class Gain(NamedTuple):
    """A mean difference from BC with its interval."""

    name: str
    color: str
    value: float
    low: float
    high: float


def compare_curves(curves: Sequence[Curve], peers: Sequence[Curve], by_demonstrator: bool = False) -> list[Line]:
    """Make a line per curve, labeled and colored by agent or by demonstrator; the peers decide a task's maximum."""
    lines = []
    styles = plots.agent_styles([curve.agent for curve in curves])
    for curve in curves:
        title, color, marker = styles[curve.agent]
        if by_demonstrator:
            title += f", {plots.demonstrator_title(curve.demos_from)}"
            color = plots.demonstrator_color(curve.demos_from)
        of_task = [peer for peer in peers if peer.task == curve.task]
        level = LEVEL * task_maximum(of_task) if curve.is_share else np.nan
        needed = float(demos_needed(curve.sizes, curve.mean, level))
        lines.append(Line(title, color, curve, needed, marker=marker))
    return lines


def compare_checkpoints(curves: Sequence[Curve]) -> list[Line]:
    """Make two lines per curve: its best checkpoints and the end of training."""
    lines = []
    styles = plots.agent_styles([curve.agent for curve in curves])
    for curve in curves:
        title, color, marker = styles[curve.agent]
        lines.append(Line(f"{title}, best", color, curve, marker=marker))
        lines.append(Line(f"{title}, last", color, curve.last(), style="--", marker=marker))
    return lines


def write_figure(figure: CurveFigure, folder: Path) -> None:
    """Write a figure as PNG and PDF."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        count = len(figure.panels)
        columns = min(count, 2)
        rows = -(-count // columns)
        size = (4.8, 3.4) if count == 1 else (6.6, 2.4 * rows + 0.3)
        canvas = Figure(figsize=size, layout="constrained", dpi=200)
        axes = canvas.subplots(rows, columns, squeeze=False)
        for ax, (task, lines) in zip(axes.flat, figure.panels.items(), strict=False):
            _draw_panel(ax, task, lines)
        for spare in axes.flat[count:]:
            spare.set_visible(False)
        for first in axes[:, 0]:
            first.set_ylabel(figure.score or score_name(line.curve for line in figure.lines))
        entries: list[Line2D] = []
        for label, line in figure.legend.items():
            look: Any = {"linestyle": line.style, "linewidth": 1.5, "marker": line.marker, "markersize": 3}
            entries += plots.legend_entries({label: line.color}, **look)
        if any(np.isfinite(line.needed) for line in figure.lines):
            entries += plots.legend_entries({f"{LEVEL:.0%} of the maximum": "0.4"}, linestyle=":", linewidth=1.5)
        plots.outside_legend(canvas, entries)
        for kind in ("png", "pdf"):
            plots.save_figure(canvas, folder / f"{figure.name}.{kind}")


def plot_gains(panels: Mapping[str, Sequence[Gain]], label: str) -> Figure:
    """Draw gains with their intervals, a row per name, from the largest gain of the first panel down."""
    order = [gain.name for gain in sorted(next(iter(panels.values())), key=lambda gain: -gain.value)]
    figure, axes = plots.panels(len(panels), width=3.3, height=0.24 * len(order) + 0.75)
    ends = [end for gains in panels.values() for gain in gains for end in (gain.low, gain.high)]
    for index, (ax, (title, gains)) in enumerate(zip(axes, panels.items(), strict=True)):
        for name, color, value, low, high in gains:
            ax.plot([low, value, high], [order.index(name)] * 3, "-o", color=color, linewidth=2, markevery=[1])
        plots.tidy(ax)
        ax.axvline(0, color="0.3", linewidth=1)
        ax.set_yticks(range(len(order)), order if index % 2 == 0 else [])
        ax.set(xlim=(min(ends) - 0.02, max(ends) + 0.02), ylim=(len(order) - 0.5, -0.5))
        ax.set_title(title, fontsize=10)
        if index >= len(panels) - 2:
            ax.set_xlabel(label)
    return figure


def draw_svg(task: str, lines: Sequence[Line], name: str) -> str:
    """Draw a panel as an SVG element for the page, in the page's colors and font; `name` is a prefix for its ids."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(PAGE_STYLE):
        canvas = Figure(figsize=(3.4, 2.5), layout="constrained")
        ax = canvas.subplots()
        _draw_panel(ax, task, lines)
        ax.set_ylabel(score_name(line.curve for line in lines))
        canvas.patch.set_visible(False)
        ax.patch.set_visible(False)
        for artist in canvas.findobj():
            artist.set_clip_on(False)
        file = io.BytesIO()
        plots.write(canvas, file, "svg")
    text = file.getvalue().decode().partition("<svg")[2]
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", f"<svg{text}", flags=re.S)
    text = re.sub(r' (?:xmlns(?::\w+)?|version)="[^"]*"|font-family: [^;"]*;? ?', "", text)
    text = re.sub(r'(id="|href="#)', rf"\1{name}-", text)
    text = text.replace(INK, "currentColor")
    text = re.sub(r"(?<=[: ])#([0-9a-f]{6})", r"var(--c\1, #\1)", text)
    for index, line in enumerate(lines):  # what the page shows when a reader points at a line
        mark = f'id="{name}-line-{index}">'
        text = text.replace(mark, f"{mark}<title>{escape(line.describe())}</title>")
    measure = score_name(line.curve for line in lines).capitalize()
    label = escape(f"{measure} on {plots.task_title(task)} against the number of demonstrations")
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{label}"', text)


def _draw_panel(ax: Axes, task: str, lines: Sequence[Line]) -> None:
    """Draw curves over a logarithmic axis: most happens below 10 demonstrations."""
    for index, line in enumerate(lines):
        mean, std = line.curve.mean, np.nan_to_num(line.curve.std)
        look: Any = {"marker": line.marker, "markersize": 3, "color": line.color, "gid": f"line-{index}"}
        ax.plot(line.curve.sizes, mean, line.style, **look)
        if line.style == "-":
            lowest, highest = (0, 1) if line.curve.is_share else (-np.inf, np.inf)
            low, high = np.clip([mean - std, mean + std], lowest, highest)
            ax.fill_between(line.curve.sizes, low, high, color=line.color, alpha=0.15, linewidth=0)
        if np.isfinite(line.needed):
            # lines at the same size take turns with their dots, so that none hides another
            ax.axvline(line.needed, linestyle=(1.8 * index, (1.2, 4.2)), color=line.color, linewidth=1.4)
    ax.set_xscale("log")
    plots.set_ticks(ax.xaxis, visible_ticks(all_sizes(line.curve for line in lines)))
    if all(line.curve.is_share for line in lines):
        ax.set_ylim(0, 1.03)
    ax.grid(axis="y", alpha=0.25, linewidth=0.6)
    ax.set_title(plots.task_title(task), fontsize=10)
    ax.set_xlabel("number of demonstrations")


def visible_ticks(sizes: Sequence[int]) -> list[int]:
    """Return the sizes whose numbers do not touch each other on a logarithmic axis; the last is always shown."""
    span = max(np.log(sizes[-1] / sizes[0]), 1e-9)
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if np.log(kept[0] / size) / span > 0.07:
            kept.insert(0, size)
    return kept
