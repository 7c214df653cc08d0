"""A job of a sweep: train one agent, and score it at its checkpoints."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium.envs.registration import EnvSpec

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.experiments.engines import Outcome
from pidm_nav.experiments.recipes import Score
from pidm_nav.experiments.results import Cell, Checkpoint
from pidm_nav.files import write_text
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.seeds import TEST
from pidm_nav.tasks import find_task

if TYPE_CHECKING:
    from pidm_nav.agents.config import Preset
    from pidm_nav.experiments.sweep import Sweep

TRAINED_WITH = "trained_with.txt"  # in a kept agent's folder: hash of its training configuration


@dataclass(frozen=True)
class Job:
    """A cell with everything that a worker needs."""

    cell: Cell
    dataset: DemoDataset = field(repr=False)  # the sampled demonstrations
    settings: Preset | None = field(repr=False)
    sweep: Sweep = field(repr=False)
    keep: Path | None = None  # folder of the trained agent
    env_spec: EnvSpec | None = field(default=None, repr=False)  # for workers where the id is not registered
    code: str = ""  # hash of the source code
    parts: tuple[type[Any], ...] = field(default=(), repr=False)  # classes to register in the worker
    device: str = "cpu"


@functools.cache
def code_hash(extra_sources: tuple[str, ...] = ()) -> str:
    """Return a short hash of the package's source code and of other files."""
    sources = sorted(glob.glob(f"{Path(__file__).parents[1]}/**/*.py", recursive=True))  # follows links
    return hashlib.sha256(b"".join(Path(source).read_bytes() for source in (*sources, *extra_sources))).hexdigest()[:12]


def sample_demos(dataset: DemoDataset, cell: Cell) -> DemoDataset:
    """Draw the cell's demonstrations, which depend on seed, task and number, but not on the agent."""
    rng = np.random.default_rng([cell.seed, crc32(cell.task.encode()), cell.demos])
    return dataset.sample(cell.demos, rng)


def run_job(job: Job) -> Outcome:
    """Train one agent, evaluate its checkpoints on the common test episodes, and return the scores."""
    from pidm_nav.agents.registry import register

    if job.env_spec is not None:
        gym.registry.setdefault(job.env_spec.id, job.env_spec)
    for part in job.parts:
        register(part)
    began = time.perf_counter()
    sweep = job.sweep
    task, arguments = find_task(job.cell.task, sweep.metric), sweep.evaluation_arguments(job.dataset)
    adapt = sweep.recipe(job.cell.agent).adapt
    checkpoints: list[Checkpoint] = []

    def score(step: int, policy: Policy) -> None:
        if adapt is not None:
            policy = adapt(policy) or policy
        keep = sweep.extra_metrics is not None
        result = evaluate(policy, task, sweep.episodes, TEST.start, keep_episodes=keep, **arguments)
        scores: dict[str, Any] = {"step": step, "length": float(result.length.mean())}
        if result.metric == "return":
            scores["mean_return"] = float(result.returns.mean())
        else:
            scores["success"] = result.success_rate
        if result.metric == "goal ratio":
            goals = [ending.goals_reached for ending in result.endings]
            scores |= {"goal_ratio": result.mean_goal_ratio, "goals": goals}
        if sweep.extra_metrics is not None:
            scores["extra"] = sweep.extra_metrics(result)
        checkpoints.append(Checkpoint(**scores))
        if sweep.on_log is not None:
            name = result.metric.replace(" ", "_")
            sweep.on_log(job.cell, {"step": step, name: float(result.scores.mean())})

    try:
        _train(job, score)
    finally:
        getattr(sweep.on_log, "close", lambda: None)()
    scores = msgspec.to_builtins(checkpoints)
    msgspec.convert(scores, list[Checkpoint])  # non-finite scores fail here, not when the results are read
    return {"checkpoints": scores, "seconds": round(time.perf_counter() - began, 2)}


def _train(job: Job, score: Score) -> None:
    """Train the job's agent, or load a kept one, and score it at each checkpoint and at the end."""
    from pidm_nav.agents.checkpoint import load_agent

    recipe, settings = job.sweep.recipe(job.cell.agent), job.settings
    if recipe.make is not None or settings is None:
        assert recipe.make is not None
        score(1, recipe.make(job.dataset, job.cell.seed))
        return
    made_with = [job.code, str(recipe.agent), asdict(settings), recipe.describe(), job.dataset.sha256]
    mark = hashlib.sha256(json.dumps(made_with).encode()).hexdigest()
    note = None if job.keep is None else job.keep / TRAINED_WITH
    if note is not None and not settings.training.checkpoints and note.exists() and note.read_text() == mark:
        score(settings.training.steps, load_agent(note.parent))
    elif recipe.trained_as is not None:
        raise FileNotFoundError(f"'{job.keep}' holds no agent of this configuration: first sweep {recipe.trained_as}")
    else:
        log = None if job.sweep.on_log is None else functools.partial(job.sweep.on_log, job.cell)
        policy = recipe.train(job.dataset, settings, score, device=job.device, on_log=log)
        if note is not None:
            policy.save(note.parent)
            write_text(note, mark)
