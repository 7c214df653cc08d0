"""A sweep's folder: one small JSON a job, and a manifest of the configuration that made them all.

results/
  manifest.json                       version, training, evaluation and demonstrations of every job here
  jobs/maze_pidm_10_3.json            task, agent, number of demonstrations, seed: the scores
  jobs/maze_pidm_10_3.error.json      the same job when it failed
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidm_nav.demos.formats.npz import atomic_file
from pidm_nav.experiments.curves import Curve
from pidm_nav.tasks import TASKS

FORMAT = 1
MANIFEST = "manifest.json"
JOINED = ("agents", "training", "demos")  # parts of the manifest that more tasks and agents may join later
JOBS = "jobs"
AGENT_ORDER = ("bc", "retrieval-bc", "pidm")


@dataclass(frozen=True, order=True)
class Cell:
    """What one job is about; sorted, all cells of seed 0 come first."""

    seed: int
    task: str
    demos: int
    agent: str

    @property
    def name(self) -> str:
        """The stem of its files."""
        return f"{self.task}_{self.agent}_{self.demos}_{self.seed}"

    def __str__(self) -> str:
        return f"{self.agent} on {self.task}, {self.demos} demonstrations, seed {self.seed}"


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """The content of a file, or one sentence about it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"'{path}' is damaged: delete it and run the sweep again") from None


def identity(manifest: Mapping[str, Any], cell: Cell) -> str:
    """A short hash of everything in the manifest that the cell's result depends on."""
    key = f"{cell.task}/{cell.agent}"
    parts = [manifest[part] for part in ("version", "torch", "evaluation")]
    parts += [manifest["agents"].get(cell.agent), manifest["training"].get(key)]
    parts.append(manifest["demos"].get(cell.task, {}).get("sha256"))
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def open_folder(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Make a sweep's folder, or join the one that is there if it holds the same configuration."""
    try:
        (folder / JOBS).mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OSError(f"cannot write to '{folder}' ({reason}): choose another --out") from None
    manifest = json.loads(json.dumps(manifest))
    path = folder / MANIFEST
    if not path.exists():
        if any((folder / JOBS).glob("*.json")):
            raise ValueError(
                f"'{folder}' holds results but no {MANIFEST} that says how they were made: choose another --out"
            )
        write_json(path, manifest, indent=1)
        return manifest
    before = read_manifest(folder)
    found = _difference(before, manifest)
    if found is not None:
        place, old, new = found
        raise ValueError(
            f"'{folder}' holds results made with {place} {old}, not {new}: "
            "choose another --out, or the same settings to go on"
        )
    merged = {**before}
    for part in JOINED:
        merged[part] = {**before[part], **manifest[part]}
    if merged != before:
        write_json(path, merged, indent=1)
    return merged


def read_manifest(folder: Path) -> dict[str, Any]:
    """The configuration of a sweep's folder."""
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"'{folder}' holds no {MANIFEST}: give a folder that pidm-nav sweep wrote")
    manifest = read_json(path)
    needed = {"version", "torch", "demos_from", "preset", "evaluation", "agents", "training", "demos"}
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or not needed <= set(manifest):
        raise ValueError(f"'{path}' is not a manifest that this version of pidm-nav reads: sweep again")
    return manifest


def _difference(old: Any, new: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """The first place that differs: its name, the old and the new value; tasks and agents of one alone do not count."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return None if old == new else (place.removeprefix("."), old, new)
    joins = place.removeprefix(".") in JOINED
    for key in {**old, **new}:
        if joins and not (key in old and key in new):
            continue
        if found := _difference(old.get(key, "unknown"), new.get(key, "unknown"), f"{place}.{key}"):
            return found
    return None


def write_result(folder: Path, cell: Cell, result: Mapping[str, Any]) -> None:
    """Write a job's scores, or its error; a success replaces an earlier failure."""
    content = {"task": cell.task, "agent": cell.agent, "demos": cell.demos, "seed": cell.seed, **result}
    failed = folder / JOBS / f"{cell.name}.error.json"
    if "error" in result:
        write_json(failed, content)
    else:
        write_json(folder / JOBS / f"{cell.name}.json", content)
        failed.unlink(missing_ok=True)


def read_results(folder: Path) -> tuple[dict[Cell, dict[str, Any]], dict[Cell, dict[str, Any]]]:
    """Every job that is done, and every one that failed."""
    manifest = read_manifest(folder)
    done: dict[Cell, dict[str, Any]] = {}
    failed: dict[Cell, dict[str, Any]] = {}
    for path in sorted((folder / JOBS).glob("[!.]*.json")):
        content = read_json(path)
        try:
            cell = Cell(content["seed"], content["task"], content["demos"], content["agent"])
            if "error" in content:
                failed[cell] = content
                continue
            if content["identity"] != identity(manifest, cell):
                raise ValueError(f"'{path}' was made with another configuration than {MANIFEST} says: delete it")
            [checkpoint["goal_ratio"] for checkpoint in content["checkpoints"]]
        except (KeyError, TypeError):
            raise ValueError(f"'{path}' is not a result of this sweep: delete it") from None
        done[cell] = content
    return done, {cell: content for cell, content in failed.items() if cell not in done}


def make_curves(done: Mapping[Cell, Mapping[str, Any]], demos_from: str) -> list[Curve]:
    """One curve a task and agent, in the paper's order."""
    groups: dict[tuple[str, str], dict[tuple[int, int], Sequence[float]]] = {}
    for cell, content in done.items():
        scores = [checkpoint["goal_ratio"] for checkpoint in content["checkpoints"]]
        groups.setdefault((cell.task, cell.agent), {})[cell.demos, cell.seed] = scores
    return [
        Curve.from_cells(task, agent, demos_from, groups[task, agent])
        for task in TASKS
        for agent in sorted({a for _, a in groups}, key=agent_rank)
        if (task, agent) in groups
    ]


def agent_rank(agent: str) -> tuple[int, str]:
    """The order of agents in tables."""
    return (AGENT_ORDER.index(agent) if agent in AGENT_ORDER else len(AGENT_ORDER), agent)
