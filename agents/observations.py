"""What turns raw observations into the state vectors that agents work on; nothing else knows about images.

Where observations are rows of numbers, a state is an observation. Where they are images, a state is the vectors that an
encoder makes of a few of them. With `history=(0, 6, 12)`, in steps back, and an episode of images f_0, f_1, ...

    step t      0              ...   7              ...   20
    state   f_0 f_0 f_0        ...  f_7 f_1 f_0     ...  f_20 f_14 f_8     the first image stands for those before it
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
from pidm_nav.agents.encoders import ConvEncoder, Frozen, encode, load_cnn, make_frame_encoder, output_size, shifted
from pidm_nav.agents.networks import Array, Scale
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.episode import Episode

Act = Callable[[Array, Any, NDArray[np.bool_]], tuple[Array, Any]]
EMBEDDED = "embedded"  # the task of demonstrations whose images have become states


class Observations:
    """Rows of numbers: a state is the observation, scaled by the bounds of its space."""

    dtype: type[np.generic] = np.float32
    vision: nn.Module | None = None  # the encoder of images, if any
    moving: bool = False  # whether states change while the agent is trained, as an encoder is trained with it
    scale: Scale  # scales states

    def __init__(self, space: spaces.Box, config: AgentConfig) -> None:
        if len(space.shape) != 1:
            raise ValueError(
                f"observations of shape {space.shape} and type {space.dtype} are neither rows of numbers nor "
                "frames (H, W, C) of bytes: wrap the environment first"
            )
        self.scale = Scale(space, config.reach, config.scale_observations)

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """Copy an array, which may be read-only, to the agent's device."""
        return torch.tensor(values, device=self.scale.center.device)

    def fit(self, dataset: DemoDataset) -> None:
        """Adapt to the demonstrations."""
        self.scale.fit(np.concatenate([episode.observations for episode in dataset]), dataset.goal_flags)

    def embedded(self, dataset: DemoDataset) -> DemoDataset:
        """Return the demonstrations with states, not yet scaled, as observations."""
        return dataset

    def table(self, episodes: Sequence[Episode], shift: int = 0) -> Table:
        """Return what training gathers states from."""
        rows = np.concatenate([episode.observations for episode in episodes]).astype(np.float32)
        return Table(self.scale(self.tensor(rows)))

    def act(self, act: Act, batch: NDArray[Any], state: Any, starts: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Call `act` with the states of raw observations."""
        return act(batch, state, starts)

    def pack(self, dataset: DemoDataset) -> dict[str, Tensor]:
        """Return embedded demonstrations as a few tensors, or nothing where that saves nothing."""
        return {}

    def unpack(self, memory: dict[str, Tensor]) -> DemoDataset | None:
        """Return the embedded demonstrations, without actions, that `pack` made tensors of, if any."""
        return None


@dataclass(frozen=True)
class Table:
    """All observations, one episode after the other; training gathers scaled states from it by row."""

    values: Tensor  # (N, D)
    costly = False  # whether a state is much more expensive than a look-up

    def __len__(self) -> int:
        return len(self.values)

    def gather(self, rows: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        """Return the scaled states (B, D) of these rows; `rng` draws the random shift of images in training."""
        return self.values[rows]

    def settled(self) -> Table:
        """Return the table for an encoder whose weights no longer change."""
        return self

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield all states, `size` at a time."""
        for rows in torch.split(torch.arange(len(self), device=self.values.device), size):
            yield self.gather(rows)


class FrameObservations(Observations):
    """Images (H, W, C) of bytes: a state is the vectors of a few images, which the encoder has scaled."""

    dtype = np.uint8
    vision: nn.Module

    def __init__(self, space: spaces.Box, config: AgentConfig, encoder: nn.Module | None) -> None:
        self.vision = make_frame_encoder(config.frames, space.shape, config.frame_size, encoder)
        self.moving = not isinstance(self.vision, Frozen)
        self.frames, self.history = config.frames, config.history
        width = len(self.history) * output_size(self.vision)
        self.scale = Scale(spaces.Box(-np.inf, np.inf, (width,), np.float32), enabled=False)

    def fit(self, dataset: DemoDataset) -> None:
        """Adapt the encoder's scales to the demonstrations."""
        images = [episode.observations for episode in dataset]
        if isinstance(self.vision, Frozen):
            if isinstance(self.vision.inner, ConvEncoder) and self.frames.startswith("agent:"):
                load_cnn(self.vision.inner, self.frames.removeprefix("agent:"))
            self.vision.fit(np.concatenate(self.vision.embed(images)))
        elif isinstance(self.vision, ConvEncoder):
            self.vision.fit(images)

    def vectors(self, episodes: Sequence[Episode]) -> list[Array]:
        """Return the vectors (T+1, E) of the images of each episode."""
        images = [episode.observations for episode in episodes]
        if isinstance(self.vision, Frozen):
            return [self.vision.scale(self.tensor(raw)).cpu().numpy() for raw in self.vision.embed(images)]
        return [encode(self.vision, each, self.scale.center.device).cpu().numpy() for each in images]

    def embedded(self, dataset: DemoDataset) -> DemoDataset:
        """Return the demonstrations with states as observations."""
        episodes = [
            replace(episode, observations=stack_history(vectors, self.history))
            for episode, vectors in zip(dataset, self.vectors(dataset.episodes), strict=True)
        ]
        return replace(dataset, task=EMBEDDED, episodes=tuple(episodes))

    def table(self, episodes: Sequence[Episode], shift: int = 0) -> Table:
        """Return what training gathers states from: images, or their vectors where the encoder is frozen."""
        history = self.tensor(history_rows([len(episode.observations) for episode in episodes], self.history))
        if not self.moving:
            return FrameTable(self.tensor(np.concatenate(self.vectors(episodes))), history)
        images = torch.from_numpy(np.concatenate([episode.observations for episode in episodes]))
        return FrameTable(images.to(self.scale.center.device), history, self.vision, shift)

    def act(self, act: Act, batch: NDArray[Any], state: Any, starts: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Call `act` with the states of images; those of the last steps are in `state`."""
        recent = latest_vectors(state, self.vision(self.tensor(batch)).cpu().numpy(), starts, max(self.history))
        states = recent[:, list(self.history)].reshape(len(recent), -1)
        actions, inner = act(states, None if state is None else state.inner, starts)
        return actions, Recall(recent, inner)

    def pack(self, dataset: DemoDataset) -> dict[str, Tensor]:
        """Return the vectors of embedded demonstrations, each once."""
        newest = np.concatenate([episode.observations[:, : output_size(self.vision)] for episode in dataset])
        return {
            "vectors": torch.tensor(newest),
            "lengths": torch.tensor([len(episode.observations) for episode in dataset]),
        }

    def unpack(self, memory: dict[str, Tensor]) -> DemoDataset | None:
        """Return the demonstrations that `pack` made tensors of."""
        if "vectors" not in memory:
            return None
        episodes = []
        for vectors in torch.split(memory["vectors"], memory["lengths"].tolist()):
            steps = len(vectors) - 1
            states = stack_history(vectors.numpy(), self.history)
            episodes.append(Episode(states, np.zeros((steps, 1)), np.zeros(steps), False, True))
        return DemoDataset(EMBEDDED, tuple(episodes))


@dataclass(frozen=True)
class FrameTable(Table):
    """Images (N, H, W, C) as bytes, or vectors (N, E) where no encoder is given."""

    history: Tensor  # (N, K) int64: the rows that make up a row's state
    encoder: nn.Module | None = None
    shift: int = 0  # largest random shift of images in training, in pixels
    costly = True

    def gather(self, rows: Tensor, rng: np.random.Generator | None = None) -> Tensor:
        """Return the states of these rows; an image that belongs to several is encoded once."""
        parts = self.history[rows]  # (B, K)
        if self.encoder is None:
            return self.values[parts].flatten(1)
        distinct, where = torch.unique(parts, return_inverse=True)
        images = self.values[distinct]
        if rng is not None and self.shift:
            images = shifted(images, self.shift, rng)
        vectors: Tensor = self.encoder(images)
        return vectors[where].flatten(1)

    def settled(self) -> Table:
        """Return the table with vectors in place of images."""
        if self.encoder is None:
            return self
        vectors = encode(self.encoder, self.values.cpu().numpy(), self.values.device)
        return replace(self, values=vectors, encoder=None)


def make_observations(
    space: spaces.Box, config: AgentConfig, encoder: nn.Module | None
) -> tuple[Observations, nn.Module | None]:
    """Return what handles a space's observations, and the user's encoder if that is one of states, not of images."""
    if len(space.shape) == 3 and space.dtype == np.uint8:
        return FrameObservations(space, config, encoder), None
    return Observations(space, config), encoder


def history_rows(lengths: ArrayLike, history: Sequence[int]) -> NDArray[np.int64]:
    """Return (N, K) rows whose vectors make up each row's state, for episodes of these lengths in a row."""
    counts = np.asarray(lengths, dtype=np.int64)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    rows: NDArray[np.int64] = np.arange(counts.sum())[:, None] - np.asarray(history, dtype=np.int64)
    return np.maximum(rows, first[:, None])


def stack_history(vectors: Array, history: Sequence[int]) -> Array:
    """Return the states (T+1, K * E) of one episode's vectors (T+1, E)."""
    return vectors[history_rows([len(vectors)], history)].reshape(len(vectors), -1)


class Recall(NamedTuple):
    """What `predict` of an agent that sees images hands from call to call, one row per episode."""

    recent: Array  # (N, L, E) vectors, the newest first
    inner: Any  # the memory of the agent's other parts


def latest_vectors(last: Any, vectors: Array, begins: NDArray[np.bool_], depth: int) -> Array:
    """Return (N, depth + 1, E): new vectors (N, E) and those before, which a row that begins an episode repeats."""
    recent = np.repeat(vectors[:, None], depth + 1, axis=1)
    if last is None:
        return recent
    if not isinstance(last, Recall) or last.recent.shape != recent.shape:
        raise ValueError(
            f"the state passed to predict is not that of {len(vectors)} rows: pass what the last call with as many "
            "rows returned, or None"
        )
    recent[~begins, 1:] = last.recent[~begins, :-1]
    return recent
