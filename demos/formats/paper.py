"""The folders that the paper's authors released: two files an episode, among others that are not needed.

FOLDER/NAME_00_env_config.yaml         the map (`W` walls, `G` goals), the goals' order, the noise
FOLDER/NAME_00_trajectory_data.npz     obs, state (T+1); action, reward (T); success
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import RECORDED_DYNAMICS, read_arrays, recorded_episode
from pidm_nav.episode import Episode
from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import goals_of

CONFIG, TRAJECTORY = "_env_config.yaml", "_trajectory_data.npz"


def load_release(folder: str | Path) -> DemoDataset:
    """All episodes of a released folder, in the order of their names."""
    folder = Path(folder)
    paths = sorted(folder.glob(f"*{TRAJECTORY}"))
    if not paths:
        inside = sorted({path.parent.name for path in folder.glob(f"*/*{TRAJECTORY}")})
        hint = f": give one of the folders inside, {', '.join(inside)}" if inside else ""
        raise ValueError(f"folder '{folder}' holds no *{TRAJECTORY} files{hint}")
    layouts: dict[Layout, Path] = {}
    env_kwargs: dict[str, Any] = {}
    episodes = []
    for path in paths:
        config_path = path.with_name(path.name.removesuffix(TRAJECTORY) + CONFIG)
        try:
            layout, env_kwargs = _read_config(config_path)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"'{config_path}' does not describe an environment ({error})") from None
        layouts.setdefault(layout, config_path)
        episodes.append(_read_trajectory(path, layout, fixed_goals=not env_kwargs.get("random_goals")))
    if len(layouts) > 1:
        first, second, *_ = layouts.values()
        raise ValueError(f"'{first}' and '{second.name}' have different maps: a dataset holds one task")
    (layout,) = layouts
    task = next((task.name for task in PAPER_TASKS.values() if task.layout() == layout), "custom")
    if task == "custom":
        env_kwargs |= {"layout": layout.text, "room_size": list(layout.room_size)}
    source = {"made_by": f"paper: {folder.resolve().name}", "env_kwargs": env_kwargs}
    try:
        return DemoDataset(task, tuple(episodes), source)
    except ValueError as error:
        raise ValueError(f"folder '{folder}' cannot be used: {error}") from None


def _read_config(path: Path) -> tuple[Layout, dict[str, Any]]:
    """The map and our environment's arguments."""
    import yaml

    if not path.is_file():
        raise FileNotFoundError(f"there is no '{path}': each trajectory needs its environment's description")
    try:
        config: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ValueError("it is no readable YAML") from None
    goal = config["goal"]
    layout = Layout.parse(config["layout"], config["room_size"], goal["goal_ordering"])
    action = config["action"]
    noise_std = float(action["transition_gaussian_noise_std"][0]) if action["add_transition_noise"] else 0.0
    env_kwargs: dict[str, Any] = {
        "noise_std": noise_std,
        "deadzone": float(action["control_deadzone"]),
        **RECORDED_DYNAMICS,
    }
    if goal["randomisation"]["randomise_agent_spawn"]:
        env_kwargs["random_start"] = True
    if goal["randomisation"]["randomise_goal_positions"]:
        env_kwargs["random_goals"] = True
    return layout, env_kwargs


def _read_trajectory(path: Path, layout: Layout, fixed_goals: bool) -> Episode:
    arrays = read_arrays(path)
    try:
        episode = recorded_episode(arrays["state"], arrays["action"], arrays["reward"])
        goals = goals_of(episode.observations)
        if fixed_goals and not (goals.shape[1:] == layout.goals.shape and (goals == layout.goals).all()):
            raise ValueError("its states do not show the goals of its map")
        return episode
    except (KeyError, ValueError) as error:
        raise ValueError(f"'{path}' is no trajectory of the paper's release ({error})") from None
