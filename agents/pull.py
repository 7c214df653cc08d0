"""Pull: adds to any policy of a 2D task a spring toward the demonstrations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.agents.retrieval import StateIndex
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.tasks import TASKS
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import POSITION


class Pull:
    """Policy that adds `strength` times the way to the nearest demonstrated position to another policy's actions.

    With a strength of 1, the added action alone would reach that position in one step, without noise and walls. It is
    the `pull` of a predictor for policies without a predictor: BC with a pull shows what is left of PIDM's lead.
    """

    def __init__(self, policy: Policy, demos: DemoDataset, strength: float = 1.0) -> None:
        task = TASKS.get(demos.task)
        if task is None or not task.has_2d_state or not demos.goal_flags or demos.env_kwargs.get("relative_goals"):
            raise ValueError(f"a pull needs demonstrations with full 2D states, not those of {demos.task}: give others")
        self.policy, self.strength = policy, strength
        self.states = demos.transitions().state
        self.index = StateIndex(self.states, demos.goal_flags)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], Any]:
        """Return the policy's actions plus the pull, clipped to [-1, 1]."""
        actions, state = self.policy.predict(observation, state, episode_start, deterministic)
        rows = np.atleast_2d(np.asarray(observation, dtype=np.float32))
        nearest = self.states[self.index.query(rows)[0][:, 0]]
        back = (nearest - rows)[:, POSITION] / SPEED
        return np.clip(actions + self.strength * back.reshape(np.shape(actions)), -1, 1).astype(np.float32), state
