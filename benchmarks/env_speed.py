"""Measures how fast the environments step compared to Gymnasium's own, as ratios within one run.

    python benchmarks/env_speed.py

Machines differ, and so does their load, so the environments take turns, block by block. Each is judged by the median of
its ratios to the reference of the same turn. Time is processor time, because nothing here uses threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

from pidm_nav import PAPER_TASKS
from pidm_nav.console import print_table

ACTIONS = 512  # number of different actions, so that no agent drifts into a corner and stays there


def single(env_id: str) -> Callable[[int], float]:
    """Return a function that takes n steps and returns the seconds per step."""
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
    """Return the same for a vector environment, in which a step moves all rows."""
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
    """Return the median seconds per step, and the median speed relative to the first environment of the same turn."""
    for run in runs.values():
        run(steps)
    seconds = np.array([[run(steps) for run in runs.values()] for _ in range(turns)])
    ratios = np.median(seconds[:, :1] / seconds, axis=0)
    return {name: (s, r) for name, s, r in zip(runs, np.median(seconds, axis=0), ratios, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--num-envs", type=int, nargs="+", default=[4096, 16384], help="rows of the vector environments"
    )
    parser.add_argument("--turns", type=int, default=15, help="number of turns that each environment takes")
    options = parser.parse_args()

    ids = [task.env_id for task in PAPER_TASKS.values()]
    one = compare({i: single(i) for i in ["Pendulum-v1", *ids]}, 3000, options.turns)
    measured = [("gym.make", 1, one)]
    for num_envs in options.num_envs:
        steps = max(8, 256 * 4096 // num_envs)
        vector = compare({i: many(i, num_envs) for i in ["CartPole-v1", *ids]}, steps, options.turns)
        measured.append(("gym.make_vec", num_envs, vector))
    rows = [
        {
            "made by": how,
            "environment": env_id,
            "rows": num_envs,
            "µs per step": f"{seconds * 1e6:,.1f}",
            "ns per agent step": f"{seconds / num_envs * 1e9:,.1f}",
            "agent steps per second": f"{num_envs / seconds:,.0f}",
            "times the reference": f"{ratio:.2f}",
        }
        for how, num_envs, results in measured
        for env_id, (seconds, ratio) in results.items()
    ]
    print_table(rows)


if __name__ == "__main__":
    main()
