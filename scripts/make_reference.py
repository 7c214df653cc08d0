"""Write docs/commands.md and docs/settings.md from the commands' own help and the agents' presets.

python scripts/make_reference.py

A test compares the pages with what this script would write.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import tyro

from pidm_nav.agents import AGENTS, IDMS, PREDICTORS
from pidm_nav.agents.config import Preset
from pidm_nav.cli import GROUPS, load_command, main, summary_and_example
from pidm_nav.tasks import PAPER_TASKS

DOCS = Path(__file__).parents[1] / "docs"
DEFAULT = re.compile(r"\s*\(default: (.*?)\)$")


class Option(NamedTuple):
    """An option as the help shows it."""

    panel: str
    usage: str
    about: str

    @property
    def setting(self) -> str:
        """The name of the setting in Python."""
        return self.usage.split()[0].strip(",-").replace("-", "_")


def read_help(ask: Callable[[], object]) -> list[Option]:
    """Return the options of a help text that `ask` prints in boxes."""
    told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # a text file, for which boxes are drawn
    wide = patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    with wide, contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        ask()
    options: list[Option] = []
    panel = ""
    told.seek(0)
    for line in told.read().splitlines():
        if title := re.match(r"╭─ ([\w ]+) ─", line):
            panel = title[1]
        elif found := re.match(r"│ ((?:-|\[?[A-Z]{2,}).*?)(?:\s{2,}(.*?))?\s*│$", line):
            options.append(Option(panel, found[1].strip(), found[2] or ""))
        elif (found := re.match(r"│\s{2,}(.*?)\s*│$", line)) and options:
            options[-1] = options[-1]._replace(about=f"{options[-1].about} {found[1]}".strip())
    return [option for option in options if not option.usage.startswith("-h")]


def commands() -> str:
    """Return the page of all commands."""
    lines = [
        "# Commands",
        "",
        "`pidm-nav COMMAND --help` prints the options of a command. Every command also takes `--plugin FILE`, a",
        "Python file that registers your agents or environments, and `--debug`, which shows the traceback of an",
        "error. An error is one sentence and exit code 2.",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"## {title}"]
        for words in group:
            summary, example = summary_and_example(load_command(words))
            lines += ["", f"### {words}", "", f"{summary}.", "", "```bash", example, "```"]
            options = read_help(lambda words=words: main([*words.split(), "--help"]))
            if words == "train":
                options = [option for option in options if option.panel == "options"]
            lines += [""] * bool(options)
            lines += [f"- `{option.usage}`: {_sentence(option.about)}" for option in options]
            if words == "train":
                lines += ["", "Every [setting](settings.md) of the agent and of its training is an option too, such as"]
                lines += ["`--learning-rate 1e-4`."]
    return "\n".join(lines) + "\n"


def settings() -> str:
    """Return the page of all settings, with their values in all presets of all agents."""
    about: dict[str, dict[str, str]] = {}
    for name in ("pidm", *AGENTS):  # whose settings have the widest descriptions
        for option in read_help(lambda name=name: main(["train", "--agent", name, "--help"])):
            if option.panel != "options":
                kind = "training" if option.panel.startswith("training") else "agent"
                about.setdefault(kind, {}).setdefault(option.setting, DEFAULT.sub("", option.about))
    values = {name: {preset: _values(kind.preset(preset)) for preset in kind.presets} for name, kind in AGENTS.items()}
    lines = [
        "# Settings",
        "",
        "Every setting of every agent, with its value in each preset. `train` takes settings by keyword, and",
        "`pidm-nav train` as options: `learning_rate=1e-4` is `--learning-rate 1e-4`. [Training](training.md)",
        "describes the presets. Where no default is given, the value depends on the agent and the preset: see",
        "[the tables](#values-by-agent-and-preset). This page is generated from the code.",
    ]
    titles = {"agent": "Settings of agents", "training": "Settings of training"}
    varying: list[str] = []
    for kind, title in titles.items():
        lines += ["", f"## {title}", ""]
        for setting, meaning in about[kind].items():
            found = {each[setting] for presets in values.values() for each in presets.values() if setting in each}
            owners = [name for name, presets in values.items() if setting in presets["fast"]]
            varying += [setting] if len(found) > 1 else []
            only = f" Only for {', '.join(f'`{name}`' for name in owners)}." if len(owners) < len(AGENTS) else ""
            default = f" Default: {found.pop()}." if len(found) == 1 and "Default:" not in meaning else ""
            lines.append(f"- `{setting}`: {_sentence(meaning)}{default}{only}")
    lines += ["", "## Values by agent and preset"]
    for name, presets in values.items():
        found = {
            setting: [each[setting] for each in presets.values()] for setting in varying if setting in presets["fast"]
        }
        fixed = [f"`{setting}` {row[0]}" for setting, row in found.items() if len(set(row)) == 1]
        rows = [setting for setting, row in found.items() if len(set(row)) > 1]
        lines += (
            ["", f"### {name}", "", f"In every preset: {', '.join(fixed)}.", ""] if fixed else ["", f"### {name}", ""]
        )
        lines += [f"| setting | {' | '.join(f'`{preset}`' for preset in presets)} |"]
        lines += ["|---" * (len(presets) + 1) + "|"]
        lines += [f"| `{row}` | {' | '.join(each[row] for each in presets.values())} |" for row in rows]
    lines += ["", "### The preset `paper` by task", ""]
    lines += ["The paper's learning rates and gradient clips differ between tasks:", ""]
    lines += [f"| agent | setting | {' | '.join(PAPER_TASKS)} |", "|---" * (len(PAPER_TASKS) + 2) + "|"]
    for name, kind in AGENTS.items():
        for setting in ("learning_rate", "gradient_clip"):
            row = [_values(kind.preset("paper", task))[setting] for task in PAPER_TASKS]
            if len({*row, values[name]["paper"][setting]}) > 1:
                lines += [f"| `{name}` | `{setting}` | {' | '.join(row)} |"]
    for title, parts in {"Predictors": PREDICTORS, "Inverse dynamics models": IDMS}.items():
        lines += ["", f"## {title}", "", "Written as text, `NAME(option=value)`, or given as an object.", ""]
        for name, part in parts.items():
            lines += [f"- `{name}`: {_sentence((part.__doc__ or '').strip().splitlines()[0])}"]
            for option in read_help(lambda part=part: tyro.cli(part, args=["--help"])):
                found = DEFAULT.search(option.about)
                shown = f"`{option.setting}={found[1] if found else ''}`"
                lines += [f"    - {shown}: {_sentence(DEFAULT.sub('', option.about))}"]
    return "\n".join(lines) + "\n"


def _values(preset: Preset) -> dict[str, str]:
    parts: tuple[Any, ...] = preset.options, preset.training
    return {field.name: f"`{getattr(part, field.name)!r}`" for part in parts for field in fields(part)}


def _sentence(text: str) -> str:
    """Return a text that ends in a full stop, safe in Markdown."""
    text = re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    text = DEFAULT.sub(lambda found: f" Default: `{found[1].replace(', ', ',')}`", text)
    text = text.replace(" (required)", " Required")
    return text if not text or text.endswith(".") else f"{text}."


PAGES = {"commands.md": commands, "settings.md": settings}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
