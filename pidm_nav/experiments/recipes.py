"""Recipes of sweeps: agents with other settings or data, or functions that make policies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.random_play import collect_random_play
from pidm_nav.rollouts.rollout import Policy
from pidm_nav.seeds import random_play_seed

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent
    from pidm_nav.agents.config import Preset

Score = Callable[[int, Policy], None]
Make = Callable[[DemoDataset, int], Policy]  # demonstrations and seed of a job -> policy


def source_files(made: Any) -> tuple[str, ...]:
    """Return the source file of a class or function from outside this package, if there is one."""
    module = str(getattr(made, "__module__", ""))
    file = getattr(sys.modules.get(module), "__file__", None)
    return () if file is None or module.partition(".")[0] == "pidm_nav" else (file,)


@dataclass(frozen=True)
class Recipe:
    """How a sweep trains and evaluates an agent."""

    agent: str | type[Agent] = ""
    """Name or class of the agent."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset; "{task}", "{demos}" and "{seed}" in texts are replaced."""
    make: Make | None = None
    """Function that makes a policy instead of `train`."""
    adapt: Callable[[Any], Policy | None] | None = None
    """Function that changes the trained agent, or returns the policy to evaluate."""
    trained_as: str | None = None
    """Name of the recipe whose kept agent is evaluated instead of training one."""
    preset: str | None = None
    """Preset that the options change. Default: the sweep's."""
    play_steps: int = 0
    """Transitions of random play, for the inverse dynamics model or, without one, as more demonstrations."""
    drop_actions: bool = False
    """Drop the actions of demonstrations."""
    dagger: int = 0
    """Rounds of DAgger."""

    def __post_init__(self) -> None:
        if (self.make is None) != bool(self.agent):
            raise ValueError("a recipe needs either `agent` or `make`: give one of the two")

    @classmethod
    def of(cls, given: Any) -> Recipe:
        """Return the recipe of a name, an agent's class or a function."""
        if isinstance(given, Recipe):
            return given
        return cls(given) if isinstance(given, str | type) else cls(make=given)

    def find(self) -> type[Agent] | None:
        """Return the agent's class, or None if a function makes the policy."""
        from pidm_nav.agents.registry import find_part

        return None if self.make is not None else find_part("agent", self.agent)

    def describe(self) -> dict[str, Any]:
        """Return how a training run differs from a plain one besides its settings, as plain JSON."""
        own = {"play_steps": self.play_steps, "drop_actions": self.drop_actions, "dagger": self.dagger}
        return {name: value for name, value in own.items() if value}

    def sources(self) -> tuple[str, ...]:
        """Return the source files from outside this package of the agent or function and of registered parts."""
        from pidm_nav.agents.registry import foreign_parts

        made = [self.find() or self.make, *foreign_parts()]
        return tuple(dict.fromkeys(file for each in made if each is not None for file in source_files(each)))

    def train(self, dataset: DemoDataset, settings: Preset, score: Score, **options: Any) -> Agent:
        """Train the agent on demonstrations, and score it at each checkpoint and at the end."""
        from pidm_nav.agents.dagger import dagger
        from pidm_nav.agents.train import train

        kind: Any = self.find()
        more: dict[str, Any] = {"preset": settings, "on_checkpoint": score, "progress": False, **options}
        if self.play_steps:
            first = random_play_seed(settings.training.seed, self.play_steps)
            played = collect_random_play(dataset.task, self.play_steps, first, **dataset.env_kwargs)
            if "idm_data" in kind.uses:
                more["idm_data"] = played
            else:
                dataset = DemoDataset.concatenate([dataset, played])
                more["failed"] = "keep"  # random play reaches no goals
        if self.drop_actions:
            dataset = dataset.without_actions()
        return dagger(kind.name, dataset, self.dagger, **more) if self.dagger else train(kind, dataset, **more)


RECIPES = {
    "bc-dagger": Recipe("bc", dagger=5),
    "bc-play": Recipe("bc", play_steps=2000),
    "delta-pidm-play": Recipe("delta-pidm", play_steps=2000),
    "delta-pidm-states": Recipe("delta-pidm", play_steps=2000, drop_actions=True),
}
"""Recipes that all sweeps have: BC with DAgger, BC on demonstrations and random play (both controls), delta-PIDM with
random play, and delta-PIDM from demonstrations without actions with random play."""
