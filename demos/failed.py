"""Failed demonstrations: how training treats episodes that are known to have failed.

Agents would also imitate how a demonstrator gave up. Episodes that do not report success are used unchanged.
docs/demonstrations.md has measurements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from pidm_nav.console import counted, say
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.episode import Episode

Failed = Literal["keep", "drop", "trim"]
"""Treatment of failed episodes: keep them, drop them, or trim them after the last reached goal."""
DONE = {"drop": "dropped", "trim": "trimmed after the last reached goal"}


def without_failed(dataset: DemoDataset, how: Failed = "drop", quiet: bool = True) -> DemoDataset:
    """Return the demonstrations with failed ones dropped or trimmed; all unchanged if none succeeds."""
    if how not in get_args(Failed):
        raise ValueError(f"failed is '{how}': choose {', '.join(get_args(Failed))}")
    failed, total = dataset.num_failed, counted(len(dataset), "demonstration")
    if how == "keep" or not failed:
        return dataset
    if failed == len(dataset):
        if not quiet:
            say(f"warning: none of {total} succeeds, and all are kept: record successful ones")
        return dataset
    if not quiet:
        say(f"{failed} of {total} failed: {DONE[how]} (failed={how})")
    kept = []
    for episode in dataset:
        if episode.success is not False:
            kept.append(episode)
        elif how == "trim" and (end := _last_goal_step(dataset, episode)):
            kept.append(episode.cut(0, end))
    return replace(dataset, episodes=tuple(kept))


def _last_goal_step(dataset: DemoDataset, episode: Episode) -> int:
    """Return the number of steps to the last reached goal of an episode; 0 if there is none."""
    flags = list(dataset.goal_flags)
    reached = episode.observations[:, flags].sum(axis=1) if flags else episode.infos.get("goals_reached", np.zeros(1))
    grows = np.flatnonzero(np.diff(reached) > 0) + 2 + len(episode) - len(reached)
    return int(grows[-1]) if len(grows) else 0
