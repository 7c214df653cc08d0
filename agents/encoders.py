"""Frame encoders, what turns pictures into vectors: (N, H, W, C) uint8 -> (N, output_size).

An agent whose observations are images has one, and its state is a short history of such vectors. Which one is a
word in the agent's options, `frames=`:

    cnn              a compact CNN, trained with the rest of the agent
    random           the same CNN with random weights drawn from the agent's seed, frozen
    agent:FOLDER     the CNN of a saved agent, frozen
    vit:NAME         a pretrained vision transformer, a local folder or a name on the model hub, frozen

A frozen encoder sees every demonstrated frame once: see `embeddings.py`. Any other module that maps frames to vectors
and says their `output_size` is passed to the agent as `encoder=`.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

MIN_SIDE = 16  # pixels of the smallest frame
CHUNK = 256  # frames encoded at once where no gradient is needed
KINDS = ("cnn", "random", "agent:FOLDER", "vit:NAME")


def is_image(space: spaces.Box) -> bool:
    """Whether observations are pictures (H, W, C) of bytes."""
    return len(space.shape) == 3 and space.dtype == np.uint8


class ConvEncoder(nn.Module):
    """A compact CNN: 32 patches' features at a quarter of the size, two more halvings, one vector.

    Frames are centred by their mean over the demonstrations, so that what moves stands out.

    Args:
        shape: (H, W, C) of a frame.
        output_size: numbers in a vector.
    """

    center: Tensor
    width: Tensor

    def __init__(self, shape: tuple[int, ...], output_size: int = 128) -> None:
        super().__init__()
        height, width, channels = shape
        if min(height, width) < MIN_SIDE:
            raise ValueError(
                f"frames of {width} x {height} pixels are too small for the CNN: it needs {MIN_SIDE} x {MIN_SIDE}"
            )
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 32, 4, 4),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        features = self.layers(torch.zeros(1, channels, height, width)).shape[1]
        self.output = nn.Sequential(nn.Linear(features, output_size), nn.LayerNorm(output_size))
        self.output_size = output_size
        self.register_buffer("center", torch.full(shape, 127.5))
        self.register_buffer("width", torch.tensor(127.5))

    def fit(self, episodes: Sequence[NDArray[np.uint8]]) -> None:
        """Centre by the mean of episodes' frames (T+1, H, W, C), in units of their spread about it."""
        count = sum(len(frames) for frames in episodes)
        mean = np.sum([frames.sum(axis=0, dtype=np.float64) for frames in episodes], axis=0) / count
        square = sum(float(np.square(frames - mean.astype(np.float32)).mean()) * len(frames) for frames in episodes)
        self.center.copy_(torch.as_tensor(mean))
        self.width.copy_(torch.tensor(max(1.0, (square / count) ** 0.5)))

    def forward(self, frames: Tensor) -> Tensor:
        """Vectors (N, E) of frames (N, H, W, C)."""
        scaled = frames.float().sub_(self.center).div_(self.width)
        vectors: Tensor = self.output(self.layers(scaled.permute(0, 3, 1, 2)))  # as it lies in memory: channels last
        return vectors


class PretrainedEncoder(nn.Module):
    """A vision transformer of the `transformers` library; a vector is the mean of its last tokens.

    Its weights are not saved with an agent, which loads it again by its name. They are read from safetensors only, and
    no code that a model brings is run.

    Args:
        name: a local folder or a name on the model hub.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, name: str) -> None:
        super().__init__()
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise ModuleNotFoundError(
                f"the vision transformer '{name}' needs transformers: pip install 'pidm-nav[vision]'"
            ) from error
        try:
            model = transformers.AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            if "trust_remote_code" in str(error):
                raise ValueError(
                    f"'{name}' brings code of its own, which is not run: load it yourself and pass it as encoder="
                ) from error
            raise ValueError(
                f"'{name}' is neither a folder with a vision model nor the name of one on the hub: "
                "give what transformers' save_pretrained wrote, or a name it can download"
            ) from error
        size = getattr(model.config, "image_size", None)
        width = getattr(model.config, "hidden_size", None)
        if not isinstance(width, int) or size is None:
            raise ValueError(f"the model '{name}' is a {type(model).__name__}, which takes no images: choose another")
        self.image_size: tuple[int, int] = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
        self.output_size = width
        try:
            processor = transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        except (OSError, ValueError, ImportError):  # a folder without one: the usual numbers
            processor = None
        mean = getattr(processor, "image_mean", None) or (0.5, 0.5, 0.5)
        spread = getattr(processor, "image_std", None) or (0.5, 0.5, 0.5)
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("spread", torch.tensor(spread).view(3, 1, 1), persistent=False)
        # held in a tuple, so that hundreds of megabytes are not saved as part of each agent
        self._model = (model.eval().requires_grad_(False),)

    @property
    def model(self) -> Any:
        """The transformer."""
        return self._model[0]

    def forward(self, frames: Tensor) -> Tensor:
        """Vectors (N, E) of RGB frames (N, H, W, 3)."""
        images = frames.permute(0, 3, 1, 2).float() / 255
        images = nn.functional.interpolate(images, self.image_size, mode="bilinear", antialias=True)
        tokens = self.model.to(frames.device)(pixel_values=(images - self.mean) / self.spread).last_hidden_state
        vectors: Tensor = tokens.mean(dim=1)
        return vectors


class Frozen(nn.Module):
    """An encoder that is not trained; its vectors are standardised by those of the demonstrations (see `fit`)."""

    center: Tensor
    width: Tensor
    fitted_to: Tensor

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.output_size = output_size(inner)
        self.register_buffer("fitted_to", torch.zeros(32, dtype=torch.uint8))  # the inner encoder's identity
        self.register_buffer("center", torch.zeros(self.output_size))
        self.register_buffer("width", torch.ones(self.output_size))

    def fit(self, vectors: NDArray[np.float32]) -> None:
        """Standardise by the inner encoder's vectors (M, E)."""
        spread = vectors.std(axis=0, dtype=np.float64)
        self.center.copy_(torch.as_tensor(vectors.mean(axis=0, dtype=np.float64)))
        self.width.copy_(torch.as_tensor(np.where(spread > 1e-6, spread, 1.0)))
        self.fitted_to.copy_(self._fingerprint())

    def check(self) -> None:
        """Refuse an inner encoder that is not the one the agent was trained with."""
        if self.fitted_to.any() and not torch.equal(self.fitted_to.cpu(), self._fingerprint()):
            raise ValueError(
                f"the agent was trained with another {type(self.inner).__name__} than the one found now: "
                "give it the same weights, or train again"
            )

    def _fingerprint(self) -> Tensor:
        return torch.tensor(list(bytes.fromhex(self.identity())), dtype=torch.uint8)

    def scale(self, vectors: Tensor) -> Tensor:
        """The inner encoder's vectors, standardised."""
        return (vectors - self.center) / self.width

    def forward(self, frames: Tensor) -> Tensor:
        """Vectors (N, E) of frames (N, H, W, C)."""
        self.inner.eval()
        with torch.no_grad():
            return self.scale(self.inner(frames))

    def identity(self) -> str:
        """A hash of what the inner encoder's vectors depend on besides the frames."""
        digest = hashlib.sha256(repr(self.inner).encode())
        weights = dict(self.inner.state_dict())
        if isinstance(self.inner, PretrainedEncoder):
            digest.update(repr((self.inner.image_size, self.inner.model.config.to_dict())).encode())
            weights |= {"mean": self.inner.mean, "spread": self.inner.spread, **self.inner.model.state_dict()}
        for name, tensor in weights.items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def output_size(encoder: nn.Module) -> int:
    """How long an encoder's vectors are."""
    size = getattr(encoder, "output_size", None)
    if not isinstance(size, int):
        raise ValueError(f"the encoder {type(encoder).__name__} has no output_size: say how long its vectors are")
    return size


def is_trained(kind: str, own: nn.Module | None = None) -> bool:
    """Whether the frame encoder of that kind, or the user's own in its place, has weights to train."""
    return kind == "cnn" if own is None else any(weight.requires_grad for weight in own.parameters())


def make_frame_encoder(kind: str, shape: tuple[int, ...], size: int, own: nn.Module | None = None) -> nn.Module:
    """The frame encoder of an agent, its weights drawn from torch's random state; frozen ones come as a `Frozen`.

    Args:
        kind: `frames` of the agent's options.
        shape: (H, W, C) of a frame.
        size: numbers in a CNN's vector.
        own: an encoder of the user's, in place of the kind; without a weight to train, it is a frozen one.
    """
    if own is not None:
        output_size(own)
        return own if is_trained(kind, own) else Frozen(own)
    word, _, name = kind.partition(":")
    if kind == "cnn":
        return ConvEncoder(shape, size)
    if kind == "random" or (word == "agent" and name):
        return Frozen(ConvEncoder(shape, size))  # a saved agent's weights are read when training begins
    if word == "vit" and name:
        return Frozen(PretrainedEncoder(name))
    raise ValueError(f"frames '{kind}' is not known: choose one of {', '.join(KINDS)}")


def load_cnn(encoder: ConvEncoder, folder: str | Path) -> None:
    """Take the weights of a saved agent's CNN."""
    from pidm_nav.agents.checkpoint import read_tensors

    tensors = read_tensors(folder)
    for prefix in ("vision.inner.", "vision."):
        weights = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
        if set(weights) == set(encoder.state_dict()):
            break
    try:
        encoder.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"the agent in {folder} has no CNN for frames of shape {tuple(encoder.center.shape)} with vectors of "
            f"{encoder.output_size} numbers: give one that was trained on such frames"
        ) from error


def shifted(frames: Tensor, reach: int, seed: int) -> Tensor:
    """Frames (N, H, W, C), all moved by the same few pixels, up to `reach` each way; their edges are repeated.

    What a frame shows of the next few steps is how it moves against them, so frames of one batch move together.
    """
    for axis, by in zip((1, 2), np.random.default_rng(seed).integers(-reach, reach + 1, size=2).tolist(), strict=True):
        inside = frames.narrow(axis, max(by, 0), frames.shape[axis] - abs(by))
        edge = frames.narrow(axis, -1 if by > 0 else 0, 1).repeat_interleave(abs(by), axis)
        frames = torch.cat([inside, edge] if by > 0 else [edge, inside], axis)
    return frames


@torch.no_grad()
def encode(encoder: nn.Module, frames: NDArray[np.uint8], device: torch.device) -> Tensor:
    """(N, E) vectors of (N, H, W, C) frames, a chunk at a time."""
    chunks = (frames[first : first + CHUNK] for first in range(0, len(frames), CHUNK))
    return torch.cat([encoder(torch.as_tensor(np.array(chunk), device=device)) for chunk in chunks])
