"""What a training says while it runs: a progress bar, JSON lines and, if installed, TensorBoard."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

LOSSES = "losses.jsonl"


class Journal:
    """Writes a training's losses; lines after the step it begins at, left by a killed run, are dropped."""

    def __init__(self, folder: Path | None, steps: int, first: int, progress: bool, name: str) -> None:
        self.folder, self.steps, self.first, self.progress, self.name = folder, steps, first, progress, name
        self.began = time.perf_counter()
        self.file: TextIO | None = None
        self.writer: Any = None
        self.bar: Any = None

    def __enter__(self) -> Journal:
        if self.folder is not None:
            self._open(self.folder)
        if self.progress:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            loss, rate = TextColumn("loss {task.fields[loss]}"), TextColumn("{task.fields[rate]} steps/s")
            columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), loss, rate]
            self.bar = Progress(*columns, TimeRemainingColumn())
            self.bar.start()
            self.row = self.bar.add_task(
                f"training {self.name}", total=self.steps, completed=self.first, loss="-", rate="-"
            )
        return self

    def _open(self, folder: Path) -> None:
        path = folder / LOSSES
        kept = path.read_text(encoding="utf-8").splitlines() if path.exists() and self.first else []
        self.file = path.open("w", encoding="utf-8")
        for line in kept:
            try:
                if json.loads(line)["step"] <= self.first:
                    self.file.write(line + "\n")
            except (ValueError, KeyError):  # a line the kill cut short
                continue
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=self.first)

    def write(self, step: int, loss: float, learning_rate: float) -> None:
        """Note the loss after `step` steps."""
        seconds = time.perf_counter() - self.began
        if self.file is not None:
            line = {"step": step, "loss": loss, "learning_rate": learning_rate, "seconds": round(seconds, 3)}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
        if self.writer is not None:
            self.writer.add_scalar("loss", loss, step)
            self.writer.add_scalar("learning_rate", learning_rate, step)
        if self.bar is not None:
            rate = f"{(step - self.first) / max(seconds, 1e-9):.0f}"
            self.bar.update(self.row, completed=step, loss=f"{loss:.4f}", rate=rate)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.file is not None:
            self.file.close()
        if self.writer is not None:
            self.writer.close()
