"""Every file that the package reads may be damaged or hostile: it is read, or refused in one sentence.

A case damages one file of a reader and runs a command on it, in a forked process (see sandbox.py). Cases are decided by
their number alone. PIDM_NAV_FUZZ sets the number of cases of the slow test, PIDM_NAV_FUZZ_FIRST the first one's.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from mutations import (
    NPZ,
    RAW,
    change_json,
    change_lines,
    change_metadata,
    change_nested_json,
    change_tensors,
    change_yaml,
    inflate,
)

pytest.importorskip("resource", reason="limits on processes need Unix")
from originals import KINDS, SWEEP, make_originals
from sandbox import TOO_LONG, Ended, Limits, Sandbox

SECONDS = 8.0  # of processor time
MEGABYTES = 700
BY_DEFAULT = 75  # cases; the slow test goes on from there
DAMAGE = {
    ".npz": (*RAW, *NPZ, *NPZ),
    ".json": (*RAW, *[change_json] * 12),
    ".yaml": (*RAW, *[change_yaml] * 12),
    ".txt": (*RAW, *[change_lines] * 8),
    ".jsonl": (*RAW, change_lines),
    ".safetensors": (*RAW, change_tensors, change_tensors),
    ".hdf5": RAW,
}


@dataclass(frozen=True)
class Reader:
    """A part of the package that reads files: where they are, and the commands that read them."""

    folder: str  # among the originals
    commands: tuple[str, ...]
    reads: str  # a function that reads them and returns a digest
    known: str = "$^"  # the files whose damage a checksum knows, by a pattern
    also: tuple[str, ...] = ()  # other folders of the originals that the commands need
    weight: int = 2  # the share of all cases
    env: dict[str, str] = field(default_factory=dict)


ON_DEMOS = (
    "demos info {0}",
    "demos info {0}",
    "demos replay {0} --check",
    "demos replay {0} --gif x.gif --size 32",
    "demos plot {0} --out x.png",
    "demos convert {0} x.npz",
    "train --demos {0} --agent bc --encoder-sizes 8 --head-sizes 8 --steps 2 --out run",
    "train --demos {0} --agent pidm --encoder-sizes 8 --head-sizes 8 --steps 2 --out run",
    "train --demos {0} --agent retrieval-bc --out run",
    "advise {0} --steps 1 --no-rollouts",
    "analyze horizon --demos {0} --out analysis --horizons 1 2",
    "sweep --demos {0} --agents retrieval-bc --num-demos 1 --seeds 1 --episodes 1 --out results",
)
STORE = {"MINARI_DATASETS_PATH": "minari"}
READERS = {
    "npz": Reader(
        "demos", (*ON_DEMOS, "demos convert {0} minari:fuzz/more-v0"), "read_demos {0}", r"npz", weight=5, env=STORE
    ),
    "custom npz": Reader("custom", ON_DEMOS, "read_demos {0}", r"npz", weight=3),
    "compact": Reader("compact", ON_DEMOS, "read_demos {0}", r"npz"),
    "paper": Reader("paper", ON_DEMOS, "read_demos {0}", r"npz", weight=4),
    "pixels": Reader("pixels", ("demos info {0}", "demos replay {0} --gif x.gif"), "read_demos {0}", r"npz", weight=1),
    "minari": Reader("minari", ON_DEMOS, "read_demos {0}", weight=4, env=STORE),
    "robomimic": Reader("robomimic", ON_DEMOS, "read_demos {0}", weight=3),
    **{
        kind: Reader(
            kind,
            ("evaluate {0} --episodes 1",),
            "read_agent {0}",
            r"safetensors",
            ("demos",),
        )
        for kind in KINDS
    },
    "frozen": Reader("frozen", ("evaluate {0} --episodes 1",), "read_agent {0}", r"safetensors", weight=1),
    "cache": Reader("cache", (), "train_frozen pixels/d.npz run", r".", ("pixels",), 1, {"PIDM_NAV_CACHE": "cache"}),
    "resume": Reader("resume", (), "resume_training demos/d.npz {0}", r"training.safetensors", ("demos",), 3),
    "sweep": Reader(
        "sweep",
        (
            "report {0} --out report",
            "sweep --demos demos/d.npz " + " ".join(SWEEP[:-1]) + " '' --out {0}",
        ),
        "read_sweep {0}",
        also=("demos",),
        weight=5,
    ),
    "kept": Reader(
        "kept",
        ("sweep --demos demos/d.npz " + " ".join(SWEEP[:-1]) + " '' --keep-agents {0} --out results",),
        "read_agent {0}/zigzag_bc_1_0",
        also=("demos",),
        weight=1,
    ),
    "config": Reader(
        "config",
        ("train --config config/train/run.yaml --out run", "sweep --config config/sweep/run.yaml --out results"),
        "read_config {0}",
        also=("demos",),
        weight=3,
    ),
    "mapping": Reader("mapping", ("record --list-controllers --mapping {0}",), "read_controls {0}", weight=2),
    "map": Reader(
        "map",
        (
            "collect --task custom --layout {0} --room-size 420 210 --episodes 1 --out x.npz",
            "collect --task custom --layout {0} --episodes 1 --out x.npz",
        ),
        "read_map {0}",
        weight=3,
    ),
    "quickstart": Reader("quickstart", ("quickstart --fast --out {0}",), "read_sweep {0}/sweeps/astar", weight=1),
}
NAMED = {"paper": "paper/walks", "minari": "minari:fuzz/demos-v0", "map": "map/map.txt", "resume": "resume/run"}
NAMED |= {"sweep": "sweep/results", "kept": "kept/agents", "mapping": "mapping/mapping.json"}
NAMED |= {"robomimic": "robomimic/d.hdf5", "config": "config/train/run.yaml"}
NAMED |= {"quickstart": "quickstart", "custom npz": "custom/d.npz", "npz": "demos/d.npz"}
NAMED |= {name: f"{name}/d.npz" for name in ("compact", "pixels")}
NAMED |= {name: f"{name}/agent" for name in (*KINDS, "frozen")}


@pytest.fixture(scope="session")
def originals(box: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    make_originals(box, folder)
    return folder


def damage(name: str, number: int, folder: Path, rng: np.random.Generator) -> tuple[str, str, bool]:
    """Damage a file of the reader in the case's folder; return the file, what was done, and whether it is known."""
    reader = READERS[name]
    files = sorted(path for path in (folder / reader.folder).rglob("*") if path.is_file())
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(path.suffix, []).append(path)
    chosen = kinds[list(kinds)[int(rng.integers(len(kinds)))]]
    path = chosen[int(rng.integers(len(chosen)))]
    shown = str(path.relative_to(folder))
    known = re.search(reader.known, shown) is not None
    if len(chosen) > 1 and rng.random() < 0.1:
        other = chosen[int(rng.integers(len(chosen)))]
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
        return shown, f"swapped with {other.name}", known and path.suffix == ".safetensors"
    ways = DAMAGE.get(path.suffix, RAW)
    if path.suffix == ".npz" and name in ("npz", "custom npz", "pixels"):
        ways = (*ways, *[change_metadata] * 12)
    if path.suffix == ".json" and name == "minari":
        ways = (*ways, *[change_nested_json] * 8)
    way = ways[int(rng.integers(len(ways)))]
    if path.suffix == ".npz" and number % 25 == 24:
        way = inflate
    content, told = way(path.read_bytes(), rng)
    path.write_bytes(content)
    return shown, told, known and way in (*RAW, change_tensors)


def run_case(box: Sandbox, originals: Path, name: str, number: int, folder: Path, digests: dict[str, object]) -> str:
    """Run a case; return what is wrong, or nothing."""
    reader, rng = READERS[name], np.random.default_rng([crc32(name.encode()), number])
    for part in (reader.folder, *reader.also):
        shutil.copytree(originals / part, folder / part)
    file, told, known = damage(name, number, folder, rng)
    commands = () if known or not reader.commands else reader.commands
    command = commands[int(rng.integers(len(commands)))] if commands else f"originals:{reader.reads}"
    words = [word.replace("''", "") for word in command.format(NAMED.get(name, "")).split()]
    env = {key: str(folder / value) for key, value in reader.env.items()}
    limits = Limits(seconds=SECONDS, megabytes=2 * MEGABYTES, inline=True)
    ended = box.run(words, folder, env=env, limits=limits)
    wrong = judge(ended)
    if not wrong and known and ended.code == 0 and ended.result != digests[name]:
        wrong = "read with another result, though a checksum could know"
    if not wrong:
        shutil.rmtree(folder)
        shutil.rmtree(folder.with_name(f"{folder.name}.run"), ignore_errors=True)
        return ""
    return f"case {number}: {wrong}\n    {file}: {told}\n    cd {folder}; pidm-nav {' '.join(words)}"


def judge(ended: Ended) -> str:
    """Return what is wrong with how a run ended."""
    last = (ended.err.strip().splitlines() or [""])[-1][:200]
    if TOO_LONG in ended.err or ended.code == -24:
        return f"took more than {SECONDS:g} s: " + ended.err.strip()[-400:]
    if ended.outside:
        return f"reached out of its folder: {ended.outside[:3]}"
    if ended.code < 0:
        return f"ended by signal {-ended.code}: {last}"
    if ended.code not in (0, 2) or "Traceback" in ended.err:
        places = re.findall(r'File ".*?/(\w+/[\w.]+)", line (\d+)', ended.err)
        return f"traceback: {last} at {places[-1:]}, from {[each for each in places if 'pidm_nav' in each[0]][-1:]}"
    if re.search("MemoryError|allocate memory|Unable to allocate", ended.err) or ended.megabytes > MEGABYTES:
        return f"wanted too much memory ({ended.megabytes:.0f} MB): {last}"
    if "\x1b" in ended.out + ended.err:
        return "printed a control sequence"
    if ended.code == 2 and not ended.told:
        return f"not one sentence: {ended.err[-300:]!r}"
    return ""


def run_cases(box: Sandbox, originals: Path, name: str, numbers: range, folder: Path) -> list[str]:
    reader = READERS[name]
    digests: dict[str, object] = {}
    whole = folder / "whole"
    for part in (reader.folder, *reader.also):
        shutil.copytree(originals / part, whole / part)
    words = f"originals:{reader.reads}".format(NAMED.get(name, "")).split()
    env = {key: str(whole / value) for key, value in reader.env.items()}
    ended = box.run(words, whole, env=env, limits=Limits(inline=True))
    assert ended.code == 0, ended.err
    digests[name] = ended.result
    wrong = [run_case(box, originals, name, number, folder / str(number), digests) for number in numbers]
    return [each for each in wrong if each]


def share(name: str, cases: int) -> int:
    total = sum(reader.weight for reader in READERS.values())
    return max(1, round(cases * READERS[name].weight / total))


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in READERS if name != "quickstart"])
def test_damaged_files_are_read_or_refused(name: str, box: Sandbox, originals: Path, tmp_path: Path) -> None:
    wrong = run_cases(box, originals, name, range(share(name, BY_DEFAULT)), tmp_path)
    assert not wrong, f"{len(wrong)} cases:\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_refused(name: str, box: Sandbox, originals: Path, tmp_path: Path) -> None:
    if name == "quickstart":
        made = originals / "quickstart"
        ended = box.run(["quickstart", "--fast", "--out", str(made)], originals, limits=Limits(inline=True))
        assert ended.code == 0, ended.err
    first = int(os.environ.get("PIDM_NAV_FUZZ_FIRST", share(name, BY_DEFAULT)))
    cases = share(name, int(os.environ.get("PIDM_NAV_FUZZ", 3000)))
    wrong = run_cases(box, originals, name, range(first, first + cases), tmp_path)
    assert not wrong, f"{len(wrong)} of {cases} cases:\n" + "\n".join(wrong)
