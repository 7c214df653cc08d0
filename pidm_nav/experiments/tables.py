"""The paper's tables with our numbers, each beside the paper's own."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pidm_nav.experiments import paper
from pidm_nav.experiments.curves import Checkpoint, Curve, mean_curve, summarise
from pidm_nav.experiments.efficiency import EfficiencyRatio, efficiency_table, welch_tests
from pidm_nav.experiments.figures import agent_title, demos_title
from pidm_nav.tasks import TASKS

PAPER = "paper"  # the first cell of a row with the paper's numbers begins with it
NONE = "–"


@dataclass(frozen=True)
class Table:
    """Rows of text to read, and records of numbers to compute with."""

    name: str  # of its files
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)

    def markdown(self) -> str:
        """The rows as a Markdown table."""
        lines = [self.header, ("---", *["---:"] * (len(self.header) - 1)), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"### {self.title}\n\n{body}\n" + (f"\n{self.note}\n" if self.note else "")

    def csv(self) -> str:
        """The records as CSV, one line each."""
        text = io.StringIO()
        records = self.records or [dict(zip(self.header, row, strict=True)) for row in self.rows]
        writer = csv.DictWriter(text, list(dict.fromkeys(key for record in records for key in record)))
        writer.writeheader()
        writer.writerows(
            {key: "" if isinstance(value, float) and np.isnan(value) else value for key, value in record.items()}
            for record in records
        )
        return text.getvalue()


def paper_side(side: tuple[str, str]) -> tuple[str, str]:
    """What the paper has that comes closest: a scripted player stands for its human one."""
    agent, demos_from = side
    return agent, paper.HUMAN if demos_from.startswith("human") else demos_from


def ratio_table(
    curves: Sequence[Curve],
    agent: tuple[str, str],
    baseline: tuple[str, str],
    checkpoint: Checkpoint = "best",
    repetitions: int = 2000,
) -> tuple[Table, list[EfficiencyRatio]] | None:
    """Maximum goal ratios and eta(80, 90, 95%) of agent over baseline; None without curves of both."""
    rng = np.random.default_rng(0)
    ratios = efficiency_table(curves, agent, baseline, rng=rng, checkpoint=checkpoint, repetitions=repetitions)
    if not ratios:
        return None
    tasks = list(dict.fromkeys(ratio.task for ratio in ratios if ratio.task != "average"))
    printed = paper.TABLES.get((paper_side(agent), paper_side(baseline)))
    names = [f"{agent_title(who)} ({demos_title(label)})" for who, label in (agent, baseline)]
    rows: list[tuple[str, ...]] = []
    for side, name in zip((baseline, agent), names[::-1], strict=True):
        rows += _maximum_rows(curves, side, name, tasks, checkpoint)
    records = []
    for level in dict.fromkeys(ratio.level for ratio in ratios):
        own = {ratio.task: ratio for ratio in ratios if ratio.level == level}
        rows.append((f"η({level:.0%})", *(ratio_text(own[key]) for key in (*tasks, "average"))))
        shown = _paper_ratios(printed, level, tasks)
        if shown:
            rows.append((f"{PAPER} η({level:.0%})", *(f"{value:.3g}" for value in shown)))
        for index, (key, ratio) in enumerate(own.items()):
            records.append(_record(ratio, checkpoint, shown[index] if shown else np.nan, key))
    end = "" if checkpoint == "best" else f"-{checkpoint}"
    title = f"{names[0]} over {names[1]}"
    note = (
        f"η(c) is how many times more demonstrations {names[1]} needs to reach c of the task's maximum; "
        "in brackets its 95% bootstrap interval over seeds. >, < : one side never reached it. "
        f"{'Best' if checkpoint == 'best' else 'Last'} checkpoint."
    )
    if printed:
        note += f" Paper: {printed.name}."
    name = f"ratio-{agent[0]}-{agent[1]}-over-{baseline[0]}-{baseline[1]}{end}"
    header = ("", *(TASKS[task].title for task in tasks), "Average")
    return Table(name, title, header, rows, note, records), ratios


def _maximum_rows(
    curves: Sequence[Curve], side: tuple[str, str], name: str, tasks: Sequence[str], checkpoint: Checkpoint
) -> list[tuple[str, ...]]:
    """The highest mean goal ratio of each task, ours and the paper's."""
    own = {curve.task: curve for curve in curves if (curve.agent, curve.demos_from) == side}
    rows = [(f"max {name}", *(f"{np.nanmax(mean_curve(own[t], checkpoint)):.2f}" for t in tasks), NONE)]
    printed = paper.MAXIMUM.get(paper_side(side))
    if printed:
        by_task = dict(zip(TASKS, printed, strict=True))
        rows.append((f"{PAPER} max", *(f"{by_task[task]:.2f}" for task in tasks), NONE))
    return rows


def _paper_ratios(printed: paper.PaperTable | None, level: float, tasks: Sequence[str]) -> list[float]:
    """The paper's ratios of these tasks and, where all tasks are here, its average."""
    if printed is None:
        return []
    by_task = dict(zip(TASKS, printed.ratios[level], strict=True))
    own = [by_task[task] for task in tasks]
    return [*own, printed.average[level] if len(own) == len(TASKS) else float(np.mean(own))]


def ratio_text(ratio: EfficiencyRatio) -> str:
    """The ratio and its interval."""
    low, high = (NONE if np.isnan(end) else "∞" if np.isinf(end) else f"{end:.3g}" for end in ratio.interval)
    return str(ratio) if low == NONE or ratio.bound == "?" else f"{ratio} [{low}, {high}]"


def _record(ratio: EfficiencyRatio, checkpoint: str, printed: float, task: str) -> dict[str, Any]:
    low, high = ratio.interval
    return {
        "task": task,
        "agent": ratio.agent,
        "baseline": ratio.baseline,
        "checkpoint": checkpoint,
        "level": ratio.level,
        "bound": ratio.bound,
        "ratio": ratio.value,
        "low": low,
        "high": high,
        "demos_agent": ratio.demos_agent,
        "demos_baseline": ratio.demos_baseline,
        "paper": printed,
    }


def score_table(curves: Sequence[Curve], demos_from: str, checkpoint: Checkpoint = "best") -> Table:
    """Mean and standard deviation of the goal ratio of every cell; the records have IQM and intervals too."""
    rng = np.random.default_rng(0)
    own = [curve for curve in curves if curve.demos_from == demos_from]
    sizes = sorted({size for curve in own for size in curve.sizes})
    rows, records = [], []
    for curve in own:
        summary = summarise(curve, rng, checkpoint)
        records += [{**row, "which": checkpoint} for row in summary]
        cells = {row["demos"]: _score(row["mean"], row["std"]) for row in summary}
        name = f"{TASKS[curve.task].title}, {agent_title(curve.agent)}"
        rows.append((name, *(cells.get(size, NONE) for size in sizes)))
    title = f"Goal ratio, {demos_title(demos_from)} demonstrations, {checkpoint} checkpoint"
    note = "Mean ± standard deviation over seeds; the CSV adds the IQM and 95% bootstrap intervals of both."
    return Table(f"scores-{demos_from}-{checkpoint}", title, ("", *map(str, sizes)), rows, note, records)


def _score(mean: float, std: float) -> str:
    if np.isnan(mean):
        return NONE
    return f"{mean:.2f}" if np.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def welch_table(curves: Sequence[Curve], demos_from: str, agent: str, baseline: str) -> Table | None:
    """Welch's t-test of agent against baseline at each number of demonstrations."""
    named = {(c.task, c.agent): c for c in curves if c.demos_from == demos_from}
    records, rows = [], []
    sizes = sorted({size for curve in named.values() for size in curve.sizes})
    for task in TASKS:
        if (task, agent) in named and (task, baseline) in named:
            with warnings.catch_warnings():  # scipy warns of seeds that all reach the same score
                warnings.simplefilter("ignore", RuntimeWarning)
                tests = welch_tests(named[task, agent], named[task, baseline])
            records += tests
            cells = {row["demos"]: _difference(row["difference"], row["p"]) for row in tests}
            rows.append((TASKS[task].title, *(cells.get(size, NONE) for size in sizes)))
    if not rows:
        return None
    title = f"{agent_title(agent)} minus {agent_title(baseline)}, {demos_title(demos_from)} demonstrations"
    note = "Difference of mean goal ratios; Welch's t-test over seeds: * p < 0.05, ** p < 0.01, *** p < 0.001."
    name = f"welch-{agent}-{baseline}-{demos_from}"
    return Table(name, title, ("", *map(str, sizes)), rows, note, records)


def _difference(difference: float, p: float) -> str:
    if np.isnan(difference):
        return NONE
    stars = "" if np.isnan(p) else "*" * sum(p < limit for limit in (0.05, 0.01, 0.001))
    return f"{difference:+.2f}{stars}"


def dataset_table(manifests: Sequence[Mapping[str, Any]]) -> Table:
    """Lengths of the demonstrations beside those of the paper's datasets."""
    rows = []
    for manifest in manifests:
        label = manifest["demos_from"]
        for task in (task for task in TASKS if task in manifest["demos"]):
            own = manifest["demos"][task]
            numbers = (own["total_steps"], own["min_length"], own["mean_length"], own["max_length"])
            printed = paper.DATASETS.get(paper_side(("", label))[1], {}).get(task)
            name = f"{TASKS[task].title}, {demos_title(label)}"
            rows.append((name, str(own["episodes"]), *map(_number, numbers), f"{own['success']:.0%}"))
            if printed and own["episodes"] == 50 and printed != numbers:
                rows.append((PAPER, "50", *map(_number, printed), NONE))
    header = ("", "Episodes", "Total steps", "Shortest", "Mean", "Longest", "Success")
    note = "The paper's numbers stand below ours where they differ."
    return Table("datasets", "Demonstrations", header, rows, note)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
