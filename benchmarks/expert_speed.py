"""How fast the experts are: decisions a second in batch, tables a goal, and 50 episodes from nothing.

    python benchmarks/expert_speed.py

Asked for: 100,000 decisions a second of the A* expert, and 50 Multiroom episodes in 5 s with everything it takes.
Times are of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert, planner_for
from pidm_nav.demos.experts.humanlike import HumanLikePlayer
from pidm_nav.demos.experts.routes import routes_for
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import PAPER_TASKS, Task
from pidm_nav.world2d.state import join_state


def expert(kind: str, task: Task) -> Policy:
    if kind == "human-like":
        return HumanLikePlayer(task)
    return AStarExpert(task) if kind == "astar" else AStarExpert(task, speed=1.0, directions=None)


def decisions_a_second(policy: Policy, task: Task, rows: int, repeats: int) -> float:
    rng = np.random.default_rng(0)
    places = np.argwhere(task.layout().reachable())
    positions = places[rng.integers(len(places), size=rows)]
    goals = np.broadcast_to(task.layout().goals, (rows, task.num_goals, 2))
    states = join_state(positions, goals, rng.integers(task.num_goals, size=rows))
    _, memory = policy.predict(states)  # tables are made here
    begin = time.process_time()
    for _ in range(repeats):
        _, memory = policy.predict(states, memory)
    return rows * repeats / (time.process_time() - begin)


def seconds_to_collect(kind: str, task: Task) -> tuple[float, float]:
    """Seconds and mean length of 50 episodes, nothing prepared."""
    planner_for.cache_clear()
    routes_for.cache_clear()
    begin = time.process_time()
    demos = collect(expert(kind, task), task, 50, clip_noise=False)
    return time.process_time() - begin, demos.summary().mean_length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096, help="agents at once")
    parser.add_argument("--repeats", type=int, default=50)
    arguments = parser.parse_args()
    table = Table("expert", "task", "decisions a second", "50 episodes, s", "mean length")
    for kind in ("astar", "astar, any angle", "human-like"):
        for task in PAPER_TASKS.values():
            seconds, length = seconds_to_collect(kind, task)
            speed = decisions_a_second(expert(kind, task), task, arguments.rows, arguments.repeats)
            table.add_row(kind, task.title, f"{speed:,.0f}", f"{seconds:.2f}", f"{length:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
