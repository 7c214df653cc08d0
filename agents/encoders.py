"""Frame encoders turn images into vectors: (N, H, W, C) uint8 -> (N, output_size).

An agent whose observations are images has one, and its state is a short history of such vectors. The setting `frames`
chooses it:

    cnn              a compact CNN, trained with the rest of the agent
    random           the same CNN with random weights drawn from the agent's seed, frozen
    agent:FOLDER     the CNN of a saved agent, frozen
    efficientnet     EfficientNet-Lite0 as trained on ImageNet, reduced to principal components, frozen
    vit:NAME         a pretrained vision transformer, a local folder or a name on the model hub, frozen

Any other module that maps images to vectors and has an `output_size` is passed to the agent as `encoder=`.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.config import MAX_SHIFT
from pidm_nav.agents.networks import Array
from pidm_nav.agents.pretrained import EfficientNetEncoder, PretrainedEncoder
from pidm_nav.agents.tensors import load_tensors, save_tensors

MIN_SIDE = MAX_SHIFT + 1  # pixels per side of the smallest frame
CHUNK = 256  # images encoded at once where no gradient is needed
CACHE_VARIABLE = "PIDM_NAV_CACHE"


class ConvEncoder(nn.Module):
    """A compact CNN: 32 features per patch of 4 x 4 pixels, two more halvings, one vector.

    Images (H, W, C) are centered by their mean over the demonstrations, so that what moves stands out.
    """

    center: Tensor
    width: Tensor

    def __init__(self, shape: tuple[int, ...], output_size: int = 128) -> None:
        super().__init__()
        height, width, channels = shape
        if min(height, width) < MIN_SIDE:
            raise ValueError(f"frames of {width} x {height} pixels are too small: the CNN needs {MIN_SIDE} per side")
        layers: list[nn.Module] = []
        for before, after, kernel, stride, padding in ((channels, 32, 4, 4, 0), (32, 32, 3, 2, 1), (32, 64, 3, 2, 1)):
            layers += [nn.Conv2d(before, after, kernel, stride, padding), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        features = 64 * math.prod(((side // 4 + 1) // 2 + 1) // 2 for side in (height, width))
        self.output = nn.Sequential(nn.Linear(features, output_size), nn.LayerNorm(output_size))
        self.output_size = output_size
        self.register_buffer("center", torch.full(shape, 127.5))
        self.register_buffer("width", torch.tensor(127.5))

    def fit(self, episodes: Sequence[NDArray[np.uint8]]) -> None:
        """Center by the mean of the episodes' images (T+1, H, W, C), in units of their spread about it."""
        count = sum(len(images) for images in episodes)
        mean = np.sum([images.sum(axis=0, dtype=np.float64) for images in episodes], axis=0) / count
        square = sum(float(np.square(images - mean.astype(np.float32)).mean()) * len(images) for images in episodes)
        self.center.copy_(torch.as_tensor(mean))
        self.width.copy_(torch.tensor(max(1.0, (square / count) ** 0.5)))

    def forward(self, images: Tensor) -> Tensor:
        """Return vectors (N, E) of images (N, H, W, C)."""
        scaled = images.float().sub_(self.center).div_(self.width)
        vectors: Tensor = self.output(self.layers(scaled.permute(0, 3, 1, 2)))  # as it lies in memory: channels last
        return vectors


class Frozen(nn.Module):
    """An encoder that is not trained; its vectors are standardized over the demonstrations.

    Each demonstrated image is encoded once: vectors are kept on disk, one file per episode, whose name is a hash of the
    encoder and of the images, so that a subset of the demonstrations finds what the whole set left. If `folder` is
    given, training begins with the CNN of the agent that is saved there.
    """

    fitted_to: Tensor
    center: Tensor
    width: Tensor

    def __init__(self, inner: nn.Module, folder: str = "") -> None:
        super().__init__()
        self.inner, self.folder = inner.requires_grad_(False), folder
        self.output_size = output_size(inner)
        self.register_buffer("fitted_to", torch.zeros(32, dtype=torch.uint8))  # the inner encoder's identity
        self.register_buffer("center", torch.zeros(self.output_size))
        self.register_buffer("width", torch.ones(self.output_size))

    def fit(self, episodes: Sequence[NDArray[np.uint8]]) -> None:
        """Standardize by the vectors of the episodes' images (T+1, H, W, C)."""
        if self.folder and isinstance(self.inner, ConvEncoder):
            load_cnn(self.inner, self.folder)
        self.learn(np.concatenate(self.embed(episodes)))
        self.fitted_to.copy_(torch.tensor(list(bytes.fromhex(self.identity()))))

    def learn(self, vectors: Array) -> None:
        """Take the units from the inner encoder's vectors (N, E) of the demonstrations."""
        spread = vectors.std(axis=0, dtype=np.float64)
        self.center.copy_(torch.as_tensor(vectors.mean(axis=0, dtype=np.float64)))
        self.width.copy_(torch.as_tensor(np.where(spread > 1e-6, spread, 1.0)))

    def check(self) -> None:
        """Refuse an inner encoder that is not the one the agent was trained with."""
        if self.fitted_to.any() and bytes(self.fitted_to.tolist()).hex() != self.identity():
            raise ValueError(
                f"the agent was trained with another {type(self.inner).__name__} than the one found now: "
                "give it the same weights, or train again"
            )

    def identity(self) -> str:
        """Return a hash of what the inner encoder's vectors depend on besides the images."""
        digest = hashlib.sha256(repr(self.inner).encode())
        weights = dict(self.inner.state_dict())
        if isinstance(self.inner, PretrainedEncoder):
            digest.update(repr((self.inner.image_size, self.inner.model.config.to_dict())).encode())
            weights |= {"mean": self.inner.mean, "spread": self.inner.spread, **self.inner.model.state_dict()}
        elif isinstance(self.inner, EfficientNetEncoder):
            digest.update(self.inner.digest.encode())
        for name, tensor in weights.items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def scale(self, vectors: Tensor) -> Tensor:
        """Standardize the inner encoder's vectors."""
        return (vectors - self.center) / self.width

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return vectors (N, E) of images (N, H, W, C)."""
        return self.scale(self.inner.eval()(images))

    def embed(self, episodes: Iterable[NDArray[np.uint8]]) -> list[Array]:
        """Return the inner encoder's vectors (T+1, E) of each episode's images, from the cache where it has them."""
        folder, identity = cache_folder(), self.identity()
        found = []
        for images in episodes:
            key = hashlib.sha256(f"{identity} {images.shape}".encode() + images.tobytes()).hexdigest()[:32]
            path = folder / f"{key}.safetensors"
            try:
                vectors = load_tensors(path, "it is written again")[0][key]
            except (OSError, ValueError, KeyError):
                vectors = encode(self.inner.eval(), torch.tensor(images, device=self.center.device))
                try:
                    save_tensors(path, {key: vectors})
                except OSError as error:
                    warnings.warn(f"image vectors are not kept: {error}, by setting {CACHE_VARIABLE}", stacklevel=2)
            found.append(vectors.cpu().numpy())
        return found


class Principal(Frozen):
    """A frozen encoder of long vectors, of which the first principal components over the demonstrations are left.

    They are all divided by one number, so that those in which images differ most count most.
    """

    axes: Tensor

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__(inner)
        self.register_buffer("axes", torch.zeros(self.output_size, size))
        self.output_size = size

    def learn(self, vectors: Array) -> None:
        """Find the axes from up to 1,000 images, evenly spread; axes along which these do not differ stay 0."""
        super().learn(vectors)
        rows = np.linspace(0, len(vectors) - 1, min(1000, len(vectors)), dtype=np.int64)
        some = super().scale(torch.tensor(vectors[rows], device=self.center.device)).cpu().double()
        _, values, axes = torch.linalg.svd(some - some.mean(dim=0), full_matrices=False)
        kept = min(int((values > 1e-6 * values[0]).sum()), self.output_size)
        usual = values[:kept].square().mean().div(len(some)).sqrt().clamp(min=1e-6)
        self.axes.zero_()[:, :kept] = (axes[:kept].T / usual).to(self.axes)

    def scale(self, vectors: Tensor) -> Tensor:
        """Return the components of the inner encoder's vectors."""
        return super().scale(vectors) @ self.axes


def cache_folder() -> Path:
    """Return the folder for the vectors of frozen encoders: $PIDM_NAV_CACHE, or the user's cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pidm-nav" / "embeddings"
    return Path(os.environ.get(CACHE_VARIABLE, usual))


def output_size(encoder: nn.Module) -> int:
    """Return the size of an encoder's vectors."""
    size = getattr(encoder, "output_size", None)
    if not isinstance(size, int):
        raise ValueError(f"the encoder {type(encoder).__name__} has no output_size: set it to the size of its vectors")
    return size


def is_trained(kind: str, own: nn.Module | None = None) -> bool:
    """Return whether the encoder of that kind, or the user's own in its place, has weights to train."""
    return kind == "cnn" if own is None else any(weight.requires_grad for weight in own.parameters())


def make_frame_encoder(kind: str, shape: tuple[int, ...], size: int, own: nn.Module | None = None) -> nn.Module:
    """Return the encoder that the setting `frames` names, or the user's own; frozen ones come as a `Frozen`.

    Weights are drawn from torch's random state. A user's encoder without weights to train counts as frozen.
    """
    if own is not None:
        return own if is_trained(kind, own) else Frozen(own)
    word, _, name = kind.partition(":")
    if kind == "cnn":
        return ConvEncoder(shape, size)
    if kind == "random" or (word == "agent" and name):
        return Frozen(ConvEncoder(shape, size), name)
    if word == "vit" and name:
        return Frozen(PretrainedEncoder(name))
    if kind == "efficientnet":
        if shape[-1] != 3:
            raise ValueError(f"efficientnet sees RGB images, and these have {shape[-1]} channels: choose frames='cnn'")
        return Principal(EfficientNetEncoder(), size)
    raise ValueError(f"frames '{kind}' is not known: choose one of cnn, random, agent:FOLDER, efficientnet, vit:NAME")


def load_cnn(encoder: ConvEncoder, folder: str | Path) -> None:
    """Take over the weights of a saved agent's CNN."""
    from pidm_nav.agents.checkpoint import read_tensors  # noqa: PLC0415  which imports this module

    tensors = read_tensors(folder)
    prefix = "vision.inner." if "vision.fitted_to" in tensors else "vision."
    try:
        encoder.load_state_dict({name[len(prefix) :]: tensors[name] for name in tensors if name.startswith(prefix)})
    except RuntimeError as error:
        raise ValueError(
            f"the agent in {folder} has no CNN for frames of shape {tuple(encoder.center.shape)} with vectors of "
            f"{encoder.output_size} numbers: give one that was trained on such frames"
        ) from error


def shifted(images: Tensor, reach: int, rng: np.random.Generator) -> Tensor:
    """Move images (N, H, W, C), all by the same few pixels, up to `reach` each way; their edges are repeated.

    What an image shows of the next few steps is how it differs from them, so the images of a batch move together.
    """
    for axis, by in zip((1, 2), rng.integers(-reach, reach + 1, size=2).tolist(), strict=True):
        side = images.shape[axis]
        images = images.index_select(axis, torch.arange(by, by + side, device=images.device).clamp(0, side - 1))
    return images


@torch.no_grad()
def encode(encoder: nn.Module, images: Tensor) -> Tensor:
    """Return the vectors (N, E) of images (N, H, W, C), computed in chunks."""
    return torch.cat([encoder(chunk) for chunk in torch.split(images, CHUNK)])
