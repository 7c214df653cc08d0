"""The quickstart: a small sweep of BC, PIDM and PIDM without its pull on one task, with a report and an animation.

quickstart/
  index.html, report.md, figures/, tables/   the report
  bc-and-pidm.gif                            the typical episode (see `typical_episode`), the agents side by side
  traces.png                                 the demonstrations on the map, written first
  sweeps/human-like, sweeps/astar            folders of the sweeps, from which an interrupted quickstart resumes
  sweeps/agents/maze_pidm_5_0, ...           agents trained on human-like demonstrations
  quickstart.json                            settings
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.console import Advance, counted, say, shell_command
from pidm_nav.demos import load_demos
from pidm_nav.demos.traces import plot_traces
from pidm_nav.experiments.curves import Curve
from pidm_nav.experiments.engines import run_local
from pidm_nav.experiments.jobs import TRAINED_WITH, run_job
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.report import Headline, Report, Section, check_page, make_report, save_report
from pidm_nav.experiments.results import Cell, JobResult, read_results
from pidm_nav.experiments.sweep import Sweep, run_sweep
from pidm_nav.files import read_json, writable_folder, write_json
from pidm_nav.plots import agent_color, agent_title, demonstrator_title, save_figure
from pidm_nav.rollouts.comparison import Comparison
from pidm_nav.rollouts.evaluation import EvalResult, evaluate
from pidm_nav.seeds import TEST
from pidm_nav.tasks import find_task
from pidm_nav.version import __version__
from pidm_nav.video import write_video

MARK = "quickstart.json"
GIF = "bc-and-pidm.gif"
AGENTS = ("bc", "pidm")  # trained on each kind of demonstrations
TWIN = "pidm-no-pull"  # the trained PIDMs, evaluated without their pull
KINDS = ("human-like", "astar")
PANE = 300  # pixels of each agent's picture
EVERY = 2  # steps per frame of the animation
PAUSE = 24  # frames of the animation's end
ENOUGH = 100  # gradient steps; shorter runs are smoke tests


@dataclass(frozen=True)
class QuickstartPlan:
    """Size of the quickstart; task, sizes and seeds were fixed before the first result."""

    task: str = "maze"  # where the paper's gain is largest (its Table 1)
    num_demos: tuple[int, ...] = (1, 2, 5)  # human-like demonstrations to train on
    astar_num_demos: tuple[int, ...] = (5,)
    seeds: int = 3  # number of training seeds
    steps: int = 1500  # gradient steps of each training run
    episodes: int = 50  # number of episodes per evaluation, the same for all agents

    @property
    def work(self) -> int:
        """Number of agents to train or to change."""
        kinds = len(AGENTS) * (len(self.num_demos) + len(self.astar_num_demos)) + len(self.num_demos)
        return kinds * self.seeds

    def sweep(self, kind: str, out: Path) -> Sweep:
        """Return the sweep over one kind of demonstrations."""
        return Sweep(
            agents=AGENTS,
            num_demos=self.num_demos if kind == "human-like" else self.astar_num_demos,
            seeds=self.seeds,
            tasks=(self.task,),
            demos_from=kind,
            steps=self.steps,
            episodes=self.episodes,
            checkpoint_fractions=(),
            clip_noise=True,
            keep_agents=out / "sweeps" / "agents" if kind == "human-like" else None,
        )

    def twins(self, out: Path) -> Sweep:
        """Return the sweep of the trained PIDMs without pull, which only evaluates."""
        recipe = Recipe("pidm", adapt=without_pull, trained_as="pidm")
        return replace(self.sweep("human-like", out), agents=(TWIN,), recipes={TWIN: recipe})


def without_pull(agent: Any) -> None:
    """Remove the pull: the predictor then adds the demonstration's change to the agent's state."""
    agent.predictor.pull = 0.0


FAST = QuickstartPlan("four-room", (1, 2), (2,), seeds=2, steps=2, episodes=4)
"""Smoke test with almost no training."""


def check_folder(plan: QuickstartPlan, out: Path, force: bool) -> None:
    """Raise an error for a folder that holds other files or another quickstart, or cannot be written to."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"'{out}' is a file: choose another folder")
    writable_folder(out)
    others = (path for path in out.iterdir() if not path.name.startswith(".quickstart."))  # locks of killed runs
    if not force and not (out / MARK).is_file() and any(others):
        raise FileExistsError(f"'{out}' holds other files: choose another folder, or force=True to keep them")
    if not force and _differs(plan, out):
        told = f"'{out}' holds a quickstart with other settings or of another version"
        raise FileExistsError(f"{told}: choose another folder, or force=True to replace it")
    check_page(out)


def _settings(plan: QuickstartPlan) -> dict[str, Any]:
    return {"made_by": "pidm-nav quickstart", "version": __version__, "plan": json.loads(json.dumps(asdict(plan)))}


def _differs(plan: QuickstartPlan, out: Path) -> bool:
    """Return whether a folder holds a quickstart with other settings."""
    return (out / MARK).is_file() and bool(read_json(out / MARK, "delete it to start over") != _settings(plan))


def run(plan: QuickstartPlan, out: Path, advance: Advance, workers: int | None = None) -> Report:
    """Train, evaluate, draw and write everything; an interrupted run is resumed."""
    if _differs(plan, out):  # and is to be replaced: see `check_folder`
        shutil.rmtree(out / "sweeps", ignore_errors=True)
    write_json(out / MARK, _settings(plan), indent=1)
    demos = {demonstrator_title(kind): load_demos(f"{plan.task}/{kind}") for kind in KINDS}
    figure = plot_traces(demos)
    figure.set_dpi(160)
    save_figure(figure, out / "traces.png")
    say(f"demonstrations: {out / 'traces.png'}")

    def tell(result: JobResult) -> None:
        if result.error is not None:
            raise ValueError(f"{result.cell} failed: {result.error}")
        advance(1, note=f"{result.cell}: {result.score:.2f}")

    for sweep, kind in [*((plan.sweep(kind, out), kind) for kind in KINDS), (plan.twins(out), "human-like")]:
        run_sweep(
            sweep,
            out / "sweeps" / kind,
            functools.partial(run_local, workers=workers),
            retry_failed=True,
            on_start=lambda _, done: advance(len(done)),
            on_result=tell,
        )
    advance(0, note="drawing the animation and the report")
    report = _make_report(plan, _animate(plan, out), out)
    save_report(report, out)
    return report


def typical_episode(goals: NDArray[Any]) -> tuple[int, int]:
    """Return the index of the seed and the episode to show: where all agents are closest to their means.

    Args:
        goals: (agents, seeds, episodes) goals reached.
    """
    distance = np.abs(goals - goals.mean(axis=(1, 2), keepdims=True)).sum(axis=0)
    seed, number = divmod(int(distance.argmin()), distance.shape[1])
    return seed, number


def _animate(plan: QuickstartPlan, out: Path) -> str:
    """Animate the agents that the report's first sentence is about in the typical episode, and describe the episode."""
    from pidm_nav.agents import load_agent

    sweep, results = plan.sweep("human-like", out), read_results(out / "sweeps" / "human-like")[0]
    size, num_goals = plan.num_demos[-1], find_task(plan.task).num_goals

    def cell(agent: str, seed: int) -> Cell:
        return Cell(seed, plan.task, size, agent)

    found = [[results[cell(agent, seed)] for seed in range(plan.seeds)] for agent in (*AGENTS, TWIN)]
    goals = [[result.checkpoints[-1].goals for result in runs] for runs in found]
    if any(len(reached) != plan.episodes for runs in goals for reached in runs):
        raise ValueError(f"the results in '{out / 'sweeps'}' were changed: delete that folder")
    seed, number = typical_episode(np.array(goals))
    shown: dict[str, EvalResult] = {}
    for name in AGENTS:
        job = sweep.job(cell(name, seed))
        if job.keep is None or not (job.keep / TRAINED_WITH).is_file():
            run_job(job)  # the agent was deleted
        agent = load_agent(str(job.keep))
        shown[agent_title(name)] = evaluate(agent, plan.task, plan.episodes, TEST.start)
    without_pull(agent)
    shown[agent_title(TWIN)] = evaluate(agent, plan.task, plan.episodes, TEST.start)
    frames = Comparison(shown).frames(number, PANE)
    write_video(frames + frames[-1:] * (EVERY * PAUSE), out / GIF, fps=30, every=EVERY)
    reached = ", ".join(f"{title} {result.endings[number].goals_reached}" for title, result in shown.items())
    return (
        f"of {plan.seeds * plan.episodes} episodes after {counted(size, 'demonstration')}, the one in which all agents "
        f"are closest to their means: training seed {seed}, episode seed {TEST.start + number}; {reached} of "
        f"{num_goals} goals"
    )


def headline(curves: Sequence[Curve], steps: int) -> str:
    """Return the result in a sentence, whoever is ahead."""
    last = {(curve.demos_from, curve.agent): curve.mean[-1] for curve in curves}
    sizes = {curve.demos_from: curve.sizes[-1] for curve in curves}
    bc, pidm = (last["human-like", agent] for agent in AGENTS)
    verdict = "PIDM is ahead" if pidm > bc + 0.005 else "BC is ahead" if bc > pidm + 0.005 else "Neither is ahead"
    if steps < ENOUGH:
        verdict = f"{steps} gradient steps are too few to tell"
    wins, pairs = _wins(curves)
    return (
        f"{verdict}: after {sizes['human-like']} human-like demonstrations PIDM reaches {pidm:.0%} of the goals, "
        f"BC {bc:.0%}; PIDM does better in {wins} of {pairs} pairs of training runs on the same human-like "
        f"demonstrations. Without its pull back to the demonstrations, PIDM reaches {last['human-like', TWIN]:.0%}. "
        f"After {sizes['astar']} of the A* planner, which does not vary its ways, "
        f"PIDM reaches {last['astar', 'pidm']:.0%}, BC {last['astar', 'bc']:.0%}."
    )


def _wins(curves: Sequence[Curve]) -> tuple[int, int]:
    """Return PIDM's wins and the number of pairs of training runs on the same human-like demonstrations."""
    named = {curve.agent: curve.seed_scores for curve in curves if curve.demos_from == "human-like"}
    return int((named["pidm"] > named["bc"]).sum()), named["pidm"].size


def next_steps(plan: QuickstartPlan, out: Path) -> dict[str, str]:
    """Return commands to run next, by title."""
    agent = out / "sweeps" / "agents" / Cell(0, plan.task, plan.num_demos[-1], "pidm").name
    return {
        "Race the agent yourself": shell_command("play", "--task", plan.task, "--agent", agent),
        "Record yourself and train on it": (
            f"pidm-nav record --task {plan.task} --episodes 10 --out my_demos.npz\n"
            "pidm-nav train --agent pidm --demos my_demos.npz --out runs/mine\n"
            "pidm-nav evaluate runs/mine --video mine.mp4"
        ),
        "Run the full comparison with the paper's numbers": (
            "pidm-nav sweep --tasks all --num-demos 1,5,20 --seeds 5 --out results\npidm-nav report results"
        ),
    }


def _make_report(plan: QuickstartPlan, animation: str, out: Path) -> Report:
    """Return the report of both sweeps, with the animation first."""
    report = make_report([out / "sweeps" / kind for kind in KINDS])
    task, (wins, pairs) = find_task(plan.task), _wins(report.curves)
    headlines = [
        Headline(
            f"{curve.mean[-1]:.0%}",
            f"of the goals reached by {agent_title(curve.agent)} after {curve.sizes[-1]} human-like demonstrations",
            color=agent_color(curve.agent),
        )
        for curve in report.curves
        if curve.demos_from == "human-like"
    ]
    text = "pairs of training runs on the same demonstrations in which PIDM is better than BC"
    headlines.append(Headline(f"{wins} of {pairs}", text))
    figures, (ratios, scores) = report.sections[1].figures, (report.sections[0], report.sections[-2])
    habits = "A script with a gamepad player's habits, and a planner that always takes the same way."
    sections = [
        Section(
            "The same episode, three times",
            "PIDM steers toward the future of the nearest demonstrated state, which pulls it back. Without this "
            "pull, the same PIDM repeats demonstrated changes from its own position, and drifts off.",
            pictures={"BC, PIDM, and the same PIDM without its pull.": out / GIF},
            panes=3,
        ),
        Section(
            "How many demonstrations are needed?",
            headlines=headlines,
            figures=figures,
            tables=scores.folded,
            folded=[*ratios.tables, *ratios.folded],
        ),
        Section("Demonstrations", habits, pictures={"All demonstrations on the map.": out / "traces.png"}),
        Section("Next", commands=next_steps(plan, out)),
    ]
    facts = {
        **report.facts,
        "Tasks": f"{task.title}: {task.num_goals} goals in order, at most {task.max_steps} steps",
        "Demonstrations": "50 of a human-like script and 50 of an A* planner, which come with the package",
        "Evaluation": f"{plan.episodes} episodes, the same for every agent, at the end of training",
        "Animation": animation,
        "Chosen beforehand": (
            "the task, where the paper's Table 1 has its largest gain, the numbers of demonstrations and the seeds: "
            "none is picked by its result"
        ),
    }
    return replace(
        report,
        sections=sections,
        facts=facts,
        title="Does predicting the future help your policy?",
        lead="The agents were just trained on this machine, on the same few demonstrations.",
        found=headline(report.curves, plan.steps),
    )
