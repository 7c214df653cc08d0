"""Reading and writing robomimic's HDF5 files (needs h5py, from the extra `minari`).

    data                         total, env_args (JSON text: env_name, type, env_kwargs); our task and source
    data/demo_0                  num_samples (T); our seed, terminated and truncated
    data/demo_0/actions          (T, A)
    data/demo_0/rewards, dones   (T,)
    data/demo_0/states           (T, D) if states are known
    data/demo_0/obs/KEY          (T, D) or (T, H, W, C): observations before each action
    data/demo_0/next_obs/KEY     likewise after each action
    data/demo_0/infos/NAME       our infos, (T, ...) or (T+1, ...)

The first two lines are attributes, the others arrays. Robomimic ignores our entries.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import numpy as np

from pidm_nav.console import printable
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.schema import Origin, check_size, find_array, has_numbers, parse_json, refuse_links, size_of
from pidm_nav.files import write_bytes
from pidm_nav.limits import MAX_EPISODES, MAX_INFOS
from pidm_nav.rollouts.episode import Episode
from pidm_nav.tasks import TASKS

SUFFIXES = (".hdf5", ".h5")
GYM_TYPE = 2  # robomimic's code for Gym environments
PACKED = {"compression": "gzip", "shuffle": True, "fletcher32": True}  # fletcher32 is a checksum that HDF5 tests


class EnvArgs(msgspec.Struct):
    """Fields that we read of robomimic's description of an environment."""

    env_name: str
    env_kwargs: dict[str, Any] = {}


def to_robomimic(dataset: DemoDataset, path: str | Path) -> None:
    """Write an HDF5 file for robomimic, which we read back unchanged."""
    h5py, task = import_h5py(), TASKS.get(dataset.task)
    env_name = task.env_id if task else dataset.task
    env_args = {"env_name": env_name, "type": GYM_TYPE, "env_kwargs": dataset.env_kwargs}
    origin = json.dumps({"task": dataset.task, "source": dataset.source})
    memory = io.BytesIO()  # HDF5 crashes on a full disk
    try:
        with h5py.File(memory, "w", libver="v110") as file:  # this version has checksums of metadata
            data = file.create_group("data")
            # HDF5 keeps texts of fixed length under its checksums, and the others where damage is not noticed
            texts = {"env_args": np.bytes_(json.dumps(env_args)), "pidm_nav": np.bytes_(origin)}
            data.attrs.update(total=dataset.num_steps, **texts)
            for index, episode in enumerate(dataset):
                _write_episode(data.create_group(f"demo_{index}"), episode)
            _find_demos(file)  # never write a file that cannot be read
    except Exception as error:  # such as an info with a name that HDF5 rejects
        raise ValueError(f"cannot write '{path}': {error}") from None
    write_bytes(path, memory.getvalue())


def from_robomimic(path: Path) -> DemoDataset:
    """Read an HDF5 file in robomimic's layout.

    All vectors of `obs` are concatenated in the order of their names; without vectors, images are used. Without
    `next_obs`, the last action of an episode is dropped.
    """
    h5py = import_h5py()
    try:
        with h5py.File(path) as file:
            demos, keys = _find_demos(file)
            origin = _origin(file["data"], printable(path.stem))
            return DemoDataset(origin.task, tuple(_read_episode(file, demo, keys) for demo in demos), origin.source)
    except ValueError as error:
        raise ValueError(f"'{path}' cannot be used: {error}") from None
    except Exception as error:  # HDF5 fails in many ways on a damaged file
        kind = "it is damaged, or not an HDF5 file of robomimic"
        raise ValueError(f"'{path}' cannot be read: {kind} ({type(error).__name__})") from None


def import_h5py() -> Any:
    """Import h5py; the error says how to install it."""
    try:
        import h5py
    except ModuleNotFoundError:
        raise ModuleNotFoundError("h5py is not installed: pip install 'pidm-nav[minari]'") from None
    return h5py


def _write_episode(group: Any, episode: Episode) -> None:
    steps, observations = len(episode), episode.observations
    key = "image" if observations.ndim == 4 else "flat"  # robomimic's name for vectors of a Gym environment
    states = episode.infos.get("states", observations)
    arrays = {
        "actions": episode.actions,
        "rewards": episode.rewards,
        "dones": np.append(np.zeros(steps - 1, int), episode.terminated),
        f"obs/{key}": observations[:-1],
        f"next_obs/{key}": observations[1:],
        **({"states": states[:steps]} if states.ndim == 2 else {}),
        **{f"infos/{quote(name, safe=' ')}": array for name, array in episode.infos.items()},
    }
    for name, array in arrays.items():
        group.create_dataset(name, data=array, **(PACKED if array.size else {}))
    group.attrs.update(num_samples=steps, terminated=episode.terminated, truncated=episode.truncated)
    if episode.seed is not None:
        group.attrs["seed"] = episode.seed


def _find_demos(file: Any) -> tuple[list[str], list[str]]:
    """Return the names of the episodes and of their observations; a file that is too large raises ValueError."""
    refuse_links(file)
    data = file["data"]
    if not 1 <= len(data) <= MAX_EPISODES:
        raise ValueError(f"it has {len(data)} episodes, and 1 to {MAX_EPISODES:,} can be read")
    demos = sorted(data, key=lambda name: (len(name), name))  # demo_2 comes before demo_10
    keys = _observed_keys(data[demos[0]]["obs"])
    found = (pair for demo in demos for pair in _find_arrays(file, demo, keys).items())
    check_size(size_of(array, rows=1 if name.startswith("next_obs/") else None) for name, array in found)
    return demos, keys


def _find_arrays(file: Any, demo: str, keys: list[str]) -> dict[str, Any]:
    """Return the unread arrays of an episode by name."""
    group = file[f"data/{demo}"]
    kept = group["infos"] if "infos" in group else ()  # noqa: SIM401, get ignores a damaged group
    infos = [f"infos/{name}" for name in kept]
    if len(infos) > MAX_INFOS:
        raise ValueError(f"it has {len(infos)} infos, and at most {MAX_INFOS} are read")
    names = ["actions", *(name for name in ("rewards", "dones") if name in group)]
    names += [f"{part}/{key}" for part in ("obs", "next_obs") if part in group for key in keys]
    return {name: find_array(file, f"data/{demo}/{name}") for name in names + infos}


def _observed_keys(group: Any) -> list[str]:
    """Return the observations to use: all vectors and numbers, or else the only images."""
    shown = {key: array.ndim for key, array in group.items() if has_numbers(array)}
    vectors = [key for key, ndim in shown.items() if ndim <= 2]
    images = [key for key, ndim in shown.items() if ndim == 4]
    if not vectors and len(images) != 1:
        raise ValueError(f"its observations are {', '.join(group) or 'empty'}: give vectors, or images of one camera")
    return vectors or images


def _read_episode(file: Any, demo: str, keys: list[str]) -> Episode:
    group, arrays = file[f"data/{demo}"], _find_arrays(file, demo, keys)
    infos = {unquote(name[6:]): arrays.pop(name)[()] for name in list(arrays) if name.startswith("infos/")}
    steps = len(arrays["actions"])
    if any(len(array) != steps for array in arrays.values()):
        raise ValueError(f"the arrays of {demo} have different lengths")
    observations = _joined([arrays[f"obs/{key}"][()] for key in keys])
    if "next_obs" in group:
        last = _joined([arrays[f"next_obs/{key}"][-1:] for key in keys])
        observations = np.concatenate([observations, last])
    else:
        steps -= 1
    actions = arrays["actions"][:steps]
    rewards = arrays["rewards"][:steps] if "rewards" in arrays else np.zeros(steps)
    terminated, truncated = _attribute(group, "terminated"), _attribute(group, "truncated")
    if terminated is None:
        terminated = bool("next_obs" in group and "dones" in arrays and arrays["dones"][-1])
        truncated = not terminated
    return Episode(observations, actions, rewards, terminated, truncated, _attribute(group, "seed"), infos)


def _joined(arrays: list[Any]) -> Any:
    """Return concatenated vectors; a single array, such as images, is returned unchanged."""
    if len(arrays) == 1 and arrays[0].ndim > 1:
        return arrays[0]
    return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)


def _origin(data: Any, name: str) -> Origin:
    """Return task and source from our attribute, or else from robomimic's."""
    ours, env_args = _attribute(data, "pidm_nav"), _attribute(data, "env_args")
    if ours is not None:
        return parse_json(ours, Origin)
    made_by = f"robomimic: {name}"
    if env_args is None:
        return Origin(name, {"made_by": made_by})
    described = parse_json(env_args, EnvArgs)
    described.env_kwargs.pop("render_mode", None)
    return Origin(described.env_name, {"made_by": made_by, "env_kwargs": described.env_kwargs})


def _attribute(group: Any, name: str) -> Any:
    """Return an attribute that is one text or integer, or None; lists of texts could take any memory."""
    if name not in group.attrs:
        return None
    found = group.attrs.get_id(name)
    if found.shape or not (import_h5py().check_string_dtype(found.dtype) or found.dtype.kind in "iub"):
        raise ValueError(f"its attribute {name} is not one text or number")
    value = group.attrs[name]
    return value.item() if isinstance(value, np.generic) else value
