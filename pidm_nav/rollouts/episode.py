"""Episode: the data of one episode, for rollouts, recorders, experts and files."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pidm_nav.world2d.state import REACHED, has_goal_flags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
MAX_VALUE = 1e9  # in observations and actions, whose squares are summed in float32


class Plottable:
    """Base class of objects that can be plotted as episodes, such as results; notebooks show a small plot.

    The plots are in `pidm_nav.pictures`, which needs matplotlib and is imported on first use.
    """

    def plot(self) -> Figure:
        """Plot the episodes' paths on their map or, without a map, their returns over time."""
        figure: Figure = pictures().plot(self)
        return figure

    def _repr_html_(self) -> str:
        return str(pictures().html(self, self.plot))


def pictures() -> Any:
    """Return the module `pidm_nav.pictures`, which imports this one."""
    return import_module("pidm_nav.pictures")


@dataclass(frozen=True, eq=False)
class Episode(Plottable):
    """One episode of T steps, with checked and read-only arrays."""

    observations: Array
    """(T+1, D) float32, or (T+1, H, W, C) uint8 images."""
    actions: Array
    """(T, A) float32, or (T, 0) if unknown."""
    rewards: Array
    """(T,) float32."""
    terminated: bool
    """Whether the episode terminated."""
    truncated: bool
    """Whether the episode was truncated."""
    seed: int | None = None
    """Seed of the reset."""
    infos: Mapping[str, Array] = field(default_factory=dict)
    """Further arrays by name, (T, ...) or (T+1, ...)."""

    def __post_init__(self) -> None:
        images = np.asarray(self.observations).dtype == np.uint8 and np.ndim(self.observations) == 4
        observations = _checked("observations", self.observations, np.uint8 if images else np.float32)
        actions = _checked("actions", self.actions, np.float32)
        rewards = _checked("rewards", self.rewards, np.float32)
        steps = len(np.atleast_1d(actions))
        if steps == 0:
            raise ValueError("an episode has no actions: leave it out")
        for name, array in (("observations", observations), ("actions", actions)):
            if (array.ndim != 2 and not (images and array is observations)) or 0 in observations.shape[1:]:
                raise ValueError(f"{name} have shape {array.shape}: give one row of numbers per step")
            if max(array.max(initial=0), -array.min(initial=0)) > MAX_VALUE:
                raise ValueError(f"{name} have a number beyond {MAX_VALUE:g}: drop the episode, or rescale it")
        if len(observations) != steps + 1:
            raise ValueError(
                f"an episode has {len(observations)} observations for {steps} actions: "
                f"give {steps + 1}, including the one after the last action"
            )
        if rewards.shape != (steps,):
            raise ValueError(f"rewards have shape {rewards.shape}: give ({steps},), one per action")
        infos = {str(key): _checked(f"info {key!r}", value, None) for key, value in self.infos.items()}
        for key, array in infos.items():
            if array.ndim == 0 or len(array) not in (steps, steps + 1) or (key == "goals_reached" and array.ndim > 1):
                raise ValueError(f"info {key!r} has shape {array.shape}: give {steps} or {steps + 1} rows")
        checked: dict[str, Any] = {"observations": observations, "actions": actions, "rewards": rewards, "infos": infos}
        for name in ("terminated", "truncated"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} is {reprlib.repr(getattr(self, name))}: it must be True or False")
            checked[name] = bool(getattr(self, name))
        if self.seed is not None:
            if not (isinstance(self.seed, int | np.integer) and 0 <= self.seed < 2**63):
                raise ValueError(f"the seed is {reprlib.repr(self.seed)}: it must be an integer of 0 or more")
            checked["seed"] = int(self.seed)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return T, the number of actions."""
        return len(self.actions)

    def __repr__(self) -> str:
        end = "success" if self.success else "terminated" if self.terminated else "truncated"
        goals = f", {self.goals_reached} goals" if "goals_reached" in self.infos else ""
        return f"Episode({len(self)} steps{goals}, return {self.rewards.sum():g}, {end}, seed {self.seed})"

    @property
    def goals_reached(self) -> int:
        """Number of goals reached; 0 if the environment reports none."""
        return int(self.infos["goals_reached"][-1]) if "goals_reached" in self.infos else 0

    @property
    def success(self) -> bool | None:
        """Whether the environment reported success or all goals were reached; None if unknown."""
        if "success" in self.infos:
            return bool(self.infos["success"].any())
        if has_goal_flags(self.observations):
            return self.terminated and bool((self.observations[-1, REACHED] == 1).all())
        return self.terminated if "goals_reached" in self.infos else None

    def cut(self, first: int, end: int) -> Episode:
        """Return steps `first` to `end` - 1; truncated without the end, and without a seed if the start is missing."""
        steps = len(self)
        return Episode(
            self.observations[first : end + 1],
            self.actions[first:end],
            self.rewards[first:end],
            terminated=self.terminated and end == steps,
            truncated=self.truncated or end < steps,
            seed=None if first else self.seed,
            infos={key: array[first : end + len(array) - steps] for key, array in self.infos.items()},
        )


def _checked(name: str, value: ArrayLike, dtype: type[np.generic] | None) -> Array:
    """Return a read-only copy; anything but finite numbers raises ValueError."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} are of type {array.dtype}: give numbers")
    with np.errstate(over="ignore"):
        checked = array.astype(dtype or array.dtype)
    if checked.dtype.kind == "f" and not np.isfinite(checked).all():
        where = np.argwhere(~np.isfinite(checked))[0].tolist()
        raise ValueError(f"{name} have a NaN or infinite number at {where}: drop the episode")
    checked.flags.writeable = False
    return checked
