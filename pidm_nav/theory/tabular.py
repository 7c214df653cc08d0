"""A problem with finitely many states, future states and actions, where every term of the theory is a sum.

Array axes are always (S, F, A) = (current state, future state, action). A predictor is a conditional distribution
(S, F) of future states. The world is d(s) p*(s'|s) pi*(a|s,s'), so the BC expert is its marginal, as the
paper's decomposition requires. Learned estimators are cell means shrunk to zero: sum of actions / (count +
ridge), and zero in a cell without samples. Their mean and variance over datasets have closed forms, so the
terms of Corollary 1 are exact. `samples` are the numbers of training samples of (BC, IDM).

Theorem 2's policy class is the tilted family pi_xi(a|s,s') ~ pi*(a|s,s') exp(xi h(s,s',a)), which holds the expert
at xi = 0 (Assumption 3) and is smooth (Assumption 5). BC's class is its marginal under the true p*, so
Psi(xi) = xi (Assumption 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import entr
from scipy.stats import binom

from pidm_nav.theory.terms import Floats, GapTerms, Measured, Pair

TEST_SAMPLES = 1000
GRID = np.linspace(-1.5, 1.5, 401)  # of xi, on which likelihoods are compared


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
        for name in ("states", "futures", "actions"):
            p = getattr(self, name)
            if (p < 0).any() or not np.allclose(p.sum(axis=-1), 1):
                raise ValueError(f"the probabilities of {name} are negative or do not sum to 1; normalize them")

    @classmethod
    def random(cls, rng: Generator, states: int = 4, futures: int = 4, actions: int = 3) -> TabularProblem:
        """Draw a problem from Dirichlet distributions that are uneven enough to make every term count."""
        return cls(
            rng.dirichlet(np.full(states, 5.0)),
            rng.dirichlet(np.full(futures, 1.0), size=states),
            rng.dirichlet(np.full(actions, 0.5), size=(states, futures)),
            np.linspace(-1, 1, actions),
        )

    @classmethod
    def telling(cls, strength: float) -> TabularProblem:
        """Make a problem whose future shifts the mean action by up to +-strength (0 is uninformative)."""
        values, shift = np.linspace(-3, 3, 13), strength * np.linspace(-1, 1, 7)
        own = np.array([-0.3, 0, 0.3])[:, None, None] * values  # effect of the state on the action
        weights = np.exp(-((values - shift[:, None]) ** 2) / 2 + own)
        return cls(np.full(3, 1 / 3), np.full((3, 7), 1 / 7), weights / weights.sum(-1, keepdims=True), values)

    def tilted(self, xi: float, direction: Floats | None = None) -> TabularProblem:
        """Return the member xi of Theorem 2's policy class, whose direction h is (S, F, A) or the action itself."""
        weights = self.actions * np.exp(xi * (self.values if direction is None else direction))
        return replace(self, actions=weights / weights.sum(-1, keepdims=True))

    @property
    def pairs(self) -> Floats:
        """Probability (S, F) of state and future state, d(s) p*(s'|s)."""
        return self.states[:, None] * self.futures

    @property
    def joint(self) -> Floats:
        """Probability (S, F, A) of state, future state and action."""
        return self.pairs[:, :, None] * self.actions

    @property
    def marginal(self) -> Floats:
        """The BC expert pi*(a|s) (S, A): the IDM expert averaged over p*."""
        return np.asarray(np.einsum("sf,sfa->sa", self.futures, self.actions))

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

    @property
    def optimal_gap(self) -> float:
        """Theorem 1: Delta = E_d[Var_p*(f*_xi(s, s'))]; it needs only the decomposition of the expert."""
        mean = (self.futures * self.idm_mean).sum(1)
        return float(self.states @ (self.futures * (self.idm_mean - mean[:, None]) ** 2).sum(1))

    @property
    def error_difference(self) -> Floats:
        """Squared error (S, F, A) of the optimal BC minus that of the optimal IDM predictor; its mean is Delta."""
        bc = (self.values - self.bc_mean[:, None, None]) ** 2
        return np.asarray(bc - (self.values - self.idm_mean[:, :, None]) ** 2)

    @property
    def cross_entropy_gap(self) -> float:
        """Appendix B: Delta_CE = I(a; s' | s), here as H(a|s) - H(a|s,s')."""
        bc = (self.states[:, None] * entr(self.marginal)).sum()
        return float(bc - (self.pairs[:, :, None] * entr(self.actions)).sum())

    @property
    def log_ratio(self) -> Floats:
        """Log of pi(a|s,s') / pi(a|s) (S, F, A): its mean is E[KL(IDM expert || BC expert)] = Delta_CE."""
        one = np.ones_like(self.actions)
        return np.asarray(np.log(np.divide(self.actions, self.marginal[:, None], out=one, where=self.actions > 0)))

    def measured_optimal_gap(self, samples: int, rng: Generator) -> tuple[Measured, Measured]:
        """Measure the gaps of the optimal predictors on i.i.d. samples: (squared error, cross entropy)."""

        def mean(quantity: Floats) -> Measured:
            counts = rng.multinomial(samples, self.joint.ravel())
            mean = counts @ quantity / samples
            return Measured(float(mean), float(np.sqrt(counts @ (quantity - mean) ** 2) / samples))

        return mean(self.error_difference.ravel()), mean(self.log_ratio.ravel())

    def learned_predictor(self, samples: int, rng: Generator) -> Floats:
        """Learn p_hat (S, F) from samples per state of p*: it lies inside the support of p* (Assumption 1)."""
        return rng.multinomial(samples, self.futures) / samples

    def gap_terms(
        self, predictor: Floats, samples: tuple[int, int], ridge: float = 1.0, check_support: bool = True
    ) -> GapTerms:
        """Compute Corollary 1's terms; unless unchecked, a predictor that breaks Assumption 1 raises ValueError."""
        outside = (predictor > 0) & (self.futures == 0)
        if check_support and outside.any():
            state, future = np.argwhere(outside)[0]
            raise ValueError(
                f"the predictor gives future {future} of state {state} mass {predictor[state, future]:.2g}, "
                "the truth 0, which breaks Assumption 1; keep it inside the support"
            )
        ratio = np.divide(predictor, self.futures, out=np.zeros_like(predictor), where=self.futures > 0)  # w(s, s')
        weights = self.pairs * ratio
        bc_mean, bc_var = _cell_moments(self.states, self.bc_mean, self.bc_var, samples[0], ridge)
        idm_mean, idm_var = _cell_moments(self.pairs, self.idm_mean, self.idm_var, samples[1], ridge)
        bc_bias, idm_bias = (bc_mean - self.bc_mean) ** 2, (idm_mean - self.idm_mean) ** 2
        return GapTerms(
            optimal=self.optimal_gap,
            variance=float(self.states @ bc_var - (weights * idm_var).sum()),
            bias=float(self.states @ bc_bias - (weights * idm_bias).sum()),
            shift=float((self.pairs * (1 - ratio) * self.idm_var).sum()),
        )

    def outside_error(self, predictor: Floats) -> float:
        """Return the term missing from Corollary 1 without Assumption 1: E[a^2] where p* and the learned IDM are 0."""
        mass = self.states[:, None] * np.where(self.futures > 0, 0, predictor)
        return float((mass * (self.actions @ self.values**2)).sum())

    def measured_gap(
        self, predictor: Floats, samples: tuple[int, int], rng: Generator, ridge: float = 1.0, datasets: int = 4000
    ) -> Measured:
        """Measure EPE(BC) - EPE(IDM; predictor) of estimators learned from fresh datasets, on fresh samples."""

        def draw(samples: int, problem: TabularProblem) -> NDArray[np.int64]:
            return rng.multinomial(samples, problem.joint.ravel(), datasets).reshape(datasets, *self.actions.shape)

        def shrunken_mean(counts: NDArray[np.int64]) -> Floats:
            return np.asarray(counts @ self.values / np.maximum(counts.sum(axis=-1) + ridge, 1))

        bc = shrunken_mean(draw(samples[0], self).sum(axis=2))  # (datasets, S)
        idm = shrunken_mean(draw(samples[1], self))  # (datasets, S, F)
        bc_test = draw(TEST_SAMPLES, self).sum(axis=2)
        idm_test = draw(TEST_SAMPLES, replace(self, futures=predictor))
        bc_error = (bc_test * (self.values - bc[..., None]) ** 2).sum(axis=(1, 2)) / TEST_SAMPLES
        idm_error = (idm_test * (self.values - idm[..., None]) ** 2).sum(axis=(1, 2, 3)) / TEST_SAMPLES
        return Measured.mean_of(bc_error - idm_error)

    def fisher(self, direction: Floats | None = None) -> Pair:
        """Return (F_mu, F_xi) of the tilted family at xi = 0, for BC's marginal and for the IDM."""
        h = np.broadcast_to(self.values if direction is None else direction, self.actions.shape)
        score = h - (self.actions * h).sum(axis=-1, keepdims=True)  # of the IDM
        joint, pair = self.joint, self.joint.sum(axis=1)
        # Lemma 1's proof: the score of the marginal is the IDM's score averaged over p(s' | s, a).
        bc_score = np.divide((joint * score).sum(1), pair, out=np.zeros_like(pair), where=pair > 0)
        return float((pair * bc_score**2).sum()), float((joint * score**2).sum())

    def squared_errors(self, sizes: NDArray[np.int64], datasets: int, rng: Generator) -> tuple[Floats, Floats]:
        """Measure squared errors (datasets, sizes) of the most likely xi (truth 0) of BC and IDM as datasets grow."""
        tilts = [self.tilted(xi) for xi in GRID]
        log_bc = np.log(np.stack([tilt.marginal.ravel() for tilt in tilts], axis=1))  # (S A, grid)
        log_idm = np.log(np.stack([tilt.actions.ravel() for tilt in tilts], axis=1))  # (S F A, grid)
        counts = np.zeros((datasets, self.actions.size), dtype=np.int64)
        bc, idm = [], []
        for more in np.diff(sizes, prepend=0):
            counts += rng.multinomial(int(more), self.joint.ravel(), size=datasets)
            bc_counts = counts.reshape(datasets, *self.actions.shape).sum(axis=2).reshape(datasets, -1)
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


def _cell_moments(cell: Floats, mean: Floats, var: Floats, samples: int, ridge: float) -> tuple[Floats, Floats]:
    """Return the exact mean and variance over datasets of a shrunken cell mean, for cells of probability `cell`."""
    count = np.arange(samples + 1)
    pmf = binom.pmf(count, samples, cell[..., None])  # Assumption 2 (i.i.d.): the count in a cell is binomial
    size = np.maximum(count + ridge, 1)  # without samples, the mean is 0 / 1
    weight, weight_variance = count / size, count / size**2
    first = pmf @ weight
    return mean * first, var * (pmf @ weight_variance) + mean**2 * (pmf @ weight**2 - first**2)
