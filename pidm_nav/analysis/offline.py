"""Tests of a policy without an environment: its action error, and whether it steers back to demonstrations.

Both query the policy in each state of demonstrated episodes, with the policy's memory of the episode so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import MIN_CHANGE_RATE, DemoDataset
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import POSITION

Array = NDArray[Any]
PUSH = 1.5  # length of a push, in RMS steps of the demonstrations


class Effect(NamedTuple):
    """Linear effect of actions on the F features of the state that change often, in RMS changes."""

    features: NDArray[np.intp]  # (F,) columns of the state
    rms: Array  # (F,) RMS change
    matrix: Array  # (A, F) change per unit of action
    step: float  # RMS length of a step


class Moment(NamedTuple):
    """One step of the E episodes that have not ended."""

    rows: NDArray[np.intp]  # (E,) indices of the episodes
    states: Array  # (E, D)
    taken: Array  # (E, A) demonstrated actions
    changes: Array  # (E, D) to the next state
    actions: Array  # (E, A) the policy's actions
    ask: Callable[[Array], Array]  # other states (E, D) -> the policy's actions in them instead


def action_error(policy: Policy, demos: DemoDataset) -> float:
    """Return the mean squared difference between the policy's and the demonstrated actions."""
    errors = [np.square(moment.actions - moment.taken) for moment in walk(policy, demos)]
    return float(np.concatenate(errors).mean())


def restoring_coefficient(policy: Policy, demos: DemoDataset, rng: np.random.Generator, push: float = PUSH) -> float:
    """Return the fraction of a sideways push that the policy's next action undoes: 0 ignores it, 1 undoes it at once.

    In every demonstrated state, the policy is also queried in a state that is displaced by `push` RMS steps, across the
    direction of the demonstration, along the change of another step. The difference between the two actions, times the
    effect of an action, is compared with the displacement.
    """
    undone, pushed = pushes(policy, demos, action_effect(demos), rng, push)
    return float(undone.sum() / max(pushed.sum(), 1e-12))


def pushes(
    policy: Policy, demos: DemoDataset, effect: Effect, rng: np.random.Generator, push: float = PUSH
) -> tuple[Array, Array]:
    """Return the undone part (E,) of the pushes in each episode, and the pushes (E,)."""
    states, _, futures, *_ = demos.transitions()
    changes = (futures - states)[:, effect.features] / effect.rms
    undone, pushed = np.zeros((2, len(demos)))
    for moment in walk(policy, demos):
        along = moment.changes[:, effect.features] / effect.rms
        along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
        across = changes[rng.integers(len(changes), size=len(along))]
        across = across - (across * along).sum(axis=1, keepdims=True) * along
        length = np.linalg.norm(across, axis=1, keepdims=True)
        across = np.where(length > 1e-6, across, 0.0) * push * effect.step / np.maximum(length, 1e-6)
        moved = moment.states.copy()
        moved[:, effect.features] += across * effect.rms
        undone[moment.rows] -= ((moment.ask(moved) - moment.actions) @ effect.matrix * across).sum(axis=1)
        pushed[moment.rows] += np.square(across).sum(axis=1)
    return undone, pushed


def action_effect(demos: DemoDataset) -> Effect:
    """Return the effect of actions: exact in 2D, otherwise by regression of changes on actions and states."""
    states, actions, futures, *_ = demos.transitions()
    features = np.flatnonzero((futures != states).mean(axis=0) >= MIN_CHANGE_RATE)
    change = (futures - states)[:, features].astype(np.float64)
    rms = np.sqrt(np.square(change).mean(axis=0))
    task = TASKS.get(demos.task)
    if task is not None and task.has_2d_state and demos.goal_flags:
        matrix = np.zeros((actions.shape[1], states.shape[1]))
        matrix[:, POSITION] = SPEED * np.eye(2)
        matrix = matrix[:, features]
    else:
        inputs = np.column_stack([actions, states, np.ones(len(states))])
        matrix = np.linalg.lstsq(inputs, change, rcond=None)[0][: actions.shape[1]]
    return Effect(features, rms, matrix / rms, float(np.sqrt(np.square(change / rms).sum(axis=1).mean())))


def walk(policy: Policy, demos: DemoDataset) -> Iterator[Moment]:
    """Yield the steps of all episodes in parallel, with the policy's actions."""
    lengths = np.array([len(episode) for episode in demos])
    memory: Any = None
    for step in range(lengths.max()):
        # ended episodes stay at their last state, so that the policy's memory keeps its rows
        states = np.stack([episode.observations[min(step, len(episode))] for episode in demos])
        before = memory
        actions, memory = policy.predict(states, before, np.full(len(demos), step == 0))
        running = np.flatnonzero(step < lengths)
        taken = np.stack([demos[int(row)].actions[step] for row in running])
        changes = np.stack([demos[int(row)].observations[step + 1] for row in running]) - states[running]
        yield Moment(
            running,
            states[running],
            taken,
            changes,
            np.asarray(actions)[running],
            partial(_ask, policy, states, before, running),
        )


def _ask(policy: Policy, states: Array, memory: Any, rows: Array, moved: Array) -> Array:
    """Return the policy's actions in the given rows with other states."""
    states = states.copy()
    states[rows] = moved
    actions: Array = np.asarray(policy.predict(states, memory, np.full(len(states), memory is None))[0])
    return actions[rows]
