"""Make docs/results/world3d: BC against PIDM from pixels in the 3D world.

    python scripts/run_world3d.py                     everything that is not there yet
    python scripts/run_world3d.py --levels tour-3d --seeds 3 --realtime 0

Each cell (level, agent, number of demonstrations, seed) is trained on demonstrations of the scripted walker and rolled
out twice: in step with the engine, and in real time, where tics pass while the agent thinks. Demonstrations, agents
and scores are kept in --work, so a stopped run goes on where it was. Real-time rollouts run one at a time: two
would slow each other down.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import imageio.v2 as imageio
import numpy as np

from pidm_nav.agents import load_agent, train
from pidm_nav.agents.train import preset
from pidm_nav.analysis.figures import Row, save_rows
from pidm_nav.demos import load_demos
from pidm_nav.experiments.curves import Curve, mean_curve, std_curve
from pidm_nav.experiments.efficiency import welch_tests
from pidm_nav.experiments.engines import Outcome, run_local
from pidm_nav.experiments.figures import Figure, Line, Panel, agent_title, draw
from pidm_nav.experiments.results import write_json
from pidm_nav.world3d.rollout import collect3d, evaluate3d, roll_out3d

ROOT = Path(__file__).parents[1]
AGENTS = ("bc", "pidm")
SIZES = (5, 15, 30)
MODES = ("synchronous", "real time")
FIRST_EPISODE = 1_000_000  # seed of the first rollout, far from those of the demonstrations

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--levels", nargs="*", default=["tour-3d", "four-room-3d"])
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--episodes", type=int, default=10, help="rollouts of a cell in step with the engine")
parser.add_argument("--realtime", type=int, default=3, help="rollouts of a cell in real time, some 40 s each")
parser.add_argument("--work", type=Path, default=ROOT / "runs" / "world3d")
parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "world3d")


class Job(NamedTuple):
    """A cell in one mode, and where its files are."""

    level: str
    agent: str
    size: int
    seed: int
    mode: str
    episodes: int
    work: Path

    @property
    def folder(self) -> Path:
        """Of the agent."""
        return self.work / "agents" / f"{self.level}-{self.agent}-{self.size}-{self.seed}"

    @property
    def result(self) -> Path:
        """The file of the score."""
        name = f"{self.folder.name}-{self.mode.replace(' ', '-')}-{self.episodes}.json"
        return self.work / "results" / name


def demos_file(work: Path, level: str) -> Path:
    return work / f"{level}.npz"


def run(job: Job) -> Outcome:
    """Train the agent unless it is there, roll it out, write the score."""
    began = time.perf_counter()
    if (job.folder / "agent.json").exists():
        agent = load_agent(job.folder)
    else:
        demos = load_demos(demos_file(job.work, job.level)).sample(
            job.size, np.random.default_rng([job.seed, job.size])
        )
        agent = train(job.agent, demos, replace(preset("pixels", job.agent, job.level), seed=job.seed), job.folder)
    trained = time.perf_counter()
    realtime = job.mode == "real time"
    scores = evaluate3d(agent, job.level, job.episodes, FIRST_EPISODE, realtime=realtime)
    outcome = {
        "milestones": scores.mean_goal_ratio,
        "success": scores.success_rate,
        "episodes": scores.goal_ratio.tolist(),
        "training_seconds": round(trained - began, 1),
        "rollout_seconds": round(time.perf_counter() - trained, 1),
    }
    job.result.parent.mkdir(parents=True, exist_ok=True)
    write_json(job.result, outcome)
    return outcome


def curves_of(results: dict[Job, Any], level: str, mode: str) -> list[Curve]:
    """A curve an agent."""
    found = []
    for agent in AGENTS:
        key = (level, agent, mode)
        own = {job: result for job, result in results.items() if (job.level, job.agent, job.mode) == key}
        if own:
            cells = {(job.size, job.seed): [result["milestones"]] for job, result in own.items()}
            found.append(Curve.from_cells(level, agent, "scripted", cells))
    return found


def write_out(results: dict[Job, Any], levels: list[str], out: Path) -> None:
    """The figure, the table and every score."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    panels = []
    for level in levels:
        for mode in MODES:
            curves = curves_of(results, level, mode)
            if len(curves) < len(AGENTS):
                continue
            tests = {test["demos"]: test for test in welch_tests(curves[1], curves[0])}
            means, stds = [mean_curve(curve) for curve in curves], [std_curve(curve) for curve in curves]
            for index, size in enumerate(curves[0].sizes):
                row: Row = {"level": level, "mode": mode, "demos": size, "seeds": curves[0].scores.shape[1]}
                for agent, mean, std in zip(AGENTS, means, stds, strict=True):
                    row |= {agent: round(float(mean[index]), 3), f"{agent}_std": round(float(std[index]), 3)}
                rows.append({**row, **{name: round(tests[size][name], 4) for name in ("difference", "t", "p")}})
            lines = [
                Line(agent_title(curve.agent), curve.agent, curve.sizes, mean, std, np.nan)
                for curve, mean, std in zip(curves, means, stds, strict=True)
            ]
            panels.append(Panel(f"{level}, {mode}", tuple(lines)))
    save_rows(rows, out / "world3d.csv")
    draw(Figure("world3d", "Milestones against demonstrations", "", tuple(panels)), out)
    summary = [{**{k: v for k, v in job._asdict().items() if k != "work"}, **results[job]} for job in sorted(results)]
    write_json(out / "summary.json", {"jobs": summary})


def film(level: str, size: int, work: Path, out: Path) -> None:
    """The first rollout of both agents side by side, the one that is done standing still."""
    films = []
    for agent in AGENTS:
        frames: list[np.ndarray[Any, Any]] = []
        policy = load_agent(Job(level, agent, size, 0, "", 0, work).folder)
        roll_out3d(
            policy,
            level,
            1,
            FIRST_EPISODE,
            keep_observations=False,
            watch=lambda env, frames=frames: frames.append(env.render()),
            render_mode="rgb_array",
        )
        films.append(frames)
    length = max(map(len, films))
    pairs = (np.hstack([frames[min(i, len(frames) - 1)] for frames in films]) for i in range(length))
    imageio.mimsave(out / f"{level}-bc-and-pidm.mp4", list(pairs), fps=12)


def main() -> None:
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for level in options.levels:
        if not demos_file(options.work, level).exists():
            collect3d(level, max(SIZES), seed=0).save(demos_file(options.work, level))
    results: dict[Job, Any] = {}
    for mode, episodes, workers in (("synchronous", options.episodes, None), ("real time", options.realtime, 1)):
        jobs = [
            Job(level, agent, size, seed, mode, episodes, options.work)
            for seed in range(options.seeds)
            for level in options.levels
            for size in SIZES
            for agent in AGENTS
            if episodes
        ]
        results |= {job: json.loads(job.result.read_text()) for job in jobs if job.result.exists()}
        for job, outcome in run_local(run, [job for job in jobs if job not in results], workers):
            if "error" in outcome:
                raise RuntimeError(f"{job.folder.name}: {outcome['traceback']}")
            results[job] = outcome
            print(f"{len(results):3d}  {job.folder.name:24} {mode:12} {outcome['milestones']:.3f}", flush=True)
        write_out(results, options.levels, options.out)
    film(options.levels[0], 15, options.work, options.out)


if __name__ == "__main__":
    main()
