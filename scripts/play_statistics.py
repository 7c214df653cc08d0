"""Statistics of demonstrations, to compare scripted with human ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.world2d.state import split_state

NEAR = 60.0  # px, largest distance at which an agent counts as near a goal
CELL = 40.0  # px, side of the squares within which actions are compared


@dataclass(frozen=True)
class PlayStatistics:
    """Statistics of the lengths and actions in demonstrations."""

    mean_length: float
    length_std: float
    min_length: int
    max_length: int
    deflection: float  # mean norm of the stick
    deflection_std: float
    stick_change: float  # mean norm of the stick's change per step
    variance_near: float  # variance of actions within NEAR of any goal, summed over both axes
    variance_far: float  # of all other actions
    local_variance_near: float  # variance of actions in the same square with the same goal, near any goal
    local_variance_far: float  # elsewhere


def play_statistics(dataset: DemoDataset) -> PlayStatistics:
    """Measure the statistics of demonstrations whose observations are state vectors."""
    if not dataset.goal_flags:
        raise ValueError(f"the demonstrations of {dataset.task} have no goal flags: give state vectors")
    lengths = np.array([len(episode) for episode in dataset])
    states, actions = dataset.transitions().state, dataset.transitions().action.astype(np.float64)
    changes = np.concatenate([np.diff(episode.actions, axis=0) for episode in dataset])
    positions, goals, reached = split_state(states)
    near = np.linalg.norm(goals - positions[:, None], axis=-1).min(axis=1) < NEAR
    place = np.column_stack([np.rint(positions / CELL), reached])
    _, group, count = np.unique(place, axis=0, return_inverse=True, return_counts=True)
    group, unbiased = group.ravel(), count / np.maximum(count - 1, 1)
    deviation = ((actions - group_means(actions, group)[group]) ** 2).sum(axis=1) * unbiased[group]
    known = count[group] >= 5
    deflection = np.linalg.norm(actions, axis=1)
    return PlayStatistics(
        mean_length=float(lengths.mean()),
        length_std=float(lengths.std()),
        min_length=int(lengths.min()),
        max_length=int(lengths.max()),
        deflection=float(deflection.mean()),
        deflection_std=float(deflection.std()),
        stick_change=float(np.linalg.norm(changes, axis=1).mean()),
        variance_near=float(actions[near].var(axis=0).sum()),
        variance_far=float(actions[~near].var(axis=0).sum()),
        local_variance_near=float(deviation[near & known].mean()),
        local_variance_far=float(deviation[~near & known].mean()),
    )


def group_means(values: NDArray[Any], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the means (G, D) of values (N, D) by group (N,), from 0 to G - 1."""
    return np.column_stack([np.bincount(group, column) for column in values.T]) / np.bincount(group)[:, None]
