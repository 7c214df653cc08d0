"""Measure what failed demonstrations do to agents, and what to do with them (docs/demonstrations.md has the table).

Run it:  python scripts/run_failed_demos.py [--seeds 5] [--out failed_demos.csv]

A human-like player makes 6 demonstrations. In 3 of them the player gives up after a random step, and stands still or
wanders about until the time limit. Agents learn with the preset fast and are evaluated in 50 episodes. Finished jobs
are in the table of --out and are not repeated.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pidm_nav import DemoDataset, evaluate, train
from pidm_nav.agents.batches import TrainingData
from pidm_nav.console import say
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.experts.random_play import RandomPlay
from pidm_nav.demos.failed import without_failed
from pidm_nav.files import write_rows

TASKS = ("maze", "multiroom")
KINDS = ("still", "wander")
FIRST_SEED = 300
EPISODES = 6
STEPS = {"maze": 206, "multiroom": 270}  # mean length of a successful demonstration
# what is done with failed demonstrations for the networks, and for the predictor
POLICIES: dict[str, tuple[tuple[Any, Any], ...]] = {
    "bc": (("keep", ""), ("drop", ""), ("trim", "")),
    "pidm": (("keep", "keep"), ("keep", "drop"), ("keep", "trim"), ("drop", "drop")),
}
POLICIES["delta-pidm"] = POLICIES["pidm"]


class GivesUp:
    """The human-like player, who stops or wanders about after a random step in every second row."""

    sees_state = True

    def __init__(self, task: str, kind: str, seed: int) -> None:
        self.player, self.kind = make_expert("human-like", task, seed=seed), kind
        self.wander, rng = RandomPlay(task, seed), np.random.default_rng(seed)
        self.until = np.where(np.arange(EPISODES) % 2, rng.uniform(0.2, 0.9, EPISODES) * STEPS[task], np.inf)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        """Return the player's actions, or those of somebody who has given up."""
        step, playing, wandering = state or (0, None, None)
        actions, playing = self.player.predict(observation, playing, episode_start)
        others, wandering = self.wander.predict(observation, wandering, episode_start)
        given_up = (step >= self.until)[: len(actions), None]
        return np.where(given_up, others * (self.kind == "wander"), actions), (step + 1, playing, wandering)


def demonstrations(task: str, kind: str, seed: int) -> DemoDataset:
    """Return 6 demonstrations, of which 3 fail."""
    demos = collect(GivesUp(task, kind, seed), task, EPISODES, 100_000 + EPISODES * seed)
    assert demos.num_failed == EPISODES // 2, demos.num_failed
    return demos


def scores(agent: str, demos: DemoDataset, seed: int) -> Iterator[tuple[str, str, float]]:
    """Yield how the networks and the predictor were fitted, and the fraction of goals that the agent reaches."""
    for networks in dict.fromkeys(pair[0] for pair in POLICIES[agent]):
        trained: Any = train(agent, demos, "fast", failed=networks, progress=False, seed=seed)
        for predictor in [pair[1] for pair in POLICIES[agent] if pair[0] == networks]:
            if predictor:  # looked up when acting, so it can be exchanged after training
                trained.fit_predictor(TrainingData(without_failed(demos, predictor)))
            result = evaluate(trained, demos.task, 50, keep_episodes=False, **demos.env_kwargs)
            yield networks, predictor, float(result.scores.mean())


def main(seeds: int = 5, out: Path = Path("failed_demos.csv")) -> None:
    """Run what is not in the table yet, and print means over tasks, kinds and seeds."""
    rows: list[dict[str, Any]] = list(csv.DictReader(out.open(encoding="utf-8"))) if out.exists() else []
    for seed, task, kind in product(range(FIRST_SEED, FIRST_SEED + seeds), TASKS, KINDS):
        demos = demonstrations(task, kind, seed)
        for agent in POLICIES:
            cell: dict[str, Any] = {"task": task, "kind": kind, "seed": str(seed), "agent": agent}
            if any(cell.items() <= row.items() for row in rows):
                continue
            for networks, predictor, score in scores(agent, demos, seed):
                rows.append({**cell, "networks": networks, "predictor": predictor, "goal_ratio": score})
                say(f"{task} {kind} {seed} {agent} {networks} {predictor}: {score:.2f}")
            write_rows(out, rows)
    for agent, policies in POLICIES.items():
        for networks, predictor in policies:
            means = []
            for task, kind in product(TASKS, KINDS):
                wanted = {"task": task, "kind": kind, "agent": agent, "networks": networks, "predictor": predictor}
                found = [float(row["goal_ratio"]) for row in rows if wanted.items() <= row.items()]
                means.append(f"{np.mean(found):.2f} +- {np.std(found, ddof=1):.2f}")
            say(f"{agent:11} {networks:5} {predictor:5} {'   '.join(means)}")


if __name__ == "__main__":
    tyro.cli(main)
