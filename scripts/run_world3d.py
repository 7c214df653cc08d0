"""Run the study of docs/results/plans/world3d.md: BC and PIDM in the 3D world, the paper's way.

Run it:  python scripts/run_world3d.py --work FOLDER [--part A B C D more E] [--jobs 1]
         python scripts/run_world3d.py --work FOLDER --part flat       how many training steps are enough

FOLDER holds the walkers' episodes as vectors, the agents, and jobs.jsonl. A job is one line of that file, so a stopped
run is resumed by running it again.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
import tyro
from gymnasium import spaces
from resumable import run_missing
from world3d_policies import (
    LONG_HISTORY,
    Array,
    Policy,
    Recorded,
    Seen,
    by_pose,
    dataset,
    embed,
    finder,
    long,
    own_future,
    plain,
    pulled,
    read_pose,
    regressor,
    shown,
    timed,
    with_time,
)

from pidm_nav.agents import load_agent
from pidm_nav.agents.agent import Agent
from pidm_nav.agents.config import FRAME_NETWORKS, AgentConfig, Preset, TrainConfig
from pidm_nav.agents.encoders import Principal
from pidm_nav.agents.idm import future_use
from pidm_nav.agents.images import latest_vectors
from pidm_nav.agents.parts import PIDMConfig
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.predictors import Follow, Nearest
from pidm_nav.agents.pretrained import EfficientNetEncoder
from pidm_nav.agents.train import train
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.routes import routes_for
from pidm_nav.demos.experts.walker3d import Habits3D, Walker3D
from pidm_nav.seeds import TEST
from pidm_nav.tasks import find_task
from pidm_nav.world3d.levels import load_level

LEVEL = "tour-3d"
SEEDS, MORE_SEEDS = range(800, 805), range(805, 810)
SIZES, MIDDLE = (5, 10, 15, 20, 30), 15  # numbers of demonstrations
MAX_STEPS = 700  # the task's
ROLLOUTS = 30  # of an agent, all at once, each in its own engine
HELD_OUT = 5  # reference episodes on which errors and restoring coefficients are measured
VARIETIES = (0.0, 0.5, 1.0)
FIRST_DEMO = 100_000  # environment seed of the first demonstration; a training seed has 1,000 of its own
COMPONENTS = 128  # of an image
HORIZONS = (1, 6, 11, 16, 21, 26)
STEPS, BATCH, RATE = 2000, 256, 1e-3
FLAT_SEED, FLAT = 790, (2000, 1000, 4000)  # seed that is not reported, and the numbers of steps that it is trained for
ASIDE = 40.0  # engine units beside the route that the walker is placed
AFTER = (12, 24)  # steps after which it is looked where the walker is
PLACES = (0.2, 0.4, 0.6, 0.8)  # fractions of an episode at which it is placed


class Cell(NamedTuple):
    """One job."""

    part: str
    variety: float
    demos: int
    seed: int


def cells(part: str) -> Iterator[Cell]:
    """Yield the jobs of a part in the plan's order: seed by seed."""
    others = tuple(size for size in SIZES if size != MIDDLE)
    groups = {
        "A": (SEEDS, "A", [(0.0, SIZES)]),
        "B": (SEEDS, "B", [(0.0, (MIDDLE,))]),
        "C": (SEEDS, "C", [(0.0, (MIDDLE,))]),
        "D": (SEEDS, "D", [(variety, (MIDDLE,)) for variety in VARIETIES[1:]]),
        "more": (MORE_SEEDS, "A", [(0.0, SIZES)]),
        "E": (SEEDS, "B", [(0.0, others)]),
    }
    seeds, name, groups_of_seed = groups[part]
    for seed in seeds:
        for variety, sizes in groups_of_seed:
            yield from (Cell(name, variety, size, seed) for size in sizes)


# the walkers' episodes


def mixed(variety: float, rng: np.random.Generator) -> Habits3D:
    """Return habits between the ordinary walker's (0) and those of one of many different people (1)."""
    usual, drawn = asdict(Habits3D()), asdict(Habits3D.drawn(rng))
    habits: Any = {name: usual[name] + variety * (drawn[name] - usual[name]) for name in usual}
    return Habits3D(**{**habits, "reaction": round(habits["reaction"])})


@torch.no_grad()
def record(path: Path, variety: float, first: int, count: int) -> Recorded:
    """Return a walker's episodes from the file that keeps them, or let the walker walk."""
    if not path.exists():
        arrays: dict[str, Array] = {}
        encoder = EfficientNetEncoder()
        for index, seed in enumerate(range(first, first + count)):
            walker = Walker3D(LEVEL, seed, mixed(variety, np.random.default_rng((seed, 1))))
            (episode,) = collect(walker, LEVEL, 1, seed)
            vectors = encoder(torch.tensor(episode.observations)).numpy()
            made = (vectors, episode.infos["states"], episode.actions, np.array([seed, bool(episode.success)]))
            names = ("vectors", "poses", "actions", "seed")
            arrays |= {f"{name}{index}": each for name, each in zip(names, made, strict=True)}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part.npz")
        np.savez(partial, **arrays)  # type: ignore[arg-type]
        partial.rename(path)
    with np.load(path) as file:
        columns = [[file[f"{name}{index}"] for index in range(count)] for name in ("vectors", "poses", "actions")]
        seeds = [file[f"seed{index}"].tolist() for index in range(count)]
    failed = [seed for seed, success in seeds if not success]
    if failed:
        print(f"{path.name}: the walker fails in the episodes {failed}, which are kept", flush=True)
    return Recorded(*columns, [seed for seed, _ in seeds])


def demonstrations(work: Path, cell: Cell) -> Recorded:
    """Return the demonstrations of a cell: the first of those that its seed has."""
    first = FIRST_DEMO + 1000 * (cell.seed - SEEDS.start) + 10_000 * VARIETIES.index(cell.variety)
    path = work / "episodes" / f"demos-{cell.seed}-{cell.variety:g}.npz"
    return record(path, cell.variety, first, max(SIZES))[: cell.demos]


def references(work: Path, variety: float) -> Recorded:
    """Return the walker's own episodes in the seeds of the rollouts."""
    return record(work / "episodes" / f"reference-{variety:g}.npz", variety, TEST.start, ROLLOUTS)


# agents


def fit(
    kind: str, demos: DemoDataset, seed: int, steps: int, folder: Path | None = None, rate: float = RATE, **more: Any
) -> Agent:
    """Train an agent on states, with the paper's networks and schedule; `folder` keeps it."""
    if folder is not None and (folder / "agent.json").exists():
        return load_agent(folder)
    options: dict[str, Any] = {**FRAME_NETWORKS, "scale_observations": False}
    if kind == "pidm":
        options |= {"horizons": HORIZONS, "predictor": "time"}
    schedule: dict[str, Any] = {"final_learning_rate": 1e-6, "decay_steps": steps * 6 // 10, "batch_size": BATCH}
    training = TrainConfig(learning_rate=rate, seed=seed, steps=steps, **schedule)
    preset = Preset((PIDMConfig if kind == "pidm" else AgentConfig)(**options), training)
    box = spaces.Box(-np.inf, np.inf, demos[0].observations.shape[1:], np.float32)
    spaces_of = (box, spaces.Box(-1.0, 1.0, (4,), np.float32))
    return train(kind, demos, preset, folder, env_spaces=spaces_of, progress=False, failed="keep", **more)


# rollouts


class Eyes:
    """Engines side by side; in a step, the images of those that run are encoded in one batch."""

    def __init__(self, vision: Principal, envs: Sequence[Any], seeds: Sequence[int]) -> None:
        self.vision, self.envs, self.depth = vision, envs, max(LONG_HISTORY)
        self.seeds, self.steps = np.array(seeds), np.zeros(len(envs), np.int64)
        self.running, self.infos = np.ones(len(envs), bool), [{}] * len(envs)
        frames = []
        for row, (env, seed) in enumerate(zip(envs, seeds, strict=True)):
            frame, self.infos[row] = env.reset(seed=int(seed))
            frames.append(frame)
        self.recent = latest_vectors(None, self.encode(frames), np.ones(len(envs), bool), self.depth)

    def encode(self, frames: Sequence[Array]) -> Array:
        """Return the vectors (N, E) of images."""
        return self.vision(torch.tensor(np.stack(frames))).numpy()

    def seen(self) -> Seen:
        """Return what policies are shown."""
        poses = np.stack([info["state"] for info in self.infos])
        return Seen(self.recent, poses, self.steps.copy(), self.seeds, self.steps == 0)

    def step(self, actions: Array) -> None:
        """Step the engines whose episodes have not ended."""
        rows, frames = np.flatnonzero(self.running), []
        for row in rows:
            frame, _, terminated, truncated, self.infos[row] = self.envs[row].step(actions[row])
            frames.append(frame)
            self.running[row] = not (terminated or truncated)
        self.recent[rows, 1:] = self.recent[rows, :-1]
        self.recent[rows, 0] = self.encode(frames)
        self.steps[rows] += 1


def roll_out(policy: Policy, vision: Principal, envs: Sequence[Any]) -> dict[str, Any]:
    """Return how a policy does: milestones in order, and each by itself."""
    eyes, memory = Eyes(vision, envs, TEST[: len(envs)]), None
    while eyes.running.any():
        actions, memory = policy(eyes.seen(), memory)
        eyes.step(actions)
    ordered = np.array([info["goals_reached"] for info in eyes.infos])
    achieved = np.array([info["achieved"] for info in eyes.infos])
    goals = achieved.shape[1]
    means = {"ordered": ordered.mean() / goals, "alone": achieved.mean(), "success": (ordered == goals).mean()}
    lists = {"ordered_list": ordered, "alone_list": achieved.sum(axis=1), "steps": eyes.steps}
    return rounded(means) | {name: each.tolist() for name, each in lists.items()}


def rounded(values: dict[str, Any]) -> dict[str, float]:
    """Return plain numbers."""
    return {name: round(float(value), 5) for name, value in values.items()}


class Place(NamedTuple):
    """A step of an episode beside which the walker is placed."""

    episode: int
    step: int
    asides: list[Array]  # (2,) engine units each: to the left and to the right, where there is room


def places(recorded: Recorded) -> list[Place]:
    """Return where the walker is placed: at some steps of each episode in which it walks."""
    level = load_level(LEVEL)
    free, found = routes_for(level.layout).free, []
    for episode, poses in enumerate(recorded.poses[:HELD_OUT]):
        ahead = poses[6:, :2] - poses[:-6, :2]
        walks = np.flatnonzero(np.linalg.norm(ahead, axis=1) > 60)
        for fraction in PLACES:
            step = int(walks[np.abs(walks - fraction * len(poses)).argmin()])
            across = ASIDE * np.array([-ahead[step, 1], ahead[step, 0]]) / np.linalg.norm(ahead[step])
            place = Place(episode, step, [])
            for aside in (across, -across):
                x, y = np.rint([level.to_layout(*(poses[step, :2] + part * aside)) for part in (0.5, 1)]).astype(int).T
                if free[x, y].all():
                    place.asides.append(aside)
            found.append(place)
    return found


def walk(policy: Policy, scaled: Sequence[Array], recorded: Recorded) -> tuple[float, dict[tuple[int, int], Any]]:
    """Return the mean squared error of a policy's actions along held-out episodes, and its memory before each step."""
    errors, memories = [], {}
    for episode in range(HELD_OUT):
        memory = None
        for step, action in enumerate(recorded.actions[episode]):
            memories[episode, step] = memory
            now = np.array([step]), np.array([recorded.seeds[episode]]), np.array([step == 0])
            pose = recorded.poses[episode][step : step + 1]
            made, memory = policy(Seen(last(scaled[episode], step)[None], pose, *now), memory)
            errors.append(np.square(made[0] - action).mean())
    return float(np.mean(errors)), memories


def last(vectors: Array, step: int) -> Array:
    """Return the vectors (L, E) up to a step of an episode, the newest first."""
    return vectors[np.maximum(step - np.arange(max(LONG_HISTORY) + 1), 0)]


def restoring(
    policy: Policy, memories: dict[tuple[int, int], Any], vision: Principal, recorded: Recorded, envs: Sequence[Any]
) -> dict[str, float]:
    """Return the fraction of the way back that a policy has gone some steps after it was placed beside the route.

    The engine replays an episode up to the place, with the same poses, and the policy remembers what it would have
    seen. Then the policy acts twice with the same noise, placed and not placed; the difference of the two positions
    along the displacement is what is left of it.
    """
    total, left = 0.0, np.zeros(len(AFTER))
    for episode, step, asides in places(recorded):
        rows = 1 + len(asides)
        eyes = Eyes(vision, envs[:rows], [recorded.seeds[episode]] * rows)
        for row, env in enumerate(eyes.envs):
            for action in recorded.actions[episode][:step]:
                *_, eyes.infos[row] = env.step(action)
        here = eyes.infos[0]["state"]
        assert np.allclose(here, recorded.poses[episode][step], atol=1e-3), "the replay differs from the episode"
        vectors = vision.scale(torch.tensor(recorded.vectors[episode])).numpy()
        eyes.recent, eyes.steps[:] = np.repeat(last(vectors, step)[None], rows, axis=0), step
        memory = memories[episode, step]
        memory = None if memory is None else np.repeat(memory, rows, axis=0)
        for env, aside in zip(eyes.envs[1:], asides, strict=True):
            env.unwrapped.place(*(here[:2] + aside))
            total += ASIDE**2
        for after in range(1, max(AFTER) + 1):
            actions, memory = policy(eyes.seen(), memory)
            eyes.step(actions)
            if after in AFTER:
                positions = np.stack([info["state"][:2] for info in eyes.infos])
                off = (positions[1:] - positions[0]) * np.array(asides).reshape(-1, 2)
                left[AFTER.index(after)] += off.sum()
    return {f"restoring{after}": 1 - value / total for after, value in zip(AFTER, left, strict=True)}


# jobs


class Material(NamedTuple):
    """What the policies of a job are made of."""

    cell: Cell
    demos: Recorded
    reference: Recorded
    vision: Principal
    states: list[Array]  # of the demonstrations
    agents: Path  # folder for agents

    def fit(self, kind: str, name: str, states: Sequence[Array] | None = None) -> Any:
        """Train an agent on the demonstrations, or load it if it was trained."""
        demos = dataset(self.states if states is None else states, self.demos)
        cell = self.cell
        return fit(kind, demos, cell.seed, STEPS, self.agents / f"{name}-{cell.variety:g}-{cell.demos}-{cell.seed}")


def gather(work: Path, cell: Cell) -> Material:
    """Return the material of a cell; the encoder is fitted to its demonstrations."""
    demos, reference = demonstrations(work, cell), references(work, cell.variety)
    vision = Principal(EfficientNetEncoder(), COMPONENTS)
    vision.learn(np.concatenate(demos.vectors))
    return Material(cell, demos, reference, vision, embed(vision, demos), work / "agents")


def with_predictor(agent: PIDM, text: str, states: DemoDataset) -> PIDM:
    """Return the agent's twin with another predictor; the inverse dynamics model is shared."""
    twin = copy.copy(agent)
    twin._modules = dict(agent._modules)
    twin.make_predictor(text)
    twin.predictor.fit(states, agent.horizon)
    return twin


def policies(material: Material) -> Iterator[tuple[str, Policy]]:
    """Train what is not trained yet, and yield the policies of a cell's part."""
    cell, demos, states = material.cell, material.demos, material.states
    if cell.part == "B":
        steps = [with_time(own, np.arange(len(own))) for own in states]
        yield "bc-time", timed(material.fit("bc", "bc-time", steps))
        yield "bc-history", long(material.fit("bc", "bc-history", embed(material.vision, demos, LONG_HISTORY)))
    bc, pidm = material.fit("bc", "bc"), material.fit("pidm", "pidm")
    if cell.part in "AD":
        yield "bc", plain(bc)
        yield "pidm", plain(pidm)
    if cell.part == "B":
        own = own_future(embed(material.vision, material.reference), material.reference.seeds)
        yield "pidm-own", shown(pidm, own)
        yield "pidm-present", shown(pidm, lambda seen, memory: (seen.states(), memory))
    if cell.part in "CD":
        embedded, rows = dataset(states, demos), np.concatenate(states)
        poses = np.concatenate(demos.poses)
        nearest = finder(Nearest(), demos.poses, demos, LEVEL)
        yield "pidm/time/0", plain(with_predictor(pidm, "time(pull=0)", embedded))
        yield "pidm/pose/1", shown(pidm, by_pose(nearest, rows, 1.0, lambda seen: seen.poses))
        yield "bc+pull/0.25", pulled(bc, nearest, poses, 0.25)
    if cell.part == "C":
        yield "pidm/pose/0", shown(pidm, by_pose(nearest, rows, 0.0, lambda seen: seen.poses))
        yield "pidm/nearest/1", plain(with_predictor(pidm, "nearest", embedded))
        yield "pidm/nearest/0", plain(with_predictor(pidm, "nearest(pull=0)", embedded))
        follow = finder(Follow(), demos.poses, demos, LEVEL)
        yield "pidm/pose-follow/1", shown(pidm, by_pose(follow, rows, 1.0, lambda seen: seen.poses))
        weights, flags = regressor(rows, poses), load_level(LEVEL).num_goals
        read = finder(Nearest(), [read_pose(weights, own, flags) for own in states], demos, LEVEL)
        regressed = by_pose(read, rows, 1.0, lambda seen: read_pose(weights, seen.states(), flags))
        yield "pidm/read-pose/1", shown(pidm, regressed)
        yield "bc+pull/1", pulled(bc, nearest, poses, 1.0)


def about(material: Material) -> dict[str, float]:
    """Return what is known without rollouts: how far the regression is off, and what PIDM makes of futures."""
    held_out = material.reference[:HELD_OUT]
    states, poses = embed(material.vision, held_out), np.concatenate(held_out.poses)
    weights = regressor(np.concatenate(material.states), np.concatenate(material.demos.poses))
    off = read_pose(weights, np.concatenate(states), 0)[:, :2] - poses[:, :2]
    found = {"pose_error": np.median(np.linalg.norm(off, axis=1))}
    pidm = material.fit("pidm", "pidm")
    now, actions, later, *_ = dataset(states, held_out).transitions(1)
    found["own_future_error"] = np.square(pidm.inverse_dynamics(now, later) - actions).mean()
    found["future_use"] = future_use(pidm.inverse_dynamics, now, later)
    found["action_variance"] = actions.var(axis=0).mean()
    return rounded(found)


def run(cell: Cell, work: Path) -> dict[str, Any]:
    """Run one job."""
    torch.set_num_threads(1)
    began, found = time.perf_counter(), {}
    material = gather(work, cell)
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(find_task(LEVEL).make(max_steps=MAX_STEPS))) for _ in range(ROLLOUTS)]
        scaled = [material.vision.scale(torch.tensor(own)).numpy() for own in material.reference.vectors[:HELD_OUT]]
        for name, policy in policies(material):
            start = time.perf_counter()
            result = roll_out(policy, material.vision, envs)
            error, memories = walk(policy, scaled, material.reference)
            back = restoring(policy, memories, material.vision, material.reference, envs)
            seconds = time.perf_counter() - start
            found[name] = result | rounded({"error": error, **back, "seconds": seconds})
    done = {"about": about(material), "steps": STEPS, "rollouts": ROLLOUTS, "agents": found}
    return {**cell._asdict(), "seconds": round(time.perf_counter() - began, 1), **done}


def flatness(work: Path, demos: int = MIDDLE) -> None:
    """Train a seed that is not reported for several numbers of steps, and write losses and errors to flat.jsonl."""
    out = work / "flat.jsonl"
    done = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    material = gather(work, Cell("A", 0.0, demos, FLAT_SEED))
    held_out = dataset(embed(material.vision, material.reference[:HELD_OUT]), material.reference[:HELD_OUT])
    train_set = dataset(material.states, material.demos)
    runs = [(kind, steps, RATE) for steps in FLAT for kind in ("bc", "pidm")] + [("bc", max(FLAT), RATE / 10)]
    for kind, steps, rate in runs:
        key = {"kind": kind, "steps": steps, "rate": rate, "demos": demos}
        if any(key.items() <= each.items() for each in done):
            continue
        began, log = time.process_time(), []
        agent = fit(kind, train_set, FLAT_SEED, steps, rate=rate, on_log=log.append)
        seconds, errors = time.process_time() - began, {}
        for name, each in {"train": train_set, "held_out": held_out}.items():
            now, actions, later, *_ = each.transitions(1)
            made = agent.inverse_dynamics(now, later) if isinstance(agent, PIDM) else agent.predict(now)[0]
            errors[name] = np.square(made - actions).mean()
        losses = [round(float(entry["loss"]), 5) for entry in log]
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**key, **rounded({**errors, "seconds": seconds}), "losses": losses}) + "\n")


def recorded(work: Path, cell: Cell) -> Cell:
    """Let the walkers walk whose episodes a cell needs; one process does so for all."""
    demonstrations(work, cell)
    references(work, cell.variety)
    return cell


def main(work: Path, part: tuple[str, ...] = ("A", "B", "C", "D", "more", "E"), jobs: int = 1) -> None:
    """Run the jobs that jobs.jsonl does not hold yet, some at a time."""
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    if "flat" in part:
        flatness(work)
        return
    wanted = (cell for each in part for cell in cells(each))
    run_missing(wanted, lambda cell: joblib.delayed(run)(recorded(work, cell), work), work / "jobs.jsonl", jobs)


if __name__ == "__main__":
    tyro.cli(main)
