"""Compare BC and PIDM from pixels in the 3D world, on one pretrained encoder: scores, the test, and the future's use.

    pip install "pidm-nav[3d,vision]"
    python scripts/run_world3d.py                     everything that is not there yet
    python scripts/run_world3d.py --levels tour-3d --sizes 5 --seeds 1 --first-seed 0 --work runs/try --out runs/try/out

The demonstrator is the varied walker, another person in each episode. BC, PIDM (which sees the change and follows a
demonstration, six steps ahead) and PIDM with play learn from the same vectors of `frames="efficientnet"`, with the same
small networks, 1,500 steps each. The seeds of demonstrations, draws and trainings were not used before, and those of
rollouts, which are the same in all sweeps, not for choosing settings here (docs/results/world3d/README.md says what was
tried).

The test, fixed before the run: for each level, number of demonstrations and seed, the mean share of milestones passed
by PIDM less that by BC, on the same demonstrations and rollout seeds; Wilcoxon's signed-rank test, two-sided, over all
of these 30 pairs (test.csv has the paired t-test over the five seeds, as pairs of a seed are not independent). PIDM is
ahead if the mean difference is positive and p < 0.05. PIDM with play is tested in the same way, as a further question.
PIDM uses the future if, averaged over its 30 agents, another future changes its actions by at least 20% of the actions'
variance. The control is the same agents shown the present in place of the future (pidm-blind). To save time, control
and play have the middle number of demonstrations only, unless `--play-sizes` says otherwise of play.

Demonstrations are embedded once, before the sweep, into a cache that all processes read. A stopped run goes on where it
was.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pidm_nav.agents import PIDM, NavPolicy, load_agent
from pidm_nav.agents.encoders import CACHE_VARIABLE, Frozen
from pidm_nav.agents.pretrained import EfficientNetEncoder
from pidm_nav.console import say
from pidm_nav.demos import DemoDataset, collect, load_demos, save_demos
from pidm_nav.demos.experts import make_expert
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.figures import CurveFigure, compare_curves, write_figure
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.report import write_report
from pidm_nav.experiments.results import make_curves, paired_gains, read_results
from pidm_nav.experiments.sweep import Sweep, run_sweep
from pidm_nav.files import write_rows

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
PIDM_OPTIONS: dict[str, Any] = {**SHARED, "idm": "change", "predictor": "follow", "horizons": (6,)}


def make_blind(agent: PIDM) -> None:
    """Let the agent's predictor say that everything stays as it is."""
    agent.predictor.predict = lambda states, memory=None: states  # type: ignore[method-assign]


def demonstrate(level: str, episodes: int, seed: int, path: Path) -> DemoDataset:
    """Return demonstrations of the varied walker, from the file that keeps them."""
    if not path.exists():
        save_demos(collect(make_expert("scripted", level, seed=seed, varied=True), level, episodes, seed), path)
    return load_demos(path)


def followed(agent: PIDM, states: np.ndarray) -> np.ndarray:
    """Return the futures (T, D) that the predictor would say along an episode of states (T, D)."""
    memory, futures = None, []
    for step in range(len(states)):
        now = states[step : step + 1]
        memory = agent.predictor.advance(memory, np.array([step == 0]), now)
        futures.append(agent.predictor.predict(now, memory)[0])
    return np.array(futures)


def future_use(bc: NavPolicy, pidm: PIDM, held_out: DemoDataset) -> dict[str, float]:
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
    """Return the sweep of BC and PIDM, whose agents are kept."""
    return Sweep(
        agents=("bc", "pidm"),
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
            "pidm": Recipe("pidm", PIDM_OPTIONS),
            "pidm-play": Recipe("pidm", PIDM_OPTIONS, play_steps=PLAY_STEPS),
            "pidm-blind": Recipe("pidm", PIDM_OPTIONS, adapt=make_blind, trained_as="pidm"),
        },
    )


def main(
    levels: tuple[str, ...] = ("tour-3d", "four-room-3d"),
    sizes: tuple[int, ...] = (5, 15, 30),
    play_sizes: tuple[int, ...] = (),
    seeds: int = 5,
    first_seed: int = 400,
    episodes: int = 3,
    jobs: int = 2,
    work: Path = ROOT / "runs" / "world3d-pretrained",
    out: Path = ROOT / "docs" / "results" / "world3d" / "pretrained",
) -> None:
    """Run what is missing, and write the tables.

    Args:
        levels: names of the 3D tasks.
        sizes: numbers of demonstrations.
        play_sizes: those for PIDM with play; by default the middle one.
        seeds: number of training seeds.
        first_seed: first training seed; those below 20 are for trying things out.
        episodes: number of rollouts per agent, in step with the engine.
        jobs: number of processes.
        work: folder for demonstrations, their vectors, agents and scores.
        out: folder for the tables and the figure.
    """
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
    parts = (("bc", "pidm"), sizes), (("pidm-play",), play_sizes or (middle,)), (("pidm-blind",), (middle,))
    for agents, chosen in parts:
        run_sweep(
            replace(sweep, agents=agents, num_demos=chosen), folder, runner, on_result=lambda result: say(str(result))
        )
    results = read_results(folder)[0]
    rows = [{**asdict(cell), "score": each.score, "seconds": each.seconds} for cell, each in sorted(results.items())]
    write_rows(out / "scores.csv", rows)
    write_rows(out / "test.csv", paired_gains({cell: each.score for cell, each in sorted(results.items())}))
    curves = [curve for curve in make_curves(results, "varied-walker") if curve.agent in ("bc", "pidm")]
    lines = [replace(line, needed=np.nan) for line in compare_curves(curves, curves)]
    write_figure(CurveFigure("scores", "", lines, "milestones passed"), out)
    held_out = {level: demonstrate(level, HELD_OUT[1], HELD_OUT[0], work / f"{level}-held-out.npz") for level in levels}
    uses = []
    for cell in sorted(cell for cell in results if cell.agent not in ("bc", "pidm-blind")):
        bc, pidm = (load_agent(work / "agents" / replace(cell, agent=name).name) for name in ("bc", cell.agent))
        assert isinstance(pidm, PIDM)
        uses.append({**asdict(cell), **future_use(bc, pidm, held_out[cell.task])})
    write_rows(out / "future_use.csv", uses)
    say(f"report written: open {write_report([folder], work / 'report')}")


if __name__ == "__main__":
    tyro.cli(main)
