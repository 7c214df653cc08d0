"""The quickstart: BC and PIDM on a few demonstrations of one task, compared on the same episodes in minutes.

quickstart/
  index.html            everything below on one page
  bc-and-pidm.gif       the typical episode (see `typical_pair`), both agents side by side
  curve.png             goal ratio against the number of demonstrations
  traces.png            the demonstrations on the map
  scores.md, scores.csv the table to read, and a line for every training
  demos/*.npz           the demonstrations
  agents/bc, agents/pidm   the two agents of the GIF
  quickstart.json       settings and every score
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav import __version__
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.humanlike import HumanLike
from pidm_nav.demos.formats.npz import save_demos
from pidm_nav.experiments.curves import Curve
from pidm_nav.experiments.engines import Outcome, run_local
from pidm_nav.experiments.results import Cell
from pidm_nav.experiments.sweep import EVALUATION_SEED, sample_demos
from pidm_nav.rollout import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pidm_nav.agents.train import TrainConfig

MARK = "quickstart.json"
AGENTS = ("bc", "pidm")
KINDS = ("human-like", "astar")

Report = Callable[[str, int], None]
"""Called with what has advanced and by how much."""


@dataclass(frozen=True)
class Plan:
    """What the quickstart runs. Task, sizes and seeds were fixed before the first result was seen."""

    task: str = "maze"  # where the paper's gain is largest (its Table 1)
    sizes: tuple[int, ...] = (1, 2, 5)  # human-like demonstrations to train on
    astar_sizes: tuple[int, ...] = (5,)
    seeds: tuple[int, ...] = (0, 1, 2)  # of the demonstrations drawn, the weights and the batches
    steps: int = 750  # gradient steps of every training: what three minutes on two cores allow
    batch_size: int = 128
    episodes: int = 50  # of each evaluation, the same for all
    demos: int = 50  # made of either kind, to draw from

    @property
    def shown(self) -> int:
        """Demonstrations behind the agents in the GIF."""
        return self.sizes[-1]


FAST = Plan(task="four-room", sizes=(1, 2), astar_sizes=(2,), seeds=(0, 1), steps=2, episodes=4, demos=4)
"""Too short to learn anything: for a look at what comes out."""


@dataclass(frozen=True)
class Job:
    """One training: what it is about, and all that a worker needs to run it."""

    kind: str  # of the demonstrations
    cell: Cell
    dataset: DemoDataset = field(repr=False)
    config: TrainConfig = field(repr=False)
    episodes: int = 50
    keep: Path | None = None  # where to save the agent, if its episodes are candidates for the GIF

    def __str__(self) -> str:
        kind = "A*" if self.kind == "astar" else self.kind
        return f"{self.cell.agent.upper()}, {self.cell.demos} {kind}, seed {self.cell.seed}"


@dataclass(frozen=True, eq=False)
class Result:
    """What came out."""

    plan: Plan
    demos: dict[str, DemoDataset]
    records: list[dict[str, Any]]  # one a training, JSON-plain
    curves: dict[tuple[str, str], Curve]  # by kind of demonstrations and agent
    episode: dict[str, Any]  # seed of training, number and seed of the episode, goals of both
    states: dict[str, NDArray[np.float32]]  # (T+1, D) of that episode, by agent
    seconds: float


def run(plan: Plan, agents: Path, report: Report | None = None, workers: int | None = None) -> Result:
    """Make demonstrations, train and evaluate; the GIF's two agents are saved in the folder `agents`."""
    began = time.perf_counter()
    tell = report or (lambda _, __: None)
    demos = make_demos(plan, tell)
    with tempfile.TemporaryDirectory(dir=agents.parent, prefix=".agents-") as kept:
        outcomes: list[tuple[Job, Outcome]] = []
        for job, outcome in run_local(run_job, make_jobs(plan, demos, Path(kept)), workers):
            if "error" in outcome:
                raise ValueError(f"training {job} failed: {outcome['error']}")
            outcomes.append((job, outcome))
            tell(f"{job}: {np.mean(outcome['goals']) / outcome['num_goals']:.2f}", 1)
        shown = {(job.cell.agent, job.cell.seed): (job, outcome) for job, outcome in outcomes if job.keep}
        goals = {
            agent: np.array([shown[agent, seed][1]["goals"] for seed in plan.seeds]) for agent in AGENTS
        }  # (seeds, episodes)
        index, number = typical_pair(goals["bc"], goals["pidm"])
        states = {}
        for agent in AGENTS:
            job, outcome = shown[agent, plan.seeds[index]]
            states[agent] = outcome["states"][number]
            shutil.move(str(job.keep), agents / agent)
    episode = {"training_seed": plan.seeds[index], "episode": number, "episode_seed": EVALUATION_SEED + number}
    episode |= {f"{agent}_goals": int(goals[agent][index, number]) for agent in AGENTS}
    records = [_record(job, outcome) for job, outcome in sorted(outcomes, key=lambda pair: _order(pair[0]))]
    seconds = time.perf_counter() - began
    return Result(plan, demos, records, _curves(plan, records), episode, states, seconds)


def make_demos(plan: Plan, tell: Report) -> dict[str, DemoDataset]:
    """Demonstrations of both kinds."""
    experts: dict[str, Policy] = {"human-like": HumanLike(plan.task), "astar": AStarExpert(plan.task)}
    return {
        kind: collect(expert, plan.task, plan.demos, made_by=kind, progress=lambda ended: tell("demonstrations", ended))
        for kind, expert in experts.items()
    }


def make_jobs(plan: Plan, demos: dict[str, DemoDataset], kept: Path) -> list[Job]:
    """Every training; both agents of a seed get the same demonstrations."""
    from pidm_nav.agents.train import preset

    jobs = []
    for seed in plan.seeds:
        for kind, sizes in zip(KINDS, (plan.sizes, plan.astar_sizes), strict=True):
            for size in sizes:
                for agent in AGENTS:
                    cell = Cell(seed, plan.task, size, agent)
                    config = replace(
                        preset("fast", agent, plan.task), steps=plan.steps, batch_size=plan.batch_size, seed=seed
                    )
                    keep = kept / f"{agent}-{seed}" if (kind, size) == ("human-like", plan.shown) else None
                    jobs.append(Job(kind, cell, sample_demos(demos[kind], cell), config, plan.episodes, keep))
    return jobs


def run_job(job: Job) -> Outcome:
    """Train one agent and roll it out on the episodes that all agents get."""
    from pidm_nav.agents.train import train
    from pidm_nav.rollout import evaluate

    began = time.perf_counter()
    policy = train(job.cell.agent, job.dataset, job.config)
    result = evaluate(policy, job.cell.task, job.episodes, EVALUATION_SEED)
    if job.keep is not None:
        policy.save(job.keep)
    return {
        "goals": [int(rollout.goals_reached[-1]) for rollout in result.rollouts],
        "num_goals": result.layout.num_goals,
        "success": result.success_rate,
        "length": float(result.length.mean()),
        "states": [rollout.states for rollout in result.rollouts] if job.keep is not None else [],
        "seconds": round(time.perf_counter() - began, 1),
    }


def typical_pair(bc: NDArray[Any], pidm: NDArray[Any]) -> tuple[int, int]:
    """The seed's index and the episode to show: the middle one by PIDM's lead in goals, not a chosen one.

    Args:
        bc: (seeds, episodes) goals reached.
        pidm: likewise, in the same episodes; they break ties of the lead.
    """
    order = np.lexsort((pidm.ravel(), (pidm - bc).ravel()))
    index, number = divmod(int(order[len(order) // 2]), bc.shape[1])
    return index, number


def _order(job: Job) -> tuple[int, str, int, int]:
    return KINDS.index(job.kind), job.cell.agent, job.cell.demos, job.cell.seed


def _record(job: Job, outcome: Outcome) -> dict[str, Any]:
    return {
        "demos_from": job.kind,
        "agent": job.cell.agent,
        "demos": job.cell.demos,
        "seed": job.cell.seed,
        "goal_ratio": round(float(np.mean(outcome["goals"])) / outcome["num_goals"], 4),
        "success": outcome["success"],
        "length": outcome["length"],
        "seconds": outcome["seconds"],
    }


def _curves(plan: Plan, records: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Curve]:
    curves = {}
    for kind in KINDS:
        for agent in AGENTS:
            own = [record for record in records if (record["demos_from"], record["agent"]) == (kind, agent)]
            cells = {(record["demos"], record["seed"]): [record["goal_ratio"]] for record in own}
            if cells:
                curves[kind, agent] = Curve.from_cells(plan.task, agent, kind, cells)
    return curves


def check_folder(out: Path, force: bool) -> None:
    """Refuse, before any work is done, a folder that holds something else or cannot be written to."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"'{out}' is a file: choose another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file() and not force:
        raise FileExistsError(f"'{out}' holds other things: choose another --out, or --force to write among them")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise OSError(f"cannot write to '{out}' ({error.strerror}): choose another --out") from None


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """A hidden folder in `out` whose content moves there at the end, if all went well; other files there stay."""
    with tempfile.TemporaryDirectory(dir=out, prefix=".new-") as name:
        folder = Path(name)
        (folder / "agents").mkdir()
        yield folder
        for new in sorted(folder.iterdir(), key=lambda path: path.name == MARK):  # the mark last: then it is whole
            old = out / new.name
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            os.replace(new, old)


def save(result: Result, folder: Path) -> None:
    """Write the demonstrations, the scores and the settings."""
    for kind, dataset in result.demos.items():
        save_demos(dataset, folder / "demos" / f"{kind}.npz")
    content = {
        "made_by": "pidm-nav quickstart",
        "version": __version__,
        "plan": asdict(result.plan),
        "gif": result.episode,
        "seconds": round(result.seconds, 1),
        "trainings": result.records,
    }
    (folder / MARK).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
