"""The commands `quickstart`, `sweep` and `report`."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pidm_nav.commands.config import options_of, write_config
from pidm_nav.console import console, counted, print_table, progress_bar, say, say_command, shell_command
from pidm_nav.experiments import sweep as library
from pidm_nav.experiments.curves import all_sizes, score_name
from pidm_nav.experiments.engines import Runner, require_ray, run_local, run_ray
from pidm_nav.experiments.quickstart import FAST, MARK, QuickstartPlan, check_folder, next_steps, run
from pidm_nav.experiments.report import check_page, make_report, save_report
from pidm_nav.experiments.results import Cell, JobResult, make_curves
from pidm_nav.files import only_writer
from pidm_nav.limits import check_number
from pidm_nav.plots import task_title

Folders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER...")]


@dataclass(frozen=True)
class Quickstart:
    """Compare BC, PIDM and PIDM without its pull on a maze; takes about a minute.

    Example: pidm-nav quickstart
    """

    out: Path = Path("quickstart")
    """Folder for the report, the animation and the trained agents."""
    force: bool = False
    """Use a folder that holds other files, which are kept, or replace a quickstart with other settings."""
    fast: bool = False
    """Smoke test: run the pipeline with almost no training."""
    jobs: int | None = None
    """Number of parallel training runs. Default: one per core."""

    def run(self) -> None:
        """Run the quickstart, and print its results and next steps."""
        if self.jobs is not None:
            check_number("--jobs", self.jobs, 1, 1000)
        plan, began = FAST if self.fast else QuickstartPlan(), time.perf_counter()
        check_folder(plan, self.out, self.force)
        alone = only_writer(self.out / MARK, "choose another --out, or wait until it is done")
        with alone, progress_bar("training runs", plan.work) as advance:
            report = run(plan, self.out, advance, self.jobs)
        for table in report.sections[1].tables:
            columns = {str(index): name for index, name in enumerate(table.header)}
            rows = [dict(zip(columns, row, strict=True)) for row in table.rows]
            print_table(rows, columns, title=table.title)
        say(f"\n{report.found}\n")
        for name in ("Seeds", "Evaluation", "Animation"):
            say(f"{name}: {report.facts[name]}.", style="dim")
        say(f"\nReport: {self.out / 'index.html'}  ({time.perf_counter() - began:.0f} s)\n", style="bold")
        for title, commands in next_steps(plan, self.out).items():
            say(title, style="bold")
            for command in commands.splitlines():
                say_command(command)


@dataclass(frozen=True)
class SweepCommand(library.SweepOptions):
    """Train and evaluate all agents on all tasks, numbers of demonstrations and seeds; rerun to resume.

    Example: pidm-nav sweep --tasks all --num-demos 1,5,20 --seeds 5 --demos-from human-like --out results
    """

    out: Path = Path("results")
    """Folder for the results; finished jobs in it are skipped."""
    engine: Literal["local", "ray"] = "local"
    """Engine of jobs: local (processes on this machine) or ray (a Ray cluster)."""
    jobs: int | None = None
    """Number of parallel jobs on this machine. Default: one per core."""
    address: str = "auto"
    """Address of the Ray cluster; auto is the one on this machine, or a new local one."""
    cpus_per_job: float = 1.0
    """CPU cores that a job reserves in Ray."""
    gpus_per_job: float = 0.0
    """GPUs, or fraction of one, that a job reserves in Ray; needs --device cuda as well."""
    shard: str = "0/1"
    """Shard I/N of the jobs, so that N machines can share one folder."""
    retry_failed: bool = False
    """Rerun failed jobs."""
    wandb: str | None = None
    """Project of Weights & Biases to log each job's losses and scores to, one run per job; needs wandb. Default:
    none."""
    config: Path | None = None
    """YAML file of options, such as the run.yaml of an earlier sweep; the command line overrides it. Default: none."""

    def run(self) -> None:
        """Run the missing jobs, and show the scores as they arrive."""
        from pidm_nav.agents.agent import find_device
        from pidm_nav.agents.journal import WandbLog, import_wandb

        if self.engine == "ray":
            require_ray()
            if self.device != "cpu" and not self.gpus_per_job:
                raise ValueError(f"--device is {self.device}, and jobs reserve no GPU: add --gpus-per-job, such as 0.5")
        elif self.gpus_per_job:
            raise ValueError("--gpus-per-job needs Ray: add --engine ray, or give --device cuda:0,cuda:1")
        for device in self.device.split(",") if self.engine == "local" else ():
            find_device(device)
        names = {each.name for each in fields(library.SweepOptions)}
        log = None
        if self.wandb is not None:
            import_wandb()
            log = WandbLog(self.wandb, options_of(self))
        sweep = library.Sweep(**{name: getattr(self, name) for name in names}, on_log=log)
        if self.jobs is not None:
            check_number("--jobs", self.jobs, 1, 1000)
        check_number("--cpus-per-job", self.cpus_per_job, 0.01, 10_000, integer=False)
        index, _, count = self.shard.partition("/")
        if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
            raise ValueError(f"--shard is '{self.shard}': give I/N with I from 0 to N-1, such as 0/4")
        check_number("--gpus-per-job", self.gpus_per_job, 0, 1000, integer=False)
        ray: dict[str, Any] = {"address": self.address, "cpus_per_job": self.cpus_per_job}
        ray["gpus_per_job"] = self.gpus_per_job
        engine: Any = functools.partial(run_ray, **ray) if self.engine == "ray" else run_local
        runner: Runner[Any] = functools.partial(engine, workers=self.jobs)
        part = int(index), int(count)
        view = _View(sweep.demos_label, len(sweep.cells()[part[0] :: part[1]]))

        def start(count: int, done: Mapping[Cell, JobResult]) -> None:
            write_config(self, self.out)
            view.start(count, done)

        try:
            with progress_bar("jobs", view.total, table=lambda: view.rows) as view.advance:
                options: dict[str, Any] = {"retry_failed": self.retry_failed, "shard": part}
                library.run_sweep(sweep, self.out, runner, on_start=start, on_result=view.add, **options)
        except KeyboardInterrupt:
            say(f"{len(view.done)} of {view.total} jobs are saved in {self.out}: rerun the command to resume")
            raise
        if view.rows:
            metric = score_name(make_curves(view.done, sweep.demos_label))
            print_table(
                view.rows, title=f"Mean {metric} at the end of training by number of {sweep.demos_label} demonstrations"
            )
        say(f"{len(view.done)} of {view.total} jobs are done; next: {shell_command('report', self.out)}")
        if view.failed or view.failed_before:
            number = counted(view.failed + view.failed_before, "job")
            raise ValueError(f"{number} failed: rerun the command with --retry-failed")


class _View:
    """The scores so far: a table above the progress bar or, without a terminal, a line per job."""

    def __init__(self, demos_from: str, total: int) -> None:
        self.demos_from, self.total = demos_from, total
        self.done: dict[Cell, JobResult] = {}
        self.failed, self.before = 0, 0
        self.failed_before = 0  # in earlier runs; these jobs are neither run nor part of the total
        self.rows: list[dict[str, Any]] = []
        self.began = time.perf_counter()
        self.advance: Any = None

    def start(self, count: int, done: Mapping[Cell, JobResult]) -> None:
        """Show the jobs that were done before."""
        self.failed_before = self.total - count - len(done)
        self.done, self.before, self.total = dict(done), len(done), count + len(done)
        self.rows = self._means()
        self.advance(len(done))
        if done:
            say(f"{len(done)} jobs were done before, {count} are left")

    def add(self, result: JobResult) -> None:
        """Show a job that ended."""
        if result.error is not None:
            self.failed += 1
            say(f"failed: {result.cell}: {result.error}", style="red")
        else:
            self.done[result.cell] = result
            self.rows = self._means()  # here, because another thread draws the table
        self.advance(1)
        ended = len(self.done) + self.failed
        if not console().is_terminal:
            left = (time.perf_counter() - self.began) / (ended - self.before) * (self.total - ended)
            score = "failed" if result.error is not None else f"{result.score:.3f}"
            say(f"{ended}/{self.total} {result.cell}: {score}, {left / 60:.0f} min left")

    def _means(self) -> list[dict[str, Any]]:
        curves = [curve.last() for curve in make_curves(self.done, self.demos_from)]
        rows, sizes = [], all_sizes(curves)
        for curve in curves:
            means = {size: f"{mean:.2f}" for size, mean in zip(curve.sizes, curve.mean, strict=True)}
            cells = {str(size): means.get(size, "") for size in sizes}
            rows.append({"task": task_title(curve.task), "agent": curve.agent, **cells})
        return rows


@dataclass(frozen=True)
class ReportCommand:
    """Write figures, tables and an HTML page of sweeps, with the paper's numbers.

    Example: pidm-nav report results
    """

    results: Folders = ()
    """Folders of sweeps, such as one with human and one with A* demonstrations."""
    out: Path = Path("report")
    """Folder for index.html, figures and tables."""

    def run(self) -> None:
        """Write the report."""
        if not self.results:
            raise ValueError("no results are given: give one or more folders of pidm-nav sweep")
        check_page(self.out)
        report = make_report(self.results)
        if "Missing" in report.facts:
            say(f"missing: {report.facts['Missing']}; if the sweep was interrupted, rerun it")
        say(f"report: {save_report(report, self.out)}")
