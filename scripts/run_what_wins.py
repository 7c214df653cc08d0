"""Run the study of docs/results/plans/what_wins.md: a job trains a cell's agents once and evaluates all their twins.

Run it:  python scripts/run_what_wins.py --data FOLDER --out jobs.jsonl [--part P F C D] [--jobs 2]

Part D is corrective-bc in the cells of part C, which takes twice as long as all other agents there together. FOLDER
holds TASK_human.npz and TASK_astar.npz for the four tasks. A job is one line of the file, so a stopped run is resumed
by running it again.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import joblib
import numpy as np
import torch
import tyro
from gymnasium import spaces
from resumable import run_missing

from pidm_nav.agents.batches import TrainingData
from pidm_nav.agents.bc import BC
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.predictors import Follow, Lookup, Oracle, Predictor
from pidm_nav.agents.pull import Pull
from pidm_nav.agents.train import dataset_spaces, train
from pidm_nav.analysis.offline import action_error, restoring_coefficient
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import FAR, AStarExpert
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.rollouts.rollout import Policy, Rollout
from pidm_nav.seeds import TEST
from pidm_nav.tasks import PAPER_TASKS, find_task
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import POSITION

SEEDS = range(600, 610)
SIZES = (1, 2, 5, 10)
EPISODES = 50
HELD_OUT = 10
DOSES = (0.25, 0.5, 2.0)  # besides 0 and 1
NOISE = 0.5  # of the noisy A* expert's actions
DEMOS_SEED = 10_000  # first environment seed of the noisy A* expert's episodes
PUSH_EVERY, PUSH_STEPS = 25, 2
TWINS = ("state/nearest/1", "state/nearest/0", "delta/nearest/1", "delta/nearest/0")
CORE = ("bc", "bc+pull/1", *TWINS)  # the agents of part C; corrective-bc is part D


class Cell(NamedTuple):
    """One job."""

    part: str
    demonstrator: str
    task: str
    demos: int
    seed: int


def cells(part: str) -> Iterator[Cell]:
    """Yield the jobs of a part in the plan's order."""
    groups = {
        "P": [("human", (5,))],
        "F": [("human", (5,)), ("human", (1,))],
        "C": [("human", (2, 10)), ("astar", SIZES), ("noisy-astar", SIZES)],
    }
    groups["D"] = groups["C"]
    for demonstrator, sizes in groups[part]:
        for seed, size, task in itertools.product(SEEDS, sizes, PAPER_TASKS):
            yield Cell(part, demonstrator, task, size, seed)


class Scripted:
    """A policy that writes `act`."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Return actions for observations, and the state for the next call."""
        return self.act(observation, state, episode_start)


class Noisy(Scripted):
    """An expert whose actions are disturbed; the disturbed ones are executed and recorded."""

    sees_state = True

    def __init__(self, expert: Policy, seed: int) -> None:
        self.expert, self.rng = expert, np.random.default_rng(seed)

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        actions, state = self.expert.predict(observation, state, episode_start)
        return np.clip(actions + NOISE * self.rng.standard_normal(actions.shape), -1, 1).astype(np.float32), state


class Pushed(Scripted):
    """A policy whose actions are replaced by a random full stick now and then, in the rows from `first` on."""

    def __init__(self, policy: Policy, first: int) -> None:
        self.policy, self.first = policy, first

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        step, own = state or (0, None)
        actions, own = self.policy.predict(observation, own, episode_start)
        actions, pushed = np.array(actions), np.arange(self.first, len(actions))
        turn, since = divmod(step, PUSH_EVERY)
        angles = np.random.default_rng([turn, 0]).uniform(0, 2 * np.pi, len(pushed))
        begins = np.random.default_rng([turn, 1]).integers(PUSH_EVERY - PUSH_STEPS, size=len(pushed))
        stick = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        stick /= np.abs(stick).max(axis=1, keepdims=True)
        now = (begins <= since) & (since < begins + PUSH_STEPS)
        actions[pushed[now]] = stick[now]
        return actions, (step + 1, own)


class Exact(Scripted):
    """A predictor with the exact inverse of the dynamics where there are no walls: a = (s' - s) / 20 px."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        future, state = self.predictor.predict(observation, state, episode_start)
        return self.inverse_dynamics(observation, future), state

    def inverse_dynamics(self, states: Any, futures: Any) -> Any:
        return np.clip((futures - states)[:, POSITION] / SPEED, -1, 1).astype(np.float32)


class FollowAction(Scripted):
    """Tracks a place in a demonstration, and repeats the action that was taken there."""

    def __init__(self, follow: Follow, demos: DemoDataset) -> None:
        self.follow = follow
        self.actions = np.concatenate([np.vstack([episode.actions, episode.actions[-1:]]) for episode in demos])

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        rows, state = self.follow.locate(observation, state, np.asarray(episode_start, bool))
        return self.actions[rows], state


class Replay(Scripted):
    """Replays the actions of a demonstration without looking."""

    def __init__(self, demos: DemoDataset) -> None:
        self.demos = demos

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        step = state or 0
        chosen = (self.demos[row % len(self.demos)].actions for row in range(len(observation)))
        return np.stack([each[min(step, len(each) - 1)] for each in chosen]), step + 1


class Seen(Scripted):
    """BC that sees more than the state: what `extend` makes of the episode so far (T, D)."""

    def __init__(self, extend: Any, demos: DemoDataset, seed: int) -> None:
        self.extend, (space, actions) = extend, dataset_spaces(demos)
        episodes = [
            replace(each, observations=np.stack([extend(each.observations[: t + 1]) for t in range(len(each) + 1)]))
            for each in demos
        ]
        low, high = (extend(np.repeat(bound[None], 600, axis=0)) for bound in (space.low, space.high))
        wide = spaces.Box(np.minimum(low, 0), high, dtype=np.float32)
        data = replace(demos, episodes=tuple(episodes))
        self.agent = train("bc", data, env_spaces=(wide, actions), progress=False, seed=seed, failed="keep")

    def act(self, observation: Any, state: Any, episode_start: Any) -> Any:
        seen = np.concatenate([state, observation[:, None]], axis=1) if state is not None else observation[:, None]
        return self.agent.predict(np.stack([self.extend(each) for each in seen]))[0], seen


def with_time(states: Any) -> Any:
    """Return the last state and the time step."""
    return np.append(states[-1], np.float32(len(states))).astype(np.float32)


def with_history(states: Any) -> Any:
    """Return the last three states; the first one is repeated."""
    return np.concatenate([states[max(len(states) - back, 0)] for back in (1, 2, 3)])


class NoisyBC(BC):
    """BC with noise on its states: displaced as far as in corrective-bc, but with the demonstrated action."""

    name = "bc-noise"
    distance = 2.0

    @property
    def sampling(self) -> Any:
        return replace(super().sampling, horizons=(1,))

    def loss(self, batch: Any, rng: np.random.Generator) -> Any:
        now, change = batch.now_states, batch.future_states[:, 0] - batch.now_states
        far = rng.uniform(-self.distance, self.distance, (len(now), 1)).astype(np.float32)
        moved = now + torch.as_tensor(far) * change[torch.as_tensor(rng.permutation(len(now)))]
        distances = self.actions.distance(self.outputs(moved), batch.action)
        return {"bc": batch.mean(distances)}


def with_predictor(agent: PIDM, predictor: Predictor, pull: float | None = None) -> PIDM:
    """Return the agent's twin with another predictor, or another pull; the inverse dynamics model is shared."""
    twin = copy.copy(agent)
    twin._modules = dict(agent._modules)
    twin.predictor = copy.copy(predictor)
    if pull is not None:
        assert isinstance(twin.predictor, Lookup)
        twin.predictor.pull = pull
    return twin


def fitted(agent: PIDM, predictor: str, demos: DemoDataset) -> Predictor:
    """Return a predictor of the agent's states, fitted to the demonstrations."""
    twin = with_predictor(agent, agent.predictor)
    twin.make_predictor(predictor)
    twin.fit_predictor(TrainingData(demos))
    return twin.predictor


def pidm_twins(name: str, agent: PIDM, follow: Predictor | None = None) -> Iterator[tuple[str, Policy]]:
    """Yield the agent with pulls of 0 to 2 and, if given, with `follow` with and without pull."""
    for pull in (1.0, 0.0, *DOSES):
        yield f"{name}/nearest/{pull:g}", with_predictor(agent, agent.predictor, pull)
    for pull in (1.0, 0.0) if follow is not None else ():
        yield f"{name}/follow/{pull:g}", with_predictor(agent, follow, pull)


def bc_twins(agent: Policy, demos: DemoDataset) -> Iterator[tuple[str, Policy]]:
    """Yield BC with pulls of 0 to 2."""
    yield "bc", agent
    for strength in (1.0, *DOSES):
        yield f"bc+pull/{strength:g}", Pull(agent, demos, strength)


def make_policies(cell: Cell, demos: DemoDataset) -> Iterator[tuple[str, Policy]]:
    """Train the cell's agents and yield them with their twins."""
    settings: dict[str, Any] = {"progress": False, "seed": cell.seed, "failed": "keep"}
    if cell.part == "P":
        yield from bc_twins(train("bc", demos, "paper-fast", **settings), demos)
        yield from pidm_twins("state", train("pidm", demos, "paper-fast", **settings))
        return
    if cell.part != "C":
        yield "corrective-bc", train("corrective-bc", demos, **settings)
    if cell.part == "D":
        return
    yield from bc_twins(train("bc", demos, **settings), demos)
    state = train("pidm", demos, **settings)
    delta = train("delta-pidm", demos, predictor="nearest", **settings)
    if cell.part == "C":
        yield from itertools.chain(pidm_twins("state", state), pidm_twins("delta", delta))
        return
    yield "bc-noise", train(NoisyBC, demos, **settings)
    yield "bc-progress", Seen(with_time, demos, cell.seed)
    yield "bc-history", Seen(with_history, demos, cell.seed)
    yield "recurrent-bc", train("recurrent-bc", demos, **settings)
    yield "retrieval-bc", train("retrieval-bc", demos, **settings)
    yield "replay", Replay(demos)
    follow = fitted(state, "follow", demos)
    assert isinstance(follow, Follow)
    yield "follow-action", FollowAction(follow, demos)
    expert = AStarExpert(cell.task)

    def oracle(states: Any) -> Any:
        inside = np.array(states)  # a bounce at an open border can leave the room by a few pixels
        inside[:, POSITION] = np.clip(inside[:, POSITION], 0, np.array(find_task(cell.task).layout().room_size) - 1)
        future = inside.copy()
        planned = np.flatnonzero(expert.cost(inside) < FAR)  # an agent that has slipped out of the walls stays there
        if planned.size:
            future[np.ix_(planned, [0, 1])] += SPEED * expert.predict(inside[planned])[0]
        return future

    learned = {"learned": fitted(state, "learned", demos), "denoising": fitted(state, "learned(noise=2)", demos)}
    learned["oracle"] = Oracle(oracle)
    linear = train("pidm", demos, idm="linear", **settings)
    for name, agent in {"state": state, "delta": delta, "linear": linear}.items():
        yield from pidm_twins(name, agent, follow)
        yield from ((f"{name}/{each}", with_predictor(agent, predictor)) for each, predictor in learned.items())
    for name, predictor in {"nearest": state.predictor, "follow": follow}.items():
        for pull in (1.0, 0.0):
            yield f"exact/{name}/{pull:g}", Exact(with_predictor(state, predictor, pull).predictor)
    yield from ((f"exact/{each}", Exact(predictor)) for each, predictor in learned.items())


def roll_out(policy: Policy, demos: DemoDataset, seeds: Sequence[int], keep_steps: bool = False) -> Rollout:
    """Return a policy's episodes with these seeds, in the dynamics of the demonstrations."""
    with closing(find_task(demos.task).make_vec(len(seeds), **demos.env_kwargs)) as env:
        running = Rollout(policy, env, seeds, keep_steps=keep_steps)
        while not running.done:
            running.step()
    return running


def shuffle(recordings: DemoDataset, seed: int, demos: int) -> DemoDataset:
    """Return recordings in the order of a training seed: the first are the demonstrations, the last are held out."""
    rng = np.random.default_rng([seed, crc32(recordings.task.encode()), demos])
    return recordings[rng.permutation(len(recordings))]


def score(policy: Policy, demos: DemoDataset, held_out: DemoDataset, seed: int) -> dict[str, float]:
    """Return the plan's metrics of one policy."""
    done = roll_out(Pushed(policy, EPISODES), demos, [*TEST[:EPISODES], *TEST[:EPISODES]])
    goals = np.array([each.goals_reached for each in done.endings()]).reshape(2, EPISODES)
    goals = goals / find_task(demos.task).num_goals
    found = {"goals": goals[0].mean(), "pushed": goals[1].mean(), "success": (goals[0] == 1).mean()}
    if not isinstance(policy, Replay) and not isinstance(getattr(policy, "predictor", None), Oracle):
        found["error"] = action_error(policy, held_out)
        found["restoring"] = restoring_coefficient(policy, held_out, np.random.default_rng(seed))
    if isinstance(policy, PIDM | Exact):
        states, actions, futures, *_ = held_out.transitions()
        found["true_error"] = np.square(policy.inverse_dynamics(states, futures) - actions).mean()
    return {name: round(float(value), 5) for name, value in found.items()}


def load(folder: Path, demonstrator: str, task: str) -> DemoDataset:
    """Return the recordings of a demonstrator; the noisy expert's are made here."""
    if demonstrator != "noisy-astar":
        return load_demos(folder / f"{task.replace('-', '_')}_{demonstrator}.npz")
    policy = Noisy(AStarExpert(task), DEMOS_SEED)
    return collect(policy, task, 50, DEMOS_SEED, made_by="noisy A*", max_steps=1000, clip_noise=False)


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    """Run one job."""
    torch.set_num_threads(1)
    began, recordings = time.perf_counter(), load(folder, cell.demonstrator, cell.task)
    shuffled = shuffle(recordings, cell.seed, cell.demos)
    demos, held_out = shuffled[: cell.demos], shuffled[-HELD_OUT:]
    chosen = (each for each in make_policies(cell, demos) if cell.part != "C" or each[0] in CORE)
    found = {name: score(policy, demos, held_out, cell.seed) for name, policy in chosen}
    return {**cell._asdict(), "seconds": round(time.perf_counter() - began, 1), "agents": found}


def main(data: Path, out: Path, part: tuple[str, ...] = ("P", "F", "C", "D"), jobs: int = 1) -> None:
    """Run the jobs that the file does not hold yet, some at a time."""
    wanted = (cell for each in part for cell in cells(each))
    run_missing(wanted, lambda cell: joblib.delayed(run)(cell, data), out, jobs)


if __name__ == "__main__":
    tyro.cli(main)
