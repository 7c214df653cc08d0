"""Every example runs as its reader would run it, is short, and says what it shows."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sandbox import Sandbox

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
LIMIT = 60
NEEDS = {
    "08_torchrl_rollouts": "torchrl",
    "09_minari": "minari",
    "11_ray_sweep": "ray",
    "13_meta_world": "metaworld",
}


def test_examples_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:2]) for path in EXAMPLES if re.fullmatch(r"\d\d_\w+\.py", path.name)]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    assert set(NEEDS) <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < LIMIT
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert f"python examples/{path.name} [--fast]" in docstring
    assert '"--fast"' in text


def _skip_without_extra(path: Path) -> None:
    extra = NEEDS.get(path.stem)
    if extra is not None and importlib.util.find_spec(extra) is None:
        pytest.skip(f"{extra} is not installed")


WITHOUT_RAY = [path for path in EXAMPLES if NEEDS.get(path.stem) != "ray"]  # starting Ray is slow: see the next test


@pytest.mark.thorough
@pytest.mark.parametrize("path", WITHOUT_RAY, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, box: "Sandbox", tmp_path: Path) -> None:
    from sandbox import Limits

    _skip_without_extra(path)
    ended = box.run([str(path), "--fast"], tmp_path / "here", env={"COLUMNS": "100"}, limits=Limits(inline=True))
    assert ended.code == 0, ended.err
    assert ended.out.strip(), "it prints nothing"
    for name in re.findall(r"^wrote (.+)$", ended.out, re.MULTILINE):
        assert (tmp_path / "here" / name).stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_in_a_fresh_process(path: Path, tmp_path: Path) -> None:
    """It imports all that it uses, which a process that has imported everything cannot tell."""
    _skip_without_extra(path)
    ended = subprocess.run(
        [sys.executable, str(path), "--fast"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
