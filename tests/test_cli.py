"""The command line: what it shows, and how it tells errors."""

import functools
import shlex
import subprocess
import sys
from importlib import import_module

import pytest

from pidm_nav import __version__
from pidm_nav.cli import COMMANDS, GROUPS, main


def run(*words: str) -> int:
    """The exit code of a command."""
    try:
        main(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def replace_command(monkeypatch: pytest.MonkeyPatch, words: str, function) -> None:
    module, _, name = COMMANDS[words].function.partition(":")
    monkeypatch.setattr(import_module(f"pidm_nav.commands.{module}"), name, function)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_overview_groups_every_command_with_an_example(words, capsys):
    assert run(*words) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}\n") for title in GROUPS]
    assert places == sorted(places)
    for command in COMMANDS.values():
        assert command.summary in shown
        assert command.example in shown
    assert "--debug" in shown


def test_overview_keeps_to_narrow_lines_but_for_examples(capsys):
    run()
    examples = {command.example for command in COMMANDS.values()}
    rest = [line for line in capsys.readouterr().out.splitlines() if line.strip() not in examples]
    assert max(map(len, rest)) <= 100


def test_family_shows_only_its_own(capsys):
    assert run("demos") == 0
    shown = capsys.readouterr().out
    assert "demos info" in shown
    assert "quickstart" not in shown


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"pidm-nav {__version__}\n"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help(words, capsys):
    assert run(*words.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert f"usage: pidm-nav {words}" in shown
    assert "Example: pidm-nav" in " ".join(shown.split())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_example_is_accepted(words, monkeypatch):
    module, _, name = COMMANDS[words].function.partition(":")
    function = getattr(import_module(f"pidm_nav.commands.{module}"), name)
    calls = []

    @functools.wraps(function)
    def note(*args, **kwargs):
        calls.append((args, kwargs))

    replace_command(monkeypatch, words, note)
    program, *rest = shlex.split(COMMANDS[words].example)
    assert program == "pidm-nav"
    assert run(*rest) == 0
    assert len(calls) == 1


def test_example_options_reach_the_function(monkeypatch):
    import_module("pidm_nav.commands.start")
    seen = []

    def fake(out: str = "quickstart", fast: bool = False) -> None:
        seen.append((out, fast))

    replace_command(monkeypatch, "quickstart", fake)
    assert run("quickstart", "--out", "elsewhere", "--fast") == 0
    assert seen == [("elsewhere", True)]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["trian"], "train"),
        (["quick-start"], "quickstart"),
        (["demos", "inof"], "demos info"),
        (["analyze", "gaps"], "analyze gap"),
    ],
)
def test_unknown_command_suggests_the_closest(words, meant, capsys):
    assert run(*words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"error: there is no command '{' '.join(words)}': did you mean '{meant}'?\n"


def test_unknown_command_that_is_like_no_other(capsys):
    assert run("xyzzy") == 2
    assert capsys.readouterr().err == "error: there is no command 'xyzzy': 'pidm-nav' alone lists them.\n"


def test_unknown_option_exits_2(capsys):
    assert run("doctor", "--nonsense") == 2
    assert "--nonsense" in capsys.readouterr().err


def test_error_is_one_sentence_on_stderr(capsys):
    assert run("demos", "info", "nowhere.npz") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert "nowhere.npz" in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("a value\n  is wrong: mend it"), "error: a value is wrong: mend it"),
        (FileNotFoundError(2, "No such file or directory", "a.npz"), "error: 'a.npz': no such file or directory"),
        (ModuleNotFoundError("minari is not installed: get it"), "error: minari is not installed: get it"),
        (ValueError(), "error: ValueError"),
    ],
)
def test_expected_errors_are_told_in_one_line(error, told, monkeypatch, capsys):
    def fail() -> None:
        raise error

    replace_command(monkeypatch, "doctor", fail)
    assert run("doctor") == 2
    assert capsys.readouterr().err == told + "\n"
    with pytest.raises(type(error)):
        main(["doctor", "--debug"])


def test_a_bug_is_not_hidden(monkeypatch):
    def fail() -> None:
        raise RuntimeError("a bug")

    replace_command(monkeypatch, "doctor", fail)
    with pytest.raises(RuntimeError):
        main(["doctor"])


def test_control_c_exits_130(monkeypatch, capsys):
    def stop() -> None:
        raise KeyboardInterrupt

    replace_command(monkeypatch, "doctor", stop)
    assert run("doctor") == 130
    assert capsys.readouterr().err == "stopped\n"
    with pytest.raises(KeyboardInterrupt):
        main(["doctor", "--debug"])


def test_debug_shows_the_traceback_of_a_real_process():
    command = [sys.executable, "-m", "pidm_nav.cli", "demos", "info", "nowhere.npz"]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True)
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr


def test_overview_imports_nothing_heavy():
    code = (
        "import sys; from pidm_nav.cli import main; main([])\n"
        "heavy = {'torch', 'pygame', 'matplotlib', 'scipy', 'tyro'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
