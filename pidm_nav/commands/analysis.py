"""The commands `advise`, and `analyze predictor`, `horizon` and `theory`, which write NAME.png and NAME.csv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from pidm_nav.analysis.advice import Advice, advise
from pidm_nav.analysis.predictor import HorizonStudy, error_curve, horizon_curve, plot_error_curves, plot_horizon_curves
from pidm_nav.analysis.states import Finding, Row
from pidm_nav.commands.demos import load_all
from pidm_nav.commands.options import File
from pidm_nav.console import counted, print_table, progress_bar, say
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats import load_demos
from pidm_nav.files import writable_folder, write_json, write_rows
from pidm_nav.plots import agent_title, save_figure, task_title
from pidm_nav.rollouts.rollout import episode_seeds
from pidm_nav.statistics import Mean, interval_text
from pidm_nav.tasks import find_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Advise:
    """Say which agent to train on demonstrations: BC, PIDM or delta-PIDM; and why, and how sure that is.

    Agents are trained on some episodes and asked about the others. Where the environment can be made, they are also
    tried there, and the result decides. It takes one to two minutes on one core.

    Example: pidm-nav advise maze/human-like --plot advise.png
    """

    file: File
    rollouts: bool = True
    """Try the agents where the environment can be made."""
    episodes: int = 20
    """Number of validation episodes that each agent plays with each draw of demonstrations."""
    seed: int = 0
    """Seed of the draws, weights and batches."""
    steps: int | None = None
    """Number of gradient steps of each agent. Default: that of the preset fast."""
    plot: Path | None = None
    """Draw the numbers into this file, such as advise.png."""
    json: Path | None = None
    """Write the numbers to this JSON file."""

    def run(self) -> None:
        """Measure, print and save the advice."""
        for option, path in {"--plot": self.plot, "--json": self.json}.items():
            if path is not None and path.is_dir():
                raise IsADirectoryError(f"'{path}' is a folder: give {option} the name of a file")
            if path is not None:
                writable_folder(path.parent, option)
        options: Any = {"episodes": self.episodes, "seed": self.seed, "steps": self.steps}
        found = advise(load_demos(self.file), rollouts=self.rollouts, progress=True, **options)
        print_advice(found)
        if self.plot is not None:
            save_figure(found.plot(), self.plot)
        if self.json is not None:
            write_json(self.json, found.to_json(), indent=1)


def print_advice(found: Advice) -> None:
    """Print the numbers as a table, what they come from, and the advice."""

    def text(mean: Mean | None) -> str:
        return "" if mean is None else f"{mean.value:.2f}{interval_text(mean.low, mean.high, '.2f')}"

    rows = []
    for agent in found.restoring or found.scores:
        row = {"agent": agent_title(agent), "restoring": text(found.restoring.get(agent))}
        row |= {kind: text(found.errors.get(f"{agent}/{kind}")) for kind in ("true", "nearest", "follow", "learned")}
        row |= {
            "own": text(found.errors.get(agent)),
            "score": ", ".join(f"{x:.2f}" for x in found.scores.get(agent, ())),
        }
        rows.append(row)
    columns = {"agent": "agent", "own": "action error", "true": "with true future", "nearest": "nearest"}
    columns |= {
        "follow": "follow",
        "learned": "learned",
        "restoring": "restoring",
        "score": found.metric or "not tried",
    }
    title = "Held-out action error / variance, restoring coefficient (95% intervals over episodes), scores per draw"
    if rows:
        print_table(rows, columns, title)
    vary = "unknown: one episode" if found.episodes == 1 else "yes" if found.goals_vary else "no"
    told = "" if np.isnan(found.linear_r2) else f"; R² of the action on the change of state: {found.linear_r2:.2f}"
    say(f"{counted(found.episodes, 'episode')} used, {found.failed} failed; goals vary: {vary}{told}")
    say(f"{found.sentence} Sure: {found.sure}.", style="bold")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What all analyses ask for, and how they save what they find."""

    out: Path
    """Folder for the figure and the tables."""
    seed: int = 0
    """Seed of every random choice."""

    def begin(self) -> np.random.Generator:
        """Check the options before any work, and return the generator of every random choice."""
        episode_seeds(1, self.seed)
        writable_folder(self.out)
        return np.random.default_rng(self.seed)

    def save(self, figure: Figure, name: str, **tables: Sequence[Row]) -> None:
        """Write NAME.png, and each table to a CSV file."""
        save_figure(figure, self.out / f"{name}.png")
        for table, rows in tables.items():
            write_rows(self.out / f"{table}.csv", rows)
        say(f"The figure and the tables of {name} are in {self.out}.")


@dataclass(frozen=True, kw_only=True)
class Analysis(Report):
    """What all analyses of demonstrations ask for, and how they load them."""

    demos: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE...")]
    """Demonstrations: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like."""
    task: str | None = None
    """Refuse demonstrations of any other task than this one."""

    def load(self) -> tuple[list[DemoDataset], np.random.Generator]:
        """Load the demonstrations, after checking everything that can be checked before any work."""
        datasets = load_all(self.demos)
        wanted = None if self.task is None else find_task(self.task).name
        for label, dataset in datasets.items():
            if wanted not in (None, dataset.task):
                raise ValueError(f"'{label}' holds demonstrations of {dataset.task}, not of {wanted}: give other files")
        return list(datasets.values()), self.begin()


def each(datasets: Sequence[DemoDataset]) -> Iterator[DemoDataset]:
    """Yield the datasets, with a progress bar if there are several."""
    with progress_bar("demonstrations", len(datasets), show=len(datasets) > 1) as advance:
        for dataset in datasets:
            yield dataset
            advance(1)


def all_rows(found: Sequence[Finding]) -> list[Row]:
    """Return the rows of all findings."""
    return [row for finding in found for row in finding.rows()]


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], title: str) -> None:
    """Print rows with their task and demonstrator."""
    shown = [{**row, "task": task_title(row["task"])} for row in rows]
    print_table(shown, {"task": "Task", "demonstrator": "By", **columns}, title)


def print_curves(curves: Sequence[Finding], key: str, value: str, title: str, prefix: str = "") -> None:
    """Print one row per curve, with a column for each value of `key`."""
    rows = [{**curve.rows()[0], **{str(row[key]): row[value] for row in curve.rows()}} for curve in curves]
    keys = sorted({row[key] for row in all_rows(curves)})
    print_rows(rows, {str(x): f"{prefix}{x}" for x in keys}, title)


@dataclass(frozen=True, kw_only=True)
class Predictor(Analysis):
    """Show how well states are predicted from few demonstrations; measured on episodes that are held out.

    Example: pidm-nav analyze predictor --demos maze/human-like --out analysis
    """

    predictor: str = "nearest"
    """State predictor to test, with its options, such as neighbors(k=5); `pidm-nav agents` lists them."""
    sizes: tuple[int, ...] = ()
    """Numbers of training demonstrations; by default those of 1, 2, 5, 10, 20, 30, 40, 45 that leave one held out."""
    subsets: int = 50
    """Number of random subsets per size."""
    horizon: int = 1
    """Number of steps ahead to predict."""

    def run(self) -> None:
        """Measure, save and print the errors."""
        datasets, rng = self.load()
        options = (self.predictor, self.sizes or None, self.subsets, self.horizon)
        curves = [error_curve(dataset, *options, rng=rng) for dataset in each(datasets)]
        title = "Prediction error on held-out episodes, by number of training demonstrations"
        print_curves(curves, "demos", "error", title)
        self.save(plot_error_curves(curves), "predictor", predictor=all_rows(curves))


@dataclass(frozen=True, kw_only=True)
class Horizon(HorizonStudy, Analysis):
    """Show how the prediction error grows with the horizon.

    Example: pidm-nav analyze horizon --demos maze/human-like --out analysis
    """

    def run(self) -> None:
        """Measure, save and print the curves."""
        datasets, rng = self.load()
        curves = [horizon_curve(dataset, self, rng=rng) for dataset in each(datasets)]
        print_curves(curves, "horizon", "squared_error", "Squared prediction error on held-out episodes", "k=")
        self.save(plot_horizon_curves(curves), "horizon", horizon=all_rows(curves))


@dataclass(frozen=True, kw_only=True)
class Theory(Report):
    """Check the paper's theorems, and errors in closed loop, where every term is known: predicted against measured.

    Example: pidm-nav analyze theory --out analysis
    """

    fast: bool = False
    """Draw fewer samples, for wider error bars in less time."""

    def run(self) -> None:
        """Save and print the report."""
        from pidm_nav.theory.report import plot_theory, theory_report

        rows = theory_report(self.begin(), self.fast)
        print_table([{**row, "holds": "yes" if row["holds"] else "NO"} for row in rows])
        exact = [{key: str(value) for key, value in row.items()} for row in rows]  # with all digits
        self.save(plot_theory(rows), "theory", theory=exact)
