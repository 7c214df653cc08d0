"""What policies are asked without an environment: their error on demonstrations, and whether they steer back."""

from __future__ import annotations

import numpy as np
import pytest

from pidm_nav.agents.pull import Pull
from pidm_nav.analysis.offline import action_effect, action_error, restoring_coefficient
from pidm_nav.demos import load_demos
from pidm_nav.world2d.physics import SPEED


class Spring:
    """Acts as demonstrated at each step, and undoes `gain` of the way from there; the memory is the step."""

    def __init__(self, demos, gain: float) -> None:
        self.demos, self.gain = demos, gain

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        step = 0 if state is None else state
        rows = [(episode, min(step, len(episode) - 1)) for episode in self.demos]
        own = np.stack([episode.observations[at] for episode, at in rows])
        taken = np.stack([episode.actions[at] for episode, at in rows])
        return taken + self.gain * (own - observation)[:, :2] / SPEED, step + 1


@pytest.fixture(scope="module")
def demos():
    return load_demos("zigzag/human-like")[:4]


@pytest.mark.parametrize("gain", [0.0, 0.3, 1.0, -0.5])
def test_the_coefficient_is_the_fraction_of_a_push_that_is_undone(demos, gain):
    policy = Spring(demos, gain)
    assert action_error(policy, demos) == 0
    assert restoring_coefficient(policy, demos, np.random.default_rng(0)) == pytest.approx(gain, abs=1e-5)


def test_the_effect_of_actions_is_found_without_knowing_the_world(demos):
    exact = action_effect(demos)
    unknown = action_effect(_as_anybodys(demos))
    assert exact.features.tolist() == unknown.features.tolist() == [0, 1]
    assert exact.matrix == pytest.approx(SPEED * np.eye(2) / exact.rms)
    assert unknown.matrix == pytest.approx(exact.matrix, abs=0.15)  # walls and noise blur the regression


def test_a_pull_steers_back(demos):
    policy = Spring(demos[:2], 0.0)
    held_out = demos[2:]
    policy.demos = held_out
    plain = restoring_coefficient(policy, held_out, np.random.default_rng(0))
    pulled = restoring_coefficient(Pull(policy, demos[:2]), held_out, np.random.default_rng(0))
    assert plain == pytest.approx(0, abs=1e-5) and pulled > 0.2


def _as_anybodys(demos):
    from dataclasses import replace

    return replace(demos, task="PointMaze_UMaze-v3")
