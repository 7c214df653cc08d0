"""The `pidm-nav` command: parses arguments, runs commands and shows errors."""

from __future__ import annotations

import contextlib
import errno
import inspect
import io
import itertools
import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructTypeInfo,
)

from pidm_nav.commands import COMMANDS, GROUPS, load_command
from pidm_nav.commands.config import Config
from pidm_nav.console import printable, say, say_command, wrapped
from pidm_nav.limits import suggestion
from pidm_nav.plugins import failing_line, plugins_loaded
from pidm_nav.version import __version__

PLAINER = {  # patterns of tyro's errors, and shorter sentences
    r"^Error parsing ([A-Z]\w*: )?": "",
    r"^(--[\w-]+): no type matching {INT INT} .*": r"\1 needs two integers, such as 800 600",
    r"(invalid literal for int|no type matching INT )[^']*('[^']*'?).*": r"\2 is not an integer",
    r"(could not convert string to float|no type matching FLOAT )[^']*('[^']*'?).*": r"\2 is not a number",
    r"^Missing value for argument '(.*)'\. Expected .*": r"\1 needs a value",
    r"^Missing from [\w -]+: (--\S+ )?(\S+) (.*?)\. \(required\).*": r"\1\2 is missing: \3",
}
MODULE = re.compile(r"(^|[=,\s])([A-Za-z_][\w.]*):")  # module of a Gymnasium id, as in gym.make("module:Id")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with _terminable(), _plugin_errors(), plugins_loaded(_take_plugins(words)):
            _run(words)
    except BrokenPipeError:  # as of `| head`; rich ends what it prints in the same way
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would write the rest at its end
        sys.exit(1)
    except (KeyboardInterrupt, ValueError, OSError, ImportError, MemoryError) as error:
        if debug:
            raise
        stopped = isinstance(error, KeyboardInterrupt)
        text = "stopped" if stopped else f"error: {_sentence(error)}"
        print(wrapped(text, get_terminal_size().columns) if sys.stderr.isatty() else text, file=sys.stderr)
        sys.exit(128 + (error.args or (signal.SIGINT,))[0] if stopped else 2)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C inside the block, so that files are closed, saved or removed."""

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


@contextlib.contextmanager
def _plugin_errors() -> Iterator[None]:
    """Turn any error of a plugin that is being loaded into a ValueError with the plugin's file and line."""
    try:
        yield
    except Exception as error:
        place = failing_line(error)
        if place is None:
            raise
        file, line = place
        said = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        remedy = "install it" if isinstance(error, ModuleNotFoundError) else "correct the file"
        where = f"'{file}', line {line}" if line else f"'{file}'"
        raise ValueError(f"the plugin {where}, failed ({said}): {remedy}, or add --debug for the traceback") from error


def _take_plugins(words: list[str]) -> list[str]:
    """Remove `--plugin FILE`, and the modules of tasks such as `module:Id`, from the words, and return the plugins."""
    plugins: list[str] = []
    for index in range(len(words) - 1, -1, -1):
        option, given, value = words[index].partition("=")
        if option == "--plugin":
            if not given and index + 1 == len(words):
                raise ValueError("--plugin needs a value: give the path of a .py file, or the name of a module")
            plugins.insert(0, value if given else words.pop(index + 1))
            del words[index]
    option = ""
    for index, word in enumerate(words):
        option = word.partition("=")[0] if word.startswith("--") else option
        if option in ("--task", "--tasks"):
            plugins += [module for _, module in MODULE.findall(word)]
            words[index] = MODULE.sub(r"\1", word)
    return plugins


def summary_and_example(command: Any) -> tuple[str, str]:
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
        hint = suggestion(given, COMMANDS, "run pidm-nav to list them")
        raise ValueError(f"there is no command '{given}': {hint}")


def _call(words: str, arguments: list[str]) -> None:
    """Parse the arguments of a command, and run it."""
    command = load_command(words)
    config = Config(arguments if "config" in command.__dataclass_fields__ else [])
    arguments = [*config.words, *arguments]
    with config.named_in_errors():
        if hasattr(command, "form"):  # its options depend on other options
            command = command.form(arguments)
        parsed = _parse(words, command, arguments)
        warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
        try:
            parsed.run()
        except (ValueError, OSError) as error:  # the library names arguments, the user knows options
            if isinstance(error, OSError) and error.errno is not None:  # of the system
                raise
            raise ValueError(_with_options(str(error), [each.name for each in fields(parsed)])) from error


def _parse(words: str, command: Any, arguments: list[str]) -> Any:
    output = io.StringIO()
    if "--out=" in arguments or ("--out", "") in itertools.pairwise(arguments):
        raise ValueError("--out is '': give a name")  # the empty path is the current folder
    try:
        with contextlib.redirect_stderr(output), _option_rules():
            description = inspect.cleandoc(command.__doc__)
            return tyro.cli(command, prog=f"pidm-nav {words}", description=description, args=arguments)
    except SystemExit as end:
        if not end.code:  # --help
            raise
        raise ValueError(_unboxed(output.getvalue())) from None


def _with_options(sentence: str, names: list[str]) -> str:
    """Return a sentence with options of the command in place of the library's arguments."""
    sentence = sentence.replace("overwrite=True", "--force").replace("with load_plugin", "with --plugin")
    for name in names:
        sentence = sentence.replace(f"{name}=True", f"--{name}")
        option, place = f"--{name.replace('_', '-')}", rf"(?<![\w-]){name}\b"
        sentence = re.sub(place if "_" in name else rf"^{name}(?= is )", option, sentence)
    return sentence


def _option_rules() -> ConstructorRegistry:
    """Return tyro rules for comma-separated lists, and for help of options without a default value."""
    registry = ConstructorRegistry()
    registry.primitive_rule(_list_rule)
    asked: list[StructTypeInfo] = []

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if asked:
            return None  # tyro's rules, called below
        asked.append(info)
        spec = ConstructorRegistry.get_struct_spec(info)
        asked.clear()
        if not isinstance(spec, StructConstructorSpec):
            return None
        quiet = tyro.conf.arg(help_behavior_hint="")  # the help text ends with the default
        changed = []
        for each in spec.fields:
            kind: Any = each.type
            if each.default is None:
                kind = Annotated[kind, tyro.conf.DisallowNone]
                if choices := next((get_args(one) for one in get_args(each.type) if get_origin(one) is Literal), None):
                    kind = Annotated[kind, tyro.conf.arg(metavar=f"{{{','.join(choices)}}}")]  # tyro doubles the braces
            if each.default is None or each.default == ():
                kind = Annotated[kind, quiet]
            text = each.helptext() if callable(each.helptext) else each.helptext
            changed.append(replace(each, type=kind, helptext=text and " ".join(text.split())))
        return replace(spec, fields=tuple(changed))

    return registry


def _list_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Parse options with several values, separated by commas or spaces."""
    kind, *rest = get_args(info.type) or (None,)
    if get_origin(info.type) is not tuple or rest != [...] or tyro.conf.Positional in info.markers:
        return None
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    examples = {str: "NAME,NAME", int: "1,2,5", float: "0.1,0.5"}
    if kind not in examples:
        return None

    def read(words: list[str]) -> tuple[Any, ...]:
        parts = [part for word in words for part in ([word] if Path(word).exists() else re.split(r"[,\s]+", word))]
        try:
            return tuple(kind(part) for part in parts if part)
        except ValueError:
            raise ValueError(f"'{' '.join(words)}' is not a list: give values such as {examples[kind]}") from None

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=examples[kind],
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda values: [",".join(map(str, values))],
    )


def _unboxed(box: str) -> str:
    """Return the first paragraph and the suggestion in tyro's error box, as one sentence."""
    lines = [line.strip(" │|") for line in box.splitlines()[1:]]
    text = "\n".join(line if line.strip("─-╰╯+") else "" for line in lines).strip()
    meant = re.search(r"Perhaps you meant:\s+(--[\w-]+)", text)
    text = text.partition("\n\n")[0].replace("\n", " ")
    for pattern, plainer in PLAINER.items():
        text = re.sub(pattern, plainer, text)
    choices = re.search(r"\. Expected one of \((.*)\)\.", text)  # in any order
    if choices:
        named = sorted(set(re.findall("'([^']+)'", choices[1])) - {"None"})
        text = text.replace(choices[0], f": choose one of {', '.join(map(shlex.quote, named))}")
    return f"{text}: did you mean {meant[1]}?" if meant else text


def _overview(names: list[str]) -> None:
    """Print the commands by group, each with an example."""
    say("pidm-nav: does predicting the future help your policy?\n", style="bold")
    for title, group in GROUPS.items():
        shown = [words for words in group if words in names]
        if shown:
            say(title, style="bold")
        for words in shown:
            summary, example = summary_and_example(load_command(words))
            say(f"  {words:<18}{summary}", indent=20)
            say_command(example, indent=20, style="dim")
    say("\nOptions of a command: pidm-nav COMMAND --help. Options of every command:")
    say("  --plugin FILE   Load a Python file that registers your agents or environments.")
    say("  --debug         Show the traceback of an error.")


def _sentence(error: BaseException) -> str:
    """Return an error's message on one line; the system's file errors with the file's name."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return _shortened(printable(f"'{error.filename}': {error.strerror.lower()}"))
    if error.args == (errno.ENOENT, os.strerror(errno.ENOENT)):  # without the name of a file
        return "the current folder was deleted: change to another one"
    return _shortened(printable(" ".join(str(error).split()))) or type(error).__name__


def _shortened(text: str) -> str:
    """Return a text with long values and a long middle left out."""
    text = re.sub(r"\S{200,}|'[^']{200,}'", lambda word: f"{word[0][:100]}...{word[0][-40:]}", text)
    return text if len(text) <= 1000 else f"{text[:700]} ... {text[-280:]}"


if __name__ == "__main__":
    main()
