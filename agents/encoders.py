"""Image encoders: (N, H, W, C) uint8 -> embeddings (N, output_size).

The state of an agent with image observations is a short history of embeddings. The setting `frames` is the encoder:

    cnn              a compact CNN, trained with the rest of the agent
    random           the same CNN with random weights drawn from the agent's seed, frozen
    agent:FOLDER     the CNN of a saved agent, frozen
    efficientnet     EfficientNet-Lite0 pretrained on ImageNet, reduced to principal components, frozen
    vit:NAME         a pretrained vision transformer, from a local folder or the model hub, frozen

Any other module that maps images to embeddings and has an `output_size` can be passed to an agent as `encoder=`.
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

MIN_SIDE = MAX_SHIFT + 1  # pixels per side of the smallest image
CHUNK = 256  # images encoded at once where no gradient is needed
CACHE_VARIABLE = "PIDM_NAV_CACHE"


class ConvEncoder(nn.Module):
    """Compact CNN: patches of 4 x 4 pixels with 32 features, two convolutions of stride 2, one linear layer.

    Images (H, W, C) are centered by their mean over the demonstrations, so that moving objects stand out.
    """

    center: Tensor
    width: Tensor

    def __init__(self, shape: tuple[int, ...], output_size: int = 128) -> None:
        super().__init__()
        height, width, channels = shape
        if min(height, width) < MIN_SIDE:
            raise ValueError(f"images of {width} x {height} pixels are too small: the CNN needs {MIN_SIDE} per side")
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
        """Standardize by the mean image and the standard deviation about it, over all images (T+1, H, W, C)."""
        count = sum(len(images) for images in episodes)
        mean = np.sum([images.sum(axis=0, dtype=np.float64) for images in episodes], axis=0) / count
        square = sum(float(np.square(images - mean.astype(np.float32)).mean()) * len(images) for images in episodes)
        self.center.copy_(torch.as_tensor(mean))
        self.width.copy_(torch.tensor(max(1.0, (square / count) ** 0.5)))

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (N, E) of images (N, H, W, C)."""
        scaled = images.float().sub_(self.center).div_(self.width)
        vectors: Tensor = self.output(self.layers(scaled.permute(0, 3, 1, 2)))  # memory stays channels-last
        return vectors


class Frozen(nn.Module):
    """Frozen encoder, whose embeddings are standardized over the demonstrations.

    Each demonstrated image is encoded once: embeddings are cached on disk, one file per episode, named by a hash of the
    encoder and the images, so subsets of the demonstrations share the cache. If `folder` is given, `fit` loads the CNN
    of the agent that is saved there.
    """

    fitted_to: Tensor
    center: Tensor
    width: Tensor

    def __init__(self, inner: nn.Module, folder: str = "") -> None:
        super().__init__()
        self.inner, self.folder = inner.requires_grad_(False), folder
        self.output_size = output_size(inner)
        self.register_buffer("fitted_to", torch.zeros(32, dtype=torch.uint8))  # hash of the inner encoder
        self.register_buffer("center", torch.zeros(self.output_size))
        self.register_buffer("width", torch.ones(self.output_size))

    def fit(self, episodes: Sequence[NDArray[np.uint8]]) -> None:
        """Standardize by the embeddings of the episodes' images (T+1, H, W, C)."""
        if self.folder and isinstance(self.inner, ConvEncoder):
            load_cnn(self.inner, self.folder)
        self.learn(np.concatenate(self.embed(episodes)))
        self.fitted_to.copy_(torch.tensor(list(bytes.fromhex(self.identity()))))

    def learn(self, vectors: Array) -> None:
        """Fit the standardization to the inner encoder's embeddings (N, E) of the demonstrations."""
        std = vectors.std(axis=0, dtype=np.float64)
        self.center.copy_(torch.as_tensor(vectors.mean(axis=0, dtype=np.float64)))
        self.width.copy_(torch.as_tensor(np.where(std > 1e-6, std, 1.0)))

    def check(self) -> None:
        """Raise ValueError unless the inner encoder is the one that the agent was trained with."""
        if self.fitted_to.any() and bytes(self.fitted_to.tolist()).hex() != self.identity():
            raise ValueError(
                f"the agent was trained with another {type(self.inner).__name__} than the one found now: "
                "give it the same weights, or train again"
            )

    def identity(self) -> str:
        """Return a hash of the inner encoder: everything besides images that its embeddings depend on."""
        digest = hashlib.sha256(repr(self.inner).encode())
        weights = dict(self.inner.state_dict())
        if isinstance(self.inner, PretrainedEncoder):
            digest.update(repr((self.inner.image_size, self.inner.model.config.to_dict())).encode())
            # saved agents hold this hash, so the key "spread" must stay
            weights |= {"mean": self.inner.mean, "spread": self.inner.std, **self.inner.model.state_dict()}
        elif isinstance(self.inner, EfficientNetEncoder):
            digest.update(self.inner.digest.encode())
        for name, tensor in weights.items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def scale(self, vectors: Tensor) -> Tensor:
        """Standardize the inner encoder's embeddings."""
        return (vectors - self.center) / self.width

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (N, E) of images (N, H, W, C)."""
        return self.scale(self.inner.eval()(images))

    def embed(self, episodes: Iterable[NDArray[np.uint8]]) -> list[Array]:
        """Return the inner encoder's embeddings (T+1, E) of each episode's images, from the cache if possible."""
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
                    warnings.warn(f"embeddings are not cached: {error}, by setting {CACHE_VARIABLE}", stacklevel=2)
            found.append(vectors.cpu().numpy())
        return found


class Principal(Frozen):
    """Frozen encoder, whose embeddings are reduced to their first principal components over the demonstrations.

    All components share one scale, so those with the largest variance count most.
    """

    axes: Tensor

    def __init__(self, inner: nn.Module, size: int) -> None:
        super().__init__(inner)
        self.register_buffer("axes", torch.zeros(self.output_size, size))
        self.output_size = size

    def learn(self, vectors: Array) -> None:
        """Compute the axes from up to 1,000 evenly spaced images; axes without variance stay 0."""
        super().learn(vectors)
        rows = np.linspace(0, len(vectors) - 1, min(1000, len(vectors)), dtype=np.int64)
        some = super().scale(torch.tensor(vectors[rows], device=self.center.device)).cpu().double()
        _, values, axes = torch.linalg.svd(some - some.mean(dim=0), full_matrices=False)
        kept = min(int((values > 1e-6 * values[0]).sum()), self.output_size)
        rms = values[:kept].square().mean().div(len(some)).sqrt().clamp(min=1e-6)
        self.axes.zero_()[:, :kept] = (axes[:kept].T / rms).to(self.axes)

    def scale(self, vectors: Tensor) -> Tensor:
        """Return the principal components of the inner encoder's embeddings."""
        return super().scale(vectors) @ self.axes


def cache_folder() -> Path:
    """Return the cache folder for embeddings: $PIDM_NAV_CACHE, or one in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pidm-nav" / "embeddings"
    return Path(os.environ.get(CACHE_VARIABLE, default))


def output_size(encoder: nn.Module) -> int:
    """Return the size of an encoder's embeddings."""
    size = getattr(encoder, "output_size", None)
    if not isinstance(size, int):
        raise ValueError(f"the encoder {type(encoder).__name__} has no output_size: set it to the embeddings' size")
    return size


def is_trained(kind: str, own: nn.Module | None = None) -> bool:
    """Return whether the encoder of that kind, or the user's instead, has trainable weights."""
    return kind == "cnn" if own is None else any(weight.requires_grad for weight in own.parameters())


def make_frame_encoder(kind: str, shape: tuple[int, ...], size: int, own: nn.Module | None = None) -> nn.Module:
    """Return the encoder that the setting `frames` names, or the user's; those without trainable weights are `Frozen`.

    Weights are drawn from torch's random state.
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
            raise ValueError(f"efficientnet needs RGB images, not {shape[-1]} channels: choose frames='cnn'")
        return Principal(EfficientNetEncoder(), size)
    raise ValueError(f"there is no encoder '{kind}': choose cnn, random, agent:FOLDER, efficientnet or vit:NAME")


def load_cnn(encoder: ConvEncoder, folder: str | Path) -> None:
    """Load the weights of a saved agent's CNN."""
    from pidm_nav.agents.checkpoint import read_tensors  # noqa: PLC0415  which imports this module

    tensors = read_tensors(folder)
    prefix = "vision.inner." if "vision.fitted_to" in tensors else "vision."
    try:
        encoder.load_state_dict({name[len(prefix) :]: tensors[name] for name in tensors if name.startswith(prefix)})
    except RuntimeError as error:
        raise ValueError(
            f"the agent in {folder} has no CNN for images of shape {tuple(encoder.center.shape)} with embeddings of "
            f"size {encoder.output_size}: give an agent that was trained on such images"
        ) from error


def shifted(images: Tensor, reach: int, rng: np.random.Generator) -> Tensor:
    """Shift all images (N, H, W, C) by the same random offset of up to `reach` pixels, repeating their edges.

    The images of a batch are shifted together to preserve the differences between an image and the next ones.
    """
    for axis, by in zip((1, 2), rng.integers(-reach, reach + 1, size=2).tolist(), strict=True):
        side = images.shape[axis]
        images = images.index_select(axis, torch.arange(by, by + side, device=images.device).clamp(0, side - 1))
    return images


@torch.no_grad()
def encode(encoder: nn.Module, images: Tensor) -> Tensor:
    """Return the embeddings (N, E) of images (N, H, W, C), computed in chunks."""
    return torch.cat([encoder(chunk) for chunk in torch.split(images, CHUNK)])
