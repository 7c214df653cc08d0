"""The four tasks of the paper: a map, a room and a step limit each; and the state vector they share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.world2d.layout import Layout


@dataclass(frozen=True)
class Task:
    """A task as the paper names it; the map is read when it is first needed."""

    name: str  # as in files and on the command line
    title: str  # as in tables and figures
    env_id: str
    max_steps: int
    num_goals: int
    room_size: tuple[int, int]

    @property
    def state_dim(self) -> int:
        """Length of the state vector."""
        return 2 + 3 * self.num_goals

    @cached_property
    def layout(self) -> Layout:
        """The task's map."""
        text = (files("pidm_nav.world2d") / "maps" / f"{self.name}.txt").read_text(encoding="utf-8")
        return Layout.parse(text, self.room_size)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("four-room", "Four room", "PIDMNav-FourRoom-v0", 200, 4, (800, 800)),
        Task("zigzag", "Zigzag", "PIDMNav-Zigzag-v0", 150, 6, (800, 800)),
        Task("maze", "Maze", "PIDMNav-Maze-v0", 300, 10, (800, 800)),
        Task("multiroom", "Multiroom", "PIDMNav-Multiroom-v0", 500, 6, (1000, 1000)),
    )
}


def get_task(name: str | Task) -> Task:
    """The task of that name, spelled `four-room`, `four_room`, `FourRoom` or `PIDMNav-FourRoom-v0`."""
    if isinstance(name, Task):
        return name
    key = name.rpartition(":")[2].lower().removeprefix("pidmnav-").removesuffix("-v0")
    key = key.replace("-", "").replace("_", "").replace(" ", "")
    for task in TASKS.values():
        if task.name.replace("-", "") == key:
            return task
    raise ValueError(f"no task is called '{name}': choose one of {', '.join(TASKS)}")


def join_state(positions: NDArray[Any], goals: NDArray[Any], goals_reached: NDArray[np.int64]) -> NDArray[np.float32]:
    """(..., 2 + 3G) state vectors `[x, y, (goal_x, goal_y, reached) for each goal in visiting order]`.

    Args:
        positions: (..., 2) of the agent.
        goals: (..., G, 2).
        goals_reached: (...) how many of them are reached.
    """
    num_goals = goals.shape[-2]
    state = np.empty((*positions.shape[:-1], 2 + 3 * num_goals), dtype=np.float32)
    state[..., :2] = positions
    state[..., 2::3] = goals[..., 0]
    state[..., 3::3] = goals[..., 1]
    state[..., 4::3] = np.arange(num_goals) < np.asarray(goals_reached)[..., None]
    return state


def split_state(
    states: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """The inverse of `join_state`: positions (..., 2), goals (..., G, 2), goals reached (...).

    Positions have three decimals, which float32 keeps apart in any room: rounding restores them exactly.
    """
    states = np.asarray(states, dtype=np.float64)
    positions = np.round(states[..., :2], 3)
    goals = np.stack([states[..., 2::3], states[..., 3::3]], axis=-1)
    return positions, goals, (states[..., 4::3] > 0.5).sum(axis=-1)
