"""Saved agents: a JSON description, and a safetensors file of weights and remembered arrays."""

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
from pidm_nav.files import only_writer, read_bytes, write_bytes, write_json
from pidm_nav.packaged import find_agent
from pidm_nav.version import __version__

DESCRIPTION = "agent.json"
FORMAT = 2
MEMORY = "memory."  # prefix of remembered arrays, before the name of their module
MAX_CARD, MAX_FILE = 2**26, 2**31  # bytes of agent.json, and of weights and remembered arrays
MAX_VALUES = 10_000_000  # of an observation
MAX_ACTION = 10_000  # values of an action, which each have weights of their own
Bound = float | Literal["inf", "-inf"]
Shape = Annotated[tuple[Annotated[int, Meta(ge=1, le=MAX_VALUES)], ...], Meta(max_length=8)]
Number = Annotated[str, Meta(pattern=r"\A(float(16|32|64)|u?int(8|16|32|64))\Z")]


class SpaceFile(msgspec.Struct):
    """A space in JSON: a Box with common or separate bounds, or a Discrete space of n actions."""

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
            raise ValueError(f"a space of shape {self.shape} has more than {MAX_VALUES:,} values")
        low, high = (
            np.broadcast_to(np.array(each, dtype=np.float64), size).reshape(self.shape).astype(dtype)
            for each in (self.low, self.high)
        )
        return spaces.Box(low, high, dtype=dtype)


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as the fields of `SpaceFile`."""
    if isinstance(space, spaces.Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    assert isinstance(space, spaces.Box)

    def plain(values: NDArray[Any]) -> Any:
        flat = [value if math.isfinite(value) else str(value) for value in values.flatten().astype(float).tolist()]
        return flat[0] if len(set(flat)) == 1 else flat

    return {"shape": space.shape, "dtype": str(space.dtype), "low": plain(space.low), "high": plain(space.high)}


class AgentFile(msgspec.Struct, kw_only=True):
    """Schema of agent.json, which also holds the rest of the agent's description."""

    format: int
    agent: str
    version: str = ""
    config: dict[str, Any]
    plugin: str = ""  # named in errors, never imported
    seed: Annotated[int, Meta(ge=0, le=1_000_000_000_000)] = 0
    custom_encoder: bool = False
    observation_space: SpaceFile
    action_space: SpaceFile
    weights: Annotated[str, Meta(pattern=r"\Aweights-\w+\.safetensors\Z")]
    sha256: str
    description_sha256: str = ""  # of all other fields; agents of earlier versions have none
    # fields of the agent's description that other code relies on
    task: Annotated[str, Meta(pattern=r"\A(pidm_nav:)?[^:]*\Z")] = ""  # Gymnasium would import the module of module:ID
    env_kwargs: dict[str, Any] = {}
    data: dict[str, Any] = {}
    training: dict[str, Any] = {}

    def __post_init__(self) -> None:
        Source(env_kwargs=self.env_kwargs)  # raises ValueError if a map is a path
        if (values := self.action_space.n or math.prod(self.action_space.shape)) > MAX_ACTION:
            raise ValueError(f"an action has {values:,} values, and at most {MAX_ACTION:,} are possible")


DESCRIBED = ("task", "env_kwargs", "data", "training")


def save_agent(agent: Agent, folder: str | Path) -> Path:
    """Save an agent to a folder, replacing an earlier one."""
    folder = Path(folder)
    parts: list[Any] = [part for part in agent.modules() if str(getattr(part, "kind", "")) in KINDS]
    for part in parts:
        if KINDS[part.kind].get(part.name) is not type(part):
            raise ValueError(
                f"{type(part).__name__} is not registered as '{part.name}': give it a name and register it"
            )
    memory = {
        prefix + name: torch.tensor(array)
        for prefix, module in _remembering(agent).items()
        for name, array in module.remembered_arrays().items()
    }
    # copies, as safetensors refuses tensors that share memory, such as those of one module with two names
    tensors = {name: tensor.cpu().contiguous().clone() for name, tensor in {**agent.state_dict(), **memory}.items()}
    content = safetensors.torch.save(tensors)
    checksum = hashlib.sha256(content).hexdigest()
    # the file name holds the checksum, so the old agent stays complete until its description is replaced
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
        for other in folder.glob("*weights-*.safetensors"):  # of the old agent, or of a killed process
            if other != weights:
                other.unlink()
    return folder


def _remembering(agent: Agent) -> dict[str, Remembering]:
    """Return the modules with remembered arrays, by the prefix of the arrays' names in files."""
    named = {f"{MEMORY}{name}{'.' if name else ''}": module for name, module in agent.named_modules()}
    return {name: module for name, module in named.items() if isinstance(module, Remembering)}


def _checksum(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def read_description(folder: str | Path) -> tuple[AgentFile, dict[str, Any]]:
    """Read agent.json: the fields of the file format, and the agent's description."""
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(f"'{folder}' holds no trained agent: there is no {DESCRIPTION} in it")
    try:
        content = msgspec.json.decode(read_bytes(path, MAX_CARD))
        file = msgspec.convert(content, AgentFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"'{path}' is damaged or incomplete ({error}): train again") from None
    if file.format != FORMAT:
        remedy = "update pidm-nav" if file.format > FORMAT else "train again"
        raise ValueError(f"'{path}' has format {file.format}, and this version reads {FORMAT}: {remedy}")
    if content.pop("description_sha256", "") not in ("", _checksum(content)):
        raise ValueError(f"'{path}' was changed after it was written: use another copy, or train again")
    own = set(AgentFile.__struct_fields__) - set(DESCRIBED)
    return file, {key: value for key, value in content.items() if key not in own}


def read_tensors(folder: str | Path, file: AgentFile | None = None) -> dict[str, Tensor]:
    """Read the weights and remembered arrays of a saved agent, by name."""
    file = file or read_description(folder)[0]
    path = Path(folder) / file.weights
    if not path.is_file():
        raise FileNotFoundError(f"the weights '{path}' are missing: use a complete copy, or train again")
    content = read_bytes(path, MAX_FILE)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise ValueError(f"'{path}' is truncated or changed: use another copy, or train again")
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise ValueError(f"'{path}' is not a safetensors file: train again") from error
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
        folder: folder of the agent, name of a pretrained agent such as `maze/pidm`, or
            `hf://OWNER/NAME[/FOLDER][@REVISION]` on the Hugging Face Hub.
        observation_space: expected observation space; an agent for another one raises `ValueError`.
        action_space: expected action space; likewise.
        encoder: the custom encoder, if the agent was made with one.
        device: cpu, cuda, cuda:1, mps, or auto (a GPU if there is one).
    """
    place, folder = find_device(device), find_agent(folder)
    file, description = read_description(folder)
    tensors, config = read_tensors(folder, file), file.config
    kind: type[Agent] = find_part("agent", file.agent, file.plugin)
    if file.custom_encoder and encoder is None:
        raise ValueError(f"the agent in {folder} was made with a custom encoder: pass it as encoder=")
    if unknown := set(config) - {field.name for field in fields(kind.config_class)}:
        raise ValueError(f"the agent in {folder} has an unknown setting '{min(unknown)}': update pidm-nav")
    try:
        options = msgspec.convert(config, kind.config_class)
        own_spaces = file.observation_space.space(), file.action_space.space()
        agent = make_agent(kind, own_spaces, options, encoder, file.seed)
    except ValueError as error:
        remedy = f"load the plugin {file.plugin} first with load_plugin" if file.plugin else "train again"
        path = folder / DESCRIPTION
        raise ValueError(f"the settings or spaces in '{path}' are invalid ({error}): {remedy}") from None
    _restore(agent, tensors, folder)
    for own, given in zip(own_spaces, (observation_space, action_space), strict=True):
        if given is not None and not same_space(own, given):
            raise ValueError(f"the agent was trained for {own}, and your environment has {given}: give another one")
    agent.description = description
    return agent.eval().to(place)


def _restore(agent: Agent, tensors: dict[str, Tensor], folder: Path) -> None:
    """Set the weights and remembered arrays of an agent."""
    if broken := [name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.isnan().any()]:
        raise ValueError(f"the agent in {folder} holds NaN in {min(broken)}: use another copy, or train again")
    try:
        memory = {name: tensors.pop(name).numpy() for name in list(tensors) if name.startswith(MEMORY)}
        agent.load_state_dict(tensors)
        if isinstance(agent.vision, Frozen):
            agent.vision.check()
        for prefix, module in reversed(_remembering(agent).items()):  # parts before the agent
            module.restore({name[len(prefix) :]: array for name, array in memory.items() if name.startswith(prefix)})
    except KeyError as error:
        raise ValueError(
            f"the agent in {folder} lacks the array {error}: it was saved before training, or is damaged: train again"
        ) from None
    except (ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
        reason = f" ({error})" if isinstance(error, ValueError) else ""
        raise ValueError(f"the agent in {folder} is inconsistent{reason}: train again") from error
