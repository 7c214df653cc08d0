"""The `pidm-nav` command: a table of commands, each a few lines over the library, and how errors are told."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Command:
    """One command: its words, what it does, an example, and the function whose signature is its command line."""

    words: str
    summary: str
    example: str
    function: str  # module:function within pidm_nav.commands, imported only when it runs


GROUPS: dict[str, list[Command]] = {
    "Start here": [
        Command(
            "quickstart",
            "see PIDM and BC side by side on this machine",
            "pidm-nav quickstart",
            "start:quickstart",
        ),
        Command(
            "doctor",
            "what works on this machine, and what an absence costs",
            "pidm-nav doctor",
            "start:doctor",
        ),
        Command("play", "play a task yourself, or race an agent", "pidm-nav play --task maze", "record:play"),
    ],
    "Make demonstrations": [
        Command(
            "record",
            "record yourself with a gamepad or the keyboard",
            "pidm-nav record --task maze --episodes 10 --out my_demos.npz",
            "record:record",
        ),
        Command(
            "collect",
            "let the A* expert or a human-like script play",
            "pidm-nav collect --task four-room --expert astar --episodes 50 --out astar.npz",
            "demos:collect",
        ),
        Command(
            "demos info",
            "what demonstrations hold",
            "pidm-nav demos info maze/astar my_demos.npz",
            "demos:info",
        ),
        Command(
            "demos convert",
            "between npz, Minari and the paper's files",
            "pidm-nav demos convert my_demos.npz minari:pidmnav/maze/mine-v0",
            "demos:convert",
        ),
        Command(
            "demos replay",
            "an episode as GIF or mp4, or check it against the physics",
            "pidm-nav demos replay my_demos.npz --gif out.gif",
            "demos:replay",
        ),
        Command(
            "demos plot",
            "traces over the map",
            "pidm-nav demos plot maze/human-like maze/astar --out traces.png",
            "demos:plot",
        ),
    ],
    "Train and evaluate": [
        Command(
            "train",
            "BC, PIDM or retrieval BC on demonstrations",
            "pidm-nav train --agent pidm --task maze --demos maze/human-like --num-demos 5 --out runs/x",
            "agents:train",
        ),
        Command(
            "evaluate",
            "roll a trained agent out",
            "pidm-nav evaluate runs/x --episodes 50 --video out.mp4",
            "agents:evaluate",
        ),
    ],
    "Reproduce the paper": [
        Command(
            "sweep",
            "every task, agent, number of demonstrations and seed",
            "pidm-nav sweep --tasks all --num-demos 1,5,20 --seeds 5 --demos-from human-like --out results",
            "experiments:sweep",
        ),
        Command(
            "report",
            "figures, tables and a page from sweeps",
            "pidm-nav report results",
            "experiments:report",
        ),
    ],
    "See why": [
        Command(
            "analyze gap",
            "where future states tell about actions",
            "pidm-nav analyze gap --demos maze/human-like --out analysis",
            "analysis:gap",
        ),
        Command(
            "analyze field",
            "which way an inverse dynamics model points",
            "pidm-nav analyze field --agent runs/x --demos maze/human-like --out analysis",
            "analysis:field",
        ),
        Command(
            "analyze predictor",
            "how well states are predicted from few demonstrations",
            "pidm-nav analyze predictor --demos maze/human-like --out analysis",
            "analysis:predictor",
        ),
        Command(
            "analyze horizon",
            "how the future blurs with the horizon",
            "pidm-nav analyze horizon --demos maze/human-like --out analysis",
            "analysis:horizon",
        ),
        Command(
            "analyze theory",
            "the paper's theorems where every term is known",
            "pidm-nav analyze theory --out analysis",
            "analysis:theory",
        ),
    ],
}
COMMANDS = {command.words: command for group in GROUPS.values() for command in group}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        _run(words)
    except KeyboardInterrupt:
        if debug:
            raise
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, ImportError) as error:
        if debug:
            raise
        print(f"error: {_sentence(error)}", file=sys.stderr)
        sys.exit(2)


def _run(words: list[str]) -> None:
    if words == ["--version"]:
        from pidm_nav import __version__

        print(f"pidm-nav {__version__}")
        return
    if not words or words[0] in ("-h", "--help", "help"):
        _overview(list(COMMANDS))
        return
    for length in (2, 1):
        command = COMMANDS.get(" ".join(words[:length]))
        if command is not None:
            _call(command, words[length:])
            return
    family = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    if family and (len(words) == 1 or words[1] in ("-h", "--help")):
        _overview(family)
        return
    given = " ".join(words[: 2 if family else 1])
    close = difflib.get_close_matches(given, COMMANDS, n=1)
    hint = f"did you mean '{close[0]}'?" if close else "'pidm-nav' alone lists them."
    raise ValueError(f"there is no command '{given}': {hint}")


def _call(command: Command, arguments: list[str]) -> None:
    """Parse the arguments by the function's signature and call it."""
    import tyro

    module, _, name = command.function.partition(":")
    function = getattr(import_module(f"pidm_nav.commands.{module}"), name)
    about = (function.__doc__ or command.summary).split("Args:")[0].strip()
    tyro.cli(
        function,
        prog=f"pidm-nav {command.words}",
        description=f"{about}\n\nExample: {command.example}",
        args=arguments,
    )


def _overview(names: list[str]) -> None:
    """The commands by what a person wants to do, each with an example."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]pidm-nav[/]: does predicting the future help your policy?\n")
    for title, group in GROUPS.items():
        shown = [command for command in group if command.words in names]
        if shown:
            console.print(f"[bold]{title}[/]")
        for command in shown:
            console.print(f"  [cyan]{command.words:<18}[/]{escape(command.summary)}")
            console.print(f"  {'':<18}[dim]{escape(command.example)}[/]")
    console.print("\n'pidm-nav COMMAND --help' shows a command's options; --debug shows an error's traceback.")


def _sentence(error: BaseException) -> str:
    """An error's message on one line; for a file error that the system raised, with the file's name."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"'{error.filename}': {error.strerror.lower()}"
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
