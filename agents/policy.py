"""NavPolicy: the base of every agent, a torch module that any Gymnasium or Stable-Baselines3 loop can run."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from pidm_nav.agents.config import FRAME_NETWORKS, FROZEN, PAPER, PIXELS, AgentConfig, Preset, TrainConfig
from pidm_nav.agents.encoders import output_size
from pidm_nav.agents.networks import Array, Encoder, Remembering, Scale
from pidm_nav.agents.observations import Observations, Samples
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.episode import Plottable
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_WEIGHTS = 100_000_000
SHOWN = 10  # episodes in the picture that notebooks show
Loss = Callable[[Tensor, Tensor], Tensor]  # (N, A), (N, A) -> (N, A), element by element


def find_device(name: str) -> torch.device:
    """Return the device of a name: cpu, cuda, cuda:1, mps, or auto for a GPU where there is one."""
    counts = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    here = [kind for kind, count in counts.items() if count]
    kind, _, number = (here[0] if name == "auto" else name).partition(":")
    if kind not in here or (number and not (number.isdecimal() and int(number) < counts[kind])):
        raise ValueError(f"there is no device '{name}' that torch can use here: choose {' or '.join(['auto', *here])}")
    return torch.device(f"{kind}:{int(number)}" if number else kind)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def same_space(own: spaces.Box, given: spaces.Space[Any]) -> bool:
    """Return whether two boxes have the same shape and bounds."""
    if not isinstance(given, spaces.Box) or own.shape != given.shape:
        return False
    return np.allclose([own.low, own.high], [given.low, given.high])


class NavPolicy(Remembering, Plottable, nn.Module, ABC):
    """An agent: raw observations in, actions inside the action space out, NumPy arrays on both sides.

    Args:
        encoder: a module to use instead of the package's own encoder of states or, where observations are images,
            of images. It needs an `output_size`, and `load_agent` needs it again.
        seed: seed of what the agent draws when it acts (the demonstration that `TimeIndexed` follows).
    """

    name: ClassVar[str]
    config_class: ClassVar[type[AgentConfig]] = AgentConfig
    trainable: ClassVar[bool] = True  # whether gradient steps do anything
    presets: ClassVar[Mapping[str, Preset]] = {
        "fast": Preset(AgentConfig(), TrainConfig(learning_rate=1e-3)),
        "paper-fast": Preset(AgentConfig(), TrainConfig(learning_rate=1e-3)),  # the paper's networks, in fewer steps
        "paper": Preset(
            AgentConfig(scale_observations=False),
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
        if not isinstance(observation_space, spaces.Box) or not isinstance(action_space, spaces.Box):
            raise ValueError(
                f"agents need Box spaces, not {observation_space} and {action_space}: wrap the environment"
            )
        if not action_space.is_bounded() or len(action_space.shape) != 1:
            raise ValueError(f"{action_space} cannot be filled by tanh: actions need one row of finite bounds")
        self.observation_space, self.action_space = observation_space, action_space
        self.config = config if config is not None else self.config_class()
        self.custom_encoder, self.seed = encoder is not None, seed
        self.threads = 1  # torch threads while acting: more only pay off for large encoders
        # Plain JSON values about the agent's origin: task, env_kwargs, data, training; set by train, kept by save
        self.description: dict[str, Any] = {}
        self.observations = Observations(observation_space, self.config, encoder)
        # registered here, under the names that saved weights have
        self.vision, self.scale = self.observations.vision, self.observations.scale
        self.action_scale = Scale(action_space)
        self.build(encoder if self.vision is None else None)

    @classmethod
    def preset(cls, name: str, task: str = "") -> Preset:
        """Return the agent's settings under a preset's name, as tuned for a task where the paper did that."""
        if name not in cls.presets:
            raise ValueError(f"no preset is called '{name}': choose one of {', '.join(cls.presets)}")
        preset = cls.presets[name]
        return replace(preset, options=cls.config_class(**vars(preset.options)))

    @property
    def state_size(self) -> int:
        """Size of the state vectors that the agent's networks get."""
        return self.scale.center.numel()

    @property
    def action_size(self) -> int:
        """Number of components of an action."""
        return int(self.action_space.shape[0])

    def make_encoder(self, encoder: nn.Module | None) -> tuple[nn.Module, int]:
        """Return the given encoder of states, or the paper's, and the size of its embeddings."""
        encoder = Encoder(self.state_size, self.config.encoder_sizes) if encoder is None else encoder
        return encoder, output_size(encoder)

    @abstractmethod
    def build(self, encoder: nn.Module | None) -> None:
        """Make the networks and other parts; `encoder` is the user's own encoder of states, if any."""

    @abstractmethod
    def act(self, states: Array, memory: Any, episode_start: NDArray[np.bool_]) -> tuple[Array, Any]:
        """Return actions (N, A) for unscaled states (N, D), and the memory for the next call."""

    def prepare(self, dataset: DemoDataset, extra: Sequence[DemoDataset] = (), idm: Sequence[DemoDataset] = ()) -> None:
        """Take from the demonstrations, and from other data of PIDM's parts, what needs no gradients."""
        self.observations.fit(dataset)

    def settle(self) -> None:
        """Adapt what depends on trained weights; called when training ends and before each checkpoint."""

    def findings(self) -> dict[str, Any]:
        """Return what is worth knowing about the trained agent, as plain JSON values for its description."""
        return {}

    def predicted_futures(self, datasets: Sequence[DemoDataset]) -> Tensor | None:
        """Return scaled future states (N, D) to train on instead of those in the data, if the agent wants that."""
        return None

    def candidates(self, samples: Samples, batch_size: int) -> tuple[Tensor, int]:
        """Return the numbers that batches are drawn from, which `loss` understands, and how many make up a batch."""
        return samples.rows, batch_size

    def loss(self, samples: Samples, chosen: Tensor, measure: Loss, rng: np.random.Generator | None = None) -> Tensor:
        """Return the training loss, a scalar, on the chosen candidates; `rng` draws random changes of the inputs."""
        raise NotImplementedError(f"{type(self).__name__} is not trained by gradients")

    @torch.no_grad()
    def predict(
        self,
        observation: ArrayLike,
        state: Any = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Array, Any]:
        """Return actions for one raw observation or a batch of them, like Stable-Baselines3's `predict`.

        Args:
            observation: (D,) gives an (A,) action, (N, D) gives (N, A); likewise (H, W, C) and (N, H, W, C) images.
            state: what the last call returned, or None at the start; needed by agents that count steps or see images.
            episode_start: (N,) True for rows that begin an episode.
            deterministic: ignored, as agents are deterministic given `state`.
        """
        if self.training:
            self.eval()  # batch norm must not learn from what the agent sees while acting
        if isinstance(observation, dict):
            raise ValueError("the observation is a dict: this agent takes arrays, flatten the observations first")
        shape = self.observation_space.shape
        rows = np.asarray(observation, dtype=np.float32 if self.vision is None else np.uint8)
        batch = rows[None] if rows.shape == shape else rows
        if batch.shape[1:] != shape:
            made_for = f"{shape} ({self.description['task']})" if "task" in self.description else shape
            raise ValueError(
                f"observations of shape {rows.shape} do not fit this agent, made for {made_for}: use its environment"
            )
        if not np.isfinite(batch).all():
            raise ValueError("an observation holds NaN or infinity: check what was passed to predict")
        starts = np.zeros(len(batch), dtype=bool)
        if episode_start is not None:
            starts |= np.asarray(episode_start, dtype=bool).reshape(-1)
        with torch_threads(self.threads):
            actions, state = self.observations.act(self.act, batch, state, starts)
        actions = np.clip(actions, self.action_space.low, self.action_space.high).astype(np.float32, copy=False)
        return (actions[0] if rows.shape == shape else actions), state

    def to_actions(self, outputs: Tensor) -> Array:
        """Turn network outputs in [-1, 1] into actions of the space."""
        actions: Array = self.action_scale.inverse(outputs).cpu().numpy()
        return actions

    def save(self, folder: str | Path) -> Path:
        """Write weights, memory and description into a folder that `load_agent` reads."""
        from pidm_nav.agents.checkpoint import save_agent

        return save_agent(self, folder)

    def plot(self) -> Figure:
        """Draw a few episodes of the agent in its task, where they take no time; the agent itself stays as it is."""
        if not (task := TASKS[self.description["task"]]).has_2d_state or self.vision is not None:
            raise ValueError(f"rollouts of {task.name} take too long for a picture")
        return evaluate(copy.deepcopy(self), task, SHOWN, **self.description["env_kwargs"]).plot()

    def __repr__(self) -> str:
        episodes = self.description.get("data", {}).get("episodes")
        origin = f"task={self.description.get('task')}, {episodes} demonstrations" if episodes else "untrained"
        parameters = sum(each.numel() for each in self.parameters())
        return f"{type(self).__name__}({origin}, {parameters:,} parameters)"


AGENTS: dict[str, type[NavPolicy]] = {}
"""All agents by name; `pidm_nav.agents`, which imports them, puts them here."""


def agent_class(name: str) -> type[NavPolicy]:
    """Return the agent of that name."""
    if name not in AGENTS:
        raise ValueError(f"no agent is called '{name}': choose one of {', '.join(AGENTS)}")
    return AGENTS[name]


def make_agent(
    name: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    options: AgentConfig | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
) -> NavPolicy:
    """Return a new agent whose weights are drawn from `seed`; torch's global random state is left as it was."""
    kind = agent_class(name)
    if options is not None and type(options) is not kind.config_class:
        raise ValueError(f"{type(options).__name__} is not for {name}: give a {kind.config_class.__name__} as options")
    options = options or kind.config_class()
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):  # which takes no memory
            pretrained = options.frames.startswith(("vit:", "efficientnet"))  # which would be loaded
            frames = "random" if pretrained else options.frames
            sketch = kind(observation_space, action_space, replace(options, frames=frames), encoder=encoder)
        weights = sum(each.numel() for each in sketch.parameters() if each.is_meta)
        if weights > MAX_WEIGHTS:
            raise ValueError(
                f"{name} has {weights:,} weights with these settings, and at most {MAX_WEIGHTS:,} are allowed: "
                "choose smaller encoder_sizes, head_sizes or images"
            )
        torch.manual_seed(seed)
        return kind(observation_space, action_space, options, encoder=encoder, seed=seed)
