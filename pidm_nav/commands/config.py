"""`--config FILE`: options of a command in YAML, as `train` and `sweep` write them with their results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from pidm_nav.console import shell_command
from pidm_nav.files import read_bytes, write_text
from pidm_nav.version import __version__

NOT_WRITTEN = {"config", "out", "force", "retry_failed", "shard"}  # these do not change what a run computes
RUN_FILE = "run.yaml"
MAX_BYTES = 1_000_000


def write_config(command: Any, folder: Path) -> None:
    """Write the options of a command into its folder."""
    name = type(command).__name__.removesuffix("Command").lower()
    again = shell_command(name, "--config", RUN_FILE, "--out", "FOLDER")
    options = yaml.safe_dump(options_of(command), sort_keys=False, allow_unicode=True)
    write_text(folder / RUN_FILE, f"# pidm-nav {__version__}; to repeat the run: {again}\n{options}")


def options_of(command: Any) -> dict[str, Any]:
    """Return the options of a command by name, as plain values, without unset ones."""
    values = [(each.name, getattr(command, each.name), each.default) for each in fields(command)]
    for _, group, defaults in [each for each in values if is_dataclass(each[1])]:  # options of the agent, of training
        values += [(each.name, getattr(group, each.name), getattr(defaults, each.name)) for each in fields(group)]
    kept = {name: value for name, value, default in values if (value, default) != (None, None)}
    return {
        name: list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
        for name, value in kept.items()
        if name not in NOT_WRITTEN and not is_dataclass(value)
    }


class Config:
    """Options of a config file, as words to put before those of the command line, which override them."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.file, self.options = "", dict[str, list[str]]()
        for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
            option, given, value = word.partition("=")
            if option == "--config":
                self.file = value if given else following
        if not self.file:
            return
        if not Path(self.file).exists():
            raise FileNotFoundError(f"there is no config '{self.file}': give a YAML file, such as a run's {RUN_FILE}")
        try:
            content = yaml.safe_load(read_bytes(self.file, MAX_BYTES))
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise ValueError(f"'{self.file}' is not a YAML file of options: give lines such as steps: 500")
        overridden = {word.partition("=")[0] for word in arguments}
        for key, value in content.items():
            name = str(key).replace("_", "-")
            if not {f"--{name}", f"--no-{name}"} & overridden:
                self.options[str(key)] = self._words(str(key), f"--{name}", value)

    def _words(self, key: str, option: str, value: Any) -> list[str]:
        if isinstance(value, bool):
            return [option if value else option.replace("--", "--no-", 1)]
        values = value if isinstance(value, list) else [value]
        texts = [str(each) for each in values]
        if any(isinstance(each, dict | list) for each in values) or any(re.match("-+[^.0-9]", text) for text in texts):
            raise ValueError(f"{key} in '{self.file}' is {value!r}: give a number, a text or a list of these")
        return [option, *(texts or [""])]

    @property
    def words(self) -> list[str]:
        """The options as words of the command line."""
        return [word for words in self.options.values() for word in words]

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Name the file's option in errors about its value."""
        try:
            yield
        except (ValueError, FileNotFoundError) as error:
            sentence, places = str(error), dict[int, str]()
            for key, (option, *texts) in self.options.items():
                values = "|".join(re.escape(f"'{text}'") for text in texts)
                mention = rf"{re.escape(option)}(?![\w-])|\b{re.escape(key)} is |{values or '(?!)'}"
                if match := re.search(mention, sentence):
                    places[match.start()] = key
            if not places:
                raise
            kind = ValueError if isinstance(error, ValueError) else FileNotFoundError
            raise kind(f"{places[min(places)]} in '{self.file}': {sentence}") from error
