"""The paper's tables with our numbers, each beside the paper's own."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pidm_nav.experiments import paper
from pidm_nav.experiments.curves import Curve, mean_curve, summarize
from pidm_nav.experiments.efficiency import EfficiencyRatio, Side, efficiency_table, welch_tests
from pidm_nav.experiments.results import Manifest, task_order
from pidm_nav.plots import agent_title, demonstrator_title, task_title
from pidm_nav.tasks import PAPER_TASKS

PAPER = "paper"  # the first cell of a row with the paper's numbers begins with it
NONE = "–"
Which = Literal["best", "last"]


@dataclass(frozen=True)
class Table:
    """Rows of text to read, and records of numbers to compute with."""

    name: str  # the stem of its files
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.records:
            self.records.extend(dict(zip(self.header, row, strict=True)) for row in self.rows)

    @property
    def kinds(self) -> list[str]:
        """For each row, whether it shows the paper's numbers ("paper") or is followed by such a row ("above")."""
        is_paper = [row[0].startswith(PAPER) for row in self.rows] + [False]
        return ["paper" if own else "above" if below else "" for own, below in itertools.pairwise(is_paper)]


def paper_side(side: Side) -> Side:
    """Return what the paper has that comes closest: a scripted player stands for its human one."""
    agent, demos_from = side
    return agent, paper.HUMAN if demos_from.startswith("human") else demos_from


def ratio_table(
    curves: Sequence[Curve], agent: Side, baseline: Side, which: Which = "best"
) -> tuple[Table, list[EfficiencyRatio]] | None:
    """Tabulate maximum goal ratios and eta(80, 90, 95%) of agent over baseline; None without curves of both."""
    curves = [curve.last() if which == "last" else curve for curve in curves if curve.is_share]
    ratios = efficiency_table(curves, agent, baseline, rng=np.random.default_rng(0))
    if not ratios:
        return None
    tasks = list(dict.fromkeys(ratio.task for ratio in ratios if ratio.task != "average"))
    printed = paper.TABLES.get((paper_side(agent), paper_side(baseline)))
    names = [f"{agent_title(who)} ({demonstrator_title(label)})" for who, label in (agent, baseline)]
    rows: list[tuple[str, ...]] = []
    for side, name in zip((baseline, agent), names[::-1], strict=True):
        rows += _maximum_rows(curves, side, name, tasks)
    records = []
    for level in dict.fromkeys(ratio.level for ratio in ratios):
        own = [ratio for ratio in ratios if ratio.level == level]
        rows.append((f"η({level:.0%})", *map(ratio_text, own)))
        shown = _paper_row(printed.ratios[level] if printed else None, tasks)
        if printed and len(tasks) == len(printed.ratios[level]):
            shown[-1] = printed.average[level]
        if np.isfinite(shown).any():
            rows.append((f"{PAPER} η({level:.0%})", *(NONE if np.isnan(value) else f"{value:.3g}" for value in shown)))
        records += [_record(ratio, which, value) for ratio, value in zip(own, shown, strict=True)]
    note = (
        f"η(c) is how many times more demonstrations {names[1]} needs to reach c of the task's maximum; "
        "in brackets its 95% bootstrap interval over seeds. >, < : one side never reached it. "
        f"{which.title()} checkpoint." + (f" Paper: {printed.name}." if printed else "")
    )
    name = f"ratio-{agent[0]}-{agent[1]}-over-{baseline[0]}-{baseline[1]}{'' if which == 'best' else '-last'}"
    header = ("", *map(task_title, tasks), "Average")
    return Table(name, f"{names[0]} over {names[1]}", header, rows, note, records), ratios


def _maximum_rows(curves: Sequence[Curve], side: Side, name: str, tasks: Sequence[str]) -> list[tuple[str, ...]]:
    """Return rows with the highest mean goal ratio of each task, ours and the paper's."""
    own = {curve.task: curve for curve in curves if (curve.agent, curve.demos_from) == side}
    rows = [(f"max {name}", *(f"{np.nanmax(mean_curve(own[task])):.2f}" for task in tasks), NONE)]
    printed = _paper_row(paper.MAXIMUM.get(paper_side(side)), tasks)[:-1]
    if np.isfinite(printed).any():
        rows.append((f"{PAPER} max", *(NONE if np.isnan(value) else f"{value:.2f}" for value in printed), NONE))
    return rows


def _paper_row(printed: paper.Row | None, tasks: Sequence[str]) -> list[float]:
    """Return the paper's numbers of these tasks and their mean; nan where the paper has none."""
    by_task = dict(zip(PAPER_TASKS, printed, strict=True)) if printed else {}
    row = [by_task.get(task, np.nan) for task in tasks]
    return [*row, float(np.mean(row))]


def ratio_text(ratio: EfficiencyRatio) -> str:
    """Return the ratio and its interval as text."""
    low, high = (NONE if np.isnan(end) else "∞" if np.isinf(end) else f"{end:.3g}" for end in ratio.interval)
    return str(ratio) if low == NONE or ratio.bound == "?" else f"{ratio} [{low}, {high}]"


def _record(ratio: EfficiencyRatio, which: Which, printed: float) -> dict[str, Any]:
    record = {**vars(ratio), "checkpoint": which, "ratio": ratio.value, "paper": printed}
    record["low"], record["high"] = ratio.interval
    return {key: value for key, value in record.items() if key not in ("value", "replicates")}


def score_table(curves: Sequence[Curve], demos_from: str, which: Which = "best") -> Table:
    """Tabulate mean and standard deviation of the goal ratio; the records have IQM and intervals too."""
    rng = np.random.default_rng(0)
    own = [curve for curve in curves if curve.demos_from == demos_from]
    sizes = sorted({size for curve in own for size in curve.sizes})
    rows, records = [], []
    for curve in own:
        summary = summarize(curve if which == "best" else curve.last(), rng)
        last = {} if which == "best" else {"checkpoint": curve.scores.shape[2] - 1}
        records += [{**row, **last, "which": which} for row in summary]
        cells = {row["demos"]: _score(row["mean"], row["std"]) for row in summary}
        name = f"{task_title(curve.task)}, {agent_title(curve.agent)}"
        rows.append((name, *(cells.get(size, NONE) for size in sizes)))
    several = any(curve.scores.shape[2] > 1 for curve in own)
    title = f"Goal ratio, {demonstrator_title(demos_from)} demonstrations" + (
        f", {which} checkpoint" if several else ""
    )
    note = "Mean ± standard deviation over seeds; the CSV adds the IQM and 95% bootstrap intervals of both."
    return Table(f"scores-{demos_from}-{which}", title, ("", *map(str, sizes)), rows, note, records)


def _score(mean: float, std: float) -> str:
    if np.isnan(mean):
        return NONE
    return f"{mean:.2f}" if np.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def welch_tables(curves: Sequence[Curve], agent: Side, baseline: Side) -> list[Table]:
    """Tabulate Welch's t-test of agent against baseline; there is none for one agent on different demonstrations."""
    named = {(c.task, c.agent, c.demos_from): c for c in curves}
    records, rows = [], []
    sizes = sorted({size for curve in curves if curve.demos_from == agent[1] for size in curve.sizes})
    for task in task_order(curve.task for curve in curves):
        pair = named.get((task, *agent)), named.get((task, *baseline))
        if agent[1] == baseline[1] and pair[0] and pair[1]:
            with warnings.catch_warnings():  # scipy warns of seeds that all reach the same score
                warnings.simplefilter("ignore", RuntimeWarning)
                tests = welch_tests(pair[0], pair[1])
            records += tests
            cells = {row["demos"]: _difference(row["difference"], row["p"]) for row in tests}
            rows.append((task_title(task), *(cells.get(size, NONE) for size in sizes)))
    if not records:
        return []
    names = f"{agent_title(agent[0])} minus {agent_title(baseline[0])}"
    title = f"{names}, {demonstrator_title(agent[1])} demonstrations"
    note = "Difference of mean goal ratios; Welch's t-test over seeds: * p < 0.05, ** p < 0.01, *** p < 0.001."
    name = f"welch-{agent[0]}-{baseline[0]}-{agent[1]}"
    return [Table(name, title, ("", *map(str, sizes)), rows, note, records)]


def _difference(difference: float, p: float) -> str:
    if np.isnan(difference):
        return NONE
    stars = "" if np.isnan(p) else "*" * sum(p < limit for limit in (0.05, 0.01, 0.001))
    return f"{difference:+.2f}{stars}"


def dataset_table(manifests: Sequence[Manifest]) -> Table:
    """Tabulate the lengths of the demonstrations beside those of the paper's datasets."""
    rows = []
    for manifest in manifests:
        for task in task_order(manifest.demos):
            own = manifest.demos[task]
            numbers = (own.total_steps, own.min_length, own.mean_length, own.max_length)
            printed = paper.DATASETS.get(paper_side(("", manifest.demos_from))[1], {}).get(task)
            name = f"{task_title(task)}, {demonstrator_title(manifest.demos_from)}"
            rows.append((name, str(own.episodes), *map(_number, numbers), f"{own.success:.0%}"))
            if printed and own.episodes == 50 and printed != numbers:
                rows.append((PAPER, "50", *map(_number, printed), NONE))
    header = ("", "Episodes", "Total steps", "Shortest", "Mean", "Longest", "Success")
    note = "The paper's numbers are shown below ours where they differ."
    return Table("datasets", "Demonstrations", header, rows, note)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
