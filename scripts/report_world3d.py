"""Write the tables and figures of docs/results/world3d from the jobs of scripts/run_world3d.py.

Run it:  python scripts/report_world3d.py [--jobs FOLDER/jobs.jsonl]

With a file of jobs, they are added to results.csv first; without one, the tables and figures are made again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from report_what_wins import choose, markdown, read
from scipy.optimize import brentq
from scipy.stats import nct, t, ttest_ind

from pidm_nav import plots
from pidm_nav.experiments.efficiency import demos_needed
from pidm_nav.files import write_rows
from pidm_nav.statistics import Mean, estimate_mean, holm, percentile_interval, resample

FOLDER = Path(__file__).parents[1] / "docs/results/world3d"
KEYS = ("part", "variety", "demos", "seed")
SCORES = ("alone", "ordered", "restoring12", "restoring24", "error")
ABOUT = ("own_future_error", "future_use", "action_variance", "pose_error")  # of the trained PIDM of a cell
SIZES, MIDDLE, VARIETIES = (5, 10, 15, 20, 30), 15, (0.0, 0.5, 1.0)
JOBS = {"A": {*SIZES}, "B": {MIDDLE}, "C": {MIDDLE}, "D": {0.5, 1.0}, "E": {*SIZES} - {MIDDLE}}  # of a whole seed
LEVEL = 0.8  # mean score that the ratio of demonstrations is about, as in the paper
CONTROLS = [("bc-time", "bc"), ("bc-history", "bc"), ("pidm", "pidm-own"), ("pidm", "pidm-present")]
PULLS = [("pidm", "pidm/time/0"), ("pidm/pose/1", "pidm"), ("bc+pull/0.25", "bc")]
TITLES = {
    "bc": "BC",
    "bc-time": "BC with the time step",
    "bc-history": "BC with three states",
    "bc+pull/0.25": "BC with pull of 0.25, pose",
    "bc+pull/1": "BC with pull of 1, pose",
    "pidm": "PIDM",
    "pidm-own": "PIDM, the walker's own future",
    "pidm-present": "PIDM, shown the present",
    "pidm/time/0": "PIDM without pull",
    "pidm/nearest/1": "PIDM, nearest features",
    "pidm/nearest/0": "PIDM, nearest features, no pull",
    "pidm/pose/1": "PIDM, nearest pose",
    "pidm/pose/0": "PIDM, nearest pose, no pull",
    "pidm/pose-follow/1": "PIDM, tracked pose",
    "pidm/read-pose/1": "PIDM, nearest regressed pose",
}
Rows = list[dict[str, Any]]


def flatten(jobs: Path) -> Rows:
    """Return one row per job and agent, of whole seeds only; part E has the controls of part B at other sizes."""
    found = [json.loads(line) for line in jobs.read_text(encoding="utf-8").splitlines()]
    for each in found:
        each["part"] = "E" if each["part"] == "B" and each["demos"] != MIDDLE else each["part"]
    done: dict[tuple[str, int], set[float]] = defaultdict(set)
    for each in found:
        done[each["part"], each["seed"]].add(each["variety"] if each["part"] == "D" else each["demos"])
    rows = [
        {**{key: each[key] for key in KEYS}, "agent": agent}
        | {name: scores[name] for name in SCORES}
        | {name: each["about"][name] if agent == "pidm" else "" for name in ABOUT}
        for each in found
        if done[each["part"], each["seed"]] == JOBS[each["part"]]
        for agent, scores in each["agents"].items()
    ]
    return sorted(rows, key=lambda row: tuple(row[key] for key in KEYS))


def load(path: Path) -> Rows:
    """Return results.csv with numbers as numbers."""
    rows = read(path, (*SCORES, *ABOUT))
    return [{**row, "variety": float(row["variety"])} for row in rows]


def by_seed(rows: Rows, agent: str, metric: str) -> dict[int, list[float]]:
    """Return an agent's values by training seed; the agents of part A also take part where n is 15."""
    found: dict[int, list[float]] = defaultdict(list)
    for row in choose(rows, agent=agent):
        found[row["seed"]].append(row[metric])
    return found


def compare(rows: Rows, first: str, second: str, metric: str) -> Mean:
    """Return the mean over seeds of first minus second."""
    one, other = (by_seed(rows, agent, metric) for agent in (first, second))
    return estimate_mean([np.mean(one[seed]) - np.mean(other[seed]) for seed in sorted(one.keys() & other.keys())])


def smallest_seen(error: float, freedom: float, power: float = 0.8) -> float:
    """Return the smallest true difference that a two-sided t-test at 5% finds with this probability.

    Args:
        error: standard error of the difference.
        freedom: degrees of freedom of the test.
        power: probability.
    """
    critical = t.ppf(0.975, freedom)
    return float(error * brentq(lambda shift: nct.sf(critical, freedom, shift) - power, 0, 10))  # in one direction


def paired_seen(mean: Mean) -> float:
    """Return the smallest difference that a paired t-test would have found, from the interval of the mean."""
    freedom = mean.units - 1
    return smallest_seen((mean.high - mean.value) / t.ppf(0.975, freedom), freedom)


def line(test: str, part: str, demos: Any, of: str, metric: str, mean: Mean, p: float, seen: float) -> dict[str, Any]:
    """Return a line of the table of tests."""
    named = {"test": test, "part": part, "demos": demos, "of": of, "metric": metric}
    return {**named, **mean._asdict(), "p": p, "smallest": seen}


def paired_tests(test: str, rows: Rows, pairs: Iterable[tuple[str, str, str]], part: str, demos: Any) -> Rows:
    """Return paired t-tests over seeds, with Holm's correction among them."""
    table = []
    for first, second, metric in pairs:
        mean = compare(rows, first, second, metric)
        table.append(line(test, part, demos, f"{first} - {second}", metric, mean, mean.p, paired_seen(mean)))
    for row, p in zip(table, holm([row["p"] for row in table]), strict=True):
        row["p"] = p
    return table


def tests(rows: Rows) -> Rows:
    """Return the plan's tests, as far as their jobs are done."""
    lead = choose(rows, part="A")
    table = paired_tests("primary", lead, [("pidm", "bc", "alone")], "A", "all")
    table += paired_tests("secondary", lead, [("pidm", "bc", "ordered")], "A", "all")
    for metric in ("alone", "ordered"):
        sizes = []
        for demos in SIZES:
            own = choose(lead, demos=demos)
            scores = [[row[metric] for row in choose(own, agent=agent)] for agent in ("pidm", "bc")]
            welch = ttest_ind(*scores, equal_var=False)
            p, value = float(welch.pvalue), float(np.mean(scores[0]) - np.mean(scores[1]))
            low, high = map(float, welch.confidence_interval())
            mean, seen = Mean(value, low, high, p, len(scores[0])), smallest_seen(value / welch.statistic, welch.df)
            sizes.append(line("per size, Welch", "A", demos, "pidm - bc", metric, mean, p, seen))
        for row, p in zip(sizes, holm([row["p"] for row in sizes]), strict=True):
            row["p"] = p
        table += sizes
    middle = choose(rows, demos=MIDDLE, variety=0.0)
    if choose(rows, part="B"):
        table += paired_tests("controls", middle, [(*pair, "alone") for pair in CONTROLS], "B", MIDDLE)
    if choose(rows, part="C"):
        pairs = [*((*pair, "alone") for pair in PULLS), ("pidm", "bc", "restoring12")]
        table += paired_tests("pull", middle, pairs, "C", MIDDLE)
    if choose(rows, part="D"):
        seeds = {row["seed"] for row in choose(rows, part="D")}
        for variety in VARIETIES:
            own = [row for row in choose(rows, demos=MIDDLE, variety=variety) if row["seed"] in seeds]
            mean = compare(own, "pidm", "bc", "alone")
            of = f"pidm - bc, variety {variety:g}"
            table.append(line("variety", "D", MIDDLE, of, "alone", mean, float("nan"), paired_seen(mean)))
    return table


def ratio(rows: Rows, metric: str) -> dict[str, Any]:
    """Return how many demonstrations both agents need to pass 80% of the milestones, and BC's over PIDM's."""
    lead = choose(rows, part="A")
    seeds = sorted({row["seed"] for row in lead})
    scores = {(row["agent"], row["seed"], row["demos"]): row[metric] for row in lead}
    curves = np.array([[[scores[a, seed, n] for a in ("pidm", "bc")] for n in SIZES] for seed in seeds])
    drawn = resample(curves, np.random.default_rng(0))  # (repetitions, seeds, sizes, agents)
    means = np.concatenate([curves.mean(axis=0)[None], drawn.mean(axis=1)])
    needed = [demos_needed(SIZES, means[..., agent], LEVEL) for agent in range(2)]
    pidm, bc = (np.where(np.isnan(each), np.inf, each) for each in needed)
    ratios = np.divide(bc, pidm, out=np.full(len(means), np.nan), where=np.isfinite(bc) | np.isfinite(pidm))
    low, high = percentile_interval(ratios[1:], len(seeds))
    found = {"metric": metric, "level": LEVEL, "pidm": pidm[0], "bc": bc[0], "ratio": ratios[0]}
    return {**found, "low": low, "high": high, "seeds": len(seeds)}


def means(rows: Rows) -> Rows:
    """Return each agent's means over seeds, with the interval of both scores."""
    table = []
    for part, variety, demos, agent in dict.fromkeys((*(row[key] for key in KEYS[:3]), row["agent"]) for row in rows):
        own = choose(rows, part=part, variety=variety, demos=demos, agent=agent)
        found: dict[str, Any] = {"part": part, "variety": variety, "demos": demos, "agent": agent, "seeds": len(own)}
        for name in ("alone", "ordered"):
            mean = estimate_mean([row[name] for row in own], bounds=(0, 1))
            found |= {name: mean.value, f"{name}_low": mean.low, f"{name}_high": mean.high}
        found |= {name: float(np.mean([row[name] for row in own])) for name in (*SCORES[2:], *ABOUT)}
        table.append(found)
    return table


def draw_curves(rows: Rows) -> Any:
    """Draw milestones against the number of demonstrations, and the paired difference in both scorings."""
    lead = choose(rows, part="A")
    figure, (curves, gains) = plots.panels(2, 4.2, 3.2)
    table = {(row["agent"], row["demos"]): row for row in means(lead)}
    for agent in ("bc", "pidm"):
        own = [table[agent, demos] for demos in SIZES]
        color = plots.agent_color(agent)
        bands = [[row[f"alone_{side}"] for row in own] for side in ("low", "high")]
        curves.fill_between(SIZES, *bands, color=color, alpha=0.15, linewidth=0)
        curves.plot(SIZES, [row["alone"] for row in own], "o-", color=color, markersize=4, label=TITLES[agent])
    curves.set(xlabel="demonstrations", ylabel="milestones passed", ylim=(0, 1), xticks=SIZES)
    scorings = (("alone", "#364fc7", "each by itself", -0.3), ("ordered", "#868e96", "in their order", 0.3))
    for metric, color, name, shift in scorings:
        found = [compare(choose(lead, demos=demos), "pidm", "bc", metric) for demos in SIZES]
        bars = [[mean.value - mean.low for mean in found], [mean.high - mean.value for mean in found]]
        places, values = [demos + shift for demos in SIZES], [mean.value for mean in found]
        gains.errorbar(places, values, bars, fmt="o", color=color, label=name, markersize=4, linewidth=1.5)
    gains.axhline(0, color="#adb5bd", linewidth=1, zorder=0)
    gains.set(xlabel="demonstrations", ylabel="milestones passed, PIDM minus BC", xticks=SIZES)
    for ax in (curves, gains):
        ax.legend(loc="lower right", frameon=False)
        plots.tidy(ax)
    return figure


def draw_pulls(rows: Rows) -> Any:
    """Draw every agent with 15 demonstrations: milestones minus BC's, and the restoring coefficient."""
    middle = [row for row in choose(rows, demos=MIDDLE, variety=0.0) if row["part"] in "ABC"]
    gains = {agent: compare(middle, agent, "bc", "alone") for agent in TITLES if choose(middle, agent=agent)}
    ordered = sorted(gains, key=lambda agent: gains[agent].value)
    figure, axes = plots.panels(2, 4.8, 4.2)
    for place, agent in enumerate(ordered):
        color = plots.agent_color("bc" if agent.startswith("bc") else "pidm")
        back = estimate_mean([row["restoring12"] for row in choose(middle, agent=agent)])
        for ax, mean in zip(axes, (gains[agent], back), strict=True):
            ax.plot([mean.low, mean.high], [place, place], color=color, linewidth=3, alpha=0.4)
            ax.plot(mean.value, place, "o", color=color, markersize=5)
    for ax, name in zip(axes, ("milestones passed, minus BC's", "restoring coefficient after 12 steps"), strict=True):
        ax.axvline(0, color="#adb5bd", linewidth=1, zorder=0)
        ax.set_xlabel(name)
        ax.set_yticks(range(len(ordered)), [TITLES[agent] for agent in ordered])
        plots.tidy(ax)
    axes[1].set_yticklabels([])
    return figure


def main(jobs: Path | None = None, folder: Path = FOLDER) -> None:
    """Add jobs to results.csv, if given, and write everything that is made of it."""
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.csv"
    if jobs is not None:
        found = [*(load(results) if results.exists() else []), *flatten(jobs)]
        rows = {
            tuple(row[key] for key in (*KEYS, "agent")): row for row in found
        }  # a job that was run again counts once
        write_rows(results, [rows[key] for key in sorted(rows, key=lambda key: key[:-1])])
    rows = load(results)
    ratios = [ratio(rows, metric) for metric in ("alone", "ordered")]
    for name, table in {"tests": tests(rows), "means": means(rows), "ratios": ratios}.items():
        write_rows(folder / f"{name}.csv", table)
        print(markdown(table))
    plots.save_figure(draw_curves(rows), folder / "curves.png")
    if choose(rows, part="C"):
        plots.save_figure(draw_pulls(rows), folder / "pull.png")


if __name__ == "__main__":
    tyro.cli(main)
