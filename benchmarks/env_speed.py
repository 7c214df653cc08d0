"""How fast the environments step, next to Gymnasium's own, as ratios within one run.

    python benchmarks/env_speed.py

Machines and their moods differ, so the environments take turns, block by block, each is judged by the median of its
ratios to the reference of the same turn, and seconds are the processor's, not the clock's (nothing here uses threads).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

from pidm_nav import TASKS

ACTIONS = 512  # different ones, so that no agent drifts into a corner and stays there


def single(env_id: str) -> Callable[[int], float]:
    """A function that takes n steps and says how many seconds a step took."""
    env = gym.make(env_id)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(ACTIONS)]

    def run(steps: int) -> float:
        begin = time.process_time()
        for step in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[step % ACTIONS])
            if terminated or truncated:
                env.reset()
        return (time.process_time() - begin) / steps

    return run


def many(env_id: str, num_envs: int) -> Callable[[int], float]:
    """The same for a vector environment; a step is a step of all rows."""
    envs = gym.make_vec(env_id, num_envs=num_envs)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    actions = [envs.action_space.sample() for _ in range(ACTIONS)]
    clock = iter(range(10**9))

    def run(steps: int) -> float:
        begin = time.process_time()
        for _ in range(steps):
            envs.step(actions[next(clock) % ACTIONS])
        return (time.process_time() - begin) / steps

    return run


def compare(runs: dict[str, Callable[[int], float]], steps: int, turns: int) -> dict[str, tuple[float, float]]:
    """Median seconds a step, and median speed relative to the first of the same turn."""
    for run in runs.values():
        run(steps)
    seconds = np.array([[run(steps) for run in runs.values()] for _ in range(turns)])
    ratios = np.median(seconds[:, :1] / seconds, axis=0)
    return {name: (s, r) for name, s, r in zip(runs, np.median(seconds, axis=0), ratios, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()

    ids = [task.env_id for task in TASKS.values()]
    rows: list[tuple[str, int, dict[str, tuple[float, float]]]] = [
        ("gym.make", 1, compare({i: single(i) for i in ["Pendulum-v1", *ids]}, 3000, options.turns)),
        (
            "gym.make_vec",
            options.num_envs,
            compare({i: many(i, options.num_envs) for i in ["CartPole-v1", *ids]}, 256, options.turns),
        ),
    ]
    table = Table("", "environment", "rows", "µs a step", "agent steps a second", "times the reference")
    for how, num_envs, results in rows:
        for env_id, (seconds, ratio) in results.items():
            rate = f"{num_envs / seconds:,.0f}"
            table.add_row(how, env_id, f"{num_envs:,}", f"{seconds * 1e6:,.1f}", rate, f"{ratio:.2f}")
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
