"""Write the tables and figures of docs/results/what_wins from the jobs of scripts/run_what_wins.py.

Run it:  python scripts/report_what_wins.py [jobs.jsonl]

With a file of jobs, results.csv is made from it first; without one, the tables and figures are made again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from scipy.stats import spearmanr

from pidm_nav import plots
from pidm_nav.files import write_rows
from pidm_nav.statistics import below_p, estimate_mean, holm
from pidm_nav.tasks import PAPER_TASKS

FOLDER = Path(__file__).parents[1] / "docs/results/what_wins"
MARGIN = 0.05
METRICS = ("goals", "pushed", "success", "error", "true_error", "restoring")
KEYS = ("part", "demonstrator", "task", "demos", "seed")
BC, BC_PULL, PIDM, NO_PULL = "bc", "bc+pull/1", "state/nearest/1", "state/nearest/0"
BARS = {
    BC: ("BC", plots.agent_color("bc"), ""),
    NO_PULL: ("PIDM without pull", plots.agent_color("pidm-no-pull"), "//"),
    BC_PULL: ("BC with pull", "#f7b267", "//"),
    PIDM: ("PIDM", plots.agent_color("pidm"), ""),
}
PULLS = (0, 0.25, 0.5, 1, 2)
INTERVENED = ("/0", "/0.25", "/0.5", "/2")
Rows = list[dict[str, Any]]


def read(path: Path, metrics: Sequence[str] = METRICS) -> Rows:
    """Return results.csv with numbers as numbers; metrics that an agent does not have are nan."""
    rows: Rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    for row in rows:
        row |= {"demos": int(row["demos"]), "seed": int(row["seed"])}
        row |= {name: float(row[name] or "nan") for name in metrics}
    return rows


def flatten(jobs: Path) -> Rows:
    """Return one row per job and agent; whole seeds of a part, demonstrator and number of demonstrations only."""
    found = [json.loads(line) for line in jobs.read_text(encoding="utf-8").splitlines()]
    cells = {(each["part"], each["demonstrator"], each["demos"], each["seed"]): set() for each in found}
    for each in found:
        cells[each["part"], each["demonstrator"], each["demos"], each["seed"]].add(each["task"])
    whole = [each for each in found if len(cells[each["part"], each["demonstrator"], each["demos"], each["seed"]]) == 4]
    for each in whole:
        each["part"] = {"D": "C"}.get(each["part"], each["part"])  # part D is an agent of part C
    rows = [
        {**{key: each[key] for key in KEYS}, "agent": agent, **{name: scores.get(name, "") for name in METRICS}}
        for each in whole
        for agent, scores in each["agents"].items()
    ]
    tasks = list(PAPER_TASKS)
    rows.sort(key=lambda row: (*(row[key] for key in ("demonstrator", "demos", "seed")), tasks.index(row["task"])))
    return sorted(rows, key=lambda row: "PFC".index(row["part"]))


def choose(rows: Rows, **wanted: Any) -> Rows:
    """Return the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def values(rows: Rows, agent: str, metric: str = "goals") -> dict[tuple[int, str], float]:
    """Return an agent's metric by seed and task."""
    return {(row["seed"], row["task"]): row[metric] for row in rows if row["agent"] == agent}


def differences(rows: Rows, first: str, second: str) -> tuple[list[float], list[int]]:
    """Return the goals of first minus those of second in every seed and task, and the seeds."""
    one, other = values(rows, first), values(rows, second)
    pairs = [key for key in one if key in other]
    return [one[key] - other[key] for key in pairs], [seed for seed, _ in pairs]


def hypotheses(rows: Rows) -> Rows:
    """Return the tests of H1 and H2 and the lead that they explain, over all tasks and per task."""
    table: Rows = []
    groups = sorted({tuple(row[key] for key in ("part", "demonstrator", "demos")) for row in rows}, key=str)
    for part, demonstrator, demos in sorted(groups, key=lambda group: "PFC".index(group[0])):
        cell = choose(rows, part=part, demonstrator=demonstrator, demos=demos)
        for task in ("all", *PAPER_TASKS):
            own = cell if task == "all" else choose(cell, task=task)
            for name, first, second in (("lead", PIDM, BC), ("H1", NO_PULL, BC), ("H2", PIDM, BC_PULL)):
                found, seeds = differences(own, first, second)
                mean = estimate_mean(found, seeds)
                p = mean.p if name == "lead" else below_p(found, MARGIN, seeds)
                row = {"part": part, "demonstrator": demonstrator, "demos": demos, "task": task, "test": name}
                row |= {"of": f"{first} - {second}", "difference": mean.value, "low": mean.low, "high": mean.high}
                table.append({**row, "p": p, "seeds": mean.units})
    for part in "PFC":
        secondary = [row for row in table if row["part"] == part and (part != "P" or row["task"] != "all")]
        for row, p in zip(secondary, holm([row["p"] for row in secondary]), strict=True):
            row["p"] = p
    return table


def ranks(rows: Rows) -> Rows:
    """Return H3: rank correlations of goals with minus the action error and with the restoring coefficient."""
    table = []
    cell = choose(rows, part="F", demonstrator="human", demos=5)
    agents = sorted({row["agent"] for row in cell if np.isfinite(row["error"])})
    natural = [agent for agent in agents if not agent.endswith(INTERVENED) and not agent.startswith("bc+pull")]
    for title, chosen in (("all agents", agents), ("not intervened on", natural)):
        found: dict[str, list[float]] = {"error": [], "restoring": []}
        units: list[int] = []
        for seed in sorted({row["seed"] for row in cell}):
            for task in PAPER_TASKS:
                own = {row["agent"]: row for row in choose(cell, seed=seed, task=task)}
                goals = [own[agent]["goals"] for agent in chosen]
                for metric, sign in (("error", -1), ("restoring", 1)):
                    measured = [sign * own[agent][metric] for agent in chosen]
                    found[metric].append(float(spearmanr(goals, measured).statistic))
                units.append(seed)
        gain = np.subtract(found["restoring"], found["error"])
        for name, correlations in (*found.items(), ("restoring - error", gain)):
            mean = estimate_mean(correlations, units)
            row = {"agents": title, "number": len(chosen), "correlation of goals with": name, "mean": mean.value}
            table.append({**row, "low": mean.low, "high": mean.high, "p": mean.p, "seeds": mean.units})
    return table


def means(rows: Rows) -> Rows:
    """Return each agent's metrics with the interval of the goals, over seeds."""
    table = []
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault((row["part"], row["demonstrator"], row["demos"], row["agent"]), []).append(row)
    for (part, demonstrator, demos, agent), own in groups.items():
        seeds = [row["seed"] for row in own]
        goals = estimate_mean([row["goals"] for row in own], seeds, (0, 1))
        line = {"part": part, "demonstrator": demonstrator, "demos": demos, "agent": agent, "seeds": goals.units}
        line |= {"goals": goals.value, "low": goals.low, "high": goals.high}
        for task in PAPER_TASKS:
            line[task] = estimate_mean([row["goals"] for row in own if row["task"] == task]).value
        line |= {name: estimate_mean([row[name] for row in own], seeds).value for name in METRICS[1:]}
        table.append(line)
    return table


def draw_bars(rows: Rows) -> Any:
    """Draw the four agents of the intervention on each task: the two without pull first, then the two with it."""
    cell = choose(rows, part="P")
    figure, (ax,) = plots.panels(1, 6.6, 3.4)
    for offset, (agent, (label, color, hatch)) in zip((-0.31, -0.12, 0.12, 0.31), BARS.items(), strict=True):
        found = [list(values(choose(cell, task=task), agent).values()) for task in PAPER_TASKS]
        bars = [estimate_mean(each, bounds=(0, 1)) for each in found]
        places, heights = np.arange(len(bars)) + offset, [each.value for each in bars]
        ax.bar(places, heights, 0.18, color=color, hatch=hatch, edgecolor="white", label=label)
        ax.vlines(places, [each.low for each in bars], [each.high for each in bars], color="0.2", linewidth=1)
    ax.set_xticks(range(len(PAPER_TASKS)), [plots.task_title(task) for task in PAPER_TASKS])
    ax.set(ylabel="goals reached", ylim=(0, 1.02))
    plots.tidy(ax)
    ax.grid(visible=False, axis="x")
    figure.legend(ncols=2, loc="outside upper center", frameon=False)
    return figure


def draw_demonstrators(table: Rows) -> Any:
    """Draw goals against the number of demonstrations for each demonstrator, with small networks."""
    titles = {"human": "human", "astar": "A*", "noisy-astar": "A* with noise"}
    figure, axes = plots.panels(3, 2.7, 3.0, columns=3)
    for ax, (demonstrator, title) in zip(axes, titles.items(), strict=True):
        cell = [row for row in table if row["part"] != "P" and row["demonstrator"] == demonstrator]
        for agent, (label, color, hatch) in BARS.items():
            own = sorted((row for row in cell if row["agent"] == agent), key=lambda row: row["demos"])
            places, goals = range(len(own)), [row["goals"] for row in own]
            errors = np.abs(np.array([[row["low"], row["high"]] for row in own]).T - goals)
            style = {"linestyle": "--" if hatch else "-", "marker": "o", "markersize": 3, "linewidth": 1.2}
            ax.errorbar(places, goals, errors, color=color, label=label if ax is axes[0] else None, **style)
            ax.set_xticks(places, [row["demos"] for row in own])
        ax.set(xlabel="demonstrations", ylim=(0, 1.02))
        ax.set_title(title, fontsize=10)
        plots.tidy(ax)
    axes[0].set_ylabel("goals reached")
    figure.legend(ncols=4, loc="outside upper center", frameon=False, fontsize=9)
    return figure


def draw_dose(rows: Rows) -> Any:
    """Draw goals against the strength of the pull, with the paper's networks and with small ones."""
    titles = {"P": "the paper's networks", "F": "small networks"}
    agents = {"BC": ("bc+pull", "bc"), "PIDM": ("state/nearest", "pidm"), "delta-PIDM": ("delta/nearest", "delta-pidm")}
    figure, axes = plots.panels(2, 3.3, 3.1)
    for ax, (part, title) in zip(axes, titles.items(), strict=True):
        cell = choose(rows, part=part, demonstrator="human", demos=5)
        for label, (agent, style) in agents.items() if part == "F" else list(agents.items())[:2]:
            names = [BC if agent == "bc+pull" and pull == 0 else f"{agent}/{pull:g}" for pull in PULLS]
            found = [values(cell, name) for name in names]
            curve = [estimate_mean(list(each.values()), [seed for seed, _ in each], (0, 1)) for each in found]
            color, marker = plots.agent_style(style)[1:]
            ax.plot(PULLS, [each.value for each in curve], color=color, marker=marker, markersize=4, label=label)
            ends = [each.low for each in curve], [each.high for each in curve]
            ax.fill_between(PULLS, *ends, color=color, alpha=0.15, linewidth=0)
        ax.set(xlabel="strength of the pull", ylim=(0.7, 1.01), xticks=(0, 0.5, 1, 2))
        ax.set_title(title, fontsize=10)
        ax.legend(frameon=False, loc="lower right")
        plots.tidy(ax)
    axes[0].set_ylabel("goals reached")
    return figure


def draw_ranks(table: Rows) -> Any:
    """Draw each agent's goals against its action error and against its restoring coefficient."""
    chosen = [row for row in table if row["part"] == "F" and row["demos"] == 5 and np.isfinite(row["error"])]
    kinds = {"bc": ("BC and variants", "bc"), "": ("PIDM and variants", "pidm"), "look": ("lookup", "retrieval-bc")}
    figure, axes = plots.panels(2, 3.3, 3.3)
    for ax, metric, label in zip(axes, ("error", "restoring"), ("action error", "restoring coefficient"), strict=True):
        for kind, (title, style) in kinds.items():
            own = [row for row in chosen if kind_of(row["agent"]) == kind]
            at = [row[metric] for row in own], [row["goals"] for row in own]
            ax.scatter(*at, s=18, color=plots.agent_color(style), label=title if ax is axes[0] else None)
        for name, ending, offset in (
            ("denoising", "denoising", (0, -11)),
            ("BC with history", "bc-history", (-4, -13)),
        ):
            own = [row for row in chosen if row["agent"].endswith(ending)]
            at = np.mean([row[metric] for row in own]), min(row["goals"] for row in own)
            ax.annotate(
                name, at, offset, textcoords="offset points", fontsize=9, ha="center" if len(own) > 1 else "left"
            )
        ax.set(xlabel=label, ylim=(0.45, 1.02))
        plots.tidy(ax)
    axes[0].set_ylabel("goals reached")
    figure.legend(ncols=3, loc="outside lower center", frameon=False, fontsize=9)
    return figure


def kind_of(agent: str) -> str:
    """Return the group of an agent in figures."""
    if agent in ("retrieval-bc", "follow-action"):
        return "look"
    return "bc" if "bc" in agent else ""


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for the page."""

    def text(value: Any) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [list(rows[0]), ["---"] * len(rows[0]), *([text(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(jobs: Path | None = None, folder: Path = FOLDER) -> None:
    """Write results.csv from jobs, if given, and everything that is made of it."""
    folder.mkdir(parents=True, exist_ok=True)
    if jobs is not None:
        write_rows(folder / "results.csv", flatten(jobs))
    rows = read(folder / "results.csv")
    table = means(rows)
    write_rows(folder / "means.csv", table)
    write_rows(folder / "hypotheses.csv", hypotheses(rows))
    print(markdown([row for row in hypotheses(rows) if row["part"] == "P" or row["task"] == "all"]))
    plots.save_figure(draw_bars(rows), folder / "intervention.png")
    if choose(rows, part="F"):
        write_rows(folder / "ranks.csv", ranks(rows))
        print(markdown(ranks(rows)))
        plots.save_figure(draw_dose(rows), folder / "dose.png")
        plots.save_figure(draw_ranks(table), folder / "ranks.png")
    if choose(rows, part="C", demonstrator="noisy-astar"):
        plots.save_figure(draw_demonstrators(table), folder / "demonstrators.png")


if __name__ == "__main__":
    tyro.cli(main)
