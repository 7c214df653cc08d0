"""Agents on disk: a JSON description, and a safetensors file of weights and memory."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import safetensors
import safetensors.torch
import torch
from gymnasium import spaces
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent, find_device, make_agent, same_space
from pidm_nav.agents.encoders import Frozen
from pidm_nav.agents.networks import Remembering
from pidm_nav.agents.registry import KINDS, find_part, plugin_of
from pidm_nav.demos.dataset import Source
from pidm_nav.files import only_writer, write_bytes, write_json
from pidm_nav.packaged import find_agent
from pidm_nav.version import __version__

DESCRIPTION = "agent.json"
FORMAT = 2
MEMORY = "memory."  # prefix of the remembered arrays, before the name of the module that remembers them
MAX_VALUES = 10_000_000  # in an observation or an action
Bound = float | Literal["inf", "-inf"]
Shape = Annotated[tuple[Annotated[int, Meta(ge=1, le=MAX_VALUES)], ...], Meta(max_length=8)]
Number = Annotated[str, Meta(pattern=r"\A(float(16|32|64)|u?int(8|16|32|64))\Z")]


class SpaceFile(msgspec.Struct):
    """A space in JSON: a Box, whose bounds are one for all numbers or one each, or a Discrete space of n choices."""

    shape: Shape = ()
    dtype: Number = "int64"
    low: Bound | list[Bound] = 0
    high: Bound | list[Bound] = 0
    n: Annotated[int, Meta(ge=0, le=MAX_VALUES)] = 0
    start: int = 0

    def space(self) -> spaces.Space[Any]:
        """Return the space."""
        if self.n:
            return spaces.Discrete(self.n, start=self.start)
        dtype: Any = np.dtype(self.dtype).type
        size = math.prod(self.shape)
        if size > MAX_VALUES:
            raise ValueError(f"a space of shape {self.shape} has more than {MAX_VALUES:,} numbers")
        low, high = (
            np.broadcast_to(np.array(each, dtype=np.float64), size).reshape(self.shape).astype(dtype)
            for each in (self.low, self.high)
        )
        return spaces.Box(low, high, dtype=dtype)


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return what `SpaceFile` reads."""
    if isinstance(space, spaces.Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    assert isinstance(space, spaces.Box)

    def plain(values: NDArray[Any]) -> Any:
        flat = [value if math.isfinite(value) else str(value) for value in values.flatten().astype(float).tolist()]
        return flat[0] if len(set(flat)) == 1 else flat

    return {"shape": space.shape, "dtype": str(space.dtype), "low": plain(space.low), "high": plain(space.high)}


class AgentFile(msgspec.Struct, kw_only=True):
    """What agent.json holds, besides whatever else the agent's description says."""

    format: int
    agent: str
    version: str = ""
    config: dict[str, Any]
    plugin: str = ""  # what must be loaded first, as a person would name it; nothing is imported because of it
    seed: Annotated[int, Meta(ge=0, le=1_000_000_000_000)] = 0
    custom_encoder: bool = False
    observation_space: SpaceFile
    action_space: SpaceFile
    weights: Annotated[str, Meta(pattern=r"\Aweights-\w+\.safetensors\Z")]
    sha256: str
    description_sha256: str = ""  # of all the rest; agents of earlier versions have none
    # the parts of the agent's description that other code relies on
    task: Annotated[str, Meta(pattern=r"\A(pidm_nav:)?[^:]*\Z")] = ""  # no module that Gymnasium would import
    env_kwargs: dict[str, Any] = {}
    data: dict[str, Any] = {}
    training: dict[str, Any] = {}

    def __post_init__(self) -> None:
        Source(env_kwargs=self.env_kwargs)  # refuses a map that is the name of a file


DESCRIBED = ("task", "env_kwargs", "data", "training")


def save_agent(agent: Agent, folder: str | Path) -> Path:
    """Write an agent into a folder, replacing the one that may be there."""
    folder = Path(folder)
    parts: list[Any] = [part for part in agent.modules() if hasattr(part, "kind")]
    for part in parts:
        if KINDS[part.kind].get(part.name) is not type(part):
            raise ValueError(
                f"{type(part).__name__} is not registered as '{part.name}': give it a name, and register it"
            )
    memory = {
        prefix + name: torch.tensor(array)
        for prefix, module in _remembering(agent).items()
        for name, array in module.remembered_arrays().items()
    }
    tensors = {name: tensor.contiguous().cpu() for name, tensor in {**agent.state_dict(), **memory}.items()}
    content = safetensors.torch.save(tensors)
    checksum = hashlib.sha256(content).hexdigest()
    # the name of the weights holds their checksum: until the description is replaced, the old agent stays whole
    weights = folder / f"weights-{checksum[:12]}.safetensors"
    description = {
        "format": FORMAT,
        "agent": agent.name,
        "plugin": ", ".join(sorted({plugin_of(type(part)) for part in parts} - {""})),
        "version": __version__,
        "config": asdict(agent.saved_config()),
        "seed": agent.seed,
        "custom_encoder": agent.custom_encoder,
        "observation_space": describe_space(agent.observation_space),
        "action_space": describe_space(agent.action_space),
        **agent.description,
        "weights": weights.name,
        "sha256": checksum,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(folder / DESCRIPTION, "try again", wait=True):
        write_bytes(weights, content)
        write_json(folder / DESCRIPTION, {**description, "description_sha256": _checksum(description)}, indent=2)
        for other in folder.glob("*weights-*.safetensors"):  # of the old agent, or what a killed process left
            if other != weights:
                other.unlink()
    return folder


def _remembering(agent: Agent) -> dict[str, Remembering]:
    """Return the modules that remember arrays, by the prefix of their names in files."""
    named = {f"{MEMORY}{name}{'.' if name else ''}": module for name, module in agent.named_modules()}
    return {name: module for name, module in named.items() if isinstance(module, Remembering)}


def _checksum(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


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
        remedy = "update pidm-nav" if file.format > FORMAT else "train again"
        raise ValueError(f"{path} has format {file.format}, this version reads {FORMAT}: {remedy}")
    if content.pop("description_sha256", "") not in ("", _checksum(content)):
        raise ValueError(f"{path} is not as it was written: take a copy that is whole, or train again")
    own = set(AgentFile.__struct_fields__) - set(DESCRIBED)
    return file, {key: value for key, value in content.items() if key not in own}


def read_tensors(folder: str | Path, file: AgentFile | None = None) -> dict[str, Tensor]:
    """Read the weights and the memory of a saved agent, by name."""
    file = file or read_description(folder)[0]
    path = Path(folder) / file.weights
    if not path.is_file():
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
    device: str = "cpu",
) -> Agent:
    """Load an agent, ready to act.

    Args:
        folder: where `save` or `train` wrote it, the name of one that comes with the package, such as `maze/pidm`, or
            `hf://OWNER/NAME[/FOLDER][@REVISION]` on the Hugging Face Hub.
        observation_space: refuse an agent that was trained for another one.
        action_space: the same for its actions.
        encoder: needed again if the agent was made with an encoder of the user's own.
        device: where it acts: cpu, cuda, cuda:1, mps, or auto for a GPU where there is one.
    """
    place, folder = find_device(device), find_agent(folder)
    file, description = read_description(folder)
    tensors, config = read_tensors(folder, file), file.config
    kind: type[Agent] = find_part("agent", file.agent, file.plugin)
    if file.custom_encoder and encoder is None:
        raise ValueError(f"the agent in {folder} was made with an encoder of its own: pass it as encoder=")
    if unknown := set(config) - {field.name for field in fields(kind.config_class)}:
        raise ValueError(f"the option {min(unknown)} in {folder} is not one of this agent's: update pidm-nav")
    try:
        options = msgspec.convert(config, kind.config_class)
        own_spaces = file.observation_space.space(), file.action_space.space()
        agent = make_agent(kind, own_spaces, options, encoder, file.seed)
    except ValueError as error:
        remedy = f"load the plugin {file.plugin} first with load_plugin" if file.plugin else "train again"
        path = folder / DESCRIPTION
        raise ValueError(f"the options or the spaces in {path} cannot be used ({error}): {remedy}") from None
    _restore(agent, tensors, folder)
    for own, given in zip(own_spaces, (observation_space, action_space), strict=True):
        if given is not None and not same_space(own, given):
            raise ValueError(f"the agent was trained for {own}, your environment has {given}: give another one")
    agent.description = description
    return agent.eval().to(place)


def _restore(agent: Agent, tensors: dict[str, Tensor], folder: Path) -> None:
    """Give an agent its weights and what its parts remember."""
    memory = {name: tensors.pop(name).numpy() for name in list(tensors) if name.startswith(MEMORY)}
    try:
        agent.load_state_dict(tensors)
        if isinstance(agent.vision, Frozen):
            agent.vision.check()
        for prefix, module in reversed(_remembering(agent).items()):  # parts before the whole
            module.restore({name[len(prefix) :]: array for name, array in memory.items() if name.startswith(prefix)})
    except KeyError as error:
        raise ValueError(
            f"the agent in {folder} has no {error} in its memory: it was saved before it had seen demonstrations, or "
            "is damaged: train it first"
        ) from None
    except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        reason = f" ({error})" if isinstance(error, ValueError) else ""
        raise ValueError(f"the parts of the agent in {folder} do not fit together{reason}: train again") from error
