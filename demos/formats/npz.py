"""load_demos() for any format, save_demos(), and our npz format.

Our format is one compressed npz file of flat arrays, without pickle:

    format, version          "pidm-nav demonstrations", 1
    metadata                 JSON text: task, source, seeds, names of the infos
    lengths                  (E,) T of each episode
    observations             (sum of T+1, D), all episodes one after the other
    actions, rewards         (sum of T, A), (sum of T,)
    terminated, truncated    (E,)
    info/NAME                rows of all episodes, one after the other
    info_lengths/NAME        (E,) rows of each episode: 0 (none), T or T+1
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pidm_nav.console import printable
from pidm_nav.demos.dataset import DemoDataset, infer_task
from pidm_nav.demos.formats.arrays import read_arrays
from pidm_nav.demos.formats.flat import from_flat, from_trajectories, is_flat
from pidm_nav.demos.formats.minari import check_id, from_minari, to_minari
from pidm_nav.demos.formats.robomimic import SUFFIXES, from_robomimic, import_h5py, to_robomimic
from pidm_nav.demos.formats.schema import Origin, check_size
from pidm_nav.files import atomic_file, only_writer, writable_folder
from pidm_nav.hub import HubName, download, on_hub
from pidm_nav.limits import MAX_EPISODES, MAX_INFOS, MAX_NUMBERS
from pidm_nav.rollouts.episode import Episode
from pidm_nav.tasks import PAPER_TASKS, task_name
from pidm_nav.world2d.state import REACHED, has_goal_flags

FORMAT = "pidm-nav demonstrations"
VERSION = 1
HUB_FILE = "demos.npz"  # default file of a dataset on the Hugging Face Hub
BUNDLED = ("astar", "human-like")
RECORDED_DYNAMICS = {"clip_noise": False}  # the paper's recordings were made without clipping noisy actions

Arrays = Mapping[str, NDArray[Any]]


class NpzMetadata(Origin):
    """Schema of the JSON metadata of an npz file."""

    seeds: Annotated[list[int | None], msgspec.Meta(max_length=MAX_EPISODES)]
    infos: Annotated[list[str], msgspec.Meta(max_length=MAX_INFOS)]


def load_demos(
    source: str | Path | DemoDataset | Mapping[str, Any] | Sequence[Any], task: str | None = None
) -> DemoDataset:
    """Load demonstrations from a file, a folder, a name or arrays; a DemoDataset is returned unchanged.

    Args:
        source: a `.npz` file (ours, the paper's compact recordings or D4RL's arrays); a `.hdf5` file in robomimic's
            layout; a folder of the paper's release; `minari:ID`; `TASK/astar` or `TASK/human-like` of the package;
            `hf://OWNER/NAME[/FOLDER or FILE.npz][@REVISION]` on the Hugging Face Hub; a dict of D4RL's arrays; or a
            list of trajectories of `imitation`.
        task: task of the demonstrations, if the data name none or another one.
    """
    if isinstance(source, Mapping):
        return from_flat(source, task)
    if not isinstance(source, str | Path | DemoDataset | Sequence):
        raise ValueError(f"{reprlib.repr(source)} is not a dataset: give a path, TASK/human-like or a DemoDataset")
    if not isinstance(source, str | Path | DemoDataset):
        return from_trajectories(source, task)
    dataset = source if isinstance(source, DemoDataset) else _load(str(source))
    if not isinstance(source, DemoDataset):  # without folders, which are private: agents save the name
        object.__setattr__(dataset, "name", printable(Path(source).name if Path(source).exists() else str(source)))
    return dataset if task is None else replace(dataset, task=task)


def _load(text: str) -> DemoDataset:
    path = Path(text)
    if on_hub(text):
        file = PurePosixPath(HubName.parse(text).inside).name
        file = file if file.endswith(".npz") else HUB_FILE
        path = download(text, "dataset", [file]) / file
    elif text.startswith("minari:"):
        return from_minari(text.removeprefix("minari:"))
    if path.is_dir():
        from pidm_nav.demos.formats.paper import load_release  # noqa: PLC0415  which imports this module

        return load_release(path)
    if path.suffix in SUFFIXES and path.is_file():
        return from_robomimic(path)
    path = path if path.is_file() else _bundled(text)
    arrays = read_arrays(path)
    try:
        if str(arrays.get("format")) == FORMAT:
            return _read_own(arrays)
        if {"states", "actions", "rewards", "lengths"} <= set(arrays):
            return _read_compact(arrays, printable(path.stem))
        if is_flat(arrays):
            return from_flat(arrays, None, printable(path.stem))
        if {"state", "action", "reward"} <= set(arrays):
            raise ValueError("it is one episode of the paper's release: give its folder")
        raise ValueError(f"it holds {', '.join(sorted(arrays)[:5]) or 'nothing'}, which is no known format")
    except ValueError as error:
        raise ValueError(f"'{path}' cannot be used: {error}") from None


def save_demos(dataset: DemoDataset, target: str | Path) -> None:
    """Save demonstrations to a `.npz` file, a `.hdf5` file in robomimic's layout, or `minari:ID`.

    An earlier file stays until the new one is complete.
    """
    if str(target).startswith("minari:"):
        to_minari(dataset, str(target).removeprefix("minari:"), force=True)
        return
    check_output(str(target), force=True)
    if Path(target).suffix in SUFFIXES:
        to_robomimic(dataset, target)
        return
    keys = sorted({key for episode in dataset for key in episode.infos})
    metadata: dict[str, Any] = {"task": dataset.task, "source": dataset.source}
    metadata |= {"seeds": [episode.seed for episode in dataset], "infos": keys}
    arrays: dict[str, NDArray[Any]] = {
        "format": np.array(FORMAT),
        "version": np.array(VERSION),
        "metadata": np.array(json.dumps(metadata)),
        "lengths": np.array([len(episode) for episode in dataset]),
        "terminated": np.array([episode.terminated for episode in dataset]),
        "truncated": np.array([episode.truncated for episode in dataset]),
    }
    for name in ("observations", "actions", "rewards"):
        arrays[name] = np.concatenate([getattr(episode, name) for episode in dataset])
    for key in keys:
        rows = [episode.infos[key] for episode in dataset if key in episode.infos]
        if len({row.shape[1:] for row in rows}) > 1:
            raise ValueError(f"info {key!r} has different shapes in different episodes: leave it out")
        arrays[f"info/{key}"] = np.concatenate(rows)
        arrays[f"info_lengths/{key}"] = np.array([len(episode.infos.get(key, ())) for episode in dataset])
    try:  # never write a file that cannot be read
        msgspec.convert(metadata, NpzMetadata)
        check_size((array.shape, array.dtype) for array in arrays.values())
    except ValueError as error:
        raise ValueError(f"cannot write '{target}': {error}") from None
    with atomic_file(target) as temporary, temporary.open("xb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


@contextmanager
def reserved_output(target: str, force: bool) -> Iterator[None]:
    """Check a target, and lock it against other processes inside the block."""
    check_output(target, force)
    if target.startswith("minari:"):  # Minari's store has its own lock
        yield
        return
    with only_writer(target, "wait until it is done, or choose another name"):
        check_output(target, force)  # another process may have written it in the meantime
        yield


def check_output(target: str, force: bool) -> None:
    """Raise an error if demonstrations cannot be saved to a target."""
    if target.startswith("minari:"):
        check_id(target.removeprefix("minari:"), force)
        return
    if Path(target).suffix in SUFFIXES:
        import_h5py()
    elif not target.endswith(".npz"):
        raise ValueError(f"cannot write to '{target}': give a name that ends with .npz or .hdf5, or minari:ID")
    if Path(target).exists() and not force:
        raise FileExistsError(f"'{target}' exists: choose another name, or force=True to replace it")
    writable_folder(Path(target).parent)


def _bundled(name: str) -> Path:
    """Return the package's file for a `TASK/KIND` name."""
    task, _, kind = name.rpartition("/")
    if kind in BUNDLED and task_name(task) in PAPER_TASKS:
        return Path(str(files("pidm_nav.demos") / "data" / f"{task_name(task)}_{kind}.npz"))
    known = ", ".join(f"{task}/{kind}" for task in PAPER_TASKS for kind in BUNDLED)
    raise FileNotFoundError(f"there are no demonstrations '{name}': give a file, a folder or one of {known}")


def _read_own(arrays: Arrays) -> DemoDataset:
    try:
        version = arrays["version"].tolist()
        if version != VERSION:
            raise ValueError(
                f"its version is {reprlib.repr(version)}, and this pidm-nav reads {VERSION}: update pidm-nav"
            )
        metadata = msgspec.json.decode(str(arrays["metadata"]), type=NpzMetadata)
        lengths = _lengths(arrays["lengths"])
        steps = [_pieces(arrays[name], lengths) for name in ("actions", "rewards")]
        ends = [arrays[name].tolist() for name in ("terminated", "truncated")]
        infos: list[dict[str, NDArray[Any]]] = [{} for _ in lengths]
        for key in metadata.infos:
            rows = _lengths(arrays[f"info_lengths/{key}"], at_least=0)
            for info, piece in zip(infos, _pieces(arrays[f"info/{key}"], rows), strict=True):
                if len(piece):
                    info[key] = piece
        columns = (_pieces(arrays["observations"], lengths + 1), *steps, *ends, metadata.seeds, infos)
        episodes = tuple(Episode(*parts) for parts in zip(*columns, strict=True))
    except (KeyError, TypeError, RecursionError, msgspec.DecodeError) as error:
        raise ValueError(f"it is damaged or incomplete ({error})") from None
    return DemoDataset(metadata.task, episodes, metadata.source)


def _read_compact(arrays: Arrays, name: str) -> DemoDataset:
    """Read the paper's recordings as four flat arrays; the task is inferred from the goals' positions."""
    lengths = _lengths(arrays["lengths"])
    columns = [_pieces(arrays["states"], lengths + 1)]
    columns += [_pieces(arrays[key], lengths) for key in ("actions", "rewards")]
    episodes = tuple(recorded_episode(*parts) for parts in zip(*columns, strict=True))
    task = infer_task(episodes[0].observations)
    if task is None:
        raise ValueError("its states have the goals of no known task")
    return DemoDataset(task, episodes, {"made_by": f"paper: {name}", "env_kwargs": RECORDED_DYNAMICS})


def recorded_episode(states: NDArray[Any], actions: NDArray[Any], rewards: NDArray[Any]) -> Episode:
    """Return an episode of the paper's recordings, which is terminated if its last state has all goals reached."""
    episode = Episode(states, actions, rewards, terminated=False, truncated=True)
    finished = has_goal_flags(episode.observations) and bool(episode.observations[-1, REACHED].all())
    return replace(episode, terminated=finished, truncated=not finished)


def _lengths(lengths: NDArray[Any], at_least: int = 1) -> NDArray[np.int64]:
    good = lengths.ndim == 1 and lengths.dtype.kind in "iu" and 0 < len(lengths) <= MAX_EPISODES
    if not good or lengths.min() < at_least or lengths.max() > MAX_NUMBERS:
        raise ValueError(f"its episode lengths are not a list of integers of at least {at_least}")
    return lengths.astype(np.int64)


def _pieces(array: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Split a flat array into episodes."""
    if array.ndim == 0 or len(array) != lengths.sum():
        raise ValueError(f"an array has shape {array.shape}, and its episodes have {lengths.sum()} rows")
    return np.split(array, np.cumsum(lengths)[:-1])
