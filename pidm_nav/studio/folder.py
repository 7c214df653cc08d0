"""The working folder: its recordings, agents and maps, and the names that a page may ask for."""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from pidm_nav.console import printable
from pidm_nav.demos.formats import load_demos
from pidm_nav.files import only_writer, read_bytes
from pidm_nav.limits import check_number
from pidm_nav.packaged import packaged_agents, packaged_folder
from pidm_nav.plots import agent_title
from pidm_nav.tasks import PAPER_TASKS, TASKS, Task, find_task
from pidm_nav.world2d.layout import Layout

MAX_RECORDING = 2**28  # bytes of a recording that is listed, of which every episode is read
MAX_CARD = 2**20  # bytes of an agent's description
MAX_MAP = 20_000  # characters of a map
MAX_ROOM = 2048  # pixels of a room along one side
PACKAGED = [f"{task}/{kind}" for task in PAPER_TASKS for kind in ("human-like", "astar")]
NAME = re.compile(r"\w[\w .()-]{0,99}")
RUN_FILES = re.compile(  # what a training run writes
    r"agent\.json|(weights-\w+|training)\.safetensors|losses\.jsonl|run\.yaml|\..*|checkpoints|tensorboard|unfinished"
)
NOT_PLAIN = "its name is not plain text: rename it"
TRAINING_STATE = "training.safetensors"  # locked by the process that trains in a run's folder
IN_TRAINING = "stop the training where it was started, or wait until it has ended"


@dataclass(frozen=True)
class Folder:
    """The folder that the studio works in, without links in its path; no name from a page leads out of it."""

    path: Path

    def recordings(self) -> list[dict[str, Any]]:
        """Return name, task and numbers of episodes of every recording, the newest first, or why it is not read."""
        files = {file: file.lstat() for file in self.path.glob("[!.]*.npz")}
        own = sorted(files.items(), key=lambda pair: -pair[1].st_mtime_ns)
        listed = [_list_recording(file, status) for file, status in own]
        return listed + [_describe(name, name) for name in PACKAGED]

    def agents(self) -> list[dict[str, Any]]:
        """Return every trained agent, up to three folders below this one, the newest first; then the package's.

        An agent that cannot be read has an `error`.
        """
        files = [file for below in ("*/", "*/*/", "*/*/*/") for file in self.path.glob(f"{below}agent.json")]
        files.sort(key=lambda file: -file.lstat().st_mtime)
        listed = {file.parent.relative_to(self.path).as_posix(): file for file in files}
        for name in packaged_agents():
            listed.setdefault(name, packaged_folder() / name / "agent.json")
        shown = (name for name in listed if not name.startswith(".") and "/." not in name)
        return [self._list_agent(name, listed[name]) for name in shown]

    def _list_agent(self, name: str, file: Path) -> dict[str, Any]:
        try:
            if printable(name) != name:
                raise ValueError(NOT_PLAIN)
            if self.path in file.parents and file.resolve() != file:
                raise ValueError("it is a link: copy the agent into this folder")
            card = msgspec.json.decode(read_bytes(file, MAX_CARD), type=AgentCard)
        except (msgspec.MsgspecError, ValueError, OSError, RecursionError) as error:
            return {"name": printable(name), "error": self.explain(error)}
        world = WorldRequest(card.task, card.env_kwargs.layout, card.env_kwargs.room_size)
        return {
            "name": name,
            "agent": card.agent,
            "title": agent_title(card.agent),
            "demos": card.data.episodes,
            "world": world,
        }

    def explain(self, error: Exception) -> str:
        """Return what an error says, with names of files as the page shows them."""
        return printable(str(error).replace(f"{self.path}{os.sep}", ""))

    def demos(self, name: str) -> str:
        """Return what `load_demos` takes for a name in the list of recordings."""
        if name in PACKAGED:
            return name
        path = self.file(name)
        if not path.is_file():
            raise FileNotFoundError(f"there is no recording '{name}' in this folder: choose one from the list")
        return str(path)

    def agent(self, name: str) -> Path:
        """Return the folder of an agent in the list of agents."""
        if all(name != each["name"] or "error" in each for each in self.agents()):
            raise ValueError(f"there is no agent '{name}' in this folder: choose one from the list")
        own = self.path / name
        return own if (own / "agent.json").is_file() else packaged_folder() / name

    def file(self, name: str) -> Path:
        """Return a file of demonstrations in this folder, which may not exist yet."""
        if not NAME.fullmatch(name) or not name.endswith(".npz"):
            raise ValueError(f"'{name}' is not a valid name for a recording: use letters and digits, and end in .npz")
        path = self.path / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise FileNotFoundError(f"'{name}' is a link, or not a regular file: choose another name")
        return path

    def new_run(self, task: str, agent: str, demos: int) -> Path:
        """Make a new folder for a training run."""
        start = re.sub(r"[^\w.-]+", "-", f"{task}-{agent}-{demos}").lstrip("-.")
        for number in range(1, 10_000):
            path = self.run(f"runs/{start}-{number}"[:200])
            if not path.exists():
                path.mkdir(parents=True)
                return path
        raise FileExistsError(f"there are 9,999 training runs called {start}: delete some")

    def run(self, name: str) -> Path:
        """Return the folder of a training run."""
        runs, _, last = name.partition("/")
        path = self.path / "runs" / last
        if runs != "runs" or not NAME.fullmatch(last) or path.resolve() != path:
            raise ValueError(f"'{name}' is not a valid name for a training run: give runs/NAME, in letters and digits")
        return path

    def rename_run(self, name: str, new: str) -> str:
        """Rename a training run's folder; no other folder is replaced."""
        path, target = self._existing_run(name), self.run(new)
        if target.exists():
            raise FileExistsError(f"there is a '{new}' already: choose another name")
        with only_writer(path / TRAINING_STATE, IN_TRAINING):
            pass  # the lock would move with the folder
        path.rename(target)
        return new

    def delete_run(self, name: str) -> None:
        """Delete the files of a training run, and its folder if nothing else is in it."""
        path = self._existing_run(name)
        with only_writer(path / TRAINING_STATE, IN_TRAINING):
            for each in path.iterdir():
                if RUN_FILES.fullmatch(each.name) and each.name != f".{TRAINING_STATE}.lock":  # held until the end
                    shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        if others := [each.name for each in path.iterdir()]:
            raise OSError(f"'{name}' also holds {', '.join(others[:3])}, which training did not write: it stays")
        path.rmdir()

    def _existing_run(self, name: str) -> Path:
        path = self.run(name)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no training run '{name}': choose one from the list")
        return path


def _list_recording(file: Path, status: os.stat_result) -> dict[str, Any]:
    if (name := printable(file.name)) != file.name:
        return {"name": name, "error": NOT_PLAIN}
    if not stat.S_ISREG(status.st_mode):
        return {"name": file.name, "error": "it is a link, or not a regular file"}
    if status.st_size > MAX_RECORDING:
        return {
            "name": file.name,
            "error": f"it has {status.st_size:,} bytes: at most {MAX_RECORDING:,} are read",
        }
    return _describe(file.name, file, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _describe(name: str, source: str | Path, changed: int = 0) -> dict[str, Any]:
    """Describe a recording, which is read only once for each time that it was changed."""
    try:
        dataset = load_demos(source)
    except (ValueError, OSError) as error:
        return {"name": name, "error": str(error).replace(str(source), name)}
    return {"name": name, "task": dataset.task, "episodes": len(dataset), "failed": dataset.num_failed}


class WorldRequest(msgspec.Struct, frozen=True):
    """The environment that a page asks for: a task, or a map of its own."""

    task: str
    map: str | None = None
    room_size: tuple[int, int] = (800, 800)

    def resolve(self) -> tuple[Task, dict[str, Any]]:
        """Return the task and the arguments of its environment."""
        if self.map is None:
            if self.task == "custom" or ":" in self.task:
                raise ValueError(f"the task is '{self.task[:100]}': draw a map, or choose a task from the list")
            return find_task(self.task), {}
        if len(self.map) > MAX_MAP:
            raise ValueError(f"the map has {len(self.map):,} characters: at most {MAX_MAP:,} are read")
        for side in self.room_size:
            check_number("the side of a room in the studio", side, 1, MAX_ROOM)
        layout = Layout.parse(self.map, self.room_size)
        return TASKS["custom"], {"layout": layout.text, "room_size": list(self.room_size)}


class TrainedMap(msgspec.Struct, frozen=True):
    """Where an agent was trained, as far as a map of one's own is concerned."""

    layout: str | None = None
    room_size: tuple[int, int] = (800, 800)


class TrainedOn(msgspec.Struct, frozen=True):
    """What an agent has learned from."""

    episodes: int = 0


class AgentCard(msgspec.Struct, frozen=True):
    """What a list of agents shows of an agent.json."""

    agent: Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{1,60}$")]
    task: Annotated[str, msgspec.Meta(max_length=200)]
    env_kwargs: TrainedMap = TrainedMap()
    data: TrainedOn = TrainedOn()


def picture(layout: Layout | None) -> dict[str, Any] | None:
    """Return what a page needs to draw a map, or None where it is shown pictures instead."""
    if layout is None:
        return None
    parts = {"walls": layout.walls, "starts": layout.starts, "goals": layout.goals}
    return {"room": list(layout.room_size), **{name: np.asarray(each).tolist() for name, each in parts.items()}}
