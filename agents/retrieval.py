"""Nearest training states by KD-trees, and the agent that repeats the action of the nearest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from torch import nn

from pidm_nav.agents.config import Preset
from pidm_nav.agents.networks import Array, Scale
from pidm_nav.agents.policy import NavPolicy
from pidm_nav.demos.dataset import DemoDataset

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

    def query(self, states: Array) -> NDArray[np.int64]:
        """Return (N,) indices of the stored states that are nearest to these."""
        if states.shape[1] != len(self.width):
            raise ValueError(f"states of {states.shape[1]} numbers are unlike the remembered ones of {len(self.width)}")
        reached, points = self.measured(states)
        # the group with the closest number of goals; of two that are equally close, argmin takes the smaller number
        group = np.abs(reached[:, None] - self.groups).argmin(axis=1)
        nearest = np.empty(len(states), dtype=np.int64)
        for index in np.unique(group):
            rows = group == index
            nearest[rows] = self.members[index][self.trees[index].query(points[rows], p=self.order)[1]]
        return nearest


class RetrievalBC(NavPolicy):
    """The paper's retrieval baseline: the action demonstrated in the nearest training state; nothing is trained."""

    name: ClassVar[str] = "retrieval-bc"
    trainable: ClassVar[bool] = False
    remembered: ClassVar[tuple[str, ...]] = ("states", "actions", "flags")
    presets: ClassVar[Mapping[str, Preset]] = {
        **NavPolicy.presets,
        "pixels": replace(NavPolicy.presets["pixels"], options=NavPolicy.presets["frozen"].options),
    }

    def build(self, encoder: nn.Module | None) -> None:
        """Start with an empty memory of states and actions; there are no networks."""
        self.index: StateIndex | None = None

    def prepare(self, dataset: DemoDataset, extra: Sequence[DemoDataset] = (), idm: Sequence[DemoDataset] = ()) -> None:
        """Remember every demonstrated state and its action."""
        if self.observations.moving:
            raise ValueError(
                f"retrieval-bc trains nothing, not even a CNN: take frames='random', not '{self.config.frames}'"
            )
        super().prepare(dataset)
        dataset = self.observations.embedded(dataset)
        self.states, self.actions, *_ = dataset.transitions()
        self.flags = np.array(dataset.goal_flags, dtype=np.int64)
        self.recall()

    def recall(self) -> None:
        """Build the trees that find the nearest states."""
        if self.actions.shape != (len(self.states), self.action_size):
            raise ValueError(f"{len(self.states)} remembered states do not go with actions {self.actions.shape}")
        self.index = StateIndex(self.states, self.flags, self.scale)

    def act(self, states: Array, memory: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Return the actions of the nearest states."""
        if self.index is None:
            raise ValueError("this agent has no memory yet: train it on demonstrations first")
        return self.actions[self.index.query(states)], memory
