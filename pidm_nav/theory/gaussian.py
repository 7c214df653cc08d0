"""A linear-Gaussian problem, where every term of the theory has a closed form.

Current states are s ~ N(0, state_std^2), actions a = gain s + N(0, policy_std^2), future states
s' = drift s + control a + N(0, dynamics_std^2). BC regresses a on s, the IDM regresses a on (s, s'), both by
least squares times a factor `shrink` (1: unbiased). `samples` are the numbers of training samples of (BC, IDM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pidm_nav.theory.terms import Floats, GapTerms, Measured, Pair

TEST_SAMPLES = 200


class GaussianPredictor(NamedTuple):
    """An approximate state predictor p_hat(s'|s) = N(slope s, std^2); any std > 0 satisfies Assumption 1."""

    slope: float
    std: float


@dataclass(frozen=True)
class LinearGaussian:
    """Parameters of the problem; control^2 policy_std^2 / dynamics_std^2 is how informative the future is."""

    control: float = 1.0
    dynamics_std: float = 1.0
    policy_std: float = 1.0
    gain: float = 0.7
    drift: float = 0.9
    state_std: float = 1.0

    @property
    def true_predictor(self) -> GaussianPredictor:
        """The true p*(s'|s)."""
        std = float(np.hypot(self.control * self.policy_std, self.dynamics_std))
        return GaussianPredictor(self.drift + self.control * self.gain, std)

    @property
    def idm_coefficients(self) -> Floats:
        """The optimal IDM predictor: E[a|s,s'] = c[0] s + c[1] s'."""
        future = self.control * self.policy_std**2 / self.true_predictor.std**2
        return np.array([self.gain - future * self.true_predictor.slope, future])

    @property
    def idm_var(self) -> float:
        """Var(a|s,s'), which is the same everywhere."""
        return float((self.policy_std * self.dynamics_std / self.true_predictor.std) ** 2)

    @property
    def optimal_gap(self) -> float:
        """Theorem 1: Delta = Var_p*(f*_xi(s, s') | s) = (c[1] std(s'|s))^2."""
        return float((self.idm_coefficients[1] * self.true_predictor.std) ** 2)

    @property
    def cross_entropy_gap(self) -> float:
        """Appendix B: the mutual information I(a; s' | s) in nats."""
        return float(np.log(self.policy_std**2 / self.idm_var) / 2)

    def fisher(self) -> Pair:
        """Return the information about mu of pi_mu(a|s) = N(mu s, policy_std^2), and about xi of the IDM's class.

        That is pi_xi(a|s,s') = N(xi s + c[1] (s' - E*[s'|s]), Var(a|s,s')). Its marginal under the true p* is
        N(xi s, policy_std^2), so Assumption 4 holds with Psi(xi) = xi. That p* is known and does not move with
        xi is the whole gain: see information_split.
        """
        return self.state_std**2 / self.policy_std**2, self.state_std**2 / self.idm_var

    @property
    def information_split(self) -> Pair:
        """Information about the gain in (IDM, state predictor) when both move with it, against Assumption 4.

        The sum is BC's information: p(s'|s; gain) pi(a|s,s'; gain) = pi(a|s; gain) p(s'|s,a), and the dynamics
        know nothing of the gain.
        """
        kept = 1 - self.idm_coefficients[1] * self.control
        idm = kept**2 * self.state_std**2 / self.idm_var
        return float(idm), float((self.control * self.state_std / self.true_predictor.std) ** 2)

    def sample(self, rng: Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
        """Draw i.i.d. states, actions and future states, each of the given shape (Assumption 2)."""
        states = rng.normal(0, self.state_std, shape)
        actions = self.gain * states + rng.normal(0, self.policy_std, shape)
        futures = self.drift * states + self.control * actions + rng.normal(0, self.dynamics_std, shape)
        return states, actions, futures

    def learned_predictor(self, samples: int, rng: Generator) -> GaussianPredictor:
        """Learn p_hat by least squares on separate samples."""
        states, _, futures = self.sample(rng, (samples,))
        slope = states @ futures / (states @ states)
        return GaussianPredictor(float(slope), float((futures - slope * states).std()))

    def measured_optimal_gap(self, samples: int, rng: Generator) -> tuple[Measured, Measured]:
        """Measure the gaps of the optimal predictors on samples: (squared error, cross entropy)."""
        states, actions, futures = self.sample(rng, (samples,))
        c = self.idm_coefficients
        bc = (actions - self.gain * states) ** 2
        idm = (actions - c[0] * states - c[1] * futures) ** 2
        cross_entropy = bc / (2 * self.policy_std**2) - idm / (2 * self.idm_var) + self.cross_entropy_gap
        return Measured.mean_of(bc - idm), Measured.mean_of(cross_entropy)

    def gap_terms(self, predictor: GaussianPredictor, samples: tuple[int, int], shrink: float = 1.0) -> GapTerms:
        """Compute Corollary 1's terms for a fixed predictor; it needs Assumptions 1 and 2."""
        if samples[0] < 3 or samples[1] < 4 or predictor.std <= 0:
            given = f"{samples[0]} BC and {samples[1]} IDM samples with a predictor of std {predictor.std}"
            raise ValueError(f"{given} have no finite variance; give at least 3, 4 and a positive std")
        second = self.state_std**2
        train, test = (  # E[x x'] of x = (s, s') under p* and p_hat: E_p*[w f] = E_p_hat[f]
            second * np.array([[1, slope], [slope, slope**2]]) + np.diag([0, std**2])
            for slope, std in (self.true_predictor, predictor)
        )
        # Gaussian designs: E[(X'X)^-1] is that of an inverse Wishart distribution.
        bc_var = shrink**2 * self.policy_std**2 / (samples[0] - 2)
        idm_var = shrink**2 * self.idm_var * np.trace(np.linalg.solve(train, test)) / (samples[1] - 3)
        c = self.idm_coefficients
        return GapTerms(
            optimal=self.optimal_gap,
            variance=float(bc_var - idm_var),
            bias=float((1 - shrink) ** 2 * (self.gain**2 * second - c @ test @ c)),
            shift=0.0,  # Var(a|s,s') does not depend on s', so moving mass between futures changes nothing
        )

    def measured_gap(
        self,
        predictor: GaussianPredictor,
        samples: tuple[int, int],
        rng: Generator,
        shrink: float = 1.0,
        datasets: int = 4000,
    ) -> Measured:
        """Measure EPE(BC) - EPE(IDM; predictor) of estimators learned from fresh datasets, on fresh samples."""
        s, a, _ = self.sample(rng, (datasets, samples[0]))
        bc = shrink * (s * a).sum(1) / (s * s).sum(1)
        s, a, f = self.sample(rng, (datasets, samples[1]))
        x = np.stack([s, f], axis=1)  # (datasets, 2, samples)
        idm = shrink * np.linalg.solve(x @ x.swapaxes(1, 2), x @ a[..., None])[..., 0]
        s, a, _ = self.sample(rng, (datasets, TEST_SAMPLES))
        bc_error = ((a - bc[:, None] * s) ** 2).mean(1)
        # The IDM is tested on futures drawn from p_hat and the actions that the expert's IDM takes given them.
        s = rng.normal(0, self.state_std, (datasets, TEST_SAMPLES))
        f = predictor.slope * s + rng.normal(0, predictor.std, s.shape)
        c = self.idm_coefficients
        a = c[0] * s + c[1] * f + rng.normal(0, np.sqrt(self.idm_var), s.shape)
        idm_error = ((a - idm[:, :1] * s - idm[:, 1:] * f) ** 2).mean(1)
        return Measured.mean_of(bc_error - idm_error)

    def squared_errors(
        self, sizes: NDArray[np.int64], datasets: int, rng: Generator, shrink: Pair = (1.0, 1.0)
    ) -> tuple[Floats, Floats]:
        """Measure squared errors (datasets, sizes) of the shrunken mu of BC and xi of the IDM as datasets grow."""
        parts = []
        for part in np.array_split(np.arange(datasets), max(1, datasets // 200)):  # keeps memory small
            s, a, f = self.sample(rng, (len(part), int(sizes[-1])))
            surprise = f - self.true_predictor.slope * s  # s' - E*[s'|s]: p* is known to the IDM's policy class
            known = a - self.idm_coefficients[1] * surprise
            squares, bc, idm = (np.cumsum(s * each, axis=1)[:, sizes - 1] for each in (s, a, known))
            mu, xi = shrink[0] * bc / squares, shrink[1] * idm / squares
            parts.append(((mu - self.gain) ** 2, (xi - self.gain) ** 2))
        bc_parts, idm_parts = zip(*parts, strict=True)
        return np.concatenate(bc_parts), np.concatenate(idm_parts)
