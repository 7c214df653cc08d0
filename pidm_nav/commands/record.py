"""The commands `record` and `play`, for a person with a gamepad or keyboard."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pidm_nav.commands.options import EnvArguments, EnvOptions
from pidm_nav.console import counted, print_table, say, shell_command
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
    """Options of both `record` and `play`."""

    task: str | None = None
    """Task: four-room, zigzag, maze, multiroom (in 3D with -3d), tour-3d, custom with --layout, or a Gymnasium id."""
    controller: str | None = None
    """Controller: keyboard, or the number or part of the name of a gamepad. Default: whichever is used."""
    mapping: Path | None = None
    """JSON file with the mapping of sticks, buttons and keys; see record --write-mapping. Default: built in."""
    countdown: float = 0.0
    """Seconds until each episode begins; 0 waits for your first input."""
    fps: float | None = None
    """Steps per second. Default: 30, and the game's speed in 3D."""
    seed: int = DEMONSTRATIONS.start
    """Seed of the first episode; episode i has seed + i."""
    size: int | None = None
    """Side of the world on the screen in pixels. Default: fits the desktop."""
    env: EnvArguments = field(default_factory=EnvOptions)

    def rules(self, task: Task, episodes: int | None, only_success: bool = False) -> Rules:
        """Return the rules of the session."""
        return Rules(episodes, self.seed, only_success, self.countdown, task.fps if self.fps is None else self.fps)

    def controls(self) -> Controls:
        """Return the mapping of sticks, buttons and keys."""
        return Controls() if self.mapping is None else read_controls(self.mapping)

    def play(self, session: Session, controls: Controls, subtitle: str) -> str:
        """Run a session in a window, and return a report of its frame rate."""
        require_display("run pidm-nav studio to play and record in a browser")
        from pidm_nav.demos.recorder import loop, screen
        from pidm_nav.demos.recorder.devices import Inputs

        inputs = Inputs(controls, self.controller)
        pace = loop.Pace(session.rules.fps)
        loop.run(session, inputs, screen.Screen(session.task.title, subtitle, controls, self.size), pace)
        return pace.report()


@dataclass(frozen=True)
class Record(PlayOptions):
    """Record demonstrations with a gamepad or the keyboard; episodes are appended to an existing file.

    Example: pidm-nav record --task maze --episodes 10 --out my_demos.npz
    """

    episodes: int = 10
    """Number of episodes to record now."""
    out: Path | None = None
    """File to record to, .npz. Default: TASK-human.npz."""
    only_success: bool = False
    """Keep only episodes that reach all goals."""
    video: Path | None = None
    """Videos to write, one per episode: clip.mp4 (or .gif) gives clip-1.mp4, clip-2.mp4 and so on. Default: none."""
    list_controllers: bool = False
    """List the gamepads and exit."""
    write_mapping: Path | None = None
    """JSON file to write the default mapping of sticks, buttons and keys to, and exit. Default: none."""

    def run(self) -> None:
        """Record the episodes, or list controllers, or write the mapping."""
        mapping = self.write_mapping
        if mapping is not None:
            if mapping.exists():
                raise FileExistsError(f"'{mapping}' exists: choose another name for the mapping")
            write_controls(mapping)
            say(f"the default mapping is in {mapping}: edit it, and use it with --mapping {mapping}")
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
                raise ValueError(f"episodes of {task.name} cannot be drawn: leave --video out")
            rate = self.play(session, controls, f"recording to {out.name}")
        if not len(file):
            say(f"no episode was kept, so {file.path} was not written")
            return
        say(f"{counted(session.kept, 'episode')} recorded, {len(file)} in {file.path}\n{rate}")
        for number, episode in enumerate(file.added, start=file.num_before + 1):
            if self.video is not None:
                path = self.video.with_name(f"{self.video.stem}-{number}{self.video.suffix}")
                write_video(demo_frames(episode, 0, size=480), path, rules.fps)
                say(f"episode {number} is drawn in {path}")
        if (failed := file.num_failed) == len(file):
            none = f"none of {counted(failed, 'episode')} succeeded, and training then uses them all"
            say(f"{none}: record successful ones, or use --only-success")
        elif failed:
            of = f"{failed} of {counted(len(file), 'episode')} failed"
            say(f"{of}: PIDM drops failed episodes, and BC trims them after the last reached goal")
            clean = shell_command("demos", "edit", file.path, "--keep", "successes", "--in-place")
            say(f"to remove them: {clean}")
        if session.kept:
            say(f"next: {shell_command('train', '--demos', file.path)}", style="bold")


@dataclass(frozen=True)
class Play(PlayOptions):
    """Play a task yourself, or race an agent; both have the same map, noise and steps per second.

    Without --task, the task is the agent's.

    Example: pidm-nav play --task maze
    """

    agent: str | None = None
    """Rival: folder of a trained agent, a pretrained agent such as maze/pidm, or an expert (astar, human-like; scripted
    in 3D). Default: none."""
    rounds: int | None = None
    """Number of rounds. Default: until you quit."""

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
