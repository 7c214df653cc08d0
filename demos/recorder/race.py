"""A rival to race against: a policy in an environment of its own, with the same noise as the person's."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import Episode
from pidm_nav.rollout import Policy
from pidm_nav.world2d.env import NavEnv


class Rival:
    """A policy that makes one step for each of the person's.

    Args:
        name: what to call it.
        policy: any.
        env: the person's task and dynamics, with the observations that the policy needs.
    """

    def __init__(self, name: str, policy: Policy, env: gym.Env[NDArray[Any], NDArray[np.float32]]) -> None:
        self.name, self.policy, self.env = name, policy, env
        self.wins = self.losses = 0
        self.reset(0)

    @property
    def nav(self) -> NavEnv:
        """The environment without its wrappers."""
        assert isinstance(self.env.unwrapped, NavEnv)
        return self.env.unwrapped

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self._observation, _ = self.env.reset(seed=seed)
        self._memory: Any = None
        self.done = False
        self.steps = self.goals_reached = 0
        self.trace = [self.nav.get_state()[:2]]

    def step(self) -> None:
        """Move once, unless the episode has ended."""
        if self.done:
            return
        start = np.array([self.steps == 0])
        action, self._memory = self.policy.predict(self._observation, self._memory, start, deterministic=True)
        action = np.clip(np.asarray(action, dtype=np.float32), -1.0, 1.0)
        self._observation, _, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.goals_reached = int(info["goals_reached"])
        self.trace.append(self.nav.get_state()[:2])
        self.done = terminated or truncated

    def compare(self, episode: Episode) -> str:
        """Play to the end and say who won: more goals, or the same in fewer steps."""
        while not self.done:
            self.step()
        goals = int(episode.infos["goals_reached"][-1])
        ours, theirs = (goals, -len(episode)), (self.goals_reached, -self.steps)
        if goals == self.goals_reached < self.nav.layout.num_goals:
            ours = theirs = (0, 0)  # nobody got there: how long it took to get stuck does not count
        self.wins += ours > theirs
        self.losses += ours < theirs
        verdict = "You win" if ours > theirs else f"{self.name} wins" if ours < theirs else "A draw"
        return (
            f"{verdict}! You: {goals} goals in {len(episode)} steps. {self.name}: {self.goals_reached} in {self.steps}."
        )
