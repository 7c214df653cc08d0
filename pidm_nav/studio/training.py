"""Trainings that a page starts: processes of the command line, which outlive the page and can be stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from pidm_nav.demos.formats import load_demos
from pidm_nav.studio.folder import Folder
from pidm_nav.tasks import find_task

MOST_RUNNING = 2
MOST_POINTS = 300  # of a curve that is sent to a page
SCORES = ("goal_ratio", "success_rate", "return")  # what a journal may have beside the loss


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to train: agents by name, a recording, and how many of its episodes."""

    agents: tuple[str, ...]
    demos: str
    task: str
    num_demos: int | None = None
    play: bool = False  # whether PIDM's inverse dynamics model also learns from random play
    steps: int | None = None
    seed: int = 0


@dataclass
class Run:
    """One training: its process, its folder and how it ended."""

    agent: str
    task: str
    out: Path
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    stopped: bool = False

    def report(self, folder: Path) -> dict[str, Any]:
        """Return how far it is, with its curves."""
        code = self.process.poll()
        status = "running" if code is None else "done" if code == 0 else "stopped" if self.stopped else "failed"
        lines = _read_lines(self.out / "losses.jsonl")
        every = max(1, len(lines) // MOST_POINTS)
        shown = [line for number, line in enumerate(lines) if number % every == 0 or number == len(lines) - 1]
        return {
            "name": self.out.relative_to(folder).as_posix(),
            "agent": self.agent,
            "task": self.task,
            "status": status,
            "error": self._error() if status == "failed" else None,
            "loss": [[line["step"], line["loss"]] for line in shown],
            "goal_ratio": [[line["step"], line[name]] for line in lines for name in SCORES if name in line],
        }

    def stop(self) -> None:
        """End the process; what it has learned so far can be continued on the command line."""
        if self.process.poll() is None:
            self.stopped = True
            self.process.terminate()

    def _error(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("error: ") if lines else "it ended without a word"


def _read_lines(path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that is being written
                lines.append(json.loads(line))
    return lines


@dataclass
class Trainings:
    """All trainings of this server."""

    folder: Folder
    runs: list[Run] = field(default_factory=list)

    def start(self, request: Request) -> list[str]:
        """Start one process per agent, and return the names of their folders."""
        running = sum(run.process.poll() is None for run in self.runs)
        if not request.agents or running + len(request.agents) > MOST_RUNNING:
            raise ValueError(
                f"{running} of {MOST_RUNNING} trainings are running, and {len(request.agents)} more are asked for: "
                "wait for them, or stop one"
            )
        demos = self.folder.demos(request.demos)
        drawn = find_task(load_demos(demos).task).has_2d_state  # others take long to play
        started = []
        for agent in request.agents:
            out = self.folder.new_run(request.task, agent, request.num_demos or 0)
            out.mkdir(parents=True)  # so that the next one gets another name
            options: dict[str, Any] = {"agent": agent, "demos": demos, "out": out, "seed": request.seed}
            options |= {"num-demos": request.num_demos, "steps": request.steps, "eval-episodes": 20 if drawn else 2}
            if request.play and agent == "pidm":
                options["idm-demos"] = "play"
            given = [word for key, value in options.items() if value is not None for word in (f"--{key}", str(value))]
            errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the run)
            command = [sys.executable, "-m", "pidm_nav.cli", "train", *given]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
            self.runs.append(Run(agent, request.task, out, process, errors))
            started.append(out.relative_to(self.folder.path).as_posix())
        return started

    def find(self, name: str) -> Run:
        """Return a training by the name of its folder."""
        for run in self.runs:
            if run.out.relative_to(self.folder.path).as_posix() == name:
                return run
        raise ValueError(f"there is no training '{name}': choose one from the list")

    def report(self) -> list[dict[str, Any]]:
        """Return all trainings, the newest first."""
        return [run.report(self.folder.path) for run in reversed(self.runs)]

    def close(self) -> None:
        """End all that run."""
        for run in self.runs:
            run.stop()
        for run in self.runs:
            run.process.wait()
            run.errors.close()
