"""A training that was killed goes on where it was: its exact state in one safetensors file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from pidm_nav.agents.checkpoint import write_atomically
from pidm_nav.agents.encoders import Frozen
from pidm_nav.agents.policy import NavPolicy

if TYPE_CHECKING:
    from pidm_nav.demos.dataset import DemoDataset

STATE_FILE = "training.safetensors"


def fingerprint(agent: NavPolicy, config: Any, datasets: Sequence[DemoDataset]) -> str:
    """What a training depends on, as a short hash: agent, options, frozen encoder, configuration and data."""
    digest = hashlib.sha256(json.dumps([agent.name, asdict(agent.config), asdict(config)]).encode())
    if isinstance(agent.vision, Frozen):  # its options only name it
        digest.update(bytes(agent.vision.fitted_to.tolist()))
    for dataset in datasets:
        digest.update(b"dataset")
        for episode in dataset:
            digest.update(episode.observations.tobytes())
            digest.update(episode.actions.tobytes())
    return digest.hexdigest()[:16]


def save_state(
    folder: Path,
    agent: NavPolicy,
    optimizer: torch.optim.Optimizer,
    average: list[Tensor],
    step: int,
    identity: str,
) -> None:
    """Write weights, optimizer moments and weight average after `step` steps.

    Batches are a function of seed and step, so there is no random state to keep.
    """
    tensors = {f"agent.{name}": tensor.contiguous() for name, tensor in agent.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
    tensors |= {f"average.{index}": tensor for index, tensor in enumerate(average)}
    metadata = {"step": str(step), "identity": identity}
    write_atomically(folder / STATE_FILE, safetensors.torch.save(tensors, metadata))


def load_state(
    folder: Path, agent: NavPolicy, optimizer: torch.optim.Optimizer, average: list[Tensor], identity: str
) -> int:
    """Take a killed training's state from the folder; the number of steps it had made, 0 if there is none."""
    path = folder / STATE_FILE
    if not path.is_file():
        return 0
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if metadata["identity"] != identity:
            raise ValueError(
                f"{folder} holds an unfinished training of another agent, configuration or dataset: "
                "choose another folder or delete it"
            )
        agent.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("agent.")})
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, index, moment = name.split(".")
                state.setdefault(int(index), {})[moment] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        for index, tensor in enumerate(average):
            tensor.copy_(tensors[f"average.{index}"])
        return int(metadata["step"])
    except (safetensors.SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged: delete it to train from the beginning") from error
