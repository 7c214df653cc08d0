"""One look of figures: the names and colors of agents and demonstrators, panels, maps and how figures are saved."""

from __future__ import annotations

import io
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pidm_nav.console import printable
from pidm_nav.files import atomic_file
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.render import draw_map
from pidm_nav.world2d.state import POSITION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from pidm_nav.demos.dataset import DemoDataset
    from pidm_nav.rollouts.episode import Episode
    from pidm_nav.world2d.layout import Layout


class AgentStyle(NamedTuple):
    """How tables and figures show an agent."""

    title: str
    color: str
    marker: str = "o"


AGENT_STYLES = {  # of agents, and of the variants of them that sweeps know by name
    "bc": AgentStyle("BC", "#d9480f"),
    "bc-dagger": AgentStyle("BC, DAgger", "#f59f00"),
    "bc-play": AgentStyle("BC, play", "#ffa07a", "s"),
    "chunking": AgentStyle("Chunking BC", "#c2255c"),
    "diffusion": AgentStyle("Diffusion", "#5f3dc4"),
    "corrective-bc": AgentStyle("Corrective BC", "#e8590c", "D"),
    "recurrent-bc": AgentStyle("Recurrent BC", "#862e9c", "s"),
    "pidm": AgentStyle("PIDM", "#1c6dd0"),
    "pidm-no-pull": AgentStyle("PIDM without pull", "#8fbcec", "v"),
    "recurrent-pidm": AgentStyle("Recurrent PIDM", "#364fc7", "s"),
    "delta-pidm": AgentStyle("delta-PIDM", "#0b3d7a", "D"),
    "delta-pidm-play": AgentStyle("delta-PIDM, random play", "#74b0ee", "D"),
    "delta-pidm-states": AgentStyle("delta-PIDM, random play, states alone", "#12b5cb", "^"),
    "retrieval-bc": AgentStyle("Retrieval BC", "#0b8a5f"),
}
SPARE_COLORS: tuple[str, ...] = ("#8540c9", "#b3860b", "#2b8a3e", "#e64980", "#495057")
SPARE_COLORS += ("#0ca678", "#a61e4d", "#7048e8", "#868e96", "#5c940d")
SPARE_MARKERS = ("s", "^", "D", "v")  # by turns, when the colors begin anew
DEMONSTRATOR_TITLES = {"human": "human", "human-like": "human-like", "astar": "A*"}
DEMONSTRATOR_COLORS = {"human": "#0c8599", "human-like": "#9467bd", "astar": "#7f5f1a"}  # no agent has one of these
OUTCOME_COLORS = {"complete": "#0b8a5f", "not complete": "#b3261e"}
OTHER_DEMONSTRATOR_COLORS = ("#2ca02c", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f")


def task_title(name: str) -> str:
    """Return a task's name as tables and figures show it."""
    return TASKS[name].title if name in TASKS else name


def agent_styles(names: Iterable[str]) -> dict[str, AgentStyle]:
    """Return how the agents of a figure are shown: as in `AGENT_STYLES`, or in styles that no other one of them has."""
    styles = {name: AGENT_STYLES[name] for name in names if name in AGENT_STYLES}
    for name in sorted(set(names) - styles.keys()):
        first = zlib.crc32(name.encode()) % len(SPARE_COLORS)  # mostly the same color in every figure
        colors = SPARE_COLORS[first:] + SPARE_COLORS[:first]
        spare = [AgentStyle(name, color, marker) for marker in SPARE_MARKERS for color in colors]
        taken = {style[1:] for style in styles.values()}
        styles[name] = next((style for style in spare if style[1:] not in taken), spare[0])
    return styles


def agent_style(name: str) -> AgentStyle:
    """Return how an agent is shown where there is no other one without a style of its own."""
    return agent_styles([name])[name]


def agent_title(name: str) -> str:
    """Return an agent's name as tables and figures show it."""
    return agent_style(name).title


def agent_color(name: str) -> str:
    """Return an agent's color."""
    return agent_style(name).color


def demonstrator(made_by: str | DemoDataset) -> str:
    """Return who made demonstrations, by any text that names them: human, human-like, astar, or the text itself."""
    text = made_by if isinstance(made_by, str) else str(made_by.source.get("made_by", "unknown"))
    plain = text.lower().replace("_", "-")
    if "human-like" in plain or "humanlike" in plain:
        return "human-like"
    if "astar" in plain or "a*" in plain:
        return "astar"
    return "human" if "human" in plain else text


def demonstrator_title(made_by: str | DemoDataset) -> str:
    """Return a demonstrator's name as tables and figures show it."""
    name = demonstrator(made_by)
    return DEMONSTRATOR_TITLES.get(name, name)


def demonstrator_color(made_by: str | DemoDataset) -> str:
    """Return a demonstrator's color, which is the same in every figure."""
    return demonstrator_colors([made_by])[0]


def demonstrator_colors(made_by: Iterable[str | DemoDataset]) -> list[str]:
    """Return one color per entry: its demonstrator's own, or the next free one if an earlier entry has taken that."""
    colors: list[str] = []
    for name in map(demonstrator, made_by):
        first = zlib.crc32(name.encode()) % len(OTHER_DEMONSTRATOR_COLORS)
        spare = OTHER_DEMONSTRATOR_COLORS[first:] + OTHER_DEMONSTRATOR_COLORS[:first]
        choices = (DEMONSTRATOR_COLORS.get(name, spare[0]), *spare)
        colors.append(next((color for color in choices if color not in colors), choices[0]))
    return colors


def color_by_demonstrator(items: Sequence[Any]) -> dict[str, str]:
    """Return the color of each `demonstrator` that the items of a figure have."""
    names = list(dict.fromkeys(item.demonstrator for item in items))
    return dict(zip(names, demonstrator_colors(names), strict=True))


def panels(count: int, width: float = 4.6, height: float = 4.6, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels, each of a size in inches and so many per row; a notebook shows it."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    figure._repr_png_ = lambda: png(figure)  # type: ignore[attr-defined]  # it is not one of pyplot's
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, axes[:count]


def task_panels(items: Sequence[Any]) -> tuple[Figure, list[tuple[Axes, list[Any]]]]:
    """Make one titled panel for each `task` that the items have, and return each with the items of its task."""
    tasks = list(dict.fromkeys(item.task for item in items))
    figure, axes = panels(len(tasks), width=3.4, height=2.6)
    for ax, task in zip(axes, tasks, strict=True):
        ax.set_title(task_title(task), fontsize=12)
    return figure, [(ax, [item for item in items if item.task == task]) for ax, task in zip(axes, tasks, strict=True)]


def draw_room(ax: Axes, layout: Layout) -> None:
    """Draw a map without a frame; the numbers of its goals stay readable over marks and lines."""
    from matplotlib.patheffects import withStroke

    draw_map(ax, layout)
    for number in ax.texts:
        stroke = withStroke(linewidth=2.5, foreground="white")
        number.set(path_effects=[stroke], fontsize=9, fontweight="bold", zorder=9)
    ax.spines[:].set_visible(False)


def draw_episodes(ax: Axes, episodes: Sequence[Episode], layout: Layout | None) -> None:
    """Draw where episodes of state vectors went on their map or, without one, the return as it grew."""
    from matplotlib.collections import LineCollection

    style: Any = {"linewidths": 0.8, "alpha": float(np.clip(14 / len(episodes), 0.3, 0.9)), "capstyle": "round"}
    if layout is None:
        returns = [np.append(0.0, episode.rewards.cumsum(dtype=np.float64)) for episode in episodes]
        lines = [np.column_stack([np.arange(len(each)), each]) for each in returns]
        ax.add_collection(LineCollection(lines, colors=SPARE_COLORS[0], **style))
        ax.autoscale_view()
        ax.set(xlabel="step", ylabel="return so far")
        tidy(ax)
        return
    draw_room(ax, layout)
    entries = {}
    for (label, color), success in zip(OUTCOME_COLORS.items(), (True, False), strict=True):
        traces = [episode.observations[:, POSITION] for episode in episodes if bool(episode.success) == success]
        if traces:
            ax.add_collection(LineCollection(traces, colors=color, **style))
            x, y = np.array([trace[-1] for trace in traces]).T
            ax.scatter(x, y, s=18, color=color, marker="o" if success else "x", linewidths=1.2, zorder=8)
            entries[f"{label} ({len(traces)})"] = color
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 2, "handlelength": 1.4}
    ax.legend(handles=legend_entries(entries, linewidth=2.5), frameon=False, fontsize=9, **place)


def plot_episodes(episodes: Sequence[Episode], layout: Layout | None, title: str) -> Figure:
    """Draw episodes, as `draw_episodes` does, in a figure of their own."""
    figure, (ax,) = panels(1, width=4.2, height=4.75 if layout else 3.2)
    draw_episodes(ax, episodes, layout)
    ax.set_title(title, fontsize=12)
    return figure


def draw_band(ax: Axes, x: Sequence[float], mean: Any, std: Any, color: str, label: str | None = None) -> None:
    """Draw means (X,) over x, and a band of one standard deviation that stays above zero."""
    low = np.maximum(mean - std, mean / 10)  # a logarithmic axis has no room for zero
    ax.fill_between(x, low, mean + std, color=color, alpha=0.18, linewidth=0)
    ax.plot(x, mean, color=color, marker="o", markersize=4, label=label)


def tidy(ax: Axes) -> None:
    """Give a plot a light grid and remove its upper and right border."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.92")
    ax.set_axisbelow(True)


def set_ticks(axis: Axis, ticks: Sequence[float]) -> None:
    """Number an axis at these ticks alone."""
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def legend_entries(colors: Mapping[str, str], **style: Any) -> list[Line2D]:
    """Return a legend's entries, one line of each color with its label."""
    from matplotlib.lines import Line2D

    style = {"linewidth": 4, **style}
    return [Line2D([], [], color=color, label=name, **style) for name, color in colors.items()]


def outside_legend(figure: Figure, entries: Sequence[Line2D], columns: int = 4) -> None:
    """Put a legend below the panels, with as many columns as fit into the figure's width."""
    widest = 0.5 + 0.075 * max(len(str(entry.get_label())) for entry in entries)  # inches, at font size 9
    fitting = max(1, min(columns, int(figure.get_figwidth() / widest)))
    figure.legend(handles=list(entries), frameon=False, ncols=fitting, loc="outside lower center", fontsize=9)


def check_figure_name(path: str | Path) -> None:
    """Refuse a file name that `save_figure` cannot write to, before any work is done for it."""
    if Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"cannot save a figure to '{path}': its name must end in .png, .pdf or .svg")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Save a figure in the format that its file name's suffix says; equal figures give equal files."""
    check_figure_name(path)
    with atomic_file(path) as temporary:
        write(figure, temporary, Path(path).suffix[1:].lower())


def write(figure: Figure, file: Path | io.BytesIO, kind: str, **settings: Any) -> None:
    """Write a figure in a format; what it looks like is settled when it is first written."""
    import matplotlib
    from matplotlib.axis import Tick
    from matplotlib.text import Text

    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    numbers = {label for tick in figure.findobj(Tick) for label in tick.findobj(Text)}
    for text in set(figure.findobj(Text)) - numbers:  # names may hold dollar signs and control characters
        text.set(text=printable(text.get_text()), parse_math=False)
    rc: Any = {"svg.hashsalt": "pidm-nav", "pdf.fonttype": 42}
    rc |= {"figure.autolayout": False, "figure.constrained_layout.use": False}  # or it could not be switched off
    engine = figure.get_layout_engine()
    with matplotlib.rc_context(rc):
        if engine is not None:  # left to `savefig`, it would draw everything twice, in every format
            engine.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(file, format=kind, metadata=undated.get(kind), **settings)


def png(figure: Figure, dpi: int = 90) -> bytes:
    """Return a figure as a PNG file of few colors, which does not swell the notebook that shows it."""
    from PIL import Image

    file, small = io.BytesIO(), io.BytesIO()
    write(figure, file, "png", dpi=dpi)
    Image.open(file).convert("RGB").quantize(64).save(small, format="PNG", optimize=True)
    return small.getvalue()


def html(described: object, draw: Callable[[], Figure], text: str = "") -> str:
    """Return what a notebook shows of an object: its one line, more HTML if there is some, and a small picture."""
    shown = f"<pre>{escape(repr(described))}</pre>{text}"
    try:
        picture = b64encode(png(draw(), dpi=64)).decode()
    except Exception:  # whatever is wrong with the picture, the object must be shown
        return shown
    return f'{shown}<img src="data:image/png;base64,{picture}" alt="">'
