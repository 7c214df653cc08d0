"""Every picture of the README and the documentation, into docs/images.

    python scripts/make_pictures.py                            runs the quickstart first, a minute
    python scripts/make_pictures.py --quickstart quickstart    takes the GIF and the curve from a former one

docs/images/
  bc-and-pidm.gif, curve.png, traces-maze.png    of `pidm-nav quickstart`
  four-room.png, ...                  a picture for each task
  traces.png                          the demonstrations that come with the package
  idea.png                            BC and PIDM at one place where demonstrators differ
  pull.png                            what BC, PIDM and PIDM without pull do beside a demonstrated path
  tour-3d.png, four-room-3d.png       the 3D world, some way into an episode
  recorder.png                        what `pidm-nav record` shows
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from numpy.typing import NDArray
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
from pidm_nav.world2d.state import POSITION

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TASK_SIZE = 400  # px; shown at half of it, so that it is sharp on fine screens
FIRST_FLAG = 4  # column of a state that says whether the first goal is reached
MOST_BYTES = 2_000_000  # of the GIF, or the README loads slowly


def take_quickstart(folder: Path, images: Path) -> None:
    """The GIF, the curve and the traces as the quickstart made them."""
    for name, target in (
        ("bc-and-pidm.gif", "bc-and-pidm.gif"),
        ("figures/agents-human-like.png", "curve.png"),
        ("traces.png", "traces-maze.png"),
    ):
        shutil.copyfile(folder / name, images / target)
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
    for ax in figure.axes:
        legend = ax.get_legend()
        for text, label in zip(legend.get_texts(), kinds.values(), strict=True):
            text.set(text=label, fontsize=11)
    figure.savefig(images / "traces.png", dpi=110)
    picture = Image.open(images / "traces.png").convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE).save(images / "traces.png", optimize=True)


def draw_idea(images: Path, reach: float = 14.0, view: float = 62.0) -> None:
    """The place of Four room where demonstrators differ most: what they did, what BC and PIDM make of it."""
    demos = load_demos("four-room/human-like")
    states = np.concatenate([episode.observations[:-1] for episode in demos])
    nexts = np.concatenate([episode.observations[1:] for episode in demos])
    actions = np.concatenate([episode.actions for episode in demos])
    flags = states[:, PAPER_TASKS["four-room"].goal_flags(states.shape[1])]

    def near(index: int) -> NDArray[np.bool_]:
        close = np.abs(states[:, POSITION] - states[index, POSITION]).max(1) < reach
        return close & (flags == flags[index]).all(1)

    center = max(range(0, len(states), 7), key=lambda index: actions[near(index)].var(0).sum())
    here, chosen = states[center, POSITION], near(center)
    mean = actions[chosen].mean(0)
    figure, axes = panels(3, width=3.3, height=3.7, columns=3)
    titles = ("What demonstrators did here", "BC: the mean of it", "PIDM: where one of them went")
    for ax, title in zip(axes, titles, strict=True):
        draw_room(ax, demo_layout(demos))
        ax.set(xlim=(here[0] - view, here[0] + view), ylim=(here[1] + view, here[1] - view))
        ax.set_title(title, fontsize=12)
        faint = {"alpha": 0.85 if ax is axes[0] else 0.18, "width": 0.006, "color": DEMONSTRATOR_COLORS["human-like"]}
        ax.quiver(*states[chosen, POSITION].T, *actions[chosen].T, angles="xy", scale=6, zorder=5, **faint)
    strong = {"angles": "xy", "scale": 6, "width": 0.02, "zorder": 7}
    axes[1].quiver(*here, *mean, color=agent_color("bc"), **strong)
    axes[2].quiver(*here, *actions[center], color=agent_color("pidm"), **strong)
    axes[2].plot(*nexts[center, POSITION], "o", color=agent_color("pidm"), markersize=9, zorder=8)
    for ax in axes:
        ax.plot(*here, "o", color="#0e0e11", markersize=6, zorder=9)
    save_figure(figure, images / "idea.png")
    spread = np.linalg.norm(actions[chosen], axis=1).mean()
    print(f"idea.png: {chosen.sum()} states, mean length {spread:.2f}, length of the mean {np.linalg.norm(mean):.2f}")


def draw_pull(images: Path) -> None:
    """The actions of BC, PIDM and PIDM without pull beside the way to the first goal, after two demonstrations."""
    demos = load_demos("maze/human-like").sample(2, seed=0)
    paths = [each.observations[each.observations[:, FIRST_FLAG] == 0] for each in demos]
    along = np.diff(paths[0][:, POSITION], axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1)
    places = np.concatenate([paths[0][:-1:2, POSITION] + far * across[::2] for far in (-36, -18, 0, 18, 36)])
    states = np.repeat(paths[0][:1], len(places), axis=0)
    states[:, POSITION] = places
    pidm = train("pidm", demos, progress=False)
    actions = {"bc": train("bc", demos, progress=False).predict(states)[0], "pidm": pidm.predict(states)[0]}
    without_pull(pidm)
    actions["pidm-no-pull"] = pidm.predict(states)[0]
    figure, axes = panels(3, width=3.2, height=4.2, columns=3)
    for ax, (name, vectors) in zip(axes, actions.items(), strict=True):
        draw_room(ax, demo_layout(demos))
        for path in paths:
            ax.plot(*path[:, POSITION].T, color="#868e96", linewidth=2)
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
