"""Every picture of the README and the documentation, into docs/images.

    python scripts/make_pictures.py                            runs the quickstart first, two to three minutes
    python scripts/make_pictures.py --quickstart quickstart    takes the GIF and the curve from a former one

docs/images/
  bc-and-pidm.gif, curve.png, traces-maze.png    of `pidm-nav quickstart`
  four-room.png, ...                  a picture for each task
  traces.png                          the demonstrations that come with the package
  tour-3d.png, four-room-3d.png       the 3D world, some way into an episode
  recorder.png                        what `pidm-nav record` shows
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import gymnasium as gym
import imageio.v2 as imageio
from pidm_nav.world3d.rollout import roll_out3d
from PIL import Image

import pidm_nav  # noqa: F401  registers the environments
from pidm_nav.cli import main as pidm_nav_command
from pidm_nav.demos.experts.humanlike import HumanLikePlayer
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.demos.recorder.controls import Controls, Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.screen import Screen
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.demos.traces import plot_traces
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.drawing import Frame
from pidm_nav.world2d.render import render_state

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TASK_SIZE = 400  # px; shown at half of it, so that it is sharp on fine screens
MOST_BYTES = 2_000_000  # of the GIF, or the README loads slowly


def take_quickstart(folder: Path, images: Path) -> None:
    """The GIF, the curve and the traces as the quickstart made them."""
    for name, target in (
        ("bc-and-pidm.gif", "bc-and-pidm.gif"),
        ("curve.png", "curve.png"),
        ("traces.png", "traces-maze.png"),
    ):
        shutil.copyfile(folder / name, images / target)
    size = (images / "bc-and-pidm.gif").stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"bc-and-pidm.gif has {size:,} bytes: the README wants at most {MOST_BYTES:,}")


def draw_tasks(images: Path) -> None:
    """Each task as an episode begins."""
    for task in TASKS.values():
        env = gym.make(task.env_id)
        state, _ = env.reset(seed=0)
        imageio.imwrite(images / f"{task.name}.png", render_state(task.layout, state, TASK_SIZE))
        env.close()


def draw_levels(images: Path) -> None:
    """Two of the 3D levels, as the scripted walker sees them after so many steps."""
    for name, steps in (("tour-3d", 135), ("four-room-3d", 100)):
        frames: list[Frame] = []
        roll_out3d(
            None,
            name,
            max_steps=steps,
            keep_observations=False,
            watch=lambda env, frames=frames: frames.append(env.render()),
            render_mode="rgb_array",
        )
        imageio.imwrite(images / f"{name}.png", frames[-1])


def draw_traces(images: Path) -> None:
    """The package's demonstrations on their maps."""
    datasets = {f"{task}/{kind}": load_demos(f"{task}/{kind}") for task in TASKS for kind in ("human-like", "astar")}
    figure = plot_traces(datasets)
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        handles = handles or ax.get_legend().legend_handles
        labels = ["human-like", "A*"]
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "handlelength": 1.4}
        ax.legend(handles, labels, ncols=2, frameon=False, fontsize=11, **place)
    figure.savefig(images / "traces.png", dpi=110)
    picture = Image.open(images / "traces.png").convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE).save(images / "traces.png", optimize=True)


def draw_recorder(images: Path, size: int = 640) -> None:
    """The recorder in the middle of an episode; the human-like script holds the stick."""
    with tempfile.TemporaryDirectory() as folder:
        task = TASKS["maze"]
        session = Session(task, {}, Rules(10), DemoFile(Path(folder) / "my_demos.npz", task, {}))
        player, memory, reading = HumanLikePlayer("maze", seed=3), None, Reading()
        while session.kept < 2 or session.person.goals_reached < 6:
            if session.phase == "ready":  # a person lets go of the stick between episodes
                session.tick(Reading())
                memory = None
            stick, memory = player.predict(session.person.state[None], memory)
            reading = Reading(stick=(float(stick[0, 0]), float(stick[0, 1])))
            session.tick(reading)
        frame = Screen("Maze", "recording to my_demos.npz", Controls(), size).draw(session, reading)
        session.close()
    imageio.imwrite(images / "recorder.png", frame)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quickstart", type=Path, help="a folder that pidm-nav quickstart wrote")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    draw_tasks(options.out)
    draw_levels(options.out)
    draw_traces(options.out)
    draw_recorder(options.out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.quickstart
        if folder is None:
            folder = Path(temporary) / "quickstart"
            pidm_nav_command(["quickstart", "--out", str(folder)])
        take_quickstart(folder, options.out)


if __name__ == "__main__":
    main()
