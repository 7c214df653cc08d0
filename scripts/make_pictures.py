"""Every picture of the README and the documentation, into docs/images.

    python scripts/make_pictures.py                            runs the quickstart first, a minute
    python scripts/make_pictures.py --quickstart quickstart    takes the GIF and the curve from a former one

docs/images/
  bc-and-pidm.gif, curve.png          of `pidm-nav quickstart`
  four-room.png, ...                  a picture for each task
  traces.png                          the demonstrations that come with the package
  idea.png                            the steps of BC and PIDM from one place beside the demonstrations
  pull.png                            what BC, PIDM and PIDM without pull do beside a demonstrated path
  tour-3d.png, four-room-3d.png       the 3D world, some way into an episode
  recorder.png                        what `pidm-nav record` shows
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
from PIL import Image

from pidm_nav.agents.train import train
from pidm_nav.cli import main as pidm_nav_command
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.experts.humanlike import HumanLikePlayer
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.demos.recorder.controls import Controls, Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.screen import Screen
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.demos.replay import demo_layout
from pidm_nav.demos.traces import plot_traces
from pidm_nav.experiments.quickstart import without_pull
from pidm_nav.plots import DEMONSTRATOR_COLORS, agent_color, agent_title, draw_room, panels, save_figure
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.physics import Physics
from pidm_nav.world2d.state import POSITION

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TASK_SIZE = 400  # px; shown at half of it, so that it is sharp on fine screens
FIRST_FLAG = 4  # column of a state that says whether the first goal is reached
LAST_FLAG = -4  # the same for the last goal but one
LABEL: Any = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 10, "zorder": 10}
MOST_BYTES = 2_000_000  # of the GIF, or the README loads slowly


def take_quickstart(folder: Path, images: Path) -> None:
    """The GIF and the curve as the quickstart made them."""
    shutil.copyfile(folder / "bc-and-pidm.gif", images / "bc-and-pidm.gif")
    shutil.copyfile(folder / "figures" / "agents-human-like.png", images / "curve.png")
    size = (images / "bc-and-pidm.gif").stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"bc-and-pidm.gif has {size:,} bytes: the README wants at most {MOST_BYTES:,}")


def draw_tasks(images: Path) -> None:
    """Each task as an episode begins."""
    for task in PAPER_TASKS.values():
        with closing(task.make()) as env:
            state, _ = env.reset(seed=0)
        imageio.imwrite(images / f"{task.name}.png", task.draw(state[None], {}, TASK_SIZE)[0])


def draw_levels(images: Path) -> None:
    """Two of the 3D levels, as the scripted walker sees them after so many steps."""
    for name, steps in (("tour-3d", 135), ("four-room-3d", 100)):
        result = evaluate(make_expert("scripted", name), name, 1, max_steps=steps, film=0)
        imageio.imwrite(images / f"{name}.png", result.frames(0)[-1])


def draw_traces(images: Path) -> None:
    """The package's demonstrations on their maps."""
    kinds = {"human-like": "human-like", "astar": "A*"}
    datasets = {f"{task}/{kind}": load_demos(f"{task}/{kind}") for task in PAPER_TASKS for kind in kinds}
    figure = plot_traces(datasets)
    figure.set_size_inches(6.8, 7.8)
    for ax in figure.axes:
        legend = ax.get_legend()
        for text, label in zip(legend.get_texts(), kinds.values(), strict=True):
            text.set(text=label, fontsize=11)
    figure.savefig(images / "traces.png", dpi=110)
    picture = Image.open(images / "traces.png").convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE).save(images / "traces.png", optimize=True)


def draw_idea(images: Path, start: int = 196, off: float = 30.0, steps: int = 6) -> None:
    """What BC and PIDM do beside a demonstrated path of Maze, after three demonstrations, without noise."""
    demos = load_demos("maze/human-like").sample(3, seed=0)
    here, ahead = demos[0].observations[start : start + 2, POSITION]
    across = np.array([here[1] - ahead[1], ahead[0] - here[0]]) / np.linalg.norm(ahead - here)
    figure, axes = panels(2, width=3.3, height=2.8)
    titles = {"bc": "BC: action from state", "pidm": "PIDM: future, then action"}
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        draw_room(ax, demo_layout(demos))
        for episode in demos:
            path = episode.observations[episode.observations[:, LAST_FLAG] == 1, POSITION]
            ax.plot(*path.T, ".-", color=DEMONSTRATOR_COLORS["human-like"], alpha=0.6, linewidth=1.2)
        agent, env = train(name, demos, progress=False), PAPER_TASKS["maze"].make(noise_std=0)
        state, _ = env.reset(options={"state": [*(here + off * across), *demos[0].observations[start, 2:]]})
        places = [state[POSITION]]
        if name == "pidm":
            future = agent.predictor.predict(state[None])[0][0, POSITION]
            ax.plot(*zip(places[0], future, strict=True), "--", color="0.3", linewidth=1)
            ax.plot(*future, "*", color=agent_color(name), markersize=13, zorder=9)
            ax.annotate("predicted future", future, (0, 34), **LABEL, color=agent_color(name))
        for _ in range(steps):
            state = env.step(agent.predict(state)[0])[0]
            places.append(state[POSITION])
        arrow = {"arrowstyle": "-|>", "linewidth": 2, "color": agent_color(name), "shrinkA": 0, "shrinkB": 0}
        for place, following in pairwise(places):
            ax.annotate("", following, place, arrowprops=arrow, zorder=8)
        ax.plot(*places[0], "o", color="#0e0e11", markersize=8, zorder=9)
        ax.annotate("agent", places[0], (0, -15), **LABEL)
        beside = (30, 12) if name == "bc" else (10, -17)
        ax.annotate(f"{agent_title(name)}'s steps", places[3], beside, **LABEL, color=agent_color(name))
        ax.set_title(title, fontsize=11)
        ax.set(xlim=(here[0] - 40, here[0] + 190), ylim=(here[1] + 100, here[1] - 75))
    axes[0].annotate("demonstrations", here, (40, 52), **LABEL, color=DEMONSTRATOR_COLORS["human-like"])
    save_figure(figure, images / "idea.png")


def draw_pull(images: Path) -> None:
    """The actions of BC, PIDM and PIDM without pull beside the way to the first goal, after two demonstrations."""
    demos = load_demos("maze/human-like").sample(2, seed=0)
    paths = [each.observations[each.observations[:, FIRST_FLAG] == 0] for each in demos]
    along = np.diff(paths[0][:, POSITION], axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1)
    places = np.concatenate([paths[0][:-1:2, POSITION] + far * across[::2] for far in (-36, -18, 0, 18, 36)])
    places = places[~Physics(demo_layout(demos)).collides(places)]
    states = np.repeat(paths[0][:1], len(places), axis=0)
    states[:, POSITION] = places
    pidm = train("pidm", demos, progress=False)
    actions = {"bc": train("bc", demos, progress=False).predict(states)[0], "pidm": pidm.predict(states)[0]}
    without_pull(pidm)
    actions["pidm-no-pull"] = pidm.predict(states)[0]
    figure, axes = panels(3, width=2.2, height=3.2, columns=3)
    for ax, (name, vectors) in zip(axes, actions.items(), strict=True):
        draw_room(ax, demo_layout(demos))
        for path in paths:
            ax.plot(*path[:, POSITION].T, color=DEMONSTRATOR_COLORS["human-like"], linewidth=2)
        arrows = {"angles": "xy", "scale_units": "xy", "scale": 1 / 18, "width": 0.007, "zorder": 10}
        ax.quiver(*places.T, *vectors.T, color=agent_color(name), **arrows)
        ax.set_xlim(places[:, 0].min() - 30, places[:, 0].max() + 30)
        ax.set_ylim(places[:, 1].max() + 30, places[:, 1].min() - 45)
        ax.set_title(agent_title(name), fontsize=11)
    save_figure(figure, images / "pull.png")


def draw_recorder(images: Path, size: int = 640) -> None:
    """The recorder in the middle of an episode; the human-like script holds the stick."""
    with tempfile.TemporaryDirectory() as folder:
        task = PAPER_TASKS["maze"]
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
    draw_pull(options.out)
    draw_idea(options.out)
    draw_recorder(options.out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.quickstart
        if folder is None:
            folder = Path(temporary) / "quickstart"
            pidm_nav_command(["quickstart", "--out", str(folder)])
        take_quickstart(folder, options.out)


if __name__ == "__main__":
    main()
