"""Failed demonstrations: what training does with episodes that are known not to have succeeded.

A demonstrator who gave up shows where to stand still or to wander about, and agents learn that, too. Episodes that do
not say whether they succeeded are always used whole. docs/demonstrations.md has measurements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from pidm_nav.console import counted, say
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.episode import Episode

Failed = Literal["keep", "drop", "trim"]
"""What to do with failed episodes: use them whole, leave them out, or use them up to the last goal they reach."""
DONE = {"drop": "left out", "trim": "used up to the last goal that is reached"}


def without_failed(dataset: DemoDataset, how: Failed = "drop", quiet: bool = True) -> DemoDataset:
    """Return the demonstrations without failed ones or their ends; all of them as they are if none succeeds."""
    if how not in get_args(Failed):
        raise ValueError(f"failed is '{how}': choose {', '.join(get_args(Failed))}")
    failed, total = dataset.num_failed, counted(len(dataset), "demonstration")
    if how == "keep" or not failed:
        return dataset
    if failed == len(dataset):
        if not quiet:
            say(f"warning: none of {total} succeeds, and all are used as they are: record successful ones")
        return dataset
    if not quiet:
        say(f"{failed} of {total} failed: {DONE[how]}; failed='keep' (--failed keep) uses all as they are")
    kept = []
    for episode in dataset:
        if episode.success is not False:
            kept.append(episode)
        elif how == "trim" and (end := _last_goal_step(dataset, episode)):
            kept.append(episode.cut(0, end))
    return replace(dataset, episodes=tuple(kept))


def _last_goal_step(dataset: DemoDataset, episode: Episode) -> int:
    """Return how many steps lead to the last goal that an episode reaches; 0 if it reaches or shows none."""
    flags = list(dataset.goal_flags)
    reached = episode.observations[:, flags].sum(axis=1) if flags else episode.infos.get("goals_reached", np.zeros(1))
    grows = np.flatnonzero(np.diff(reached) > 0) + 2 + len(episode) - len(reached)
    return int(grows[-1]) if len(grows) else 0
