"""Policies by the name that a person gives: an expert, or a trained agent, in a folder or from the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pidm_nav.demos.experts import EXPERTS, make_expert
from pidm_nav.demos.recorder.players import Rival
from pidm_nav.packaged import find_agent
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import OBSERVED, Task

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent


def load_named(name: str, device: str = "cpu") -> Agent:
    """Load an agent; the error for a name that is none says which experts can be named instead."""
    folder = find_agent(name, EXPERTS)
    from pidm_nav.agents.checkpoint import load_agent  # torch, which experts do not need

    return load_agent(folder, device=device)


def named_expert(name: str, task: Task, env_kwargs: Mapping[str, Any], seed: int) -> Policy:
    """Make an expert for a task, or for a map of one's own."""
    layout = task.layout(env_kwargs) if "layout" in env_kwargs and name in task.experts else None
    return make_expert(name, layout or task, **({} if name == "astar" else {"seed": seed}))


def make_rival(
    agent: Agent | str, task: Task, env_kwargs: dict[str, Any], seed: int, render_mode: str | None = None
) -> Rival:
    """Return an expert or a trained agent, in an environment with the person's dynamics and its own observations."""
    if isinstance(agent, str):
        expert = named_expert(agent, task, env_kwargs, seed)
        return Rival(
            "A*" if agent == "astar" else agent, expert, task.make_vec(1, render_mode=render_mode, **env_kwargs)
        )
    from pidm_nav.agents.agent import same_space  # torch, which experts do not need

    trained_with: dict[str, Any] = agent.description.get("env_kwargs", {})
    observed = {key: trained_with[key] for key in OBSERVED if key in trained_with}
    env = task.make_vec(1, render_mode=render_mode, **{**env_kwargs, **observed})
    if not same_space(agent.observation_space, env.single_observation_space):
        trained_on = agent.description.get("task")
        raise ValueError(f"the agent was trained on {trained_on}, not on {task.name}: choose that task")
    return Rival(agent.name.upper(), agent, env)
