"""The paper's efficiency ratios: how many times more demonstrations one agent needs than another.

Definitions, after the paper's Section 5:

    maximum      "the task's maximum performance": the highest point of any curve of that task
    n(A, c)      the smallest measured number of demonstrations at which A's curve reaches c * maximum
    eta(c)       n(baseline, c) / n(agent, c)

The paper's ratios (1.33 = 40/30, 2.5 = 5/2) show that n(A, c) is one of the measured sizes, not interpolated. A curve
that falls later has still reached the level. Curves are at their best checkpoint; pass `curve.last()` for the end of
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pidm_nav.experiments.curves import Curve
from pidm_nav.statistics import REPETITIONS, Floats, estimate_mean, percentile_interval

Side = tuple[str, str]
"""One side of a ratio: an agent and the source of its demonstrations, such as ("pidm", "human")."""
Bound = Literal["=", ">", "<", "?"]
BOUNDS: dict[tuple[bool, bool], Bound] = {  # by whether the agent and the baseline reach the level
    (True, True): "=",
    (True, False): ">",
    (False, True): "<",
    (False, False): "?",
}
EFFICIENCY_LEVELS = (0.80, 0.90, 0.95)
# of rounding errors: a curve at exactly 90% must not miss the 90% level
TOLERANCE = 1e-9


def task_maximum(curves: Sequence[Curve]) -> float:
    """Return the maximum performance of a task: the highest mean over seeds of its curves."""
    return float(np.fmax.reduce(np.concatenate([curve.mean for curve in curves])))


def demos_needed(sizes: Sequence[int], curve: ArrayLike, level: ArrayLike) -> Floats:
    """Return n(A, c) (...) of mean curves (..., sizes): the first size that scores at least `level`, else nan."""
    threshold = np.asarray(level, dtype=np.float64)[..., None] - TOLERANCE
    reached = np.asarray(curve, dtype=np.float64) >= threshold  # a missing cell (nan) has reached nothing
    first = np.asarray(sizes, dtype=np.float64)[reached.argmax(axis=-1)]
    return np.where(reached.any(axis=-1), first, np.nan)


@dataclass(frozen=True, eq=False)
class EfficiencyRatio:
    """eta(level) of agent over baseline: = value, > value, < value, or ? when neither reached the level."""

    task: str
    agent: str
    baseline: str
    level: float
    demos_agent: float  # n(agent, level), nan when never reached
    demos_baseline: float
    value: float
    bound: Bound
    # (repetitions,): inf where the baseline, 0 where the agent, nan where neither reached the level
    replicates: Floats = field(repr=False)
    seeds: int  # number of seeds
    # upper bound of a ratio if the agent never reaches the level, lower bound if the baseline never does
    limits: tuple[float, float]

    @property
    def interval(self) -> tuple[float, float]:
        """95% bootstrap interval over seeds; 0 or inf if one side does not reach the level."""
        return percentile_interval(self.replicates, self.seeds)

    @property
    def undefined(self) -> float:
        """Fraction of replicates in which neither side reaches the level, without which the interval is computed."""
        return float(np.isnan(self.replicates).mean())

    def __str__(self) -> str:
        words = {"=": "", ">": "more than ", "<": "less than "}
        return "not reached" if self.bound == "?" else f"{words[self.bound]}{self.value:.3g}"


def efficiency_ratio(
    agent: Curve, baseline: Curve, level: float = 0.90, *, rng: np.random.Generator, peers: Sequence[Curve] = ()
) -> EfficiencyRatio:
    """Return eta(level) with its bootstrap replicates.

    Seeds are resampled, the same for all curves and sizes, as scores of one seed share demonstrations and weights.

    Args:
        agent: curve of the agent.
        baseline: curve of the baseline.
        level: fraction c of the maximum to reach.
        rng: random generator of the bootstrap.
        peers: further curves of the task that count for its maximum.
    """
    curves = list({id(curve): curve for curve in (agent, baseline, *peers)}.values())
    seeds = sorted({seed for curve in curves for seed in curve.seeds})
    draws = np.array(seeds)[rng.integers(len(seeds), size=(REPETITIONS, len(seeds)))]
    means = {id(c): np.vstack([c.mean, c.bootstrap(draws)]) for c in curves}  # the first row is the data's
    tops = level * np.fmax.reduce(np.concatenate(list(means.values()), axis=1), axis=1)
    needed = np.array([demos_needed(c.sizes, means[id(c)], tops) for c in (agent, baseline)])
    never = np.isnan(needed)
    replicates = np.select([never.all(axis=0), *never[::-1]], [np.nan, np.inf, 0.0], needed[1] / needed[0])
    (below, above), bound = needed[:, 0], BOUNDS[not never[0, 0], not never[1, 0]]
    # a side that never reaches the level needs more than its largest measured size, which gives a bound
    least, most = (c.sizes[-1] if np.isnan(n) else n for c, n in ((agent, below), (baseline, above)))
    value = np.nan if bound == "?" else most / least
    limits = most / agent.sizes[-1], baseline.sizes[-1] / least
    names = [f"{c.agent} ({c.demos_from})" for c in (agent, baseline)]
    found = agent.task, names[0], names[1], level, below, above, value, bound
    return EfficiencyRatio(*found, replicates[1:], len(seeds), limits)


def average_ratio(ratios: Sequence[EfficiencyRatio]) -> EfficiencyRatio:
    """Return the paper's average over tasks: the arithmetic mean, which is a bound if one ratio is."""
    bounds = {ratio.bound for ratio in ratios} - {"="}
    bound: Bound = "=" if not bounds else bounds.pop() if len(bounds) == 1 else "?"
    value = np.nan if bound == "?" else float(np.mean([ratio.value for ratio in ratios]))
    replicates = np.mean([ratio.replicates for ratio in ratios], axis=0)
    low, high = np.mean([ratio.limits for ratio in ratios], axis=0).tolist()
    seeds = min(ratio.seeds for ratio in ratios)
    average = replace(ratios[0], task="average", value=value, bound=bound, replicates=replicates, seeds=seeds)
    return replace(average, demos_agent=np.nan, demos_baseline=np.nan, limits=(low, high))


def paired(curves: Sequence[Curve], agent: Side, baseline: Side) -> dict[str, tuple[Curve, Curve]]:
    """Return the curves of both sides for each task with both."""
    named = {(c.task, c.agent, c.demos_from): c for c in curves}
    tasks = [task for task, *who in named if tuple(who) == agent and (task, *baseline) in named]
    return {task: (named[(task, *agent)], named[(task, *baseline)]) for task in tasks}


def efficiency_table(
    curves: Sequence[Curve], agent: Side, baseline: Side, *, rng: np.random.Generator
) -> list[EfficiencyRatio]:
    """Return, for each level, the ratios of all tasks with both curves, and their average.

    All curves with the demonstrations of either side count for the task's maximum.
    """
    table = []
    state = int(rng.integers(2**63))  # all tasks resample the same seeds, as jobs of a seed share its randomness
    pairs = paired(curves, agent, baseline)
    for level in EFFICIENCY_LEVELS if pairs else ():
        ratios = []
        for task, pair in pairs.items():
            peers = [c for c in curves if c.task == task and c.demos_from in (agent[1], baseline[1])]
            ratios.append(efficiency_ratio(*pair, level, rng=np.random.default_rng(state), peers=peers))
        table += [*ratios, average_ratio(ratios)]
    return table


def paired_tests(agent: Curve, baseline: Curve) -> list[dict[str, Any]]:
    """Return the paired t-test of agent minus baseline over their common seeds, at each common size."""
    rows = []
    seeds = [seed for seed in agent.seeds if seed in baseline.seeds]
    for size in (s for s in agent.sizes if s in baseline.sizes):
        left, right = (
            curve.seed_scores[curve.sizes.index(size), [curve.seeds.index(seed) for seed in seeds]]
            for curve in (agent, baseline)
        )
        difference, low, high, p, count = estimate_mean(left - right)
        row = {"task": agent.task, "demos": size, "seeds": count, "difference": difference}
        rows.append({**row, "low": low, "high": high, "p": p})
    return rows
