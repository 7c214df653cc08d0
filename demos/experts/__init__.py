"""Experts that make demonstrations: the A* planner, the human-like player, the scripted 3D walker, and random play."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import Task, find_task
from pidm_nav.world2d.layout import Layout

EXPERTS = {
    "astar": "pidm_nav.demos.experts.astar:AStarExpert",
    "human-like": "pidm_nav.demos.experts.humanlike:HumanLikePlayer",
    "scripted": "pidm_nav.demos.experts.walker3d:Walker3D",
    "random": "pidm_nav.demos.experts.random_play:RandomPlay",
}


def make_expert(name: str | None, task: str | Task | Layout, **settings: Any) -> Policy:
    """Make an expert.

    Args:
        name: `astar` or `human-like` in 2D, `scripted` in 3D, `random` in any task; None for the task's first expert.
        task: task to play, or a map.
        settings: arguments of the expert's class.
    """
    if isinstance(task, str | Task):
        task = find_task(task)
        experts = (*task.experts, "random")
        if name is None and not task.experts:
            raise ValueError(f"{task.name} has no expert: record a person, or collect with your own policy")
        name = name or task.experts[0]
        if name not in experts:
            raise ValueError(f"{task.name} has no expert '{name}': choose one of {', '.join(experts)}")
    module, _, kind = EXPERTS[name or "astar"].partition(":")
    expert: Policy = getattr(import_module(module), kind)(task, **settings)
    return expert
