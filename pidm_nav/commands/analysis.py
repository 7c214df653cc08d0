"""The commands `analyze gap`, `field`, `predictor`, `horizon` and `theory`; each writes NAME.png and NAME.csv."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from pidm_nav.analysis.correlation import plot_correlation, sweep_correlation
from pidm_nav.analysis.field import check_field, measure_field, plot_field
from pidm_nav.analysis.gap import RADIUS, ZONES, measure_gap, plot_gap
from pidm_nav.analysis.predictor import HorizonStudy, error_curve, horizon_curve, plot_error_curves, plot_horizon_curves
from pidm_nav.analysis.states import Finding, Row, map_of
from pidm_nav.commands.demos import load_all
from pidm_nav.console import print_table, progress_bar, say
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.files import writable_folder, write_rows
from pidm_nav.plots import save_figure, task_title
from pidm_nav.rollouts.rollout import episode_seeds
from pidm_nav.tasks import find_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
class Gap(Analysis):
    """Show where future states tell about actions: Delta(s) of demonstrations over their map.

    Example: pidm-nav analyze gap --demos maze/human-like --out analysis
    """

    clusters: int | None = None
    """Number of K-means clusters of states; by default 500, or a quarter of the steps if there are fewer."""
    horizon: int = 1
    """Number of steps from a state to its future state."""
    radius: float = RADIUS
    """Distance from a goal in pixels within which a state counts as near it."""
    keep_goals_apart: bool = True
    """Never put states that head for different goals into one cluster."""

    def run(self) -> None:
        """Measure, save and print the gap."""
        datasets, rng = self.load()
        for dataset in datasets:
            map_of(dataset)  # refuses demonstrations without a map
        options = (self.clusters, self.horizon, self.radius, self.keep_goals_apart)
        gaps = [measure_gap(dataset, *options, rng=rng) for dataset in each(datasets)]
        rows = [gap.summary() for gap in gaps]
        columns = {"variance": "Var(a|s)", "delta": "mean Δ", "chance": "by chance", "corrected": "corrected"}
        columns |= {f"delta_{zone}": zone for zone in ZONES}
        columns |= {"delta_ratio": "near / elsewhere"}
        steps = "one step" if self.horizon == 1 else f"{self.horizon} steps"
        print_rows(rows, columns, f"Δ(s): what the state {steps} ahead tells about the action")
        self.save(plot_gap(gaps), "gap", gap=rows, gap_clusters=all_rows(gaps))


@dataclass(frozen=True, kw_only=True)
class Field(Analysis):
    """Show whether an inverse dynamics model listens to the future: its actions for eight futures, as arrows.

    Example: pidm-nav analyze field --agent runs/x --demos maze/human-like --out analysis
    """

    agent: str | None = None
    """Trained pidm agent: its folder, or the name of one that comes with the package, such as maze/pidm; by default one
    is trained on the demonstrations."""
    places: int | None = None
    """Number of typical states to ask at; by default 75 for Maze and Multiroom, and 50 otherwise."""
    steps: int | None = None
    """Number of gradient steps if an agent is trained here; by default that of the fast preset."""

    def run(self) -> None:
        """Measure, save and print the field."""
        from pidm_nav.agents import load_agent, train

        datasets, rng = self.load()
        agent = None if self.agent is None else load_agent(self.agent)
        for dataset in datasets:
            check_field(agent, dataset, self.places)
        settings: Any = {"seed": self.seed} | ({} if self.steps is None else {"steps": self.steps})
        fields = []
        for dataset in datasets:
            asked = agent or train("delta-pidm", dataset, "fast", progress=True, **settings)
            fields.append(measure_field(asked, dataset, self.places, rng=rng))
        rows = [field.summary() for field in fields]
        columns = {"places": "places"}
        for name in ("turn", "gain"):
            columns |= {f"{name}_where_delta_large": f"{name}, Δ large", f"{name}_elsewhere": "elsewhere"}
            columns |= {f"{name}_spearman": "Spearman with Δ"}
        print_rows(rows, columns, "How far the action follows the queried future")
        self.save(plot_field(fields), "field", field=rows, field_places=all_rows(fields))


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
    results: tuple[Path, ...] = ()
    """Folders written by pidm-nav sweep, to compare prediction errors with the agents' performance."""

    def run(self) -> None:
        """Measure, save and print the errors, and their correlation with performance."""
        datasets, rng = self.load()
        correlation = sweep_correlation(self.results, datasets) if self.results else None
        options = (self.predictor, self.sizes or None, self.subsets, self.horizon)
        curves = [error_curve(dataset, *options, rng=rng) for dataset in each(datasets)]
        title = "Prediction error on held-out episodes, by number of training demonstrations"
        print_curves(curves, "demos", "error", title)
        self.save(plot_error_curves(curves), "predictor", predictor=all_rows(curves))
        if correlation is not None:
            words = f"Spearman {correlation.spearman:.2f} (p = {correlation.p:.1g})"
            say(f"Prediction error and goals reached over {correlation.settings} settings: {words}")
            self.save(plot_correlation(correlation), "correlation", correlation=all_rows(correlation.curves))


@dataclass(frozen=True, kw_only=True)
class Horizon(HorizonStudy, Analysis):
    """Show how the future blurs with the horizon: its variance and the prediction error.

    Example: pidm-nav analyze horizon --demos maze/human-like --out analysis
    """

    def run(self) -> None:
        """Measure, save and print the curves."""
        datasets, rng = self.load()
        curves = [horizon_curve(dataset, self, rng=rng) for dataset in each(datasets)]
        print_curves(curves, "horizon", "future_variance", "Var(future | state), px²", "k=")
        print_curves(curves, "horizon", "squared_error", "Squared prediction error, px²", "k=")
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
