"""Demonstrations as tensors for training: scaled once, gathered by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pidm_nav.agents.history import history_rows

if TYPE_CHECKING:
    from pidm_nav.agents.policy import NavPolicy
    from pidm_nav.demos.dataset import DemoDataset


@dataclass
class Samples:
    """All episodes one after the other; a row is an observation, and the last of an episode has no action.

    row          0    1   ...  T-1   T  | T+1 ...
    states      s_0  s_1  ... s_T-1 s_T | s_0 ...    scaled
    actions     a_0  a_1  ... a_T-1  0  | a_0 ...    scaled to [-1, 1]
    has_action   1    1   ...   1    0  |  1  ...
    last         T    T   ...   T    T  | ...        row of the episode's last observation

    Where observations are frames, a row is one frame, (N, H, W, C) bytes or, with a frozen encoder, its vector (N, E),
    and `history` says which rows make up a state (see `NavPolicy.gather`).
    """

    states: Tensor  # (N, D)
    actions: Tensor  # (N, A)
    has_action: Tensor  # (N,) bool
    last: Tensor  # (N,) int64
    rows: Tensor  # (M,) int64: the rows with an action
    window: int = 1  # consecutive actions that PIDM draws together
    shift: int = 0  # pixels by which frames are moved in training
    draw: int = 0  # seed of the current step's move
    futures: Tensor | None = None  # (N, D) scaled, where they do not come from the data
    history: Tensor | None = None  # (N, K) int64: rows of the frames that make up a row's state

    def future_rows(self, rows: Tensor, horizon: Tensor | int) -> Tensor:
        """Rows `horizon` steps later, at most the episode's last."""
        return torch.minimum(rows + horizon, self.last[rows])


def make_samples(agent: NavPolicy, datasets: Sequence[DemoDataset], window: int = 1, shift: int = 0) -> Samples:
    """The training tensors of an agent, whose scales must have been fitted."""
    episodes = [episode for dataset in datasets for episode in dataset]
    lengths = np.array([len(episode) for episode in episodes])
    for dataset in datasets:
        got = (dataset[0].observations.shape[1:], dataset[0].actions.shape[1:])
        if got != (agent.observation_space.shape, agent.action_space.shape):
            raise ValueError(
                f"demonstrations of {dataset.task} have observations {got[0]} and actions {got[1]}, "
                f"the agent's are {agent.observation_space.shape} and {agent.action_space.shape}: "
                "they cannot train it"
            )
    none = np.zeros((1, agent.action_size), dtype=np.float32)
    actions = np.concatenate([part for episode in episodes for part in (episode.actions, none)])
    last = np.repeat(np.cumsum(lengths + 1) - 1, lengths + 1)
    has_action = np.arange(len(last)) != last
    actions = np.clip(actions, agent.action_space.low, agent.action_space.high)
    return Samples(
        states=agent.rows(episodes),
        actions=agent.action_scale(agent.tensor(actions)) * agent.tensor(has_action[:, None].astype(np.float32)),
        has_action=agent.tensor(has_action),
        last=agent.tensor(last),
        rows=agent.tensor(np.flatnonzero(has_action)),
        window=window,
        shift=shift,
        futures=agent.predicted_futures(datasets),
        history=None if agent.vision is None else agent.tensor(history_rows(lengths + 1, agent.config.history)),
    )
