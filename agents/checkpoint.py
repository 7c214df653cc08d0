"""Agents on disk: a JSON description and a safetensors file, and the state that a killed training resumes from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
import safetensors.torch
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.config import TrainConfig
from pidm_nav.agents.encoders import Frozen
from pidm_nav.agents.policy import NavPolicy
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.files import write_bytes, write_json
from pidm_nav.version import __version__

DESCRIPTION = "agent.json"
STATE_FILE = "training.safetensors"
FORMAT = 1
MEMORY = "memory."  # prefix of the tensors that are not network weights
Bounds = float | str | list[float | str]  # one for all numbers or one each; infinity as a string


class BoxFile(msgspec.Struct):
    """A Box space in JSON."""

    shape: tuple[int, ...]
    dtype: str
    low: Bounds
    high: Bounds

    @classmethod
    def of(cls, space: spaces.Box) -> BoxFile:
        """Describe a space."""

        def plain(values: NDArray[Any]) -> Bounds:
            flat = [value if math.isfinite(value) else str(value) for value in values.flatten().astype(float).tolist()]
            return flat[0] if len(set(flat)) == 1 else flat

        return cls(space.shape, str(space.dtype), plain(space.low), plain(space.high))

    def space(self) -> spaces.Box:
        """Return the space."""
        dtype: Any = np.dtype(self.dtype).type
        low, high = (
            np.broadcast_to(np.array(each, dtype=np.float64), math.prod(self.shape)).reshape(self.shape).astype(dtype)
            for each in (self.low, self.high)
        )
        return spaces.Box(low, high, dtype=dtype)


class AgentFile(msgspec.Struct, kw_only=True):
    """What agent.json holds, besides whatever else the agent's description says."""

    format: int
    agent: str
    version: str = ""
    config: dict[str, Any]
    seed: int = 0
    custom_encoder: bool = False
    observation_space: BoxFile
    action_space: BoxFile
    weights: str
    sha256: str
    # the parts of the agent's description that other code relies on
    task: str = ""
    env_kwargs: dict[str, Any] = {}
    data: dict[str, Any] = {}
    training: dict[str, Any] = {}


DESCRIBED = ("task", "env_kwargs", "data", "training")


def save_agent(agent: NavPolicy, folder: str | Path) -> Path:
    """Write an agent into a folder, replacing the one that may be there."""
    folder = Path(folder)
    memory = {MEMORY + name: tensor for name, tensor in agent.memory().items()}
    tensors = {name: tensor.contiguous().cpu() for name, tensor in {**agent.state_dict(), **memory}.items()}
    content = safetensors.torch.save(tensors)
    checksum = hashlib.sha256(content).hexdigest()
    # the name of the weights holds their checksum: until the description is replaced, the old agent stays whole
    weights = folder / f"weights-{checksum[:12]}.safetensors"
    description = {
        "format": FORMAT,
        "agent": agent.name,
        "version": __version__,
        "config": asdict(agent.config),
        "seed": agent.seed,
        "custom_encoder": agent.custom_encoder,
        "observation_space": BoxFile.of(agent.observation_space),
        "action_space": BoxFile.of(agent.action_space),
        **agent.description,
        "weights": weights.name,
        "sha256": checksum,
    }
    write_bytes(weights, content)
    write_json(folder / DESCRIPTION, msgspec.to_builtins(description), indent=2)
    for other in folder.glob("weights-*.safetensors"):
        if other != weights:
            other.unlink()
    return folder


def read_description(folder: str | Path) -> tuple[AgentFile, dict[str, Any]]:
    """Read the JSON description of a saved agent: what the file format needs, and the agent's own description."""
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no trained agent: there is no {DESCRIPTION} in it")
    try:
        content = msgspec.json.decode(path.read_bytes())
        file = msgspec.convert(content, AgentFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or misses what this package writes ({error}): train again") from None
    if file.format != FORMAT:
        raise ValueError(f"{path} has format {file.format}, this version reads {FORMAT}: update pidm-nav")
    own = set(AgentFile.__struct_fields__) - set(DESCRIBED)
    return file, {key: value for key, value in content.items() if key not in own}


def read_tensors(folder: str | Path, file: AgentFile | None = None) -> dict[str, Tensor]:
    """Read the weights and the memory of a saved agent, by name."""
    file = file or read_description(folder)[0]
    path = Path(folder) / file.weights
    if Path(file.weights).name != file.weights or not path.is_file():
        raise FileNotFoundError(f"the weights {path} are missing: the checkpoint is incomplete")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ValueError(f"{path} is not the file its description names: it was cut short or changed")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: train the agent again") from error
    return tensors


def load_agent(
    folder: str | Path,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    *,
    encoder: nn.Module | None = None,
) -> NavPolicy:
    """Load the agent that `save` or `train` wrote into a folder, ready to act.

    Spaces other than those that the agent was trained for are refused. An agent that was made with an encoder of the
    user's own needs it again.
    """
    from pidm_nav.agents import AGENTS

    file, description = read_description(folder)
    if file.agent not in AGENTS:
        raise ValueError(f"{folder} holds an agent '{file.agent}', which is not known: known are {', '.join(AGENTS)}")
    if file.custom_encoder and encoder is None:
        raise ValueError(f"the agent in {folder} was made with an encoder of its own: pass it as encoder=")
    tensors = read_tensors(folder, file)
    kind = AGENTS[file.agent]
    if unknown := set(file.config) - {field.name for field in fields(kind.config_class)}:
        raise ValueError(f"the option {min(unknown)} in {folder} is not one of this agent's: update pidm-nav")
    try:
        config = msgspec.convert(file.config, kind.config_class)
        observations, actions = file.observation_space.space(), file.action_space.space()
    except (ValueError, TypeError) as error:
        place = Path(folder) / DESCRIPTION
        raise ValueError(f"the options or the spaces in {place} are damaged ({error}): train again") from None
    agent = kind(observations, actions, config, encoder=encoder, seed=file.seed)
    memory = {name[len(MEMORY) :]: tensors.pop(name) for name in list(tensors) if name.startswith(MEMORY)}
    try:
        agent.load_state_dict(tensors)
        if isinstance(agent.vision, Frozen):
            agent.vision.check()
        agent.restore(memory)
    except (KeyError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        raise ValueError(f"the description and the weights in {folder} do not fit together: train again") from error
    agent.check_spaces(observation_space or observations, action_space or actions, "your environment")
    agent.description = description
    return agent.eval()


def fingerprint(
    agent: NavPolicy, config: TrainConfig, datasets: Sequence[DemoDataset], others: Sequence[DemoDataset] = ()
) -> str:
    """Return a hash of what a training depends on: agent, settings, frozen encoder, training data and other data."""
    encoder = agent.vision.fitted_to.tolist() if isinstance(agent.vision, Frozen) else None  # settings only name it
    data = [[dataset.sha256 for dataset in part] for part in (datasets, others)]
    parts = [agent.name, asdict(agent.config), asdict(config), encoder, data]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def save_state(
    folder: Path, agent: NavPolicy, optimizer: torch.optim.Optimizer, average: list[Tensor], step: int, identity: str
) -> None:
    """Write weights, moments and averaged weights after `step` steps; batches depend on seed and step alone."""
    moments = optimizer.state_dict()["state"]
    tensors = {f"agent.{name}": tensor.contiguous() for name, tensor in agent.state_dict().items()}
    tensors |= {f"optimizer.{index}.{name}": moments[index][name] for index in moments for name in moments[index]}
    tensors |= {f"average.{index}": tensor for index, tensor in enumerate(average)}
    write_bytes(folder / STATE_FILE, safetensors.torch.save(tensors, {"step": str(step), "identity": identity}))


def load_state(
    folder: Path, agent: NavPolicy, optimizer: torch.optim.Optimizer, average: list[Tensor], identity: str
) -> int:
    """Take over the state of a killed training, and return the number of steps it took; 0 if there is none."""
    path = folder / STATE_FILE
    if not path.is_file():
        return 0
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if metadata["identity"] != identity:
            other = "an unfinished training of another agent, configuration or dataset"
            raise ValueError(f"{folder} holds {other}: choose another folder or delete it")
        agent.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("agent.")})
        moments: dict[int, dict[str, Tensor]] = {}
        for _, index, moment in (name.split(".") for name in tensors if name.startswith("optimizer.")):
            moments.setdefault(int(index), {})[moment] = tensors[f"optimizer.{index}.{moment}"]
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        for number, tensor in enumerate(average):
            tensor.copy_(tensors[f"average.{number}"])
        return int(metadata["step"])
    except (safetensors.SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged: delete it to train from the beginning") from error
