"""Compare BC and PIDM from pixels in the 3D world: sweeps and their report, and what PIDM does with the future.

    python scripts/run_world3d.py                     everything that is not there yet
    python scripts/run_world3d.py --levels tour-3d --seeds 3 --realtime 0

For each level, number of demonstrations and seed a CNN is trained with BC on demonstrations of the scripted walker and
frozen (bc-cnn); then BC and PIDM learn from its vectors, as both do from one pretrained encoder in the paper. A control
is PIDM shown the current state in place of the future (pidm-blind). All are rolled out in step with the engine, BC and
PIDM also in real time, where tics pass while the agent thinks. A stopped run goes on where it was.

The report's tables are named otherwise than those in docs/results/world3d, which were written before sweeps did this.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pidm_nav.agents import PIDM, load_agent
from pidm_nav.console import say
from pidm_nav.demos import DemoDataset, collect, save_demos
from pidm_nav.demos.experts import make_expert
from pidm_nav.evaluation import EvalResult, evaluate
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.report import write_report
from pidm_nav.experiments.results import Cell, JobResult
from pidm_nav.experiments.sweep import EVALUATION_SEED, Sweep, run_sweep
from pidm_nav.experiments.variants import Variant
from pidm_nav.files import write_rows
from pidm_nav.plots import agent_title
from pidm_nav.tasks import find_task
from pidm_nav.video import side_by_side, write_video
from pidm_nav.world3d.env import FRAME_SKIP

ROOT = Path(__file__).parents[1]
FIRST_DEMO = 10_000  # seed of the first demonstration; the presets were chosen on others
HELD_OUT = (20_000, 5)  # seed of the first demonstration that nobody trains on, and their number
FILM_STEPS = 450


def make_blind(agent: PIDM) -> None:
    """Let the agent's predictor say that everything stays as it is."""
    agent.predictor.predict = lambda states, memory=None: states  # type: ignore[method-assign]


def measure_late(result: EvalResult) -> dict[str, float]:
    """The share of steps that took more of the engine's tics than they should."""
    return {"late": float(np.mean(np.concatenate([episode.infos["tics"] for episode in result.episodes]) > FRAME_SKIP))}


def future_use(cell: Cell, agents: Path, held_out: DemoDataset) -> dict[str, Any]:
    """Mean squared errors of actions on demonstrations not trained on, and what another future changes in PIDM's."""
    bc, pidm = (load_agent(agents / replace(cell, agent=name).name) for name in ("bc", "pidm"))
    assert isinstance(pidm, PIDM)
    rng = np.random.default_rng(0)
    seen = (held_out, bc.observations.embedded(held_out), pidm.observations.embedded(held_out))
    parts = []
    for episode, cloned_from, states in zip(*seen, strict=True):
        now, actions = states.observations[:-1], episode.actions
        followed = np.stack([np.arange(len(now)), np.full(len(now), rng.integers(cell.demos))], axis=1)
        own = pidm.inverse_dynamics(now, states.observations[1:])
        other = pidm.inverse_dynamics(now, pidm.predictor.predict(now, followed))
        cloned, _ = bc.act(cloned_from.observations[:-1], None, np.zeros(len(now), dtype=bool))
        parts.append([cloned - actions, own - actions, other - actions, own - other])
    errors = [float(np.square(np.concatenate(part)).mean()) for part in zip(*parts, strict=True)]
    names = ("bc_error", "pidm_error_own_future", "pidm_error_other_future", "pidm_change")
    spread = float(np.concatenate([episode.actions for episode in held_out]).var(axis=0).mean())
    row = {"level": cell.task, "demos": cell.demos, "seed": cell.seed, **dict(zip(names, errors, strict=True))}
    return {**row, "action_variance": spread}


def film(level: str, size: int, agents: Path, out: Path) -> None:
    """The start of both agents' first episodes side by side, as long as a demonstration and a bit."""
    films, titles = [], []
    for name in ("bc", "pidm"):
        result = evaluate(load_agent(agents / Cell(0, level, size, name).name), level, 1, EVALUATION_SEED, film=0)
        films.append(result.frames(0))
        titles.append(f"{agent_title(name)}: {result.episodes[0].goals_reached} milestones")
    steps = range(min(max(map(len, films)), FILM_STEPS))
    pairs = (side_by_side([frames[min(step, len(frames) - 1)] for frames in films], titles) for step in steps)
    write_video(pairs, out / f"{level}-bc-and-pidm.mp4", fps=find_task(level).fps, loss=30)


def tell(result: JobResult) -> None:
    say(f"{result.cell}: {result.error or f'{result.score:.3f}'}")


def main(
    levels: tuple[str, ...] = ("tour-3d", "four-room-3d"),
    sizes: tuple[int, ...] = (5, 15, 30),
    seeds: int = 3,
    steps: int | None = None,
    episodes: int = 10,
    realtime: int = 3,
    at_once: int = 4,
    work: Path = ROOT / "runs" / "world3d",
    out: Path = ROOT / "docs" / "results" / "world3d",
) -> None:
    """Run what is missing.

    Args:
        levels: names of the 3D tasks.
        sizes: numbers of demonstrations.
        seeds: number of training seeds.
        steps: number of gradient steps, to try the script; by default the presets'.
        episodes: number of episodes per agent in step with the engine.
        realtime: number of episodes per agent in real time, some 40 s each.
        at_once: number of agents rolled out in real time at once; one keeps a core busy for a tenth of the time.
        work: folder for demonstrations, agents and scores.
        out: folder for the report.
    """
    agents, files = work / "agents", [str(work / f"{level}-from-{FIRST_DEMO}.npz") for level in levels]
    for level, path in zip(levels, files, strict=True):
        if not Path(path).exists():
            save_demos(collect(make_expert("scripted", level), level, max(sizes), FIRST_DEMO), path)
    frozen = {"frames": f"agent:{agents}/{{task}}_bc-cnn_{{demos}}_{{seed}}"}
    sweep = Sweep(
        agents=("bc-cnn",),
        num_demos=sizes,
        seeds=seeds,
        demos=tuple(files),
        label="scripted",
        steps=steps,
        episodes=episodes,
        checkpoint_fractions=(),
        keep_agents=agents,
        variants={
            "bc-cnn": Variant("bc", {"frames": "cnn"}),
            "bc": Variant("bc", frozen),
            "pidm": Variant("pidm", frozen),
            "pidm-blind": Variant("pidm", frozen, adapt=make_blind, trained_as="pidm"),
        },
        measure=measure_late,
    )
    for names in (("bc-cnn",), ("bc", "pidm"), ("pidm-blind",)):  # each needs the agents before it
        run_sweep(replace(sweep, agents=names), work / "scripted", run_local, on_result=tell)
    folders = [work / "scripted"]
    if realtime:
        settings = {"label": "scripted-real-time", "episodes": realtime, "env_kwargs": {"realtime": True}}
        folders.append(work / "scripted-real-time")
        runner = partial(run_local, workers=at_once)
        run_sweep(replace(sweep, agents=("bc", "pidm"), **settings), folders[-1], runner, on_result=tell)
    say(f"report written: open {write_report(folders, out)}")
    held_out = {level: collect(make_expert("scripted", level), level, HELD_OUT[1], HELD_OUT[0]) for level in levels}
    cells = sorted(replace(sweep, agents=("bc",)).cells(), key=lambda cell: (cell.task, cell.demos, cell.seed))
    write_rows(out / "future_use.csv", [future_use(cell, agents, held_out[cell.task]) for cell in cells])
    film(levels[0], sizes[len(sizes) // 2], agents, out)


if __name__ == "__main__":
    tyro.cli(main)
