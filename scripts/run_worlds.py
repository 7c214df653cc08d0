"""Make docs/results/worlds: other people's worlds, Meta-World's robot arm and PointMaze, with all agents.

The two want different versions of MuJoCo, so each runs in an environment of its own, and the report in any:

    pip install metaworld packaging imageio;  python scripts/run_worlds.py --world metaworld
    pip install gymnasium-robotics;           python scripts/run_worlds.py --world pointmaze
    python scripts/run_worlds.py

Pendulum and MiniGrid (`pip install --no-deps minigrid`) are run in the same way, into a folder of their own: see
docs/results/plans/small_worlds.md.

Demonstrations are successful episodes of scripted experts with noise on their actions, made once. Objects and goals are
somewhere else in every episode, so PIDM's default predictor is the learned one. The seeds of draws and trainings were
not looked at before. It is one sweep per world, so a stopped run resumes, and `--shard 0 2` and
`--shard 1 2` share a folder between two machines.
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import tyro
from small_worlds import PENDULUM, SwingUp, Walker, register_mini_grid

from pidm_nav.console import say
from pidm_nav.demos import collect, save_demos
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.figures import Gain, plot_gains
from pidm_nav.experiments.results import MANIFEST, Cell, JobResult, paired_gains, read_results
from pidm_nav.experiments.sweep import Sweep, run_sweep
from pidm_nav.files import write_rows
from pidm_nav.plots import agent_style, save_figure, task_title
from pidm_nav.rollouts.rollout import Policy

ROOT = Path(__file__).parents[1]
AGENTS = ("bc", "chunking", "diffusion", "delta-pidm", "delta-pidm-play")
SIZES = (1, 2, 5, 10, 25)
META_WORLD = ("reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "button-press-topdown-v3")
POINT_MAZE = ("PointMaze_UMaze-v3", "PointMaze_Medium-v3")
DEMOS, FIRST_DEMO = 30, 10_000  # demonstrations of a task, and the seed of the first
NOISE = 0.2  # standard deviation of the noise on an expert's actions
Experts = dict[str, Callable[[], Policy]]


class Waypoints:
    """Walks through a maze along the shortest way: to the middle of the next cell, and in its last cell to the goal.

    The maze is a `Maze` of gymnasium-robotics; observations are its flattened ones, goal reached (2), goal (2),
    position (2) and velocity (2).
    """

    def __init__(self, maze: Any, noise: float = NOISE) -> None:
        self.maze, self.noise, self.rng = maze, noise, np.random.default_rng(0)

    def next_cell(self, start: tuple[int, int], goal: tuple[int, int]) -> tuple[int, int]:
        """Return the cell after `start` on the shortest way, found backward from the goal."""
        came_from, waiting = {goal: goal}, deque([goal])
        while waiting and start not in came_from:
            row, column = waiting.popleft()
            for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if self.maze.maze_map[cell[0]][cell[1]] != 1 and cell not in came_from:
                    came_from[cell] = (row, column)
                    waiting.append(cell)
        return came_from[start]

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return accelerations (N, 2) toward the next waypoints."""
        targets = []
        for goal, position in zip(observation[:, 2:4], observation[:, 4:6], strict=True):
            cells = [tuple(map(int, self.maze.cell_xy_to_rowcol(place))) for place in (position, goal)]
            there = cells[0] == cells[1]
            targets.append(goal if there else self.maze.cell_rowcol_to_xy(np.array(self.next_cell(*cells))))
        actions = np.clip(10 * (np.array(targets) - observation[:, 4:6]) - 2 * observation[:, 6:8], -1, 1)
        return np.clip(actions + self.noise * self.rng.standard_normal(actions.shape), -1, 1), state


def find_worlds(world: str) -> tuple[Experts, dict[str, Any]]:
    """Register a world's tasks; return how to make the expert of each, and their arguments."""
    if world == "metaworld":
        sys.path.append(str(ROOT / "examples"))
        example = importlib.import_module("13_meta_world")
        return {example.register(name): partial(example.Expert, name, NOISE) for name in META_WORLD}, {}
    if world == "pendulum":
        return {PENDULUM: partial(SwingUp, NOISE)}, {}
    if world == "minigrid":
        return {task: partial(Walker, NOISE) for task in register_mini_grid()}, {}
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    mazes = {task: gym.make(task).unwrapped for task in POINT_MAZE}
    experts: Experts = {task: partial(Waypoints, env.maze) for task, env in mazes.items()}  # type: ignore[attr-defined]
    return experts, {"continuing_task": False}  # so that an episode ends at its goal


def demonstrate(experts: Experts, env_kwargs: dict[str, Any], folder: Path) -> list[str]:
    """Collect the successful episodes that are missing, and return the files of all tasks."""
    files = []
    for task, make in experts.items():
        path = folder / f"{task}.npz"
        if not path.exists():
            tried = collect(make(), task, 2 * DEMOS, FIRST_DEMO, made_by="scripted", **env_kwargs)
            successes = [index for index, episode in enumerate(tried) if episode.success is not False]
            say(f"{task}: {len(successes)} of {len(tried)} episodes of the expert succeed")
            if len(successes) < DEMOS:
                raise ValueError(f"{task} needs {DEMOS} demonstrations: lower the expert's noise from {NOISE}")
            save_demos(tried[successes[:DEMOS]], path)
        files.append(str(path))
    return files


def short(task: str) -> str:
    """Return a task's name as the figures show it."""
    return task_title(task).removeprefix("MetaWorld-").removesuffix("-v3").replace("_", " ")


def metric_name(result: JobResult) -> str:
    """Return the name of a job's score in results.csv."""
    return "return" if result.checkpoints[-1].scored()[0] == "return" else "success"


def report(work: Path, out: Path) -> None:
    """Write every job of both worlds and the gains on BC, if there are jobs, and draw the gains."""
    done: dict[Cell, JobResult] = {}
    for manifest in sorted(work.glob(f"*/{MANIFEST}")):
        done |= read_results(manifest.parent)[0]
    rows = [
        {
            **asdict(cell),
            metric_name(result): result.score,
            "length": result.checkpoints[-1].length,
            "seconds": result.seconds,
        }
        for cell, result in sorted(done.items())
    ]
    if done:
        write_rows(out / "results.csv", rows)
        write_rows(out / "gains.csv", paired_gains({cell: result.score for cell, result in done.items()}))
    panels: dict[str, list[Gain]] = {}
    for row in csv.DictReader((out / "gains.csv").read_text(encoding="utf-8").splitlines()):
        title, color, _ = agent_style(row["agent"])
        name, color = ("all tasks", color) if row["task"] == "all" else (short(row["task"]), f"{color}90")
        gain = Gain(name, color, *(float(row[end]) for end in ("gain", "low", "high")))
        panels.setdefault(title, []).append(gain)
    measure = "return" if done and metric_name(next(iter(done.values()))) == "return" else "success rate"
    save_figure(plot_gains(panels, f"{measure}, minus BC"), out / "worlds.png")
    say(f"{len(done)} jobs are done; wrote results.csv, gains.csv and worlds.png to {out}")


def main(
    world: Literal["metaworld", "pointmaze", "pendulum", "minigrid"] | None = None,
    agents: tuple[str, ...] = AGENTS,
    num_demos: tuple[int, ...] = SIZES,
    seeds: int = 5,
    first_seed: int = 300,
    episodes: int = 10,
    jobs: int = 1,
    shard: tuple[int, int] = (0, 1),
    work: Path = ROOT / "runs" / "worlds",
    out: Path = ROOT / "docs" / "results" / "worlds",
) -> None:
    """Run what is missing of a world, or write the report.

    Args:
        world: the world to run; by default the report is written instead.
        agents: names of the agents.
        num_demos: numbers of demonstrations.
        seeds: number of draws and trainings.
        first_seed: the first of their seeds.
        episodes: number of episodes per evaluation.
        jobs: number of processes.
        shard: which jobs to run, (i, n) for every n-th from the i-th.
        work: folder for demonstrations and scores.
        out: folder for the report.
    """
    if world is None:
        report(work, out)
        return
    experts, env_kwargs = find_worlds(world)
    files = demonstrate(experts, env_kwargs, work / "demos")
    sweep = Sweep(
        agents=agents,
        num_demos=num_demos,
        seeds=seeds,
        first_seed=first_seed,
        demos=tuple(files),
        label="scripted",
        episodes=episodes,
        checkpoint_fractions=(),
        metric="return" if world == "pendulum" else "success rate",
    )
    run_sweep(
        sweep, work / world, partial(run_local, workers=jobs), shard=shard, on_result=lambda result: say(str(result))
    )


if __name__ == "__main__":
    tyro.cli(main)
