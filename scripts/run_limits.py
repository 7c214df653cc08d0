"""Run the study of docs/results/plans/limits.md: random starts, varying goals, and what a pull is where goals vary.

Run it:  python scripts/run_limits.py --out limits.jsonl [--part G R M] [--jobs 2]

Part M needs gymnasium-robotics. A job is one line of the file, so a stopped run is resumed by running it again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import joblib
import numpy as np
import torch
import tyro
from resumable import run_missing
from run_what_wins import bc_twins, fitted, pidm_twins, with_predictor
from run_worlds import find_worlds
from scipy.spatial import cKDTree

from pidm_nav.agents.learned import Learned
from pidm_nav.agents.networks import Adam
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.predictors import Lookup, Nearest
from pidm_nav.agents.registry import register
from pidm_nav.agents.train import train
from pidm_nav.analysis.offline import action_error, restoring_coefficient
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import FAR, AStarExpert
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.seeds import TEST
from pidm_nav.tasks import PAPER_TASKS

SEEDS = range(900, 910)
EPISODES, RECORDED, HELD_OUT, DEMOS_SEED = 50, 60, 10, 20_000
STEPS = 150  # limit of an episode on our own maps
NEIGHBORS, LOCAL = 5, 20


def draw_map(walls: list[tuple[int, int]]) -> str:
    """Return a room of 20 by 20 cells with walls around and those given; start and goal are drawn in each episode."""
    wall = {*walls, *((line, side) for line in range(20) for side in (0, 19))}
    wall |= {(side, column) for column in range(20) for side in (0, 19)}
    marks = {(16, 4): "A", (4, 15): "1"}
    cells = [[marks.get((y, x), "#" if (y, x) in wall else ".") for x in range(20)] for y in range(20)]
    return "\n".join(map("".join, cells))


DOORS = (4, 5, 6, 14, 15, 16)
MAPS = {
    "open": draw_map([]),
    "two-rooms": draw_map([(line, 10) for line in range(20) if line not in (8, 9, 10, 11)]),
    "four-rooms": draw_map([cell for i in range(20) if i not in DOORS for cell in ((i, 10), (10, i))]),
}
POINT_MAZE = "PointMaze_UMaze-v3"
COLUMNS = {"custom": ([0, 1], [2, 3], []), POINT_MAZE: ([4, 5], [2, 3], [0, 1])}  # of the place, the goal, and copies


class Cell(NamedTuple):
    """One job."""

    part: str
    world: str
    demos: int
    seed: int


def cells(part: str) -> Iterator[Cell]:
    """Yield the jobs of a part in the plan's order."""
    worlds, sizes = {"G": (tuple(MAPS), (20,)), "R": (PAPER_TASKS, (5,)), "M": ((POINT_MAZE,), (5, 20))}[part]
    yield from (Cell(part, world, size, seed) for seed, size, world in itertools.product(SEEDS, sizes, worlds))


class Place(NamedTuple):
    """A world: its demonstrator without noise, how to roll policies out in it, and all demonstrations."""

    expert: Policy
    play: Any
    recordings: DemoDataset


@lru_cache
def find_place(part: str, world: str) -> Place:
    """Make a world and its demonstrations."""
    if part == "M":
        experts, settings = find_worlds("pointmaze")
        expert = experts[world]
        tried = collect(expert(), world, 2 * RECORDED, DEMOS_SEED, made_by="scripted", **settings)
        good = [index for index, episode in enumerate(tried) if episode.success][:RECORDED]
        return Place(expert(noise=0.0), partial(evaluate, task=world, **settings), tried[good])
    task, settings, steps = world, {"random_start": True}, None
    if part == "G":
        task, settings, steps = "custom", {"layout": MAPS[world], "random_start": True, "random_goals": True}, STEPS
    expert = AStarExpert(gym.make("PIDMNav-Custom-v0", **settings) if part == "G" else world)
    recordings = collect(expert, task, RECORDED, DEMOS_SEED, made_by="A*", max_steps=steps, **settings)
    return Place(expert, partial(evaluate, task=task, max_steps=steps, **settings), recordings)


@register
@dataclass(eq=False)
class Relative(Nearest):
    """The nearest demonstrated place relative to its goal; its next place relative to the goal is the aim."""

    name: ClassVar[str] = "relative"

    def rebuild(self) -> None:
        Lookup.rebuild(self)
        self.place, self.goal, self.copies = COLUMNS["custom" if self.observations.shape[1] == 5 else POINT_MAZE]
        self.width = self.scale.width.numpy(force=True)
        self.tree = cKDTree(self.measured(self.observations[self.followed]))

    def measured(self, states: Any) -> Any:
        kept = np.setdiff1d(np.arange(states.shape[1]), [*self.goal, *self.copies])
        scaled = states[:, kept] / self.width[kept]
        return np.column_stack([scaled, (states[:, self.place] - states[:, self.goal]) / self.width[self.place]])

    def locate(self, states: Any, memory: Any, episode_start: Any) -> Any:
        return self.followed[self.tree.query(self.measured(states))[1]], memory

    def following(self, rows: Any, states: Any) -> Any:
        now, future = self.observations[rows], self.observations[np.minimum(rows + self.horizon, self.last[rows])]
        made = states + (future - now)
        made[:, self.flags] = future[:, self.flags]
        back = now[:, self.place] - now[:, self.goal] - states[:, self.place] + states[:, self.goal]
        for columns in (self.place, self.copies) if self.copies else (self.place,):
            made[:, columns] += np.float32(self.pull) * back
        return made


@register
@dataclass(eq=False)
class LocalLinear(Nearest):
    """A ridge regression of the change on the state, over the nearest states."""

    name: ClassVar[str] = "local-linear"

    def predict(self, states: Any, memory: Any = None, episode_start: Any = None) -> tuple[Any, Any]:
        nearest, _ = self.index.query(states, min(LOCAL, len(self.followed)))
        futures = np.array(states)
        _, own = self.index.measured(states)
        for row, found in enumerate(nearest):
            rows = self.followed[np.unique(found)]
            _, points = self.index.measured(self.observations[rows])
            center, unit = points.mean(axis=0), max(points.std(), 1e-6)
            inputs = np.column_stack([(points - center) / unit, np.ones(len(points))])
            changes = self.observations[np.minimum(rows + self.horizon, self.last[rows])] - self.observations[rows]
            penalty = 0.1 * len(rows) * np.diag([*np.ones(points.shape[1]), 0.0])
            weight = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ changes)
            futures[row] += np.append(np.clip((own[row] - center) / unit, -3, 3), 1.0) @ weight
        futures[:, self.flags] = futures[:, self.flags].round().clip(0, 1)
        return futures, memory


@register
@dataclass(eq=False)
class Density(Learned):
    """The learned change plus a learned pull: a second network undoes noise on the state."""

    name: ClassVar[str] = "density"

    def learn(self, dataset: DemoDataset) -> None:
        super().learn(dataset)
        now, future = self.pairs(dataset)
        self.undo = Learned(noise=2.0).build(self.scale, self.seed + 1)
        varies, unit = (future != now).any(dim=0) * self.delta_rms, self.delta_rms
        generator, optimizer = torch.Generator().manual_seed(self.seed + 1), Adam(list(self.undo.network.parameters()))
        with torch.enable_grad():
            for step in range(self.steps):
                clean = now[torch.randint(len(now), (self.batch_size,), generator=generator)]
                noise = 2.0 * varies * torch.randn(clean.shape, generator=generator)
                error = self.undo.network(clean + noise) + noise / unit
                error.square().mean().backward()
                optimizer.step(self.learning_rate * (1 - step / self.steps))

    def forward(self, states: Any) -> Any:
        return super().forward(states) + self.undo.network(states) * self.delta_rms


def make_policies(cell: Cell, demos: DemoDataset) -> Iterator[tuple[str, Policy]]:
    """Train the cell's agents and yield them with their twins."""
    settings: dict[str, Any] = {"progress": False, "seed": cell.seed, "failed": "keep"}
    bc = train("bc", demos, **settings)
    yield "bc", bc
    yield "corrective-bc", train("corrective-bc", demos, **settings)
    if cell.part == "R":
        yield from (each for each in bc_twins(bc, demos) if each[0] == "bc+pull/1")
        for name in ("pidm", "delta-pidm"):
            twins = pidm_twins(name, train(name, demos, predictor="nearest", **settings))
            yield from (each for each in twins if each[0].endswith(("/1", "/0")))
        return
    agent = train("delta-pidm", demos, predictor="learned", **settings)
    assert isinstance(agent, PIDM)
    yield "learned", agent
    names = {"denoising": "learned(noise=2)", "neighbors": f"neighbors(k={NEIGHBORS})"}
    for name in ("denoising", "nearest", "relative", "neighbors", "local-linear", "density"):
        twin = with_predictor(agent, fitted(agent, names.get(name, name), demos))
        yield name, twin
        if name in ("nearest", "relative"):
            yield f"{name}, no pull", with_predictor(twin, twin.predictor, 0.0)


def expert_error(expert: Policy, policy: Policy, states: Any) -> float:
    """Return the mean squared difference between two policies' actions in given states."""
    if isinstance(expert, AStarExpert):
        states = states[(expert.cost(states) < FAR) & (expert.cost(states) > 0)]
    actions = [np.concatenate([each.predict(states[i : i + 512])[0] for i in range(0, len(states), 512)])
               for each in (expert, policy)]  # fmt: skip
    return float(np.square(actions[0] - actions[1]).mean())


def run(cell: Cell) -> dict[str, Any]:
    """Run one job."""
    torch.set_num_threads(1)
    began, place = time.perf_counter(), find_place(cell.part, cell.world)
    order = np.random.default_rng([cell.seed, cell.demos]).permutation(len(place.recordings))
    demos, held_out = place.recordings[order[: cell.demos]], place.recordings[order[-HELD_OUT:]]
    found: dict[str, dict[str, float]] = {}
    for name, policy in make_policies(cell, demos):
        result = place.play(policy, episodes=EPISODES, seed=TEST.start)
        found[name] = {"score": float(result.scores.mean())}
        if name in ("bc", "learned"):
            own = np.concatenate([episode.observations[:-1] for episode in result.episodes])
            for where, states in (("train", demos), ("new", held_out)):
                found[name][where] = expert_error(place.expert, policy, states.transitions().state)
            found[name]["own"] = expert_error(place.expert, policy, own)
        found[name]["error"] = action_error(policy, held_out)
        found[name]["restoring"] = restoring_coefficient(policy, held_out, np.random.default_rng(cell.seed))
    rounded = {name: {key: round(value, 5) for key, value in each.items()} for name, each in found.items()}
    return {**cell._asdict(), "seconds": round(time.perf_counter() - began, 1), "agents": rounded}


def main(out: Path, part: tuple[str, ...] = ("G", "R", "M"), jobs: int = 1) -> None:
    """Run the jobs that the file does not hold yet, some at a time."""
    wanted = (cell for each in part for cell in cells(each))
    run_missing(wanted, lambda cell: joblib.delayed(run)(cell), out, jobs)


if __name__ == "__main__":
    tyro.cli(main)
