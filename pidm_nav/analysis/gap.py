"""Where does the future tell about the action? Delta(s) of the paper's Theorem 1, from demonstrations alone.

States are put into K clusters. Within a cluster s, the actions' variance splits exactly over the clusters s'
that the demonstrator was in `horizon` steps later:

    Var(a | s)  =  E[ Var(a | s, s') ]  +  Delta(s),      Delta(s) = Var over s' of E[a | s, s']

Two things make Delta(s) look larger than it is. Few samples a cell (s, s'): cell means scatter even when the
future tells nothing. `chance` is the value to expect if futures were shuffled within a cluster, `corrected`
takes the scatter off. And clusters have a width: s' also tells where within s the demonstrator was. A
deterministic expert has Delta = 0 in truth, so what is measured on A* data is the size of this second effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.analysis import figures
from pidm_nav.analysis.clusters import Array, Floats, Integers, cluster_states, state_dataset
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import demo_layout
from pidm_nav.tasks import split_state
from pidm_nav.world2d.layout import Layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADIUS = 60.0  # px around a goal that count as near it
ZONES = ("arriving", "leaving", "elsewhere")


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Var(a|s) and its parts, summed over the action's axes, for each of S clusters that has actions."""

    cluster: Integers  # (S,) label
    count: Integers  # (S,) actions
    futures: Integers  # (S,) different future clusters
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

    def means(groups: Array, sizes: Array) -> Floats:
        return np.stack([np.bincount(groups, axis) / sizes for axis in actions.T], axis=1)

    def squares(deviations: Floats, groups: Array, weights: Any = 1.0) -> Floats:
        summed = np.bincount(groups, weights * (deviations**2).sum(axis=1), minlength=len(cluster))
        return np.asarray(summed, dtype=np.float64)

    mean, cell_mean = means(row, count), means(cell, size)
    total = squares(actions - mean[row], row)
    inside = squares(actions - cell_mean[cell], row)
    between = squares(cell_mean - mean[owner], owner, size)
    futures = np.bincount(owner)
    spare = count - futures  # degrees of freedom left within cells
    pooled = inside.sum() / spare.sum() if spare.sum() else np.nan
    noise = np.where(spare > 0, inside / np.maximum(spare, 1), pooled)  # variance of an action in a cell
    scatter = np.where(futures > 1, (futures - 1) * noise, 0.0)
    return Decomposition(
        cluster,
        count,
        futures,
        variance=total / count,
        within=inside / count,
        delta=between / count,
        chance=(futures - 1) / np.maximum(count - 1, 1) * total / count,
        corrected=(between - scatter) / count,
    )


@dataclass(frozen=True, eq=False)
class Gap:
    """Delta(s) on the clusters of a dataset, and where they are."""

    task: str
    demonstrator: str
    episodes: int
    horizon: int
    layout: Layout | None  # None for tasks without a map
    parts: Decomposition
    positions: Floats  # (S, 2) mean of the cluster's first two numbers, px
    goals_reached: Floats  # (S,) mean over the cluster
    distance: Floats  # (S,) px to the current goal, mean; nan without goals
    zones: Floats  # (S, 3) fraction of the cluster's states in each of ZONES

    def mean(self, values: Floats, weight: Floats | float = 1.0) -> float:
        """Mean over the data of a number a cluster, where states count by `weight`."""
        mass = self.parts.count * weight
        return float((mass * values).sum() / mass.sum()) if np.sum(mass) > 0 else float("nan")

    @property
    def law_error(self) -> float:
        """Largest difference between Var(a|s) and the sum of its parts."""
        return float(np.abs(self.parts.variance - self.parts.within - self.parts.delta).max())

    def summary(self) -> figures.Row:
        """One row of numbers: means over the data, near goals (arriving or leaving) and elsewhere."""
        parts = self.parts
        row: figures.Row = {
            "task": self.task,
            "demonstrator": self.demonstrator,
            "episodes": self.episodes,
            "samples": int(parts.count.sum()),
            "clusters": len(parts.cluster),
            "horizon": self.horizon,
            "variance": self.mean(parts.variance),
            "within": self.mean(parts.within),
            "delta": self.mean(parts.delta),
            "chance": self.mean(parts.chance),
            "corrected": self.mean(parts.corrected),
            "law_error": self.law_error,
            "near_share": self.mean(1 - self.zones[:, 2]),
        }
        for name, values in (("delta", parts.delta), ("corrected", parts.corrected)):
            for zone, weight in zip(ZONES, self.zones.T, strict=True):
                row[f"{name}_{zone}"] = self.mean(values, weight)
            row[f"{name}_near"] = self.mean(values, 1 - self.zones[:, 2])
            row[f"{name}_ratio"] = row[f"{name}_near"] / row[f"{name}_elsewhere"]
            rest = self.mean(values, 1 - self.zones[:, 0])  # leaving another goal counts as far here
            row[f"{name}_current_ratio"] = row[f"{name}_arriving"] / rest
        return row

    def rows(self) -> list[figures.Row]:
        """One row a cluster."""
        columns = {"x": self.positions[:, 0], "y": self.positions[:, 1], "goals_reached": self.goals_reached}
        columns |= {each.name: getattr(self.parts, each.name) for each in fields(self.parts)}
        columns |= {"distance": self.distance}
        columns |= dict(zip(ZONES, self.zones.T, strict=True))
        names = {"task": self.task, "demonstrator": self.demonstrator}
        return [{**names, **{k: v[i].item() for k, v in columns.items()}} for i in range(len(self.parts.cluster))]


def goal_zones(states: Array, radius: float = RADIUS) -> tuple[Floats, NDArray[np.bool_]]:
    """Px to the current goal (N,) of full states, and which of ZONES (N, 3) each is in.

    Arriving is within the radius of the current goal, leaving within that of another, mostly the one just
    reached.
    """
    positions, goals, reached = split_state(states)
    apart = np.hypot(*np.moveaxis(positions[:, None] - goals, 2, 0))  # (N, G)
    distance: Floats = apart[np.arange(len(states)), np.minimum(reached, goals.shape[1] - 1)]
    arriving = distance < radius
    leaving = (apart < radius).any(axis=1) & ~arriving
    return distance, np.stack([arriving, leaving, ~(arriving | leaving)], axis=1)


def measure_gap(
    dataset: DemoDataset,
    clusters: int = 500,
    horizon: int = 1,
    radius: float = RADIUS,
    keep_goals_apart: bool = True,
    *,
    rng: np.random.Generator,
) -> Gap:
    """Delta(s) on K-means clusters of the dataset's states."""
    dataset = state_dataset(dataset)
    found = cluster_states(dataset, clusters, rng, keep_goals_apart)
    transitions = dataset.transitions(horizon)
    now = found.assign(transitions.state)
    parts = decompose(transitions.action, now, found.assign(transitions.future))
    row = np.searchsorted(parts.cluster, now)

    def average(values: Array) -> Floats:
        mean: Floats = np.bincount(row, values.astype(np.float64)) / parts.count
        return mean

    flags = list(dataset.goal_flags)
    distance, zones = np.full(len(now), np.nan), np.tile([False, False, True], (len(now), 1))
    if flags:
        distance, zones = goal_zones(transitions.state, radius)
    return Gap(
        dataset.task,
        figures.demonstrator(dataset),
        len(dataset),
        horizon,
        demo_layout(dataset) if flags else None,
        parts,
        np.stack([average(transitions.state[:, axis]) for axis in (0, 1)], axis=1),
        average(transitions.state[:, flags].sum(axis=1)),
        average(distance),
        np.stack([average(zone) for zone in zones.T], axis=1),
    )


def plot_gap(gaps: Sequence[Gap], top: float | None = None, radius: float = RADIUS) -> Figure:
    """Delta(s) over the map, a panel for each; `top` ends the colour scale (default: the 97th percentile)."""
    from matplotlib.patches import Circle

    bare = [gap.task for gap in gaps if gap.layout is None]
    if bare:
        raise ValueError(f"Delta of '{bare[0]}' cannot be drawn: it has no map, use a navigation task")
    top = top or max(float(np.quantile(np.concatenate([gap.parts.delta for gap in gaps]), 0.97)), 1e-9)
    figure, axes = figures.panels(len(gaps))
    for ax, gap in zip(axes, gaps, strict=True):
        assert gap.layout is not None
        figures.draw_room(ax, gap.layout)
        order = np.argsort(gap.parts.delta)  # large values on top
        size = 9 + 46 * np.sqrt(gap.parts.count / gap.parts.count.max())
        marks = ax.scatter(
            gap.positions[order, 0], gap.positions[order, 1], s=size[order], c=gap.parts.delta[order], vmin=0, vmax=top,
            cmap="viridis", edgecolors="white", linewidths=0.3, zorder=5,
        )  # fmt: skip
        for goal in gap.layout.goals.tolist():
            ax.add_patch(Circle(goal, radius, fill=False, color="0.45", linewidth=0.7, linestyle=":", zorder=6))
        row = gap.summary()
        ax.set_title(f"{figures.title(gap.task)}, {gap.demonstrator}", fontsize=12)
        text = f"mean Δ {row['delta']:.3f}: {row['delta_near']:.3f} within {radius:g} px of a goal, "
        ax.set_xlabel(text + f"{row['delta_elsewhere']:.3f} elsewhere", fontsize=9)
    figure.colorbar(marks, ax=axes, label="Δ(s)", extend="max", shrink=0.6, aspect=30, location="bottom", pad=0.02)
    return figure
