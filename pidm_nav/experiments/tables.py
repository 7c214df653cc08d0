"""Tables of a report, with the paper's numbers where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pidm_nav.experiments import paper
from pidm_nav.experiments.curves import Curve, all_sizes, score_name, score_text, summarize
from pidm_nav.experiments.efficiency import (
    EFFICIENCY_LEVELS,
    EfficiencyRatio,
    Side,
    efficiency_table,
    paired,
    paired_tests,
)
from pidm_nav.experiments.results import Manifest, in_order
from pidm_nav.plots import agent_title, demonstrator_title, task_title
from pidm_nav.statistics import holm
from pidm_nav.tasks import PAPER_TASKS

PAPER = "paper"  # first word of rows with the paper's numbers
NONE = "–"
Which = Literal["best", "last"]


@dataclass(frozen=True)
class Table:
    """A table as rows of text and as records of numbers."""

    name: str  # stem of its files
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str
    records: list[dict[str, Any]]


def paper_side(side: Side) -> Side:
    """Return the corresponding side in the paper, whose human demonstrations correspond to human-like ones."""
    agent, demos_from = side
    return agent, paper.HUMAN if demos_from.startswith("human") else demos_from


def ratio_table(
    curves: Sequence[Curve], agent: Side, baseline: Side, which: Which = "best"
) -> tuple[Table, list[EfficiencyRatio]] | None:
    """Tabulate maximum goal ratios and eta(80, 90, 95%) of agent over baseline; None without both curves."""
    curves = [curve.last() if which == "last" else curve for curve in curves if curve.is_share]
    ratios = efficiency_table(curves, agent, baseline, rng=np.random.default_rng(0))
    if not ratios:
        return None
    pairs = paired(curves, agent, baseline)
    tasks = list(pairs)
    printed = paper.TABLES.get((paper_side(agent), paper_side(baseline)))
    names = [f"{agent_title(who)} ({demonstrator_title(label)})" for who, label in (agent, baseline)]
    rows: list[tuple[str, ...]] = []
    for index, side in ((1, baseline), (0, agent)):
        highest = (f"{np.nanmax(pair[index].mean):.2f}" for pair in pairs.values())
        rows.append((f"max {names[index]}", *highest, NONE))
        rows += _paper_rows("max", [*paper_numbers(paper.MAXIMUM.get(paper_side(side)), tasks)[:-1], np.nan], ".2f")
    records = []
    for level in EFFICIENCY_LEVELS:
        own = [ratio for ratio in ratios if ratio.level == level]
        shown = paper_numbers(printed and printed.ratios[level], tasks)
        rows.append((f"η({level:.0%})", *map(ratio_text, own)))
        rows += _paper_rows(f"η({level:.0%})", shown, ".3g")
        for ratio, value in zip(own, shown, strict=True):
            record = {**vars(ratio), "checkpoint": which, "ratio": ratio.value, "paper": value}
            record["low"], record["high"] = ratio.interval
            record["undefined"] = ratio.undefined
            del record["value"], record["replicates"], record["limits"]
            records.append(record)
    note = (
        f"η(c) is how many times more demonstrations {names[1]} needs to reach c of the task's maximum; "
        "in brackets its 95% bootstrap interval over seeds. More than, less than: one side never reached it. "
        f"Undefined: the fraction of the bootstrap's replicates in which neither did. {which.title()} checkpoint."
        + (f" Paper: {printed.name}." if printed and set(tasks) & set(PAPER_TASKS) else "")
    )
    name = f"ratio-{agent[0]}-{agent[1]}-over-{baseline[0]}-{baseline[1]}{'' if which == 'best' else '-last'}"
    header = ("", *map(task_title, tasks), "Average")
    return Table(name, f"{names[0]} over {names[1]}", header, rows, note, records), ratios


def paper_numbers(printed: paper.Row | None, tasks: Sequence[str]) -> list[float]:
    """Return the paper's numbers of these tasks and their average; nan for missing ones."""
    by_task = dict(zip(PAPER_TASKS, printed or (), strict=False))
    row = [by_task.get(task, np.nan) for task in tasks]
    return [*row, printed[-1] if printed and set(tasks) == set(PAPER_TASKS) else float(np.mean(row))]


def _paper_rows(name: str, numbers: Sequence[float], form: str) -> list[tuple[str, ...]]:
    """Return a row with the paper's numbers, or nothing if there are none."""
    if np.isnan(numbers).all():
        return []
    return [(f"{PAPER} {name}", *(NONE if np.isnan(number) else f"{number:{form}}" for number in numbers))]


def ratio_text(ratio: EfficiencyRatio) -> str:
    """Return the ratio and its interval as text."""
    if ratio.bound == "?" or np.isnan(ratio.interval).any():
        return str(ratio)
    below, above = (f"{limit:.3g}" for limit in ratio.limits)
    ends = [
        f"more than {above}" if np.isinf(end) else f"less than {below}" if end == 0 else f"{end:.3g}"
        for end in ratio.interval
    ]
    undefined = f"; {ratio.undefined:.0%} undefined" if ratio.undefined else ""
    return str(ratio) if ends[0] == ends[1] == str(ratio) else f"{ratio} [{ends[0]}, {ends[1]}{undefined}]"


def score_table(curves: Sequence[Curve], demos_from: str, which: Which = "best") -> Table:
    """Tabulate mean and standard deviation of the score; records also have the IQM and intervals."""
    rng = np.random.default_rng(0)
    own = [curve for curve in curves if curve.demos_from == demos_from]
    sizes, rows, records = all_sizes(own), [], []
    for curve in own:
        summary = summarize(curve if which == "best" else curve.last(), rng)
        last = {} if which == "best" else {"checkpoint": curve.checkpoints - 1}
        records += [{**row, **last, "which": which} for row in summary]
        cells = {row["demos"]: score_text(row["mean"], row["std"]) for row in summary if row["seeds"]}
        name = f"{task_title(curve.task)}, {agent_title(curve.agent)}"
        rows.append((name, *(cells.get(size, NONE) for size in sizes)))
    several = any(curve.checkpoints > 1 for curve in own)
    title = f"{score_name(own).capitalize()} by number of {demonstrator_title(demos_from)} demonstrations"
    title += f", {which} checkpoint" if several else ""
    note = "Mean ± standard deviation over seeds; the CSV adds the 95% t interval of the mean, and the IQM."
    return Table(f"scores-{demos_from}-{which}", title, ("", *map(str, sizes)), rows, note, records)


def paired_table(curves: Sequence[Curve], agent: Side, baseline: Side) -> Table | None:
    """Tabulate the paired t-test of agent against baseline; None if their demonstrations differ."""
    pairs = paired(curves, agent, baseline) if agent[1] == baseline[1] else {}
    rows: list[tuple[str, ...]] = []
    sizes = all_sizes(curve for curve in curves if curve.demos_from == agent[1])
    records = [row for pair in pairs.values() for row in paired_tests(*pair)]
    for row, p in zip(records, holm([row["p"] for row in records]), strict=True):
        row["p_holm"] = p
    for task in pairs:
        known = [row for row in records if row["task"] == task and np.isfinite(row["difference"])]
        stars = {row["demos"]: "*" * sum(row["p_holm"] < limit for limit in (0.05, 0.01, 0.001)) for row in known}
        cells = {row["demos"]: f"{row['difference']:+.2f}{stars[row['demos']]}" for row in known}
        rows.append((task_title(task), *(cells.get(size, NONE) for size in sizes)))
    if not records:
        return None
    title = f"{agent_title(agent[0])} minus {agent_title(baseline[0])}, {demonstrator_title(agent[1])} demonstrations"
    metric = score_name(curve for pair in pairs.values() for curve in pair)
    note = (
        f"Difference of mean {metric}s; t-test paired by seed, with Holm's correction for the tests of this table: "
        "* p < 0.05, ** p < 0.01, *** p < 0.001."
    )
    name = f"paired-{agent[0]}-{baseline[0]}-{agent[1]}"
    return Table(name, title, ("", *map(str, sizes)), rows, note, records)


def dataset_table(manifests: Sequence[Manifest]) -> Table:
    """Tabulate the lengths of the demonstrations and of the paper's datasets."""
    rows: list[tuple[str, ...]] = []
    for manifest in manifests:
        for task in in_order(manifest.demos):
            own = manifest.demos[task]
            numbers = (own.total_steps, own.min_length, own.mean_length, own.max_length)
            printed = paper.DATASETS.get(paper_side(("", manifest.demos_from))[1], {}).get(task)
            name = f"{task_title(task)}, {demonstrator_title(manifest.demos_from)}"
            rows.append(
                (name, str(own.episodes), *map(_number, numbers), NONE if own.success is None else f"{own.success:.0%}")
            )
            if printed and own.episodes == 50 and printed != numbers:
                rows.append((PAPER, "50", *map(_number, printed), NONE))
    header = ("", "Episodes", "Total steps", "Shortest", "Mean", "Longest", "Success")
    note = "The paper's numbers are shown below ours where they differ."
    records = [dict(zip(header, row, strict=True)) for row in rows]
    return Table("datasets", "Demonstrations", header, rows, note, records)


def _number(value: float) -> str:
    return str(round(value, 2)).removesuffix(".0")
