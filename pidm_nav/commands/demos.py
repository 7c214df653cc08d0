"""The commands on demonstrations: collect, info, convert, edit, replay and plot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from pidm_nav.commands.options import EnvArguments, EnvOptions, File, Files
from pidm_nav.console import counted, print_table, progress_bar, say
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.edit import edit_demos, edits
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.experts.random_play import anywhere
from pidm_nav.demos.formats import load_demos, reserved_output, save_demos
from pidm_nav.demos.replay import check_demos, demo_frames
from pidm_nav.demos.traces import plot_traces
from pidm_nav.plots import check_figure_name, save_figure
from pidm_nav.rollouts.rollout import episode_seeds
from pidm_nav.seeds import DEMONSTRATIONS
from pidm_nav.tasks import TASKS, find_task
from pidm_nav.video import check_video_name, write_video

MOST_SHOWN = 20  # mismatches that `replay --check` prints


@dataclass(frozen=True)
class Collect:
    """Let an expert make demonstrations.

    Example: pidm-nav collect --task four-room --expert astar --episodes 50 --out astar.npz
    """

    out: str
    """The .npz or .hdf5 file to write, or minari:ID such as minari:pidmnav/maze/astar-v0."""
    task: str | None = None
    """Name of the task (four-room, zigzag, maze, multiroom; with -3d in 3D; tour-3d; custom with --layout)."""
    expert: Literal["astar", "human-like", "scripted", "random"] | None = None
    """Expert that plays: astar plans (the default in 2D), human-like has the habits of a person at a gamepad, scripted
    walks through 3D tasks, and play moves at random in any task, from anywhere in 2D."""
    episodes: int = 50
    """Number of episodes."""
    seed: int = DEMONSTRATIONS.start
    """Seed of the first episode; episode i has seed + i."""
    speed: float | None = None
    """Stick deflection of the A* planner along each axis that moves, from 0.1 to 1; defaults to 0.8."""
    any_angle: bool = False
    """Let the A* planner move at any angle instead of in 8 directions."""
    env: EnvArguments = field(default_factory=EnvOptions)
    force: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Collect the episodes, save them and print their summary."""
        episode_seeds(self.episodes, self.seed)
        with reserved_output(self.out, self.force):
            dataset = self._collect()
            save_demos(dataset, self.out)
        print_summaries({self.out: dataset})

    def _collect(self) -> DemoDataset:
        task, env_kwargs = self.env.resolve(self.task)
        name: str | None = self.expert or next(iter(task.experts), None)
        settings: dict[str, object] = {"seed": self.seed}
        if name == "astar":
            speed = 0.8 if self.speed is None else self.speed
            settings = {"speed": speed, "directions": None if self.any_angle else 8}
        elif self.speed is not None or self.any_angle:
            raise ValueError("--speed and --any-angle are for the A* planner: leave them out, or give --expert astar")
        layout = task.layout(env_kwargs) if "layout" in env_kwargs else None
        policy = make_expert(name, layout or task, **settings)
        if name == "random":
            env_kwargs = {**anywhere(task), **env_kwargs}
        with progress_bar(f"{name} on {task.name}", self.episodes) as progress:
            return collect(policy, task, self.episodes, self.seed, progress=progress, **env_kwargs)


@dataclass(frozen=True)
class Info:
    """Show what demonstrations hold, with the columns of the paper's tables.

    Example: pidm-nav demos info maze/astar my_demos.npz
    """

    files: Files

    def run(self) -> None:
        """Print the table, and below it what was done to files that were edited."""
        datasets = load_all(self.files)
        print_summaries(datasets)
        for label, dataset in datasets.items():
            for edit in edits(dataset):
                say(f"\n{label} was edited by pidm-nav {edit.version}: {edit.done}")
                for file in edit.files:
                    say(f"  from {file.name}, sha256 {file.sha256}")


@dataclass(frozen=True)
class Convert:
    """Convert demonstrations between npz, Minari, robomimic and the paper's files.

    Example: pidm-nav demos convert my_demos.npz minari:pidmnav/maze/mine-v0
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """A .npz or .hdf5 file, a folder of the paper's release, minari:ID, or TASK/astar and TASK/human-like."""
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """A .npz file, a .hdf5 file for robomimic, or minari:ID such as minari:pidmnav/maze/human-v0."""
    task: str | None = None
    """Task of the demonstrations, where the file does not name it, as D4RL's do not. Default: what the file says."""
    drop_actions: bool = False
    """Leave the actions out, to imitate from states alone."""
    force: bool = False
    """Replace what is already there."""

    def run(self) -> None:
        """Read one format and write the other."""
        with reserved_output(self.target, self.force):
            dataset = load_demos(self.source, self.task)
            if self.drop_actions:
                dataset = dataset.without_actions()
            save_demos(dataset, self.target)
        say(f"{counted(len(dataset), 'episode')} of {dataset.task} written to {self.target}")


@dataclass(frozen=True)
class Edit:
    """Curate recordings: choose episodes, trim them and merge files, in the order of these options.

    Example: pidm-nav demos edit my_demos.npz --keep successes --drop 3,7 --out clean.npz
    """

    file: File
    keep: str | None = None
    """Episodes to keep: successes, or numbers from 0 as `demos replay --episode` counts them, such as 0,4,10:20."""
    drop: str | None = None
    """Numbers of episodes to leave out, as they are counted in FILE."""
    trim: str | None = None
    """Steps to keep of each of these episodes, such as 0:120, 10: or :-5 (all but the last five), or of one of them, as
    in 3=0:120."""
    merge: tuple[str, ...] = ()
    """Demonstrations of the same task and environment, whose episodes follow as they are."""
    out: str | None = None
    """The .npz or .hdf5 file to write, or minari:ID."""
    in_place: bool = False
    """Replace FILE itself; it stays as it was until the edited one is whole."""
    force: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Edit the demonstrations, save them and print their summary."""
        if self.in_place == (self.out is not None):
            raise ValueError("give either --out with the name of a new file, or --in-place to replace the old one")
        place = Path(self.file).resolve()
        if self.in_place and not place.is_file():
            raise ValueError(f"--in-place is for a file, and '{self.file}' is none: give --out")
        if self.out is not None and Path(self.out).resolve() == place:
            raise ValueError("--out is the file that is edited: give another name, or --in-place")
        target = self.out or str(place)
        with reserved_output(target, self.force or self.in_place):
            dataset = edit_demos(self.file, keep=self.keep, drop=self.drop, trim=self.trim, merge=self.merge)
            save_demos(dataset, target)
        print_summaries({self.out or self.file: dataset})


@dataclass(frozen=True)
class Replay:
    """Draw a recorded episode, or check all of them against the environment.

    Example: pidm-nav demos replay my_demos.npz --gif out.gif
    """

    file: File
    gif: Annotated[Path | None, tyro.conf.arg(aliases=("--video", "--mp4"))] = None
    """File to draw to; a name that ends in .mp4 gives a video."""
    episode: int | None = None
    """Number of the episode to draw, counted from 0; by default the first."""
    size: int = 400
    """Longest side of the picture in pixels."""
    fps: float | None = None
    """Frames per second; by default the speed at which a person plays."""
    check: bool = False
    """Test whether the environment can have given every step of all episodes; exit code 2 if not."""

    def run(self) -> None:
        """Draw, check, or both."""
        if self.gif is not None:
            check_video_name(self.gif)
        elif not self.check:
            raise ValueError("nothing to do: give --gif NAME.gif (or .mp4) to draw, or --check to test")
        elif self.episode is not None:
            raise ValueError("--episode says which episode --gif draws, while --check tests all: leave it out")
        dataset = load_demos(self.file)
        if self.gif is not None:
            episode = self.episode or 0
            frames = demo_frames(dataset, episode, self.size)
            write_video(frames, self.gif, find_task(dataset.task).fps if self.fps is None else self.fps)
            say(f"{counted(len(frames) - 1, 'step')} of episode {episode} drawn to {self.gif}")
        if not self.check:
            return
        found = check_demos(dataset)
        if found.resimulated:
            say(f"{counted(found.resimulated, 'episode')} simulated again, each from its seed")
        if found.tested:
            say(f"{counted(found.tested, 'episode')} tested step by step against the physics")
        for mismatch in found.mismatches[:MOST_SHOWN]:
            say(f"  episode {mismatch.episode}, step {mismatch.step}: {mismatch.reason}")
        if found.mismatches:
            wrong = f"{len({each.episode for each in found.mismatches})} of {counted(len(dataset), 'episode')}"
            raise ValueError(
                f"{wrong} in '{self.file}' could not have happened in the environment: record them again, or give the "
                "arguments they were recorded with"
            )
        say("every step is what the environment does")


@dataclass(frozen=True)
class Plot:
    """Draw the traces of demonstrations over their maps; one panel per task and one color per file.

    Example: pidm-nav demos plot maze/human-like maze/astar --out traces.png
    """

    files: Files
    out: Path = Path("traces.png")
    """The picture to write: .png, .pdf or .svg."""
    episodes: int | None = None
    """Draw only the first so many episodes of each file."""

    def run(self) -> None:
        """Draw the figure and save it."""
        check_figure_name(self.out)
        if self.episodes is not None and self.episodes < 1:
            raise ValueError(f"--episodes is {self.episodes}: it must be at least 1")
        datasets = {label: dataset[: self.episodes] for label, dataset in load_all(self.files).items()}
        save_figure(plot_traces(datasets), self.out)
        say(f"traces of {', '.join(datasets)} drawn to {self.out}")


def load_all(files: tuple[str, ...]) -> dict[str, DemoDataset]:
    """Load demonstrations under short labels: a file's name without folders, or a bundled name as it is."""
    if not files:
        raise ValueError("no demonstrations given: name files, folders, minari:ID or TASK/astar")
    labels = [Path(file).name.removesuffix(".npz") if Path(file).exists() else file for file in files]
    if len(set(labels)) < len(set(files)):
        labels = list(files)  # files of the same name in different folders
    return {label: load_demos(file) for label, file in zip(labels, files, strict=True)}


def print_summaries(datasets: dict[str, DemoDataset]) -> None:
    """Print a line per dataset with the columns of the paper's tables."""
    rows: list[dict[str, Any]] = []
    for label, dataset in datasets.items():
        summary, task = dataset.summary(), TASKS.get(dataset.task)
        rows.append(
            {
                "Demonstrations": label,
                "Made by": dataset.source.get("made_by", "unknown"),
                "Task": task.title if task else dataset.task,
                "Goals": dataset.num_goals,
                "Max steps": task.max_steps if task and task.map else "–",
                "|s|": dataset.observation_dim,
                "Episodes": summary.episodes,
                "Total steps": summary.total_steps,
                "Min": summary.min_length,
                "Avg": f"{summary.mean_length:.2f}",
                "Max": summary.max_length,
                "Success": "–" if summary.success is None else f"{summary.success:.0%}",
                "Return": "–" if task else f"{np.mean([episode.rewards.sum() for episode in dataset]):.4g}",
            }
        )
    others = any(row["Return"] != "–" for row in rows)  # our tasks pay one for each goal, which their columns say
    print_table(rows, {name: name for name in rows[0] if others or name != "Return"})
