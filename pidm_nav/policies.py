"""Policies by name: experts, and trained or pretrained agents."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from pidm_nav.demos.experts import EXPERTS, make_expert
from pidm_nav.demos.recorder.players import Rival
from pidm_nav.packaged import find_agent
from pidm_nav.rollouts import evaluation
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.seeds import TEST
from pidm_nav.tasks import OBSERVED, Task, find_task, task_of

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent


__all__ = ["evaluate"]
IMPORTING = threading.Lock()


def evaluate(
    policy: Policy | str | Path,
    task: str | Task | gym.Env[Any, Any] | None = None,
    episodes: int = 50,
    seed: int = TEST.start,
    **options: Any,
) -> evaluation.EvalResult:
    """Evaluate a policy; episode i begins with `reset(seed=seed + i)`.

    Args:
        policy: a policy with `predict`, the folder of a trained agent, a pretrained agent such as `maze/pidm`, or an
            expert such as `astar`.
        task: name of a task, "custom" with `layout=` among the environment's arguments, any Gymnasium id, or an
            environment, in which episodes run one after the other and which stays open. Default: the task and
            arguments of the agent's training.
        episodes: number of episodes.
        seed: seed of the first episode. Default: the first test seed (`pidm_nav.seeds`).
        options: `metric`, `max_steps`, `film`, `progress` and `keep_episodes` as in
            `pidm_nav.rollouts.evaluation.evaluate`, and arguments of the environment.
    """
    if isinstance(policy, str | Path) and str(policy) not in EXPERTS:
        if hasattr(task, "predict") or (isinstance(task, str) and _is_agent(task) and not _is_agent(policy)):
            raise ValueError(f"'{policy}' is given as the agent: give evaluate(agent, task)")
        policy = load_named(str(policy))
    if task is None:
        trained_on: dict[str, Any] = getattr(policy, "description", {})
        if "task" not in trained_on:
            raise ValueError("no task is given, and the policy has none: give a task")
        task, options = trained_on["task"], {**trained_on.get("env_kwargs", {}), **options}
    if isinstance(policy, str | Path):
        known, arguments = task_of(task) if isinstance(task, gym.Env) else (find_task(task), options)
        policy = named_expert(str(policy), known, arguments, seed)
    return evaluation.evaluate(policy, task, episodes, seed, **options)


def _is_agent(name: str | Path) -> bool:
    try:
        return find_agent(name).is_dir()
    except OSError:
        return False


def load_named(name: str, device: str = "cpu") -> Agent:
    """Load an agent by folder or name; the error for an unknown name also suggests experts."""
    folder, agents = find_agent(name, EXPERTS), import_agents()
    from pidm_nav.agents.checkpoint import DESCRIPTION
    from pidm_nav.agents.train import STATE_FILE

    if (folder / STATE_FILE).is_file() and not (folder / DESCRIPTION).is_file():
        raise ValueError(f"the training of '{name}' has not ended: rerun the command that began it")
    agent: Agent = agents.load_agent(folder, device=device)
    return agent


def import_agents() -> Any:
    """Import `pidm_nav.agents`, in one thread at a time because of its circular imports."""
    with IMPORTING:
        return import_module("pidm_nav.agents")


def named_expert(name: str, task: Task, env_kwargs: Mapping[str, Any], seed: int) -> Policy:
    """Return an expert for a task or for the map among its arguments."""
    layout = task.layout(env_kwargs) if "layout" in env_kwargs and name in task.experts else None
    return make_expert(name, layout or task, **({} if name == "astar" else {"seed": seed}))


def make_rival(
    agent: Agent | str, task: Task, env_kwargs: dict[str, Any], seed: int, render_mode: str | None = None
) -> Rival:
    """Return an expert or agent as a rival, with the person's dynamics and the agent's observations."""
    if isinstance(agent, str):
        expert = named_expert(agent, task, env_kwargs, seed)
        return Rival(
            "A*" if agent == "astar" else agent, expert, task.make_vec(1, render_mode=render_mode, **env_kwargs)
        )
    from pidm_nav.agents.agent import same_space

    trained_with: dict[str, Any] = agent.description.get("env_kwargs", {})
    observed = {key: trained_with[key] for key in OBSERVED if key in trained_with}
    env = task.make_vec(1, render_mode=render_mode, **{**env_kwargs, **observed})
    if not same_space(agent.observation_space, env.single_observation_space):
        trained_on = agent.description.get("task")
        raise ValueError(f"the agent was trained on {trained_on}, not on {task.name}: choose that task")
    return Rival(agent.name.upper(), agent, env)
