"""The state of an agent that sees frames: the vectors of a few frames, spread over the last steps.

With `history=(0, 6, 12)`, steps back, and an episode of frames f_0, f_1, ...

    step t      0              ...   7              ...   20
    state   f_0 f_0 f_0        ...  f_7 f_1 f_0     ...  f_20 f_14 f_8     the first frame stands for those before it
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from pidm_nav.demos.dataset import DemoDataset

Vectors = NDArray[np.float32]
EMBEDDED = "embedded"  # the task of demonstrations whose frames have become states


def check_history(history: Sequence[int]) -> None:
    """Refuse offsets that are no history."""
    if not history or history[0] != 0 or any(a >= b for a, b in itertools.pairwise(history)):
        raise ValueError(f"history {tuple(history)} must be growing numbers of steps back from 0, the current frame")


def history_rows(lengths: ArrayLike, history: Sequence[int]) -> NDArray[np.int64]:
    """(N, K) which row each frame of a row's state stands in, episodes of these lengths one after the other."""
    counts = np.asarray(lengths, dtype=np.int64)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    rows: NDArray[np.int64] = np.arange(counts.sum())[:, None] - np.asarray(history, dtype=np.int64)
    return np.maximum(rows, first[:, None])


def stack_history(vectors: Vectors, history: Sequence[int]) -> Vectors:
    """(T+1, K * E) states of one episode's vectors (T+1, E)."""
    return vectors[history_rows([len(vectors)], history)].reshape(len(vectors), -1)


def embedded_dataset(vectors: Sequence[Vectors], history: Sequence[int]) -> DemoDataset:
    """Demonstrations, without their actions, whose observations are the states of these episodes' vectors."""
    from pidm_nav.demos.dataset import DemoDataset, Episode

    episodes = [
        Episode(stack_history(each, history), np.zeros((len(each) - 1, 1)), np.zeros(len(each) - 1), False, True)
        for each in vectors
    ]
    return DemoDataset(EMBEDDED, tuple(episodes))


class Recall(NamedTuple):
    """What `predict` hands from call to call: a row an episode."""

    recent: Vectors  # (N, L, E): the newest vector first, L = the longest look back + 1
    inner: Any  # the state of the agent's other parts

    @classmethod
    def after(cls, last: Any, vectors: Vectors, begins: NDArray[np.bool_], history: Sequence[int]) -> Recall:
        """With these vectors (N, E) seen, given the last one, if any, and which rows begin an episode."""
        begun = np.repeat(vectors[:, None], max(history) + 1, axis=1)
        if last is None:
            return cls(begun, None)
        if not isinstance(last, Recall) or last.recent.shape != begun.shape:
            raise ValueError(
                f"the state passed to predict is not that of {len(vectors)} rows: pass what the last call with as "
                "many rows returned, or None"
            )
        begun[~begins, 1:] = last.recent[~begins, :-1]
        return cls(begun, last.inner)

    def states(self, history: Sequence[int]) -> Vectors:
        """(N, K * E)."""
        return self.recent[:, list(history)].reshape(len(self.recent), -1)
