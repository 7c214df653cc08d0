"""Make docs/results/world3d: BC against PIDM from pixels in the 3D world.

    python scripts/run_world3d.py                     everything that is not there yet
    python scripts/run_world3d.py --levels tour-3d --seeds 3 --realtime 0

For each level, number of demonstrations and seed a CNN is trained with BC on demonstrations of the scripted walker, and
frozen; then BC and PIDM learn from its vectors, as both do from one pretrained encoder in the paper. The first BC,
trained end to end, is kept as a third agent, and a fourth is PIDM shown the current state in place of the future. All
are rolled out in step with the engine, BC and PIDM also in real time, where tics pass while the agent thinks.
Demonstrations, agents and scores are kept in --work, so a stopped run goes on where it was. A rollout in real time
keeps a core busy for a tenth of the time, so several run at once; the share of steps that took more tics than they
should is written down.

Last, five more demonstrations, made anew each time, tell how far the actions of BC and PIDM are from the walker's, and
whether PIDM's depends on the future it is shown: the demonstration's own next state, or another one's at that time.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pidm_nav.agents import PIDM, NavPolicy, load_agent, train
from pidm_nav.agents.predictors import StatePredictor
from pidm_nav.agents.train import default_options, default_preset, preset
from pidm_nav.analysis.figures import Row, save_rows
from pidm_nav.demos import DemoDataset, load_demos, save_demos
from pidm_nav.experiments.curves import Curve, mean_curve, std_curve
from pidm_nav.experiments.efficiency import welch_tests
from pidm_nav.experiments.engines import Outcome, run_local
from pidm_nav.experiments.figures import Figure, Line, Panel, draw
from pidm_nav.experiments.results import write_json
from pidm_nav.world2d.drawing import Frame
from pidm_nav.world2d.render import side_by_side, write_video
from pidm_nav.world3d.engine import TICS_PER_SECOND
from pidm_nav.world3d.env import FRAME_SKIP
from pidm_nav.world3d.levels import get_level
from pidm_nav.world3d.rollout import collect3d, roll_out3d

ROOT = Path(__file__).parents[1]
END_TO_END, BLIND = "bc-cnn", "pidm-blind"
AGENTS = ("bc", "pidm", END_TO_END, BLIND)
TITLES = {"bc": "BC", "pidm": "PIDM", END_TO_END: "BC, end to end", BLIND: "PIDM, shown the present"}
SIZES = (5, 15, 30)
MODES = ("synchronous", "real time")
FIRST_DEMO = 10_000  # seed of the first demonstration; the presets were chosen on others
HELD_OUT = (20_000, 5)  # seed of the first demonstration that nobody trains on, and their number
FILM_STEPS = 450
FIRST_EPISODE = 1_000_000  # seed of the first rollout, likewise

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--levels", nargs="*", default=["tour-3d", "four-room-3d"])
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--episodes", type=int, default=10, help="rollouts of a cell in step with the engine")
parser.add_argument("--realtime", type=int, default=3, help="rollouts of a cell in real time, some 40 s each")
parser.add_argument("--at-once", type=int, default=4, help="cells rolled out in real time at once")
parser.add_argument("--work", type=Path, default=ROOT / "runs" / "world3d")
parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "world3d")


class Present(StatePredictor):
    """Says that all will stay as it is."""

    name = "present"

    def fit(self, dataset: DemoDataset, horizon: int = 1) -> Present:
        """Needs no data."""
        return self

    def predict(self, observations: NDArray[np.float32], state: Any = None) -> NDArray[np.float32]:
        """The same states again."""
        return observations


class Job(NamedTuple):
    """A cell in one mode, and where its files are."""

    level: str
    size: int
    seed: int
    mode: str
    episodes: int
    work: Path

    @property
    def agents(self) -> tuple[str, ...]:
        """Who is rolled out."""
        return AGENTS if self.mode == MODES[0] else AGENTS[:2]

    @property
    def name(self) -> str:
        """Of the cell."""
        return f"{self.level}-{self.size}-{self.seed}"

    def folder(self, agent: str) -> Path:
        """Of an agent."""
        return self.work / "agents" / f"{self.name}-{agent}"

    def result(self, agent: str) -> Path:
        """The file of an agent's scores."""
        return self.work / "results" / f"{self.name}-{agent}-{self.mode.replace(' ', '-')}-{self.episodes}.json"


def demos_file(work: Path, level: str) -> Path:
    return work / f"{level}-from-{FIRST_DEMO}.npz"


def get_agent(job: Job, agent: str) -> tuple[NavPolicy, float | None]:
    """The trained agent, which is trained first if need be, and the seconds that took."""
    if agent == BLIND:
        policy, _ = get_agent(job, "pidm")
        policy.predictor = Present()
        return policy, None
    if (job.folder(agent) / "agent.json").exists():
        return load_agent(job.folder(agent)), None
    began = time.perf_counter()
    if agent != END_TO_END:
        get_agent(job, END_TO_END)  # has the CNN
    demos = load_demos(demos_file(job.work, job.level)).sample(job.size, np.random.default_rng([job.seed, job.size]))
    kind = "pidm" if agent == "pidm" else "bc"
    frames = "cnn" if agent == END_TO_END else f"agent:{job.folder(END_TO_END)}"
    options = default_options(kind, demos, frames=frames)
    config = preset(default_preset(demos, options), kind, job.level)
    policy = train(kind, demos, replace(config, seed=job.seed), job.folder(agent), options=options)
    return policy, round(time.perf_counter() - began, 1)


def run(job: Job) -> Outcome:
    """Train the agents that are not there, roll them out, write the scores; returns their means."""
    means = {}
    for agent in sorted(job.agents, key=lambda agent: agent != END_TO_END):  # the CNN comes first
        if not job.result(agent).exists():
            policy, seconds = get_agent(job, agent)
            write_json(job.result(agent), {**roll_out(policy, job), "training_seconds": seconds})
        means[agent] = json.loads(job.result(agent).read_text())["milestones"]
    return means


def roll_out(policy: NavPolicy, job: Job) -> dict[str, Any]:
    """The share of milestones passed, and of steps that came late."""
    began = time.perf_counter()
    level = get_level(job.level)
    realtime = job.mode == "real time"
    made = roll_out3d(policy, level, job.episodes, FIRST_EPISODE, keep_observations=False, realtime=realtime)
    milestones = [int(episode.infos["goals_reached"][-1]) / level.num_goals for episode in made]
    return {
        "milestones": float(np.mean(milestones)),
        "episodes": milestones,
        "late": float(np.mean(np.concatenate([episode.infos["tics"] for episode in made]) > FRAME_SKIP)),
        "rollout_seconds": round(time.perf_counter() - began, 1),
    }


Results = dict[tuple[Job, str], dict[str, Any]]


def curves_of(results: Results, level: str, mode: str) -> dict[str, Curve]:
    """A curve an agent."""
    cells: dict[str, dict[tuple[int, int], list[float]]] = {}
    for (job, agent), result in results.items():
        if (job.level, job.mode) == (level, mode):
            cells.setdefault(agent, {})[job.size, job.seed] = [result["milestones"]]
    return {agent: Curve.from_cells(level, agent, "scripted", cells[agent]) for agent in AGENTS if agent in cells}


def write_out(results: Results, levels: list[str], out: Path) -> None:
    """The figure, the tables and every score."""
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    panels = []
    for level, mode in itertools.product(levels, MODES):
        curves = curves_of(results, level, mode)
        if not curves:
            continue
        for agent, curve in curves.items():
            mean, std = mean_curve(curve), std_curve(curve)
            tests = welch_tests(curves["pidm"], curve) if agent != "pidm" else []
            against = {test["demos"]: test for test in tests}
            for index, size in enumerate(curve.sizes):
                row: Row = {"level": level, "mode": mode, "agent": agent, "demos": size}
                row |= {"seeds": curve.scores.shape[1], "mean": round(float(mean[index]), 3)}
                row |= {"std": round(float(std[index]), 3)}
                for name in ("difference", "t", "p"):  # PIDM's lead over this agent
                    row[f"pidm_{name}"] = round(against[size][name], 4) if size in against else None
                rows.append(row)
        panels.append(Panel(f"{get_level(level).title}, {mode}", tuple(itertools.starmap(_line, curves.items()))))
    save_rows(rows, out / "world3d.csv")
    draw(Figure("world3d", "Milestones against demonstrations", "", tuple(panels)), out)
    summary = [
        {**{name: value for name, value in job._asdict().items() if name != "work"}, "agent": agent, **result}
        for (job, agent), result in sorted(results.items(), key=lambda item: item[0])
    ]
    write_json(out / "summary.json", {"jobs": summary})


def _line(agent: str, curve: Curve) -> Line:
    tone = {END_TO_END: "other", BLIND: "third"}.get(agent, agent)
    return Line(TITLES[agent], tone, curve.sizes, mean_curve(curve), std_curve(curve), np.nan, dashed=agent == BLIND)


def future_use(job: Job, held_out: DemoDataset) -> Row:
    """Mean squared errors of actions on demonstrations not trained on, and what another future changes in PIDM's."""
    bc, pidm = (load_agent(job.folder(agent)) for agent in ("bc", "pidm"))
    assert isinstance(pidm, PIDM)
    rng = np.random.default_rng(0)
    parts = []
    for seen, cloned_from, states in zip(held_out, bc.embedded(held_out), pidm.embedded(held_out), strict=True):
        now, actions = states.observations[:-1], seen.actions
        followed = np.stack([np.arange(len(now)), np.full(len(now), rng.integers(job.size))], axis=1)
        own = pidm.inverse_dynamics(now, states.observations[1:])
        other = pidm.inverse_dynamics(now, pidm.predictor.predict(now, followed))
        cloned, _ = bc.act(cloned_from.observations[:-1], None, np.zeros(len(now), dtype=bool))
        parts.append([cloned - actions, own - actions, other - actions, own - other])
    errors = [float(np.square(np.concatenate(part)).mean()) for part in zip(*parts, strict=True)]
    spread = float(np.concatenate([episode.actions for episode in held_out]).var(axis=0).mean())
    names = ("bc_error", "pidm_error_own_future", "pidm_error_other_future", "pidm_change", "action_variance")
    rounded = {name: round(value, 5) for name, value in zip(names, [*errors, spread], strict=True)}
    return {"level": job.level, "demos": job.size, "seed": job.seed, **rounded}


def film(level: str, size: int, work: Path, out: Path) -> None:
    """The start of both agents' first rollouts side by side, as long as a demonstration and a bit."""
    films: list[list[Frame]] = []
    titles = []
    for agent in AGENTS[:2]:
        pictures: list[Frame] = []
        policy = load_agent(Job(level, size, 0, "", 0, work).folder(agent))
        (episode,) = roll_out3d(
            policy,
            level,
            1,
            FIRST_EPISODE,
            keep_observations=False,
            watch=functools.partial(_keep, pictures),
            render_mode="rgb_array",
        )
        films.append(pictures)
        titles.append(f"{TITLES[agent]}: {episode.infos['goals_reached'][-1]} milestones")
    pairs = (
        side_by_side([pictures[min(step, len(pictures) - 1)] for pictures in films], titles)
        for step in range(min(max(map(len, films)), FILM_STEPS))
    )
    write_video(pairs, out / f"{level}-bc-and-pidm.mp4", fps=TICS_PER_SECOND / FRAME_SKIP, loss=30)


def _keep(pictures: list[Frame], env: gym.Env[Any, Any]) -> None:
    pictures.append(np.asarray(env.render(), np.uint8))


def main() -> None:
    options = parser.parse_args()
    (options.work / "results").mkdir(parents=True, exist_ok=True)
    for level in options.levels:
        if not demos_file(options.work, level).exists():
            save_demos(collect3d(level, max(SIZES), FIRST_DEMO), demos_file(options.work, level))
    results: Results = {}
    for mode, episodes, workers in zip(
        MODES, (options.episodes, options.realtime), (None, options.at_once), strict=True
    ):
        jobs = [
            Job(level, size, seed, mode, episodes, options.work)
            for seed in range(options.seeds)
            for level in options.levels
            for size in SIZES
            if episodes
        ]
        left = [job for job in jobs if not all(job.result(agent).exists() for agent in job.agents)]
        for done, (job, outcome) in enumerate(run_local(run, left, workers), start=1):
            if "error" in outcome:
                raise RuntimeError(f"{job.name}: {outcome.get('traceback', outcome['error'])}")
            scores = ", ".join(f"{TITLES[agent]} {mean:.3f}" for agent, mean in outcome.items())
            print(f"{mode} {done}/{len(left)} {job.name}: {scores}", flush=True)
        results |= {(job, agent): json.loads(job.result(agent).read_text()) for job in jobs for agent in job.agents}
        if results:
            write_out(results, options.levels, options.out)
    cells = {job._replace(mode="", episodes=0) for job, _ in results}
    held_out = {level: collect3d(level, HELD_OUT[1], HELD_OUT[0]) for level in options.levels}
    save_rows([future_use(job, held_out[job.level]) for job in sorted(cells)], options.out / "future_use.csv")
    film(options.levels[0], 15, options.work, options.out)


if __name__ == "__main__":
    main()
