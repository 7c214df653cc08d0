"""Every writer on a full disk: exit code 2, one sentence that names the file, the old file as it was, nothing left.

The disk is a small tmpfs that is filled up, where this process may mount one. Elsewhere, and in the slow test also
here, files cannot grow beyond a size (RLIMIT_FSIZE).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="limits on processes need Unix")
from originals import SWEEP, must
from sandbox import MEGABYTE, Limits, Sandbox, leftovers, tree

FILLER = "filler"
LEAST = 1000  # bytes: below, not even the error could be kept in a file
STORE = "MINARI_DATASETS_PATH"
TRAIN = "train --agent bc --demos in/d.npz --steps 8 --eval-episodes 0"


@dataclass(frozen=True)
class Writer:
    """A command that writes to the full disk, which is mounted at `disk`."""

    command: str
    named: str  # what the error must name
    before: str = ""  # the command that made the older result
    free: int = 4096  # bytes that are left
    only_whole: bool = True  # whether nothing new may appear at all; a folder of many files may hold some


WRITERS = {
    "collect": Writer(
        "collect --task zigzag --episodes 40 --out disk/d.npz --force",
        "d.npz",
        "collect --task zigzag --episodes 1 --out disk/d.npz",
    ),
    "collect fresh": Writer("collect --task zigzag --episodes 40 --out disk/d.npz", "d.npz"),
    "convert": Writer(
        "demos convert zigzag/human-like disk/d.npz --force", "d.npz", "demos convert in/d.npz disk/d.npz"
    ),
    "minari": Writer(
        "demos convert zigzag/human-like minari:full/demos-v0 --force",
        "full/demos-v0",
        "demos convert in/d.npz minari:full/demos-v0",
    ),
    "minari fresh": Writer("demos convert zigzag/human-like minari:full/demos-v0", "full/demos-v0"),
    "minari, 40 KB": Writer("demos convert zigzag/human-like minari:full/demos-v0", "full/demos-v0", free=40 << 10),
    "minari, 600 KB": Writer("demos convert zigzag/human-like minari:full/demos-v0", "full/demos-v0", free=600 << 10),
    "gif": Writer(
        "demos replay zigzag/human-like --gif disk/x.gif", "x.gif", "demos replay in/d.npz --gif disk/x.gif --size 64"
    ),
    "mp4": Writer(
        "demos replay zigzag/human-like --gif disk/x.mp4", "x.mp4", "demos replay in/d.npz --gif disk/x.mp4 --size 64"
    ),
    "mp4 fresh": Writer("demos replay zigzag/human-like --gif disk/x.mp4", "x.mp4"),
    "plot png": Writer("demos plot zigzag/astar --out disk/x.png", "x.png", "demos plot in/d.npz --out disk/x.png"),
    "plot svg": Writer("demos plot zigzag/astar --out disk/x.svg", "x.svg", "demos plot in/d.npz --out disk/x.svg"),
    "plot pdf": Writer("demos plot zigzag/astar --out disk/x.pdf", "x.pdf", "demos plot in/d.npz --out disk/x.pdf"),
    "train fresh": Writer(f"{TRAIN} --out disk/run", "disk/run", only_whole=False),
    "train fresh, no byte": Writer(f"{TRAIN} --out disk/run", "disk/run", free=0, only_whole=False),
    "train --force": Writer(
        f"{TRAIN} --force --out disk/run", "disk/run", f"{TRAIN} --seed 1 --out disk/run", only_whole=False
    ),
    "train --force, no byte": Writer(
        f"{TRAIN} --force --out disk/run", "disk/run", f"{TRAIN} --seed 1 --out disk/run", 0, only_whole=False
    ),
    "train retrieval": Writer(
        "train --agent retrieval-bc --demos in/d.npz --force --out disk/run",
        "disk/run",
        "train --agent retrieval-bc --demos in/d.npz --num-demos 1 --out disk/run",
        only_whole=False,
    ),
    "train state": Writer(f"{TRAIN} --save-every 2 --out disk/run", "training.safetensors", only_whole=False),
    "resume": Writer(
        "originals:resume_training in/d.npz disk/run",
        "disk/run",
        "originals:stop_training in/d.npz disk/run",
        0,
        only_whole=False,
    ),
    "sweep": Writer(
        "sweep --demos in/d.npz {sweep} --out disk/results",
        "disk/results",
        "sweep --demos in/d.npz --agents bc --num-demos 1 --seeds 1 {short} --out disk/results",
        0,
        only_whole=False,
    ),
    "sweep fresh": Writer(
        "sweep --demos in/d.npz {sweep} --out disk/results", "disk/results", free=0, only_whole=False
    ),
    "report": Writer(
        "report in/sweep --out disk/report", "disk/report", "report in/sweep --out disk/report", only_whole=False
    ),
    "report fresh": Writer("report in/sweep --out disk/report", "disk/report", only_whole=False),
    "quickstart": Writer("quickstart --fast --out disk/quickstart", "disk/quickstart", only_whole=False),
    "quickstart, no byte": Writer("quickstart --fast --out disk/qs", "disk/qs", free=0, only_whole=False),
    "advise": Writer(
        "advise in/d.npz --steps 2 --no-rollouts --plot disk/x.png", "x.png", "demos plot in/d.npz --out disk/x.png"
    ),
    "horizon": Writer("analyze horizon --demos in/d.npz --horizons 1 2 --out disk/x", "disk/x", only_whole=False),
    "predictor": Writer("analyze predictor --demos in/d.npz --subsets 1 --out disk/x", "disk/x", only_whole=False),
    "theory": Writer("analyze theory --fast --out disk/x", "disk/x", only_whole=False),
    "evaluate": Writer(
        "evaluate in/agent --episodes 1 --video disk/x.mp4",
        "x.mp4",
        "demos replay in/d.npz --gif disk/x.mp4 --size 64",
    ),
    "record": Writer("originals:record disk/d.npz 30", "d.npz", "originals:record disk/d.npz 1", 2048),
    "record fresh": Writer("originals:record disk/d.npz 2", "d.npz", free=0),
    "mapping": Writer("record --write-mapping disk/m.json", "m.json", free=0),
}
SLOW = ("quickstart", "theory")


@contextmanager
def mounted(folder: Path) -> Iterator[bool]:
    """A small file system at a folder, if this process may mount one."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    can = sys.platform.startswith("linux") and shutil.which("mount") is not None
    done = can and subprocess.run(["mount", *options], capture_output=True).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path, free: int) -> None:
    """Fill the file system up to so many free bytes."""
    found = os.statvfs(folder)
    with (folder / FILLER).open("wb") as file:
        left = found.f_bavail * found.f_frsize - free
        while left > 0:
            left -= file.write(bytes(min(left, MEGABYTE)))


@pytest.fixture(scope="module")
def inputs(box: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    must(box.run(["collect", "--task", "zigzag", "--episodes", "3", "--out", "d.npz"], folder))
    must(box.run(["sweep", "--demos", "d.npz", *SWEEP, "--out", "sweep"], folder, limits=Limits(inline=True)))
    small = "--encoder-sizes 8 --head-sizes 8 --steps 2 --out agent"
    must(box.run(f"train --agent pidm --demos d.npz {small}".split(), folder))
    return folder


def words(command: str) -> list[str]:
    parts = {"{sweep}": SWEEP, "{short}": SWEEP[6:]}
    return [each for word in command.split() for each in parts.get(word, [word])]


def check(box: Sandbox, inputs: Path, writer: Writer, case: Path, by_limit: bool) -> None:
    disk, env = case / "disk", {STORE: str(case / "disk" / "store")}
    with mounted(disk) as has_disk:
        if not has_disk and not by_limit and writer.free > 64 << 10:
            pytest.skip("a limit of the size of files cannot stand for this much space")
        shutil.copytree(inputs, case / "in")
        if writer.before:
            must(box.run(words(writer.before), case, allowed=case, env=env, limits=Limits(inline=True)))
        limits = Limits(inline=True, seconds=60)
        if has_disk and not by_limit:
            fill(disk, writer.free)
        else:
            limits.file_bytes = max(writer.free, LEAST)
        before = tree(disk)
        ended = box.run(words(writer.command), case, allowed=case, env=env, limits=limits)
        after = tree(disk)
        hidden = leftovers(disk) + [f"TMPDIR: {path.name}" for path in case.with_name(f"{case.name}.run").iterdir()]
        agent = box.run(["originals:read_agent", "disk/run"], case) if "run/agent.json" in before else None
    wrong = []
    if ended.code != 2:
        wrong.append(f"exits {ended.code}")
    elif not ended.told:
        wrong.append("does not say it in one sentence")
    elif writer.named not in ended.err:
        wrong.append(f"does not name {writer.named}")
    lost = [name for name in before if after.get(name, b"gone") != before[name]]
    if "resume" in writer.command:  # goes on with its log
        lost = [name for name in lost if not name.endswith("losses.jsonl")]
    if lost:
        wrong.append(f"changed {lost}")
    if agent is not None and agent.code:
        wrong.append(f"the old agent cannot be read any more: {agent.err.strip()}")
    if hidden:
        wrong.append(f"left {hidden}")
    new = [name for name in after if name not in before and after[name] is not None]
    if writer.only_whole and new and not hidden:
        wrong.append(f"left {new}")
    # a log that has begun may be empty
    if empty := [name for name in new if after[name] == b"" and not name.endswith("losses.jsonl")]:
        wrong.append(f"left empty files {empty}")
    assert not wrong, f"pidm-nav {writer.command}, {writer.free} bytes free\n{'; '.join(wrong)}\n{ended.err[-600:]}"


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in WRITERS if name not in SLOW])
def test_a_full_disk_is_told_and_harms_nothing(name: str, box: Sandbox, inputs: Path, tmp_path: Path) -> None:
    check(box, inputs, WRITERS[name], tmp_path / "case", by_limit=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_full_disk_is_told_by_slow_writers(name: str, box: Sandbox, inputs: Path, tmp_path: Path) -> None:
    check(box, inputs, WRITERS[name], tmp_path / "case", by_limit=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WRITERS if WRITERS[name].free <= 64 << 10])
def test_files_that_cannot_grow_are_told_and_harm_nothing(
    name: str, box: Sandbox, inputs: Path, tmp_path: Path
) -> None:
    check(box, inputs, WRITERS[name], tmp_path / "case", by_limit=True)
