"""Recordings in the working folder: uploaded, looked into episode by episode, and edited."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.edit import edit_demos
from pidm_nav.demos.formats import load_demos, save_demos
from pidm_nav.demos.replay import demo_episode, demo_layout, demo_states
from pidm_nav.files import atomic_file, only_writer
from pidm_nav.studio.folder import Folder, picture
from pidm_nav.tasks import TASKS

MAX_UPLOAD = 32_000_000  # bytes


class EditRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with one episode: drop it, or keep some of its steps."""

    episode: int
    trim: tuple[int, int] | None = None  # the first step to keep and the one after the last; None drops the episode


def upload(folder: Folder, name: str, content: bytes) -> dict[str, Any]:
    """Keep an uploaded file if it holds demonstrations and its name is free; no other file is touched."""
    path = folder.file(name)
    with only_writer(path, "rename your file"):
        if path.exists():
            raise FileExistsError(f"there is a recording '{path.name}' already: rename yours")
        with atomic_file(path) as temporary:
            temporary.write_bytes(content)
            try:
                load_demos(temporary)
            except ValueError as error:
                raise ValueError(str(error).replace(str(temporary), path.name)) from None
    return {"name": name}


def list_episodes(folder: Folder, name: str) -> dict[str, Any]:
    """Return the map of a recording and, for each of its episodes, how long it is and how it ended."""
    dataset = _load(folder, name)
    task = TASKS.get(dataset.task)
    drawn = task is not None and task.has_2d_state
    episodes = [
        {
            "steps": len(episode),
            "total": float(episode.rewards.sum()),
            "success": bool(episode.success) if task is not None else None,
        }
        for episode in dataset
    ]
    layout = demo_layout(dataset) if drawn else None
    return {"name": name, "task": dataset.task, "map": picture(layout), "episodes": episodes}


def read_states(folder: Folder, name: str, episode: int) -> list[list[float]]:
    """Return the state vectors of an episode in 2D."""
    dataset = _load(folder, name)
    if dataset.task not in TASKS or not TASKS[dataset.task].has_2d_state:
        raise ValueError(f"episodes of {dataset.task} are not drawn here: pidm-nav demos replay makes a video of one")
    states: list[list[float]] = np.round(demo_states(dataset, episode), 1).tolist()
    return states


def edit(folder: Folder, name: str, request: EditRequest) -> dict[str, Any]:
    """Drop or trim an episode, and return what is left; the file stays as it was until the edited one is whole."""
    path = folder.file(name)
    with only_writer(path, "wait until the recording has ended"):
        demo_episode(_load(folder, name), request.episode)  # refuses a number that no episode has
        if request.trim is None:
            edited = edit_demos(path, drop=str(request.episode))
        else:
            first, end = request.trim
            edited = edit_demos(path, trim=f"{request.episode}={first}:{end}")
        save_demos(edited, path)
    return list_episodes(folder, name)


def _load(folder: Folder, name: str) -> DemoDataset:
    source = folder.demos(name)
    return _loaded(source, Path(source).stat().st_mtime_ns if Path(source).exists() else 0)


@lru_cache(maxsize=1)
def _loaded(source: str, changed: int) -> DemoDataset:
    return load_demos(source)
