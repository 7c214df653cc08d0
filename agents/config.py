"""Settings of agents and of training, and presets that combine them.

A preset sets the sizes of the networks and the length of training, never the algorithm.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from pidm_nav.limits import suggestion

MAX_SHIFT = 15  # the smallest frame that the CNN takes has 16 pixels per side

# Limits of settings from arguments, options and files: a value beyond them is a mistake or a damaged file.
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Counts = Annotated[tuple[Count, ...], Meta(max_length=1_000)]
Size = Annotated[int, Meta(ge=1, le=8192)]
Sizes = Annotated[tuple[Size, ...], Meta(max_length=16)]
Fraction = Annotated[float, Meta(ge=0, le=1)]


class Checked:
    """Base class of dataclasses whose values must have their declared types and lie within their limits."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self), include_extras=True).items():
            try:
                msgspec.convert(getattr(self, name), kind)
            except msgspec.ValidationError as error:
                choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
                remedy = f"choose {' or '.join(choices)}" if choices else str(error).replace("Expected", "expected")
                raise ValueError(f"{name} is {getattr(self, name)}: {remedy}") from None


@dataclass(frozen=True)
class AgentConfig(Checked):
    """Settings that all agents share; the defaults are the paper's for 2D navigation."""

    encoder_sizes: Sizes = (512, 1024, 256)
    """Layer sizes of the state encoder; batch norm follows the last layer."""
    head_sizes: Sizes = (256,)
    """Layer sizes of the head, from the embedding to the action."""
    loss: Literal["l1", "mse"] = "mse"
    """Loss on actions: l1 (the paper's) or mse."""
    scale_observations: bool = True
    """Scale observations by the bounds of their space instead of using raw values."""
    reach: Annotated[float, Meta(ge=1e-6, le=1e6)] = 8.0
    """Absolute value to which the bounds of the observation space are scaled."""
    frames: str = "cnn"
    """Image encoder: cnn (trained), or a frozen one: random, agent:FOLDER, efficientnet, vit:FOLDER, vit:HUB-NAME."""
    frame_size: Size = 128
    """Size of the image embedding of cnn, random and efficientnet."""
    history: Annotated[tuple[Annotated[int, Meta(ge=0, le=1_000)], ...], Meta(max_length=64)] = (0, 6, 12)
    """Images that form a state, in steps before the current one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.history or self.history[0] != 0 or any(a >= b for a, b in itertools.pairwise(self.history)):
            raise ValueError(f"history {self.history} must be increasing and begin with 0, the current image")


@dataclass(frozen=True)
class TrainConfig(Checked):
    """Settings of training; every agent has presets with suitable values."""

    learning_rate: Annotated[float, Meta(ge=1e-12, le=10)]
    """Adam's learning rate at the first step."""
    steps: Count = 2000
    """Number of gradient steps."""
    batch_size: Count = 128
    """Actions per gradient step, at most the dataset's."""
    final_learning_rate: Annotated[float, Meta(ge=0, le=10)] = 0.0
    """Learning rate after linear decay."""
    decay_steps: Count | None = None
    """Steps over which the learning rate decays. Default: all."""
    gradient_clip: Annotated[float, Meta(ge=1e-12, le=1e12)] | None = 1.0
    """Largest norm of the gradient, or None for no limit."""
    average: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Decay of the exponential moving average of the weights; 0 keeps the last weights."""
    recompute_batchnorm: bool = True
    """Recompute the batch norm statistics over all training data when training ends."""
    window: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Consecutive steps per draw, whose shared images are encoded once."""
    shift: Annotated[int, Meta(ge=0, le=MAX_SHIFT)] = 0
    """Largest random shift of the images of a batch, in pixels, while a CNN is trained."""
    seed: Annotated[int, Meta(ge=0, le=1_000_000_000_000)] = 0
    """Seed of the weights and batches."""
    checkpoints: Counts = ()
    """Steps after which to save a checkpoint, besides the final agent. Default: none."""
    threads: Annotated[int, Meta(ge=1, le=256)] = 1
    """Torch threads during training; seeds are reproducible only with 1."""
    log_every: Count = 100
    """Steps between log entries."""
    save_every: Count = 1000
    """Steps between saves of the training state from which a killed run resumes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(step > self.steps for step in self.checkpoints):
            raise ValueError(f"checkpoints {self.checkpoints} must be at most steps={self.steps}")

    def rate(self, step: int) -> float:
        """Return the learning rate at a step."""
        fraction = min(1.0, step / (self.decay_steps or self.steps))
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * fraction


@dataclass(frozen=True)
class Preset:
    """All settings of a training run: the agent's and the optimization's."""

    options: AgentConfig
    training: TrainConfig

    def changed(self, **settings: Any) -> Preset:
        """Return a copy with the given settings of the agent or of training changed."""
        known = sorted(vars(self.options) | vars(self.training))
        for name in settings:
            if name not in known:
                hint = suggestion(name, known, f"choose among {', '.join(known)}")
                raise ValueError(f"no setting of this agent or its training is called '{name}': {hint}")
        if "steps" in settings and "checkpoints" not in settings:  # a shorter run leaves out the later ones
            settings["checkpoints"] = tuple(step for step in self.training.checkpoints if step <= settings["steps"])
        options = {name: settings.pop(name) for name in vars(self.options) if name in settings}
        return Preset(replace(self.options, **options), replace(self.training, **settings))


# Values that the presets of all agents share; learning rates are in each agent's file.
SMALL: dict[str, Any] = {"encoder_sizes": (128, 128, 64), "head_sizes": (128, 128)}  # networks of the preset fast
PAPER_OPTIONS: dict[str, Any] = {"scale_observations": False, "loss": "l1"}
PAPER: dict[str, Any] = {  # the published recipe for 2D navigation
    "steps": 100_000,
    "batch_size": 4096,
    "recompute_batchnorm": False,
    "checkpoints": (5_000, 10_000, 50_000),
}
PIXELS: dict[str, Any] = {"steps": 750, "window": 16, "shift": 4, "save_every": 250}  # images, with a CNN to train
FROZEN: dict[str, Any] = {"steps": 1500, "batch_size": 256, "save_every": 500}  # images, with a frozen encoder
FRAME_NETWORKS: dict[str, Any] = {"encoder_sizes": (1024, 512, 512), "head_sizes": (512, 256)}  # the paper's for 3D
