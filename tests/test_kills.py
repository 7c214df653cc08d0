"""Every writer may be killed at any moment: the next start finishes, and nothing that was acknowledged is lost.

A run is killed with SIGKILL before the n-th change that it makes to a file or folder, or where a file grows beyond so
many bytes; n and the bytes are drawn from what the unbroken run did. PIDM_NAV_KILLS sets the kills of the slow test,
PIDM_NAV_KILLS_FIRST the number of each writer's first one, which decides its moment.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

pytest.importorskip("resource", reason="limits on processes need Unix")
from originals import SWEEP, must
from sandbox import Ended, Limits, Sandbox, leftovers, tree

STORE = "MINARI_DATASETS_PATH"
TRAIN = "train --agent bc --demos in/d.npz --steps 40 --save-every 4 --log-every 4 --encoder-sizes 64 --head-sizes 64"


@dataclass(frozen=True)
class Writer:
    """A command that writes into `out`."""

    command: str
    before: str = ""  # a command that leaves something older at the same place
    by_bytes: bool = True  # whether its files can be cut where they grow: workers would survive that
    inline: bool = True
    digest: str = ""  # reads the result where equal results differ in their bytes


WRITERS = {
    "collect": Writer(
        "collect --task zigzag --episodes 9 --out out/d.npz --force", "demos convert in/d.npz out/d.npz --force"
    ),
    "convert": Writer("demos convert zigzag/astar out/d.npz --force", "demos convert in/d.npz out/d.npz --force"),
    "edit": Writer(
        "demos edit in/d.npz --keep 0,2 --out out/d.npz --force", "demos convert zigzag/astar out/d.npz --force"
    ),
    "minari": Writer(
        "demos convert in/d.npz minari:kill/demos-v0 --force",
        "demos convert zigzag/astar minari:kill/demos-v0 --force",
        digest="originals:read_demos minari:kill/demos-v0",
    ),
    "record": Writer("originals:record out/d.npz 3"),
    "train": Writer(f"{TRAIN} --force --out out/run", f"{TRAIN} --seed 1 --force --out out/run"),
    "gif": Writer("demos replay in/d.npz --gif out/x.gif --size 64", "demos replay zigzag/astar --gif out/x.gif"),
    "mp4": Writer("demos replay in/d.npz --gif out/x.mp4 --size 64", "demos replay zigzag/astar --gif out/x.mp4"),
    "plot": Writer("demos plot in/d.npz --out out/x.png", "demos plot zigzag/astar --out out/x.png"),
    "analyze": Writer(
        "analyze horizon --demos in/d.npz --splits 1 --out out/x",
        "analyze horizon --demos zigzag/astar --splits 1 --out out/x",
    ),
    "report": Writer("report in/sweep --out out/report"),
    "sweep": Writer("sweep --demos in/d.npz {sweep} --out out/results"),
    "sweep in workers": Writer(
        "sweep --demos in/d.npz {sweep} --jobs 2 --out out/results", by_bytes=False, inline=False
    ),
    "quickstart": Writer("quickstart --fast --out out/quickstart"),
}
SLOW = ("sweep in workers", "quickstart")


@pytest.fixture(scope="module")
def inputs(box: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    must(box.run(["collect", "--task", "zigzag", "--episodes", "3", "--out", "d.npz"], folder))
    words = ["sweep", "--demos", "d.npz", *SWEEP, "--out", "sweep"]
    must(box.run(words, folder, limits=Limits(inline=True)))
    return folder


class Runs:
    """Runs of one writer, each in a folder with the same inputs."""

    def __init__(self, box: Sandbox, inputs: Path, writer: Writer, folder: Path) -> None:
        self.box, self.inputs, self.writer, self.folder = box, inputs, writer, folder

    def begin(self, name: str) -> Path:
        case = self.folder / name
        shutil.copytree(self.inputs, case / "in")
        (case / "out").mkdir()
        return case

    def run(self, case: Path, command: str, **limits: int | None) -> Ended:
        words = [each for word in command.split() for each in (SWEEP if word == "{sweep}" else [word])]
        env = {STORE: str(case / "out" / "store")}
        more = Limits(inline=self.writer.inline, **limits)  # type: ignore[arg-type]
        return self.box.run(words, case, allowed=case, env=env, limits=more)

    def result(self, case: Path) -> object:
        """What the writer has written, but for how long it took, and when (TensorBoard's files)."""
        if self.writer.digest:
            return must(self.run(case, self.writer.digest)).result
        timed = re.compile(rb'"seconds": [\d.e-]+')
        written = {name: content for name, content in tree(case / "out").items() if "tfevents" not in name}
        return {name: timed.sub(b"", content or b"") for name, content in written.items()}


def kill_and_go_on(runs: Runs, numbers: range, name: str) -> None:
    writer = runs.writer
    whole = runs.begin("whole")
    unbroken = must(runs.run(whole, writer.command))
    wanted = runs.result(whole)
    largest = max(len(content or b"") for content in tree(whole / "out").values())
    wrong = []
    for number in numbers:
        rng = np.random.default_rng([crc32(name.encode()), number])
        case = runs.begin(f"kill{number}")
        old = writer.before and rng.random() < 0.5
        if old:
            must(runs.run(case, writer.before))
        before = runs.result(case) if old else None
        if writer.by_bytes and rng.random() < 0.4:
            moment = {"kill_bytes": int(rng.integers(1, max(largest, 2)))}
        else:
            moment = {"kill_at": int(rng.integers(1, unbroken.changes + 1))}
        killed = runs.run(case, writer.command, **moment)
        told = f"killed by {moment}{' with an older result there' if old else ''} (exit {killed.code}):"
        held = dict(tree(case / "out"))
        lost = lost_episodes(runs, case, killed)
        if lost:
            wrong.append(f"{told} {lost}")
        if old and (reason := broken(runs, case, before, wanted)):
            wrong.append(f"{told} {reason}")
        command = writer.command
        if name == "record":  # it adds to what is there
            kept = episodes(runs, case)
            command = f"originals:record out/d.npz {3 - kept}" if kept < 3 else "demos info out/d.npz"
        again = runs.run(case, command)
        if again.code:
            wrong.append(f"{told} the next start exits {again.code}: {again.err.strip()[-300:]}, with {list(held)}")
            continue
        if left := leftovers(case / "out") + [f"TMPDIR: {path.name}" for path in temporary(case)]:
            wrong.append(f"{told} leaves {left}")
        found = runs.result(case)
        if found != wanted and not left:
            wrong.append(f"{told} another result: {difference(found, wanted)}")
        if not wrong:
            shutil.rmtree(case)
    assert not wrong, f"{name}: pidm-nav {writer.command}\n" + "\n".join(wrong) + f"\nsee {runs.folder}"


def temporary(case: Path) -> list[Path]:
    return sorted(case.with_name(f"{case.name}.run").iterdir())


def episodes(runs: Runs, case: Path) -> int:
    from pidm_nav.demos import load_demos

    return len(load_demos(case / "out" / "d.npz")) if (case / "out" / "d.npz").exists() else 0


def lost_episodes(runs: Runs, case: Path, killed: Ended) -> str:
    safe = [int(number) for number in re.findall(r"^safe: (\d+)$", killed.out, re.MULTILINE)]
    if safe and episodes(runs, case) < safe[-1]:
        return f"{safe[-1]} episodes were safe, {episodes(runs, case)} are there"
    return ""


def broken(runs: Runs, case: Path, before: object, wanted: object) -> str:
    """Say what is neither as it was before nor as it should become, of what stood there."""
    if runs.writer.digest:
        ended = runs.run(case, runs.writer.digest)
        return "" if ended.code == 0 and ended.result in (before, wanted) else f"unreadable: {ended.err.strip()}"
    if (case / "out" / "run").exists():
        ended = runs.run(case, "originals:read_agent out/run")
        return "" if ended.code == 0 else f"the old agent is lost: {ended.err.strip()}"
    assert isinstance(before, dict) and isinstance(wanted, dict)
    found = runs.result(case)
    assert isinstance(found, dict)
    bad = [name for name in before if found.get(name) not in (before[name], wanted.get(name))]
    return f"broken: {bad}" if bad else ""


def difference(found: object, wanted: object) -> str:
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return f"{found} instead of {wanted}"
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    kinds = {name: "missing" if name not in found else "new" if name not in wanted else "changed" for name in names}
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in WRITERS if name not in SLOW])
def test_a_killed_writer_goes_on(name: str, box: Sandbox, inputs: Path, tmp_path: Path) -> None:
    kill_and_go_on(Runs(box, inputs, WRITERS[name], tmp_path), range(1), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_writers_killed_many_times_go_on(name: str, box: Sandbox, inputs: Path, tmp_path: Path) -> None:
    kills = -(-int(os.environ.get("PIDM_NAV_KILLS", 60)) // len(WRITERS))
    first = int(os.environ.get("PIDM_NAV_KILLS_FIRST", 1))
    kill_and_go_on(Runs(box, inputs, WRITERS[name], tmp_path), range(first, first + kills), name)
