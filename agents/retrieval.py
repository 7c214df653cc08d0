"""Nearest training states by KD-trees, and the agent that repeats the action of the nearest one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from torch import nn

from pidm_nav.agents.agent import Agent, Starts
from pidm_nav.agents.batches import TrainingData
from pidm_nav.agents.config import Preset
from pidm_nav.agents.networks import Array, Scale
from pidm_nav.agents.registry import register

Distance = Literal["l2", "l1"]


class StateIndex:
    """Finds the nearest of M raw states among those with as many goals reached, with one KD-tree per number.

    Distances are over the features that vary among the stored states, the flags aside: in a task with fixed goals
    these are x and y, as the coordinates of a goal add the same to every distance and only cost time; goals that are
    drawn in each episode vary, so they count. If no stored state has as many goals reached, the closest number for
    which there are states is taken. Without flags there is one tree.

    Args:
        flags: columns that say whether a goal is reached.
        scale: tells the unit of each feature where there are no flags; with them, numbers are compared as they are
            (pixels are alike in x and y).
    """

    def __init__(
        self, states: Array, flags: ArrayLike = (), scale: Scale | None = None, distance: Distance = "l2"
    ) -> None:
        if distance not in ("l2", "l1"):
            raise ValueError(f"distance '{distance}' is not known: choose l2 or l1")
        if len(states) == 0:
            raise ValueError("there are no states among which to find the nearest")
        self.flags = np.asarray(flags, dtype=np.int64)
        self.order = 2 if distance == "l2" else 1
        varying = (states != states[0]).any(axis=0)
        varying[self.flags] = False
        self.features = np.flatnonzero(varying) if varying.any() else np.arange(min(2, states.shape[1]))
        width = np.ones(states.shape[1]) if scale is None or len(self.flags) else scale.width.numpy(force=True)
        self.width = width.astype(np.float64)
        reached, points = self.measured(states)
        self.groups = np.unique(reached)
        self.members = [np.flatnonzero(reached == group) for group in self.groups]
        self.trees = [cKDTree(points[members]) for members in self.members]

    def measured(self, states: Array) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the numbers of goals reached (N,), and the features (N, F) that distances are measured in."""
        points = states[:, self.features].astype(np.float64) / self.width[self.features]
        return (states[:, self.flags] > 0.5).sum(axis=1), points

    def query(self, states: Array, k: int = 1) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the indices (N, k) of the nearest stored states, the nearest first, and their distances.

        Where fewer than k stored states can be compared, the distances of the others are infinite.
        """
        if states.shape[1] != len(self.width):
            raise ValueError(f"states of {states.shape[1]} numbers are unlike the remembered ones of {len(self.width)}")
        reached, points = self.measured(states)
        # the group with the closest number of goals; of two that are equally close, argmin takes the smaller number
        group = np.abs(reached[:, None] - self.groups).argmin(axis=1)
        nearest, distances = np.zeros((len(states), k), dtype=np.int64), np.empty((len(states), k))
        for index in np.unique(group):
            rows, members = group == index, self.members[index]
            distances[rows], found = self.trees[index].query(points[rows], k=np.arange(1, k + 1), p=self.order)
            nearest[rows] = members[np.minimum(found, len(members) - 1)]
        return nearest, distances


@register
class RetrievalBC(Agent):
    """The paper's retrieval baseline: the action demonstrated in the nearest training state; nothing is trained."""

    name: ClassVar[str] = "retrieval-bc"
    trainable: ClassVar[bool] = False
    remembered: ClassVar[tuple[str, ...]] = ("states", "demo_actions", "flags")
    presets: ClassVar[Mapping[str, Preset]] = {
        **Agent.presets,
        "pixels": replace(Agent.presets["pixels"], options=Agent.presets["frozen"].options),
    }

    def build(self, encoder: nn.Module | None) -> None:
        """Start with an empty memory of states and actions; there are no networks."""
        self.index: StateIndex | None = None

    def prepare(self, data: TrainingData) -> None:
        """Remember every demonstrated state and its action."""
        if self.observations.encoder_trainable:
            raise ValueError(
                f"retrieval-bc trains nothing, not even a CNN: take frames='random', not '{self.config.frames}'"
            )
        super().prepare(data)
        dataset = self.observations.embedded(data.demos)
        self.states, self.demo_actions, *_ = dataset.transitions()
        self.flags = np.array(dataset.goal_flags, dtype=np.int64)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the trees that find the nearest states."""
        if len(self.demo_actions) != len(self.states):
            raise ValueError(f"{len(self.states)} remembered states do not go with {len(self.demo_actions)} actions")
        self.index = StateIndex(self.states, self.flags, self.scale)

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Return the actions of the nearest states."""
        if self.index is None:
            raise ValueError("this agent has no memory yet: train it on demonstrations first")
        return self.demo_actions[self.index.query(states)[0][:, 0]], memory
