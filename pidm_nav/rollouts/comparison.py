"""Comparison of several policies on the same episodes, with intervals and a paired test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pidm_nav.console import counted
from pidm_nav.rollouts.episode import Plottable, pictures
from pidm_nav.rollouts.evaluation import EvalResult
from pidm_nav.statistics import estimate_mean, holm, interval_text
from pidm_nav.tasks import OBSERVED, Metric, Task
from pidm_nav.video import Clip, side_by_side, write_video


def check_same_world(task: Task, env_kwargs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ValueError if the environments of policies, by name, differ in more than their observations."""
    worlds = {name: {**task.defaults, **own} for name, own in env_kwargs.items()}
    (first, own), *others = worlds.items()
    for name, other in others:
        for key in sorted((own.keys() | other.keys()) - set(OBSERVED)):
            if own.get(key) != other.get(key):
                values = f"({own.get(key)} and {other.get(key)})"
                raise ValueError(f"{first} and {name} have different {key} {values}: evaluate them separately")


@dataclass(frozen=True, eq=False)
class Comparison(Plottable):
    """Results of several policies on the same episodes, by name; each is compared with the first.

    The test is Wilcoxon's signed-rank test on the differences per episode, with Holm's correction for several tests. It
    compares these agents. To compare methods, train several seeds with a sweep.
    """

    results: Mapping[str, EvalResult]

    def __post_init__(self) -> None:
        if not self.results:
            raise ValueError("there are no results to compare: give at least one")
        (first, own), *others = self.results.items()
        for name, other in others:
            if other.task.name != own.task.name or not np.array_equal(other.seeds, own.seeds):
                played = (f"{counted(len(each.seeds), 'episode')} of {each.task.name}" for each in (other, own))
                raise ValueError(
                    f"{name} and {first} have not played the same episodes ({', '.join(played)}): "
                    "evaluate them with the same task, number of episodes and seed"
                )
        check_same_world(own.task, {name: each.env_kwargs for name, each in self.results.items()})
        for name, other in others:
            if other.max_steps != own.max_steps:
                limits = f"{first} {own.max_steps}, {name} {other.max_steps}"
                raise ValueError(f"the results have different step limits ({limits}): evaluate them with the same")
        if len({each.metric for each in self.results.values()}) > 1:
            raise ValueError("the results have different metrics: evaluate all policies with the same metric")

    @property
    def first(self) -> EvalResult:
        """Result with which the others are compared."""
        return next(iter(self.results.values()))

    @property
    def metric(self) -> Metric:
        """Metric of the task."""
        return self.first.metric

    def scores(self, name: str) -> NDArray[np.float64]:
        """Return the score of a policy in each episode, by `metric`."""
        return self.results[name].scores

    def table(self) -> list[dict[str, Any]]:
        """Return one row per policy: means, 95% intervals, and the difference from the first with its p-value."""
        from scipy.stats import wilcoxon

        rows: list[dict[str, Any]] = []
        base = self.scores(next(iter(self.results)))
        for name, result in self.results.items():
            scores = self.scores(name)
            low, high = result.interval
            row = {"agent": name, "mean": float(scores.mean()), "low": low, "high": high}
            row |= {} if result.success is None else {"success": result.success_rate}
            row["length"] = float(result.length.mean())
            if rows:
                gain = estimate_mean(scores - base)
                row |= {"difference": gain.value, "difference_low": gain.low, "difference_high": gain.high}
                # Wilcoxon's test is undefined without any difference
                row["p"] = float(wilcoxon(scores - base).pvalue) if (scores != base).any() else 1.0
            rows.append(row)
        for row, p in zip(rows[1:], holm([row["p"] for row in rows[1:]]), strict=True):
            row["p"] = p
        return rows

    def shown(self) -> list[dict[str, Any]]:
        """Return the table as texts."""
        name = next(iter(self.results))
        rows = []
        for row in self.table():
            shown = {"agent": row["agent"], self.metric: f"{row['mean']:.3f}{interval_text(row['low'], row['high'])}"}
            if self.metric == "goal ratio":
                shown["success"] = f"{row['success']:.0%}"
            shown["steps"] = f"{row['length']:.0f}"
            if len(self.results) > 1:
                columns = (f"difference from {name}", "p")
                shown |= dict.fromkeys(columns, "")
                if "p" in row:
                    interval = interval_text(row["difference_low"], row["difference_high"], "+.3f")
                    shown |= {columns[0]: f"{row['difference']:+.3f}{interval}", "p": f"{row['p']:.2g}"}
            rows.append(shown)
        return rows

    def episodes(self) -> list[dict[str, Any]]:
        """Return one row of plain JSON values per policy and episode."""
        return [{"agent": name, **row} for name, result in self.results.items() for row in result.table()]

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {self.scores(name).mean():.3f}" for name in self.results)
        return (
            f"Comparison({self.first.task.name}, {counted(len(self.first.seeds), 'episode')}, {self.metric}: {means})"
        )

    def _repr_html_(self) -> str:
        rows = self.shown()
        lines = [("th", rows[0])] + [("td", row.values()) for row in rows]
        cells = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) for tag, line in lines)
        table = f"<table>{''.join(f'<tr>{line}</tr>' for line in cells)}</table>"
        return str(pictures().html(self, self.plot, table))

    def frames(self, episode: int = 0, size: int = 400) -> list[NDArray[np.uint8]]:
        """Return the pictures of an episode with all policies side by side; ended episodes wait for the others."""
        films = [result.frames(episode, size) for result in self.results.values()]
        kept = (result.episodes[episode].infos if result.episodes else {} for result in self.results.values())
        counts = [infos.get("goals_reached") for infos in kept]
        of_all = f"of {self.first.num_goals} goals"
        frames = []
        for step in range(max(map(len, films))):
            now = [min(step, len(film) - 1) for film in films]
            titles = [
                name if count is None else f"{name}: {count[at]} {of_all}"
                for name, count, at in zip(self.results, counts, now, strict=True)
            ]
            frames.append(side_by_side([film[at] for film, at in zip(films, now, strict=True)], titles))
        return frames

    @overload
    def video(self, path: str | Path, episode: int = 0, size: int = 400) -> Path: ...
    @overload
    def video(self, path: None = None, episode: int = 0, size: int = 400) -> Clip: ...
    def video(self, path: str | Path | None = None, episode: int = 0, size: int = 400) -> Path | Clip:
        """Write an episode side by side to a file or, without a path, return a clip for notebooks."""
        frames, fps = self.frames(episode, size), self.first.task.fps
        return Clip(frames, fps) if path is None else write_video(frames, path, fps)
