"""Training logs: a progress bar, JSON lines, TensorBoard if installed, and a callback."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidm_nav.console import progress_bar
from pidm_nav.files import write_text

LOSSES, TENSORBOARD = "losses.jsonl", "tensorboard"
OnLog = Callable[[dict[str, float]], None]
NOTE = {
    "loss": "loss {:.4f}",
    "goal_ratio": "goals {:.0%}",
    "success_rate": "success {:.0%}",
    "return": "return {:.4g}",
}


def import_wandb() -> Any:
    """Return the client of Weights & Biases."""
    try:
        import wandb
    except ImportError:
        raise ModuleNotFoundError("logging to Weights & Biases needs its package: pip install wandb") from None
    return wandb


@dataclass(frozen=True)
class WandbLog:
    """Logger to Weights & Biases with one run per name, for `on_log` of a sweep."""

    project: str
    options: Mapping[str, Any]  # config of the runs

    def __call__(self, name: object, entry: dict[str, float]) -> None:
        """Log an entry; the first entry of a name starts its run."""
        wandb = import_wandb()
        try:
            if wandb.run is None or wandb.run.name != str(name):
                wandb.finish()
                run = wandb.init(project=self.project, name=str(name), config=dict(self.options))
                run.define_metric("*", step_metric="step")  # W&B's steps must increase; DAgger restarts in each round
            wandb.log(entry)
        except wandb.Error as error:
            raise ValueError(f"cannot log to the project '{self.project}' ({error}): try wandb login") from error

    def close(self) -> None:
        """End the run; a sweep does so after each job."""
        import_wandb().finish()


@contextmanager
def journal(
    folder: Path | None, name: str, steps: int, first: int, progress: bool, on_log: OnLog | None
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Yield a function that logs losses and scores at a step; earlier entries after step `first` are removed."""
    began, shown, latest = time.perf_counter(), first, dict[str, float]()
    with progress_bar(f"training {name}", steps, first, progress) as advance:
        board: Board | None = None
        if folder is not None:
            path = folder / LOSSES
            text = path.read_text(encoding="utf-8", errors="replace") if first and path.exists() else ""
            complete = re.findall(r'^(\{"step": (\d{1,10}),.*\})$', text, re.MULTILINE)  # a kill may truncate the last
            write_text(path, "".join(f"{line}\n" for line, step in complete if int(step) <= first))
            with suppress(ImportError):
                board = Board(folder / TENSORBOARD, first)

        def write(step: int, entry: dict[str, float]) -> None:
            nonlocal shown
            seconds = time.perf_counter() - began
            if folder is not None:
                line = json.dumps({"step": step, **entry, "seconds": round(seconds, 3)})
                _append(folder / LOSSES, f"{line}\n".encode())
            if board is not None:
                board.write(step, entry)
            if on_log is not None:
                on_log({"step": step, **entry})
            latest.update(entry)  # a score is shown until the next one
            texts = (text.format(latest[key]) for key, text in NOTE.items() if key in latest)
            advance(step - shown, note=f"{', '.join(texts)}, {(step - first) / max(seconds, 1e-9):.0f} steps/s")
            shown = step

        yield write


class Board:
    """TensorBoard event file, written without TensorBoard's writer thread, whose errors cannot be caught."""

    def __init__(self, folder: Path, first: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._pack = Event, Summary, RecordWriter
        folder.mkdir(exist_ok=True)
        self.path = folder / f"events.out.tfevents.{time.time_ns() // 10**9:010d}.{os.getpid()}"
        started = SessionLog(status=SessionLog.START)  # TensorBoard drops entries after this step
        head = self._record(file_version="brain.Event:2"), self._record(step=first, session_log=started)
        _append(self.path, b"".join(head))

    def write(self, step: int, entry: dict[str, float]) -> None:
        """Add the scalars of a step."""
        values = [self._summary.Value(tag=key, simple_value=value) for key, value in entry.items()]
        _append(self.path, self._record(step=step, summary=self._summary(value=values)))

    def _record(self, **content: Any) -> bytes:
        record = io.BytesIO()
        self._pack(record).write(self._event(wall_time=time.time(), **content).SerializeToString())
        return record.getvalue()


def _append(path: Path, content: bytes) -> None:
    """Append to a file, completely or not at all."""
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as error:
        if size:
            os.truncate(path, size)
        else:
            path.unlink(missing_ok=True)
        raise OSError(f"cannot write '{path}' ({error.strerror}): make room for it and start again") from None
