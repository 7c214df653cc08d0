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
class Decomposition:
    """Var(a|s) and its parts, summed over the action's components, for each of S clusters that has actions."""

    cluster: Integers  # (S,) label
    count: Integers  # (S,) number of actions
    futures: Integers  # (S,) number of different future clusters
    variance: Floats  # (S,) Var(a|s)
    within: Floats  # (S,) E[Var(a|s,s')]
    delta: Floats  # (S,) their difference, computed on its own from the cells' means
    chance: Floats  # (S,) delta to expect from shuffled futures
    corrected: Floats  # (S,) delta less the scatter of the cells' means: unbiased, may be negative


def decompose(actions: Array, now: Integers, future: Integers) -> Decomposition:
    """Split the variance of actions (M, A) within the clusters `now` (M,) by the clusters `future` (M,)."""
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
    chance = (futures - 1) / np.maximum(count - 1, 1) * total / count
    sums = total / count, inside / count, between / count
    return Decomposition(cluster, count, futures, *sums, chance, corrected=(between - scatter) / count)


@dataclass(frozen=True, eq=False)
class Gap(Finding):
    """Delta(s) on the clusters of a dataset, and where they are."""

    horizon: int
    radius: float
    parts: Decomposition
    positions: Floats  # (S, 2) mean of the cluster's first two numbers, px
    goals_reached: Floats  # (S,) mean over the cluster
    distance: Floats  # (S,) mean distance to the current goal in px; nan without goals
    zones: Floats  # (S, 3) fraction of the cluster's states in each of ZONES

    def mean(self, values: Floats, weight: Floats | float = 1.0) -> float:
        """Return the mean over the data of one number per cluster, where states count by `weight`."""
        mass = self.parts.count * weight
        return float((mass * values).sum() / mass.sum()) if np.sum(mass) > 0 else float("nan")

    @property
    def law_error(self) -> float:
        """Largest difference between Var(a|s) and the sum of its parts."""
        return float(np.abs(self.parts.variance - self.parts.within - self.parts.delta).max())

    def summary(self) -> Row:
        """Return one row of means over the data, near goals (arriving or leaving) and elsewhere."""
        parts, near = self.parts, 1 - self.zones[:, 2]
        row: Row = {"task": self.task, "demonstrator": self.demonstrator, "episodes": len(self.dataset)}
        row |= {"samples": int(parts.count.sum()), "clusters": len(parts.cluster), "horizon": self.horizon}
        row |= {name: self.mean(values) for name, values in vars(parts).items() if values.dtype == np.float64}
        row |= {"law_error": self.law_error, "near_share": self.mean(near)}
        for name, values in (("delta", parts.delta), ("corrected", parts.corrected)):
            for zone, weight in zip(ZONES, self.zones.T, strict=True):
                row[f"{name}_{zone}"] = self.mean(values, weight)
            row[f"{name}_near"] = self.mean(values, near)
            rest = self.mean(values, 1 - self.zones[:, 0])  # leaving another goal counts as far here
            row[f"{name}_ratio"] = row[f"{name}_near"] / (row[f"{name}_elsewhere"] or np.nan)
            row[f"{name}_current_ratio"] = row[f"{name}_arriving"] / (rest or np.nan)
        return row

    def columns(self) -> Row:
        """Return one entry per cluster."""
        place = {"x": self.positions[:, 0], "y": self.positions[:, 1], "goals_reached": self.goals_reached}
        zones = dict(zip(ZONES, self.zones.T, strict=True))
        return {**place, **vars(self.parts), "distance": self.distance, **zones}


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
    places = np.column_stack([transitions.state[:, POSITION], reached, distance, zones])
    means = group_means(places, np.searchsorted(parts.cluster, now))
    return Gap(dataset, horizon, radius, parts, means[:, :-5], means[:, -5], means[:, -4], means[:, -3:])


def plot_gap(gaps: Sequence[Gap], top: float | None = None) -> Figure:
    """Draw Delta(s) over the map, one panel per gap; `top` ends the color scale (default: the 97th percentile)."""
    from matplotlib.patches import Circle

    top = top or max(float(np.quantile(np.concatenate([gap.parts.delta for gap in gaps]), 0.97)), 1e-9)
    figure, axes = panels(len(gaps))
    for ax, gap in zip(axes, gaps, strict=True):
        layout = states.map_of(gap.dataset)
        draw_room(ax, layout)
        order = np.argsort(gap.parts.delta)  # large values on top
        size = 9 + 46 * np.sqrt(gap.parts.count / gap.parts.count.max())
        style: Any = {"vmin": 0, "vmax": top, "edgecolors": "white", "linewidths": 0.3, "zorder": 5}
        x, y = gap.positions[order].T
        marks = ax.scatter(x, y, s=size[order], c=gap.parts.delta[order], cmap="viridis", **style)
        for goal in layout.goals.tolist():
            ax.add_patch(Circle(goal, gap.radius, fill=False, color="0.45", linewidth=0.7, linestyle=":", zorder=6))
        row = gap.summary()
        ax.set_title(f"{task_title(gap.task)}, {gap.demonstrator}", fontsize=12)
        text = f"mean Δ {row['delta']:.3f}: {row['delta_near']:.3f} within {gap.radius:g} px of a goal, "
        ax.set_xlabel(text + f"{row['delta_elsewhere']:.3f} elsewhere", fontsize=9)
    figure.colorbar(marks, ax=axes, label="Δ(s)", extend="max", shrink=0.6, aspect=30, location="bottom", pad=0.02)
    return figure
