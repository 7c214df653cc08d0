"""Compare BC and delta-PIDM from pixels in the 3D world, on one pretrained encoder: scores, test, use of the future.

    pip install "pidm-nav[3d,vision]"
    python scripts/run_world3d.py                     everything that is not there yet
    python scripts/run_world3d.py --draw              only the figures of both experiments, from recorded scores

The demonstrator is the varied walker, another person in each episode. BC, delta-PIDM (which follows a demonstration six
steps ahead) and delta-PIDM with play learn from the same vectors of `frames="efficientnet"`, with the same small
networks, 1,500 steps each. The seeds of demonstrations, draws and trainings were not used before, and those of
rollouts, which are the same in all sweeps, not for choosing settings here (docs/results/world3d/README.md says what was
tried).

The test, fixed before the run: for each level, number of demonstrations and seed, the mean share of milestones passed
by delta-PIDM minus that by BC, on the same demonstrations and rollout seeds; Wilcoxon's signed-rank test, two-sided,
over all of these 30 pairs (test.csv has the paired t-test over the five seeds, as pairs of a seed are not independent).
delta-PIDM is ahead if the mean difference is positive and p < 0.05. delta-PIDM with play is tested in the same way, as
a further question. delta-PIDM uses the future if, averaged over its 30 agents, another future changes its actions by at
least 20% of the actions' variance. The control is the same agents shown the present in place of the future
(delta-pidm-blind). To save time, control and play have the middle number of demonstrations only, unless `--play-sizes`
says otherwise of play.

Demonstrations are embedded once, before the sweep, into a cache that all processes read. A stopped run goes on where it
was.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pidm_nav.agents import PIDM, Agent, load_agent
from pidm_nav.agents.encoders import CACHE_VARIABLE, Frozen
from pidm_nav.agents.pretrained import EfficientNetEncoder
from pidm_nav.console import say
from pidm_nav.demos import DemoDataset, collect, load_demos, save_demos
from pidm_nav.demos.experts import make_expert
from pidm_nav.experiments.curves import Curve
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.figures import CurveFigure, compare_curves, write_figure
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.report import write_report
from pidm_nav.experiments.results import paired_gains, read_results
from pidm_nav.experiments.sweep import Sweep, run_sweep
from pidm_nav.files import write_rows
from pidm_nav.plots import task_title

ROOT = Path(__file__).parents[1]
FIRST_DEMO = 30_000  # seed of the first demonstration
HELD_OUT = (40_000, 3)  # seed of the first demonstration that nobody trains on, and their number
PLAY_STEPS = 1000
SHARED: dict[str, Any] = {  # what both agents have in common
    "frames": "efficientnet",
    "frame_size": 64,
    "history": (0, 1, 2),
    "encoder_sizes": (128, 128, 64),
    "head_sizes": (128, 128),
    "steps": 1500,
    "batch_size": 64,
}
PIDM_OPTIONS: dict[str, Any] = {**SHARED, "predictor": "follow", "horizons": (6,)}


def make_blind(agent: PIDM) -> None:
    """Let the agent's predictor say that everything stays as it is."""
    agent.predictor.predict = lambda states, memory=None, *_: (states, memory)  # type: ignore[method-assign]


def demonstrate(level: str, episodes: int, seed: int, path: Path) -> DemoDataset:
    """Return demonstrations of the varied walker, from the file that keeps them."""
    if not path.exists():
        save_demos(collect(make_expert("scripted", level, seed=seed, varied=True), level, episodes, seed), path)
    return load_demos(path)


def followed(agent: PIDM, states: np.ndarray) -> np.ndarray:
    """Return the futures (T, D) that the predictor would say along an episode of states (T, D)."""
    memory, futures = None, []
    for step in range(len(states)):
        future, memory = agent.predictor.predict(states[step : step + 1], memory, np.array([step == 0]))
        futures.append(future[0])
    return np.array(futures)


def future_use(bc: Agent, pidm: PIDM, held_out: DemoDataset) -> dict[str, float]:
    """Return mean squared errors of actions on demonstrations not trained on, and what other futures change.

    The other future of a step is where the change of another step of the episode would lead.
    """
    rng = np.random.default_rng(0)
    parts = []
    seen = (held_out, bc.observations.embedded(held_out), pidm.observations.embedded(held_out))
    for episode, cloned_from, embedded in zip(*seen, strict=True):
        now, actions, steps = embedded.observations[:-1], episode.actions, np.arange(len(episode))
        later = embedded.observations[np.minimum(steps + pidm.horizon, len(steps))]
        other = rng.permutation(steps)
        own = pidm.inverse_dynamics(now, later)
        elsewhere = pidm.inverse_dynamics(now, now + later[other] - now[other])
        predicted = pidm.inverse_dynamics(now, followed(pidm, now))
        cloned, _ = bc.act(cloned_from.observations[:-1], None, np.zeros(len(now), dtype=bool))
        parts.append([cloned - actions, own - actions, predicted - actions, own - elsewhere])
    errors = [float(np.square(np.concatenate(part)).mean()) for part in zip(*parts, strict=True)]
    names = ("bc_error", "pidm_error_own_future", "pidm_error_predicted_future", "pidm_change")
    variance = float(np.concatenate([episode.actions for episode in held_out]).var(axis=0).mean())
    use = {"action_variance": variance, "future_use": errors[-1] / variance}
    return {**dict(zip(names, errors, strict=True)), **use}


def make_sweep(files: list[str], agents: Path, sizes: tuple[int, ...], seeds: int, first: int, episodes: int) -> Sweep:
    """Return the sweep of BC and delta-PIDM, whose agents are kept."""
    return Sweep(
        agents=("bc", "delta-pidm"),
        num_demos=sizes,
        seeds=seeds,
        first_seed=first,
        demos=tuple(files),
        label="varied-walker",
        episodes=episodes,
        checkpoint_fractions=(),
        keep_agents=agents,
        recipes={
            "bc": Recipe("bc", SHARED),
            "delta-pidm": Recipe("delta-pidm", PIDM_OPTIONS),
            "delta-pidm-play": Recipe("delta-pidm", PIDM_OPTIONS, play_steps=PLAY_STEPS),
            "delta-pidm-blind": Recipe("delta-pidm", PIDM_OPTIONS, adapt=make_blind, trained_as="delta-pidm"),
        },
    )


def draw_scores(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Draw the scores of BC and of the other agent that has all sizes, a panel for each task."""
    cells: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = {}
    for row in rows:
        if row["agent"] in ("bc", "pidm", "delta-pidm"):
            own = cells.setdefault((row["task"], row["agent"]), {})
            own[int(row["demos"]), int(row["seed"])] = [float(row["score"])]
    curves = [Curve.from_cells(task, agent, "scripted", own) for (task, agent), own in cells.items()]
    lines = [replace(line, needed=np.nan) for line in compare_curves(curves, curves)]
    write_figure(CurveFigure(path.name, "", lines, "milestones passed"), path.parent)


def draw_recorded(out: Path) -> None:
    """Draw the scores in `out`, and those of the first experiment, of the paper's PIDM, beside it."""
    draw_scores(csv.DictReader((out / "scores.csv").read_text(encoding="utf-8").splitlines()), out / "scores")
    jobs = json.loads((out.parent / "summary.json").read_text(encoding="utf-8"))["jobs"]
    for job in jobs:
        mode = "in step" if job["mode"] == "synchronous" else job["mode"]
        job |= {"task": f"{task_title(job['level'])}, {mode}", "demos": job["size"], "score": job["milestones"]}
    draw_scores(jobs, out.parent / "world3d")


def main(
    levels: tuple[str, ...] = ("tour-3d", "four-room-3d"),
    sizes: tuple[int, ...] = (5, 15, 30),
    play_sizes: tuple[int, ...] = (),
    seeds: int = 5,
    first_seed: int = 400,
    episodes: int = 3,
    jobs: int = 2,
    draw: bool = False,
    work: Path = ROOT / "runs" / "world3d-pretrained",
    out: Path = ROOT / "docs" / "results" / "world3d" / "pretrained",
) -> None:
    """Run what is missing, and write the tables.

    Args:
        levels: names of the 3D tasks.
        sizes: numbers of demonstrations.
        play_sizes: those for delta-PIDM with play; by default the middle one.
        seeds: number of training seeds.
        first_seed: first training seed; those below 20 are for trying things out.
        episodes: number of rollouts per agent, in step with the engine.
        jobs: number of processes.
        draw: only draw the figures, from recorded scores.
        work: folder for demonstrations, their vectors, agents and scores.
        out: folder for the tables and the figure.
    """
    if draw:
        draw_recorded(out)
        return
    os.environ[CACHE_VARIABLE] = str(work / "embeddings")  # also for the processes that are started
    encoder, files = Frozen(EfficientNetEncoder()), []
    for level in levels:
        path = work / f"{level}-{max(sizes)}-from-{FIRST_DEMO}.npz"
        dataset = demonstrate(level, max(sizes), FIRST_DEMO, path)
        encoder.embed(episode.observations for episode in dataset)
        files.append(str(path))
        say(f"{level}: {len(dataset)} demonstrations, {sum(episode.success for episode in dataset)} of them successful")
    sweep = make_sweep(files, work / "agents", sizes, seeds, first_seed, episodes)
    runner, folder = partial(run_local, workers=jobs), work / "scores"
    middle = sizes[len(sizes) // 2]
    controls = (("delta-pidm-play",), play_sizes or (middle,)), (("delta-pidm-blind",), (middle,))
    for agents, chosen in ((("bc", "delta-pidm"), sizes), *controls):
        run_sweep(
            replace(sweep, agents=agents, num_demos=chosen), folder, runner, on_result=lambda result: say(str(result))
        )
    results = read_results(folder)[0]
    rows = [{**asdict(cell), "score": each.score, "seconds": each.seconds} for cell, each in sorted(results.items())]
    write_rows(out / "scores.csv", rows)
    write_rows(out / "test.csv", paired_gains({cell: each.score for cell, each in sorted(results.items())}))
    draw_scores(rows, out / "scores")
    held_out = {level: demonstrate(level, HELD_OUT[1], HELD_OUT[0], work / f"{level}-held-out.npz") for level in levels}
    uses = []
    for cell in sorted(cell for cell in results if cell.agent not in ("bc", "delta-pidm-blind")):
        bc, pidm = (load_agent(work / "agents" / replace(cell, agent=name).name) for name in ("bc", cell.agent))
        assert isinstance(pidm, PIDM)
        uses.append({**asdict(cell), **future_use(bc, pidm, held_out[cell.task])})
    write_rows(out / "future_use.csv", uses)
    say(f"report written: open {write_report([folder], work / 'report')}")


if __name__ == "__main__":
    tyro.cli(main)
