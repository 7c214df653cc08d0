"""The command `evaluate`."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from gymnasium import spaces

from pidm_nav.commands.options import EnvArguments, EnvOptions
from pidm_nav.console import counted, print_table, progress_bar, say
from pidm_nav.limits import check_number
from pidm_nav.rollout import episode_seeds, evaluate, rollout
from pidm_nav.tasks import find_task
from pidm_nav.video import check_video_name

DYNAMICS = ("noise_std", "clip_noise", "realtime")  # as the command line says, whatever they were in training

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]


@dataclass(frozen=True)
class Evaluate:
    """Roll a trained agent out and count the goals that it reaches in order.

    Example: pidm-nav evaluate runs/x --episodes 50 --video out.mp4
    """

    folder: Folder
    """Folder that train wrote."""
    task: str | None = None
    """Task to play; by default the one that the agent was trained on. Another one must have the same observations."""
    episodes: int | None = None
    """Number of episodes; by default 50 where many run at once, and 10 otherwise."""
    seed: int = 0
    """Seed of the first episode; episode i has seed + i, the same for every agent."""
    env: EnvArguments = field(default_factory=EnvOptions)
    per_episode: bool = False
    """Print a line for every episode."""
    video: Path | None = None
    """Write one episode to this .mp4 or .gif file."""
    video_episode: int | None = None
    """Number of the episode that --video writes, counted from 0; by default the first."""
    render: bool = False
    """Show one episode in a window."""

    def run(self) -> None:
        """Evaluate the agent and print what it reached."""
        from pidm_nav.agents import load_agent

        episode_seeds(1 if self.episodes is None else self.episodes, self.seed)
        if self.video is not None:
            check_video_name(self.video)
        elif self.video_episode is not None:
            raise ValueError("--video-episode says which episode --video writes: add --video with a file's name")
        agent = load_agent(self.folder)
        trained_on = find_task(str(agent.description.get("task", "unknown")))
        known = agent.description.get("env_kwargs", {})
        known = {name: value for name, value in known.items() if trained_on.world is None or name not in DYNAMICS}
        task, arguments = self.env.resolve(self.task or trained_on.name, known)
        with closing(task.make(**arguments)) as env:
            trained = f"the agent was trained on {trained_on.name}: it cannot"
            _check_space(
                agent.observation_space, env.observation_space, f"{trained} see the observations of {task.name}"
            )
            _check_space(agent.action_space, env.action_space, f"{trained} take the actions of {task.name}")
        episodes = self.episodes if self.episodes is not None else 50 if task.rows > 1 else 10
        film = None if self.video is None else (self.video_episode or 0)
        if film is not None:
            check_number("--video-episode", film, 0, episodes - 1)
        began = time.perf_counter()
        with progress_bar(f"{agent.name} on {task.name}", episodes) as progress:
            result = evaluate(agent, task, episodes, self.seed, film=film, progress=progress, **arguments)
        seconds = time.perf_counter() - began
        if self.per_episode:
            print_table(result.table())
        low, high = result.interval
        reached = f"{result.measure} {result.scores.mean():.3f} ({low:.3f} to {high:.3f})"
        if result.measure == "goal ratio":
            reached = f"{result.mean_goal_ratio:.1%} of the goals reached ({low:.1%} to {high:.1%})"
        complete = f"{result.success_rate:.0%} of {counted(episodes, 'episode')} complete"
        steps = f"{result.length.mean():.0f} steps on average; took {seconds:.1f} s"
        say(f"{agent.name} on {task.name}: {reached}, {complete}, {steps}")
        if self.video is not None and film is not None:
            result.video(self.video, film)
            say(f"episode {film} is in {self.video}")
        if self.render:
            with closing(task.make_vec(1, render_mode="human", **arguments)) as window:
                rollout(agent, window, [self.seed + (film or 0)])


def _check_space(own: spaces.Box, given: spaces.Space[Any], problem: str) -> None:
    """Refuse a task whose space is not the one that the agent was trained with."""
    from pidm_nav.agents.policy import same_space

    if not same_space(own, given):
        difference = f"shape {given.shape} instead of {own.shape}" if own.shape != given.shape else "other bounds"
        raise ValueError(f"{problem}, which have {difference}")
