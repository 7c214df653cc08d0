"""Commands of the analysis: gap, field, predictor, horizon, theory. Each writes NAME.png and NAME.csv."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from pidm_nav.analysis import figures
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.tasks import get_task

Demos = Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE...")]
Item = TypeVar("Item")


def gap(
    demos: Demos,
    out: Path,
    task: str | None = None,
    clusters: int = 500,
    horizon: int = 1,
    radius: float = 60.0,
    keep_goals_apart: bool = True,
    seed: int = 0,
) -> None:
    """Where does the future tell about the action? Delta(s) of demonstrations over their map.

    Args:
        demos: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
        out: folder for gap.png, gap.csv (means) and gap_clusters.csv.
        task: refuse demonstrations of another task than this.
        clusters: K of the K-means on states.
        horizon: steps ahead, k.
        radius: pixels around a goal that count as near it.
        keep_goals_apart: never put states that head for different goals into one cluster.
        seed: of the clusters.
    """
    from pidm_nav.analysis.gap import measure_gap, plot_gap

    datasets, folder = _load(demos, task), _folder(out)
    rng = np.random.default_rng(seed)
    gaps = [
        measure_gap(each, clusters, horizon, radius, keep_goals_apart, rng=rng)
        for each in _progress(datasets, "clusters")
    ]
    rows = [each.summary() for each in gaps]
    figures.save_figure(plot_gap(gaps, radius=radius), folder / "gap.png")
    figures.save_rows([row for each in gaps for row in each.rows()], folder / "gap_clusters.csv")
    figures.save_rows(rows, folder / "gap.csv")
    columns = {
        "variance": "Var(a|s)",
        "delta": "mean Δ",
        "chance": "by chance",
        "corrected": "corrected",
        "delta_arriving": "arriving",
        "delta_leaving": "leaving",
        "delta_elsewhere": "elsewhere",
        "delta_ratio": "near / elsewhere",
    }
    _print(rows, columns, f"Δ(s): what the state {horizon} ahead tells about the action", folder)


def field(
    demos: Demos,
    out: Path,
    agent: Path | None = None,
    task: str | None = None,
    places: int | None = None,
    steps: int | None = None,
    seed: int = 0,
) -> None:
    """Does an inverse dynamics model listen to the future? Its actions for eight futures, as arrows.

    Args:
        demos: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
        out: folder for field.png, field.csv (means) and field_places.csv.
        agent: folder of a trained pidm agent; by default one is trained on the demonstrations.
        task: refuse demonstrations of another task than this.
        places: typical states; by default 75 for Maze and Multiroom, 50 otherwise.
        steps: gradient steps of an agent trained here, if not the fast preset's.
        seed: of the places, and of an agent trained here.
    """
    from dataclasses import replace

    from pidm_nav.agents import PRESETS, load_agent, train
    from pidm_nav.analysis.field import inverse_dynamics_of, measure_field, plot_field

    datasets, folder = _load(demos, task), _folder(out)
    loaded = load_agent(agent) if agent is not None else None
    if loaded is not None:  # before any work
        for dataset in datasets:
            inverse_dynamics_of(loaded, dataset)
    config = replace(PRESETS["fast"], seed=seed)
    if steps is not None:
        config = replace(config, steps=steps)
    rng = np.random.default_rng(seed)
    fields = [
        measure_field(loaded or train("pidm", each, config, progress=True), each, places, rng=rng) for each in datasets
    ]
    rows = [each.summary() for each in fields]
    figures.save_figure(plot_field(fields), folder / "field.png")
    figures.save_rows([row for each in fields for row in each.rows()], folder / "field_places.csv")
    figures.save_rows(rows, folder / "field.csv")
    columns = {
        "places": "places",
        "turn_where_delta_large": "turn, Δ large",
        "turn_elsewhere": "elsewhere",
        "turn_spearman": "Spearman with Δ",
        "gain_where_delta_large": "gain, Δ large",
        "gain_elsewhere": "elsewhere",
        "gain_spearman": "Spearman with Δ",
    }
    _print(rows, columns, "How far the action follows the queried future", folder)


def predictor(
    demos: Demos,
    out: Path,
    task: str | None = None,
    predictor: Literal["nearest", "time", "learned"] = "nearest",
    sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 30, 40, 45),
    subsets: int = 50,
    horizon: int = 1,
    results: tuple[Path, ...] = (),
    seed: int = 0,
) -> None:
    """How good is a state predictor on episodes it has not seen, by the number of demonstrations?

    Args:
        demos: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
        out: folder for predictor.png and predictor.csv; with --results also correlation.png and .csv.
        task: refuse demonstrations of another task than this.
        predictor: which one.
        sizes: numbers of training demonstrations; the others are held out.
        subsets: random subsets a size.
        horizon: steps ahead, k.
        results: folders that pidm-nav sweep wrote, to compare errors with the agents' performance.
        seed: of the subsets.
    """
    from pidm_nav.analysis.correlation import plot_correlation, sweep_correlation
    from pidm_nav.analysis.predictor import error_curve, plot_error_curves

    datasets, folder = _load(demos, task), _folder(out)
    rng = np.random.default_rng(seed)
    curves = [error_curve(each, predictor, sizes, subsets, horizon, rng=rng) for each in _progress(datasets, "subsets")]
    rows = [row for each in curves for row in each.rows()]
    figures.save_figure(plot_error_curves(curves), folder / "predictor.png")
    figures.save_rows(rows, folder / "predictor.csv")
    table = [{**each.rows()[0], **{str(row["demos"]): row["error"] for row in each.rows()}} for each in curves]
    columns = {str(size): str(size) for size in sizes}
    _print(table, columns, "Prediction error on held-out episodes, by demonstrations", folder)
    if results:
        found = sweep_correlation(results, datasets)
        figures.save_figure(plot_correlation(found), folder / "correlation.png")
        figures.save_rows([point._asdict() for point in found.points], folder / "correlation.csv")
        _console().print(
            f"prediction error and goals reached over {len(found.points)} settings: "
            f"Spearman {found.spearman:.2f} (p = {found.p:.1g})",
            highlight=False,
        )


def horizon(
    demos: Demos,
    out: Path,
    task: str | None = None,
    predictor: Literal["nearest", "time", "learned"] = "nearest",
    horizons: tuple[int, ...] = (1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50),
    splits: int = 100,
    training: int = 40,
    clusters: int = 500,
    clamp_end: bool = False,
    seed: int = 0,
) -> None:
    """How far ahead can the future be predicted? Its variance and the prediction error, by horizon.

    Args:
        demos: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
        out: folder for horizon.png and horizon.csv.
        task: refuse demonstrations of another task than this.
        predictor: which one.
        horizons: steps ahead, k.
        splits: random divisions into training and held-out episodes.
        training: episodes to fit the predictor on.
        clusters: K of the K-means that stands for knowing the state.
        clamp_end: count futures cut off by an episode's end as its last state.
        seed: of clusters and splits.
    """
    from pidm_nav.analysis.horizon import horizon_curve, plot_horizon_curves

    datasets, folder = _load(demos, task), _folder(out)
    rng = np.random.default_rng(seed)
    curves = [
        horizon_curve(each, predictor, horizons, splits, training, clusters, clamp_end, rng=rng)
        for each in _progress(datasets, "splits")
    ]
    figures.save_figure(plot_horizon_curves(curves), folder / "horizon.png")
    figures.save_rows([row for each in curves for row in each.rows()], folder / "horizon.csv")
    columns = {str(k): f"k={k}" for k in horizons}
    for name, words in (("future_variance", "Var(future | state)"), ("squared_error", "Squared error")):
        table = [{**each.rows()[0], **{str(row["horizon"]): row[name] for row in each.rows()}} for each in curves]
        _print(table, columns, f"{words}, px²", folder if name == "squared_error" else None)


def theory(out: Path, seed: int = 0, fast: bool = False) -> None:
    """Do the paper's theorems hold where all is known? Predicted against measured.

    Args:
        out: folder for theory.png and theory.csv.
        seed: of the samples.
        fast: fewer samples, wider error bars.
    """
    from pidm_nav.theory.report import run

    folder = _folder(out)
    rows = run(folder, seed, fast)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in ("Check", "Problem", "Setting", "Predicted", "", "Measured", "±", "Holds"):
        table.add_column(column, justify="right" if column in ("Predicted", "Measured", "±") else "left")
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("predicted", "measured", "error")]
        words = [row["check"], row["problem"], row["setting"], numbers[0], row["relation"], *numbers[1:]]
        table.add_row(*words, "yes" if row["holds"] else "[red]no[/]")
    _console().print(table)
    _console().print(f"figure and table are in {folder}", highlight=False)


def _load(files: tuple[str, ...], task: str | None) -> list[DemoDataset]:
    """The demonstrations, all of one task if it is named."""
    if not files:
        raise ValueError("no demonstrations given: name files, folders, minari:ID or TASK/astar after --demos")
    wanted = task if task in (None, "custom") else get_task(str(task)).name
    datasets = [load_demos(file) for file in files]
    for file, dataset in zip(files, datasets, strict=True):
        if wanted not in (None, dataset.task):
            raise ValueError(f"'{file}' holds demonstrations of {dataset.task}, not of {wanted}: give the right file")
    return datasets


def _folder(out: Path) -> Path:
    """The output folder, made and found writable before any work."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"cannot write to '{out}' ({error.strerror}): choose another --out") from None
    return out


def _progress(items: Sequence[Item], words: str) -> Iterable[Item]:
    return track(items, words, console=Console(stderr=True), transient=True, disable=len(items) < 2)


def _print(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], title: str, folder: Path | None) -> None:
    """A table with a line a dataset."""
    table = Table(title=title, header_style="bold", box=None, pad_edge=False, title_justify="left")
    table.add_column("Task", no_wrap=True)
    table.add_column("By", no_wrap=True)
    for name in columns.values():
        table.add_column(name, justify="right")
    for row in rows:
        values = (row.get(key, float("nan")) for key in columns)
        table.add_row(figures.title(row["task"]), row["demonstrator"], *map(_number, values))
    _console().print(table)
    if folder is not None:
        _console().print(f"figure and tables are in {folder}", highlight=False)


def _number(value: float) -> str:
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.1f}"


def _console() -> Console:
    """Standard output; as wide as tables need where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)
