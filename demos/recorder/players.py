"""Who plays: the person, whose sticks are a policy, and a rival to race against, in an environment of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pidm_nav.console import counted
from pidm_nav.demos.recorder.controls import Reading
from pidm_nav.rollouts.rollout import Policy, Rollout
from pidm_nav.tasks import Task
from pidm_nav.world2d.state import POSITION


class Player:
    """A policy that plays one episode after the other, step by step, in a vector environment with one row."""

    def __init__(self, policy: Policy, env: VectorEnv[Any, Any, Any]) -> None:
        self.policy, self.env = policy, env

    def reset(self, seed: int, state: NDArray[Any] | None = None) -> None:
        """Begin an episode; one of a 2D task may begin at a state vector."""
        self.rollout = Rollout(self.policy, self.env, [seed])
        if state is not None:
            options = {"state": state[None]}
            self.rollout.observation, self.rollout.infos = self.env.reset(seed=seed, options=options)
            self.rollout.states = state[None]
        self.trace: list[NDArray[Any]] = []
        self._look()

    def step(self) -> None:
        """Act once, unless the episode has ended."""
        if not self.rollout.done:
            self.rollout.step()
            self._look()

    def _look(self) -> None:
        self.state: NDArray[Any] = self.rollout.states[0]  # the observation where there is no state vector
        self.steps = int(self.rollout.steps[0])
        self.num_goals = int(self.info("num_goals", 0))  # 0 where the environment has none
        self.goals_reached = int(self.rollout.goals_reached[0])
        self.total = float(self.rollout.returns[0])  # the sum of rewards so far
        self.trace.append(self.state[POSITION])

    def info(self, key: str, default: Any) -> Any:
        """Return what the environment told in the last step."""
        return self.rollout.infos[key][0] if key in self.rollout.infos else default


class Person(Player):
    """The person: the sticks drive the components of an action, scaled to the bounds of the action space."""

    def __init__(self, task: Task, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(self, env)
        space = env.single_action_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.shape[0] > len(task.sticks):
            raise ValueError(
                f"an action of {task.name} has shape {space.shape}, and two sticks give at most {len(task.sticks)} "
                "numbers: let a policy play it instead"
            )
        self.sources = task.sticks[: space.shape[0]]
        self.has_camera = any(source.removeprefix("-") in ("turn", "look") for source in self.sources)
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        self._center = np.where(bounded, (space.low + space.high) / 2, 0.0)
        self._reach = np.where(bounded, (space.high - space.low) / 2, 1.0)

    def read(self, reading: Reading) -> None:
        """Take the next action from the sticks."""
        values = np.array([reading.drive(source) for source in self.sources], dtype=np.float32)
        self._action = (self._center + self._reach * values).astype(np.float32)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the action, whatever is observed."""
        return self._action[None], state


class Rival(Player):
    """A policy that makes one step for each of the person's, with the same noise; its observations may be others."""

    def __init__(self, name: str, policy: Policy, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(policy, env)
        self.name = name
        self.wins = self.losses = 0

    def compare(self, person: Player) -> str:
        """Say who won: more goals, or all of them in fewer steps; without goals, more reward."""
        if person.num_goals:
            you, they = counted(person.goals_reached, "goal"), str(self.goals_reached)
            lead = float(person.goals_reached - self.goals_reached)
            if not lead and person.goals_reached == person.num_goals:  # how long it took to get stuck is no matter
                lead = self.steps - person.steps
        else:
            you, they = f"return {person.total:.1f}", f"{self.total:.1f}"
            lead = person.total - self.total if person.rollout.done else -np.inf  # giving up loses
        self.wins += lead > 0
        self.losses += lead < 0
        verdict = "You win" if lead > 0 else f"{self.name} wins" if lead < 0 else "A draw"
        return f"{verdict}! You: {you} in {counted(person.steps, 'step')}. {self.name}: {they} in {self.steps}."
