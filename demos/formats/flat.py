"""Demonstrations from arrays in memory: flat arrays as in D4RL, and trajectories of the package `imitation`.

observations, actions    (N, D), (N, A) or (N,) if discrete: all episodes one after the other
rewards                  (N,), default 0
terminals, timeouts      (N,) flags of termination or truncation after this step: one of them suffices
next_observations        (N, D); without it, the last action of an episode is dropped, as its next observation is
                         unknown, and the episode counts as truncated
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pidm_nav.demos.dataset import DemoDataset, infer_task
from pidm_nav.limits import MAX_EPISODES
from pidm_nav.rollouts.episode import Episode

NAMES = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
FLAGS = ("terminals", "timeouts")


def is_flat(names: Iterable[str]) -> bool:
    """Return whether these are names of flat arrays with flags of episode ends."""
    return {"observations", "actions"} <= set(names) and not set(FLAGS).isdisjoint(names)


def from_flat(
    given: Mapping[str, ArrayLike], task: str | None, name: str | None = None, source: Mapping[str, Any] | None = None
) -> DemoDataset:
    """Split flat arrays into episodes; without a task, it is inferred from the goals, or is `name`."""
    if not is_flat(given):
        has = ", ".join(sorted(map(str, given))[:9]) or "nothing"
        raise ValueError(f"the arrays are {has}: give observations, actions, and terminals or timeouts")
    arrays = {key: _array(key, given[key]) for key in NAMES if given.get(key) is not None}
    steps = len(arrays["actions"])
    for key, array in arrays.items():
        if len(array) != steps:
            raise ValueError(f"{key} have {len(array):,} rows, and actions {steps:,}: give one row per step")
    if arrays.get("next_observations", arrays["observations"]).shape != arrays["observations"].shape:
        raise ValueError("next_observations and observations have different shapes: give one for each step")
    arrays |= {key: _flags(key, arrays[key]) if key in arrays else np.zeros(steps, bool) for key in FLAGS}
    if arrays["actions"].ndim == 1:  # discrete
        arrays["actions"] = arrays["actions"][:, None]
    arrays.setdefault("rewards", np.zeros(steps))
    found = task or infer_task(arrays["observations"]) or name
    if found is None:
        raise ValueError("these arrays do not name their task: give task= with a name or a Gymnasium id")
    episodes = tuple(_episodes(arrays))
    if not episodes:
        raise ValueError("no episode has two rows: give next_observations")
    made_by = "arrays" if name is None else f"arrays: {name}"
    return DemoDataset(found, episodes, {"made_by": made_by} if source is None else source)


def from_trajectories(trajectories: Any, task: str | None) -> DemoDataset:
    """Return a dataset from trajectories of `imitation`, with `obs`, `acts`, `terminal` and optional `rews`."""
    episodes = []
    if not isinstance(trajectories, Iterable):
        found = reprlib.repr(trajectories)
        raise ValueError(f"{found} is not a dataset: give a path, a dict of arrays or a list of trajectories")
    for index, each in enumerate(trajectories):
        try:
            actions, rewards = _array("acts", each.acts), getattr(each, "rews", None)
            rewards = np.zeros(len(actions)) if rewards is None else rewards
            ends = bool(each.terminal), not each.terminal
            episodes.append(Episode(each.obs, actions[:, None] if actions.ndim == 1 else actions, rewards, *ends))
        except AttributeError:
            raise ValueError(f"item {index} is {type(each).__name__}: give trajectories with obs and acts") from None
        except ValueError as error:
            raise ValueError(f"trajectory {index} cannot be used: {error}") from None
    if task is None and not (episodes and (task := infer_task(episodes[0].observations))):
        raise ValueError("trajectories do not name their task: give task= with a name or a Gymnasium id")
    return DemoDataset(task, tuple(episodes), {"made_by": "trajectories"})


def _episodes(arrays: Mapping[str, NDArray[Any]]) -> Iterator[Episode]:
    over = arrays["terminals"] | arrays["timeouts"]
    over[-1:] = True  # the last episode may be cut off
    ends = np.flatnonzero(over) + 1
    if len(ends) > MAX_EPISODES:
        raise ValueError(f"there are {len(ends):,} episodes: give at most {MAX_EPISODES:,}")
    for first, end in zip([0, *ends.tolist()], ends.tolist(), strict=False):
        observations, terminated = arrays["observations"][first:end], False
        if "next_observations" in arrays:
            observations = np.concatenate([observations, arrays["next_observations"][end - 1 : end]])
            terminated = bool(arrays["terminals"][end - 1])
        if len(observations) > 1:
            steps = slice(first, first + len(observations) - 1)
            yield Episode(observations, arrays["actions"][steps], arrays["rewards"][steps], terminated, not terminated)


def _array(name: str, value: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} have rows of different lengths: give equal rows of numbers, one per step") from None
    if array.ndim == 0 or array.dtype.kind not in "fiub":
        kind = f"of type {array.dtype}" if array.ndim else "one value"
        raise ValueError(f"{name} are {kind}: give an array of numbers with one row per step")
    return array


def _flags(name: str, array: NDArray[Any]) -> NDArray[np.bool_]:
    if array.size != len(array) or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} have shape {array.shape} or values besides 0 and 1: give one flag per step")
    return np.asarray(array.reshape(-1) == 1)
