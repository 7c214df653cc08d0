"""States in clusters: what stands for "the same state" where states are continuous."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import demo_states
from pidm_nav.tasks import TASKS

Array = NDArray[Any]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def state_dataset(dataset: DemoDataset) -> DemoDataset:
    """The dataset with full states for observations, where it is of a navigation task."""
    if dataset.task not in TASKS and dataset.task != "custom":
        return dataset
    episodes = (replace(episode, observations=demo_states(dataset, i)) for i, episode in enumerate(dataset))
    kept = {k: v for k, v in dataset.env_kwargs.items() if k not in ("relative_goals", "observe_goals")}
    source = {"made_by": dataset.source.get("made_by", "unknown"), "env_kwargs": kept}
    return DemoDataset(dataset.task, tuple(episodes), source)


@dataclass(frozen=True, eq=False)
class StateClusters:
    """K-means centres, and how states are scaled to be compared with them."""

    features: Integers  # (F,) columns of the state that vary
    weight: Floats  # (F,)
    centres: Floats  # (K, F) scaled

    def scale(self, states: Array) -> Floats:
        """(N, F) what distances are measured in."""
        scaled: Floats = states[:, self.features].astype(np.float64) * self.weight
        return scaled

    def assign(self, states: Array) -> Integers:
        """(N,) the cluster of each state."""
        from scipy.spatial import cKDTree

        return np.asarray(cKDTree(self.centres).query(self.scale(states))[1], dtype=np.int64)


def cluster_states(
    dataset: DemoDataset, clusters: int, rng: np.random.Generator, keep_goals_apart: bool = True
) -> StateClusters:
    """K-means on every state of a dataset.

    Args:
        dataset: demonstrations with full states, see `state_dataset`.
        clusters: K.
        rng: draws the first centres.
        keep_goals_apart: weigh a reached flag by twice the diagonal of where positions lie, so that no cluster
            mixes states that head for different goals. Off, a flag counts as one pixel, that is nothing.
    """
    from sklearn.cluster import KMeans

    if dataset.episodes[0].observations.ndim != 2:
        raise ValueError("these demonstrations hold images: clusters need states, one row of numbers a step")
    states = np.concatenate([episode.observations for episode in dataset]).astype(np.float64)
    features = np.flatnonzero(np.ptp(states, axis=0) > 0)
    distinct = len(np.unique(states[:, features], axis=0))
    if not 1 <= clusters <= distinct:
        raise ValueError(
            f"{clusters} clusters of {distinct} different states cannot be made: "
            f"choose 1 to {distinct} clusters, or give more demonstrations"
        )
    weight = np.ones(len(features))
    if not dataset.goal_flags:  # nothing is known about the units
        weight /= states[:, features].std(axis=0)
    elif keep_goals_apart:
        apart = 2 * float(np.hypot(*np.ptp(states[:, :2], axis=0)))
        weight[np.isin(features, dataset.goal_flags)] = apart
    points = states[:, features] * weight
    # one start from k-means++ is enough with hundreds of centres: others differ in the third digit
    found = KMeans(clusters, n_init=1, random_state=int(rng.integers(2**31))).fit(points)
    return StateClusters(features, weight, found.cluster_centers_)
