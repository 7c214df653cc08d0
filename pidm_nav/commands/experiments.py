"""Commands that reproduce the paper: sweep, report."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from pidm_nav.tasks import TASKS

if TYPE_CHECKING:
    from pidm_nav.experiments.engines import Engine, Outcome
    from pidm_nav.experiments.results import Cell

Folders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER...")]


def sweep(
    out: Path = Path("results"),
    tasks: str = "all",
    agents: str = "bc,pidm,retrieval-bc",
    num_demos: str = "1,2,5,10,20,30,40,50",
    seeds: int = 20,
    first_seed: int = 0,
    demos: tuple[str, ...] = (),
    demos_from: str | None = None,
    label: str | None = None,
    preset: Literal["fast", "paper"] = "fast",
    steps: int | None = None,
    episodes: int = 50,
    checkpoints: str = "0.05,0.1,0.5",
    engine: Literal["local", "ray"] = "local",
    jobs: int | None = None,
    address: str = "auto",
    cpus_per_job: float = 1.0,
    shard: str = "0/1",
    retry_failed: bool = False,
) -> None:
    """Train and evaluate every agent on every task, number of demonstrations and seed; stop and go on at will.

    Args:
        out: folder for the results; jobs it holds already are skipped.
        tasks: all, or names separated by commas.
        agents: names separated by commas.
        num_demos: numbers of demonstrations to train on, separated by commas.
        seeds: how many; a seed draws the demonstrations, weights and batches.
        first_seed: of those; others than were looked at while an agent was tuned give an honest comparison.
        demos: files of demonstrations, one a task.
        demos_from: astar or human-like, which come with the package (the default is human-like), or a folder
            with one file, or one folder of the paper's release, for each task.
        label: a word for these demonstrations in figures and tables; found by itself for human and astar.
        preset: seconds a job, or the paper's recipe.
        steps: gradient steps, if not the preset's.
        episodes: rollouts for each checkpoint.
        checkpoints: fractions of the training to evaluate after, besides its end; empty for the end only.
        engine: processes on this machine, or a Ray cluster.
        jobs: how many at a time on this machine; one a core by default.
        address: of a Ray cluster; auto for the one that runs here, or else a new local one.
        cpus_per_job: processors that a job reserves in Ray.
        shard: I/N to run only every N-th job, from the I-th: N machines can share one folder.
        retry_failed: run jobs again that failed before.
    """
    from pidm_nav.experiments import engines
    from pidm_nav.experiments.sources import find_demos, parse_fractions, parse_numbers, parse_tasks
    from pidm_nav.experiments.sweep import Sweep, run_sweep

    if engine == "ray":
        engines.require_ray()
    if (jobs is not None and jobs < 1) or cpus_per_job <= 0:
        raise ValueError(f"--jobs is {jobs} and --cpus-per-job {cpus_per_job}: both must be above 0")
    part = _parse_shard(shard)
    datasets, found_label = find_demos(parse_tasks(tasks), demos, demos_from)
    plan = Sweep(
        datasets=datasets,
        agents=tuple(name.strip() for name in agents.split(",")),
        sizes=parse_numbers(num_demos, "--num-demos"),
        seeds=seeds,
        demos_from=label or found_label,
        preset=preset,
        steps=steps,
        episodes=episodes,
        checkpoints=parse_fractions(checkpoints, "--checkpoints"),
        first_seed=first_seed,
    )
    run: Engine[Any] = functools.partial(engines.run_local, workers=jobs)
    if engine == "ray":
        run = functools.partial(engines.run_ray, workers=jobs, address=address, cpus_per_job=cpus_per_job)
    view = SweepView(f"{', '.join(plan.agents)} on {plan.demos_from} demonstrations", plan.demos_from)
    try:
        with view:
            run_sweep(
                plan,
                out,
                run,
                retry_failed=retry_failed,
                shard=part,
                on_start=view.start,
                on_result=view.add,
            )
    except KeyboardInterrupt:
        view.console.print(
            f"stopped: {len(view.done)} of {view.total} jobs are done and safe in {out}; "
            "the same command goes on from there",
            highlight=False,
        )
        raise SystemExit(130) from None
    view.finish(out)


def report(results: Folders, out: Path = Path("report")) -> None:
    """Draw the figures, write the tables beside the paper's numbers, and one HTML page with all of it.

    Args:
        results: folders that sweep wrote, say one for human demonstrations and one for the A* expert's.
        out: folder for the page (index.html), figures and tables.
    """
    from pidm_nav.experiments.report import write_report

    if not results:
        raise ValueError("no results given: name one or more folders that pidm-nav sweep wrote")
    page = write_report(list(results), out)
    Console().print(f"report written: open {page}", highlight=False, soft_wrap=True)


def _parse_shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise ValueError(f"--shard is '{text}': give I/N with I from 0 to N-1, such as 0/4")
    return int(index), int(count)


class SweepView:
    """A live table of mean goal ratios and a bar with the time left; one line a job where there is no terminal."""

    def __init__(self, title: str, demos_from: str) -> None:
        self.console = Console()
        self.title, self.demos_from = title, demos_from
        self.done: dict[Cell, Outcome] = {}
        self.failed: dict[Cell, str] = {}
        self.total = 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # jobs differ a hundredfold in length: the time left is taken from the last half hour
        self.bar = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), speed_estimate_period=1800)
        self.table = Table()
        self.live = Live(console=self.console, refresh_per_second=2, get_renderable=self._render)

    def __enter__(self) -> SweepView:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def start(self, count: int, done: Mapping[Cell, Outcome]) -> None:
        """Say what there is to do."""
        self.done, self.total = dict(done), count + len(done)
        self.table = self._table()
        self.row = self.bar.add_task("jobs", total=count)
        if done:
            self.console.print(f"{len(done)} jobs were done before, {count} are left", highlight=False)

    def add(self, cell: Cell, outcome: Outcome) -> None:
        """Show a job that ended."""
        self.bar.advance(self.row)
        if "error" in outcome:
            self.failed[cell] = outcome["error"]
            self.console.print(f"[red]failed:[/] {cell}: {outcome['error']}", highlight=False, soft_wrap=True)
        else:
            self.done[cell] = outcome
            self.table = self._table()  # here, not while drawing, which another thread does
        if not self.console.is_terminal:
            score = "failed" if "error" in outcome else f"{outcome['checkpoints'][-1]['goal_ratio']:.3f}"
            task = self.bar.tasks[0]
            left = "?" if task.time_remaining is None else f"{task.time_remaining / 60:.0f} min"
            line = f"{len(self.done) + len(self.failed)}/{self.total} {cell}: {score}, {left} left"
            self.console.print(line, highlight=False, soft_wrap=True)

    def finish(self, out: Path) -> None:
        """The last word."""
        if not self.console.is_terminal:
            self.console.print(self._render())
        self.console.print(
            f"{len(self.done)} of {self.total} jobs are done; next: pidm-nav report {out}", highlight=False
        )
        if self.failed:
            self.console.print(f"{len(self.failed)} failed: --retry-failed runs them again", highlight=False)

    def _render(self) -> Group:
        bar = [self.bar] if self.console.is_terminal else []
        return Group(f"[bold]Mean goal ratio[/], {self.title}", self.table, *bar)

    def _table(self) -> Table:
        from pidm_nav.experiments.curves import mean_curve
        from pidm_nav.experiments.results import make_curves

        curves = make_curves(self.done, self.demos_from)
        sizes = sorted({size for curve in curves for size in curve.sizes})
        table = Table(header_style="bold", box=None, pad_edge=False)
        table.add_column("task")
        table.add_column("agent")
        for size in sizes:
            table.add_column(str(size), justify="right")
        for curve in curves:
            means = dict(zip(curve.sizes, mean_curve(curve), strict=True))
            cells = [_shade(means.get(size, np.nan)) for size in sizes]
            table.add_row(TASKS[curve.task].title, curve.agent, *cells)
        return table


def _shade(mean: float) -> str:
    """A score as text, green from 90% and dim below a half."""
    if np.isnan(mean):
        return ""
    style = "green" if mean >= 0.9 else "dim" if mean < 0.5 else ""
    return f"[{style}]{mean:.2f}[/]" if style else f"{mean:.2f}"
