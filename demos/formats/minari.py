"""Demonstrations from and to Minari, the dataset store of the Gymnasium family (needs the `minari` extra)."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import msgspec
import numpy as np

from pidm_nav.console import counted
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.episode import Episode
from pidm_nav.tasks import find_task

ID = re.compile(r"(?:\w[-\w]*/)*\w[-\w]*?-v\d+")
METADATA_KEY = "pidm_nav"  # our task and source, as JSON text, among the dataset's metadata
STORE = "MINARI_DATASETS_PATH"  # the environment variable that names Minari's folder


class Origin(msgspec.Struct):
    """What a file of ours says about where its demonstrations come from."""

    task: str
    source: dict[str, Any]


def to_minari(dataset: DemoDataset, dataset_id: str, force: bool = False) -> None:
    """Store a dataset under an id such as `pidmnav/maze/human-v0`.

    It is written elsewhere first and then moved into place: a failure leaves no half dataset, and `force` keeps
    the old one until the new one is whole.
    """
    minari = _import_minari()
    check_id(dataset_id, force)
    target = _store() / dataset_id
    _store().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pidm-nav-", dir=_store()) as folder:
        with patch.dict(os.environ, {STORE: folder}), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari warns about every optional field
            stored = minari.create_dataset_from_buffers(
                dataset_id,
                [_buffer(index, episode) for index, episode in enumerate(dataset)],
                algorithm_name=str(dataset.source.get("made_by", "unknown")),
                description=f"{counted(len(dataset), 'demonstration')} of {dataset.task}, written by pidm-nav",
                **_environment(dataset),
            )
            # Plain text only: Minari cuts its metadata file off at a NumPy scalar.
            stored.storage.update_metadata({METADATA_KEY: json.dumps({"task": dataset.task, "source": dataset.source})})
        namespace, _, _ = dataset_id.rpartition("/")
        if namespace and namespace not in minari.namespace.list_local_namespaces():
            minari.namespace.create_namespace(namespace)
        if target.exists():
            target.rename(Path(folder) / "replaced")
        (Path(folder) / dataset_id).rename(target)


def from_minari(dataset_id: str) -> DemoDataset:
    """Load a dataset of the local Minari store; its observations and actions must be arrays."""
    minari = _import_minari()
    check_id(dataset_id)
    if not (_store() / dataset_id / "data").is_dir():
        raise FileNotFoundError(
            f"Minari has no '{dataset_id}' in '{_store()}': `minari download {dataset_id}` may fetch it"
        )
    try:
        stored = minari.load_dataset(dataset_id)
        raw = list(stored.iterate_episodes())
        seeds = [each.get("seed") for each in stored.storage.get_episode_metadata(range(len(raw)))]
        origin = _origin(dataset_id, stored)
    except Exception as error:  # HDF5, JSON and Minari each fail in their own ways on a damaged store
        raise ValueError(f"Minari's '{dataset_id}' cannot be read: it is damaged ({type(error).__name__})") from None
    try:
        return DemoDataset(origin.task, tuple(map(_episode, raw, seeds)), origin.source)
    except ValueError as error:
        raise ValueError(f"Minari's '{dataset_id}' cannot be used: {error}") from None


def check_id(dataset_id: str, force: bool = True) -> None:
    """Refuse what Minari would refuse only after making the folder, what would leave its store, and existing ids."""
    if not ID.fullmatch(dataset_id):
        raise ValueError(f"'{dataset_id}' is not a Minari id: it must end in a version, like pidmnav/maze/human-v0")
    if not force and (_store() / dataset_id).exists():
        raise FileExistsError(f"Minari already has '{dataset_id}': choose another version, or --force to replace it")


def _buffer(index: int, episode: Episode) -> Any:
    last = np.arange(len(episode)) == len(episode) - 1
    return _import_minari().data_collector.EpisodeBuffer(
        id=index,
        seed=episode.seed,
        observations=episode.observations,
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=last & episode.terminated,
        truncations=last & episode.truncated,
        infos=dict(episode.infos),
    )


def _episode(raw: Any, seed: int | None) -> Episode:
    for name in ("observations", "actions"):
        if not isinstance(getattr(raw, name), np.ndarray):
            raise ValueError(f"its {name} are a {type(getattr(raw, name)).__name__}: arrays are needed")
    lengths = (len(raw.rewards), len(raw.rewards) + 1)
    arrays = {key: value for key, value in (raw.infos or {}).items() if isinstance(value, np.ndarray)}
    infos = {key: value for key, value in arrays.items() if value.dtype.kind in "fiub" and len(value) in lengths}
    terminated, truncated = bool(raw.terminations[-1]), bool(raw.truncations[-1])
    return Episode(raw.observations, raw.actions, raw.rewards, terminated, truncated, seed, infos)


def _origin(dataset_id: str, stored: Any) -> Origin:
    """Return task and source as we wrote them, or what Minari's own metadata says about them."""
    ours = stored.storage.metadata.get(METADATA_KEY)
    if ours is not None:
        return msgspec.convert(json.loads(ours), Origin)
    spec, made_by = stored.spec.env_spec, f"minari: {dataset_id}"
    if spec is None:
        return Origin(dataset_id, {"made_by": made_by})
    env_kwargs = {key: value for key, value in spec.kwargs.items() if key != "task"}
    return Origin(spec.id, {"made_by": made_by, "env_kwargs": env_kwargs})


def _environment(dataset: DemoDataset) -> dict[str, Any]:
    """Return the environment that Minari keeps with the dataset, or only spaces where it cannot be made."""
    shape, images = dataset[0].observations.shape[1:], dataset[0].observations.ndim == 4
    low, high, dtype = (0, 255, np.uint8) if images else (-np.inf, np.inf, np.float32)
    kept: dict[str, Any] = {
        "observation_space": gym.spaces.Box(low, high, shape, dtype),
        "action_space": gym.spaces.Box(-np.inf, np.inf, (dataset.action_dim,), np.float32),
    }
    if images:
        kept["jpeg_encoding"] = False  # it would change the pixels
    try:
        env = gym.make(find_task(dataset.task).env_id, **dataset.env_kwargs)
    except Exception:  # whatever another's environment may raise: the data are good without it
        return kept
    env.close()
    if env.observation_space.shape == shape and env.action_space.shape == (dataset.action_dim,):
        kept |= {"observation_space": env.observation_space, "action_space": env.action_space}
    return {"env": env, **kept}


def _store() -> Path:
    return Path(os.environ.get(STORE) or Path.home() / ".minari" / "datasets")


def _import_minari() -> Any:
    try:
        import minari
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Minari is not installed: pip install 'pidm-nav[minari]'") from None
    return minari
