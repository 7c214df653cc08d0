"""The state vector of the 2D tasks; only this module depends on the order of its features.

[x, y,  goal_x, goal_y, reached,  goal_x, goal_y, reached,  ...]      one triple per goal, in visiting order
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

POSITION = slice(0, 2)
GOAL_X, GOAL_Y, REACHED = slice(2, None, 3), slice(3, None, 3), slice(4, None, 3)


def state_size(num_goals: int) -> int:
    """Return the length of the state vector."""
    return 2 + 3 * num_goals


def join_state(positions: Array, goals: Array, goals_reached: int | NDArray[np.int64]) -> NDArray[np.float32]:
    """Build (..., 2 + 3G) state vectors.

    Args:
        positions: (..., 2) positions of the agent.
        goals: (..., G, 2) positions of the goals in visiting order.
        goals_reached: (...) number of goals reached so far.
    """
    num_goals = goals.shape[-2]
    state = np.empty((*positions.shape[:-1], state_size(num_goals)), dtype=np.float32)
    state[..., POSITION] = positions
    state[..., GOAL_X] = goals[..., 0]
    state[..., GOAL_Y] = goals[..., 1]
    state[..., REACHED] = np.arange(num_goals) < np.asarray(goals_reached)[..., None]
    return state


def split_state(states: Array) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Invert `join_state`: return positions (..., 2), goals (..., G, 2) and the number of goals reached (...).

    Positions have three decimals, which float32 resolves in any room, so rounding restores them exactly.
    """
    vectors: NDArray[np.float64] = np.asarray(states, dtype=np.float64)
    return np.round(vectors[..., POSITION], 3), goals_of(vectors), np.sum(vectors[..., REACHED] > 0.5, axis=-1)


def goals_of(states: Array) -> Array:
    """Return the goals' positions (..., G, 2)."""
    return np.stack([states[..., GOAL_X], states[..., GOAL_Y]], axis=-1)


def current_goals(goals: Array, goals_reached: NDArray[np.int64], ahead: int = 0) -> Any:
    """Return the current goals (N, 2), or those `ahead` of them; at the end, the last goals."""
    return np.asarray(goals[np.arange(len(goals)), np.minimum(goals_reached + ahead, goals.shape[1] - 1)])


def shift_goals(states: Array, sign: int) -> Array:
    """Return a copy with the agent's position added to the goals' positions, or subtracted with sign -1."""
    shifted = states.copy()
    shifted[..., GOAL_X] += sign * states[..., 0:1]
    shifted[..., GOAL_Y] += sign * states[..., 1:2]
    return shifted


def has_goal_flags(observations: Array) -> bool:
    """Return whether observations (T+1, D) look like state vectors, with 0 or 1 in the columns of the flags."""
    if observations.ndim != 2 or observations.shape[1] < 5 or observations.shape[1] % 3 != 2:
        return False
    flags = observations[:, REACHED]
    return bool(((flags == 0) | (flags == 1)).all())
