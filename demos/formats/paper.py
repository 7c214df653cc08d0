"""Reading the paper's released recordings, folders with two files per episode.

FOLDER/NAME_00_env_config.yaml         map (`W` walls, `G` goals), order of the goals, noise
FOLDER/NAME_00_trajectory_data.npz     obs, state (T+1); action, reward (T); success
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.arrays import read_arrays
from pidm_nav.demos.formats.npz import RECORDED_DYNAMICS, recorded_episode
from pidm_nav.files import read_bytes
from pidm_nav.rollouts.episode import Episode
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import goals_of

CONFIG, TRAJECTORY = "_env_config.yaml", "_trajectory_data.npz"
MAX_LISTS = 500


# Fields that we read of an environment's description, with the paper's names.


class _Action(msgspec.Struct):
    add_transition_noise: bool
    transition_gaussian_noise_std: tuple[float, float]
    control_deadzone: float


class _Randomisation(msgspec.Struct):
    randomise_agent_spawn: bool
    randomise_goal_positions: bool


class _Goal(msgspec.Struct):
    goal_ordering: list[int]
    randomisation: _Randomisation


class _Config(msgspec.Struct):
    action: _Action
    goal: _Goal
    layout: str
    room_size: tuple[int, int]


def load_release(folder: Path) -> DemoDataset:
    """Load all episodes of a released folder, sorted by name."""
    paths = sorted(folder.glob(f"[!.]*{TRAJECTORY}"))
    if not paths:
        inside = sorted({path.parent.name for path in folder.glob(f"*/*{TRAJECTORY}")})
        hint = f": give one of its folders, {', '.join(inside)}" if inside else ""
        raise ValueError(f"the folder '{folder}' holds no *{TRAJECTORY} files{hint}")
    configs = [_read_config(path.with_name(path.name.removesuffix(TRAJECTORY) + CONFIG)) for path in paths]
    layout, env_kwargs = configs[0]
    episodes = []
    for path, (other, arguments) in zip(paths, configs, strict=True):
        if other != layout:
            raise ValueError(f"'{paths[0]}' and '{path.name}' have different maps: keep the files of one task")
        episodes.append(_read_trajectory(path, None if arguments.get("random_goals") else layout))
    task = next((task.name for task in PAPER_TASKS.values() if task.layout() == layout), "custom")
    if task == "custom":
        env_kwargs |= {"layout": layout.text, "room_size": list(layout.room_size)}
    source = {"made_by": f"paper: {folder.resolve().name}", "env_kwargs": env_kwargs}
    try:
        return DemoDataset(task, tuple(episodes), source)
    except ValueError as error:
        raise ValueError(f"the folder '{folder}' cannot be used: {error}") from None


def _read_config(path: Path) -> tuple[Layout, dict[str, Any]]:
    """Return the map and the arguments of our environment."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no '{path}': add the environment's description of each trajectory")
    try:
        text = read_bytes(path, 2**20)
        if b"<<" in text:
            raise ValueError("it has merge keys, which can expand without limit")
        # deeply nested lists crash the parser
        if sum(text.count(mark) for mark in (b"[", b"{", b"- -")) > MAX_LISTS:
            raise ValueError("it has too many lists")
        config = msgspec.yaml.decode(text, type=_Config)
        layout = Layout.parse(config.layout, config.room_size, config.goal.goal_ordering)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"'{path}' does not describe an environment ({str(error).splitlines()[0]})") from None
    noise_std = config.action.transition_gaussian_noise_std[0] if config.action.add_transition_noise else 0.0
    env_kwargs = {"noise_std": noise_std, "deadzone": config.action.control_deadzone, **RECORDED_DYNAMICS}
    drawn = config.goal.randomisation
    env_kwargs |= {"random_start": True} if drawn.randomise_agent_spawn else {}
    env_kwargs |= {"random_goals": True} if drawn.randomise_goal_positions else {}
    return layout, env_kwargs


def _read_trajectory(path: Path, layout: Layout | None) -> Episode:
    """Read one episode; its goals must be those of the map, if one is given."""
    arrays = read_arrays(path)
    try:
        episode = recorded_episode(arrays["state"], arrays["action"], arrays["reward"])
        goals = goals_of(episode.observations)
        if layout and not (goals.shape[1:] == layout.goals.shape and (goals == layout.goals).all()):
            raise ValueError("its states do not have the goals of its map")
        return episode
    except (KeyError, ValueError) as error:
        raise ValueError(f"'{path}' is not a trajectory of the paper's release ({error})") from None
