"""Pretrained agents of the package, found without importing torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pidm_nav.hub import download, on_hub
from pidm_nav.limits import suggestion


def packaged_folder() -> Path:
    """Return the folder of the pretrained agents."""
    return Path(str(getattr(find_spec("pidm_nav.agents"), "origin", ""))).parent / "data"


def packaged_agents() -> dict[str, dict[str, Any]]:
    """Return the cards of the pretrained agents by name, such as maze/pidm: training data and scores."""
    cards: dict[str, dict[str, Any]] = json.loads((packaged_folder() / "card.json").read_text(encoding="utf-8"))
    return cards


def find_agent(name: str | Path, others: Iterable[str] = ()) -> Path:
    """Return the folder of an agent, given as a folder, as TASK/AGENT of the package, or as hf://OWNER/NAME.

    The error for other names suggests one, also from `others`.
    """
    if on_hub(name):
        return download(str(name), "model", ["agent.json", "weights-*.safetensors"])
    path = Path(name)
    if path.is_dir():
        return path
    packaged = packaged_agents()
    if path.as_posix() in packaged:
        return packaged_folder() / path
    if path.is_file():
        kind = "a file of demonstrations" if path.suffix in (".npz", ".hdf5") else "a file"
        raise FileNotFoundError(f"'{name}' is {kind}, not an agent: give the folder of a trained agent")
    known = [*others, *packaged]
    hint = suggestion(str(name), known, f"give the folder of a trained agent, or one of {', '.join(known)}")
    raise FileNotFoundError(f"there is no agent '{name}': {hint}")
