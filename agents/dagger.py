"""DAgger: an expert labels the states that the agent visits, and the agent is retrained, in rounds."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.checkpoint import DESCRIPTION
from pidm_nav.agents.registry import find_part
from pidm_nav.agents.train import train
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.failed import without_failed
from pidm_nav.demos.formats import load_demos
from pidm_nav.limits import check_number
from pidm_nav.rollouts.episode import Episode
from pidm_nav.rollouts.rollout import Policy, Rollout, Rows, act, check_policy
from pidm_nav.seeds import DAGGER
from pidm_nav.tasks import find_task

# other agents learn from the states after an action, which here follow the agent's actions, not the labels
STUDENTS = ("bc", "retrieval-bc")


def dagger(
    agent: str,
    dataset: DemoDataset | str | Path,
    rounds: int = 5,
    expert: str | Policy | None = None,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    **training: Any,
) -> Agent:
    """Train an agent with DAgger and return it.

    In each round the agent plays as many episodes as there are demonstrations. They are added to the data with the
    expert's actions, and the agent is retrained from new weights. Only the last training run writes to `out`. After a
    kill, the same call repeats the earlier rounds with the same result and resumes the last training run.

    Args:
        agent: bc or retrieval-bc.
        dataset: first demonstrations, or an argument of `load_demos`, preferably by the same expert: others may
            contradict the expert's actions.
        rounds: number of rounds; the agent is trained rounds + 1 times.
        expert: a policy, or the name of an expert. Default: the task's first, astar in 2D.
        out: folder for the agent.
        overwrite: replace an agent in `out`.
        training: further arguments of `train`.
    """
    if agent not in STUDENTS:
        raise ValueError(f"DAgger cannot train {agent}: choose {' or '.join(STUDENTS)}")
    check_number("the number of rounds", rounds, 1, 1000)
    if out is not None and not overwrite and (Path(out) / DESCRIPTION).exists():
        raise ValueError(f"{out} already holds a trained agent: choose another folder, or overwrite=True")
    dataset = load_demos(dataset)
    task, arguments = find_task(dataset.task), dataset.env_kwargs
    if expert is None or isinstance(expert, str):
        expert = make_expert(expert, task.layout(arguments) or task if "layout" in arguments else task)
    check_policy(expert)
    how = training.get("failed") or find_part("agent", agent).failed
    dataset = without_failed(dataset, how, quiet=not training.get("progress", True))
    training["failed"] = "keep"  # the agent learns from its failures
    settings = dict(getattr(expert, "settings", {}))
    name = settings.get("expert", type(expert).__name__)
    source = {"made_by": f"{name}, labeling {agent}", "settings": settings, "env_kwargs": arguments}
    count, before_last = len(dataset), {**training, "on_checkpoint": None, "on_log": None, "eval_episodes": 0}
    with closing(task.make_vec(task.rows_for(count), **arguments)) as env:
        for number in range(rounds):
            student = train(agent, dataset, **before_last)
            first = DAGGER.start + number * count
            episodes = labeled_episodes(student, expert, env, range(first, first + count))
            dataset = DemoDataset.concatenate([dataset, DemoDataset(task.name, tuple(episodes), source)])
    return train(agent, dataset, out=out, overwrite=overwrite, **training)


def labeled_episodes(policy: Policy, expert: Policy, env: Rows, seeds: range) -> list[Episode]:
    """Return episodes of a policy, with the expert's actions instead of the policy's."""
    made: list[Episode] = []
    memories: tuple[Any, Any] = None, None  # of policy and expert
    for first in range(0, len(seeds), env.num_envs):
        running = Rollout(policy, env, seeds[first : first + env.num_envs], memory=memories[0])
        labels: list[NDArray[Any]] = []
        memory = memories[1]
        while not running.done:
            observed = running.states if getattr(expert, "sees_state", False) else running.observation
            begins = np.full(env.num_envs, not labels)
            actions, memory = act(expert, observed, memory, begins, env.single_action_space)
            labels.append(actions.reshape(len(actions), -1))
            running.step()
        memories, taught = (running.memory, memory), np.stack(labels, axis=1)  # (N, T, A)
        made += [replace(each, actions=taught[row, : len(each)]) for row, each in enumerate(running.episodes())]
    return made
