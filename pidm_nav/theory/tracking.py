"""A linear tracking problem: agents with equal prediction errors and unequal errors in closed loop.

A demonstrated path advances by u_t, and x_t = (position on the path) + e_t. Demonstrations are recorded with
e ~ N(0, demo_std^2) and actions a = u - gain e + N(0, action_std^2). Acting agents move by
x_{t+1} = x_t + a_t + N(0, noise_std^2), from e_0 = 0. All agents know u_t; they differ in their response to deviations:

    BC          a = u - k e, where k is the least-squares estimate of the demonstrator's gain
    PIDM        a = s' - x (the exact inverse dynamics), where the predictor returns
                s' = pull (path's next position + N(0, target_std^2)) + (1 - pull) (x + u)
    no pull     PIDM with pull 0: the agent's state plus the demonstration's change

So an agent with pull p acts a = u - p e, up to its predictor's noise: the pull is a gain that was not demonstrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, prod, sqrt

import numpy as np
from numpy.random import Generator

from pidm_nav.theory.terms import Floats, Measured


@dataclass(frozen=True)
class Tracking:
    """The problem's parameters, as the module defines them."""

    gain: float = 0.5
    demo_std: float = 1.0
    action_std: float = 1.0
    noise_std: float = 1.0
    target_std: float = 0.0

    @classmethod
    def equal_errors(cls, samples: int) -> Tracking:
        """Return the problem in which BC from `samples` steps, PIDM and PIDM without pull predict equally well.

        The demonstrator's gain is halfway between those of the two PIDMs, and BC's estimate is as far off on average.
        """
        return cls(gain=0.5, demo_std=2 / sqrt(samples - 2))

    def prediction_error(self, pull: float) -> float:
        """Return PIDM's E[(action - demonstrated action)^2] on new demonstrations."""
        deviation = (pull - self.gain) ** 2 * self.demo_std**2
        return self.action_std**2 + deviation + (pull * self.target_std) ** 2

    def bc_prediction_error(self, samples: int) -> float:
        """Return the same of BC, learned from `samples` steps: no other agent gets below its limit action_std^2."""
        return self.action_std**2 * (1 + 1 / (samples - 2))

    def closed_loop_error(self, pull: float, steps: int) -> float:
        """Return E[e_t^2] after `steps` of PIDM, from e_{t+1} = (1 - pull) e_t + pull * target noise + noise."""
        kept, added = (1 - pull) ** 2, self.noise_std**2 + (pull * self.target_std) ** 2
        return added * (steps if kept == 1 else (1 - kept**steps) / (1 - kept))

    def bc_closed_loop_error(self, samples: int, steps: int) -> float:
        """Return E[e_t^2] after `steps` of BC, over datasets of `samples` steps: sums of moments of its gain k.

        With E = k - gain, E[(1 - k)^2j] needs E[E^2i] = (2i - 1)!! (action_std / demo_std)^2i E[chi2^-i], where chi2
        has `samples` degrees of freedom.
        """
        if samples <= 2 * (steps - 1):
            raise ValueError(f"BC from {samples} steps has no finite error after {steps}: give over {2 * (steps - 1)}")

        def moment(i: int) -> float:
            ratio = (self.action_std / self.demo_std) ** (2 * i)
            return ratio * prod((2 * j - 1) / (samples - 2 * j) for j in range(1, i + 1))

        powers = [
            sum(comb(2 * j, 2 * i) * (1 - self.gain) ** (2 * (j - i)) * moment(i) for i in range(j + 1))
            for j in range(steps)
        ]
        return self.noise_std**2 * sum(powers)

    @property
    def best_pull(self) -> float:
        """The pull with the least stationary error, noise_std^2 / best_pull: the steady-state Kalman gain."""
        return 2 / (1 + sqrt(1 + 4 * (self.target_std / self.noise_std) ** 2))

    def bc_gains(self, samples: int, datasets: int, rng: Generator) -> Floats:
        """Learn BC's gain (datasets,) by least squares from demonstrations of their own."""
        deviation = rng.normal(0, self.demo_std, (datasets, samples))
        answer = self.gain * deviation + rng.normal(0, self.action_std, deviation.shape)  # u - a
        return np.asarray((deviation * answer).sum(1) / (deviation**2).sum(1))

    def bc_actions(self, states: Floats, path: Floats, gains: Floats) -> Floats:
        """Return BC's actions in states (N,), where the path goes from path[0] to path[1]."""
        return np.asarray(path[1] - path[0] - gains * (states - path[0]))

    def pidm_actions(self, states: Floats, path: Floats, pull: float, rng: Generator) -> Floats:
        """Return the actions that lead from states (N,) to what PIDM's predictor returns."""
        looked_up = path[1] + rng.normal(0, self.target_std, len(states))
        future = pull * looked_up + (1 - pull) * (states + path[1] - path[0])
        return np.asarray(future - states)

    def measured(self, agent: float | Floats, steps: int, rng: Generator, runs: int) -> tuple[Measured, Measured]:
        """Measure the prediction error and the closed-loop error of PIDM with a pull, or of BC with gains (runs,)."""
        path = np.cumsum(np.sin(np.arange(steps + 1.0)))  # any path

        def act(states: Floats, place: int) -> Floats:
            if isinstance(agent, float):
                return self.pidm_actions(states, path[place : place + 2], agent, rng)
            return self.bc_actions(states, path[place : place + 2], agent)

        deviation = rng.normal(0, self.demo_std, runs)
        demonstrated = path[1] - path[0] - self.gain * deviation + rng.normal(0, self.action_std, runs)
        predicted = act(path[0] + deviation, 0)
        states = np.full(runs, path[0])
        for place in range(steps):
            states = states + act(states, place) + rng.normal(0, self.noise_std, runs)
        return Measured.mean_of((predicted - demonstrated) ** 2), Measured.mean_of((states - path[-1]) ** 2)
