"""The command `hub push`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from pidm_nav.console import say


@dataclass(frozen=True)
class Push:
    """Push an agent or demonstrations to the Hugging Face Hub; a card says what it is.

    Log in first, with the hub's own command `hf auth login`. Others load it by its name: hf://OWNER/NAME.

    Example: pidm-nav hub push maze/pidm me/maze-pidm
    """

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """Agent (a folder that train wrote, or maze/pidm) or demonstrations (a file, or TASK/astar)."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """Repository on the hub, which is made if it does not exist; a folder in it may follow, and @REVISION."""
    private: bool = False
    """Make a new repository private."""
    episodes: int | None = None
    """Number of test episodes for the score on an agent's card; 0 for no score. Default: 50, or 10 where they are
    slow."""

    def run(self) -> None:
        """Push it, and say where it is."""
        from pidm_nav.agents.hub import push_to_hub

        say(f"pushed to {push_to_hub(self.path, self.name, private=self.private, episodes=self.episodes)}")
