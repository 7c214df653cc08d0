"""The commands `collect` and `demos`: info, convert, edit, replay and plot."""

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
from pidm_nav.tasks import find_task, known_task
from pidm_nav.video import check_video_name, write_video

MAX_SHOWN = 20  # mismatches that `replay --check` prints


@dataclass(frozen=True)
class Collect:
    """Collect demonstrations of an expert.

    Example: pidm-nav collect --task four-room --expert astar --episodes 50 --out astar.npz
    """

    out: str
    """File to write, .npz or .hdf5, or minari:ID such as minari:pidmnav/maze/astar-v0."""
    task: str | None = None
    """Task: four-room, zigzag, maze, multiroom (in 3D with -3d), tour-3d, custom with --layout, or a Gymnasium id."""
    expert: Literal["astar", "human-like", "scripted", "random"] | None = None
    """Expert: astar (shortest paths), human-like (habits of a person), scripted (3D tasks) or random (random actions,
    any task). Default: astar in 2D, scripted in 3D."""
    episodes: int = 50
    """Number of episodes."""
    seed: int = DEMONSTRATIONS.start
    """Seed of the first episode; episode i has seed + i."""
    speed: float | None = None
    """Stick deflection of the A* planner along each moving axis, from 0.1 to 1. Default: 0.8."""
    any_angle: bool = False
    """Move the A* planner in 32 directions instead of 8."""
    env: EnvArguments = field(default_factory=EnvOptions)
    force: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Collect and save the episodes, and print a summary."""
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
            raise ValueError(f"--speed and --any-angle do not apply to the expert {name}: give --expert astar")
        layout = task.layout(env_kwargs) if "layout" in env_kwargs else None
        policy = make_expert(name, layout or task, **settings)
        if name == "random":
            env_kwargs = {**anywhere(task), **env_kwargs}
        with progress_bar(f"{name} on {task.name}", self.episodes) as progress:
            return collect(policy, task, self.episodes, self.seed, progress=progress, **env_kwargs)


@dataclass(frozen=True)
class Info:
    """Show a summary of demonstrations, with the columns of the paper's tables.

    Example: pidm-nav demos info maze/astar my_demos.npz
    """

    files: Files

    def run(self) -> None:
        """Print the table and the history of edited files."""
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
    """Source: .npz or .hdf5 file, folder of the paper's release, minari:ID, TASK/astar or TASK/human-like."""
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Target: .npz file, .hdf5 file for robomimic, or minari:ID such as minari:pidmnav/maze/human-v0."""
    task: str | None = None
    """Task of the demonstrations, for files that do not name it, such as D4RL's. Default: that of the file."""
    drop_actions: bool = False
    """Drop the actions, for imitation from states only."""
    force: bool = False
    """Replace an existing target."""

    def run(self) -> None:
        """Read one format and write the other."""
        with reserved_output(self.target, self.force):
            dataset = load_demos(self.source, self.task)
            if self.drop_actions:
                dataset = dataset.without_actions()
            save_demos(dataset, self.target)
        say(f"{counted(len(dataset), 'episode')} of {dataset.task} written to {self.target}")


@dataclass(frozen=True)
class EditCommand:
    """Select and trim episodes, and merge files, in the order of these options.

    Example: pidm-nav demos edit my_demos.npz --keep successes --drop 3,7 --out clean.npz
    """

    file: File
    keep: str | None = None
    """Episodes to keep: successes, or indices from 0, such as 0,4,10:20. Default: all."""
    drop: str | None = None
    """Indices of episodes to drop, as in FILE. Default: none."""
    trim: str | None = None
    """Steps to keep of each remaining episode, such as 0:120, 10: or :-5 (all but the last five), or of one episode,
    such as 3=0:120. Default: all."""
    merge: tuple[str, ...] = ()
    """Demonstrations of the same task and environment to append. Default: none."""
    out: str | None = None
    """File to write, .npz or .hdf5, or minari:ID."""
    in_place: bool = False
    """Replace FILE itself."""
    force: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Edit and save the demonstrations, and print a summary."""
        if self.in_place == (self.out is not None):
            raise ValueError("give either --out with the name of a new file, or --in-place to replace the old one")
        place = Path(self.file).resolve()
        if self.in_place and not place.is_file():
            raise ValueError(f"--in-place needs a file, and '{self.file}' is not one: give --out")
        if self.out is not None and Path(self.out).resolve() == place:
            raise ValueError(f"--out is the edited file '{self.out}': give another name, or --in-place")
        target = self.out or str(place)
        with reserved_output(target, self.force or self.in_place):
            dataset = edit_demos(self.file, keep=self.keep, drop=self.drop, trim=self.trim, merge=self.merge)
            save_demos(dataset, target)
        print_summaries({self.out or self.file: dataset})


@dataclass(frozen=True)
class Replay:
    """Draw a recorded episode, or check all episodes against the environment.

    Example: pidm-nav demos replay my_demos.npz --gif out.gif
    """

    file: File
    gif: Annotated[Path | None, tyro.conf.arg(aliases=("--video", "--mp4"))] = None
    """Video to write, .gif or .mp4. Default: none."""
    episode: int | None = None
    """Index of the episode to draw. Default: 0."""
    size: int = 400
    """Longest side of the video in pixels."""
    fps: float | None = None
    """Frames per second. Default: the speed at which a person plays."""
    check: bool = False
    """Check every step against the environment; exit with code 2 on a mismatch."""

    def run(self) -> None:
        """Draw, check, or both."""
        if self.gif is not None:
            check_video_name(self.gif)
        elif not self.check:
            raise ValueError("nothing to do: give --gif NAME.gif (or .mp4), or --check")
        elif self.episode is not None:
            raise ValueError("--episode is given without --gif: leave it out, as --check checks all episodes")
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
            say(f"{counted(found.resimulated, 'episode')} resimulated from their seeds")
        if found.tested:
            say(f"{counted(found.tested, 'episode')} tested step by step against the dynamics")
        for mismatch in found.mismatches[:MAX_SHOWN]:
            say(f"  episode {mismatch.episode}, step {mismatch.step}: {mismatch.reason}")
        if found.mismatches:
            wrong = f"{len({each.episode for each in found.mismatches})} of {counted(len(dataset), 'episode')}"
            raise ValueError(
                f"{wrong} in '{self.file}' do not match the environment: record them again, or give the arguments of "
                "their environment"
            )
        say("every step matches the environment")


@dataclass(frozen=True)
class Plot:
    """Plot the paths of demonstrations on their maps; one panel per task and one color per file.

    Example: pidm-nav demos plot maze/human-like maze/astar --out traces.png
    """

    files: Files
    out: Path = Path("traces.png")
    """Figure to write: .png, .pdf or .svg."""
    episodes: int | None = None
    """Plot the first N episodes of each file. Default: all."""

    def run(self) -> None:
        """Plot and save the figure."""
        check_figure_name(self.out)
        if self.episodes is not None and self.episodes < 1:
            raise ValueError(f"--episodes is {self.episodes}: it must be at least 1")
        datasets = {label: dataset[: self.episodes] for label, dataset in load_all(self.files).items()}
        save_figure(plot_traces(datasets), self.out)
        say(f"paths of {', '.join(datasets)} plotted to {self.out}")


def load_all(files: tuple[str, ...]) -> dict[str, DemoDataset]:
    """Load demonstrations by short labels: a file's name without folders, or a bundled name."""
    if not files:
        raise ValueError("no demonstrations are given: give files, folders, minari:ID or TASK/astar")
    labels = [Path(file).name.removesuffix(".npz") if Path(file).exists() else file for file in files]
    if len(set(labels)) < len(set(files)):
        labels = list(files)  # files of the same name in different folders
    return {label: load_demos(file) for label, file in zip(labels, files, strict=True)}


def print_summaries(datasets: dict[str, DemoDataset]) -> None:
    """Print a row per dataset with the columns of the paper's tables."""
    rows: list[dict[str, Any]] = []
    for label, dataset in datasets.items():
        summary, task = dataset.summary(), known_task(dataset.task)
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
    others = any(row["Return"] != "–" for row in rows)  # in our tasks the return is the number of goals
    print_table(rows, {name: name for name in rows[0] if others or name != "Return"})
