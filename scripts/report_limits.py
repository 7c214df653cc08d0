"""Write the tables and the figure of docs/results/limits from the jobs of scripts/run_limits.py.

Run it:  python scripts/report_limits.py [--jobs limits.jsonl]

With a file of jobs, results.csv is made from it first; without one, the tables and the figure are made again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import tyro
from report_what_wins import choose, markdown, read

from pidm_nav import plots
from pidm_nav.files import write_rows
from pidm_nav.statistics import Mean, below_p, estimate_mean, holm

FOLDER = Path(__file__).parents[1] / "docs/results/limits"
MARGIN = 0.05
KEYS = ("part", "world", "demos", "seed")
METRICS = ("score", "train", "new", "own", "error", "restoring")
JOBS = {"G": 3, "R": 4, "M": 2}  # of a whole seed: its worlds and numbers of demonstrations
LOOKUPS = ("bc+pull/1", "pidm/nearest/1", "pidm/nearest/0", "delta-pidm/nearest/1", "delta-pidm/nearest/0")
Rows = list[dict[str, Any]]


def flatten(jobs: Path) -> Rows:
    """Return one row per job and agent, of whole seeds only."""
    found = [json.loads(line) for line in jobs.read_text(encoding="utf-8").splitlines()]
    jobs_of: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for each in found:
        jobs_of[each["part"], each["seed"]].add((each["world"], each["demos"]))
    rows = [
        {**{key: each[key] for key in KEYS}, "agent": agent, **{name: scores.get(name, "") for name in METRICS}}
        for each in found
        if len(jobs_of[each["part"], each["seed"]]) == JOBS[each["part"]]
        for agent, scores in each["agents"].items()
    ]
    return sorted(rows, key=lambda row: ("GRM".index(row["part"]), row["demos"], row["seed"], row["world"]))


def difference(rows: Rows, first: str, second: str) -> tuple[list[float], list[int]]:
    """Return the scores of first minus those of second in every seed and world, and the seeds."""
    scores = {(row["seed"], row["world"], row["agent"]): row["score"] for row in rows}
    keys = sorted({(row["seed"], row["world"]) for row in rows})
    return [scores[(*key, first)] - scores[(*key, second)] for key in keys], [seed for seed, _ in keys]


def gains(rows: Rows) -> dict[str, Mean]:
    """Return the mean difference of each agent from BC, over seeds."""
    agents = [agent for agent in dict.fromkeys(row["agent"] for row in rows) if agent != "bc"]
    return {agent: estimate_mean(*difference(rows, agent, "bc")) for agent in agents}


def row_of(test: str, part: str, demos: int, of: str, mean: Mean, p: float) -> dict[str, Any]:
    """Return a line of the table of tests."""
    return {"test": test, "part": part, "demos": demos, "of": of, **mean._asdict(), "p": p}


def tests(rows: Rows) -> Rows:
    """Return the plan's tests, as far as their jobs are done."""
    table: Rows = []
    for part, demos in sorted({(row["part"], row["demos"]) for row in rows}):
        own = choose(rows, part=part, demos=demos)
        if part == "R":
            for name, first, second in (
                ("lead", LOOKUPS[1], "bc"),
                ("L1, H1", LOOKUPS[2], "bc"),
                ("L1, H2", LOOKUPS[1], LOOKUPS[0]),
            ):
                found, seeds = difference(own, first, second)
                mean = estimate_mean(found, seeds)
                p = mean.p if name == "lead" else below_p(found, MARGIN, seeds)
                table.append(row_of(name, part, demos, f"{first} - {second}", mean, p))
        else:
            found = gains(own)
            for (agent, mean), p in zip(found.items(), holm([mean.p for mean in found.values()]), strict=True):
                table.append(row_of("L2", part, demos, f"{agent} - bc", mean, p))
        bc = choose(own, agent="bc")
        sign, of = (-1, "generalization - drift") if part == "G" else (1, "drift - generalization")
        excess = [sign * (row["own"] - 2 * row["new"] + row["train"]) for row in bc]
        seeds = [row["seed"] for row in bc]
        p = below_p([-each for each in excess], 0.0, seeds)
        table.append(row_of("L3", part, demos, of, estimate_mean(excess, seeds), p))
    return table


def means(rows: Rows) -> Rows:
    """Return each agent's means over seeds and worlds, with the interval of the score."""
    table = []
    for part, demos, agent in dict.fromkeys((row["part"], row["demos"], row["agent"]) for row in rows):
        own = choose(rows, part=part, demos=demos, agent=agent)
        seeds = [row["seed"] for row in own]
        score = estimate_mean([row["score"] for row in own], seeds, (0, 1))
        line = {"part": part, "demos": demos, "agent": agent, "seeds": score.units, "score": score.value}
        line |= {"low": score.low, "high": score.high}
        line |= {name: estimate_mean([row[name] for row in own], seeds).value for name in METRICS[1:]}
        table.append(line)
    return table


def draw(rows: Rows) -> Any:
    """Draw the differences from BC with their intervals, one panel per part, sorted."""
    shown = [part for part in "RG" if choose(rows, part=part)]
    titles = {"R": "random starts, fixed goals", "G": "random starts and goals"}
    figure, axes = plots.panels(len(shown), 4.6, 3.6)
    for ax, part in zip(axes, shown, strict=True):
        ordered = dict(sorted(gains(choose(rows, part=part)).items(), key=lambda item: item[1].value))
        for place, mean in enumerate(ordered.values()):
            color = "#868e96" if mean.low < 0 < mean.high else "#2b8a3e" if mean.value > 0 else "#c92a2a"
            ax.plot([mean.low, mean.high], [place, place], color=color, linewidth=3, alpha=0.45)
            ax.plot(mean.value, place, "o", color=color, markersize=5)
        ax.set_yticks(range(len(ordered)), [title(agent) for agent in ordered])
        ax.axvline(0, color="#adb5bd", linewidth=1, zorder=0)
        ax.set(xlabel="goals reached, minus BC's", title=titles[part])
        plots.tidy(ax)
    return figure


def title(agent: str) -> str:
    """Return an agent's name as the figure shows it."""
    names = dict(
        zip(LOOKUPS, ("BC with pull", "PIDM", "PIDM, no pull", "delta-PIDM", "delta-PIDM, no pull"), strict=True)
    )
    return names.get(agent, "corrective BC" if agent == "corrective-bc" else f"delta-PIDM, {agent}")


def main(jobs: Path | None = None, folder: Path = FOLDER) -> None:
    """Write results.csv from jobs, if given, and everything that is made of it."""
    folder.mkdir(parents=True, exist_ok=True)
    if jobs is not None:
        write_rows(folder / "results.csv", flatten(jobs))
    rows = read(folder / "results.csv", METRICS)
    for name, table in {"tests": tests(rows), "means": means(rows)}.items():
        write_rows(folder / f"{name}.csv", table)
        print(markdown(table))
    plots.save_figure(draw(rows), folder / "limits.png")


if __name__ == "__main__":
    tyro.cli(main)
