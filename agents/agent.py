"""Agent: the base class of agents, torch modules that act in any Gymnasium or Stable-Baselines3 loop.

A new agent defines `build`, `act` and, if it is trained by gradients, `sampling` and `loss`:

    class Mine(Agent):
        name = "mine"

        def build(self, encoder):
            self.encoder, size = self.make_encoder(encoder)
            self.head = self.make_head(size)

        def loss(self, batch, rng):
            outputs = self.head(self.encoder(batch.now_states))
            return {"bc": batch.mean(self.actions.distance(outputs, batch.action))}

        def act(self, states, memory, episode_start):
            return self.actions.decode(self.head(self.encoder(self.scaled(states)))), memory
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.batches import Batch, Sampling, TrainingData
from pidm_nav.agents.config import (
    FRAME_NETWORKS,
    FROZEN,
    PAPER,
    PAPER_OPTIONS,
    PIXELS,
    AgentConfig,
    Preset,
    TrainConfig,
)
from pidm_nav.agents.encoders import output_size
from pidm_nav.agents.heads import make_actions
from pidm_nav.agents.images import Observations
from pidm_nav.agents.networks import Array, Encoder, Head, Remembering
from pidm_nav.demos.failed import Failed
from pidm_nav.rollouts.episode import Plottable
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.tasks import find_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self  # Python 3.10 has none in typing

    from pidm_nav.agents.train import Spaces

SHOWN = 10  # episodes in the picture that notebooks show
Starts = NDArray[np.bool_]  # (N,) True for rows that begin an episode


def find_device(name: str) -> torch.device:
    """Return the torch device for a name: cpu, cuda, cuda:1, mps, or auto (a GPU if there is one)."""
    counts = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    here = [kind for kind, count in counts.items() if count]
    kind, _, number = (here[0] if name == "auto" else name).partition(":")
    if kind not in here or (number and not (number.isdecimal() and int(number) < counts[kind])):
        raise ValueError(f"torch finds no device '{name}' here: choose {' or '.join(['auto', *here])}")
    return torch.device(f"{kind}:{int(number)}" if number else kind)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run the block with `count` torch threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Run the block with a module in evaluation mode, then restore the mode of each of its parts."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def same_space(own: spaces.Space[Any], given: spaces.Space[Any]) -> bool:
    """Return whether two spaces are of the same kind, shape and bounds."""
    if not isinstance(own, spaces.Box) or not isinstance(given, spaces.Box):
        return own == given
    return own.shape == given.shape and np.allclose([own.low, own.high], [given.low, given.high])


class Agent(Remembering, Plottable, nn.Module, ABC):
    """Base class of agents, which map raw observations to actions in the action space, as NumPy arrays.

    Args:
        encoder: module that replaces the package's encoder of states, or of images if observations are images. It
            needs an `output_size`, and `load_agent` needs it again.
        seed: seed of the agent's randomness when acting, such as the demonstration that `time` follows.
    """

    kind: ClassVar[str] = "agent"
    name: ClassVar[str]
    """Name in files, on the command line and in sweeps."""
    title: ClassVar[str] = ""
    """Title in figures and tables. Default: the name."""
    color: ClassVar[str] = ""
    """Color in figures, such as "#2a78d6". Default: the next free one."""
    config_class: ClassVar[type[AgentConfig]] = AgentConfig
    """Class of the settings."""
    trainable: ClassVar[bool] = True
    """Whether the agent is trained by gradient steps."""
    failed: ClassVar[Failed] = "trim"
    """What `train` does with failed demonstrations by default."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """Data besides demonstrations: "predictor_data", "idm_data"."""
    presets: ClassVar[Mapping[str, Preset]] = {
        "fast": Preset(AgentConfig(), TrainConfig(learning_rate=1e-3)),
        "paper-fast": Preset(AgentConfig(), TrainConfig(learning_rate=1e-3)),  # the paper's networks, in fewer steps
        "paper": Preset(
            AgentConfig(**PAPER_OPTIONS),
            TrainConfig(learning_rate=1e-5, final_learning_rate=1e-5, gradient_clip=None, **PAPER),
        ),
        "pixels": Preset(AgentConfig(**FRAME_NETWORKS), TrainConfig(learning_rate=1e-3, **PIXELS)),
        "frozen": Preset(AgentConfig(frames="random", **FRAME_NETWORKS), TrainConfig(learning_rate=1e-3, **FROZEN)),
    }

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
        if not isinstance(observation_space, spaces.Box):
            raise ValueError(f"agents take Box observations, not {observation_space}: wrap the environment")
        self.observation_space, self.action_space = observation_space, action_space
        self.config = config if config is not None else self.config_class()
        self.custom_encoder, self.seed = encoder is not None, seed
        self.threads = 1  # torch threads while acting; more are faster only for large encoders
        # plain JSON values about the agent's origin: task, env_kwargs, data, training
        self.description: dict[str, Any] = {}
        self.observations = Observations(observation_space, self.config, encoder)
        self.vision, self.scale = self.observations.vision, self.observations.scale
        self.actions = make_actions(action_space, self.config.loss)
        self.build(encoder if self.vision is None else None)

    @abstractmethod
    def build(self, encoder: nn.Module | None) -> None:
        """Make the networks and other parts; `encoder` is the user's encoder of states, if any."""

    @abstractmethod
    def act(self, states: Array, memory: Any, episode_start: Starts) -> tuple[Array, Any]:
        """Return actions (N, A) for raw states (N, D), and the memory for the next call."""

    @property
    def sampling(self) -> Sampling:
        """Sampling of the batches for `loss`."""
        return Sampling()

    def loss(self, batch: Batch, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the terms of the training loss by name, to be summed and logged; `rng` draws augmentations."""
        raise NotImplementedError(f"{type(self).__name__} is not trained by gradients")

    def prepare(self, data: TrainingData) -> None:
        """Fit everything that needs no gradients, such as scales."""
        self.observations.fit(data.demos)

    def predicted_futures(self, data: TrainingData) -> Tensor | None:
        """Return scaled futures (rows of the demonstrations, D) to train on instead of recorded ones, or None."""
        return None

    def after_training(self, data: TrainingData) -> None:
        """Fit everything that depends on trained weights; called in evaluation mode at checkpoints and at the end."""

    def diagnostics(self) -> dict[str, Any]:
        """Return measurements of the trained agent, as plain JSON values for its description."""
        return {}

    def outputs(self, states: Tensor) -> Tensor:
        """Return network outputs for scaled states (N, D), without memory and with gradients, for PPO."""
        raise ValueError(f"{self.name} has no actor for PPO: give an agent that has one, such as bc")

    learns_predictor: bool = False
    """Whether `loss` also trains a predictor of futures."""
    idm_share: float = 0.8
    """Fraction of each batch drawn from the extra data of the inverse dynamics model, if given."""

    @classmethod
    def preset(cls, name: str, task: str = "") -> Preset:
        """Return the settings of a preset; some depend on the task, as the paper tuned them."""
        if name not in cls.presets:
            raise ValueError(f"there is no preset '{name}': choose one of {', '.join(cls.presets)}")
        preset = cls.presets[name]
        return replace(preset, options=cls.config_class(**vars(preset.options)))

    @property
    def state_size(self) -> int:
        """Size of the state vectors."""
        return self.scale.center.numel()

    def make_encoder(self, encoder: nn.Module | None = None, norm: bool = True) -> tuple[nn.Module, int]:
        """Return the given encoder of states, or a new one, and the size of its embeddings.

        Without `norm`, a new one has no batch norm. The batch norm of modules named `encoder` is recomputed over all
        scaled states when training ends, so encoders of anything else need another name or none.
        """
        encoder = Encoder(self.state_size, self.config.encoder_sizes, norm) if encoder is None else encoder
        return encoder, output_size(encoder)

    def make_head(self, input_size: int, chunk: int = 1) -> Head:
        """Return a network from embeddings to the outputs of `chunk` actions."""
        return Head(input_size, chunk * self.actions.size, self.config.head_sizes, self.actions.squash)

    def scaled(self, states: Array) -> Tensor:
        """Return raw states (N, D) as a scaled tensor."""
        scaled: Tensor = self.scale(self.observations.tensor(states))
        return scaled

    @torch.no_grad()
    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], Any]:
        """Return actions for one raw observation or a batch, like Stable-Baselines3's `predict`.

        Args:
            observation: (D,) gives an (A,) action, (N, D) gives (N, A); likewise (H, W, C) and (N, H, W, C) images.
                Discrete actions are one integer each.
            state: the state that the last call returned, or None at the start; used by agents with a memory and for
                images.
            episode_start: (N,) True for rows that begin an episode.
            deterministic: ignored; agents are deterministic given `state`.
        """
        if isinstance(observation, dict):
            raise ValueError("the observation is a dict, and agents take arrays: flatten the observations first")
        shape = self.observation_space.shape
        rows = np.asarray(observation, dtype=np.float32 if self.vision is None else np.uint8)
        batch = rows[None] if rows.shape == shape else rows
        if batch.shape[1:] != shape:
            made_for = f"{shape} ({self.description['task']})" if "task" in self.description else shape
            raise ValueError(
                f"observations have shape {rows.shape}, and this agent takes {made_for}: use its environment"
            )
        if not np.isfinite(batch).all():
            raise ValueError("an observation has NaN or infinity: check the argument of predict")
        starts = np.zeros(len(batch), dtype=bool)
        if episode_start is not None:
            starts |= np.asarray(episode_start, dtype=bool).reshape(-1)
        with torch_threads(self.threads), eval_mode(self):  # acting must not update batch norm
            actions, state = self.observations.act(self.act, batch, state, starts)
        actions = np.asarray(actions)  # `act` may return a tensor
        if isinstance(self.action_space, spaces.Box):
            actions = np.clip(actions, self.action_space.low, self.action_space.high).astype(np.float32, copy=False)
        else:
            actions = actions[:, 0].astype(np.int64)
        return (actions[0] if rows.shape == shape else actions), state

    def saved_config(self) -> AgentConfig:
        """Return the settings to save."""
        return self.config

    def save(self, folder: str | Path) -> Path:
        """Write weights, memory and description into a folder that `load_agent` reads."""
        from pidm_nav.agents.checkpoint import save_agent  # noqa: PLC0415  which imports this module

        return save_agent(self, folder)

    def to_onnx(self, path: str | Path) -> Path:
        """Write the agent as an ONNX file with the inputs and outputs listed in `pidm_nav.agents.export`."""
        from pidm_nav.agents.export import to_onnx  # noqa: PLC0415  which imports this module

        return to_onnx(self, path)

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Self:
        """Load an agent of this class, as `load_agent` does."""
        from pidm_nav.agents.checkpoint import load_agent  # noqa: PLC0415  which imports this module

        agent = load_agent(folder, **options)
        if not isinstance(agent, cls):
            raise ValueError(f"'{folder}' holds a {type(agent).__name__}, not a {cls.__name__}: use load_agent")
        return agent

    def plot(self) -> Figure:
        """Draw a few episodes of the agent in its task, for 2D tasks with states."""
        task = find_task(self.description["task"])
        if not task.has_2d_state or self.vision is not None:
            raise ValueError(f"rollouts of {task.name} take too long to draw: use evaluate")
        return evaluate(copy.deepcopy(self), task, SHOWN, **self.description["env_kwargs"]).plot()

    def __repr__(self) -> str:
        episodes = self.description.get("data", {}).get("episodes")
        origin = f"task={self.description.get('task')}, {episodes} demonstrations" if episodes else "untrained"
        parameters = sum(each.numel() for each in self.parameters())
        return f"{type(self).__name__}({origin}, {parameters:,} parameters)"


def make_agent(
    kind: type[Agent],
    env_spaces: Spaces,
    options: AgentConfig | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
) -> Agent:
    """Return a new agent with weights drawn from `seed`; torch's global random state does not change."""
    if options is not None and type(options) is not kind.config_class:
        given = f"{type(options).__name__} is not for {kind.name}"
        raise ValueError(f"{given}: give a {kind.config_class.__name__} as options")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(*env_spaces, options, encoder=encoder, seed=seed)
