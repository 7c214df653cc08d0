"""The commands on agents: `evaluate`, `agents`, `export` and `hub push`."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from pidm_nav.commands.options import EnvArguments, EnvOptions, check_output_files
from pidm_nav.console import counted, print_table, progress_bar, say
from pidm_nav.demos.experts import EXPERTS
from pidm_nav.files import write_json, write_rows
from pidm_nav.limits import check_number
from pidm_nav.packaged import packaged_agents
from pidm_nav.policies import load_named, named_expert
from pidm_nav.rollouts.comparison import Comparison, check_same_world
from pidm_nav.rollouts.evaluation import EvalResult, evaluate
from pidm_nav.rollouts.rollout import Policy, episode_seeds, rollout
from pidm_nav.seeds import TEST
from pidm_nav.statistics import interval_text
from pidm_nav.tasks import Metric, Task, find_task
from pidm_nav.video import require_display

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent

Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="AGENT...", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate:
    """Evaluate agents in a task; several agents are compared on the same episodes.

    Each agent is compared with the first: the mean difference with its 95% interval over episodes, and the p-value of
    Wilcoxon's signed-rank test, paired by episode, with Holm's correction.

    Example: pidm-nav evaluate maze/pidm maze/bc --episodes 50 --video out.mp4
    """

    agents: Names
    """Agents: folders of trained agents, pretrained agents such as maze/pidm, hf://OWNER/NAME on the Hugging Face Hub,
    or experts (astar, human-like; scripted in 3D)."""
    task: str | None = None
    """Task with the same observations as in training. Default: that of training."""
    episodes: int | None = None
    """Number of episodes. Default: 50 in vectorized tasks, 10 otherwise."""
    seed: int = TEST.start
    """Seed of the first episode; episode i has seed + i."""
    metric: Metric | None = None
    """Metric. Default: the task's; the return in environments that do not report success."""
    env: EnvArguments = field(default_factory=EnvOptions)
    per_episode: bool = False
    """Print a row for every agent and episode."""
    csv: Path | None = None
    """CSV file to write, with a row for every agent and episode. Default: none."""
    json: Path | None = None
    """JSON file to write, with the same rows. Default: none."""
    video: Path | None = None
    """Video to write, .mp4 or .gif, of one episode with all agents side by side. Default: none."""
    video_episode: int | None = None
    """Index of the episode for --video. Default: 0."""
    device: str = "cpu"
    """Device of trained agents: cpu, cuda, mps, or auto (a GPU if there is one)."""
    render: bool = False
    """Show one episode of each agent in a window."""

    def run(self) -> None:
        """Evaluate the agents, and print and save the results."""
        episode_seeds(1 if self.episodes is None else self.episodes, self.seed)
        self._check_files()
        task, players = self._players()
        task = find_task(task, self.metric)
        episodes = self.episodes if self.episodes is not None else 50 if task.rows > 1 else 10
        film = None if self.video is None else (self.video_episode or 0)
        if film is not None:
            check_number("--video-episode", film, 0, episodes - 1)
        began = time.perf_counter()
        results = {}
        with progress_bar(f"{', '.join(players)} on {task.name}", episodes * len(players)) as progress:
            for name, (policy, arguments) in players.items():
                results[name] = evaluate(policy, task, episodes, self.seed, film=film, progress=progress, **arguments)
        seconds = time.perf_counter() - began
        comparison = Comparison(results)
        rows = comparison.episodes()
        if self.per_episode:
            print_table(rows if len(rows) > episodes else comparison.first.table())
        if len(results) == 1:
            ((name, (policy, _)),) = players.items()
            _say_result(getattr(policy, "name", name), comparison.first, seconds)
        else:
            same = f"{counted(episodes, 'episode')}, the same for all; took {seconds:.1f} s"
            print_table(comparison.shown(), title=f"{task.name}, {same}")
        if self.csv is not None:
            write_rows(self.csv, rows)
        if self.json is not None:
            write_json(self.json, rows, indent=1)
        if self.video is not None and film is not None:
            shown: Any = comparison.first if len(results) == 1 else comparison
            shown.video(self.video, film)
            say(f"episode {film} is in {self.video}")
        for policy, arguments in players.values() if self.render else ():
            with closing(task.make_vec(1, render_mode="human", **arguments)) as window:
                rollout(policy, window, [self.seed + (film or 0)])

    def _check_files(self) -> None:
        """Raise an error for files that cannot be written."""
        if self.render:
            require_display("use --video")
        if self.video is None and self.video_episode is not None:
            raise ValueError("--video-episode is given without --video: add --video with a file's name")
        outputs = {"--csv": self.csv, "--json": self.json, "--video": self.video}
        check_output_files(outputs, [*self.agents, self.env.layout])

    def _players(self) -> tuple[Task, dict[str, tuple[Policy, dict[str, Any]]]]:
        """Return the task, and each agent with the arguments of its environment."""
        if not self.agents:
            raise ValueError(f"no agent is given: give folders of trained agents, maze/pidm, {', '.join(EXPERTS)}")
        for name in self.agents:
            if self.agents.count(name) > 1:
                raise ValueError(f"'{name}' is given twice: compare it with another agent")
        trained = {name: load_named(name, self.device) for name in self.agents if name not in EXPERTS}
        tasks = {name: find_task(str(agent.description.get("task", "unknown"))) for name, agent in trained.items()}
        first = next(iter(trained), "")
        for name in trained if self.task is None else ():
            if tasks[name].name != tasks[first].name:
                both = f"{first} was trained on {tasks[first].name} and {name} on {tasks[name].name}"
                raise ValueError(f"{both}: give agents of one task")
        players: dict[str, tuple[Policy, dict[str, Any]]] = {}
        for name in self.agents:
            own = name if name in trained else first  # an expert has the environment of the first trained agent
            known = trained[own].description.get("env_kwargs", {}) if own else {}
            task, arguments = self.env.resolve(self.task or (tasks[own].name if own else None), known)
            if name in trained:
                _check_spaces(name, trained[name], tasks[name], task, arguments)
            policy = trained.get(name) or named_expert(name, task, arguments, self.seed)
            players[name] = policy, arguments
        check_same_world(task, {name: arguments for name, (_, arguments) in players.items()})
        return task, players


@dataclass(frozen=True)
class Agents:
    """List pretrained agents; then all agents, predictors and inverse dynamics models that can be trained.

    Use pretrained agents by name in evaluate and play. Goal ratio and success (the fraction of episodes with all goals
    reached) are means over 50 test episodes with 95% intervals.

    Example: pidm-nav agents
    """

    def run(self) -> None:
        """Print the lists."""
        rows = []
        for name, card in packaged_agents().items():
            shown = {"agent": name, "trained on": f"{card['episodes']} of {card['demos']}", "seed": card["seed"]}
            for metric in ("goal ratio", "success"):
                mean, low, high = card[metric]
                shown[metric] = f"{mean:.3f} ({max(low, 0):.3f} to {min(high, 1):.3f})"  # t intervals have no bounds
            rows.append({**shown, "training": f"{card['seconds']:.0f} s", "version": card["version"]})
        print_table(rows, title="Pretrained agents")
        from pidm_nav.agents.registry import KINDS, signatures

        for kind in KINDS:
            say(f"Every {kind}: {signatures(kind)}")


@dataclass(frozen=True)
class Export:
    """Export an agent (bc, corrective-bc, pidm or delta-pidm) to an ONNX file.

    Example: pidm-nav export maze/delta-pidm --out agent.onnx
    """

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """Agent: folder of a trained agent, or a pretrained agent such as maze/pidm."""
    out: Path = Path("agent.onnx")
    """File to write."""
    force: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Write the file."""
        agent = load_named(self.agent)
        if self.out.exists() and not self.force:
            raise FileExistsError(f"'{self.out}' exists: choose another name, or --force to replace it")
        say(f"{self.agent} is in {agent.to_onnx(self.out)}, {self.out.stat().st_size:,} bytes")


@dataclass(frozen=True)
class Push:
    """Push an agent or demonstrations, with a card, to the Hugging Face Hub.

    Log in first with `hf auth login`. Load with the name hf://OWNER/NAME.

    Example: pidm-nav hub push maze/pidm me/maze-pidm
    """

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """Agent (folder of a trained agent, or maze/pidm) or demonstrations (a file, or TASK/astar)."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """Repository, OWNER/NAME[/FOLDER][@REVISION]; created if it does not exist."""
    private: bool = False
    """Make a new repository private."""
    episodes: int | None = None
    """Number of test episodes for the score on an agent's card; 0 for no score. Default: 50, or 10 in slow
    environments."""

    def run(self) -> None:
        """Push to the hub, and print the address."""
        from pidm_nav.agents.hub import push_to_hub

        say(f"pushed to {push_to_hub(self.path, self.name, private=self.private, episodes=self.episodes)}")


def _check_spaces(name: str, agent: Agent, trained_on: Task, task: Task, arguments: dict[str, Any]) -> None:
    """Raise ValueError unless the task has the agent's observations and actions."""
    from pidm_nav.agents.agent import same_space

    with closing(task.make(**arguments)) as env:
        pairs = (
            (agent.observation_space, env.observation_space, "observations"),
            (agent.action_space, env.action_space, "actions"),
        )
    for own, given, kind in pairs:
        if not same_space(own, given):
            difference = f"shape {given.shape} instead of {own.shape}" if own.shape != given.shape else "other bounds"
            problem = f"{name} was trained on {trained_on.name}, and the {kind} of {task.name} have {difference}"
            raise ValueError(f"{problem}: choose another task")


def _say_result(name: str, result: EvalResult, seconds: float) -> None:
    low, high = result.interval
    reached = f"{result.metric} {result.scores.mean():.3f}{interval_text(low, high)}"
    if result.metric == "goal ratio":
        reached = f"{result.mean_goal_ratio:.1%} of the goals reached{interval_text(low, high, '.1%')}, "
        reached += f"{result.success_rate:.0%} of the episodes complete"
    played = f"{counted(len(result.endings), 'episode')}, {result.length.mean():.0f} steps on average"
    say(f"{name} on {result.task.name}: {reached}; {played}; took {seconds:.1f} s")
