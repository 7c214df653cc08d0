"""Training batches from episodes; only this module and `demos/dataset.py` depend on the alignment of s_t, a_t, s_{t+k}.

All training episodes are concatenated. A row is an observation; the last row of an episode has no action:

    row          0    1   ...  T-1   T  | T+1  ...
    states      s_0  s_1  ... s_T-1 s_T | s_0  ...    scaled
    actions     a_0  a_1  ... a_T-1  0  | a_0  ...    as the networks return them
    last         T    T   ...   T    T  | ...         row of the episode's last observation

A batch refers to states by row, so pairs, several horizons and sequences differ only in how rows are drawn:

    Sampling()                      now t                      action a_t
    Sampling(horizons=(1, 6))       now t, future t+1 or t+6   action a_t
    Sampling(chunk=3)               now t                      action a_t, a_t+1, a_t+2
    Sampling(length=3)              now t, t+1, t+2            action a_t, a_t+1, a_t+2

Past the end of an episode, futures are its last observation and actions its last action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pidm_nav.demos.dataset import DemoDataset

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent
    from pidm_nav.agents.images import StateTable


@dataclass(frozen=True)
class TrainingData:
    """Training data: demonstrations, and more data for the predictor or the inverse dynamics model."""

    demos: DemoDataset
    """Demonstrations for all parts of an agent; without actions, for the predictor only."""
    predictor: Sequence[DemoDataset] = ()
    """More demonstrations for the predictor, used without actions."""
    idm: Sequence[DemoDataset] = ()
    """More data for the inverse dynamics model, of any quality."""

    def for_predictor(self) -> DemoDataset:
        """Return all demonstrations for the predictor, without actions."""
        return DemoDataset.concatenate([each.without_actions() for each in (self.demos, *self.predictor)])


@dataclass(frozen=True)
class Sampling:
    """Contents of one element of a batch: L consecutive steps, K futures and C actions of each."""

    horizons: tuple[int, ...] = ()
    """Steps ahead of the futures."""
    one_horizon: bool = True
    """Draw one of the horizons for each element instead of all of them."""
    length: int = 0
    """L: length of sequences; 0 for single steps."""
    chunk: int = 0
    """C: number of actions predicted at once; 0 for the action of the step itself."""


class Batch(NamedTuple):
    """A training batch: distinct states, and indices into them for B elements, or (B, L) for sequences."""

    states: Tensor
    """(U, D) Scaled states that the indices refer to."""
    now: Tensor
    """(B,) or (B, L) Indices of the current states."""
    future: Tensor
    """(..., K) Indices of the futures, one column per horizon."""
    horizon: Tensor
    """(..., K) Index of each column's horizon."""
    action: Tensor
    """(..., A) Actions, or (..., C, A) for chunks."""
    has_action: Tensor
    """(...) 1 if the action is known and, in sequences, the episode has not ended."""
    is_demo: Tensor
    """(...) 1 if the step is from a demonstration."""

    @property
    def now_states(self) -> Tensor:
        """States (..., D) in which the actions were taken."""
        return self.states[self.now]

    @property
    def future_states(self) -> Tensor:
        """Future states (..., K, D)."""
        return self.states[self.future]

    def mean(self, values: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the weighted mean of values (...), by default over the elements with a known action."""
        weight = self.has_action if weight is None else weight
        return (values * weight).sum() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)  # 0 without any


class Trajectories:
    """Training data of an agent as tensors, from which batches are drawn."""

    def __init__(self, agent: Agent, data: TrainingData, window: int = 1, shift: int = 0) -> None:
        labeled = [data.demos] if data.demos.action_dim else []
        # demonstrations come first, so rows below num_demo_rows are theirs
        sets = [data.demos, *data.predictor, *data.idm] if agent.learns_predictor else [*labeled, *data.idm]
        own = len(sets) - len(data.idm)
        episodes = [episode for each in sets for episode in each]
        counts = np.array([len(episode.observations) for episode in episodes])
        last = np.repeat(np.cumsum(counts) - 1, counts)
        width = max(each.action_dim for each in sets)
        actions = np.zeros((len(last), width), dtype=np.float32)
        known = np.zeros(len(last), dtype=bool)
        first = 0
        for index, each in enumerate(sets):
            uses_actions = each.action_dim > 0 and (index == 0 or index >= own)
            for episode in each:
                if uses_actions:
                    actions[first : first + len(episode)] = episode.actions
                    known[first : first + len(episode)] = True
                first += len(episode.observations)
        tensor = agent.observations.tensor
        self.states = agent.observations.table(episodes, shift)
        self.last, self.known = tensor(last), tensor(known)
        self.actions = torch.zeros(len(last), agent.actions.size, device=self.known.device)
        self.actions[self.known] = agent.actions.encode(actions[known])
        self.num_demo_rows = sum(len(episode.observations) for each in sets[:own] for episode in each)
        self.window = 1 if data.idm else window  # windows would not keep the fraction of other data
        rows = np.flatnonzero(np.arange(len(last)) != last)
        self.rows = tensor(self._balanced(rows, agent.idm_share if data.idm else None))
        self.futures: Tensor | None = None  # (num_demo_rows, D) scaled futures to use instead of recorded ones

    def states_of(self, agent: Agent) -> StateTable:
        """Return the table of states; a trained image encoder is replaced by that of the given agent, a copy."""
        return replace(self.states, encoder=agent.vision if self.states.encoder is not None else None)

    def _balanced(self, rows: np.ndarray, share: float | None) -> np.ndarray:
        """Return the rows to draw from, repeated so that a fraction `share` is not from demonstrations."""
        own, others = rows[rows < self.num_demo_rows], rows[rows >= self.num_demo_rows]
        if share is None or not len(own) or not len(others):
            return rows
        ratio = share * len(own) / ((1 - share) * len(others))
        return np.concatenate([np.tile(own, max(1, round(1 / ratio))), np.tile(others, max(1, round(ratio)))])

    def candidates(self, sampling: Sampling, batch_size: int) -> tuple[int, int]:
        """Return the number of elements to draw from, and the number to draw per batch."""
        window = self._window(sampling)
        starts = len(self.rows) if window == 1 else len(self.states)
        kinds = len(sampling.horizons) if sampling.horizons and sampling.one_horizon else 1
        return starts * kinds, max(1, batch_size // max(window, sampling.length))

    def _window(self, sampling: Sampling) -> int:
        """Return the number of steps drawn together: more than one only for pairs, which share states."""
        return self.window if sampling.horizons and not sampling.length else 1

    def batch(self, chosen: Tensor, sampling: Sampling, rng: np.random.Generator | None = None) -> Batch:
        """Return the batch of these candidates; `rng` draws the random shift of images."""
        rows, horizon, inside = self._draw(chosen, sampling)
        last, device = self.last[rows][..., None], rows.device
        steps = torch.tensor(sampling.horizons, dtype=torch.long, device=device)[horizon]  # (..., K)
        ahead = torch.minimum(rows[..., None] + steps, last)
        states, index = self.states.lookup(torch.cat([rows[..., None], ahead], dim=-1), rng)
        now, future, is_demo = index[..., 0], index[..., 1:], rows < self.num_demo_rows
        if self.futures is not None:
            future = torch.where(is_demo[..., None], len(states) + rows[..., None], future)
            states = torch.cat([states, self.futures])
        action_rows = rows
        if sampling.chunk:
            action_rows = torch.minimum(rows[..., None] + torch.arange(sampling.chunk, device=device), last - 1)
        has_action = (self.known[rows] & inside).float()
        return Batch(states, now, future, horizon, self.actions[action_rows], has_action, is_demo.float())

    def _draw(self, chosen: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows (B,) or (B, L) of candidates, horizon indices (..., K), and whether rows are in episodes."""
        kinds = len(sampling.horizons) if sampling.horizons and sampling.one_horizon else 1
        rows, horizon_index = chosen // kinds, chosen % kinds
        window = self._window(sampling)
        if window == 1:
            rows = self.rows[rows]
        else:  # windows cross the ends of episodes, so that every step is drawn equally often
            rows = ((rows[:, None] + torch.arange(window, device=rows.device)) % len(self.states)).flatten()
            horizon_index, has_next = horizon_index.repeat_interleave(window), rows != self.last[rows]
            rows, horizon_index = rows[has_next], horizon_index[has_next]
        inside = torch.ones_like(rows, dtype=torch.bool)
        if sampling.length:
            along = rows[:, None] + torch.arange(sampling.length, device=rows.device)
            last = self.last[rows][:, None] - 1
            rows, inside = torch.minimum(along, last), along <= last
            horizon_index = horizon_index[:, None].expand_as(rows)
        if sampling.one_horizon:
            return rows, horizon_index[..., None][..., : len(sampling.horizons)], inside
        return rows, torch.arange(len(sampling.horizons), device=rows.device).expand(*rows.shape, -1), inside
