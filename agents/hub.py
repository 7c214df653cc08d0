"""Push agents and demonstrations to the Hugging Face Hub, each with a card that describes it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.checkpoint import DESCRIPTION, load_agent
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import HUB_FILE, load_demos, save_demos
from pidm_nav.hub import PREFIX, HubName, Kind, client, upload
from pidm_nav.packaged import packaged_agents
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.statistics import interval_text
from pidm_nav.tasks import find_task
from pidm_nav.version import __version__


def push_to_hub(
    what: Agent | DemoDataset | str | Path, name: str, *, private: bool = False, episodes: int | None = None
) -> str:
    """Push an agent or demonstrations to the Hugging Face Hub, and return the page's address.

    Args:
        what: an agent or demonstrations, the folder or name of an agent such as `maze/pidm`, or an argument of
            `load_demos`.
        name: target, OWNER/NAME[/FOLDER][@REVISION]; the repository is created if it does not exist.
        private: make a new repository private.
        episodes: number of test episodes for the score on an agent's card; 0 for no score. Default: 50, or 10 in slow
            environments.
    """
    client()
    HubName.parse(name)
    if isinstance(what, str | Path):
        is_agent = (Path(what) / DESCRIPTION).is_file() or Path(what).as_posix() in packaged_agents()
        what = load_agent(what) if is_agent else load_demos(what)
    kind: Kind = "model" if isinstance(what, Agent) else "dataset"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if isinstance(what, Agent):
            card = agent_card(what, name, episodes)
            what.save(folder)
        else:
            card = demos_card(what, name)
            save_demos(what, folder / HUB_FILE)
        (folder / "README.md").write_text(card, encoding="utf-8")
        return upload(folder, name, kind, private)


def agent_card(agent: Agent, name: str, episodes: int | None = None) -> str:
    """Return an agent's card: its task, data and score, and how to load it."""
    about = agent.description
    if not about.get("task"):
        raise ValueError("this agent has no task: push a trained agent")
    lines = [f"An imitation agent, `{agent.name}`, for the task `{about['task']}`.", ""]
    lines += [f"- Data: {_data(about.get('data', {}))}"]
    lines += [f"- Environment: `{about['env_kwargs']}`"] if about.get("env_kwargs") else []
    task = find_task(about["task"])
    episodes = (50 if task.rows > 1 else 10) if episodes is None else episodes
    if episodes:
        result = evaluate(agent, task, episodes, keep_episodes=False, **about.get("env_kwargs", {}))
        score = f"{result.scores.mean():.3f}{interval_text(*result.interval)}"
        lines += [f"- Mean {result.metric} over {episodes} test episodes, with its 95% interval: {score}"]
    return _card(lines, "load_agent", name, ["reinforcement-learning"])


def demos_card(demos: DemoDataset, name: str) -> str:
    """Return the card of demonstrations."""
    about: dict[str, Any] = {**vars(demos.summary()), "made_by": demos.source.get("made_by", "unknown")}
    return _card([f"Demonstrations of the task `{demos.task}`.", "", f"- {_data(about)}"], "load_demos", name, [])


def _data(about: dict[str, Any]) -> str:
    success = "" if about.get("success") is None else f", {about['success']:.0%} of them successful"
    sizes = f"{about.get('episodes', 'unknown')} episodes, {about.get('total_steps', 'unknown')} steps{success}"
    return f"{sizes}, made by {about.get('made_by', 'unknown')}"


def _card(lines: list[str], function: str, name: str, tags: list[str]) -> str:
    header = yaml.safe_dump({"library_name": "pidm-nav", "tags": ["imitation-learning", "pidm-nav", *tags]})
    code = f'from pidm_nav import {function}\n\nloaded = {function}("{PREFIX}{name.removeprefix(PREFIX)}")'
    title, text = f"# {HubName.parse(name).repo}", "\n".join(lines)
    made = f"Made with pidm-nav {__version__}."
    return f"---\n{header}---\n\n{title}\n\n{text}\n\n```python\n{code}\n```\n\n{made}\n"
