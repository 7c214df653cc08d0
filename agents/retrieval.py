"""StateIndex, which finds nearest states with KD-trees, and the agent that repeats the nearest state's action."""

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
    """Finds the nearest of M raw states with the same number of goals reached, with one KD-tree per number.

    Distances are over the features that vary among the stored states, without the flags. In a task with fixed goals
    these are x and y: fixed coordinates add nothing to a comparison and cost time. Goals that are drawn in each episode
    vary, so they count. If no stored state has the same number of goals reached, the closest number is used. Without
    flags there is one tree.

    Args:
        flags: columns of the flags of reached goals.
        scale: scale of each feature, used without flags only; with flags, states are in pixels and need no scaling.
    """

    def __init__(
        self, states: Array, flags: ArrayLike = (), scale: Scale | None = None, distance: Distance = "l2"
    ) -> None:
        if distance not in ("l2", "l1"):
            raise ValueError(f"there is no distance '{distance}': choose l2 or l1")
        if len(states) == 0:
            raise ValueError("there are no states to search: give at least one")
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
        """Return the numbers of goals reached (N,), and the scaled features (N, F) for distances."""
        points = states[:, self.features].astype(np.float64) / self.width[self.features]
        return (states[:, self.flags] > 0.5).sum(axis=1), points

    def query(self, states: Array, k: int = 1) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the indices (N, k) of the nearest stored states, the nearest first, and their distances.

        With fewer than k comparable states, the remaining distances are infinite.
        """
        if states.shape[1] != len(self.width):
            raise ValueError(f"states have {states.shape[1]} features, and the stored ones have {len(self.width)}")
        reached, points = self.measured(states)
        # the group with the closest number of goals; argmin breaks ties in favor of the smaller number
        group = np.abs(reached[:, None] - self.groups).argmin(axis=1)
        nearest, distances = np.zeros((len(states), k), dtype=np.int64), np.empty((len(states), k))
        for index in np.unique(group):
            rows, members = group == index, self.members[index]
            distances[rows], found = self.trees[index].query(points[rows], k=np.arange(1, k + 1), p=self.order)
            nearest[rows] = members[np.minimum(found, len(members) - 1)]
        return nearest, distances


@register
class RetrievalBC(Agent):
    """The paper's retrieval baseline: the action of the nearest demonstrated state, without training."""

    name: ClassVar[str] = "retrieval-bc"
    trainable: ClassVar[bool] = False
    remembered: ClassVar[tuple[str, ...]] = ("states", "demo_actions", "flags")
    presets: ClassVar[Mapping[str, Preset]] = {
        **Agent.presets,
        "pixels": replace(Agent.presets["pixels"], options=Agent.presets["frozen"].options),
    }

    def build(self, encoder: nn.Module | None) -> None:
        """Start without stored states; there are no networks."""
        self.index: StateIndex | None = None

    def prepare(self, data: TrainingData) -> None:
        """Store every demonstrated state and its action."""
        if self.observations.encoder_trainable:
            raise ValueError(
                f"retrieval-bc cannot train the encoder frames='{self.config.frames}': choose frames='random'"
            )
        super().prepare(data)
        dataset = self.observations.embedded(data.demos)
        self.states, self.demo_actions, *_ = dataset.transitions()
        self.flags = np.array(dataset.goal_flags, dtype=np.int64)
        self.rebuild()

    def rebuild(self) -> None:
        """Build the index of states."""
        if len(self.demo_actions) != len(self.states):
            raise ValueError(f"there are {len(self.states)} states and {len(self.demo_actions)} actions")
        self.index = StateIndex(self.states, self.flags, self.scale)

    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Return the actions of the nearest states."""
        if self.index is None:
            raise ValueError("this agent stores no states yet: train it on demonstrations first")
        return self.demo_actions[self.index.query(states)[0][:, 0]], memory
