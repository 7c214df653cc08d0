"""What several commands ask for: demonstrations, and the arguments of an environment."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from pidm_nav.tasks import TASKS, Task, find_task
from pidm_nav.world2d.layout import Layout

Files = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE...")]
File = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class EnvOptions:
    """Arguments of the environment; the defaults are its own."""

    noise_std: float = 0.2
    """Standard deviation of the noise on each action component."""
    clip_noise: bool = True
    """Clip action plus noise to [-1, 1], as the paper says; its recordings were made without."""
    random_start: bool = False
    """Start each episode anywhere free (2D tasks)."""
    random_goals: bool = False
    """Place the goals of each episode anywhere free (2D tasks)."""
    obs_type: Literal["state", "pixels"] | None = None
    """What is observed: state vectors (the default of 2D tasks) or images (the default of 3D tasks)."""
    image_size: int | None = None
    """Width of image observations in pixels."""
    realtime: bool = False
    """Let time go on while the policy decides (3D tasks)."""
    layout: Path | None = None
    """File with a map of your own, for the task custom."""
    room_size: tuple[int, int] = (800, 800)
    """Width and height of your own map's room in pixels."""

    def resolve(self, task: str | None) -> tuple[Task, dict[str, Any]]:
        """Return the task, which is custom where a layout is given, and the arguments that are not the defaults."""
        if task is None and self.layout is None:
            raise ValueError(f"no task given: add --task with one of {', '.join(TASKS)}, or any Gymnasium id")
        found = find_task(task or "custom")
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {each.name: given[each.name] for each in fields(self) if given[each.name] != each.default}
        if self.layout is not None:
            if found.name != "custom":
                raise ValueError(f"{found.name} has its own map: leave --layout out, or give --task custom")
            given |= {"layout": Layout.load(self.layout, self.room_size).text, "room_size": list(self.room_size)}
        elif found.name == "custom":
            raise ValueError("--task custom needs --layout: the file of your map")
        return found, given


EnvArguments = tyro.conf.OmitArgPrefixes[EnvOptions]
