"""Write the tables and the figure of docs/results/horizons from the jobs of scripts/run_horizons.py.

Run it:  python scripts/report_horizons.py [--jobs jobs.jsonl]

With a file of jobs, results.csv is made from it first; without one, the tables and the figure are made again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from report_what_wins import choose, markdown, read, values

from pidm_nav import plots
from pidm_nav.files import write_rows
from pidm_nav.statistics import Mean, estimate_mean, holm
from pidm_nav.tasks import PAPER_TASKS

FOLDER = Path(__file__).parents[1] / "docs/results/horizons"
KEYS = ("part", "task", "demos", "seed")
HORIZONS, SEVERAL = (1, 5, 10, 25), "1+5+10+25"
NOISES = ("iid 8", "iid 32", "random_walk 8", "random_walk 32")
SIZES = (1, 2, 5)
Rows = list[dict[str, Any]]


class Contrast(NamedTuple):
    """A test: the goals of some agents minus those of as many others."""

    test: str
    part: str
    demos: int
    plus: Sequence[str]
    minus: Sequence[str]
    task: str = "all"


def contrasts() -> Iterator[Contrast]:
    """Yield the plan's tests."""
    yield from (Contrast("K1", "K", 5, [f"{SEVERAL}/1"], [f"{SEVERAL}/{k}"]) for k in HORIZONS[1:])
    yield Contrast("K2", "K", 5, [f"{SEVERAL}/1"], ["1/1"])
    for noise in NOISES:
        yield Contrast("N1", "N", 5, [f"1/1 {noise}", "bc none"], [f"bc {noise}", "1/1 none"])
    yield from (Contrast("N2", "N", 5, [f"{SEVERAL}/1 {noise}"], [f"1/1 {noise}"]) for noise in NOISES)
    for demos in SIZES:
        yield from (Contrast("X1", "X", demos, [f"unlabeled 45/{k}"], [f"unlabeled 0/{k}"]) for k in (1, 5))
    for demos in SIZES:
        for data in ("zigzag", "play"):
            yield Contrast("X2", "X", demos, [f"{data}/1"], ["unlabeled 0/1"], "multiroom")


def flatten(jobs: Path) -> Rows:
    """Return one row per job and agent, of whole seeds of a part only."""
    found = [json.loads(line) for line in jobs.read_text(encoding="utf-8").splitlines()]
    done: dict[tuple[str, int], int] = defaultdict(int)
    for each in found:
        done[each["part"], each["seed"]] += 1
    whole = {"K": len(PAPER_TASKS), "N": len(PAPER_TASKS), "X": len(PAPER_TASKS) * len(SIZES)}
    rows = [
        {**{key: each[key] for key in KEYS}, "agent": agent, "goals": scores["goals"]}
        for each in found
        if done[each["part"], each["seed"]] == whole[each["part"]]
        for agent, scores in each["agents"].items()
    ]
    return sorted(rows, key=lambda row: ("KNX".index(row["part"]), row["demos"], row["seed"], row["task"]))


def estimate(rows: Rows, contrast: Contrast) -> Mean | None:
    """Return a contrast over seeds, or None where its part has not been run."""
    own = choose(rows, part=contrast.part, demos=contrast.demos)
    own = own if contrast.task == "all" else choose(own, task=contrast.task)
    if not own:
        return None
    plus, minus = ([values(own, agent) for agent in agents] for agents in (contrast.plus, contrast.minus))
    keys = list(plus[0])
    found = [sum(each[key] for each in plus) - sum(each[key] for each in minus) for key in keys]
    return estimate_mean(found, [seed for seed, _ in keys])


def tests(rows: Rows) -> Rows:
    """Return the plan's tests with Holm's correction within each group, as far as their jobs are done."""
    table: Rows = []
    for contrast in contrasts():
        mean = estimate(rows, contrast)
        if mean is not None:
            of = f"{' + '.join(contrast.plus)} - {' - '.join(contrast.minus)}"
            named = {"test": contrast.test, "demos": contrast.demos, "task": contrast.task, "of": of}
            table.append({**named, **mean._asdict()})
    for test in dict.fromkeys(row["test"] for row in table):
        group = choose(table, test=test)
        for row, p in zip(group, holm([row["p"] for row in group]), strict=True):
            row["p"] = p
    return table


def means(rows: Rows) -> Rows:
    """Return each agent's goals with their interval over seeds, and per task."""
    table = []
    for part, demos, agent in dict.fromkeys((row["part"], row["demos"], row["agent"]) for row in rows):
        own = choose(rows, part=part, demos=demos, agent=agent)
        goals = estimate_mean([row["goals"] for row in own], [row["seed"] for row in own], (0, 1))
        line = {"part": part, "demos": demos, "agent": agent, "seeds": goals.units, "goals": goals.value}
        line |= {"low": goals.low, "high": goals.high}
        for task in PAPER_TASKS:
            scores = [row["goals"] for row in own if row["task"] == task]
            line[task] = estimate_mean(scores).value if scores else float("nan")
        table.append(line)
    return table


def draw(table: Rows) -> Any:
    """Draw goals against the horizon that PIDM acts with and, once they are run, against noise features."""
    found = {(row["part"], row["agent"]): row for row in table}
    noise = bool(choose(table, part="N"))
    figure, axes = plots.panels(1 + noise, 4.2, 3.2)
    several, bc = "PIDM, trained with all four", plots.agent_color("bc")
    pidm, places = plots.agent_color("pidm"), range(len(HORIZONS))
    show(axes[0], places, [found["K", f"{k}/{k}"] for k in HORIZONS], "PIDM, trained with this k", pidm, "o-")
    show(axes[0], places, [found["K", f"{SEVERAL}/{k}"] for k in HORIZONS], several, pidm, "s--")
    axes[0].axhline(found["K", "bc"]["goals"], color=bc, label="BC")
    axes[0].set_xticks(places, [str(k) for k in HORIZONS])
    axes[0].set(xlabel="horizon k that PIDM acts with, in steps", ylabel="goals reached")
    if noise:
        kinds = ("none", *NOISES)
        for name, label, color, mark in (
            ("bc", "BC", bc, "o-"),
            ("1/1", "PIDM, k = 1", pidm, "o-"),
            (f"{SEVERAL}/1", several, pidm, "s--"),
        ):
            show(axes[1], range(len(kinds)), [found["N", f"{name} {kind}"] for kind in kinds], label, color, mark)
        axes[1].set_xticks(range(len(kinds)), ("none", "8", "32", "8, walk", "32, walk"))
        axes[1].set(xlabel="noise features")
    for ax in axes:
        ax.set(ylim=(0, 1.02))
        ax.legend(frameon=False, loc="lower left", fontsize=9)
        plots.tidy(ax)
    return figure


def show(ax: Any, places: Any, rows: Rows, label: str, color: str, mark: str) -> None:
    """Draw means with their intervals."""
    heights = [row["goals"] for row in rows]
    bars = [[row["goals"] - row["low"] for row in rows], [row["high"] - row["goals"] for row in rows]]
    ax.errorbar(places, heights, bars, fmt=mark, color=color, label=label, markersize=4, linewidth=1.5)


def main(jobs: Path | None = None, folder: Path = FOLDER) -> None:
    """Write results.csv from jobs, if given, and everything that is made of it."""
    folder.mkdir(parents=True, exist_ok=True)
    if jobs is not None:
        write_rows(folder / "results.csv", flatten(jobs))
    rows = read(folder / "results.csv", ("goals",))
    tables = {"tests": tests(rows), "means": means(rows)}
    for name, table in tables.items():
        write_rows(folder / f"{name}.csv", table)
        print(markdown(table))
    plots.save_figure(draw(tables["means"]), folder / "horizons.png")


if __name__ == "__main__":
    tyro.cli(main)
