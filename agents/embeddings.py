"""Demonstrated frames as vectors: computed once for a frozen encoder and kept on disk, an episode a file.

A file's name is a hash of the encoder and of the frames, so a subset of the demonstrations finds what the whole set
left. A file that is cut short or changed is computed again.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import nn

from pidm_nav.agents.checkpoint import write_atomically
from pidm_nav.agents.encoders import Frozen, encode

CACHE_VARIABLE = "PIDM_NAV_CACHE"
Vectors = NDArray[np.float32]


def cache_folder() -> Path:
    """Where vectors are kept: $PIDM_NAV_CACHE, or the user's cache."""
    if CACHE_VARIABLE in os.environ:
        return Path(os.environ[CACHE_VARIABLE])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pidm-nav" / "embeddings"


def embed(encoder: nn.Module, episodes: Iterable[NDArray[np.uint8]], device: torch.device) -> list[Vectors]:
    """The vectors (T+1, E) of each episode's frames (T+1, H, W, C)."""
    if isinstance(encoder, Frozen):
        raw = embed_once(encoder, episodes, device)
        return [encoder.scale(torch.tensor(vectors, device=device)).cpu().numpy() for vectors in raw]
    return [encode(encoder, frames, device).cpu().numpy() for frames in episodes]


def embed_once(encoder: Frozen, episodes: Iterable[NDArray[np.uint8]], device: torch.device) -> list[Vectors]:
    """The inner encoder's vectors, not yet standardised: read, or computed and kept."""
    folder, identity = cache_folder(), encoder.identity()
    found = []
    for frames in episodes:
        key = hashlib.sha256(f"{identity} {frames.shape}".encode())
        key.update(np.ascontiguousarray(frames).data)
        path = folder / f"{key.hexdigest()[:32]}.safetensors"
        vectors = _read(path, (len(frames), encoder.output_size))
        if vectors is None:
            encoder.inner.eval()
            vectors = encode(encoder.inner, frames, device).cpu().numpy()
            _write(path, vectors)
        found.append(vectors)
    return found


def _read(path: Path, shape: tuple[int, int]) -> Vectors | None:
    """A file's vectors, if they are whole."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            vectors: Vectors = file.get_tensor("vectors")
            checksum = (file.metadata() or {}).get("sha256")
    except (OSError, safetensors.SafetensorError):
        return None
    whole = vectors.shape == shape and vectors.dtype == np.float32
    return vectors if whole and hashlib.sha256(vectors.tobytes()).hexdigest() == checksum else None


def _write(path: Path, vectors: Vectors) -> None:
    """Keep vectors; where that cannot be, they are computed again next time."""
    metadata = {"sha256": hashlib.sha256(vectors.tobytes()).hexdigest()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, safetensors.numpy.save({"vectors": np.ascontiguousarray(vectors)}, metadata))
    except OSError as error:
        warnings.warn(
            f"embeddings are not kept in {path.parent} ({error.strerror}): set {CACHE_VARIABLE} to a folder that can "
            "be written",
            stacklevel=2,
        )
