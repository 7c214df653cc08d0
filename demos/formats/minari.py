"""Demonstrations from and to Minari, the dataset store of the Gymnasium family (needs the `minari` extra)."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.episode import Episode
from pidm_nav.tasks import find_task

ID = re.compile(r"(?:\w[-\w]*/)*\w[-\w]*?-v\d+")
METADATA_KEY = "pidm_nav"  # our task and source, as JSON text, among the dataset's metadata


def to_minari(dataset: DemoDataset, dataset_id: str, force: bool = False) -> None:
    """Store a dataset under an id such as `pidmnav/maze/human-v0`.

    It is written elsewhere first and then moved into place: a failure leaves no half dataset, `force` keeps
    the old one until the new one is whole.
    """
    minari = _import_minari()
    check_id(dataset_id, force)
    target = _store() / dataset_id
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=index,
            seed=episode.seed,
            observations=episode.observations,
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=_last_only(episode.terminated, len(episode)),
            truncations=_last_only(episode.truncated, len(episode)),
            infos=dict(episode.infos),
        )
        for index, episode in enumerate(dataset)
    ]
    _store().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pidm-nav-", dir=_store()) as folder:
        with _store_at(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari warns about every optional field
            stored = minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                algorithm_name=str(dataset.source.get("made_by", "unknown")),
                description=f"{len(dataset)} demonstrations of {dataset.task}, written by pidm-nav",
                **_environment(dataset),
            )
            # Plain text only: Minari cuts its metadata file off on a NumPy scalar.
            stored.storage.update_metadata({METADATA_KEY: json.dumps({"task": dataset.task, "source": dataset.source})})
        _make_namespace(dataset_id)
        if target.exists():
            target.rename(Path(folder) / "replaced")
        (Path(folder) / dataset_id).rename(target)


def from_minari(dataset_id: str) -> DemoDataset:
    """A dataset of the local Minari store; its observations and actions must be vectors."""
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
        metadata = stored.storage.metadata
        task, source = _origin(dataset_id, stored, metadata.get(METADATA_KEY))
    except Exception as error:  # HDF5, JSON and Minari each fail in their own ways on a damaged store
        raise ValueError(f"Minari's '{dataset_id}' cannot be read: it is damaged ({type(error).__name__})") from None
    try:
        return DemoDataset(task, tuple(map(_episode, raw, seeds)), source)
    except ValueError as error:
        raise ValueError(f"Minari's '{dataset_id}' cannot be used: {error}") from None


def _episode(raw: Any, seed: int | None) -> Episode:
    for name, value in (("observations", raw.observations), ("actions", raw.actions)):
        if not isinstance(value, np.ndarray):
            raise ValueError(f"its {name} are a {type(value).__name__}: vectors are needed")
    steps = len(raw.rewards)
    infos = {
        key: value
        for key, value in (raw.infos or {}).items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and len(value) in (steps, steps + 1)
    }
    terminated, truncated = bool(raw.terminations[-1]), bool(raw.truncations[-1])
    return Episode(raw.observations, raw.actions, raw.rewards, terminated, truncated, seed, infos)


def _origin(dataset_id: str, stored: Any, ours: str | None) -> tuple[str, dict[str, Any]]:
    """Task and source: as we wrote them, else as far as Minari's own metadata tells."""
    if ours is not None:
        origin = json.loads(ours)
        return origin["task"], origin["source"]
    spec = stored.spec.env_spec
    source: dict[str, Any] = {"made_by": f"minari: {dataset_id}"}
    if spec is None:
        return dataset_id, source
    source["env_kwargs"] = {key: value for key, value in spec.kwargs.items() if key != "task"}
    return spec.id, source


def _environment(dataset: DemoDataset) -> dict[str, Any]:
    """The environment that Minari keeps with the dataset, or only spaces for one that cannot be made."""
    shape, images = dataset.episodes[0].observations.shape[1:], dataset.episodes[0].observations.ndim == 4
    spaces: dict[str, Any] = {
        "observation_space": gym.spaces.Box(0, 255, shape, np.uint8)
        if images
        else gym.spaces.Box(-np.inf, np.inf, shape, np.float32),
        "action_space": gym.spaces.Box(-np.inf, np.inf, (dataset.action_dim,), np.float32),
    }
    if images:
        spaces["jpeg_encoding"] = False  # it would change the pixels
    try:
        env = gym.make(find_task(dataset.task).env_id, **dataset.env_kwargs)
    except Exception:  # whatever another's environment may raise: the data are good without it
        return spaces
    env.close()
    if env.observation_space.shape == shape and env.action_space.shape == (dataset.action_dim,):
        spaces |= {"observation_space": env.observation_space, "action_space": env.action_space}
    return {"env": env, **spaces}


def _make_namespace(dataset_id: str) -> None:
    from minari import namespace as namespaces

    namespace, _, _ = dataset_id.rpartition("/")
    if namespace and namespace not in namespaces.list_local_namespaces():
        namespaces.create_namespace(namespace)


def _last_only(value: bool, steps: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(T,) False but for the last."""
    flags = np.zeros(steps, dtype=bool)
    flags[-1] = value
    return flags


def check_id(dataset_id: str, force: bool = True) -> None:
    """Refuse what Minari would refuse only after making the folder, what would leave its store, and existing ids."""
    if not ID.fullmatch(dataset_id):
        raise ValueError(
            f"'{dataset_id}' is not a Minari id: write it like pidmnav/maze/human-v0, ending in -v and a number"
        )
    if not force and (_store() / dataset_id).exists():
        raise FileExistsError(f"Minari already has '{dataset_id}': choose another version, or --force to replace it")


def _store() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


@contextmanager
def _store_at(folder: str) -> Iterator[None]:
    """Minari's store moved for the length of a block; the environment variable is Minari's only way."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before


def _import_minari() -> ModuleType:
    try:
        import minari
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Minari is not installed: pip install 'pidm-nav[minari]'") from None
    module: ModuleType = minari
    return module
