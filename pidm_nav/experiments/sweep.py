"""Sweeps: a job per task, agent, number of demonstrations and seed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import msgspec

from pidm_nav.console import counted
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.experiments import results
from pidm_nav.experiments.engines import Runner
from pidm_nav.experiments.jobs import Job, code_hash, run_job, sample_demos
from pidm_nav.experiments.recipes import RECIPES, Recipe, source_files
from pidm_nav.experiments.results import Cell, JobResult, Manifest
from pidm_nav.experiments.sources import find_demos
from pidm_nav.rollouts.evaluation import EvalResult
from pidm_nav.seeds import TEST
from pidm_nav.tasks import Metric, find_task
from pidm_nav.version import __version__

if TYPE_CHECKING:
    from pidm_nav.agents.config import Preset

LIMITS: dict[str, tuple[float, float]] = {
    "num_demos": (1, 1_000_000),
    "seeds": (1, 10_000),
    "first_seed": (0, 2**31),
    "steps": (1, 1_000_000_000),
    "episodes": (1, 10_000),
    "checkpoint_fractions": (1e-9, 1),
}


@dataclass(frozen=True)
class SweepOptions:
    """Options of a sweep that the command line has too."""

    tasks: tuple[str, ...] = ()
    """Tasks, or all for the paper's four. Default: the tasks of the given files, or all."""
    agents: tuple[str, ...] = ("bc", "pidm", "retrieval-bc")
    """Agents and recipes to compare. The recipes are bc-dagger (DAgger with the task's expert), bc-play (random play as
    more demonstrations), delta-pidm-play (random play for the inverse dynamics model) and delta-pidm-states
    (demonstrations without actions, with random play)."""
    num_demos: tuple[int, ...] = (1, 2, 5, 10, 20, 30, 40, 50)
    """Numbers of demonstrations to train on."""
    seeds: int = 20
    """Number of training seeds; a seed draws demonstrations, weights and batches."""
    first_seed: int = 0
    """First training seed; use held-out seeds for comparisons."""
    demos: tuple[str, ...] = ()
    """Files of demonstrations, one per task. Default: demonstrations of the package."""
    demos_from: str | None = None
    """Source of demonstrations: astar or human-like (of the package), or a folder with one file, or one folder of the
    paper's release, per task. Default: human-like."""
    label: str | None = None
    """Name of the demonstrations in figures and tables. Default: inferred from their files."""
    preset: Literal["fast", "paper-fast", "paper"] = "fast"
    """Preset: fast (seconds per job), paper-fast (the paper's networks) or paper."""
    steps: int | None = None
    """Number of gradient steps. Default: the preset's."""
    episodes: int = 50
    """Number of episodes per evaluation."""
    checkpoint_fractions: tuple[float, ...] = (0.05, 0.1, 0.5)
    """Fractions of training after which to evaluate, besides the end; "" for the end only."""
    keep_agents: Path | None = None
    """Folder to keep trained agents in, which later jobs reuse. Default: none."""
    metric: Metric | None = None
    """Metric. Default: the task's, as in evaluate."""
    clip_noise: bool = False
    """Clip action plus noise in evaluations, as the paper's experiments do, even if the demonstrations were recorded
    without clipping, as the paper's were."""
    device: str = "cpu"
    """Device: cpu, cuda, mps, or auto (a GPU if there is one); cuda:0,cuda:1 alternates. Results differ by rounding
    only, so machines with and without a GPU can share a folder."""


@dataclass(frozen=True)
class Sweep(SweepOptions):
    """Configuration of a sweep, from which its jobs and their results follow.

    In Python, `agents` may also be a mapping from names to agents (names or classes), recipes, or functions that make a
    policy from demonstrations and a seed.
    """

    recipes: Mapping[str, Any] = field(default_factory=dict)
    """Recipes, agents or functions by name, for `agents`."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment in evaluations that differ from those of the demonstrations."""
    extra_metrics: Callable[[EvalResult], dict[str, float]] | None = None
    """Function that returns further metrics of an evaluation."""
    on_log: Callable[[Cell, dict[str, float]], None] | None = None
    """Function called in the worker with a job's cell and each log entry or score, for example for W&B; its `close`, if
    any, is called after each job."""

    def __post_init__(self) -> None:
        if isinstance(self.agents, Mapping):
            object.__setattr__(self, "recipes", {**self.recipes, **self.agents})
            object.__setattr__(self, "agents", tuple(self.agents))
        from pidm_nav.agents.registry import AGENTS

        for agent in self.agents:
            if isinstance(kind := self.recipe(agent).agent, str) and kind and kind not in AGENTS:
                known = (*AGENTS, *RECIPES, *self.recipes)
                raise ValueError(f"there is no agent '{agent}': choose among {', '.join(known)}")
        for name, values in {"agents": self.agents, "num_demos": self.num_demos}.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} is '{','.join(map(str, values))}': give at least one value, each once")
        for name, (least, most) in LIMITS.items():
            given = getattr(self, name)
            for number in given if isinstance(given, tuple) else (given,):
                if number is not None and not least <= number <= most:
                    raise ValueError(f"{name} is {number}: choose from {least:,} to {most:,}")
        for name in (*self.agents, *([] if self.label is None else [self.label])):
            if not re.search(results.PLAIN_NAME, name):
                raise ValueError(f"'{name}' cannot be used in file names: use letters, digits, '-', '_' and '.'")

    @functools.cached_property
    def _found(self) -> tuple[dict[str, DemoDataset], str]:
        datasets, label = find_demos(self.tasks, self.demos, self.demos_from)
        for task, dataset in datasets.items():
            find_task(task)  # raises ValueError for an unknown task
            if (most := max(self.num_demos)) > len(dataset):
                given = f"num_demos is {most}, and there are {len(dataset)} demonstrations of {task}"
                raise ValueError(f"{given}: give more, or choose at most {len(dataset)}")
        return datasets, self.label or label

    @property
    def datasets(self) -> dict[str, DemoDataset]:
        """Demonstrations of each task."""
        return self._found[0]

    @property
    def demos_label(self) -> str:
        """Name of the demonstrations in figures and tables, such as human or astar."""
        return self._found[1]

    def recipe(self, agent: str) -> Recipe:
        """Return the recipe of an agent's name."""
        return Recipe.of({**RECIPES, **self.recipes}.get(agent, agent))

    def cells(self) -> list[Cell]:
        """Return all cells, seed by seed, so that a sweep that is stopped early has complete curves."""
        return [
            Cell(seed, task, size, agent)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for size in sorted(self.num_demos)
            for task in self.datasets
            for agent in self.agents
        ]

    def settings(self, task: str, agent: str) -> Preset | None:
        """Return the settings of an agent and its training on a task; None for functions."""
        from pidm_nav.agents.train import choose_preset

        recipe, default = self.recipe(agent), None if self.preset == "fast" else self.preset
        kind = recipe.find()
        if kind is None:
            return None
        preset = choose_preset(kind, self.datasets[task], recipe.preset or default, **recipe.options)
        steps = self.steps or preset.training.steps
        checkpoints = {max(1, round(fraction * steps)) for fraction in self.checkpoint_fractions} - {steps}
        return preset.changed(steps=steps, checkpoints=tuple(sorted(checkpoints)))

    def evaluation_arguments(self, dataset: DemoDataset) -> dict[str, Any]:
        """Return the arguments of the environment in evaluations."""
        clipped = {"clip_noise": True} if self.clip_noise else {}
        return {**dataset.env_kwargs, **clipped, **self.env_kwargs}

    def manifest(self) -> Manifest:
        """Return the manifest: everything that determines the results."""
        kinds = {name: self.recipe(name).find() for name in self.agents}
        agents = {name: {} if kind is None else asdict(kind.config_class()) for name, kind in kinds.items()}
        training = {}
        for task, name in itertools.product(self.datasets, self.agents):
            settings, recipe = self.settings(task, name), self.recipe(name)
            own: dict[str, Any] = {"steps": 1} if settings is None else asdict(settings.training)
            functions = {"make": recipe.make, "adapt": recipe.adapt}
            own |= recipe.describe() | {name: each.__qualname__ for name, each in functions.items() if each is not None}
            training[f"{task}/{name}"] = own
            if settings is not None and asdict(settings.options) != agents[name]:
                own["options"] = asdict(settings.options)
        demos = {}
        for task, dataset in self.datasets.items():
            made_by = str(dataset.source.get("made_by", "unknown"))
            demos[task] = {**asdict(dataset.summary()), "made_by": made_by, "sha256": dataset.sha256}
            demos[task] |= {"metric": find_task(task, self.metric).metric}
            demos[task] |= {"env_kwargs": self.evaluation_arguments(dataset)}
        content = {
            "format": 1,
            "version": __version__,
            "torch": version("torch"),
            "demos_from": self.demos_label,
            "preset": self.preset,
            "evaluation": results.Evaluation(self.episodes, TEST.start, dict(self.env_kwargs)),
            "agents": agents,
            "training": training,
            "demos": demos,
        }
        return msgspec.json.decode(msgspec.json.encode(content), type=Manifest)

    def code(self, agent: str) -> str:
        """Return the hash of the source code on which the results of an agent depend."""
        recipe = self.recipe(agent)
        return code_hash((*recipe.sources(), *source_files(recipe.adapt)))

    def job(self, cell: Cell, device: str = "cpu") -> Job:
        """Return a cell's job."""
        from pidm_nav.agents.registry import foreign_parts

        recipe, names, settings = self.recipe(cell.agent), asdict(cell), self.settings(cell.task, cell.agent)
        texts = {name: text.format(**names) for name, text in recipe.options.items() if isinstance(text, str)}
        kept = replace(cell, agent=recipe.trained_as or cell.agent).name
        return Job(
            cell,
            sample_demos(self.datasets[cell.task], cell),
            None if settings is None else settings.changed(seed=cell.seed, **texts),
            replace(self),  # without the cached datasets
            None if self.keep_agents is None else Path(self.keep_agents) / kept,
            gym.spec(find_task(cell.task).env_id),
            code_hash(recipe.sources()),
            foreign_parts(),
            device,
        )


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    runner: Runner[Job],
    *,
    retry_failed: bool = False,
    shard: tuple[int, int] = (0, 1),
    on_start: Callable[[int, Mapping[Cell, JobResult]], None] | None = None,
    on_result: Callable[[JobResult], None] | None = None,
) -> dict[Cell, JobResult]:
    """Run the missing jobs of a sweep, and return the results of all finished jobs.

    Args:
        sweep: the sweep.
        folder: folder of results; only failures in it are ever replaced.
        runner: `run_local` or `run_ray`, with their options bound.
        retry_failed: rerun failed jobs.
        shard: (i, n) for every n-th job from the i-th, so that n machines can share a folder.
        on_start: called with the number of jobs to run and the results of earlier ones.
        on_result: called with the result of every job, which has scores or an error.
    """
    folder = Path(folder)
    manifest = results.open_folder(folder, sweep.manifest())
    before, failed = results.read_results(folder)
    own = sweep.cells()[shard[0] :: shard[1]]
    done = {cell: before[cell] for cell in own if cell in before}
    cells = [cell for cell in own if cell not in done and (retry_failed or cell not in failed)]
    codes = {agent: sweep.code(agent) for agent in sweep.agents}
    if changed := sum(result.code != codes[cell.agent] for cell, result in done.items()):
        kept = f"{counted(changed, 'result')} in {folder} {'was' if changed == 1 else 'were'} made by other code"
        warnings.warn(f"{kept} and kept: delete them in {folder / results.JOBS} to make them again", stacklevel=2)
    if on_start:
        on_start(len(cells), done)
    if not cells:
        return done
    # closing the engine ends its workers, also if a result cannot be written
    devices = sweep.device.split(",")
    jobs = [sweep.job(cell, devices[index % len(devices)]) for index, cell in enumerate(cells)]
    with contextlib.closing(runner(run_job, jobs)) as outcomes:
        for job, outcome in outcomes:
            origin = {"identity": results.identity(manifest, job.cell), "version": __version__}
            origin["code"] = codes[job.cell.agent]
            content = {**asdict(job.cell), **origin, **outcome}
            result = msgspec.convert(content, JobResult)
            results.write_result(folder, result)
            if result.error is None:
                done[job.cell] = result
            if on_result:
                on_result(result)
    return done
