"""Policies by the name that a person gives: an expert, or a trained agent, in a folder or from the package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidm_nav.demos.experts import EXPERTS, make_expert
from pidm_nav.limits import suggestion
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import Task

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent


def packaged_folder() -> Path:
    """Return the folder of the agents that come with the package, without importing torch as their module does."""
    return Path(str(getattr(find_spec("pidm_nav.agents"), "origin", ""))).parent / "data"


def packaged_agents() -> dict[str, dict[str, Any]]:
    """Return the agents that come with the package: by name, such as maze/pidm, how each was trained and does."""
    cards: dict[str, dict[str, Any]] = json.loads((packaged_folder() / "card.json").read_text(encoding="utf-8"))
    return cards


def find_agent(name: str | Path, others: Iterable[str] = ()) -> Path:
    """Return the folder of an agent that is named by its folder or, if it comes with the package, as TASK/AGENT.

    The error for anything else suggests a name, which may also be one of the `others`.
    """
    path = Path(name)
    if path.is_dir():
        return path
    packaged = packaged_agents()
    if path.as_posix() in packaged:
        return packaged_folder() / path
    known = [*others, *packaged]
    hint = suggestion(str(name), known, f"give a folder that train wrote, or one of {', '.join(known)}")
    raise FileNotFoundError(f"there is no agent '{name}': {hint}")


def load_named(name: str, device: str = "cpu") -> Agent:
    """Load an agent; the error for a name that is none says which experts can be named instead."""
    folder = find_agent(name, EXPERTS)
    from pidm_nav.agents.checkpoint import load_agent

    return load_agent(folder, device=device)


def named_expert(name: str, task: Task, env_kwargs: Mapping[str, Any], seed: int) -> Policy:
    """Make an expert for a task, or for a map of one's own."""
    layout = task.layout(env_kwargs) if "layout" in env_kwargs and name in task.experts else None
    return make_expert(name, layout or task, **({} if name == "astar" else {"seed": seed}))
