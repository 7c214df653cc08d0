"""The `pidm-nav` command: a table of commands, whose options are the fields of dataclasses, and how errors are told."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import io
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from pidm_nav.console import printable, say
from pidm_nav.version import __version__

GROUPS: dict[str, dict[str, str]] = {  # by what a person wants to do: the command's words and its dataclass
    "Start here": {
        "quickstart": "experiments:Quickstart",
        "doctor": "doctor:Doctor",
        "play": "record:Play",
        "studio": "studio:Studio",
    },
    "Make demonstrations": {
        "record": "record:Record",
        "collect": "demos:Collect",
        "demos info": "demos:Info",
        "demos convert": "demos:Convert",
        "demos edit": "demos:Edit",
        "demos replay": "demos:Replay",
        "demos plot": "demos:Plot",
    },
    "Train and evaluate": {
        "train": "train:Train",
        "evaluate": "evaluate:Evaluate",
    },
    "Reproduce the paper": {
        "sweep": "experiments:Sweep",
        "report": "experiments:Report",
    },
    "See why": {
        "analyze gap": "analysis:Gap",
        "analyze field": "analysis:Field",
        "analyze predictor": "analysis:Predictor",
        "analyze horizon": "analysis:Horizon",
        "analyze theory": "analysis:Theory",
    },
}
COMMANDS = {words: reference for group in GROUPS.values() for words, reference in group.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with _terminable():
            _run(words)
    except (KeyboardInterrupt, ValueError, OSError, ImportError, MemoryError) as error:
        if debug:
            raise
        stopped = isinstance(error, KeyboardInterrupt)
        print("stopped" if stopped else f"error: {_sentence(error)}", file=sys.stderr)
        sys.exit(128 + (error.args or (signal.SIGINT,))[0] if stopped else 2)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let a SIGTERM end a command as Ctrl-C does: what it holds is closed, saved or removed on the way out."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def load_command(words: str) -> Any:
    """Import the dataclass of a command."""
    module, _, name = COMMANDS[words].partition(":")
    return getattr(import_module(f"pidm_nav.commands.{module}"), name)


def describe(command: Any) -> tuple[str, str]:
    """Return the first clause of a command's docstring, and its example."""
    about, _, example = (command.__doc__ or "").partition("Example:")
    return re.split(r"[;:.](?:\s|$)", about.strip())[0], example.strip()


def _run(words: list[str]) -> None:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    first, both = " ".join(words[:1]), " ".join(words[:2])
    family = [name for name in COMMANDS if name.startswith(f"{first} ")]
    if first in ("--version", "-V"):
        print(f"pidm-nav {__version__}")
    elif first in ("", "-h", "--help"):
        _overview(list(COMMANDS))
    elif both in COMMANDS:
        _call(both, words[2:])
    elif first in COMMANDS:
        _call(first, words[1:])
    elif family and words[1:2] in ([], ["-h"], ["--help"]):
        _overview(family)
    else:
        given = both if family else first
        close = difflib.get_close_matches(given, COMMANDS, n=1)
        hint = f"did you mean '{close[0]}'?" if close else "'pidm-nav' alone lists them."
        raise ValueError(f"there is no command '{given}': {hint}")


def _call(words: str, arguments: list[str]) -> None:
    """Parse the arguments by the fields of the command's dataclass, and run it."""
    import tyro

    command = load_command(words)
    description = inspect.cleandoc(command.__doc__)
    if hasattr(command, "form"):  # its options depend on what is chosen with one of them
        command = command.form(arguments)
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            parsed = tyro.cli(command, prog=f"pidm-nav {words}", description=description, args=arguments)
    except SystemExit as end:
        if not end.code:  # --help
            raise
        raise ValueError(_unboxed(told.getvalue())) from None
    parsed.run()


def _unboxed(box: str) -> str:
    """Return the first paragraph in a box of tyro's, without its frame, its title and the help text at its end."""
    lines = [line.strip(" │|") for line in box.splitlines()[1:]]
    text = "\n".join(line if line.strip("─-╰╯+") else "" for line in lines).strip().partition("\n\n")[0]
    return re.sub(r"^Error parsing ([A-Z]\w*: )?", "", text.replace("\n", " "))


def _overview(names: list[str]) -> None:
    """Print the commands by what a person wants to do, each with an example."""
    say("pidm-nav: does predicting the future help your policy?\n", style="bold")
    for title, group in GROUPS.items():
        shown = [words for words in group if words in names]
        if shown:
            say(title, style="bold")
        for words in shown:
            summary, example = describe(load_command(words))
            say(f"  {words:<18}{summary}")
            say(f"  {'':<18}{example}", style="dim")
    say("\n'pidm-nav COMMAND --help' shows the options of a command; --debug shows the traceback of an error.")


def _sentence(error: BaseException) -> str:
    """Return an error's message on one line; for a file error that the system raised, with the file's name."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return printable(f"'{error.filename}': {error.strerror.lower()}")
    return printable(" ".join(str(error).split())) or type(error).__name__


if __name__ == "__main__":
    main()
