"""Theorem 2 and Lemma 1 on a tabular problem: Fisher informations, and maximum likelihood as datasets grow.

The policy class is the tilted family pi_xi(a|s,s') ~ pi*(a|s,s') exp(xi h(s,s',a)), which holds the expert at
xi = 0 (Assumption 3) and is smooth (Assumption 5). BC's class is its marginal under the true p*, so
Psi(xi) = xi (Assumption 4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pidm_nav.theory.tabular import TabularProblem
from pidm_nav.theory.terms import Floats


def fisher_informations(problem: TabularProblem, direction: Floats | None = None) -> tuple[float, float]:
    """(F_mu, F_xi) of the tilted family at xi = 0; BC is its marginal, so Psi(xi) = xi (Assumption 4)."""
    h = np.broadcast_to(problem.values if direction is None else direction, problem.actions.shape)
    score = h - (problem.actions * h).sum(axis=-1, keepdims=True)  # of the IDM
    joint = problem.joint
    state_action = joint.sum(axis=1)
    # Lemma 1's proof: the score of the marginal is the IDM's score averaged over p(s' | s, a).
    bc_score = np.divide((joint * score).sum(1), state_action, out=np.zeros_like(state_action), where=state_action > 0)
    return float((state_action * bc_score**2).sum()), float((joint * score**2).sum())


def squared_errors(
    problem: TabularProblem,
    sizes: NDArray[np.int64],
    datasets: int,
    rng: np.random.Generator,
    width: float = 1.5,
) -> tuple[Floats, Floats]:
    """Squared errors (datasets, sizes) of maximum likelihood xi (truth 0), BC and IDM, growing datasets."""
    grid = np.linspace(-width, width, 401)
    tilts = [problem.tilted(xi) for xi in grid]
    log_bc = np.log(np.stack([tilt.marginal.ravel() for tilt in tilts], axis=1))  # (S A, grid)
    log_idm = np.log(np.stack([tilt.actions.ravel() for tilt in tilts], axis=1))  # (S F A, grid)
    counts = np.zeros((datasets, problem.actions.size), dtype=np.int64)
    errors: tuple[list[Floats], list[Floats]] = ([], [])
    for more in np.diff(sizes, prepend=0):
        counts += rng.multinomial(int(more), problem.joint.ravel(), size=datasets)
        bc_counts = counts.reshape(datasets, *problem.actions.shape).sum(axis=2).reshape(datasets, -1)
        errors[0].append(_peak(grid, bc_counts.astype(np.float64) @ log_bc) ** 2)
        errors[1].append(_peak(grid, counts.astype(np.float64) @ log_idm) ** 2)
    return np.stack(errors[0], axis=1), np.stack(errors[1], axis=1)


def _peak(grid: Floats, likelihood: Floats) -> Floats:
    """Where each row of (datasets, grid) is highest, by a parabola through the highest point."""
    top = np.clip(likelihood.argmax(axis=1), 1, len(grid) - 2)
    rows = np.arange(len(top))
    left, middle, right = (likelihood[rows, top + step] for step in (-1, 0, 1))
    offset = (left - right) / (2 * (left - 2 * middle + right))
    peak: Floats = grid[top] + np.clip(offset, -1, 1) * (grid[1] - grid[0])
    return peak
