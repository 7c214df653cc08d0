"""Safetensors files with a note and a checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from pidm_nav.files import write_bytes


def save_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> None:
    """Write tensors and a note."""
    plain = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}  # which share no memory
    write_bytes(path, safetensors.torch.save(plain, {"note": note, "sha256": _checksum(plain, note)}))


def load_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], str]:
    """Read tensors and their note; the error for a damaged file ends with the remedy."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            found = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        intact = found["sha256"] == _checksum(tensors, found["note"])
    except (safetensors.SafetensorError, KeyError):
        intact = False
    if not intact:
        raise ValueError(f"'{path}' is damaged, or of an earlier version without checksum: {remedy}")
    return tensors, found["note"]


def _checksum(tensors: dict[str, Tensor], note: str) -> str:
    return hashlib.sha256(note.encode() + safetensors.torch.save(tensors)).hexdigest()
