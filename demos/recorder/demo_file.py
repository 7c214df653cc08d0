"""The file that a person's episodes are recorded to."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pidm_nav.demos.dataset import DemoDataset, check_environment
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.files import only_writer, writable_folder
from pidm_nav.rollouts.episode import Episode
from pidm_nav.tasks import Task
from pidm_nav.version import __version__


class DemoFile:
    """The file that is recorded to: rewritten whole, in the background, whenever an episode is kept or dropped.

    Writing takes longer the more episodes there are; the person does not wait for it, but the next episode does.
    An existing file is added to if it has the same task and the same arguments of the environment. Until `close`, no
    other process can record to it.
    """

    def __init__(self, path: str | Path, task: Task, env_kwargs: Mapping[str, Any]) -> None:
        self.path, self.task, self.env_kwargs = Path(path), task, dict(env_kwargs)
        if self.path.suffix != ".npz":
            raise ValueError(f"cannot record to '{path}': give a name that ends in .npz")
        writable_folder(self.path.parent)
        with ExitStack() as stack:
            stack.enter_context(only_writer(self.path, "wait until it has ended, or record into another file"))
            self._parts = [load_demos(self.path)] if self.path.exists() else []
            for part in self._parts:
                remedy = "record in the same environment, or into another file"
                check_environment(part, str(path), task.name, [self.env_kwargs], remedy)
            stack.callback(self._finish)
            self._open = stack.pop_all()
        self._on_disk = list(self._parts)
        self.num_before = len(self)  # episodes that the file held at the start
        self.problem = ""  # why the last try to write failed
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="save")

    def __len__(self) -> int:
        """Return how many episodes the file holds, or will hold when it is written."""
        return sum(map(len, self._parts))

    @property
    def num_written(self) -> int:
        """The number of episodes that are on disk."""
        return sum(map(len, self._on_disk))

    @property
    def num_failed(self) -> int:
        """The number of episodes that are known not to have succeeded."""
        return sum(part.num_failed for part in self._parts)

    @property
    def seeds(self) -> set[int | None]:
        """The seeds of the episodes in the file."""
        return {episode.seed for part in self._parts for episode in part}

    @property
    def added(self) -> list[DemoDataset]:
        """The episodes of this session, each as a dataset of its own."""
        return self._parts[1:] if self.num_before else self._parts

    def append(self, episode: Episode, settings: Mapping[str, Any]) -> None:
        """Keep an episode, made with these settings (device, frame rate)."""
        made = {"made_by": "human", "settings": dict(settings), "env_kwargs": self.env_kwargs, "version": __version__}
        self._parts.append(DemoDataset(self.task.name, (episode,), made))
        self.write()

    def drop_last(self) -> None:
        """Drop the last episode of this session."""
        self._parts.pop()
        self.write()

    def write(self) -> None:
        """Bring the file up to date in the background, unless it is."""
        self.problem = ""
        self._worker.submit(self._save)

    def is_written(self) -> bool:
        """Return whether all is on disk; while it is not, `problem` says what went wrong if anything did."""
        return self._on_disk == self._parts

    def save(self) -> bool:
        """Write now what is not written yet, and return whether all is on disk."""
        self.write()
        self._worker.submit(int).result()  # waits for what was asked for before
        return self.is_written()

    def close(self) -> None:
        """Wait until all is on disk, and let others write; raise OSError if a last try fails."""
        self._open.close()

    def _finish(self) -> None:
        saved = self.save()
        self._worker.shutdown()
        if not saved:
            raise OSError(self.problem)

    def _save(self) -> None:
        parts = list(self._parts)
        if parts == self._on_disk:
            return
        try:
            if parts:
                save_demos(DemoDataset.concatenate(parts), self.path)
            else:  # the only episode was dropped, and there is no dataset without one
                self.path.unlink(missing_ok=True)
            self._on_disk = parts
        except (OSError, ValueError) as error:
            self.problem = str(error)
