"""Agents under names of their own: with other settings, with other data, or changed after their training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.play import play
from pidm_nav.seeds import play_seed

if TYPE_CHECKING:
    from pidm_nav.agents.agent import Agent
    from pidm_nav.agents.config import Preset


def source_files(made: Any) -> tuple[str, ...]:
    """Return the file that a class or function was written in, if there is one."""
    file = getattr(sys.modules.get(getattr(made, "__module__", "")), "__file__", None)
    return () if file is None else (file,)


@dataclass(frozen=True)
class Variant:
    """An agent that a sweep trains and evaluates in another way than by the agent's own preset."""

    agent: str  # name in `AGENTS`
    options: Mapping[str, Any] = field(default_factory=dict)  # "{task}", "{demos}" and "{seed}" in texts are replaced
    adapt: Callable[[Any], None] | None = None  # changes the trained agent before it is evaluated
    trained_as: str | None = None  # the variant whose kept agent is evaluated instead of training one
    preset: str | None = None  # the preset that the options change; by default the sweep's
    play_steps: int = 0  # transitions of play: for PIDM's inverse dynamics model, for others as more demonstrations
    drop_actions: bool = False  # whether demonstrations lose their actions, so that only play shows some
    dagger: int = 0  # rounds in which an expert corrects what the agent does

    def recipe(self) -> dict[str, Any]:
        """Return what a training differs in from a plain one besides its settings, as plain JSON."""
        own = {"play_steps": self.play_steps, "drop_actions": self.drop_actions, "dagger": self.dagger}
        return {name: value for name, value in own.items() if value}

    def sources(self) -> tuple[str, ...]:
        """Return the file of the agent's code, which may be a user's own."""
        from pidm_nav.agents.policy import AGENTS

        return source_files(AGENTS[self.agent])

    def train(
        self, dataset: DemoDataset, settings: Preset, score: Callable[[int, Agent], None], device: str = "cpu"
    ) -> Agent:
        """Train the agent on demonstrations, and score it at each checkpoint and at the end."""
        from pidm_nav.agents.dagger import dagger
        from pidm_nav.agents.train import env_arguments, train

        more: dict[str, Any] = {"preset": settings, "on_checkpoint": score, "progress": False, "device": device}
        if self.play_steps:
            first = play_seed(settings.training.seed, self.play_steps)
            played = play(dataset.task, self.play_steps, first, **env_arguments(dataset))
            if self.agent == "pidm":
                more["idm_data"] = played
            else:
                dataset = DemoDataset.concatenate([dataset, played])
        if self.drop_actions:
            dataset = dataset.without_actions()
        return dagger(self.agent, dataset, self.dagger, **more) if self.dagger else train(self.agent, dataset, **more)


VARIANTS = {
    "bc-dagger": Variant("bc", dagger=5),
    "bc-play": Variant("bc", play_steps=2000),
    "pidm-paper": Variant("pidm", preset="paper-fast"),
    "pidm-play": Variant("pidm", play_steps=2000),
    "pidm-states": Variant("pidm", play_steps=2000, drop_actions=True),
}
"""What a sweep knows besides the agents. BC with DAgger and BC that imitates play as well are controls; PIDM comes with
the paper's networks, with play, and from demonstrations without actions with play."""
