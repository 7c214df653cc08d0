"""NavPolicy: the base of every agent, a torch module that any Gymnasium or Stable-Baselines3 loop can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.networks import Encoder, Scale

if TYPE_CHECKING:
    from pidm_nav.agents.samples import Samples
    from pidm_nav.demos.dataset import DemoDataset

Array = NDArray[np.float32]
Loss = Callable[[Tensor, Tensor], Tensor]  # (N, A), (N, A) -> (N, A), element by element


@dataclass(frozen=True)
class AgentConfig:
    """What every agent can be told about its networks; the defaults are the paper's."""

    encoder_sizes: tuple[int, ...] = (512, 1024, 256)  # batch norm follows the last
    head_sizes: tuple[int, ...] = (256,)  # between embedding and action
    scale_observations: bool = True  # by the space's bounds; off feeds raw pixels, as the paper's recipe does
    reach: float = 8.0  # bounds are scaled to plus and minus this: see Scale


class NavPolicy(nn.Module, ABC):
    """An agent: raw observations in, actions inside the action space out, NumPy on both sides.

    Args:
        observation_space: the Box of the environment it acts in; its bounds scale the observations.
        action_space: the Box its actions fill: tanh scaled to the bounds, which must be finite.
        config: an instance of the agent's `config_class`.
        encoder: another encoder than the paper's, with an `output_size`; `load_agent` then needs it again.
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
        self.scale = Scale(observation_space, self.config.reach, self.config.scale_observations)
        self.action_scale = Scale(action_space)
        self.custom_encoder = encoder is not None
        self.seed = seed
        # JSON-plain: task, env_kwargs, the data's summary, the training; filled by train(), kept by save()
        self.description: dict[str, Any] = {}
        self.build(encoder)

    @property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        return int(np.prod(self.observation_space.shape))

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return int(self.action_space.shape[0])

    @property
    def device(self) -> torch.device:
        """Where the agent computes."""
        return self.scale.center.device

    def make_encoder(self, encoder: nn.Module | None) -> tuple[nn.Module, int]:
        """The encoder passed in, or the paper's; and the size of its embeddings."""
        if encoder is None:
            encoder = Encoder(self.observation_size, self.config.encoder_sizes)
        size = getattr(encoder, "output_size", None)
        if not isinstance(size, int):
            raise ValueError(f"the encoder {type(encoder).__name__} has no output_size: say how long its vectors are")
        return encoder, size

    @abstractmethod
    def build(self, encoder: nn.Module | None) -> None:
        """Make the networks and other parts."""

    @abstractmethod
    def act(self, observations: Array, state: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Actions (N, A) for raw observations (N, D), and the state for the next call."""

    def prepare(self, dataset: DemoDataset, extra: Sequence[DemoDataset] = ()) -> None:
        """Take from the demonstrations what needs no gradient: scales, memories, predictors."""
        self.scale.fit(np.concatenate([each.observations for each in dataset]), dataset.goal_flags)

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
            observation: (D,) gives an (A,) action, (N, D) gives (N, A).
            state: what the last call returned; None begins anew. Only agents that count steps use it.
            episode_start: (N,) True for rows that begin an episode.
            deterministic: ignored; the agents are deterministic given `state`.
        """
        if self.training:
            self.eval()  # batch norm must not learn from what the agent sees while acting
        batch, single = self._batch(observation)
        starts = np.zeros(len(batch), dtype=bool)
        if episode_start is not None:
            starts |= np.asarray(episode_start, dtype=bool).reshape(-1)
        actions, state = self.act(batch, state, starts)
        actions = np.clip(actions, self.action_space.low, self.action_space.high).astype(np.float32, copy=False)
        return (actions[0] if single else actions), state

    def _batch(self, observation: ArrayLike) -> tuple[Array, bool]:
        """(N, D) float32 rows, and whether it was one observation."""
        shape = self.observation_space.shape
        if isinstance(observation, dict):
            raise ValueError("the observation is a dict: this agent takes arrays, flatten the observations first")
        rows = np.asarray(observation, dtype=np.float32)
        single = rows.shape == shape
        if single:
            rows = rows[None]
        if rows.shape[1:] != shape:
            trained_for = f" ({self.description['task']})" if "task" in self.description else ""
            raise ValueError(
                f"observations of shape {rows.shape} do not fit this agent, made for {shape}{trained_for}: "
                "give it the environment it was trained for"
            )
        if not np.isfinite(rows).all():
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
