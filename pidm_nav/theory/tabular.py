"""A problem with finitely many states, future states and actions, where every term of the theory is a sum.

Axes everywhere: (S, F, A) = (current state, future state, action). `predictor` is a conditional distribution
(S, F) of future states. The world is d(s) p*(s'|s) pi*(a|s,s'), so the BC expert is its marginal, as the
paper's decomposition requires. Learned predictors are cell means shrunk to zero: sum of actions / (count +
ridge), and zero in a cell without samples. Their mean and variance over datasets have closed forms, so the
terms of Corollary 1 are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pidm_nav.theory.terms import Floats, GapTerms, Measured


@dataclass(frozen=True, eq=False)
class TabularProblem:
    """Known distributions: states (S,), futures (S, F), actions (S, F, A), and the actions' values (A,)."""

    states: Floats
    futures: Floats
    actions: Floats
    values: Floats

    def __post_init__(self) -> None:
        shape = (len(self.states), *self.futures.shape[1:], len(self.values))
        if self.actions.shape != shape:
            raise ValueError(f"the action probabilities are {self.actions.shape}; the other arrays need {shape}")
        for name, p in (("states", self.states), ("futures", self.futures), ("actions", self.actions)):
            if (p < 0).any() or not np.allclose(p.sum(axis=-1), 1):
                raise ValueError(
                    f"the probabilities of {name} are negative or do not sum to 1; normalise the last axis"
                )

    @classmethod
    def random(cls, rng: np.random.Generator, states: int = 4, futures: int = 4, actions: int = 3) -> TabularProblem:
        """A problem drawn from Dirichlet distributions, uneven enough to make every term count."""
        return cls(
            rng.dirichlet(np.full(states, 5.0)),
            rng.dirichlet(np.full(futures, 1.0), size=states),
            rng.dirichlet(np.full(actions, 0.5), size=(states, futures)),
            np.linspace(-1, 1, actions),
        )

    @classmethod
    def telling(cls, strength: float, futures: int = 7, actions: int = 13) -> TabularProblem:
        """A problem whose future shifts the mean action by up to +-strength: 0 tells nothing, 1.5 much."""
        values = np.linspace(-3, 3, actions)
        shift = strength * np.linspace(-1, 1, futures)
        logits = (
            -((values[None, None, :] - shift[None, :, None]) ** 2) / 2
            + np.array([-0.3, 0, 0.3])[:, None, None] * values
        )
        weights = np.exp(logits)
        states = np.full(3, 1 / 3)
        return cls(states, np.full((3, futures), 1 / futures), weights / weights.sum(-1, keepdims=True), values)

    @property
    def joint(self) -> Floats:
        """Probability (S, F, A) of state, future state and action."""
        return self.joint_under(self.futures)

    def joint_under(self, predictor: Floats) -> Floats:
        """The same with future states drawn from a predictor (S, F)."""
        return self.states[:, None, None] * predictor[:, :, None] * self.actions

    @property
    def marginal(self) -> Floats:
        """The BC expert pi*(a|s) (S, A): the IDM expert averaged over p*."""
        result: Floats = np.einsum("sf,sfa->sa", self.futures, self.actions)
        return result

    @property
    def bc_mean(self) -> Floats:
        """The optimal BC predictor (S,)."""
        return self.marginal @ self.values

    @property
    def idm_mean(self) -> Floats:
        """The optimal IDM predictor (S, F)."""
        return self.actions @ self.values

    @property
    def bc_var(self) -> Floats:
        """Var(a|s) (S,)."""
        return self.marginal @ self.values**2 - self.bc_mean**2

    @property
    def idm_var(self) -> Floats:
        """Var(a|s,s') (S, F)."""
        return self.actions @ self.values**2 - self.idm_mean**2

    def tilted(self, xi: float, direction: Floats | None = None) -> TabularProblem:
        """The policy class of Theorem 2: pi_xi(a|s,s') ~ pi*(a|s,s') exp(xi h), h (S, F, A) or the action."""
        weights = self.actions * np.exp(xi * (self.values if direction is None else direction))
        return TabularProblem(self.states, self.futures, weights / weights.sum(-1, keepdims=True), self.values)

    def mean_over_samples(self, quantity: Floats, samples: int, rng: np.random.Generator) -> Measured:
        """Mean of a quantity (S, F, A) over i.i.d. samples of the problem."""
        counts = rng.multinomial(samples, self.joint.ravel())
        mean = counts @ quantity.ravel() / samples
        return Measured(float(mean), float(np.sqrt(counts @ (quantity.ravel() - mean) ** 2) / samples))


def optimal_gap(problem: TabularProblem) -> float:
    """Theorem 1: Delta = E_d[Var_p*(f*_xi(s, s'))]. No assumption beyond the decomposition of the expert."""
    mean = (problem.futures * problem.idm_mean).sum(1)
    return float(problem.states @ (problem.futures * (problem.idm_mean - mean[:, None]) ** 2).sum(1))


def error_difference(problem: TabularProblem) -> Floats:
    """Squared error of the optimal BC less that of the optimal IDM predictor (S, F, A): its mean is Delta."""
    bc = (problem.values - problem.bc_mean[:, None, None]) ** 2
    difference: Floats = bc - (problem.values - problem.idm_mean[:, :, None]) ** 2
    return difference


def cross_entropy_gap(problem: TabularProblem) -> float:
    """Appendix B: Delta_CE = I(a; s' | s), here as H(a|s) - H(a|s,s')."""
    bc = -(problem.states[:, None] * _x_log_x(problem.marginal)).sum()
    idm = -((problem.states[:, None] * problem.futures)[:, :, None] * _x_log_x(problem.actions)).sum()
    return float(bc - idm)


def log_ratio(problem: TabularProblem) -> Floats:
    """Log of pi(a|s,s') / pi(a|s) (S, F, A): its mean is E[KL(IDM expert || BC expert)] = Delta_CE."""
    ratio = np.divide(
        problem.actions,
        problem.marginal[:, None],
        out=np.ones_like(problem.actions),
        where=problem.actions > 0,
    )
    result: Floats = np.log(ratio)
    return result


def _x_log_x(p: Floats) -> Floats:
    result: Floats = p * np.log(np.where(p > 0, p, 1))
    return result


def learned_predictor(problem: TabularProblem, samples_per_state: int, rng: np.random.Generator) -> Floats:
    """p_hat (S, F): frequencies of futures sampled from p*, hence inside its support (Assumption 1)."""
    return rng.multinomial(samples_per_state, problem.futures) / samples_per_state


def density_ratio(problem: TabularProblem, predictor: Floats, check_support: bool = True) -> Floats:
    """w(s, s') = p_hat / p* (S, F); Assumption 1 is that p_hat puts no mass where p* has none."""
    outside = (predictor > 0) & (problem.futures == 0)
    if check_support and outside.any():
        state, future = np.argwhere(outside)[0]
        raise ValueError(
            f"the predictor gives future {future} of state {state} mass {predictor[state, future]:.2g}, "
            "the truth 0, which breaks Assumption 1; keep it inside the support"
        )
    return np.divide(predictor, problem.futures, out=np.zeros_like(predictor), where=problem.futures > 0)


def _cell_moments(cell: Floats, mean: Floats, var: Floats, samples: int, ridge: float) -> tuple[Floats, Floats]:
    """Exact mean and variance over datasets of a shrunken cell mean, for cells of probability `cell`."""
    from scipy.stats import binom

    count = np.arange(samples + 1)
    pmf = binom.pmf(count, samples, cell[..., None])  # Assumption 2 (i.i.d.): the count in a cell is binomial
    share = np.divide(count, count + ridge, out=np.zeros(samples + 1), where=count > 0)
    spread = np.divide(count, (count + ridge) ** 2, out=np.zeros(samples + 1), where=count > 0)
    first = pmf @ share
    return mean * first, var * (pmf @ spread) + mean**2 * (pmf @ share**2 - first**2)


def gap_terms(
    problem: TabularProblem,
    predictor: Floats,
    samples_bc: int,
    samples_idm: int,
    ridge: float = 1.0,
    check_support: bool = True,
) -> GapTerms:
    """Corollary 1's terms for shrunken cell means and a fixed predictor; needs Assumptions 1 and 2."""
    w = density_ratio(problem, predictor, check_support)
    pairs = problem.states[:, None] * problem.futures  # d(s) p*(s'|s)
    bc_mean, bc_var = _cell_moments(problem.states, problem.bc_mean, problem.bc_var, samples_bc, ridge)
    idm_mean, idm_var = _cell_moments(pairs, problem.idm_mean, problem.idm_var, samples_idm, ridge)
    return GapTerms(
        optimal=optimal_gap(problem),
        variance=float(problem.states @ bc_var - (pairs * w * idm_var).sum()),
        bias=float(
            problem.states @ (bc_mean - problem.bc_mean) ** 2 - (pairs * w * (idm_mean - problem.idm_mean) ** 2).sum()
        ),
        shift=float((pairs * (1 - w) * problem.idm_var).sum()),
    )


def outside_error(problem: TabularProblem, predictor: Floats) -> float:
    """What Corollary 1 misses without Assumption 1: E[a^2] where p* is 0, as the learned IDM says 0 there."""
    mass = problem.states[:, None] * np.where(problem.futures > 0, 0, predictor)
    return float((mass * (problem.actions @ problem.values**2)).sum())


def measured_gap(
    problem: TabularProblem,
    predictor: Floats,
    samples_bc: int,
    samples_idm: int,
    rng: np.random.Generator,
    ridge: float = 1.0,
    datasets: int = 4000,
    test_samples: int = 1000,
) -> Measured:
    """EPE(BC) - EPE(IDM; predictor) of estimators learned from fresh datasets, on fresh test samples."""
    shape = problem.actions.shape

    def draw(samples: int, joint: Floats) -> NDArray[np.int64]:
        return rng.multinomial(samples, joint.ravel(), size=datasets).reshape(datasets, *shape)

    def shrunken_mean(counts: NDArray[np.int64]) -> Floats:
        total = counts.sum(axis=-1)
        mean: Floats = np.zeros(total.shape)
        np.divide(counts @ problem.values, total + ridge, out=mean, where=total > 0)
        return mean

    bc = shrunken_mean(draw(samples_bc, problem.joint).sum(axis=2))  # (datasets, S)
    idm = shrunken_mean(draw(samples_idm, problem.joint))  # (datasets, S, F)
    bc_test = draw(test_samples, problem.joint).sum(axis=2)
    idm_test = draw(test_samples, problem.joint_under(predictor))
    bc_error = (bc_test * (problem.values - bc[..., None]) ** 2).sum(axis=(1, 2)) / test_samples
    idm_error = (idm_test * (problem.values - idm[..., None]) ** 2).sum(axis=(1, 2, 3)) / test_samples
    return Measured.mean_of(bc_error - idm_error)
