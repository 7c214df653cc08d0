"""State vectors from raw observations; no other module of agents depends on whether observations are images.

If observations are vectors, a state is an observation. If they are images, a state is the embeddings of a few of them.
With `history=(0, 6, 12)`, in steps back, and an episode of images f_0, f_1, ...

    step t      0              ...   7              ...   20
    state   f_0 f_0 f_0        ...  f_7 f_1 f_0     ...  f_20 f_14 f_8     the first image repeats before the start
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.config import AgentConfig
from pidm_nav.agents.encoders import ConvEncoder, Frozen, encode, make_frame_encoder, output_size, shifted
from pidm_nav.agents.networks import Array, Scale, check_rows
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.episode import Episode

Act = Callable[[Array, Any, NDArray[np.bool_]], tuple[Array, Any]]
EMBEDDED = "embedded"  # task of demonstrations with embedded images


class Observations:
    """Converts the observations of a space to states; `vision` is the image encoder, if they are images."""

    vision: nn.Module | None = None

    def __init__(self, space: spaces.Box, config: AgentConfig, encoder: nn.Module | None) -> None:
        self.history = config.history
        if len(space.shape) == 3 and space.dtype == np.uint8:
            self.vision = make_frame_encoder(config.frames, space.shape, config.frame_size, encoder)
            space = spaces.Box(-np.inf, np.inf, (len(self.history) * output_size(self.vision),), np.float32)
        elif len(space.shape) != 1:
            kinds = "neither vectors nor uint8 images (H, W, C)"
            raise ValueError(f"observations {space.shape} of {space.dtype} are {kinds}: wrap the environment first")
        # whether states change during training
        self.encoder_trainable = self.vision is not None and not isinstance(self.vision, Frozen)
        # image encoders scale their embeddings
        self.scale = Scale(space, config.reach, config.scale_observations and self.vision is None)

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """Copy an array, which may be read-only, to the agent's device."""
        return torch.tensor(values, device=self.scale.center.device)

    def fit(self, dataset: DemoDataset) -> None:
        """Fit the scales to the demonstrations."""
        observations = [episode.observations for episode in dataset]
        if isinstance(self.vision, ConvEncoder | Frozen):
            self.vision.fit(observations)
        elif self.vision is None:
            self.scale.fit(np.concatenate(observations), dataset.goal_flags)

    def vectors(self, episodes: Sequence[NDArray[np.uint8]]) -> list[Array]:
        """Return the embeddings (T+1, E) of each episode's images."""
        if isinstance(self.vision, Frozen):
            return [self.vision.scale(self.tensor(raw)).cpu().numpy() for raw in self.vision.embed(episodes)]
        assert self.vision is not None
        return [encode(self.vision, self.tensor(images)).cpu().numpy() for images in episodes]

    def embedded(self, dataset: DemoDataset) -> DemoDataset:
        """Return the demonstrations with raw states as observations."""
        if self.vision is None:
            return dataset
        vectors = self.vectors([episode.observations for episode in dataset])
        episodes = [
            replace(episode, observations=stack_history(own, self.history))
            for episode, own in zip(dataset, vectors, strict=True)
        ]
        return replace(dataset, task=EMBEDDED, episodes=tuple(episodes))

    def table(self, episodes: Sequence[Episode], shift: int = 0) -> StateTable:
        """Return the table of training states, which holds images if their encoder is trained."""
        observations = [episode.observations for episode in episodes]
        if self.vision is None:
            return StateTable(self.scale(self.tensor(np.concatenate(observations))))
        history = self.tensor(history_rows([len(images) for images in observations], self.history))
        if isinstance(self.vision, Frozen):
            return StateTable(self.tensor(np.concatenate(self.vectors(observations))), history)
        images = torch.from_numpy(np.concatenate(observations)).to(self.scale.center.device)
        return StateTable(images, history, self.vision, shift)

    def act(self, act: Act, batch: NDArray[Any], state: Any, starts: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Call `act` with the states of raw observations; `state` holds the embeddings of recent images."""
        if self.vision is None:
            return act(batch, state, starts)
        recent = latest_vectors(state, self.vision(self.tensor(batch)).cpu().numpy(), starts, max(self.history))
        states = recent[:, list(self.history)].reshape(len(recent), -1)
        actions, inner = act(states, None if state is None else state.inner, starts)
        return actions, Recall(recent, inner)


@dataclass(frozen=True)
class StateTable:
    """All observations, one episode after the other, from which scaled states are looked up by row."""

    values: Tensor  # (N, D) states; with a history, (N, E) embeddings or, with an encoder, (N, H, W, C) images
    history: Tensor | None = None  # (N, K) int64: the rows that form a row's state
    encoder: nn.Module | None = None
    shift: int = 0  # largest random shift of images in training, in pixels

    def __len__(self) -> int:
        return len(self.values)

    def lookup(self, rows: Tensor, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return scaled states (U, D), and the index of each of `rows` in them; `rng` draws random image shifts."""
        if self.history is None:
            return self.values, rows
        distinct, index = torch.unique(rows, return_inverse=True)
        parts = self.history[distinct]  # (U, K)
        if self.encoder is None:
            return self.values[parts].flatten(1), index
        needed, where = torch.unique(parts, return_inverse=True)  # encode an image of several states once
        images = self.values[needed]
        if rng is not None and self.shift:
            images = shifted(images, self.shift, rng)
        vectors: Tensor = self.encoder(images)
        return vectors[where].flatten(1), index

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield all states, `size` at a time, with fixed encoder weights."""
        table = self
        if self.encoder is not None:
            table = replace(self, values=encode(self.encoder, self.values), encoder=None)
        for rows in torch.split(torch.arange(len(self), device=self.values.device), size):
            states, index = table.lookup(rows)
            yield states[index]


def history_rows(lengths: ArrayLike, history: Sequence[int]) -> NDArray[np.int64]:
    """Return the rows (N, K) that form each row's state, for concatenated episodes of these lengths."""
    counts = np.asarray(lengths, dtype=np.int64)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    rows: NDArray[np.int64] = np.arange(counts.sum())[:, None] - np.asarray(history, dtype=np.int64)
    return np.maximum(rows, first[:, None])


def stack_history(vectors: Array, history: Sequence[int]) -> Array:
    """Return the states (T+1, K * E) of one episode's embeddings (T+1, E)."""
    return vectors[history_rows([len(vectors)], history)].reshape(len(vectors), -1)


class Recall(NamedTuple):
    """State of `predict` for image observations, one row per episode."""

    recent: Array  # (N, L, E) embeddings, the newest first
    inner: Any  # the agent's own memory


def latest_vectors(last: Any, vectors: Array, begins: NDArray[np.bool_], depth: int) -> Array:
    """Return (N, depth + 1, E): new and earlier embeddings; a row that begins an episode repeats its new one."""
    recent = np.repeat(vectors[:, None], depth + 1, axis=1)
    if last is not None:
        before: Any = getattr(last, "recent", ())
        check_rows(before, recent.shape)
        recent[~begins, 1:] = before[~begins, :-1]
    return recent
