"""A sweep: every task, agent, number of demonstrations and seed is one job, trained, evaluated and written down."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from pidm_nav import __version__
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.experiments.engines import Engine, Outcome
from pidm_nav.experiments.results import (
    FORMAT,
    Cell,
    identity,
    open_folder,
    read_results,
    write_result,
)
from pidm_nav.tasks import TASKS

if TYPE_CHECKING:
    from pidm_nav.agents.train import TrainConfig

CHECKPOINTS = (0.05, 0.1, 0.5)  # fractions of the training evaluated besides its end, as in the paper
EVALUATION_SEED = 1_000_000  # far from the seeds of demonstrations: no episode is evaluated with a demo's noise

Report = Callable[[Cell, Outcome], None]


@dataclass(frozen=True)
class Sweep:
    """What to run; everything that decides a job's result, and which jobs there are."""

    datasets: Mapping[str, DemoDataset]  # by task
    agents: tuple[str, ...]
    sizes: tuple[int, ...]  # numbers of demonstrations
    seeds: int  # how many
    demos_from: str  # a word for the demonstrations in figures and tables: human, astar
    preset: str = "fast"
    steps: int | None = None  # gradient steps, if not the preset's
    episodes: int = 50  # rollouts a checkpoint
    checkpoints: tuple[float, ...] = CHECKPOINTS
    first_seed: int = 0

    def __post_init__(self) -> None:
        from pidm_nav.agents import AGENTS

        for agent in self.agents:
            if agent not in AGENTS:
                raise ValueError(f"no agent is called '{agent}': choose among {', '.join(AGENTS)}")
        for name, values in (("agents", self.agents), ("numbers of demonstrations", self.sizes)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"the {name} are {list(values)}: give at least one, each once")
        if min(self.sizes) < 1 or self.seeds < 1 or self.episodes < 1:
            raise ValueError("numbers of demonstrations, seeds and episodes must be at least 1")
        if self.first_seed < 0:
            raise ValueError(f"the first seed is {self.first_seed}: seeds are 0 or more")
        if any(not 0 < fraction <= 1 for fraction in self.checkpoints):
            raise ValueError(f"the checkpoints are {list(self.checkpoints)}: give fractions of the training")
        for task, dataset in self.datasets.items():
            if len(dataset) < max(self.sizes):
                raise ValueError(
                    f"there are {len(dataset)} demonstrations of {task}, but --num-demos asks for "
                    f"{max(self.sizes)}: give more, or ask for at most {len(dataset)}"
                )

    def cells(self) -> list[Cell]:
        """Every job, all of the first seed first: a sweep that is stopped early still has whole curves."""
        return [
            Cell(seed, task, size, agent)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for size in self.sizes
            for task in self.datasets
            for agent in self.agents
        ]

    def training(self, task: str, agent: str) -> TrainConfig:
        """The training configuration of a task and agent, but for the seed."""
        from pidm_nav.agents.train import preset

        config = preset(self.preset, agent, task)
        steps = config.steps if self.steps is None else self.steps
        checkpoints = sorted({max(1, round(fraction * steps)) for fraction in self.checkpoints} - {steps})
        return replace(config, steps=steps, checkpoints=tuple(checkpoints))

    def manifest(self) -> dict[str, Any]:
        """Everything that decides the results, JSON-plain."""
        import torch

        from pidm_nav.agents import AGENTS

        return {
            "format": FORMAT,
            "version": __version__,
            "torch": str(torch.__version__),
            "demos_from": self.demos_from,
            "preset": self.preset,
            "evaluation": {"episodes": self.episodes, "seed": EVALUATION_SEED},
            "agents": {agent: asdict(AGENTS[agent].config_class()) for agent in self.agents},
            "training": {
                f"{task}/{agent}": asdict(self.training(task, agent)) for task in self.datasets for agent in self.agents
            },
            "demos": {task: _describe(dataset) for task, dataset in self.datasets.items()},
        }


def code_hash() -> str:
    """A short hash of the code that training and evaluation depend on: a version under work has many states."""
    package = files("pidm_nav")
    names = ("tasks", "rollout", "world2d/layout", "world2d/world", "world2d/physics", "world2d/vector")
    sources = [package / f"{name}.py" for name in names]
    agents = (path for path in files("pidm_nav.agents").iterdir() if path.name.endswith(".py"))
    sources += sorted(agents, key=lambda path: path.name)
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def _describe(dataset: DemoDataset) -> dict[str, Any]:
    """A dataset's columns in the paper's tables, and a hash of its numbers."""
    digest = hashlib.sha256()
    for episode in dataset:
        digest.update(episode.observations.tobytes() + episode.actions.tobytes())
    made_by = str(dataset.source.get("made_by", "unknown"))
    return {"made_by": made_by, **asdict(dataset.summary()), "sha256": digest.hexdigest()}


@dataclass(frozen=True)
class Job:
    """A cell with all that a worker needs to run it anywhere."""

    cell: Cell
    dataset: DemoDataset = field(repr=False)  # the sampled demonstrations
    config: TrainConfig = field(repr=False)
    episodes: int = 50


def sample_demos(dataset: DemoDataset, cell: Cell) -> DemoDataset:
    """The cell's demonstrations: the same for every agent, drawn by seed, task and number only."""
    rng = np.random.default_rng([cell.seed, crc32(cell.task.encode()), cell.demos])
    return dataset.sample(cell.demos, rng)


def run_job(job: Job) -> Outcome:
    """Train one agent, evaluate its checkpoints on the episodes that all agents get, return the scores."""
    import torch

    from pidm_nav.agents.train import env_arguments, train
    from pidm_nav.rollout import evaluate

    torch.set_num_threads(1)
    began = time.perf_counter()
    arguments = env_arguments(job.dataset)
    num_goals = TASKS[job.cell.task].num_goals
    checkpoints: list[dict[str, Any]] = []

    def score(step: int, policy: Any) -> None:
        result = evaluate(policy, job.cell.task, job.episodes, EVALUATION_SEED, **arguments)
        checkpoints.append(
            {
                "step": step,
                "goal_ratio": result.mean_goal_ratio,
                "success": result.success_rate,
                "length": float(result.length.mean()),
                "goals": np.round(result.goal_ratio * num_goals).astype(int).tolist(),  # per rollout
            }
        )

    train(job.cell.agent, job.dataset, job.config, on_checkpoint=score)
    return {"checkpoints": checkpoints, "seconds": round(time.perf_counter() - began, 2)}


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    engine: Engine[Job],
    *,
    retry_failed: bool = False,
    shard: tuple[int, int] = (0, 1),
    on_start: Callable[[int, Mapping[Cell, Outcome]], None] | None = None,
    on_result: Report | None = None,
) -> dict[Cell, Outcome]:
    """Run the jobs that the folder does not hold yet; returns the scores of all that are done.

    Args:
        sweep: what to run.
        folder: where results are and go; nothing there is ever changed but for failures that succeed.
        engine: `run_local` or `run_ray`, with their settings bound.
        retry_failed: run jobs again that failed before.
        shard: (i, n) for every n-th job from the i-th: n machines share a folder without talking.
        on_start: called with the number of jobs to run and those done before.
        on_result: called with every job that ends, its scores or its error.
    """
    folder = Path(folder)
    manifest = open_folder(folder, sweep.manifest())
    before, failed = read_results(folder)
    own = sweep.cells()[shard[0] :: shard[1]]
    done = {cell: before[cell] for cell in own if cell in before}
    cells = [cell for cell in own if cell not in done and (retry_failed or cell not in failed)]
    if on_start:
        on_start(len(cells), done)
    jobs = [_make_job(sweep, cell) for cell in cells]
    origin = {"version": __version__, "code": code_hash()}
    for job, outcome in engine(run_job, jobs) if jobs else ():
        result = {"identity": identity(manifest, job.cell), **origin, **outcome}
        write_result(folder, job.cell, result)
        if "error" not in outcome:
            done[job.cell] = outcome
        if on_result:
            on_result(job.cell, outcome)
    return done


def _make_job(sweep: Sweep, cell: Cell) -> Job:
    config = replace(sweep.training(cell.task, cell.agent), seed=cell.seed)
    return Job(cell, sample_demos(sweep.datasets[cell.task], cell), config, sweep.episodes)
