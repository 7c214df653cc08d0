"""Nine ideas of other people, each a file of at most 40 lines that needs no private name of the package."""

import ast
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sandbox import Sandbox

pytest.importorskip("torch")

IDEAS = sorted((Path(__file__).parents[1] / "examples" / "ideas").glob("*.py"))


def run(folder: Path, *words: str) -> str:
    """Run Python in a fresh process, and return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PIDM_NAV_PLUGINS", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("idea", IDEAS, ids=lambda path: path.stem)
def test_an_idea_is_short_and_public(idea: Path) -> None:
    text = idea.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    tree = ast.parse(text)
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert not [name for name in names if name.startswith("_") and not name.startswith("__")]


def test_there_are_nine() -> None:
    assert len(IDEAS) == 9


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("idea", "options"),
    [
        ("mixed_futures", ["--agent", "pidm", "--predictor", "mixed(k=2)"]),
        ("several_futures", ["--agent", "several-futures"]),
        ("recurrent", ["--agent", "lstm-bc", "--encoder-sizes", "16", "--batch-size", "64"]),
        ("self_feeding", ["--agent", "delta-pidm", "--predictor", "self-feeding(trust=0.3, steps=20)"]),
        ("denoising", ["--agent", "delta-pidm", "--predictor", "denoising(steps=20)"]),
    ],
)
def test_the_command_line_knows_an_idea(idea: str, options: list[str], box: "Sandbox", tmp_path: Path) -> None:
    """Each command runs in a process of its own, which knows an idea only by `--plugin`."""
    plugin = next(path for path in IDEAS if path.stem == idea)
    small = ["--task", "zigzag", "--num-demos", "1", "--steps", "20", "--eval-episodes", "0", "--out", "run"]
    folder = tmp_path / "here"
    trained = box.run(["train", *options, *small, "--plugin", str(plugin)], folder)
    assert trained.code == 0 and "saved to run" in trained.out, trained.err
    evaluated = box.run(["evaluate", "run", "--episodes", "2", f"--plugin={plugin}"], folder)
    assert evaluated.code == 0 and "of the goals reached" in evaluated.out, evaluated.err
    refused = box.run(["evaluate", "run"], folder)
    assert refused.told and f"{idea}.py" in refused.err and "--plugin" in refused.err


def test_options_of_a_plugin_are_in_the_help(box: "Sandbox", tmp_path: Path) -> None:
    plugin = next(path for path in IDEAS if path.stem == "mixed_futures")
    shown = box.run(["train", "--help", "--plugin", str(plugin)], tmp_path / "here")
    assert "mixed(pull=1.0, distance=l2, k=3, width=10.0)" in " ".join(shown.out.split())


@pytest.mark.slow
@pytest.mark.parametrize("idea", IDEAS, ids=lambda path: path.stem)
def test_an_idea_runs_by_itself(idea: Path, tmp_path: Path) -> None:
    words = ["--steps", "20", "--out", "results"] if idea.stem == "sweep_of_all" else []
    assert run(tmp_path, str(idea), *words)


@pytest.mark.thorough
def test_a_sweep_knows_ideas_in_its_workers(box: "Sandbox", tmp_path: Path) -> None:
    program = f"""
from functools import partial
from pidm_nav import load_plugin
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.sweep import Sweep, run_sweep
load_plugin({str(IDEAS[0].with_name("several_futures.py"))!r})
load_plugin({str(IDEAS[0].with_name("mixed_futures.py"))!r})

def still(demos, seed):
    class Still:
        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return [[0.0, 0.0]] * len(observation), state
    return Still()

if __name__ == "__main__":
    agents = {{"several": "several-futures", "mixed": Recipe("pidm", {{"predictor": "mixed(k=2)"}}), "still": still}}
    small = dict(num_demos=(1,), seeds=1, steps=20, episodes=2, checkpoint_fractions=())
    done = run_sweep(Sweep(agents=agents, tasks=("zigzag",), **small), "results", partial(run_local, workers=1))
    print(sorted((cell.agent, result.score) for cell, result in done.items()))
"""
    (tmp_path / "program.py").write_text(program)
    done = box.run([str(tmp_path / "program.py")], tmp_path)
    assert done.code == 0, done.err
    shown = done.out
    assert "'mixed'" in shown and "'several'" in shown and "('still', 0.0)" in shown


@pytest.mark.thorough
def test_workers_of_a_sweep_save_the_agents_of_plugins_and_scripts(box: "Sandbox", tmp_path: Path) -> None:
    """As a class travels to a worker without its file, the saved agent must still name the file that it needs."""
    program = f"""
from functools import partial
from pidm_nav import BC, load_agent, load_plugin, register
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.sweep import Sweep, run_sweep
load_plugin({str(IDEAS[0].with_name("several_futures.py"))!r})

@register
class Own(BC):
    name = "own"

if __name__ == "__main__":
    small = dict(num_demos=(1,), seeds=1, steps=20, episodes=2, checkpoint_fractions=(), keep_agents="kept")
    sweep = Sweep(agents=("several-futures", Own.name), tasks=("zigzag",), **small)
    done = run_sweep(sweep, "results", partial(run_local, workers=2), on_result=lambda result: print(result.error))
    print(*sorted(load_agent(f"kept/{{cell.name}}").name for cell in done))
"""
    (tmp_path / "program.py").write_text(program)
    done = box.run([str(tmp_path / "program.py")], tmp_path)
    assert done.code == 0 and "own several-futures" in done.out, done.out + done.err
    plugins = {path.parent.name: json.loads(path.read_text())["plugin"] for path in tmp_path.glob("kept/*/agent.json")}
    assert plugins == {"zigzag_several-futures_1_0": "several_futures.py", "zigzag_own_1_0": "program.py"}


def test_the_command_line_sweeps_a_plugin_that_imports_from_the_package(box: "Sandbox", tmp_path: Path) -> None:
    plugin = tmp_path / "tiny.py"
    plugin.write_text("from pidm_nav import BC, register\n\n\n@register\nclass Tiny(BC):\n    name = 'tiny-bc'\n")
    small = ["--tasks", "zigzag", "--num-demos", "1", "--seeds", "1", "--steps", "20", "--episodes", "2"]
    here = tmp_path / "here"
    swept = box.run(["sweep", "--plugin", str(plugin), "--agents", "tiny-bc", *small, "--out", "my sweep"], here)
    assert swept.code == 0 and "1 of 1 jobs are done" in swept.out, swept.out + swept.err
    assert f"next: pidm-nav report 'my sweep' --plugin {plugin}\n" in swept.out


def test_the_command_to_run_next_works_as_it_is_printed(box: "Sandbox", tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "tiny.py").write_text(
        "from pidm_nav import BC, register\n\n@register\nclass T(BC):\n    name = 'tiny-bc'\n"
    )
    small = ["--demos", "zigzag/astar", "--num-demos", "1", "--steps", "2", "--eval-episodes", "0"]
    made = box.run(["train", "--plugin=tiny.py", "--agent", "tiny-bc", *small, "--out", "my run"], here)
    assert made.code == 0, made.err
    program, *words = shlex.split(made.out.partition("; next: ")[2])
    evaluated = box.run([*words, "--episodes", "1"], here)
    assert program == "pidm-nav" and evaluated.code == 0, evaluated.err
    first = (here / "my run" / "run.yaml").read_text().partition("\n")[0]
    assert first.endswith("to repeat the run: pidm-nav train --config run.yaml --out FOLDER --plugin tiny.py")
