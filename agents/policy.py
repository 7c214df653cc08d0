"""NavPolicy: the base of every agent, a torch module that any Gymnasium or Stable-Baselines3 loop can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.encoders import (
    ConvEncoder,
    Frozen,
    encode,
    is_image,
    load_cnn,
    make_frame_encoder,
    output_size,
    shifted,
)
from pidm_nav.agents.history import EMBEDDED, Recall, check_history, stack_history
from pidm_nav.agents.networks import Encoder, Scale

if TYPE_CHECKING:
    from pidm_nav.agents.samples import Samples
    from pidm_nav.demos.dataset import DemoDataset, Episode

Array = NDArray[np.float32]
Loss = Callable[[Tensor, Tensor], Tensor]  # (N, A), (N, A) -> (N, A), element by element


@dataclass(frozen=True)
class AgentConfig:
    """What every agent can be told about its networks; the defaults are the paper's."""

    encoder_sizes: tuple[int, ...] = (512, 1024, 256)  # batch norm follows the last
    head_sizes: tuple[int, ...] = (256,)  # between embedding and action
    scale_observations: bool = True  # by the space's bounds; off feeds raw pixels, as the paper's recipe does
    reach: float = 8.0  # bounds are scaled to plus and minus this: see Scale
    # for observations that are frames only
    frames: str = "cnn"  # what turns a frame into a vector: see encoders.py
    frame_size: int = 128  # numbers in a CNN's vector
    history: tuple[int, ...] = (0, 6, 12)  # steps back of the frames that make up a state

    def __post_init__(self) -> None:
        check_history(self.history)


class NavPolicy(nn.Module, ABC):
    """An agent: raw observations in, actions inside the action space out, NumPy on both sides.

    Args:
        observation_space: the Box of the environment it acts in; its bounds scale the observations.
        action_space: the Box its actions fill: tanh scaled to the bounds, which must be finite.
        config: an instance of the agent's `config_class`.
        encoder: another encoder than the paper's, with an `output_size`; `load_agent` then needs it again. Where
            observations are frames, another frame encoder.
        seed: of whatever the agent draws when it acts (the demonstration that `TimeIndexed` follows).
    """

    name: ClassVar[str]
    config_class: ClassVar[type[AgentConfig]] = AgentConfig
    trainable: ClassVar[bool] = True  # whether gradient steps do anything

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: AgentConfig | None = None,
        *,
        encoder: nn.Module | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(observation_space, spaces.Box) or not isinstance(action_space, spaces.Box):
            raise ValueError(
                f"agents act in Box spaces, not {type(observation_space).__name__} observations with "
                f"{type(action_space).__name__} actions: wrap the environment first"
            )
        if not action_space.is_bounded() or len(action_space.shape) != 1:
            raise ValueError(f"{action_space} cannot be filled by tanh: actions need one row of finite bounds")
        self.observation_space = observation_space
        self.action_space = action_space
        self.config = config if config is not None else self.config_class()
        self.vision: nn.Module | None = None
        state_space, scaled = observation_space, self.config.scale_observations
        if is_image(observation_space):
            kind, size = self.config.frames, self.config.frame_size
            self.vision = make_frame_encoder(kind, observation_space.shape, size, encoder)
            # a state is vectors, which the frame encoder has scaled
            width = len(self.config.history) * output_size(self.vision)
            state_space, scaled = spaces.Box(-np.inf, np.inf, (width,), np.float32), False
        elif len(observation_space.shape) != 1:
            raise ValueError(
                f"observations of shape {observation_space.shape} and type {observation_space.dtype} are neither rows "
                "of numbers nor frames (H, W, C) of bytes: wrap the environment first"
            )
        self.scale = Scale(state_space, self.config.reach, scaled)
        self.action_scale = Scale(action_space)
        self.custom_encoder = encoder is not None
        self.seed = seed
        # JSON-plain: task, env_kwargs, the data's summary, the training; filled by train(), kept by save()
        self.description: dict[str, Any] = {}
        self.build(encoder)

    @property
    def state_size(self) -> int:
        """Numbers in a state: an observation's, or those of the vectors of a few frames."""
        return self.scale.center.numel()

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return int(self.action_space.shape[0])

    @property
    def trains_vision(self) -> bool:
        """Whether a frame encoder is trained with the rest, so that vectors stand only when training ends."""
        return self.vision is not None and not isinstance(self.vision, Frozen)

    @property
    def device(self) -> torch.device:
        """Where the agent computes."""
        return self.scale.center.device

    def make_encoder(self, encoder: nn.Module | None) -> tuple[nn.Module, int]:
        """The encoder of states passed in, or the paper's; and the size of its embeddings."""
        if encoder is None or self.vision is not None:
            encoder = Encoder(self.state_size, self.config.encoder_sizes)
        return encoder, output_size(encoder)

    @abstractmethod
    def build(self, encoder: nn.Module | None) -> None:
        """Make the networks and other parts."""

    @abstractmethod
    def act(self, observations: Array, state: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Actions (N, A) for raw observations (N, D), or states (N, D) of frames; and the state for the next call."""

    def prepare(self, dataset: DemoDataset, extra: Sequence[DemoDataset] = ()) -> None:
        """Take from the demonstrations what needs no gradient: scales, memories, predictors."""
        frames = [episode.observations for episode in dataset]
        if self.vision is None:
            self.scale.fit(np.concatenate(frames), dataset.goal_flags)
        elif isinstance(self.vision, Frozen):
            from pidm_nav.agents.embeddings import embed_once

            if isinstance(self.vision.inner, ConvEncoder) and self.config.frames.startswith("agent:"):
                load_cnn(self.vision.inner, self.config.frames.removeprefix("agent:"))
            self.vision.fit(np.concatenate(embed_once(self.vision, frames, self.device)))
        elif isinstance(self.vision, ConvEncoder):
            self.vision.fit(frames)

    def embedded(self, dataset: DemoDataset) -> DemoDataset:
        """The demonstrations with states in place of frames; as they are, where observations are no frames."""
        if self.vision is None:
            return dataset
        from pidm_nav.agents.embeddings import embed

        vectors = embed(self.vision, [episode.observations for episode in dataset], self.device)
        episodes = [
            replace(episode, observations=stack_history(each, self.config.history))
            for episode, each in zip(dataset, vectors, strict=True)
        ]
        return replace(dataset, task=EMBEDDED, episodes=tuple(episodes))

    def rows(self, episodes: Sequence[Episode]) -> Tensor:
        """What training gathers states from: all observations, scaled; frames as bytes or, if frozen, as vectors."""
        observations = [episode.observations for episode in episodes]
        if self.vision is None:
            scaled: Tensor = self.scale(self.tensor(np.concatenate(observations).astype(np.float32)))
            return scaled
        if isinstance(self.vision, Frozen):
            from pidm_nav.agents.embeddings import embed

            return self.tensor(np.concatenate(embed(self.vision, observations, self.device)))
        return torch.from_numpy(np.concatenate(observations)).to(self.device)

    def gather(self, samples: Samples, rows: Tensor) -> Tensor:
        """(B, D) scaled states of these rows; a frame that stands in several is encoded once."""
        if samples.history is None:
            return samples.states[rows]
        parts = samples.history[rows]  # (B, K)
        if samples.states.dtype != torch.uint8:
            return samples.states[parts].flatten(1)
        assert self.vision is not None
        distinct, where = torch.unique(parts, return_inverse=True)
        frames = samples.states[distinct]
        if self.training and samples.shift:
            frames = shifted(frames, samples.shift, samples.draw)
        vectors: Tensor = self.vision(frames)
        return vectors[where].flatten(1)

    def batches(self, samples: Samples, size: int) -> Iterator[Tensor]:
        """All states, scaled, so many at a time."""
        if samples.history is None:
            yield from torch.split(samples.states, size)
        else:
            rows = torch.arange(len(samples.states), device=samples.states.device)
            yield from (self.gather(samples, part) for part in torch.split(rows, size))

    def settle(self, samples: Samples) -> Samples:
        """Called when training ends: the samples with frames as vectors, now that the weights stand."""
        if self.vision is None or not self.trains_vision:
            return samples
        return replace(samples, states=encode(self.vision, samples.states.cpu().numpy(), self.device))

    def predicted_futures(self, datasets: Sequence[DemoDataset]) -> Tensor | None:
        """(N, D) scaled future states to train on instead of the data's, if the agent wants that."""
        return None

    def candidates(self, samples: Samples) -> Tensor:
        """(P,) what batches are drawn from: numbers that `loss` understands."""
        return samples.rows

    def draws(self, samples: Samples, batch_size: int) -> int:
        """How many candidates make up a batch of about `batch_size` actions."""
        return batch_size

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss) -> Tensor:
        """The training loss on the chosen candidates, a scalar."""
        raise NotImplementedError(f"{type(self).__name__} is not trained by gradients")

    def memory(self) -> dict[str, Tensor]:
        """Tensors that `save` must keep besides the weights."""
        return {}

    def restore(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` gave."""

    @torch.no_grad()
    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Array, Any]:
        """Actions for one raw observation or a batch of them, in the shape of Stable-Baselines3's `predict`.

        Args:
            observation: (D,) gives an (A,) action, (N, D) gives (N, A); likewise (H, W, C) and (N, H, W, C) frames.
            state: what the last call returned; None begins anew. Agents that count steps or see frames use it.
            episode_start: (N,) True for rows that begin an episode.
            deterministic: ignored; the agents are deterministic given `state`.
        """
        if self.training:
            self.eval()  # batch norm must not learn from what the agent sees while acting
        batch, single = self._batch(observation)
        starts = np.zeros(len(batch), dtype=bool)
        if episode_start is not None:
            starts |= np.asarray(episode_start, dtype=bool).reshape(-1)
        if self.vision is None:
            actions, state = self.act(batch, state, starts)
        else:
            vectors = self.vision(self.tensor(batch)).cpu().numpy()
            recall = Recall.after(state, vectors, starts, self.config.history)
            actions, inner = self.act(recall.states(self.config.history), recall.inner, starts)
            state = Recall(recall.recent, inner)
        actions = np.clip(actions, self.action_space.low, self.action_space.high).astype(np.float32, copy=False)
        return (actions[0] if single else actions), state

    def _batch(self, observation: ArrayLike) -> tuple[NDArray[Any], bool]:
        """(N, D) float32 rows or (N, H, W, C) bytes, and whether it was one observation."""
        shape = self.observation_space.shape
        if isinstance(observation, dict):
            raise ValueError("the observation is a dict: this agent takes arrays, flatten the observations first")
        rows = np.asarray(observation, dtype=np.float32 if self.vision is None else np.uint8)
        single = rows.shape == shape
        if single:
            rows = rows[None]
        if rows.shape[1:] != shape:
            trained_for = f" ({self.description['task']})" if "task" in self.description else ""
            raise ValueError(
                f"observations of shape {rows.shape} do not fit this agent, made for {shape}{trained_for}: "
                "give it the environment it was trained for"
            )
        if self.vision is None and not np.isfinite(rows).all():
            raise ValueError("an observation holds NaN or infinity: check what was passed to predict")
        return rows, single

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """The array on the agent's device."""
        return torch.tensor(values, device=self.device)  # a copy: demonstrations are read-only

    def to_actions(self, outputs: Tensor) -> Array:
        """Network outputs in [-1, 1] as actions of the space."""
        actions: Array = self.action_scale.inverse(outputs).cpu().numpy()
        return actions

    def save(self, folder: str | Path) -> Path:
        """Write weights, memory and description into a folder that `load_agent` reads."""
        from pidm_nav.agents.checkpoint import save_agent

        return save_agent(self, folder)
