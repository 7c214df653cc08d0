"""What is done with agents: the commands `evaluate`, `agents` and `export`."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from pidm_nav.commands.options import EnvArguments, EnvOptions
from pidm_nav.console import counted, print_table, progress_bar, say
from pidm_nav.demos.experts import EXPERTS
from pidm_nav.files import writable_folder, write_json, write_rows
from pidm_nav.limits import check_number
from pidm_nav.packaged import packaged_agents
from pidm_nav.policies import load_named, named_expert
from pidm_nav.rollouts.comparison import Comparison, check_same_world
from pidm_nav.rollouts.evaluation import EvalResult, evaluate
from pidm_nav.rollouts.rollout import Policy, episode_seeds, rollout
from pidm_nav.seeds import TEST
from pidm_nav.statistics import interval_text
from pidm_nav.tasks import Metric, Task, find_task
from pidm_nav.video import check_video_name, require_display

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent

Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="AGENT...", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate:
    """Roll agents out and count the goals that they reach in order; several play the same episodes and are compared.

    Several agents are compared with the first one: the difference with its 95% interval over episodes, and the
    p-value of Wilcoxon's signed-rank test, which is paired by episode and corrected for the number of tests (Holm).

    Example: pidm-nav evaluate maze/pidm maze/bc --episodes 50 --video out.mp4
    """

    agents: Names
    """Agents: folders that train wrote, agents of the package such as maze/pidm, hf://OWNER/NAME on the Hugging Face
    Hub, or experts (astar, human-like; in 3D scripted)."""
    task: str | None = None
    """Task to play; by default the one that the agents were trained on. Another one must have the same observations."""
    episodes: int | None = None
    """Number of episodes; by default 50 where many run at once, and 10 otherwise."""
    seed: int = TEST.start
    """Seed of the first episode, by default far from those of demonstrations; episode i has seed + i."""
    metric: Metric | None = None
    """Metric, by default the task's. Environments that are not known to report successes are scored by their return."""
    env: EnvArguments = field(default_factory=EnvOptions)
    per_episode: bool = False
    """Print a line for every agent and episode."""
    csv: Path | None = None
    """Write a line for every agent and episode to this CSV file."""
    json: Path | None = None
    """Write the same lines to this JSON file."""
    video: Path | None = None
    """Write one episode to this .mp4 or .gif file, with several agents side by side."""
    video_episode: int | None = None
    """Number of the episode that --video writes, counted from 0; by default the first."""
    device: str = "cpu"
    """Device that trained agents act on: cpu, cuda, mps, or auto for a GPU where there is one."""
    render: bool = False
    """Show one episode of each agent in a window."""

    def run(self) -> None:
        """Evaluate the agents and print what they reached."""
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
            same = f"the same {counted(episodes, 'episode')} for all; took {seconds:.1f} s"
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
        """Refuse files that cannot be written, before any work is done for them."""
        if self.render:
            require_display("use --video")
        if self.video is not None:
            check_video_name(self.video)
        elif self.video_episode is not None:
            raise ValueError("--video-episode says which episode --video writes: add --video with a file's name")
        for option, path in {"--csv": self.csv, "--json": self.json, "--video": self.video}.items():
            if path is not None and path.is_dir():
                raise IsADirectoryError(f"'{path}' is a folder: give {option} the name of a file")
            if path is not None:
                writable_folder(path.parent, option)

    def _players(self) -> tuple[Task, dict[str, Player]]:
        """Return the task, and each agent with the arguments of its environment."""
        if not self.agents:
            raise ValueError(f"no agent given: name folders that train wrote, maze/pidm, {', '.join(EXPERTS)}")
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
        players: dict[str, Player] = {}
        for name in self.agents:
            own = name if name in trained else first  # an expert plays where the first trained agent does
            known = trained[own].description.get("env_kwargs", {}) if own else {}
            task, arguments = self.env.resolve(self.task or (tasks[own].name if own else None), known)
            if name in trained:
                _check_spaces(name, trained[name], tasks[name], task, arguments)
            policy = trained.get(name) or named_expert(name, task, arguments, self.seed)
            players[name] = Player(policy, arguments)
        check_same_world(task, {name: player.arguments for name, player in players.items()})
        return task, players


@dataclass(frozen=True)
class Agents:
    """List the pretrained agents; then every agent, predictor and inverse dynamics model that can be trained.

    Pretrained agents can be named in evaluate and play. Goal ratio and success (the fraction of episodes in
    which all goals are reached) are means over 50 test episodes with 95% intervals.

    Example: pidm-nav agents
    """

    def run(self) -> None:
        """Print the card of the packaged agents."""
        rows = []
        for name, card in packaged_agents().items():
            shown = {"agent": name, "trained on": f"{card['episodes']} of {card['demos']}", "seed": card["seed"]}
            for measure in ("goal ratio", "success"):
                mean, low, high = card[measure]
                shown[measure] = f"{mean:.3f} ({low:.3f} to {high:.3f})"
            rows.append({**shown, "training": f"{card['seconds']:.0f} s", "version": card["version"]})
        print_table(rows, title="Pretrained agents")
        from pidm_nav.agents.registry import KINDS, signatures

        for kind in KINDS:
            say(f"Every {kind}: {signatures(kind)}")


@dataclass(frozen=True)
class Export:
    """Write an agent as an ONNX file, which onnxruntime runs without torch; bc, pidm and delta-pidm can be exported.

    Example: pidm-nav export maze/delta-pidm --out agent.onnx
    """

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """Agent: a folder that train wrote, or an agent of the package such as maze/pidm."""
    out: Path = Path("agent.onnx")
    """File to write."""
    force: bool = False
    """Replace a file of that name."""

    def run(self) -> None:
        """Write the file."""
        agent = load_named(self.agent)
        if self.out.exists() and not self.force:
            raise FileExistsError(f"'{self.out}' exists: choose another name, or --force to replace it")
        say(f"{self.agent} is in {agent.to_onnx(self.out)}, {self.out.stat().st_size:,} bytes")


class Player(NamedTuple):
    """Who plays, and the arguments of the environment that it plays in."""

    policy: Policy
    arguments: dict[str, Any]


def _check_spaces(name: str, agent: Agent, trained_on: Task, task: Task, arguments: dict[str, Any]) -> None:
    """Refuse a task whose observations or actions are not those that the agent was trained with."""
    from pidm_nav.agents.agent import same_space

    with closing(task.make(**arguments)) as env:
        pairs = (
            (agent.observation_space, env.observation_space, "see the observations"),
            (agent.action_space, env.action_space, "take the actions"),
        )
    for own, given, does in pairs:
        if not same_space(own, given):
            difference = f"shape {given.shape} instead of {own.shape}" if own.shape != given.shape else "other bounds"
            problem = f"{name} was trained on {trained_on.name}: it cannot {does} of {task.name}"
            raise ValueError(f"{problem}, which have {difference}")


def _say_result(name: str, result: EvalResult, seconds: float) -> None:
    low, high = result.interval
    reached = f"{result.metric} {result.scores.mean():.3f}{interval_text(low, high)}"
    if result.metric == "goal ratio":
        reached = f"{result.mean_goal_ratio:.1%} of the goals reached{interval_text(low, high, '.1%')}, "
        reached += f"{result.success_rate:.0%} of the episodes complete"
    played = f"{counted(len(result.endings), 'episode')}, {result.length.mean():.0f} steps on average"
    say(f"{name} on {result.task.name}: {reached}; {played}; took {seconds:.1f} s")
