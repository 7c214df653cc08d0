"""The commands for a person: record demonstrations, play a task or race an agent."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pidm_nav.commands.options import EnvArguments, EnvOptions
from pidm_nav.console import counted, print_table, say
from pidm_nav.demos.experts import EXPERTS
from pidm_nav.demos.recorder.controls import KEYBOARD, Controls, read_controls, write_controls
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.demos.replay import demo_frames
from pidm_nav.policies import load_named, make_rival
from pidm_nav.seeds import DEMONSTRATIONS
from pidm_nav.tasks import Task, find_task
from pidm_nav.video import check_video_name, require_display, require_pygame_ce, write_video


@dataclass(frozen=True)
class PlayOptions:
    """Options that recording and playing have in common."""

    task: str | None = None
    """Task: four-room, zigzag, maze, multiroom, one of these with -3d, tour-3d, custom, or any Gymnasium id."""
    controller: str | None = None
    """What to play with: keyboard, or a gamepad's number or part of its name; by default whichever is used."""
    mapping: Path | None = None
    """JSON file that says what sticks, buttons and keys mean; record --write-mapping makes one to edit."""
    countdown: float = 0.0
    """Seconds after which each episode begins by itself; with 0 it waits for your first input."""
    fps: float | None = None
    """Steps per second; by default 30, and in 3D the game's own speed."""
    seed: int = DEMONSTRATIONS.start
    """Seed of the first episode; later episodes count up."""
    size: int | None = None
    """Side of the world on the screen in pixels; by default it fits the desktop."""
    env: EnvArguments = field(default_factory=EnvOptions)

    def rules(self, task: Task, episodes: int | None, only_success: bool = False) -> Rules:
        """Return the rules of a session."""
        return Rules(episodes, self.seed, only_success, self.countdown, task.fps if self.fps is None else self.fps)

    def controls(self) -> Controls:
        """Return what sticks, buttons and keys mean."""
        return Controls() if self.mapping is None else read_controls(self.mapping)

    def play(self, session: Session, controls: Controls, subtitle: str) -> str:
        """Let the person play a session, and return the frame rate achieved."""
        require_display("let an expert make demonstrations with pidm-nav collect")
        from pidm_nav.demos.recorder import loop, screen
        from pidm_nav.demos.recorder.devices import Inputs

        inputs = Inputs(controls, self.controller)
        pace = loop.Pace(session.rules.fps)
        loop.run(session, inputs, screen.Screen(session.task.title, subtitle, controls, self.size), pace)
        return pace.report()


@dataclass(frozen=True)
class Record(PlayOptions):
    """Record demonstrations with a gamepad or the keyboard; an existing file is added to.

    Example: pidm-nav record --task maze --episodes 10 --out my_demos.npz
    """

    episodes: int = 10
    """Number of episodes to record now, in addition to those that the file has."""
    out: Path | None = None
    """The .npz file to record to; by default TASK-human.npz."""
    only_success: bool = False
    """Keep only episodes that reach all goals."""
    video: Path | None = None
    """Also draw each episode: clip.mp4 (or .gif) gives clip-1.mp4, clip-2.mp4 and so on."""
    list_controllers: bool = False
    """List the gamepads and stop."""
    write_mapping: Path | None = None
    """Write the default mapping of sticks, buttons and keys to this file, to be edited, and stop."""

    def run(self) -> None:
        """Record the episodes, and print where they are."""
        mapping = self.write_mapping
        if mapping is not None:
            if mapping.exists():
                raise FileExistsError(f"'{mapping}' exists: choose another name for the mapping")
            write_controls(mapping)
            say(f"the default mapping is in {mapping}: edit it and give it as --mapping {mapping}")
            return
        controls = self.controls()
        if self.list_controllers:
            require_pygame_ce()
            from pidm_nav.demos.recorder.devices import list_devices

            columns = ("--controller", "Name", "Kind", "SDL's id")
            pads = enumerate(list_devices(controls), start=1)
            rows = [(str(number), pad.name, pad.kind, pad.guid) for number, pad in pads]
            rows.append((KEYBOARD, KEYBOARD, "arrows and WASD", ""))
            print_table([dict(zip(columns, row, strict=True)) for row in rows])
            return
        if self.video is not None:
            check_video_name(self.video)
        task, env_kwargs = self.env.resolve(self.task)
        rules = self.rules(task, self.episodes, self.only_success)
        out = self.out or Path(f"{task.name.replace('/', '-')}-human.npz")
        with (
            closing(DemoFile(out, task, env_kwargs)) as file,
            closing(Session(task, env_kwargs, rules, file)) as session,
        ):
            if self.video is not None and session.layout is None and session.person.rollout.observation.ndim < 4:
                raise ValueError(f"episodes of {task.name} hold no pictures: leave --video out")
            rate = self.play(session, controls, f"recording to {out.name}")
        if not len(file):
            say(f"no episode was kept, so there is no {file.path}")
            return
        say(f"{counted(session.kept, 'episode')} recorded, {len(file)} in {file.path}\n{rate}")
        for number, episode in enumerate(file.added, start=file.num_before + 1):
            if self.video is not None:
                path = self.video.with_name(f"{self.video.stem}-{number}{self.video.suffix}")
                write_video(demo_frames(episode, 0, size=480), path, rules.fps)
                say(f"episode {number} is drawn in {path}")
        if failed := file.num_failed:
            of = f"{failed} of {counted(len(file), 'episode')} failed"
            say(f"{of}: PIDM leaves failed ones out, and BC learns from them up to their last goal")
            say(f"pidm-nav demos edit {file.path} --keep successes --in-place removes them")
        if session.kept:
            say(f"next: pidm-nav train --demos {file.path}", style="bold")


@dataclass(frozen=True)
class Play(PlayOptions):
    """Play a task yourself, or race an agent: same map, same noise, same number of steps per second.

    Without --task, you play the one that the agent was trained on.

    Example: pidm-nav play --task maze
    """

    agent: str | None = None
    """Rival: a folder that train wrote, maze/pidm or another agent of the package (`pidm-nav agents`), or an expert
    (astar, human-like; in 3D scripted); by default you play alone."""
    rounds: int | None = None
    """Number of rounds; by default until you quit."""

    def run(self) -> None:
        """Play the rounds, and print their results."""
        controls = self.controls()
        trained = None if self.agent is None or self.agent in EXPERTS else load_named(self.agent)
        name, env = self.task, self.env
        if trained is not None and name is None and env.layout is None:
            name = find_task(str(trained.description.get("task"))).name
            if name == "custom":
                arguments: dict[str, Any] = trained.description.get("env_kwargs", {})
                env = replace(env, **{key: arguments[key] for key in ("layout", "room_size") if key in arguments})
        task, env_kwargs = env.resolve(name)
        rules = self.rules(task, self.rounds)
        rival = None if self.agent is None else make_rival(trained or self.agent, task, env_kwargs, self.seed)
        with closing(Session(task, env_kwargs, rules, rival=rival)) as session:
            goal = "can you reach all goals?" if session.person.num_goals else "how much reward can you get?"
            rate = self.play(session, controls, goal if rival is None else f"you against {rival.name}")
        for number, result in enumerate(session.results, start=1):
            say(f"Round {number}: {result}")
        if rival is not None:
            say(f"You {rival.wins} : {rival.losses} {rival.name}", style="bold")
        say(rate)
