"""The file a person's episodes are recorded to."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.world2d.world import World
from pidm_nav.world3d.env import NavEnv3D
from pidm_nav.world3d.levels import is_3d


class DemoFile:
    """The file that is recorded to: rewritten whole, in the background, whenever an episode is kept or dropped.

    Writing takes longer the more episodes there are; the person does not wait for it, but the next episode does.

    Args:
        path: an existing file is added to if it is of the same task and environment's arguments.
        task: its name, or `custom`.
        env_kwargs: the environment's arguments.
    """

    def __init__(self, path: str | Path, task: str, env_kwargs: Mapping[str, Any]) -> None:
        self.path, self.task, self.env_kwargs = Path(path), task, dict(env_kwargs)
        if self.path.suffix != ".npz":
            raise ValueError(f"cannot record to '{path}': give a name that ends in .npz")
        self._before = load_demos(self.path) if self.path.exists() else None
        if self._before is not None:
            self._check(self._before)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"cannot record to '{path}' ({error.strerror}): choose another place") from None
        self._added: list[DemoDataset] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="save")
        self._writing: Future[None] | None = None

    def __len__(self) -> int:
        """How many episodes it holds, or will when it is written."""
        return self.num_before + len(self._added)

    @property
    def num_before(self) -> int:
        """How many it held at the start."""
        return 0 if self._before is None else len(self._before)

    @property
    def seeds(self) -> set[int | None]:
        """The seeds of the episodes it holds."""
        parts = [*([self._before] if self._before is not None else []), *self._added]
        return {episode.seed for part in parts for episode in part}

    @property
    def added(self) -> list[Episode]:
        """The episodes of this session."""
        return [part[0] for part in self._added]

    def append(self, episode: Episode, settings: Mapping[str, Any]) -> None:
        """Keep an episode, made with these settings (device, frame rate)."""
        from pidm_nav import __version__

        source = {
            "made_by": "human",
            "settings": dict(settings),
            "env_kwargs": self.env_kwargs,
            "version": __version__,
        }
        self._added.append(DemoDataset(self.task, (episode,), source))
        self._write()

    def drop_last(self) -> None:
        """Drop the last episode of this session."""
        self._added.pop()
        self._write()

    def is_written(self) -> bool:
        """Whether all is on disk; raises what went wrong when it could not be written."""
        if self._writing is not None and self._writing.done():
            writing, self._writing = self._writing, None
            writing.result()
        return self._writing is None

    def close(self) -> None:
        """Wait until all is on disk."""
        self._worker.shutdown(wait=True)
        self.is_written()

    def _write(self) -> None:
        parts = [*([self._before] if self._before is not None else []), *self._added]
        self._writing = self._worker.submit(self._save, parts)

    def _save(self, parts: list[DemoDataset]) -> None:
        if parts:
            save_demos(DemoDataset.concatenate(parts), self.path)
        else:  # the only episode was dropped, and there is no dataset without one
            self.path.unlink(missing_ok=True)

    def _check(self, before: DemoDataset) -> None:
        """Refuse a file whose episodes are of another environment."""
        if before.task != self.task:
            raise ValueError(
                f"'{self.path}' holds demonstrations of {before.task}, not of {self.task}: give another --out"
            )
        parameters = inspect.signature(NavEnv3D if is_3d(self.task) else World).parameters
        usual = {
            name: list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default  # as in JSON
            for name, parameter in parameters.items()
        }
        for part in before.source.get("parts", [before.source]):
            theirs, ours = {**usual, **part.get("env_kwargs", {})}, {**usual, **self.env_kwargs}
            other = [name for name in ours if theirs.get(name) != ours[name]]
            if other:
                raise ValueError(
                    f"'{self.path}' was recorded with another {other[0]} ({theirs.get(other[0])!r}, "
                    f"not {ours[other[0]]!r}): give the same, or another --out"
                )
