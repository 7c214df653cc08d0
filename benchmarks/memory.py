"""Measures the most memory that the package's longer tasks hold, each in a fresh process.

    python benchmarks/memory.py [--full]

A number is the peak resident memory of the largest process of a task; the first lines, which only import, say how much
of it is there before any work is done. The quickstart runs its short plan, or with `--full` the one that visitors run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from pidm_nav.console import print_table

SWEEP = 'Sweep(tasks=("maze",), num_demos=({demos},), steps=100, episodes=50, demos_from="human-like")'
JOB = (
    "from pidm_nav.experiments.jobs import run_job; from pidm_nav.experiments.results import Cell; "
    "from pidm_nav.experiments.sweep import Sweep; "
)
EVALUATE = "from pidm_nav import evaluate; from pidm_nav.demos.experts import make_expert; "
PROGRAMS = {
    "import pidm_nav": "import pidm_nav",
    "import pidm_nav.agents": "import pidm_nav.agents",
    "4,096 Mazes": "import gymnasium, pidm_nav\n"
    'envs = gymnasium.make_vec("PIDMNav-Maze-v0", num_envs=4096); envs.reset(seed=0)\n'
    "for _ in range(100): envs.step(envs.action_space.sample())",
    "evaluate, 1,000 episodes of Maze": EVALUATE + 'evaluate(make_expert("astar", "maze"), "maze", 1000)',
    **{
        f"evaluate, {episodes:,} episodes of Maze, not kept": EVALUATE
        + f'evaluate(make_expert("astar", "maze"), "maze", {episodes}, keep_episodes=False)'
        for episodes in (100, 2000)
    },
    **{
        f"sweep worker, PIDM, {demos} demonstrations": JOB
        + f'run_job({SWEEP.format(demos=demos)}.job(Cell(0, "maze", {demos}, "pidm")))'
        for demos in (1, 50)
    },
    "3D rollout, one episode": EVALUATE + 'evaluate(make_expert("scripted", "maze-3d"), "maze-3d", 1)',
    "quickstart": 'from pidm_nav.cli import main; main(["quickstart", "--out", "quickstart"{fast}])',
}


def peak(program: str) -> float | None:
    """Return the megabytes that the largest process of a program held, or None if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = subprocess.DEVNULL
        child = subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdout=quiet, stderr=quiet)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10  # macOS counts bytes
    return used.ru_maxrss / scale if child.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="run the whole quickstart instead of its short plan")
    options = parser.parse_args()
    rows = []
    for name, program in PROGRAMS.items():
        most = peak(program.replace("{fast}", "" if options.full else ', "--fast"'))
        rows.append({"task": name, "peak memory": "failed" if most is None else f"{most:,.0f} MB"})
    print_table(rows)


if __name__ == "__main__":
    main()
