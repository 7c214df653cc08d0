"""Folders of sweeps: one JSON file per job, and a manifest of their common configuration.

results/
  manifest.json                       version, training, evaluation and demonstrations of all jobs
  jobs/maze_pidm_10_3.json            scores of a job: task, agent, number of demonstrations, seed
  jobs/maze_pidm_10_3.error.json      error of the job, if it failed
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np

from pidm_nav.console import counted
from pidm_nav.demos.dataset import Summary
from pidm_nav.experiments.curves import Curve
from pidm_nav.files import only_writer, read_bytes, remove_leftovers, writable_folder, write_json
from pidm_nav.statistics import equivalence_p, estimate_mean, holm
from pidm_nav.tasks import TASKS, Metric

MANIFEST = "manifest.json"
JOINED = ("agents", "training", "demos")  # parts of the manifest to which tasks and agents can be added later
JOBS = "jobs"
ORDER = (*TASKS, "bc", "retrieval-bc", "pidm")  # of tasks and agents in tables and figures
MARGIN = 0.05  # of tests of equivalence
MAX_BYTES = 2**26  # of a manifest or a result
PLAIN_NAME = r"^[^\W_][\w.+-]{0,99}\Z"  # of labels and agents, which are used in file names

PlainName = Annotated[str, msgspec.Meta(pattern=PLAIN_NAME)]
TaskName = Annotated[str, msgspec.Meta(pattern=r"^\w[\w./:-]{0,199}\Z")]  # one of ours or a Gymnasium id
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Number = Annotated[float, msgspec.Meta(ge=-1e100, le=1e100)]  # with a finite square
Document = TypeVar("Document")


@dataclass(frozen=True, order=True)
class Cell:
    """Seed, task, number of demonstrations and agent of one job."""

    seed: int
    task: str
    demos: int
    agent: str

    @property
    def name(self) -> str:
        """Stem of the job's files; characters of Gymnasium ids that file names cannot hold are replaced."""
        task = re.sub(r"[^\w.-]", "~", self.task)
        return f"{task}_{self.agent}_{self.demos}_{self.seed}"

    def __str__(self) -> str:
        return f"{self.agent} on {self.task}, {counted(self.demos, 'demonstration')}, seed {self.seed}"


class Checkpoint(msgspec.Struct, kw_only=True):
    """Mean scores of one agent after some steps of training."""

    step: Count = 0
    goal_ratio: Share | msgspec.UnsetType = msgspec.UNSET
    success: Share | msgspec.UnsetType = msgspec.UNSET
    mean_return: Number | msgspec.UnsetType = msgspec.UNSET
    length: Number = 0.0
    goals: list[Count] = []  # goals reached in each episode
    extra: dict[str, Number] | msgspec.UnsetType = msgspec.UNSET  # of the sweep's `extra_metrics`

    def __post_init__(self) -> None:
        self.scored()  # raises ValueError without a score

    def scored(self) -> tuple[Metric, float]:
        """Return the metric and its score; files of earlier versions may have several, of which the first counts."""
        known = {"return": self.mean_return, "goal ratio": self.goal_ratio, "success rate": self.success}
        metrics: Any = (each for each in known.items() if not isinstance(each[1], msgspec.UnsetType))
        found: tuple[Metric, float] | None = next(metrics, None)
        if found is None:
            raise ValueError("a checkpoint has no score")
        return found

    @property
    def score(self) -> float:
        """Mean score over episodes, by the task's metric."""
        return self.scored()[1]


class JobResult(msgspec.Struct, omit_defaults=True):
    """Schema of a job's file: its cell, and either the scores of its checkpoints or its error."""

    task: TaskName
    agent: PlainName
    demos: Positive
    seed: Count
    identity: str = ""  # of the configuration: see `identity`
    version: str | None = None
    code: str | None = None  # hash of the package's source code
    checkpoints: list[Checkpoint] = []
    seconds: Number | None = None
    error: str | None = None
    traceback: str | None = None

    @property
    def cell(self) -> Cell:
        """Cell of the job."""
        return Cell(self.seed, self.task, self.demos, self.agent)

    @property
    def file_name(self) -> str:
        """Name of the job's file."""
        return f"{self.cell.name}.json" if self.error is None else f"{self.cell.name}.error.json"

    @property
    def score(self) -> float:
        """Mean score at the end of training."""
        return self.checkpoints[-1].score

    def __str__(self) -> str:
        return f"{self.cell}: {self.error or f'{self.score:.3f}'} in {self.seconds or 0:.1f} s"


@dataclass(frozen=True, kw_only=True)
class Demos(Summary):
    """The columns of the paper's dataset tables, and a hash of the observations and actions."""

    made_by: str
    sha256: str
    metric: str = "unknown"  # of the task, fixed before any job is run
    env_kwargs: dict[str, Any] = field(default_factory=dict)  # of evaluations


class Evaluation(msgspec.Struct, omit_defaults=True):
    """Evaluation of all agents of a sweep."""

    episodes: Positive
    seed: Count
    env_kwargs: dict[str, Any] = {}


class Manifest(msgspec.Struct):
    """Schema of manifest.json: everything that determines the results of a sweep."""

    format: Literal[1]
    version: PlainName
    torch: PlainName
    demos_from: PlainName
    preset: PlainName
    evaluation: Evaluation
    agents: dict[PlainName, dict[str, Any]]
    training: dict[str, dict[str, Any]]  # "task/agent" -> its configuration
    demos: dict[TaskName, Demos]

    def __post_init__(self) -> None:
        # fails for values that are nested too deeply to be compared or written
        copy.deepcopy([self.evaluation.env_kwargs, self.agents, self.training])
        for name, settings in self.training.items():
            if type(settings.get("steps")) is not int:
                raise ValueError(f"the training settings of {name} have no number of steps")


def _read(path: Path, kind: type[Document], otherwise: str) -> Document:
    """Read a JSON file of that kind; `otherwise` is the error for any other file."""
    try:
        return msgspec.json.decode(read_bytes(path, MAX_BYTES), type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"'{path}' {otherwise} ({error})") from None
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(f"'{path}' is damaged: delete it and rerun the sweep") from None


def identity(manifest: Manifest, cell: Cell) -> str:
    """Return a short hash of everything in the manifest that the cell's result depends on."""
    demos = manifest.demos.get(cell.task)
    parts = [manifest.version, manifest.torch, msgspec.to_builtins(manifest.evaluation)]
    parts += [manifest.agents.get(cell.agent), manifest.training.get(f"{cell.task}/{cell.agent}")]
    parts.append(demos and demos.sha256)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def open_folder(folder: Path, manifest: Manifest) -> Manifest:
    """Create a sweep's folder, or add to an existing one of the same configuration, and return its manifest."""
    writable_folder(folder / JOBS)
    path = folder / MANIFEST
    with only_writer(path, "try again when it is done", wait=True):
        if not path.exists() and any((folder / JOBS).glob("[!.]*.json")):
            raise ValueError(f"'{folder}' holds results without their configuration {MANIFEST}: choose another folder")
        there = read_manifest(folder) if path.exists() else manifest
        before, now = msgspec.to_builtins(there), msgspec.to_builtins(manifest)
        if found := _difference(before, now):
            place, old, new = found
            raise ValueError(
                f"'{folder}' holds results with {place} {old}, not {new}: "
                "choose another folder, or the same settings to resume"
            )
        merged = {**before, **{part: {**before[part], **now[part]} for part in JOINED}}
        if merged != before or not path.exists():
            write_json(path, merged, indent=1)
    for written in (folder, folder / JOBS):  # a finished job is never written again, which would remove its lock
        remove_leftovers(written)
    return msgspec.convert(merged, Manifest)


def read_manifest(folder: str | Path) -> Manifest:
    """Read the configuration of a sweep's folder."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"'{folder}' holds no {MANIFEST}: give a folder of a sweep")
    return _read(path, Manifest, "is not a manifest that this version of pidm-nav reads: rerun the sweep")


def _difference(old: Any, new: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """Return the first difference with both values; tasks and agents of one side only do not count."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return None if old == new else (place.removeprefix("."), old, new)
    joins = place.removeprefix(".") in JOINED
    for key in {**old, **new}:
        if joins and not (key in old and key in new):
            continue
        if found := _difference(old.get(key, "unknown"), new.get(key, "unknown"), f"{place}.{key}"):
            return found
    return None


def write_result(folder: Path, result: JobResult) -> None:
    """Write a job's scores, or its error; a success replaces an earlier failure."""
    write_json(folder / JOBS / result.file_name, msgspec.to_builtins(result))
    if result.error is None:
        (folder / JOBS / f"{result.cell.name}.error.json").unlink(missing_ok=True)


def read_results(folder: str | Path) -> tuple[dict[Cell, JobResult], dict[Cell, JobResult]]:
    """Read all finished jobs and all failed jobs."""
    manifest = read_manifest(folder)
    done: dict[Cell, JobResult] = {}
    failed: dict[Cell, JobResult] = {}
    for path in sorted((Path(folder) / JOBS).glob("[!.]*.json")):
        result = _read(path, JobResult, "is not a result of this sweep: delete it")
        if path.name != result.file_name or not (result.checkpoints or result.error):
            raise ValueError(f"'{path}' holds the result of another job than its name: delete it")
        if result.error is not None:
            failed[result.cell] = result
        elif result.identity == identity(manifest, result.cell):
            done[result.cell] = result
        else:
            raise ValueError(f"'{path}' has another configuration than {MANIFEST}: delete it")
    return done, {cell: result for cell, result in failed.items() if cell not in done}


def make_curves(done: Mapping[Cell, JobResult], demos_from: str) -> list[Curve]:
    """Make one curve per task and agent, in the order of tables."""
    groups: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = {}
    for cell, result in done.items():
        scores = [checkpoint.score for checkpoint in result.checkpoints]
        groups.setdefault((cell.task, cell.agent), {})[cell.demos, cell.seed] = scores
    order = sorted(groups, key=lambda group: [*map(_rank, group)])
    metrics = {cell.task: result.checkpoints[-1].scored()[0] for cell, result in done.items()}
    return [Curve.from_cells(task, agent, demos_from, groups[task, agent], metrics[task]) for task, agent in order]


def paired_gains(scores: Mapping[Cell, float], baseline: str = "bc") -> list[dict[str, Any]]:
    """Return the gains of each agent over the baseline, paired by demonstrations and seed.

    Each agent has a row over all tasks, if there are several, and one per task: the number of pairs, the numbers in
    which the agent is ahead or behind, and the mean gain with its 95% t interval. Pairs of one training seed are one
    unit, as they share demonstrations and weights: `seeds` is the number of units. `p` is of the t-test over seeds,
    `p_holm` is corrected for all rows, and `p_equal` is of the test that the gain is within +-`MARGIN`.
    """
    rows: list[dict[str, Any]] = []
    for agent in in_order(cell.agent for cell in scores if cell.agent != baseline):
        cells = [cell for cell in scores if cell.agent == agent and replace(cell, agent=baseline) in scores]
        tasks = in_order(cell.task for cell in cells)
        for task in (*(["all"] if len(tasks) > 1 else []), *tasks):
            own = [cell for cell in cells if task in ("all", cell.task)]
            gains = np.array([scores[cell] - scores[replace(cell, agent=baseline)] for cell in own])
            seeds = [cell.seed for cell in own]
            gain, low, high, p, units = estimate_mean(gains, seeds)
            counts = {"pairs": len(gains), "seeds": units}
            counts |= {"ahead": int((gains > 0).sum()), "behind": int((gains < 0).sum())}
            test = {"gain": gain, "low": low, "high": high, "p": p, "p_equal": equivalence_p(gains, MARGIN, seeds)}
            rows.append({"agent": agent, "task": task, **counts, **test})
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = p
    return rows


def in_order(names: Iterable[str]) -> list[str]:
    """Return distinct tasks or agents: those in `ORDER` first, then others by name."""
    return sorted(set(names), key=_rank)


def _rank(name: str) -> tuple[int, str]:
    return ORDER.index(name) if name in ORDER else len(ORDER), name
