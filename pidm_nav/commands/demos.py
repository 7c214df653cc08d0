"""Commands on demonstrations: collect, info, convert, replay, plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import atomic_file, load_demos, save_demos, to_minari
from pidm_nav.tasks import get_task
from pidm_nav.world3d.levels import find_task, get_level, is_3d

if TYPE_CHECKING:
    from pidm_nav.rollout import Policy
    from pidm_nav.world2d.drawing import Frame

Files = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE...")]
File = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]

MOST_SHOWN = 20  # mismatches printed by `replay --check`


def collect(
    task: str,
    out: Path,
    expert: Literal["astar", "human-like", "scripted"] | None = None,
    episodes: int = 50,
    seed: int = 0,
    speed: float = 0.8,
    any_angle: bool = False,
    clip_noise: bool = True,
    noise_std: float = 0.2,
    layout: Path | None = None,
    room_size: tuple[int, int] = (800, 800),
    obs_type: Literal["pixels", "state"] = "pixels",
    image_size: int = 96,
    force: bool = False,
) -> None:
    """Let an expert make demonstrations.

    Args:
        task: four-room, zigzag, maze or multiroom; one of these with -3d, or tour-3d; or custom, with --layout.
        out: the .npz file to write.
        expert: who makes them: the A* planner, or a script with a gamepad player's habits; in 3D the scripted walker.
        episodes: how many.
        seed: of the first episode; episode i has seed + i.
        speed: stick deflection of the A* planner along each axis.
        any_angle: let the A* planner move at any angle, not only in 8 directions.
        clip_noise: clip noisy actions to [-1, 1], as the paper says; its recordings were made without.
        noise_std: standard deviation of the noise on actions.
        layout: a map of your own, for --task custom.
        room_size: width and height of its room in pixels.
        obs_type: (3D) what is kept as observations; states are kept beside pictures in any case.
        image_size: (3D) width of the pictures.
        force: replace an existing file.
    """
    from pidm_nav.demos.collect import collect as collect_demos

    _check_output(str(out), force)
    env_kwargs: dict[str, Any] = {"clip_noise": clip_noise, "noise_std": noise_std}
    if is_3d(task):
        if expert not in (None, "scripted"):
            raise ValueError(f"--expert {expert} knows 2D tasks only: in 3D leave it out")
        _collect_3d(task, out, episodes, seed, env_kwargs | {"obs_type": obs_type, "image_size": image_size})
        return
    expert = expert or "astar"
    if expert == "scripted":
        raise ValueError("--expert scripted knows 3D tasks only: choose astar or human-like")
    place: Any = task
    if layout is not None:
        from pidm_nav.world2d.layout import Layout

        task, place = "custom", Layout.load(layout, room_size)
        env_kwargs |= {"layout": place.text, "room_size": list(room_size)}
    elif task != "custom":
        task = place = get_task(task).name
    else:
        raise ValueError("--task custom needs --layout: the file of your map")
    policy: Policy
    if expert == "astar":
        from pidm_nav.demos.experts.astar import AStarExpert

        policy = AStarExpert(place, speed=speed, directions=None if any_angle else 8)
    else:
        from pidm_nav.demos.experts.humanlike import HumanLike

        policy = HumanLike(place, seed=seed)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"{expert} on {task}", total=episodes)
        dataset = collect_demos(
            policy,
            task,
            episodes,
            seed,
            made_by=expert,
            progress=lambda ended: progress.advance(bar, ended),
            **env_kwargs,
        )
    save_demos(dataset, out)
    info((str(out),))


def _collect_3d(task: str, out: Path, episodes: int, seed: int, env_kwargs: dict[str, Any]) -> None:
    from pidm_nav.world3d.rollout import collect3d

    level = get_level(task)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"scripted walker in {level.name}", total=episodes)
        dataset = collect3d(level, episodes, seed, progress=lambda ended: progress.advance(bar, ended), **env_kwargs)
    save_demos(dataset, out)
    info((str(out),))


def info(files: Files) -> None:
    """Show what demonstrations hold, with the columns of the paper's tables.

    Args:
        files: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
    """
    _require(files)
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("Demonstrations", no_wrap=True)
    table.add_column("Made by", no_wrap=True)
    table.add_column("Task", no_wrap=True)
    for column in ("Goals", "Max steps", "|s|", "Episodes", "Total steps", "Min", "Avg", "Max", "Success"):
        table.add_column(column, justify="right", no_wrap=True)
    for file in files:
        dataset = load_demos(file)
        row = dataset.summary()
        task = find_task(dataset.task)
        table.add_row(
            _label(file),
            str(dataset.source.get("made_by", "unknown")),
            task.title if task else dataset.task,
            str(task.num_goals) if task else str(len(dataset.goal_flags) or "–"),
            str(task.max_steps) if task else "–",
            str(dataset.observation_dim),
            str(row.episodes),
            str(row.total_steps),
            str(row.min_length),
            f"{row.mean_length:.2f}",
            str(row.max_length),
            f"{row.success:.0%}",
        )
    _console().print(table)


def convert(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IN")],
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")],
    force: bool = False,
) -> None:
    """Convert demonstrations between formats.

    Args:
        source: a .npz file, a folder of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
        target: a .npz file or minari:ID, such as minari:pidmnav/maze/human-v0.
        force: replace what is already there.
    """
    _check_output(target, force)
    dataset = load_demos(source)
    if target.startswith("minari:"):
        to_minari(dataset, target.removeprefix("minari:"), force=force)
    else:
        save_demos(dataset, target)
    _console().print(f"{len(dataset)} episodes of {dataset.task} written to {target}", highlight=False)


def replay(
    file: File,
    gif: Annotated[Path | None, tyro.conf.arg(aliases=("--video", "--mp4"))] = None,
    episode: int = 0,
    size: int = 400,
    fps: float = 30.0,
    check: bool = False,
) -> None:
    """Draw a recorded episode as a GIF or mp4, or check all of them against the environment's physics.

    Args:
        file: demonstrations: a .npz file, a folder of the paper's release, minari:ID, or TASK/astar.
        gif: where to draw to; a name that ends in .mp4 gives a video.
        episode: which one to draw, from 0.
        size: the longest side of the picture in pixels.
        fps: frames a second.
        check: test whether the environment can have given every step; exit code 2 if not.
    """
    if gif is None and not check:
        raise ValueError("nothing to do: give --gif NAME.gif (or .mp4) to draw, or --check to test")
    if gif is not None:
        from pidm_nav.world2d.render import check_video_name

        check_video_name(gif)
    dataset = load_demos(file)
    if gif is not None:
        from pidm_nav.world2d.render import write_video

        frames = _frames(dataset, episode, size)
        write_video(track(frames, f"episode {episode}", console=Console(stderr=True), transient=True), gif, fps)
        _console().print(f"{len(frames) - 1} steps of episode {episode} drawn to {gif}", highlight=False)
    if check:
        _print_check(dataset, file)


def plot(files: Files, out: Path = Path("traces.png"), episodes: int | None = None) -> None:
    """Draw the traces of demonstrations over their map, each file in a colour, each task in a panel.

    Args:
        files: .npz files, folders of the paper's release, minari:ID, or TASK/astar and TASK/human-like.
        out: the picture to write: .png, .pdf or .svg.
        episodes: only the first so many of each file.
    """
    from pidm_nav.demos.traces import plot_traces

    _require(files)
    if out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"cannot draw to '{out}': its name must end in .png, .pdf or .svg")
    if episodes is not None and episodes < 1:
        raise ValueError(f"--episodes is {episodes}: it must be at least 1")
    labels = list(map(_label, files))
    if len(set(labels)) < len(set(files)):
        labels = list(files)  # files of the same name in different folders
    figure = plot_traces({label: load_demos(file)[:episodes] for label, file in zip(labels, files, strict=True)})
    with atomic_file(out) as temporary:
        figure.savefig(temporary, dpi=200, format=out.suffix[1:].lower())
    _console().print(f"traces of {', '.join(labels)} drawn to {out}", highlight=False)


def _frames(dataset: DemoDataset, episode: int, size: int) -> Sequence[Frame]:
    """The pictures of an episode: drawn over its map, or those it holds."""
    from pidm_nav.demos.replay import demo_layout, demo_states
    from pidm_nav.world2d.render import enlarge, render_state

    if dataset.episodes[0].observations.ndim == 4 and is_3d(dataset.task):
        if not -len(dataset) <= episode < len(dataset):
            raise ValueError(f"there is no episode {episode}: the file has {len(dataset)}, counted from 0")
        return enlarge(dataset[episode].observations, size)
    layout, states = demo_layout(dataset), demo_states(dataset, episode)
    return [render_state(layout, state, size, trace=states[: step + 1, :2]) for step, state in enumerate(states)]


def _print_check(dataset: DemoDataset, file: str) -> None:
    from pidm_nav.demos.replay import check_demos

    found = check_demos(dataset)
    console = _console()
    if found.resimulated:
        console.print(f"{found.resimulated} episodes simulated again from their seeds", highlight=False)
    if found.tested:
        console.print(f"{found.tested} episodes tested step by step against the physics", highlight=False)
    for mismatch in found.mismatches[:MOST_SHOWN]:
        console.print(f"  episode {mismatch.episode}, step {mismatch.step}: {mismatch.reason}", highlight=False)
    if found.mismatches:
        bad = len({mismatch.episode for mismatch in found.mismatches})
        raise ValueError(f"{bad} of {len(dataset)} episodes in '{file}' are not what the environment does")
    console.print("all of them are what the environment does")


def _check_output(target: str, force: bool) -> None:
    """Refuse an output before any work is done for it."""
    if target.startswith("minari:"):
        return  # to_minari looks itself
    if not target.endswith(".npz"):
        raise ValueError(f"cannot write to '{target}': give a name that ends in .npz, or minari:ID")
    if Path(target).exists() and not force:
        raise FileExistsError(f"'{target}' exists: choose another name, or --force to replace it")


def _require(files: tuple[str, ...]) -> None:
    if not files:
        raise ValueError("no demonstrations given: name files, folders, minari:ID or TASK/astar")


def _label(file: str) -> str:
    """A short name: the file's own without folders, ids and bundled names as they are."""
    path = Path(file)
    return (path.stem if path.suffix == ".npz" else path.name) if path.exists() else file


def _console() -> Console:
    """Standard output; as wide as tables need where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)
