"""Several policies in the same episodes: their results side by side, and what speaks for a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pidm_nav.console import counted
from pidm_nav.rollouts.episode import Plottable
from pidm_nav.rollouts.evaluation import EvalResult, mean_interval
from pidm_nav.video import Clip, side_by_side, write_video


@dataclass(frozen=True, eq=False)
class Comparison(Plottable):
    """Results of several policies in the same episodes, by name; each is compared with the first.

    The test is Wilcoxon's signed-rank test on the differences episode by episode. It tells whether these very agents
    differ; whether their methods do takes agents of several training seeds, as in a sweep.
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
                    "evaluate them with one task, one number of episodes and one seed"
                )

    @property
    def first(self) -> EvalResult:
        """The result that the others are compared with."""
        return next(iter(self.results.values()))

    @property
    def measure(self) -> str:
        """How performance is measured: as in the results, but by "return" only if none of them reports success."""
        return next((each.measure for each in self.results.values() if each.measure != "return"), "return")

    def scores(self, name: str) -> NDArray[np.float64]:
        """Return the performance of a policy in each episode, by `measure`."""
        result = self.results[name]
        return result.returns if self.measure == "return" else result.goal_ratio

    def table(self) -> list[dict[str, Any]]:
        """Return one row per policy: means, 95% bootstrap intervals, and the difference from the first with its p."""
        from scipy.stats import wilcoxon

        rows: list[dict[str, Any]] = []
        base = self.scores(next(iter(self.results)))
        for name, result in self.results.items():
            scores = self.scores(name)
            low, high = mean_interval(scores)
            row = {"agent": name, "mean": float(scores.mean()), "low": low, "high": high}
            row |= {"success": result.success_rate, "length": float(result.length.mean())}
            if rows:
                low, high = mean_interval(scores - base)
                row |= {"difference": float((scores - base).mean()), "difference_low": low, "difference_high": high}
                # two-sided; without any difference there is nothing to rank
                row["p"] = float(wilcoxon(scores - base).pvalue) if (scores != base).any() else 1.0
            rows.append(row)
        return rows

    def shown(self) -> list[dict[str, Any]]:
        """Return the table with texts for numbers, as it is printed."""
        name = next(iter(self.results))
        rows = []
        for row in self.table():
            shown = {"agent": row["agent"], self.measure: f"{row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f})"}
            shown |= {"success": f"{row['success']:.0%}", "steps": f"{row['length']:.0f}"}
            if len(self.results) > 1:
                columns = (f"difference from {name}", "p")
                difference = "{difference:+.3f} ({difference_low:+.3f} to {difference_high:+.3f})"
                texts = (difference.format(**row), f"{row['p']:.2g}") if "p" in row else ("", "")
                shown |= dict(zip(columns, texts, strict=True))
            rows.append(shown)
        return rows

    def episodes(self) -> list[dict[str, Any]]:
        """Return one row per policy and episode, of plain JSON types."""
        return [{"agent": name, **row} for name, result in self.results.items() for row in result.table()]

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {self.scores(name).mean():.3f}" for name in self.results)
        return (
            f"Comparison({self.first.task.name}, {counted(len(self.first.seeds), 'episode')}, {self.measure}: {means})"
        )

    def _repr_html_(self) -> str:
        rows = self.shown()
        lines = [("th", rows[0])] + [("td", row.values()) for row in rows]
        cells = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) for tag, line in lines)
        table = f"<table>{''.join(f'<tr>{line}</tr>' for line in cells)}</table>"
        return str(self.pictures().html(self, self.plot, table))

    def frames(self, episode: int = 0, size: int = 400) -> list[NDArray[np.uint8]]:
        """Return the pictures of an episode with all policies side by side; those that are done wait for the others."""
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
        """Write an episode side by side to a file or, without a path, return a clip that notebooks show."""
        frames, fps = self.frames(episode, size), self.first.task.fps
        return Clip(frames, fps) if path is None else write_video(frames, path, fps)
