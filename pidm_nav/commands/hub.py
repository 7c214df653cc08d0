"""The command `hub push`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from pidm_nav.console import say


@dataclass(frozen=True)
class Push:
    """Push an agent or demonstrations, with a card, to the Hugging Face Hub.

    Log in first with `hf auth login`. Load with the name hf://OWNER/NAME.

    Example: pidm-nav hub push maze/pidm me/maze-pidm
    """

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """Agent (folder of a trained agent, or maze/pidm) or demonstrations (a file, or TASK/astar)."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """Repository, OWNER/NAME[/FOLDER][@REVISION]; created if it does not exist."""
    private: bool = False
    """Make a new repository private."""
    episodes: int | None = None
    """Number of test episodes for the score on an agent's card; 0 for no score. Default: 50, or 10 in slow
    environments."""

    def run(self) -> None:
        """Push to the hub, and print the address."""
        from pidm_nav.agents.hub import push_to_hub

        say(f"pushed to {push_to_hub(self.path, self.name, private=self.private, episodes=self.episodes)}")
