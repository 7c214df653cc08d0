"""Figures for the page: small SVG text that takes the page's colours, so it is light, dark and sharp."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from pidm_nav.experiments.curves import Floats
from pidm_nav.experiments.figures import LEVEL, Figure, Line, Panel, visible_ticks

WIDTH, HEIGHT = 320, 232
LEFT, RIGHT, TOP, BOTTOM = 34, 12, 28, 36  # margins around the plot


def draw_figure(figure: Figure) -> str:
    """A figure's panels side by side, or below one another where the screen is narrow, and its legend."""
    panels = "".join(f"<div class='panel'>{draw_panel(panel)}</div>" for panel in figure.panels)
    lines = {line.label: line for panel in figure.panels for line in panel.lines}
    legend = "".join(
        f"<span class='key {line.tone}{' dashed' if line.dashed else ''}'><i></i>{escape(label)}</span>"
        for label, line in lines.items()
    )
    return (
        f"<figure id='{escape(figure.name)}'><div class='legend'>{legend}</div>"
        f"<div class='panels'>{panels}</div>"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def draw_panel(panel: Panel) -> str:
    """One task as an SVG element; points say their numbers when pointed at."""
    sizes = sorted({size for line in panel.lines for size in line.sizes})
    place = _Scale(sizes)
    parts = [f"<text class='title' x='{LEFT}' y='14'>{escape(panel.title)}</text>"]
    for ratio in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = place.y(ratio)
        parts.append(f"<line class='grid' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y}' y2='{y}'/>")
        if ratio in (0.0, 0.5, 1.0):
            parts.append(f"<text class='tick' x='{LEFT - 6}' y='{y + 3.5}' text-anchor='end'>{ratio:g}</text>")
    for size in visible_ticks(sizes):
        x = place.x(size)
        parts.append(f"<text class='tick' x='{x}' y='{HEIGHT - BOTTOM + 15}' text-anchor='middle'>{size}</text>")
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f"<text class='tick' x='{middle}' y='{HEIGHT - 5}' text-anchor='middle'>demonstrations</text>")
    parts += [_band(line, place) for line in panel.lines if not line.dashed]
    parts += [_needed(line, i, place) for i, line in enumerate(panel.lines) if np.isfinite(line.needed)]
    parts += [_curve(line, place) for line in panel.lines]
    label = f"Goal ratio on {panel.title} against the number of demonstrations"
    return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(label)}'>{''.join(parts)}</svg>"


class _Scale:
    """Where a number of demonstrations (logarithmic) and a goal ratio stand, in SVG units."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.first = sizes[0]
        self.span = float(np.log(sizes[-1] / sizes[0])) or 1.0

    def x(self, size: float) -> float:
        inner = WIDTH - LEFT - RIGHT - 16
        return round(LEFT + 8 + inner * float(np.log(size / self.first)) / self.span, 1)

    def y(self, ratio: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - ratio), 1)


def _points(line: Line, values: Floats, place: _Scale) -> list[str]:
    known = [(size, value) for size, value in zip(line.sizes, values, strict=True) if np.isfinite(value)]
    return [f"{place.x(size)},{place.y(value)}" for size, value in known]


def _band(line: Line, place: _Scale) -> str:
    std = np.nan_to_num(line.std)
    high = _points(line, np.clip(line.mean + std, 0, 1), place)
    low = _points(line, np.clip(line.mean - std, 0, 1), place)
    return f"<polygon class='band {line.tone}' points='{' '.join(high + low[::-1])}'/>"


def _needed(line: Line, index: int, place: _Scale) -> str:
    """A dotted line; those at the same size take turns with their dots, so that none hides another."""
    x = place.x(line.needed)
    title = f"{line.label} reaches {LEVEL:.0%} of the task's maximum with {line.needed:g} demonstrations"
    return (
        f"<line class='needed {line.tone}' x1='{x}' x2='{x}' y1='{TOP}' y2='{HEIGHT - BOTTOM}' "
        f"stroke-dashoffset='{2.5 * index}'>"
        f"<title>{escape(title)}</title></line>"
    )


def _curve(line: Line, place: _Scale) -> str:
    dashed = " dashed" if line.dashed else ""
    parts = [f"<polyline class='line {line.tone}{dashed}' points='{' '.join(_points(line, line.mean, place))}'/>"]
    for size, mean, std in zip(line.sizes, line.mean, line.std, strict=True):
        if np.isfinite(mean):
            spread = f" ± {std:.2f}" if np.isfinite(std) else ""
            title = escape(f"{line.label}, {size} demonstrations: {mean:.2f}{spread}")
            parts.append(
                f"<circle class='dot {line.tone}' cx='{place.x(size)}' cy='{place.y(mean)}' r='3'>"
                f"<title>{title}</title></circle>"
            )
    return "".join(parts)
