"""Agents on disk: a JSON description and a safetensors file; nothing in them is executed."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from gymnasium import spaces
from torch import Tensor, nn

from pidm_nav import __version__
from pidm_nav.agents.encoders import Frozen
from pidm_nav.agents.policy import AgentConfig, NavPolicy

DESCRIPTION = "agent.json"
FORMAT = 1
MEMORY = "memory."  # prefix of the tensors that are not network weights


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, then rename: a kill leaves the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def save_agent(agent: NavPolicy, folder: str | Path) -> Path:
    """Write an agent into a folder, replacing the one that may be there."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    memory = {MEMORY + name: tensor for name, tensor in agent.memory().items()}
    tensors = {name: tensor.contiguous().cpu() for name, tensor in {**agent.state_dict(), **memory}.items()}
    content = safetensors.torch.save(tensors)
    checksum = hashlib.sha256(content).hexdigest()
    # the weights' name holds their checksum: until the description is replaced, the old agent stays whole
    weights = folder / f"weights-{checksum[:12]}.safetensors"
    description = {
        "format": FORMAT,
        "agent": agent.name,
        "version": __version__,
        "config": asdict(agent.config),
        "seed": agent.seed,
        "custom_encoder": agent.custom_encoder,
        "observation_space": _space_to_json(agent.observation_space),
        "action_space": _space_to_json(agent.action_space),
        **agent.description,
        "weights": weights.name,
        "sha256": checksum,
    }
    write_atomically(weights, content)
    write_atomically(folder / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode())
    for other in folder.glob("weights-*.safetensors"):
        if other != weights:
            other.unlink()
    return folder


def read_description(folder: str | Path) -> dict[str, Any]:
    """The JSON description of a saved agent."""
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no trained agent: there is no {DESCRIPTION} in it")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a saved agent's description: it is damaged, train the agent again") from error
    needed = ("format", "agent", "config", "observation_space", "action_space", "weights", "sha256")
    if not isinstance(description, dict) or not all(key in description for key in needed):
        raise ValueError(f"{path} is not a saved agent's description: it misses what this package writes")
    if description["format"] != FORMAT:
        raise ValueError(f"{path} has format {description['format']}, this version reads {FORMAT}: update pidm-nav")
    return description


def load_agent(
    folder: str | Path,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    *,
    encoder: nn.Module | None = None,
) -> NavPolicy:
    """The agent saved in a folder, ready to act.

    Args:
        folder: what `save` or `train` wrote.
        observation_space: of the environment it shall act in; another than it was trained for is refused.
        action_space: likewise.
        encoder: the encoder the agent was made with, if that was not the package's own.
    """
    from pidm_nav.agents import AGENTS

    description = read_description(folder)
    if description["agent"] not in AGENTS:
        raise ValueError(f"{folder} holds an agent '{description['agent']}': known are {', '.join(AGENTS)}")
    if description.get("custom_encoder") and encoder is None:
        raise ValueError(f"the agent in {folder} was made with an encoder of its own: pass it as encoder=")
    tensors = read_tensors(folder)
    agent_class: type[NavPolicy] = AGENTS[description["agent"]]
    try:
        observations = _space_from_json(description["observation_space"])
        actions = _space_from_json(description["action_space"])
        config = _config_from_json(agent_class.config_class, description["config"])
        agent = agent_class(observations, actions, config, encoder=encoder, seed=int(description.get("seed", 0)))
        memory = {name[len(MEMORY) :]: tensors.pop(name) for name in list(tensors) if name.startswith(MEMORY)}
        agent.load_state_dict(tensors)
        if isinstance(agent.vision, Frozen):
            agent.vision.check()
        agent.restore(memory)
    except (KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise ValueError(f"the description and the weights in {folder} do not fit together: train again") from error
    for kind, own, given in (
        ("observation", observations, observation_space),
        ("action", actions, action_space),
    ):
        if given is not None and not same_space(own, given):
            raise ValueError(f"the agent in {folder} was trained for {kind} space {own}, not for {given}")
    own_keys = {"format", "agent", "config", "seed", "custom_encoder", "observation_space", "action_space"}
    own_keys |= {"weights", "sha256", "version"}
    agent.description = {key: value for key, value in description.items() if key not in own_keys}
    return agent.eval()


def read_tensors(folder: str | Path) -> dict[str, Tensor]:
    """The weights and the memory of a saved agent, by name."""
    description = read_description(folder)
    return _read_weights(Path(folder) / str(description["weights"]), str(description["sha256"]))


def same_space(own: spaces.Box, given: spaces.Space[Any]) -> bool:
    """Whether two boxes have the same shape and bounds."""
    return (
        isinstance(given, spaces.Box)
        and own.shape == given.shape
        and bool(np.allclose(own.low, given.low) and np.allclose(own.high, given.high))
    )


def _read_weights(path: Path, checksum: str) -> dict[str, Tensor]:
    """The tensors of a file whose checksum is as described."""
    if path.name != str(path.relative_to(path.parent)) or not path.is_file():
        raise FileNotFoundError(f"the weights {path} are missing: the checkpoint is incomplete")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != checksum:
        raise ValueError(f"{path} is not the file its description names: it was cut short or changed")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: train the agent again") from error
    return tensors


def _config_from_json(config_class: type[AgentConfig], values: dict[str, Any]) -> AgentConfig:
    """A configuration from its JSON, whose lists were tuples."""
    known = {field.name for field in fields(config_class)}
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    if set(plain) - known:
        raise ValueError(f"the option {sorted(set(plain) - known)[0]} is not one of this agent's: update pidm-nav")
    return config_class(**plain)


def _space_to_json(space: spaces.Box) -> dict[str, Any]:
    """Shape, type and bounds; a bound shared by all numbers is written once, infinity as a string."""

    def bounds(values: Any) -> Any:
        flat = [float(value) if np.isfinite(value) else str(float(value)) for value in values.flatten()]
        return flat[0] if len(set(flat)) == 1 else flat

    return {
        "shape": list(space.shape),
        "dtype": str(space.dtype),
        "low": bounds(space.low),
        "high": bounds(space.high),
    }


def _space_from_json(values: dict[str, Any]) -> spaces.Box:
    """The inverse."""
    shape, dtype = tuple(values["shape"]), np.dtype(values["dtype"])

    def bounds(value: Any) -> Any:
        numbers = np.array([float(each) for each in value] if isinstance(value, list) else float(value))
        return np.broadcast_to(numbers.reshape(shape if numbers.ndim else ()), shape).astype(dtype)

    return spaces.Box(bounds(values["low"]), bounds(values["high"]), shape, dtype.type)
