"""Where does the future tell about the action? Delta(s) of the paper's Theorem 1, from demonstrations alone.

States are put into K clusters. Within a cluster s, the actions' variance splits exactly over the clusters s'
that the demonstrator was in `horizon` steps later:

    Var(a | s)  =  E[ Var(a | s, s') ]  +  Delta(s),      Delta(s) = Var over s' of E[a | s, s']

Two things make Delta(s) look larger than it is. With few samples per cell (s, s'), cell means scatter even when
the future tells nothing: `chance` is the value to expect if futures were shuffled within a cluster, and `corrected`
takes the scatter off. And clusters have a width: s' also tells where within s the demonstrator was. A
deterministic expert has Delta = 0 in truth, so what is measured on A* data is the size of this second effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.analysis import states
from pidm_nav.analysis.states import Array, Finding, Floats, Integers, Row
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.statistics import group_means
from pidm_nav.plots import draw_room, panels, task_title
from pidm_nav.world2d.state import POSITION, current_goals, split_state

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS = 60.0  # px around a goal that count as near it
LARGEST_RADIUS = 10_000.0  # px: a dotted circle of 1e20 px would be drawn forever
ZONES = ("arriving", "leaving", "elsewhere")


@dataclass(frozen=True, eq=False)
class Gap(Finding):
    """Delta(s) on the clusters of a dataset: what `decompose` returns, and the mean place and zones of each cluster."""

    radius: float  # px around a goal that count as near it


def decompose(actions: Array, now: Integers, future: Integers) -> dict[str, Array]:
    """Split the variance of actions (M, A) within the clusters `now` (M,) by the clusters `future` (M,).

    Returns columns with one entry per cluster that has actions; variances are summed over the action's components:
        cluster, count, futures    its label, its number of actions and of different future clusters
        variance, within, delta    Var(a|s), E[Var(a|s,s')], and their difference, computed on its own from cell means
        chance                     delta to expect from shuffled futures
        corrected                  delta less the scatter of the cells' means: unbiased, may be negative
    """
    actions = actions.astype(np.float64)
    cluster, row = np.unique(now, return_inverse=True)
    pairs, cell = np.unique(np.stack([row, future], axis=1), axis=0, return_inverse=True)
    cell, owner = cell.reshape(-1), pairs[:, 0]  # owner: the cluster (index) of each cell
    count, size = np.bincount(row), np.bincount(cell)

    def squares(deviations: Floats, groups: Array, weights: Any = 1.0) -> Floats:
        return np.asarray(np.bincount(groups, weights * (deviations**2).sum(axis=1), minlength=len(cluster)))

    mean, cell_mean = group_means(actions, row), group_means(actions, cell)
    total = squares(actions - mean[row], row)
    inside = squares(actions - cell_mean[cell], row)
    between = squares(cell_mean - mean[owner], owner, size)
    futures = np.bincount(owner)
    spare = count - futures  # degrees of freedom left within cells
    pooled = inside.sum() / spare.sum() if spare.sum() else np.nan
    noise = np.where(spare > 0, inside / np.maximum(spare, 1), pooled)  # variance of an action in a cell
    scatter = np.where(futures > 1, (futures - 1) * noise, 0.0)
    columns = {"cluster": cluster, "count": count, "futures": futures, "variance": total / count}
    columns |= {"within": inside / count, "delta": between / count}
    columns["chance"] = (futures - 1) / np.maximum(count - 1, 1) * total / count
    return columns | {"corrected": (between - scatter) / count}


def _means(columns: Row) -> Row:
    """Return means over the data, near goals (arriving or leaving) and elsewhere."""

    def mean(values: Floats, weight: Floats | float = 1.0) -> float:
        mass = columns["count"] * weight
        return float((mass * values).sum() / mass.sum()) if np.sum(mass) > 0 else float("nan")

    near = 1 - columns["elsewhere"]
    row = {name: mean(columns[name]) for name in ("variance", "within", "delta", "chance", "corrected")}
    row["law_error"] = float(np.abs(columns["variance"] - columns["within"] - columns["delta"]).max())
    row["near_share"] = mean(near)
    for name in ("delta", "corrected"):
        row |= {f"{name}_{zone}": mean(columns[name], columns[zone]) for zone in ZONES}
        row[f"{name}_near"] = mean(columns[name], near)
        rest = mean(columns[name], 1 - columns["arriving"])  # leaving another goal counts as far here
        row[f"{name}_ratio"] = row[f"{name}_near"] / (row[f"{name}_elsewhere"] or np.nan)
        row[f"{name}_current_ratio"] = row[f"{name}_arriving"] / (rest or np.nan)
    return row


def goal_zones(full: Array, radius: float = RADIUS) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the distance in px to the current goal (N,) of full states, and which of ZONES (N, 3) each is in.

    Arriving is within the radius of the current goal, leaving within that of another, mostly the one just reached.
    """
    positions, goals, reached = split_state(full)
    distance: Floats = np.hypot(*(positions - current_goals(goals, reached)).T)
    arriving = distance < radius
    close = np.hypot(*np.moveaxis(positions[:, None] - goals, 2, 0)) < radius  # (N, G)
    leaving = close.any(axis=1) & ~arriving
    return distance, np.stack([arriving, leaving, ~(arriving | leaving)], axis=1)


def measure_gap(
    dataset: DemoDataset,
    clusters: int | None = None,
    horizon: int = 1,
    radius: float = RADIUS,
    keep_goals_apart: bool = True,
    *,
    rng: np.random.Generator,
) -> Gap:
    """Measure Delta(s) on K-means clusters of the dataset's states; `cluster_states` explains the clusters."""
    longest = max(len(episode) for episode in dataset)
    if not 1 <= horizon <= longest:
        raise ValueError(f"horizon is {horizon}: the longest episode has {longest} steps, choose 1 to {longest}")
    if not 0 < radius <= LARGEST_RADIUS:
        raise ValueError(f"radius is {radius:g}: give a number of pixels above 0, at most {LARGEST_RADIUS:g}")
    dataset = states.state_dataset(dataset)
    found = states.cluster_states(dataset, clusters, rng, keep_goals_apart)
    transitions = dataset.transitions(horizon)
    now = found.assign(transitions.state)
    parts = decompose(transitions.action, now, found.assign(transitions.future))
    flags = list(dataset.goal_flags) if states.has_states(dataset) else []
    distance, zones = np.full(len(now), np.nan), np.tile([False, False, True], (len(now), 1))
    if flags:
        distance, zones = goal_zones(transitions.state, radius)
    reached = transitions.state[:, flags].sum(axis=1)
    places = np.column_stack([reached, distance, zones, transitions.state[:, POSITION]])
    means = group_means(places, np.searchsorted(parts["cluster"], now)).T
    place = {**dict(zip("xy", means[5:], strict=False)), "goals_reached": means[0]}
    columns = {**place, **parts, "distance": means[1], **dict(zip(ZONES, means[2:5], strict=True))}
    sizes = {"episodes": len(dataset), "samples": len(now), "clusters": len(parts["cluster"]), "horizon": horizon}
    return Gap(dataset, columns, {**sizes, **_means(columns)}, radius)


def plot_gap(gaps: Sequence[Gap], top: float | None = None) -> Figure:
    """Draw Delta(s) over the map, one panel per gap; `top` ends the color scale (default: the 97th percentile)."""
    from matplotlib.patches import Circle

    top = top or max(float(np.quantile(np.concatenate([gap.columns["delta"] for gap in gaps]), 0.97)), 1e-9)
    figure, axes = panels(len(gaps))
    for ax, gap in zip(axes, gaps, strict=True):
        layout, columns, row = states.map_of(gap.dataset), gap.columns, gap.summary()
        draw_room(ax, layout)
        order = np.argsort(columns["delta"])  # large values on top
        size = 9 + 46 * np.sqrt(columns["count"] / columns["count"].max())
        style: Any = {"vmin": 0, "vmax": top, "edgecolors": "white", "linewidths": 0.3, "zorder": 5}
        x, y, delta = (columns[name][order] for name in ("x", "y", "delta"))
        marks = ax.scatter(x, y, s=size[order], c=delta, cmap="viridis", **style)
        for goal in layout.goals.tolist():
            ax.add_patch(Circle(goal, gap.radius, fill=False, color="0.45", linewidth=0.7, linestyle=":", zorder=6))
        ax.set_title(f"{task_title(gap.task)}, {gap.demonstrator}", fontsize=12)
        text = f"mean Δ {row['delta']:.3f}: {row['delta_near']:.3f} within {gap.radius:g} px of a goal, "
        ax.set_xlabel(text + f"{row['delta_elsewhere']:.3f} elsewhere", fontsize=9)
    figure.colorbar(marks, ax=axes, label="Δ(s)", extend="max", shrink=0.6, aspect=30, location="bottom", pad=0.02)
    return figure
