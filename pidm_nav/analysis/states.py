"""What every analysis begins with and ends in: the states of demonstrations, their clusters, and tables of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import demo_layout, demo_states
from pidm_nav.plots import demonstrator_title
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import POSITION

Array = NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Finding:
    """Numbers about the demonstrations of a dataset."""

    dataset: DemoDataset
    columns: Row  # of a table: arrays (N,), or (N, M) where each of N things has M entries
    means: Row  # what the table comes to

    @property
    def task(self) -> str:
        """The task's name."""
        return self.dataset.task

    @property
    def demonstrator(self) -> str:
        """Who made the demonstrations, as figures and tables show it."""
        return demonstrator_title(self.dataset)

    def summary(self) -> Row:
        """Return one row of what the table comes to."""
        return {"task": self.task, "demonstrator": self.demonstrator, **self.means}

    def rows(self) -> list[Row]:
        """Return the table, one row of plain values per entry of the columns."""
        table = {"task": self.task, "demonstrator": self.demonstrator, **self.columns}
        columns = np.broadcast_arrays(*map(np.transpose, table.values()))  # (N,) with (M, N)
        values = (column.ravel(order="F").tolist() for column in columns)
        return [dict(zip(table, row, strict=True)) for row in zip(*values, strict=True)]


def has_states(dataset: DemoDataset) -> bool:
    """Return whether a dataset is of a 2D task, whose states show the goals and whose map can be drawn."""
    return dataset.task in TASKS and TASKS[dataset.task].has_2d_state


def map_of(dataset: DemoDataset) -> Layout:
    """Return the map to draw on; demonstrations that have none are refused."""
    if not has_states(dataset):
        raise ValueError(f"demonstrations of '{dataset.task}' have no map to draw: use those of a 2D navigation task")
    return demo_layout(dataset)


def check_states(dataset: DemoDataset) -> None:
    """Refuse demonstrations whose observations are images."""
    if dataset.episodes[0].observations.ndim != 2:
        raise ValueError("these demonstrations hold images: analyses need states, one row of numbers per step")


def state_dataset(dataset: DemoDataset) -> DemoDataset:
    """Return the dataset with full states as observations, if it is of a 2D task; any other stays as it is."""
    if not has_states(dataset):
        return dataset
    episodes = (replace(episode, observations=demo_states(dataset, i)) for i, episode in enumerate(dataset))
    kept = {k: v for k, v in dataset.env_kwargs.items() if k not in ("relative_goals", "observe_goals")}
    source = {"made_by": dataset.source.get("made_by", "unknown"), "env_kwargs": kept}
    return DemoDataset(dataset.task, tuple(episodes), source)


@dataclass(frozen=True, eq=False)
class StateClusters:
    """K-means centers, and how states are scaled to be compared with them."""

    features: Integers  # (F,) columns of the state that vary
    weight: Floats  # (F,)
    centers: Floats  # (K, F) scaled

    def scale(self, states: Array) -> Floats:
        """Return the scaled features (N, F) in which distances are measured."""
        return np.asarray(states[:, self.features].astype(np.float64) * self.weight)

    def assign(self, states: Array) -> Integers:
        """Return the cluster (N,) of each state."""
        return nearest(self.scale(states), self.centers)


def nearest(points: Array, candidates: Array) -> Integers:
    """Return for each point the index of its nearest candidate."""
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(candidates).query(points)[1], dtype=np.int64)


def cluster_states(
    dataset: DemoDataset, clusters: int | None, rng: np.random.Generator, keep_goals_apart: bool = True
) -> StateClusters:
    """Run k-means on every state of a dataset.

    Args:
        dataset: demonstrations with full states, see `state_dataset`.
        clusters: K; defaults to 500, or to one cluster per four steps where there are fewer than 2,000 steps.
        rng: draws the first centers.
        keep_goals_apart: weight a reached flag by twice the diagonal of the region that positions cover, so that no
            cluster mixes states that head for different goals. Otherwise a flag counts as one pixel, that is nothing.
    """
    check_states(dataset)
    if clusters is None:
        clusters = max(1, min(500, dataset.num_steps // 4))
    states = np.concatenate([episode.observations for episode in dataset]).astype(np.float64)
    features = np.flatnonzero(np.ptp(states, axis=0) > 0)
    distinct = len(np.unique(states[:, features], axis=0))
    if distinct == 1:
        raise ValueError(f"the demonstrations of {dataset.task} never leave one state: give some that move")
    if not 1 <= clusters <= distinct:
        remedy = f"choose 1 to {distinct} clusters, or give more demonstrations"
        raise ValueError(f"{clusters} clusters of {distinct} different states cannot be made: {remedy}")
    weight = np.ones(len(features))
    if not has_states(dataset):  # the units are unknown
        weight /= states[:, features].std(axis=0)
    elif keep_goals_apart:
        apart = 2 * float(np.hypot(*np.ptp(states[:, POSITION], axis=0)))
        weight[np.isin(features, dataset.goal_flags)] = apart
    return StateClusters(features, weight, k_means(states[:, features] * weight, clusters, rng))


def k_means(points: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """Return the centers (K, F) that Lloyd's algorithm finds from a k-means++ start.

    One start is enough with hundreds of centers. There must be at least K distinct points.
    """
    first = [int(rng.integers(len(points)))]
    distance = np.full(len(points), np.inf)
    for _ in range(clusters - 1):
        distance = np.minimum(distance, ((points - points[first[-1]]) ** 2).sum(axis=1))
        first.append(int(rng.choice(len(points), p=distance / distance.sum())))
    centers, owner = points[first], np.full(len(points), -1)
    for _ in range(300):
        before, owner = owner, nearest(points, centers)
        if np.array_equal(owner, before):
            break
        count = np.bincount(owner, minlength=clusters)[:, None]
        total = np.stack([np.bincount(owner, column, clusters) for column in points.T], axis=1)
        centers = np.where(count > 0, total / np.maximum(count, 1), centers)
    return centers
