"""Demonstrations on disk: our own npz files, the paper's compact recordings, and one function that loads any format.

Our file is one compressed npz of flat arrays, readable by anything that reads NumPy's format, without pickle:

    format, version          "pidm-nav demonstrations", 1
    metadata                 JSON text: task, source, seeds, names of the infos
    lengths                  (E,) T of each episode
    observations             (sum of T+1, D), all episodes one after the other
    actions, rewards         (sum of T, A), (sum of T,)
    terminated, truncated    (E,)
    info/NAME                all episodes' rows one after the other
    info_lengths/NAME        (E,) rows of each episode: 0 (none), T or T+1
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import DemoDataset, infer_task
from pidm_nav.demos.formats.minari import Origin, check_id, from_minari
from pidm_nav.episode import Episode
from pidm_nav.files import atomic_file
from pidm_nav.tasks import PAPER_TASKS, task_name
from pidm_nav.world2d.state import REACHED, has_goal_flags

FORMAT = "pidm-nav demonstrations"
VERSION = 1
BUNDLED = ("astar", "human-like")
RECORDED_DYNAMICS = {"clip_noise": False}  # the paper's recordings were made without its clip of noisy actions

Arrays = Mapping[str, NDArray[Any]]


class Metadata(Origin):
    """What an npz file keeps as JSON text."""

    seeds: list[int | None]
    infos: list[str]


def load_demos(source: str | Path) -> DemoDataset:
    """Load demonstrations from anywhere they may be.

    Args:
        source: a `.npz` file, ours or the paper's compact recordings; a folder of the paper's release;
            `minari:` and a dataset's id; or `TASK/astar` or `TASK/human-like`, which come with the package.
    """
    text, path = str(source), Path(source)
    if text.startswith("minari:"):
        return from_minari(text.removeprefix("minari:"))
    if path.is_dir():
        from pidm_nav.demos.formats.paper import load_release

        return load_release(path)
    path = path if path.is_file() else _bundled(text)
    arrays = read_arrays(path)
    try:
        if str(arrays.get("format")) == FORMAT:
            return _read_own(arrays)
        if {"states", "actions", "rewards", "lengths"} <= set(arrays):
            return _read_compact(arrays, path.stem)
        if {"state", "action", "reward"} <= set(arrays):
            raise ValueError("it is one episode of the paper's release: give the folder it is in")
        raise ValueError(f"it holds {', '.join(sorted(arrays)[:5]) or 'nothing'}, which is not a demonstration format")
    except ValueError as error:
        raise ValueError(f"'{path}' cannot be used: {error}") from None


def save_demos(dataset: DemoDataset, path: str | Path) -> None:
    """Write one `.npz` file, whole or not at all: a file already there stays as it was until the end."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"'{path}' does not end in .npz: that is the format demonstrations are saved in")
    keys = sorted({key for episode in dataset for key in episode.infos})
    metadata = Metadata(dataset.task, dict(dataset.source), [episode.seed for episode in dataset], keys)
    arrays: dict[str, NDArray[Any]] = {
        "format": np.array(FORMAT),
        "version": np.array(VERSION),
        "metadata": np.array(json.dumps(msgspec.to_builtins(metadata))),
        "lengths": np.array([len(episode) for episode in dataset]),
        "terminated": np.array([episode.terminated for episode in dataset]),
        "truncated": np.array([episode.truncated for episode in dataset]),
    }
    for name in ("observations", "actions", "rewards"):
        arrays[name] = np.concatenate([getattr(episode, name) for episode in dataset])
    for key in keys:
        rows = [episode.infos[key] for episode in dataset if key in episode.infos]
        if len({row.shape[1:] for row in rows}) > 1:
            raise ValueError(f"info {key!r} differs in shape between episodes: leave it out")
        arrays[f"info/{key}"] = np.concatenate(rows)
        arrays[f"info_lengths/{key}"] = np.array([len(episode.infos.get(key, ())) for episode in dataset])
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def check_output(target: str, force: bool) -> None:
    """Refuse a target that cannot be written to, before any work is done for it."""
    if target.startswith("minari:"):
        check_id(target.removeprefix("minari:"), force)
    elif not target.endswith(".npz"):
        raise ValueError(f"cannot write to '{target}': give a name that ends in .npz, or minari:ID")
    elif Path(target).exists() and not force:
        raise FileExistsError(f"'{target}' exists: choose another name, or --force to replace it")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read every array of an npz file without pickle, and test each one's checksum."""
    arrays = {}
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.namelist():
                    content = io.BytesIO(archive.read(member))
                    arrays[member.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
        except Exception as error:  # a damaged file can fail anywhere in zipfile, zlib or NumPy's header parser
            pickled = isinstance(error, ValueError) and "allow_pickle" in str(error)
            kind = "holds pickled objects, which are never loaded" if pickled else "is cut short or not an npz file"
            raise ValueError(f"'{path}' cannot be read: it {kind}") from None
    return arrays


def _bundled(name: str) -> Path:
    """Return the package's own file of a `TASK/KIND` name."""
    task, _, kind = name.rpartition("/")
    if kind in BUNDLED and task_name(task) in PAPER_TASKS:
        return Path(str(files("pidm_nav.demos") / "data" / f"{task_name(task)}_{kind}.npz"))
    known = ", ".join(f"{task}/{kind}" for task in PAPER_TASKS for kind in BUNDLED)
    raise FileNotFoundError(f"there are no demonstrations at '{name}': give a file, a folder or one of {known}")


def _read_own(arrays: Arrays) -> DemoDataset:
    version = arrays.get("version", np.array(0))
    if version.ndim or version.dtype.kind not in "iu" or not 1 <= version <= VERSION:
        raise ValueError(f"its version is {version}, this pidm-nav reads up to {VERSION}: install a newer one")
    try:
        metadata = msgspec.convert(json.loads(str(arrays["metadata"])), Metadata)
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
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"it is damaged or incomplete ({error})") from None
    return DemoDataset(metadata.task, episodes, metadata.source)


def _read_compact(arrays: Arrays, name: str) -> DemoDataset:
    """Read the paper's recordings as four flat arrays; which task they are of shows in their goals' positions."""
    lengths, states = _lengths(arrays["lengths"]), arrays["states"]
    task = infer_task(states) if states.ndim == 2 else None
    if task is None:
        raise ValueError("its states show the goals of none of our tasks")
    columns = [_pieces(states, lengths + 1), *(_pieces(arrays[key], lengths) for key in ("actions", "rewards"))]
    episodes = tuple(recorded_episode(*parts) for parts in zip(*columns, strict=True))
    return DemoDataset(task, episodes, {"made_by": f"paper: {name}", "env_kwargs": RECORDED_DYNAMICS})


def recorded_episode(states: NDArray[Any], actions: NDArray[Any], rewards: NDArray[Any]) -> Episode:
    """Return an episode of the paper's recordings, whose end shows in its last state."""
    finished = has_goal_flags(states) and bool(states[-1, REACHED].all())
    return Episode(states, actions, rewards, terminated=finished, truncated=not finished)


def _lengths(lengths: NDArray[Any], at_least: int = 1) -> NDArray[np.int64]:
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < at_least).any():
        raise ValueError(f"its episode lengths are not a list of whole numbers from {at_least}")
    return lengths.astype(np.int64)


def _pieces(array: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Cut a flat array into the episodes' rows."""
    if array.ndim == 0 or len(array) != lengths.sum():
        raise ValueError(f"an array of shape {array.shape} does not fit episodes of {lengths.sum()} rows in all")
    return np.split(array, np.cumsum(lengths)[:-1])
