"""What the working folder holds: recordings, agents and maps, and which names a page may ask for."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pidm_nav.demos.formats import load_demos
from pidm_nav.policies import packaged_agents, packaged_folder
from pidm_nav.tasks import PAPER_TASKS, TASKS, Task, find_task
from pidm_nav.world2d.layout import Layout

MOST_BYTES = 32_000_000  # of an uploaded file
MOST_MAP = 20_000  # characters of a map
PACKAGED = [f"{task}/{kind}" for task in PAPER_TASKS for kind in ("human-like", "astar")]
NAME = re.compile(r"\w[\w .()-]{0,99}")


@dataclass(frozen=True)
class Folder:
    """The folder that the studio works in; no name from a page leads out of it."""

    path: Path

    def recordings(self) -> list[dict[str, Any]]:
        """Return name, task and number of episodes of every file of demonstrations; the newest file is the first."""
        files = {file: file.stat().st_mtime_ns for file in self.path.glob("[!.]*.npz")}
        own = [_describe(file.name, file, files[file]) for file in sorted(files, key=lambda file: -files[file])]
        return own + [_describe(name, name) for name in PACKAGED]

    def agents(self) -> list[dict[str, Any]]:
        """Return every trained agent, up to three folders below this one, the newest first; then the package's."""
        files = [file for below in ("*/", "*/*/", "*/*/*/") for file in self.path.glob(f"{below}agent.json")]
        files.sort(key=lambda file: -file.stat().st_mtime)
        listed = {file.parent.relative_to(self.path).as_posix(): file for file in files}
        for name in packaged_agents():
            listed.setdefault(name, packaged_folder() / name / "agent.json")
        found = []
        for name, file in listed.items():
            if not name.startswith(".") and "/." not in name:
                with suppress(msgspec.MsgspecError, ValueError, OSError):  # what is not an agent of ours is not listed
                    card = msgspec.json.decode(file.read_bytes(), type=Card)
                    world = World(card.task, card.env_kwargs.layout, card.env_kwargs.room_size)
                    found.append({"name": name, "agent": card.agent, "demos": card.data.episodes, "world": world})
        return found

    def demos(self, name: str) -> str:
        """Return what `load_demos` takes for a name in the list of recordings."""
        if name in PACKAGED:
            return name
        return str(self.file(name, must_exist=True))

    def agent(self, name: str) -> Path:
        """Return the folder of an agent in the list of agents."""
        if all(name != each["name"] for each in self.agents()):
            raise ValueError(f"there is no agent '{name}' in this folder: choose one from the list")
        own = self.path / name
        return own if (own / "agent.json").is_file() else packaged_folder() / name

    def file(self, name: str, must_exist: bool = False) -> Path:
        """Return a file of demonstrations in this folder."""
        if not NAME.fullmatch(name) or not name.endswith(".npz"):
            raise ValueError(f"'{name}' is no name for a recording: use letters and digits, and .npz at the end")
        path = self.path / name
        if path.is_symlink() or (must_exist and not path.is_file()):
            raise FileNotFoundError(f"there is no recording '{name}' in this folder: choose one from the list")
        return path

    def new_run(self, task: str, agent: str, demos: int) -> Path:
        """Return a folder for a training, which does not exist yet."""
        start = f"{task}-{agent}-{demos}"
        numbers = (number for number in range(1, 10_000) if not (self.path / "runs" / f"{start}-{number}").exists())
        return self.path / "runs" / f"{start}-{next(numbers)}"


@lru_cache(maxsize=256)
def _describe(name: str, source: str | Path, changed: int = 0) -> dict[str, Any]:
    """Describe a recording, which is read only once for each time that it was changed."""
    try:
        dataset = load_demos(source)
    except (ValueError, OSError) as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "task": dataset.task, "episodes": len(dataset)}


class World(msgspec.Struct, frozen=True):
    """The environment that a page asks for: a task, or a map of its own."""

    task: str
    map: str | None = None
    room_size: tuple[int, int] = (800, 800)

    def resolve(self) -> tuple[Task, dict[str, Any]]:
        """Return the task and the arguments of its environment."""
        if self.map is None:
            if self.task == "custom" or ":" in self.task:
                raise ValueError(f"the task is '{self.task}': draw a map, or choose a task from the list")
            return find_task(self.task), {}
        if len(self.map) > MOST_MAP:
            raise ValueError(f"the map has {len(self.map):,} characters: at most {MOST_MAP:,} are read")
        layout = Layout.parse(self.map, self.room_size)
        return TASKS["custom"], {"layout": layout.text, "room_size": list(self.room_size)}


class Place(msgspec.Struct, frozen=True):
    """Where an agent was trained, as far as a map of one's own is concerned."""

    layout: str | None = None
    room_size: tuple[int, int] = (800, 800)


class Data(msgspec.Struct, frozen=True):
    """What an agent has learned from."""

    episodes: int = 0


class Card(msgspec.Struct, frozen=True):
    """What a list of agents shows of an agent.json."""

    agent: str
    task: str
    env_kwargs: Place = Place()
    data: Data = Data()


def picture(layout: Layout | None) -> dict[str, Any] | None:
    """Return what a page needs to draw a map, or None where it is shown pictures instead."""
    if layout is None:
        return None
    parts = {"walls": layout.walls, "starts": layout.starts, "goals": layout.goals}
    return {"room": list(layout.room_size), **{name: np.asarray(each).tolist() for name, each in parts.items()}}
