"""The log of a training run: a progress bar, JSON lines, TensorBoard where it is installed, and your own callback."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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


@contextmanager
def journal(
    folder: Path | None, name: str, steps: int, first: int, progress: bool, on_log: OnLog | None
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Yield the function that logs the losses and scores after a step; entries after step `first` are dropped."""
    began, shown, latest = time.perf_counter(), first, dict[str, float]()
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar(f"training {name}", steps, first, progress))
        board: Any = None
        if folder is not None:
            path = folder / LOSSES
            text = path.read_text(encoding="utf-8", errors="replace") if first and path.exists() else ""
            whole = re.findall(r'^(\{"step": (\d{1,10}),.*\})$', text, re.MULTILINE)  # no line that a kill cut short
            write_text(path, "".join(f"{line}\n" for line, step in whole if int(step) <= first))
            with suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  if it is installed

                board = stack.enter_context(SummaryWriter(str(folder / TENSORBOARD), purge_step=first))

        def write(step: int, entry: dict[str, float]) -> None:
            nonlocal shown
            seconds = time.perf_counter() - began
            if folder is not None:
                _append(folder / LOSSES, json.dumps({"step": step, **entry, "seconds": round(seconds, 3)}))
            for key, value in entry.items() if board is not None else ():
                board.add_scalar(key, value, step)
            if on_log is not None:
                on_log({"step": step, **entry})
            latest.update(entry)  # a score stays until there is another
            texts = (text.format(latest[key]) for key, text in NOTE.items() if key in latest)
            advance(step - shown, note=f"{', '.join(texts)}, {(step - first) / max(seconds, 1e-9):.0f} steps/s")
            shown = step

        yield write


def _append(path: Path, line: str) -> None:
    """Add a line to a text file, as a whole or not at all."""
    size = path.stat().st_size
    try:
        with path.open("ab") as file:
            file.write(f"{line}\n".encode())
    except OSError as error:
        os.truncate(path, size)
        raise OSError(f"cannot write '{path}' ({error.strerror}): make room for it and start again") from None
