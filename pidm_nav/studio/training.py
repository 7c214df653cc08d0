"""Training runs that a page starts: processes of the command line, which outlive the page and can be stopped."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats import load_demos
from pidm_nav.packaged import packaged_agents
from pidm_nav.plots import agent_title
from pidm_nav.policies import import_agents
from pidm_nav.studio.folder import Folder
from pidm_nav.tasks import Task, find_task

MAX_RUNNING = 2
MAX_POINTS = 300  # of a curve that is sent to a page
METRICS = ("goal_ratio", "success_rate", "return")  # what a journal may have beside the loss; the first is shown


class TrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to train: agents by name, a recording, and how many of its episodes."""

    agents: tuple[str, ...]
    demos: str
    num_demos: int | None = None
    play: bool = False  # whether PIDM's inverse dynamics model also learns from random play
    steps: int | None = None
    seed: int = 0


@dataclass
class Run:
    """A training run: its process, its folder and how it ended."""

    name: str
    agent: str
    task: str
    steps: int  # in all
    out: Path
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    stopped: bool = False
    error: str | None = None

    @property
    def running(self) -> bool:
        """Whether the process runs; what it said is read and its file closed when it has ended."""
        if self.process.poll() is None:
            return True
        if not self.errors.closed:
            self.errors.seek(0)
            lines = self.errors.read().decode(errors="replace").strip().splitlines()
            self.error = lines[-1].removeprefix("error: ") if lines else "exited without an error message"
            self.errors.close()
        return False

    def report(self) -> dict[str, Any]:
        """Return how far it is, with its curves."""
        code = None if self.running else self.process.returncode
        status = "running" if code is None else "done" if code == 0 else "stopped" if self.stopped else "failed"
        lines = _read_lines(self.out / "losses.jsonl")
        every = max(1, len(lines) // MAX_POINTS)
        shown = [line for number, line in enumerate(lines) if number % every == 0 or number == len(lines) - 1]
        metric = next((name for name in METRICS if any(name in line for line in lines)), None)
        done, seconds = (lines[-1].get("step", 0), lines[-1].get("seconds", 0)) if lines else (0, 0)
        return {
            "name": self.name,
            "agent": self.agent,
            "title": agent_title(self.agent),
            "task": self.task,
            "status": status,
            "error": self.error if status == "failed" else None,
            "step": done,
            "steps": self.steps,
            "seconds_left": seconds * (self.steps - done) / done if done and status == "running" else None,
            "loss": [[line["step"], line["loss"]] for line in shown if "loss" in line],
            "metric": metric,
            "scores": [[line["step"], line[metric]] for line in lines if metric in line],
        }

    def stop(self) -> None:
        """End the process; what it has learned so far can be continued on the command line."""
        if self.process.poll() is None:
            self.stopped = True
            self.process.terminate()


def _read_lines(path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that is being written
                lines.append(json.loads(line))
    return lines


@dataclass
class Trainings:
    """All training runs of this server."""

    folder: Folder
    runs: list[Run] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)  # requests start and end runs in threads

    def start(self, request: TrainRequest) -> list[str]:
        """Start one process per agent, and return the names of their folders."""
        with self.lock:
            running = sum(run.running for run in self.runs)
            if not request.agents:
                raise ValueError("no agent is chosen: choose one or two")
            if running + len(request.agents) > MAX_RUNNING:
                raise ValueError(
                    f"{running} of {MAX_RUNNING} training runs are active, and {len(request.agents)} more requested: "
                    "choose fewer, wait until one ends, or stop one"
                )
            # the data say which task it is, and what cannot be trained is refused before anything is started
            demos = self.folder.demos(request.demos)
            dataset = load_demos(demos)
            count = len(dataset if request.num_demos is None else dataset.sample(request.num_demos))
            task = find_task(dataset.task)
            steps = [_count_steps(agent, dataset, request.steps) for agent in request.agents]
            outs = [self.folder.new_run(task.name, agent, count) for agent in request.agents]
            jobs = zip(request.agents, outs, steps, strict=True)
            return [self._start(request, agent, demos, task, out, number) for agent, out, number in jobs]

    def _start(self, request: TrainRequest, agent: str, demos: str, task: Task, out: Path, steps: int) -> str:
        options: dict[str, Any] = {"agent": agent, "demos": demos, "out": out, "seed": request.seed}
        options |= {"num-demos": request.num_demos, "steps": request.steps}
        options["eval-episodes"] = 20 if task.has_2d_state else 2  # others take long to play
        if request.play and agent.endswith("pidm"):
            options["idm-demos"] = "random"
        given = [word for key, value in options.items() if value is not None for word in (f"--{key}", str(value))]
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the process has ended)
        command = [sys.executable, "-m", "pidm_nav.cli", "train", *given]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        name = out.relative_to(self.folder.path).as_posix()
        self.runs.append(Run(name, agent, task.name, steps, out, process, errors))
        return name

    def stop(self, name: str) -> None:
        """Stop a training run by the name of its folder."""
        with self.lock:
            self._find(name).stop()

    def rename(self, name: str, new: str) -> str:
        """Rename a training run that has ended, of this server or an earlier one."""
        with self.lock:
            run = self._ended(name)
            self.folder.rename_run(name, new)
            if run is not None:
                run.name, run.out = new, self.folder.path / new
            return new

    def delete(self, name: str) -> None:
        """Delete a training run that has ended, of this server or an earlier one."""
        with self.lock:
            run = self._ended(name)
            self.folder.delete_run(name)
            if run is not None:
                self.runs.remove(run)

    def _ended(self, name: str) -> Run | None:
        run = next((run for run in self.runs if run.name == name), None)
        if run is not None and run.running:
            raise ValueError(f"'{name}' is being trained: stop it first")
        return run

    def _find(self, name: str) -> Run:
        for run in self.runs:
            if run.name == name:
                return run
        raise ValueError(f"there is no training run '{name}': choose one from the list")

    def report(self) -> list[dict[str, Any]]:
        """Return all training runs, the newest first."""
        with self.lock:
            return [run.report() for run in reversed(self.runs)]

    def close(self) -> None:
        """End all training runs."""
        for run in self.runs:
            run.stop()
        for run in self.runs:
            run.process.wait()
            run.errors.close()


def trainable_agents() -> list[dict[str, Any]]:
    """Return every registered agent: name, title, what it is, and whether the package has pretrained ones of it."""
    agents = import_agents().AGENTS
    main = {name.rpartition("/")[2] for name in packaged_agents()}
    about = {name: (inspect.getdoc(kind) or "").partition("\n")[0] for name, kind in agents.items()}
    listed = [{"name": name, "title": agent_title(name), "about": about[name], "main": name in main} for name in agents]
    return sorted(listed, key=lambda each: not each["main"])


def _count_steps(agent: str, demos: DemoDataset, steps: int | None) -> int:
    """Return how many steps an agent is trained for; a ValueError says that there is no such agent."""
    settings: Any = {} if steps is None else {"steps": steps}
    count: int = import_agents().choose_preset(agent, demos, None, **settings).training.steps
    return count
