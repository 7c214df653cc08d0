"""Options that several commands share: demonstrations, and arguments of the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pidm_nav.files import writable_folder
from pidm_nav.tasks import TASKS, Task, find_task
from pidm_nav.world2d.layout import Layout

ANY_FORMAT = (
    ".npz or .hdf5 file, folder of the paper's release, minari:ID, hf://OWNER/NAME, TASK/astar or TASK/human-like"
)
File = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE", help=f"Demonstrations: {ANY_FORMAT}.")]
Files = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="FILE...", help=f"Demonstrations: {ANY_FORMAT}.", help_behavior_hint=""),
]
Switch = Annotated[bool | None, tyro.conf.DisallowNone]  # --switch, --no-switch, or neither
SUFFIXES = {"--csv": (".csv",), "--json": (".json",), "--plot": (".png", ".pdf", ".svg"), "--video": (".gif", ".mp4")}
"""Suffixes of the files that an option writes; no two options share one, so that their files differ."""


def check_output_files(paths: Mapping[str, Path | None], inputs: Iterable[str | Path | None] = ()) -> None:
    """Raise an error for files, by option, that cannot be written or that the command reads."""
    read = {Path(each).resolve() for each in inputs if each is not None}
    for option, path in paths.items():
        if path is None:
            continue
        if path.is_dir():
            raise IsADirectoryError(f"'{path}' is a folder: give {option} the name of a file")
        if path.suffix.lower() not in SUFFIXES[option]:  # a file of another kind would be lost
            raise ValueError(f"{option} is '{path}': give a name that ends with {' or '.join(SUFFIXES[option])}")
        if path.resolve() in read:
            raise ValueError(f"{option} is '{path}', which the command reads: give another name")
        writable_folder(path.parent, option)


@dataclass(frozen=True)
class EnvOptions:
    """Arguments of the environment. An agent's are those of its training, unless given."""

    noise_std: float | None = None
    """Standard deviation of the noise on each action component. Default: 0.2."""
    clip_noise: Switch = None
    """Clip action plus noise to [-1, 1]; the paper's recordings were made without clipping. Default: True."""
    random_start: Switch = None
    """Start episodes at random free positions (2D tasks). Default: False."""
    random_goals: Switch = None
    """Place goals at random free positions in each episode (2D tasks). Default: False."""
    obs_type: Literal["state", "pixels"] | None = None
    """Observations: state vectors or images. Default: state in 2D, pixels in 3D."""
    image_size: int | None = None
    """Width of image observations in pixels. Default: 224 in 2D, 96 in 3D."""
    realtime: Switch = None
    """Run the engine in real time, also while the policy decides (3D tasks). Default: False."""
    layout: Path | None = None
    """File of your own map, for --task custom."""
    room_size: tuple[int, int] | None = None
    """Width and height of your own map in pixels. Default: 800 800."""

    def resolve(self, task: str | None, known: Mapping[str, Any] | None = None) -> tuple[Task, dict[str, Any]]:
        """Return the task, and the known arguments of its environment updated by the given options."""
        if task is None and self.layout is None:
            raise ValueError(f"no task is given: add --task with one of {', '.join(TASKS)}, or any Gymnasium id")
        found = find_task(task or "custom")
        given = {name: value for name, value in vars(self).items() if value is not None}
        arguments = {**(known or {}), **given}
        if found.defaults:  # the arguments of other environments are unknown
            arguments = {name: value for name, value in arguments.items() if name in found.defaults}
            for name in given.keys() - found.defaults.keys() - {"layout", "room_size"}:
                raise ValueError(f"--{name.replace('_', '-')} does not apply to {found.name}: leave it out")
        if self.layout is not None:
            if found.name != "custom":
                raise ValueError(f"{found.name} has its own map: leave --layout out, or give --task custom")
            layout = Layout.load(self.layout, self.room_size or (800, 800))
            arguments |= {"layout": layout.text, "room_size": list(layout.room_size)}
        elif "room_size" in given:
            raise ValueError("--room-size is given without a map: add --layout with the file of your map")
        elif found.name == "custom" and "layout" not in arguments:
            raise ValueError("--task custom has no map: add --layout with the file of your map")
        if self.image_size is not None and {**found.defaults, **arguments}.get("obs_type") == "state":
            raise ValueError(f"--image-size is given, and {found.name} observes states: add --obs-type pixels")
        return found, arguments


EnvArguments = tyro.conf.OmitArgPrefixes[EnvOptions]
