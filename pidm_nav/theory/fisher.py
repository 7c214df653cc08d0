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

GRID = np.linspace(-1.5, 1.5, 401)  # of xi, on which likelihoods are compared


def fisher_informations(problem: TabularProblem, direction: Floats | None = None) -> tuple[float, float]:
    """Return (F_mu, F_xi) of the tilted family at xi = 0, for BC's marginal and for the IDM."""
    h = np.broadcast_to(problem.values if direction is None else direction, problem.actions.shape)
    score = h - (problem.actions * h).sum(axis=-1, keepdims=True)  # of the IDM
    joint = problem.joint
    state_action = joint.sum(axis=1)
    # Lemma 1's proof: the score of the marginal is the IDM's score averaged over p(s' | s, a).
    bc_score = np.divide((joint * score).sum(1), state_action, out=np.zeros_like(state_action), where=state_action > 0)
    return float((state_action * bc_score**2).sum()), float((joint * score**2).sum())


def squared_errors(
    problem: TabularProblem, sizes: NDArray[np.int64], datasets: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Measure squared errors (datasets, sizes) of the maximum-likelihood xi (truth 0) of BC and IDM as data grow."""
    tilts = [problem.tilted(xi) for xi in GRID]
    log_bc = np.log(np.stack([tilt.marginal.ravel() for tilt in tilts], axis=1))  # (S A, grid)
    log_idm = np.log(np.stack([tilt.actions.ravel() for tilt in tilts], axis=1))  # (S F A, grid)
    counts = np.zeros((datasets, problem.actions.size), dtype=np.int64)
    bc, idm = [], []
    for more in np.diff(sizes, prepend=0):
        counts += rng.multinomial(int(more), problem.joint.ravel(), size=datasets)
        bc_counts = counts.reshape(datasets, *problem.actions.shape).sum(axis=2).reshape(datasets, -1)
        bc.append(_peak(bc_counts.astype(np.float64) @ log_bc) ** 2)
        idm.append(_peak(counts.astype(np.float64) @ log_idm) ** 2)
    return np.stack(bc, axis=1), np.stack(idm, axis=1)


def _peak(likelihood: Floats) -> Floats:
    """Return where each row of (datasets, grid) is highest, by a parabola through the highest point."""
    top = np.clip(likelihood.argmax(axis=1), 1, len(GRID) - 2)
    rows = np.arange(len(top))
    left, middle, right = (likelihood[rows, top + step] for step in (-1, 0, 1))
    offset = (left - right) / (2 * (left - 2 * middle + right))
    return np.asarray(GRID[top] + np.clip(offset, -1, 1) * (GRID[1] - GRID[0]))
