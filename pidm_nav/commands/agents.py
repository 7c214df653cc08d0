"""Commands on agents: train, evaluate."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pidm_nav.tasks import get_task
from pidm_nav.world3d.levels import find_task, get_level, is_3d, stored_name

if TYPE_CHECKING:
    from pidm_nav.agents.policy import NavPolicy
    from pidm_nav.rollout import EvalResult

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]


def train(
    agent: Literal["bc", "pidm", "retrieval-bc"] = "pidm",
    task: str | None = None,
    demos: str | None = None,
    num_demos: int | None = None,
    out: Path | None = None,
    preset: Literal["fast", "paper", "pixels", "frozen"] | None = None,
    seed: int = 0,
    steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    loss: Literal["l1", "mse"] | None = None,
    checkpoints: tuple[int, ...] = (),
    frames: str | None = None,
    history: tuple[int, ...] | None = None,
    horizons: tuple[int, ...] | None = None,
    predictor: Literal["nearest", "time", "learned"] | None = None,
    distance: Literal["l2", "l1"] = "l2",
    train_on_predicted: bool = False,
    end_to_end: bool = False,
    predictor_demos: str | None = None,
    idm_demos: str | None = None,
    force: bool = False,
) -> None:
    """Train an agent on demonstrations; a training that was killed goes on when started again.

    Args:
        agent: which one.
        task: four-room, zigzag, maze or multiroom; with -3d, or tour-3d; by default the demonstrations' own.
        demos: a file or folder of demonstrations; by default the task's human-like ones of the package.
        num_demos: train on so many of them, drawn by the seed.
        out: folder for the agent; by default runs/TASK-AGENT-DEMOS-SEED.
        preset: seconds on a laptop (the default), the paper's recipe; and with frames, the default to train a CNN
            (pixels) or to learn from vectors of a frozen encoder (frozen).
        seed: of demonstrations, weights and batches.
        steps: gradient steps, if not the preset's.
        batch_size: actions a step, if not the preset's.
        learning_rate: of the first step, if not the preset's.
        loss: if not the preset's.
        checkpoints: steps after which to keep a copy of the agent.
        frames: (frames) what turns one into a vector: cnn, or frozen: random, agent:FOLDER, vit:FOLDER or vit:HUB-NAME.
        history: (frames) steps back of those that make up a state, from 0.
        horizons: (pidm) steps ahead, k, to train the inverse dynamics model with; 1, and more by default with frames.
        predictor: (pidm) what predicts the future state; nearest, and by default time with frames.
        distance: (pidm) between states, for the nearest one.
        train_on_predicted: (pidm) train on predicted future states, not on the data's.
        end_to_end: (pidm) train a learned predictor through the inverse dynamics model as well.
        predictor_demos: (pidm) more episodes for the predictor; their actions are not looked at.
        idm_demos: (pidm) more episodes for the inverse dynamics model, of any quality.
        force: replace an agent that the folder holds.
    """
    from pidm_nav.agents.train import default_options, default_preset
    from pidm_nav.agents.train import preset as preset_config
    from pidm_nav.agents.train import train as train_agent
    from pidm_nav.demos.formats.npz import load_demos

    if task is None and demos is None:
        raise ValueError("nothing to learn from: give --task, --demos or both")
    if demos is None and is_3d(str(task)):
        raise ValueError(
            f"the package brings no demonstrations of {task}: make some with pidm-nav collect --task {task}"
        )
    dataset = load_demos(demos if demos is not None else f"{get_task(str(task)).name}/human-like")
    if task is not None and dataset.task != (stored_name(task) if task != "custom" else task):
        raise ValueError(f"the demonstrations are of {dataset.task}, not of {task}: give the right file or task")
    if num_demos is not None:
        dataset = dataset.sample(num_demos, np.random.default_rng(seed))
    given = {"steps": steps, "batch_size": batch_size, "learning_rate": learning_rate, "loss": loss}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if checkpoints or steps is not None:
        changes["checkpoints"] = checkpoints
    told: dict[str, Any] = {"frames": frames, "history": history}
    if agent == "pidm":
        told |= {"horizons": horizons, "predictor": predictor, "distance": distance}
        told |= {"train_on_predicted": train_on_predicted, "end_to_end": end_to_end}
    options = default_options(agent, dataset, **{name: value for name, value in told.items() if value is not None})
    name = preset or default_preset(dataset, options)
    config = replace(preset_config(name, agent, dataset.task), seed=seed, **changes)
    folder = out if out is not None else Path("runs") / f"{dataset.task}-{agent}-{len(dataset)}-{seed}"
    console = Console()
    began = time.perf_counter()
    trained = train_agent(
        agent,
        dataset,
        config,
        folder,
        options=options,
        predictor_data=load_demos(predictor_demos) if predictor_demos else None,
        idm_data=load_demos(idm_demos) if idm_demos else None,
        overwrite=force,
        progress=True,
    )
    seconds = time.perf_counter() - began
    console.print(
        f"[bold]{agent}[/] learned {trained.description['task']} from {len(dataset)} demonstrations "
        f"({dataset.num_steps:,} steps) in {seconds:.1f} s"
    )
    console.print(f"saved to {folder}; next: [bold]pidm-nav evaluate {folder}[/]", soft_wrap=True)


def evaluate(
    folder: Folder,
    task: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    noise_std: float = 0.2,
    clip_noise: bool = True,
    realtime: bool = False,
    per_episode: bool = False,
    video: Path | None = None,
    video_episode: int = 0,
    render: bool = False,
) -> None:
    """Run a trained agent and count the goals it reaches in order.

    Args:
        folder: what train wrote.
        task: another task than the agent was trained on, of the same observations.
        episodes: how many; by default 50, all at once, and 10 in 3D, one by one.
        seed: of the first episode; episode i has seed + i, the same for every agent.
        noise_std: standard deviation of the noise on actions.
        clip_noise: clip noisy actions to [-1, 1], as the paper's experiments do.
        realtime: (3D) time goes on while the agent thinks.
        per_episode: print every episode.
        video: write one episode to this .mp4 or .gif file.
        video_episode: which one.
        render: show one episode in a window.
    """
    from pidm_nav.agents.checkpoint import load_agent
    from pidm_nav.rollout import evaluate as evaluate_policy
    from pidm_nav.world2d.render import check_video_name

    if episodes is not None and episodes < 1:
        raise ValueError(f"--episodes is {episodes}: it must be at least 1")
    if video is not None:
        check_video_name(video)
    agent = load_agent(folder)
    trained_on = str(agent.description.get("task", "unknown"))
    name = task if task is not None else trained_on
    in_3d = is_3d(name)
    if in_3d != is_3d(trained_on):
        raise ValueError(f"the agent was trained on {trained_on}: it cannot see the observations of {name}")
    if realtime and not in_3d:
        raise ValueError(f"--realtime is for 3D tasks: {name} takes as long as it takes")
    count = episodes if episodes is not None else 10 if in_3d else 50
    if video is not None and not 0 <= video_episode < count:
        raise ValueError(f"--video-episode is {video_episode}: there are 0 to {count - 1}")
    arguments = {**agent.description.get("env_kwargs", {}), "noise_std": noise_std, "clip_noise": clip_noise}
    console = Console()
    began = time.perf_counter()
    if in_3d:
        place = get_level(name).name
        arguments["realtime"] = realtime
        result = _evaluate_3d(agent, place, count, seed, arguments, video, video_episode)
    else:
        place = get_task(name).name if name != "custom" else name
        result = evaluate_policy(agent, place, episodes=count, seed=seed, **arguments)
        if video is not None:
            result.video(video, video_episode)
    seconds = time.perf_counter() - began
    if per_episode:
        console.print(_rows(result.table()))
    low, high = result.interval
    console.print(
        f"[bold]{agent.name}[/] on {place}: {result.mean_goal_ratio:.1%} of the goals reached "
        f"({low:.1%} to {high:.1%}), {result.success_rate:.0%} of {count} episodes complete, "
        f"{result.length.mean():.0f} steps on average; took {seconds:.1f} s",
        soft_wrap=True,
    )
    if video is not None:
        console.print(f"episode {video_episode} is in {video}", soft_wrap=True)
    if render:
        _show(agent, place, seed + video_episode, arguments)


def _evaluate_3d(
    agent: NavPolicy,
    level: str,
    episodes: int,
    seed: int,
    arguments: dict[str, Any],
    video: Path | None,
    video_episode: int,
) -> EvalResult:
    from pidm_nav.world2d.render import write_video
    from pidm_nav.world3d.engine import TICS_PER_SECOND
    from pidm_nav.world3d.env import FRAME_SKIP
    from pidm_nav.world3d.rollout import evaluate3d

    pictures: list[NDArray[np.uint8]] = []
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"{agent.name} in {level}", total=episodes)

        def watch(env: gym.Env[Any, Any]) -> None:
            if progress.tasks[bar].completed == video_episode:
                pictures.append(np.asarray(env.render(), np.uint8))

        filmed: dict[str, Any] = {} if video is None else {"watch": watch, "render_mode": "rgb_array"}
        result = evaluate3d(
            agent, level, episodes, seed, progress=partial(progress.advance, bar), **arguments, **filmed
        )
    if video is not None:
        write_video(pictures, video, TICS_PER_SECOND / arguments.get("frame_skip", FRAME_SKIP))
    return result


def _rows(rows: list[dict[str, Any]]) -> Table:
    """A table of episodes."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def _show(agent: NavPolicy, task: str, seed: int, arguments: dict[str, Any]) -> None:
    """One episode in a window."""
    found = find_task(task)
    env_id = found.env_id if found is not None else "PIDMNav-Custom-v0"
    env = gym.make(env_id, render_mode="human", **arguments)
    observation, _ = env.reset(seed=seed)
    state, start, over = None, np.ones(1, dtype=bool), False
    while not over:
        action, state = agent.predict(observation, state, start)
        observation, _, terminated, truncated, _ = env.step(action)
        start, over = np.zeros(1, dtype=bool), bool(terminated or truncated)
    env.close()
