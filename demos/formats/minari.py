"""Reading and writing datasets of Minari (needs the extra `minari`)."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal
from unittest.mock import patch

import gymnasium as gym
import msgspec
import numpy as np
from numpy.typing import NDArray

from pidm_nav.console import counted
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.schema import Origin, check_size, find_array, has_numbers, parse_json, refuse_links, size_of
from pidm_nav.files import read_bytes, temporary_folder
from pidm_nav.limits import MAX_EPISODES, MAX_INFOS
from pidm_nav.rollouts.episode import Episode
from pidm_nav.tasks import find_task, unflatten

ID = re.compile(r"(?!.*//)(?:\w[-\w/]*[-\w]/)?\w[-\w]*?-v\d+")  # Minari's ids that stay inside its store
STORE = "MINARI_DATASETS_PATH"  # environment variable of Minari's folder
MAX_METADATA = 2**24  # bytes
ARRAYS = ("actions", "rewards", "terminations", "truncations")  # besides one or several arrays of observations
# wrappers that do not change observations and actions, or flatten observations as `Task.make` does
HARMLESS = {"FlattenObservation", "RecordEpisodeStatistics", "RecordVideo", "TimeLimit", "OrderEnforcing"}


class Space(msgspec.Struct):
    """Fields that we read of a Gymnasium space in Minari's metadata."""

    type: str = "Box"
    shape: tuple[int, ...] = ()
    subspaces: dict[str, Space] | list[Any] = {}


class EnvSpec(msgspec.Struct):
    """Fields that we read of a Gymnasium specification; Minari would import the module of its entry point."""

    id: str
    kwargs: dict[str, Any] = {}
    additional_wrappers: list[dict[str, Any]] = []


class MinariMetadata(msgspec.Struct):
    """Fields that we read of a dataset's metadata."""

    observation_space: str
    action_space: str
    total_episodes: Annotated[int, msgspec.Meta(ge=1, le=MAX_EPISODES)]
    data_format: Literal["hdf5"] = "hdf5"
    env_spec: str | None = None
    pidm_nav: str | None = None  # our task and source, as JSON text


class Written(Origin):
    """Our entry in Minari's metadata, with a checksum of the data, as Minari has none."""

    episodes: int = 0  # number of episodes in the checksum; Minari may have added others
    checksum: str = ""  # SHA-256 of task, source and episodes


def to_minari(
    dataset: DemoDataset,
    dataset_id: str,
    force: bool = False,
    *,
    author: str | None = None,
    description: str | None = None,
) -> None:
    """Store a dataset in the local Minari store, atomically.

    In tasks with goals, the reference scores are 0 and the number of goals, so that Minari's normalized score is the
    goal ratio.

    Args:
        dataset: the dataset.
        dataset_id: id with a version, such as `pidmnav/maze/human-v0`.
        force: replace a dataset with this id.
        author: author of the dataset. Default: the demonstrator.
        description: description of the dataset. Default: the number of demonstrations and the task.
    """
    check_id(dataset_id, force)
    minari, store = _import_minari(), _store()
    written = Written(dataset.task, dict(dataset.source), len(dataset))
    written.checksum = _checksum(written, dataset)
    source = json.dumps(msgspec.to_builtins(written))
    made_by = str(dataset.source.get("made_by", "unknown"))
    scores = {"ref_min_score": 0.0, "ref_max_score": float(dataset.num_goals)} if dataset.num_goals else {}
    kept = _environment(dataset)
    space = kept["observation_space"]
    room = most_bytes(dataset, source, len(space) if isinstance(space, gym.spaces.Dict) else 1)
    try:
        with temporary_folder(store) as folder:
            with (folder / "room").open("wb") as file:  # HDF5 crashes on a full disk, so test the space first
                for _ in range(0, room, 2**18):
                    file.write(bytes(2**18))
            (folder / "room").unlink()
            with patch.dict(os.environ, {STORE: str(folder)}), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Minari warns about every optional field
                stored = minari.create_dataset_from_buffers(
                    dataset_id,
                    [_buffer(index, each, space) for index, each in enumerate(dataset)],
                    algorithm_name=made_by,
                    author=author or made_by,
                    description=description or f"{counted(len(dataset), 'demonstration')} of {dataset.task}",
                    **kept,
                )
                # plain text only: Minari truncates its metadata file at a NumPy scalar
                stored.storage.update_metadata({"pidm_nav": source, **scores})
            namespace, _, _ = dataset_id.rpartition("/")
            if namespace and namespace not in minari.namespace.list_local_namespaces():
                minari.namespace.create_namespace(namespace)
            if (store / dataset_id).exists():
                (store / dataset_id).rename(folder / "replaced")
            (folder / dataset_id).rename(store / dataset_id)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"cannot write Minari's '{dataset_id}' to '{store}' ({reason}): free disk space") from None
    except Exception as error:  # such as an info with a name that HDF5 rejects
        raise ValueError(f"Minari cannot store this dataset as '{dataset_id}': {error}") from None


def from_minari(dataset_id: str) -> DemoDataset:
    """Load a dataset of the local Minari store, with observations flattened as by `collect`.

    The task is the environment's id, or the dataset's id if the environment was wrapped.
    """
    check_id(dataset_id)
    folder = _store() / dataset_id / "data"
    if not folder.is_dir():
        raise FileNotFoundError(f"Minari has no '{dataset_id}' in '{_store()}': try `minari download {dataset_id}`")
    try:
        metadata = parse_json(read_bytes(folder / "metadata.json", MAX_METADATA), MinariMetadata)
        origin = _origin(dataset_id, metadata)
        if not (folder / "main_data.hdf5").is_file():
            raise ValueError("it has no file main_data.hdf5")
        episodes = tuple(_read_episodes(folder / "main_data.hdf5", metadata))
        if isinstance(origin, Written) and origin.checksum not in ("", _checksum(origin, episodes)):
            raise ValueError("its episodes, task or source were changed after they were written: use another copy")
        return DemoDataset(origin.task, episodes, origin.source)
    except ValueError as error:
        raise ValueError(f"Minari's '{dataset_id}' cannot be used: {error}") from None
    except Exception as error:  # HDF5 fails in many ways on a damaged file
        raise ValueError(f"Minari's '{dataset_id}' cannot be read: it is damaged ({type(error).__name__})") from None


def check_id(dataset_id: str, force: bool = True) -> None:
    """Raise an error for invalid ids, ids outside Minari's store and, without `force`, existing ids."""
    _import_minari()
    if not ID.fullmatch(dataset_id):
        raise ValueError(f"'{dataset_id}' is not a Minari id: give one with a version, like pidmnav/maze/human-v0")
    if not (_store() / dataset_id).resolve().is_relative_to(_store().resolve()):
        raise ValueError(f"Minari's '{dataset_id}' is a link that leads out of '{_store()}': choose another id")
    if not force and (_store() / dataset_id).exists():
        raise FileExistsError(f"Minari already has '{dataset_id}': choose another version, or force=True to replace it")


def _checksum(written: Written, episodes: Iterable[Episode]) -> str:
    digest = hashlib.sha256(json.dumps([written.task, written.source], sort_keys=True).encode())
    for episode in islice(episodes, written.episodes):
        ends = [episode.terminated, episode.truncated, episode.seed, sorted(episode.infos)]
        digest.update(json.dumps(ends, default=int).encode())
        infos = (episode.infos[name] for name in sorted(episode.infos))
        for array in (episode.observations, episode.actions, episode.rewards, *infos):
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def most_bytes(dataset: DemoDataset, source: str, parts: int = 1) -> int:
    """Return an upper bound of the bytes of a stored dataset with `parts` arrays of observations per episode.

    HDF5 adds overhead to each array, and pads its last chunk.
    """
    arrays = [
        array for episode in dataset for array in (episode.observations, episode.actions, *episode.infos.values())
    ]
    overhead = 2**18 + len(source) + 16 * dataset.observation_dim + 2**12 * (len(arrays) + (parts + 2) * len(dataset))
    return overhead + 2 * sum(array.nbytes for array in arrays) + 16 * dataset.num_steps


def _buffer(index: int, episode: Episode, space: gym.Space[Any]) -> Any:
    last = np.arange(len(episode)) == len(episode) - 1
    return _import_minari().data_collector.EpisodeBuffer(
        id=index,
        seed=episode.seed,
        observations=unflatten(space, episode.observations),
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=last & episode.terminated,
        truncations=last & episode.truncated,
        infos=dict(episode.infos),
    )


def _read_episodes(path: Path, metadata: MinariMetadata) -> Iterator[Episode]:
    """Read Minari's file without Minari, which would allocate whatever memory a file claims."""
    import h5py

    texts = {"observations": metadata.observation_space, "actions": metadata.action_space}
    spaces = dict(leaf for name, text in texts.items() for leaf in _leaves(name, parse_json(text, Space)))
    with h5py.File(path) as file:
        refuse_links(file)
        indices = range(metadata.total_episodes)
        check_size(size_of(array) for index in indices for array in _find_arrays(file, index, spaces).values())
        for index in indices:
            arrays = {name: array[()] for name, array in _find_arrays(file, index, spaces).items()}
            for name, space in spaces.items():
                if arrays[name].shape[1:] != space.shape:  # such as images in JPEG
                    raise ValueError(f"its {name} do not have the shape {space.shape} of their space")
            seed = file[f"episode_{index}"].attrs.get("seed")
            infos = {name.removeprefix("infos/"): array for name, array in arrays.items() if name.startswith("infos/")}
            observations = _flattened({name: arrays[name] for name in spaces if name != "actions"})
            actions, rewards, terminations, truncations = (arrays[name] for name in ARRAYS)
            yield Episode(observations, actions, rewards, terminations[-1], truncations[-1], seed, infos)


def _leaves(name: str, space: Space) -> Iterator[tuple[str, Space]]:
    """Yield the Boxes of a space by the names of their arrays, in Gymnasium's order of flattening."""
    if space.type == "Dict" and isinstance(space.subspaces, dict) and name != "actions":
        for key, part in space.subspaces.items():
            yield from _leaves(f"{name}/{key}", part)
    elif space.type == "Box":
        yield name, space
    else:
        raise ValueError(f"its {name} are {space.type}: give Box actions, and Box or Dict observations")


def _flattened(parts: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return images unchanged, and other observations flattened to one vector per step."""
    images = parts.get("observations")
    if images is not None and images.ndim == 4 and images.dtype == np.uint8:
        return images
    if any(part.ndim > 2 and part.dtype == np.uint8 for part in parts.values()):
        raise ValueError("its observations are images in a Dict or in stacks: give single images")
    return np.concatenate([part.reshape(len(part), -1) for part in parts.values()], axis=1)


def _find_arrays(file: Any, index: int, spaces: Iterable[str]) -> dict[str, Any]:
    """Return the unread arrays of an episode by name; infos as `infos/NAME`."""
    group = file[f"episode_{index}"]
    found = {name: find_array(file, f"episode_{index}/{name}") for name in dict.fromkeys([*spaces, *ARRAYS])}
    lengths = (len(group["rewards"]), len(group["rewards"]) + 1)
    kept = group["infos"] if "infos" in group else {}  # noqa: SIM401, get ignores a damaged group
    for name, array in kept.items():
        if has_numbers(array) and len(array) in lengths:
            found[f"infos/{name}"] = find_array(file, f"episode_{index}/infos/{name}")
    count = sum(name.startswith("infos/") for name in found)
    if count > MAX_INFOS:
        raise ValueError(f"it has {count} infos, and at most {MAX_INFOS} are read")
    return found


def _origin(dataset_id: str, metadata: MinariMetadata) -> Origin:
    """Return task and source from our entry in the metadata, or else from Minari's."""
    if metadata.pidm_nav is not None:
        return parse_json(metadata.pidm_nav, Written)
    made_by = f"minari: {dataset_id}"
    if metadata.env_spec is None:
        return Origin(dataset_id, {"made_by": made_by})
    spec = parse_json(metadata.env_spec, EnvSpec)
    env_kwargs = {key: value for key, value in spec.kwargs.items() if key not in ("task", "render_mode")}
    wrappers = [str(each.get("name")) for each in spec.additional_wrappers]
    if not HARMLESS.issuperset(wrappers):
        return Origin(dataset_id, {"made_by": f"{made_by}, in {spec.id} with {', '.join(wrappers)}"})
    return Origin(spec.id, {"made_by": made_by, "env_kwargs": env_kwargs})


def _environment(dataset: DemoDataset) -> dict[str, Any]:
    """Return the environment and spaces to store with a dataset; spaces are the data's if the environment's differ."""
    shape, images = dataset[0].observations.shape[1:], dataset[0].observations.ndim == 4
    if images and "jpeg_encoding" not in inspect.signature(_import_minari().create_dataset_from_buffers).parameters:
        raise ValueError("Minari 0.5.3 changes images by JPEG encoding: update Minari, or write an .npz file")
    kept: dict[str, Any] = {"jpeg_encoding": False} if images else {}  # JPEG would change the pixels
    low, high, dtype = (0, 255, np.uint8) if images else (-np.inf, np.inf, np.float32)
    kept["observation_space"] = gym.spaces.Box(low, high, shape, dtype)
    kept["action_space"] = gym.spaces.Box(-np.inf, np.inf, (dataset.action_dim,), np.float32)
    try:
        env = gym.make(find_task(dataset.task).env_id, **dataset.env_kwargs)
        env.close()
        assert env.spec is not None
        env.spec.to_json()  # fails if the entry point is a function
        kept["env"] = env
        if env.action_space.shape == (dataset.action_dim,) and _holds(env.observation_space, dataset[0].observations):
            kept |= {"observation_space": env.observation_space, "action_space": env.action_space}
    except Exception:  # the environment is optional, and may raise anything
        pass
    return kept


def _holds(space: gym.Space[Any], observations: NDArray[Any]) -> bool:
    """Return whether observations, which may be flattened, fit a space."""
    if space.shape == observations.shape[1:]:
        return True
    parts = space.values() if isinstance(space, gym.spaces.Dict) else [space]
    numbers = all(isinstance(part, gym.spaces.Box) and part.dtype.kind == "f" for part in parts)
    return numbers and (gym.spaces.flatdim(space),) == observations.shape[1:]


def _store() -> Path:
    return Path(os.environ.get(STORE) or Path.home() / ".minari" / "datasets")


def _import_minari() -> Any:
    try:
        import minari
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Minari is not installed: pip install 'pidm-nav[minari]'") from None
    return minari
