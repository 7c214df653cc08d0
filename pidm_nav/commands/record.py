"""Commands for a person: record demonstrations, play a task or race an agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from pidm_nav.demos.dataset import Episode
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.layout import Layout
from pidm_nav.world3d.engine import TICS_PER_SECOND
from pidm_nav.world3d.env import FRAME_SKIP
from pidm_nav.world3d.levels import LEVELS, get_level, is_3d, stored_name

if TYPE_CHECKING:
    import gymnasium as gym

    from pidm_nav.agents.policy import NavPolicy
    from pidm_nav.demos.recorder.demo_file import DemoFile
    from pidm_nav.demos.recorder.mapping import Mapping
    from pidm_nav.demos.recorder.race import Rival

EXPERTS = ("astar", "human-like")
OBSERVED = ("obs_type", "image_size", "observe_goals", "relative_goals")  # what an agent's environment may differ in
VIDEO_SIZE = 480


def record(
    task: str | None = None,
    episodes: int = 10,
    out: Path | None = None,
    device: str | None = None,
    list_devices: bool = False,
    mapping: Path | None = None,
    write_mapping: Path | None = None,
    only_success: bool = False,
    countdown: float = 0.0,
    fps: float | None = None,
    video: Path | None = None,
    seed: int = 0,
    noise_std: float = 0.2,
    clip_noise: bool = True,
    random_start: bool = False,
    random_goals: bool = False,
    layout: Path | None = None,
    room_size: tuple[int, int] = (800, 800),
    size: int | None = None,
) -> None:
    """Record demonstrations with a gamepad or the keyboard; a file that exists is added to.

    Args:
        task: four-room, zigzag, maze or multiroom; one of these with -3d, or tour-3d; or custom, with --layout.
        episodes: how many to record now, besides those the file has.
        out: the .npz file; by default TASK-human.npz.
        device: keyboard, or a gamepad's number or part of its name; by default whichever is used.
        list_devices: show the devices and stop.
        mapping: a JSON file that says what stick, buttons and keys mean.
        write_mapping: write the usual mapping to this file, to edit, and stop.
        only_success: keep only episodes that reach all goals.
        countdown: seconds after which each episode begins by itself; 0 waits for your first input.
        fps: steps a second; by default 30, and in 3D the game's own speed.
        video: also draw each episode: clip.mp4 (or .gif) gives clip-1.mp4, clip-2.mp4, ...
        seed: of the first episode's noise; the next ones count up, leaving out those the file has.
        noise_std: standard deviation of the noise on actions.
        clip_noise: clip noisy actions to [-1, 1], as the paper says; its recordings were made without.
        random_start: start anywhere.
        random_goals: goals anywhere.
        layout: a map of your own.
        room_size: width and height of its room in pixels.
        size: side of the map on the screen in pixels; by default it fits.
    """
    from pidm_nav.demos.recorder.demo_file import DemoFile
    from pidm_nav.demos.recorder.gamepad import Inputs
    from pidm_nav.demos.recorder.loop import Pace, make_env, run
    from pidm_nav.demos.recorder.screen import Screen, require_display
    from pidm_nav.demos.recorder.session import Session
    from pidm_nav.world2d.render import check_video_name

    if write_mapping is not None:
        _write_mapping(write_mapping)
        return
    meaning = _read_mapping(mapping)
    if list_devices:
        _print_devices(meaning)
        return
    if video is not None:
        check_video_name(video)
    name, env_kwargs = _place(task, layout, room_size)
    if is_3d(name) and (random_start or random_goals):
        raise ValueError(f"{name} has one start and one order of milestones: leave --random-start and -goals out")
    fps = _steps_per_second(name) if fps is None else fps
    env_kwargs |= {"clip_noise": clip_noise, "noise_std": noise_std}
    env_kwargs |= {"random_start": True} if random_start else {}
    env_kwargs |= {"random_goals": True} if random_goals else {}
    stem = get_level(name).name if is_3d(name) else name
    file = DemoFile(out if out is not None else Path(f"{stem}-human.npz"), name, env_kwargs)
    env = make_env(name, env_kwargs)
    session = Session(env, episodes, seed, file, only_success, countdown, fps)
    require_display()
    inputs = Inputs(meaning, device)
    screen = Screen(_title(name), f"recording to {file.path.name}", size)
    pace = Pace(fps)
    run(session, inputs, screen, pace)
    env.close()
    _report(file, session.kept, pace.report())
    if video is not None:
        _draw_videos(file, video, session.layout, fps)


def play(
    task: str | None = None,
    agent: str | None = None,
    device: str | None = None,
    mapping: Path | None = None,
    rounds: int | None = None,
    countdown: float = 0.0,
    fps: float | None = None,
    seed: int = 0,
    noise_std: float = 0.2,
    clip_noise: bool = True,
    layout: Path | None = None,
    room_size: tuple[int, int] = (800, 800),
    size: int | None = None,
) -> None:
    """Play a task yourself, or race an agent: same map, same noise, same number of steps a second.

    Args:
        task: four-room, zigzag, maze or multiroom; one of these with -3d, or tour-3d; or custom;
            by default the agent's own.
        agent: a folder that train wrote, astar or human-like; you play alone without.
        device: keyboard, or a gamepad's number or part of its name; by default whichever is used.
        mapping: a JSON file that says what stick, buttons and keys mean.
        rounds: how many; by default until you quit.
        countdown: seconds after which each round begins by itself; 0 waits for your first input.
        fps: steps a second; by default 30, and in 3D the game's own speed.
        seed: of the first round's noise, for you and the agent; the next ones count up.
        noise_std: standard deviation of the noise on actions.
        clip_noise: clip noisy actions to [-1, 1].
        layout: a map of your own.
        room_size: width and height of its room in pixels.
        size: side of the map on the screen in pixels; by default it fits.
    """
    from pidm_nav.demos.recorder.gamepad import Inputs
    from pidm_nav.demos.recorder.loop import Pace, make_env, run
    from pidm_nav.demos.recorder.screen import Screen, require_display
    from pidm_nav.demos.recorder.session import Session

    meaning = _read_mapping(mapping)
    trained = None if agent is None or agent in EXPERTS else _load(agent)
    if trained is not None and task is None and layout is None:
        name, env_kwargs = _trained_place(trained)
    else:
        name, env_kwargs = _place(task, layout, room_size)
    if is_3d(name) and agent is not None:
        raise ValueError(f"nobody races in {name} yet: leave --agent out, or choose a 2D task")
    fps = _steps_per_second(name) if fps is None else fps
    env_kwargs |= {"clip_noise": clip_noise, "noise_std": noise_std}
    env = make_env(name, env_kwargs)
    rival = None if agent is None else _rival(trained or agent, env, name, env_kwargs, seed)
    session = Session(env, rounds, seed, countdown=countdown, fps=fps, rival=rival)
    require_display()
    inputs = Inputs(meaning, device)
    against = "can you reach all goals?" if rival is None else f"you against {rival.name}"
    screen = Screen(_title(name), against, size)
    pace = Pace(fps)
    run(session, inputs, screen, pace)
    env.close()
    console = _console()
    for number, result in enumerate(session.results, start=1):
        console.print(f"Round {number}: {result}")
    if rival is not None:
        console.print(f"[bold]You {rival.wins} : {rival.losses} {rival.name}[/]")
    console.print(pace.report())


def _place(task: str | None, layout: Path | None, room_size: tuple[int, int]) -> tuple[str, dict[str, Any]]:
    """A task's name, and the environment's arguments that make its map."""
    if layout is not None:
        loaded = Layout.load(layout, room_size)
        return "custom", {"layout": loaded.text, "room_size": list(room_size)}
    if task is None:
        raise ValueError(f"no task given: add --task with one of {', '.join([*TASKS, *LEVELS])}")
    if task == "custom":
        raise ValueError("--task custom needs --layout: the file of your map")
    return stored_name(task), {}


def _steps_per_second(name: str) -> float:
    return TICS_PER_SECOND / FRAME_SKIP if is_3d(name) else 30.0


def _title(name: str) -> str:
    if is_3d(name):
        return get_level(name).title
    return TASKS[name].title if name in TASKS else "Your map"


def _read_mapping(path: Path | None) -> Mapping:
    from pidm_nav.demos.recorder.mapping import Mapping, read_mapping

    return Mapping() if path is None else read_mapping(path)


def _write_mapping(path: Path) -> None:
    from pidm_nav.demos.recorder.mapping import write_mapping

    if path.exists():
        raise FileExistsError(f"'{path}' exists: choose another name for the mapping")
    write_mapping(path)
    _console().print(f"the usual mapping is in {path}: edit it and give it as --mapping {path}")


def _print_devices(mapping: Mapping) -> None:
    from pidm_nav.demos.recorder.gamepad import list_devices

    table = Table("--device", "Name", "Kind", "SDL's id", header_style="bold", box=None, pad_edge=False)
    for number, pad in enumerate(list_devices(mapping), start=1):
        table.add_row(str(number), pad.name, pad.kind, pad.guid)
    table.add_row("keyboard", "keyboard", "arrows and WASD", "")
    _console().print(table)


def _report(file: DemoFile, kept: int, rate: str) -> None:
    console = _console()
    if not len(file):
        console.print(f"no episode was kept, so there is no {file.path}")
        return
    console.print(f"[bold]{kept}[/] episodes recorded, {len(file)} in {file.path}")
    console.print(rate)
    if kept:
        console.print(f"next: [bold]pidm-nav train --demos {file.path}[/]")


def _draw_videos(file: DemoFile, video: Path, layout: Layout, fps: float) -> None:
    """A video for each episode of this session, numbered as in the file."""
    for number, episode in enumerate(file.added, start=file.num_before + 1):
        path = video.with_name(f"{video.stem}-{number}{video.suffix}")
        _draw_video(episode, path, layout, fps)
        _console().print(f"episode {number} is drawn in {path}")


def _draw_video(episode: Episode, path: Path, layout: Layout, fps: float) -> None:
    from pidm_nav.world2d.render import enlarge, render_state, write_video

    if episode.observations.ndim == 4:  # pictures already
        write_video(enlarge(episode.observations, VIDEO_SIZE), path, fps)
        return
    states = episode.observations
    frames = (
        render_state(layout, state, VIDEO_SIZE, trace=states[: step + 1, :2]) for step, state in enumerate(states)
    )
    write_video(frames, path, fps)


def _load(folder: str) -> NavPolicy:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"there is no agent '{folder}': give a folder that train wrote, or {' or '.join(EXPERTS)}"
        )
    from pidm_nav.agents import load_agent

    return load_agent(folder)


def _trained_place(agent: NavPolicy) -> tuple[str, dict[str, Any]]:
    """The task, or the map, that an agent was trained on."""
    name, arguments = str(agent.description.get("task")), agent.description.get("env_kwargs", {})
    if name == "custom":
        return name, {key: arguments[key] for key in ("layout", "room_size") if key in arguments}
    return _place(name, None, (0, 0))


def _rival(agent: NavPolicy | str, env: gym.Env[Any, Any], task: str, env_kwargs: dict[str, Any], seed: int) -> Rival:
    """A trained agent or an expert of that name, in an environment with the person's dynamics."""
    from pidm_nav.demos.recorder.loop import make_env
    from pidm_nav.demos.recorder.race import Rival

    if agent == "astar":
        from pidm_nav.demos.experts.astar import AStarExpert

        return Rival("A*", AStarExpert(env), make_env(task, env_kwargs))
    if isinstance(agent, str):
        from pidm_nav.demos.experts.humanlike import HumanLike

        return Rival("human-like", HumanLike(env, seed=seed), make_env(task, env_kwargs))
    from pidm_nav.agents.checkpoint import same_space

    trained_with = agent.description.get("env_kwargs", {})
    observed = {key: trained_with[key] for key in OBSERVED if key in trained_with}
    rival_env = make_env(task, {**env_kwargs, **observed})
    if not same_space(agent.observation_space, rival_env.observation_space):
        raise ValueError(f"the agent was trained on {agent.description.get('task')}, not on {task}: leave --task out")
    return Rival(agent.name.upper(), agent, rival_env)


def _console() -> Console:
    """Standard output; not folded where it is no terminal."""
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(width=160, highlight=False, soft_wrap=True)
