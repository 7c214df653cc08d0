"""Run the study of docs/results/plans/horizons.md: horizons, exogenous noise and more data.

Run it:  python scripts/run_horizons.py --data FOLDER --out jobs.jsonl [--part K N X] [--jobs 2]

FOLDER holds TASK_human.npz for the four tasks. A job is one line of the file, so a stopped run is resumed by running it
again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
import tyro
from gymnasium import spaces
from resumable import run_missing
from run_what_wins import EPISODES, Scripted, load, roll_out, shuffle, with_predictor

from pidm_nav.agents.batches import TrainingData
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.train import dataset_spaces, train
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.random_play import collect_random_play
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.seeds import TEST
from pidm_nav.tasks import PAPER_TASKS, find_task
from pidm_nav.world2d.distractors import FEATURE_NOISE, NoiseKind

SEEDS = range(1100, 1110)
HORIZONS = (1, 5, 10, 25)
NOISES: tuple[tuple[NoiseKind, int], ...] = (("iid", 8), ("iid", 32), ("random_walk", 8), ("random_walk", 32))
SIZES, UNLABELED, PLAY_STEPS = (1, 2, 5), (0, 10, 45), 1000


class Cell(NamedTuple):
    """One job."""

    part: str
    task: str
    demos: int
    seed: int


def cells(part: str) -> Iterator[Cell]:
    """Yield the jobs of a part in the plan's order: seed by seed."""
    for seed, size, task in itertools.product(SEEDS, SIZES if part == "X" else (5,), PAPER_TASKS):
        yield Cell(part, task, size, seed)


class Distracted(Scripted):
    """A policy that sees noise features behind the state, a new walk in each episode."""

    def __init__(self, policy: Policy, kind: NoiseKind, features: int) -> None:
        self.policy, self.kind, self.features = policy, kind, features

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        rng, walk, own = state or (np.random.default_rng(self.features), None, None)
        walk = next_noise(self.kind, walk, (len(observation), self.features), rng)
        seen = np.column_stack([observation, walk]).astype(np.float32)
        actions, own = self.policy.predict(seen, own, episode_start)
        return actions, (rng, walk, own)


def next_noise(kind: NoiseKind, walk: Any, shape: tuple[int, int], rng: np.random.Generator) -> Any:
    """Return the features (N, F) of the next step, as `ExogenousNoise` makes them."""
    std, limit = FEATURE_NOISE[kind]
    noise = rng.normal(0.0, std, shape)
    if kind == "random_walk":
        noise = np.zeros(shape) if walk is None else walk + noise
    return np.clip(noise, -std * limit, std * limit)


def distracted(demos: DemoDataset, kind: NoiseKind, features: int, seed: int) -> tuple[DemoDataset, Any]:
    """Return the demonstrations with noise features, and their spaces."""
    rng, episodes = np.random.default_rng(seed), []
    for episode in demos:
        walk, rows = None, []
        for state in episode.observations:
            walk = next_noise(kind, walk, (1, features), rng)
            rows.append(np.append(state, walk))
        episodes.append(replace(episode, observations=np.array(rows, np.float32)))
    space, actions = dataset_spaces(demos)
    assert isinstance(space, spaces.Box)
    bound = np.full(features, np.prod(FEATURE_NOISE[kind]), np.float32)
    wide = spaces.Box(np.append(space.low, -bound), np.append(space.high, bound), dtype=np.float32)
    return replace(demos, episodes=tuple(episodes)), (wide, actions)


def acting(agent: Any, horizon: int, demos: DemoDataset, *unlabeled: DemoDataset) -> PIDM:
    """Return the agent's twin that acts with another horizon, and looks futures up in more demonstrations."""
    twin = with_predictor(agent, agent.predictor)
    twin.horizon = horizon
    twin.make_predictor(agent.config.predictor)
    twin.fit_predictor(TrainingData(demos, unlabeled))
    return twin


def horizon_policies(demos: DemoDataset, settings: Any) -> Iterator[tuple[str, Policy]]:
    """Yield part K: BC, and PIDM with each horizon that it was trained with."""
    yield "bc", train("bc", demos, **settings)
    for trained in (*((k,) for k in HORIZONS), HORIZONS):
        agent = train("pidm", demos, horizons=trained, **settings)
        yield from ((f"{text(trained)}/{k}", acting(agent, k, demos)) for k in trained)


def noise_policies(demos: DemoDataset, settings: Any) -> Iterator[tuple[str, Policy]]:
    """Yield part N: three agents without noise and with each of the four."""
    kinds: dict[str, tuple[str, Any]] = {
        "bc": ("bc", {}),
        "1/1": ("pidm", {"horizons": (1,)}),
        f"{text(HORIZONS)}/1": ("pidm", {"horizons": HORIZONS}),
    }
    for name, (kind, options) in kinds.items():
        yield f"{name} none", train(kind, demos, **options, **settings)
        for noise, features in NOISES:
            data, both = distracted(demos, noise, features, settings["seed"])
            agent = train(kind, data, env_spaces=both, **options, **settings)
            yield f"{name} {noise} {features}", Distracted(agent, noise, features)


def data_policies(cell: Cell, demos: DemoDataset, rest: DemoDataset, folder: Path, settings: Any) -> Iterator[Any]:
    """Yield part X: PIDM with more data for its predictor or its inverse dynamics model."""
    settings = {**settings, "preset": "paper-fast", "horizons": (1, 5)}
    agent = train("pidm", demos, **settings)
    for count, k in itertools.product(UNLABELED, (1, 5)):
        unlabeled = (rest[:count],) if count else ()
        yield f"unlabeled {count}/{k}", acting(agent, k, demos, *unlabeled)
    if cell.task == "multiroom":
        others = {"zigzag": load(folder, "human", "zigzag"), "play": collect_random_play(cell.task, PLAY_STEPS)}
        for name, other in others.items():
            twin = train("pidm", demos, idm_data=other, **settings)
            yield from ((f"{name}/{k}", acting(twin, k, demos)) for k in (1, 5))


def text(horizons: tuple[int, ...]) -> str:
    """Return horizons as a part of an agent's name."""
    return "+".join(map(str, horizons))


def goals(policy: Policy, demos: DemoDataset) -> float:
    """Return the mean fraction of goals that a policy reaches in the test episodes."""
    endings = roll_out(policy, demos, TEST[:EPISODES]).endings()
    return round(float(np.mean([each.goals_reached for each in endings]) / find_task(demos.task).num_goals), 5)


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    """Run one job."""
    torch.set_num_threads(1)
    began, recordings = time.perf_counter(), load(folder, "human", cell.task)
    shuffled = shuffle(recordings, cell.seed, cell.demos)
    demos, rest = shuffled[: cell.demos], shuffled[cell.demos :]
    settings: dict[str, Any] = {"progress": False, "seed": cell.seed, "failed": "keep"}
    policies = {
        "K": lambda: horizon_policies(demos, settings),
        "N": lambda: noise_policies(demos, settings),
        "X": lambda: data_policies(cell, demos, rest, folder, settings),
    }[cell.part]()
    found = {name: {"goals": goals(policy, demos)} for name, policy in policies}
    return {**cell._asdict(), "seconds": round(time.perf_counter() - began, 1), "agents": found}


def main(data: Path, out: Path, part: tuple[str, ...] = ("K", "N", "X"), jobs: int = 1) -> None:
    """Run the jobs that the file does not hold yet, some at a time."""
    wanted = (cell for each in part for cell in cells(each))
    run_missing(wanted, lambda cell: joblib.delayed(run)(cell, data), out, jobs)


if __name__ == "__main__":
    tyro.cli(main)
