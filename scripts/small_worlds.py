"""Two small worlds of others for scripts/run_worlds.py: Pendulum (Gymnasium) and two tasks of MiniGrid, with experts.

Starts vary in all of them. MiniGrid shows the whole grid as numbers; its actions are to turn left, to turn right and
to go forward.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

PENDULUM = "Pendulum-v1"
MINI_GRID = ("MiniGrid-Empty-Random-6x6-v0", "MiniGrid-LavaGapS6-v0")
WALL, GOAL, LAVA, AGENT = 2, 8, 9, 10  # MiniGrid's numbers of what is in a cell
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # by direction: right, down, left, up
LEFT, RIGHT, FORWARD = range(3)


class SwingUp:
    """Swings a pendulum up by its energy, then holds it there; observations are cosine, sine and angular velocity."""

    def __init__(self, noise: float) -> None:
        self.noise, self.rng = noise, np.random.default_rng(0)

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return torques (N, 1)."""
        cosine, sine, velocity = np.asarray(observation, np.float64).T
        missing = 15 * (1 - cosine) - velocity**2 / 2  # of the energy at rest on top: g = 10, length and mass 1
        swing = np.where(velocity == 0, 1.0, velocity) * missing
        torque = np.where(cosine > 0.9, -12 * np.arctan2(sine, cosine) - 3 * velocity, swing)
        torque = torque + 2 * self.noise * self.rng.standard_normal(len(torque))
        return np.clip(torque, -2, 2)[:, None].astype(np.float32), state


class Walker:
    """Takes the shortest way over the grid, and a random action with probability `noise`."""

    def __init__(self, noise: float) -> None:
        self.noise, self.rng = noise, np.random.default_rng(0)

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return actions (N,)."""
        size = math.isqrt(np.shape(observation)[1] // 3)
        grids = np.asarray(observation).reshape(-1, size, size, 3)
        planned = np.array([first_action(grid) for grid in grids])
        return np.where(self.rng.random(len(grids)) < self.noise, self.rng.integers(3, size=len(grids)), planned), state


def first_action(grid: NDArray[Any]) -> int:
    """Return the first action of a shortest way to the goal: breadth-first over places and directions."""
    (x,), (y,) = np.nonzero(grid[..., 0] == AGENT)
    begin = int(x), int(y), int(grid[x, y, 2])
    waiting = deque([(begin, -1)])
    seen = {begin}
    while waiting:
        (x, y, direction), first = waiting.popleft()
        if grid[x, y, 0] == GOAL:
            return first
        ahead = x + STEPS[direction][0], y + STEPS[direction][1]
        moves = {LEFT: (x, y, (direction - 1) % 4), RIGHT: (x, y, (direction + 1) % 4)}
        if grid[ahead][0] not in (WALL, LAVA):
            moves[FORWARD] = (*ahead, direction)
        for action, place in moves.items():
            if place not in seen:
                seen.add(place)
                waiting.append((place, action if first < 0 else first))
    return FORWARD  # the agent covers the goal: the episode is over


class WholeGrid(gym.Wrapper[Any, Any, Any, Any]):
    """MiniGrid with the whole grid as a vector, three actions, and `is_success`."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        from minigrid.wrappers import FullyObsWrapper

        super().__init__(FullyObsWrapper(env))
        shape = self.env.observation_space["image"].shape  # type: ignore[index]
        self.observation_space = gym.spaces.Box(0, 10, (int(np.prod(shape)),), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(**arguments)
        return observation["image"].astype(np.float32).ravel(), {**info, "is_success": False}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        seen = observation["image"].astype(np.float32).ravel()
        return seen, reward, terminated, truncated, {**info, "is_success": bool(reward > 0)}


def make_whole_grid(task: str, **arguments: Any) -> WholeGrid:
    """Make a task; the module's name before its id lets workers import MiniGrid by themselves."""
    return WholeGrid(gym.make(f"minigrid:{task}", **arguments))


def register_mini_grid() -> tuple[str, ...]:
    """Register the tasks of MiniGrid under ids of their own, and return these."""
    names = tuple(name.replace("MiniGrid-", "WholeGrid-") for name in MINI_GRID)
    for name, task in zip(names, MINI_GRID, strict=True):
        if name not in gym.registry:
            gym.register(name, partial(make_whole_grid, task), max_episode_steps=60)
    return names
