"""The commands `advise` and `analyze`: predictor, horizon and theory, which write NAME.png and NAME.csv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from pidm_nav.analysis.advice import Advice, advise
from pidm_nav.analysis.predictor import HorizonStudy, error_curve, horizon_curve, plot_error_curves, plot_horizon_curves
from pidm_nav.analysis.states import Finding, Row
from pidm_nav.commands.demos import load_all
from pidm_nav.commands.options import File, check_output_files
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
    """Recommend an agent for demonstrations: BC, PIDM or delta-PIDM.

    Agents are trained on some episodes and tested on the others and, if the environment can be made, in rollouts, which
    decide. The advice has reasons and a level of confidence. It takes one to two minutes on one core.

    Example: pidm-nav advise maze/human-like --plot advise.png
    """

    file: File
    rollouts: bool = True
    """Also test the agents in rollouts, if the environment can be made."""
    episodes: int = 20
    """Number of validation episodes per agent and fold."""
    seed: int = 0
    """Seed of the folds, weights and batches."""
    steps: int | None = None
    """Number of gradient steps per agent. Default: that of the preset fast."""
    plot: Path | None = None
    """Figure to write, such as advise.png. Default: none."""
    json: Path | None = None
    """JSON file of the numbers to write. Default: none."""

    def run(self) -> None:
        """Measure, print and save the advice."""
        check_output_files({"--plot": self.plot, "--json": self.json}, [self.file])
        options: Any = {"episodes": self.episodes, "seed": self.seed, "steps": self.steps}
        found = advise(load_demos(self.file), rollouts=self.rollouts, progress=True, **options)
        print_advice(found)
        if self.plot is not None:
            save_figure(found.plot(), self.plot)
        if self.json is not None:
            write_json(self.json, found.to_json(), indent=1)


def print_advice(found: Advice) -> None:
    """Print the numbers as a table, and the advice."""

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
    r2 = "" if np.isnan(found.linear_r2) else f"; R² of the action on the change of state: {found.linear_r2:.2f}"
    say(f"{counted(found.episodes, 'episode')} used, {found.failed} failed; goals vary: {vary}{r2}")
    say(f"{found.sentence} Sure: {found.sure}.", style="bold")


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Options of all analyses, and how they are saved."""

    out: Path
    """Folder for the figure and the tables."""
    seed: int = 0
    """Seed of all randomness."""

    def begin(self) -> np.random.Generator:
        """Check the options, and return the random generator."""
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
class DemoAnalysis(Analysis):
    """Options of all analyses of demonstrations."""

    demos: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE...")]
    """Demonstrations: .npz files, folders of the paper's release, minari:ID, TASK/astar or TASK/human-like."""
    task: str | None = None
    """Expected task of the demonstrations. Default: any."""

    def load(self) -> tuple[list[DemoDataset], np.random.Generator]:
        """Load the demonstrations, and return them with the random generator."""
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
    """Return the rows of all tables."""
    return [row for finding in found for row in finding.rows()]


def print_curves(curves: Sequence[Finding], key: str, value: str, title: str, prefix: str = "") -> None:
    """Print one row per curve, with a column for each value of `key`."""
    rows = []
    for curve in curves:
        values = {str(row[key]): row[value] for row in curve.rows()}
        rows.append({"task": task_title(curve.task), "demonstrator": curve.demonstrator, **values})
    keys = sorted({row[key] for row in all_rows(curves)})
    print_table(rows, {"task": "Task", "demonstrator": "By", **{str(x): f"{prefix}{x}" for x in keys}}, title)


@dataclass(frozen=True, kw_only=True)
class PredictorErrors(DemoAnalysis):
    """Plot prediction errors on held-out episodes by number of demonstrations.

    Example: pidm-nav analyze predictor --demos maze/human-like --out analysis
    """

    predictor: str = "nearest"
    """State predictor with its options, such as neighbors(k=5); `pidm-nav agents` lists them."""
    sizes: tuple[int, ...] = ()
    """Numbers of training demonstrations. Default: those of 1,2,5,10,20,30,40,45 that leave one held out."""
    subsets: int = 50
    """Number of random subsets per size."""
    horizon: int = 1
    """Horizon in steps."""

    def run(self) -> None:
        """Measure, save and print the errors."""
        datasets, rng = self.load()
        options = (self.predictor, self.sizes or None, self.subsets, self.horizon)
        curves = [error_curve(dataset, *options, rng=rng) for dataset in each(datasets)]
        title = "Prediction error on held-out episodes, by number of training demonstrations"
        print_curves(curves, "demos", "error", title)
        self.save(plot_error_curves(curves), "predictor", predictor=all_rows(curves))


@dataclass(frozen=True, kw_only=True)
class Horizon(HorizonStudy, DemoAnalysis):
    """Plot prediction errors on held-out episodes by horizon.

    Example: pidm-nav analyze horizon --demos maze/human-like --out analysis
    """

    def run(self) -> None:
        """Measure, save and print the curves."""
        datasets, rng = self.load()
        curves = [horizon_curve(dataset, self, rng=rng) for dataset in each(datasets)]
        print_curves(curves, "horizon", "squared_error", "Squared prediction error on held-out episodes", "k=")
        self.save(plot_horizon_curves(curves), "horizon", horizon=all_rows(curves))


@dataclass(frozen=True, kw_only=True)
class Theory(Analysis):
    """Check the paper's theorems numerically on toy problems: predicted against measured values.

    Example: pidm-nav analyze theory --out analysis
    """

    fast: bool = False
    """Draw fewer samples, with wider error bars."""

    def run(self) -> None:
        """Save and print the table and the figure."""
        from pidm_nav.theory.report import plot_theory, theory_report

        rows = theory_report(self.begin(), self.fast)
        print_table([{**row, "holds": "yes" if row["holds"] else "NO"} for row in rows])
        exact = [{key: str(value) for key, value in row.items()} for row in rows]  # with all digits
        self.save(plot_theory(rows), "theory", theory=exact)
