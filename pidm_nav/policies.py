"""Policies by the name that a person gives: an expert, or the folder of a trained agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pidm_nav.demos.experts import EXPERTS, make_expert
from pidm_nav.rollout import Policy
from pidm_nav.tasks import Task

if TYPE_CHECKING:
    from pidm_nav.agents.policy import NavPolicy

OBSERVED = ("obs_type", "image_size", "observe_goals", "relative_goals")
"""The arguments in which the environments of policies that play the same episode may differ."""


def load_named(folder: str) -> NavPolicy:
    """Load an agent; the error for a name that is none says what else can be named."""
    if not Path(folder).is_dir():
        known = ", ".join(EXPERTS)
        raise FileNotFoundError(f"there is no agent '{folder}': give a folder that train wrote, or one of {known}")
    from pidm_nav.agents.checkpoint import load_agent

    return load_agent(folder)


def named_expert(name: str, task: Task, env_kwargs: Mapping[str, Any], seed: int) -> Policy:
    """Make an expert for a task, or for a map of one's own."""
    layout = task.layout(env_kwargs) if "layout" in env_kwargs and name in task.experts else None
    return make_expert(name, layout or task, **({} if name == "astar" else {"seed": seed}))
