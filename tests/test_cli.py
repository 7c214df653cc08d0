"""The command line: what it shows, and how it tells errors."""

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import pidm_nav
from pidm_nav import __version__
from pidm_nav.cli import COMMANDS, GROUPS, load_command, main, summary_and_example


def run(*words: str) -> int:
    """The exit code of a command."""
    try:
        main(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def replace_run(monkeypatch: pytest.MonkeyPatch, words: str, run: Callable[[Any], None]) -> None:
    """Let a command call this instead, with itself as the argument."""
    monkeypatch.setattr(load_command(words), "run", lambda command: run(command))


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_overview_groups_every_command_with_an_example(words, capsys):
    assert run(*words) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}\n") for title in GROUPS]
    assert places == sorted(places)
    for words_of_command in COMMANDS:
        summary, example = summary_and_example(load_command(words_of_command))
        assert summary in shown
        assert example.startswith(f"pidm-nav {words_of_command}") and example in shown
    assert "--debug" in shown


def test_overview_keeps_to_narrow_lines_but_for_examples(capsys):
    run()
    examples = {summary_and_example(load_command(words))[1] for words in COMMANDS}
    rest = [line for line in capsys.readouterr().out.splitlines() if line.strip() not in examples]
    assert max(map(len, rest)) <= 100


def test_family_shows_only_its_own(capsys):
    assert run("demos") == 0
    shown = capsys.readouterr().out
    assert "demos info" in shown
    assert "quickstart" not in shown


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option, capsys):
    assert run(option) == 0
    assert capsys.readouterr().out == f"pidm-nav {__version__}\n"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_help(words, capsys):
    assert run("help", *words.split()) == 0
    shown = capsys.readouterr().out
    assert f"usage: pidm-nav {words}" in shown
    assert "Example: pidm-nav" in " ".join(shown.split())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_says_what_it_is(words, capsys):
    """No option is without help, and the help is in American spelling."""
    run(*words.split(), "--help")
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert not re.search(r"--[a-z-]+ (\S+ )?\((default|required)", shown)
    assert "default: None" not in shown and "{None" not in shown.replace("--gradient-clip {None}|FLOAT", "")
    assert not re.search(r"colour|behaviour|centre|neighbour|normalis|licence", shown)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_example_is_accepted(words, monkeypatch):
    calls: list[Any] = []
    replace_run(monkeypatch, words, calls.append)
    program, *rest = shlex.split(summary_and_example(load_command(words))[1])
    assert program == "pidm-nav"
    assert run(*rest) == 0
    assert len(calls) == 1 and isinstance(calls[0], load_command(words))


def test_options_reach_the_command(monkeypatch):
    seen: list[Any] = []
    replace_run(monkeypatch, "collect", seen.append)
    arguments = [
        "--task",
        "maze",
        "--out",
        "x.npz",
        "--any-angle",
        "--no-clip-noise",
        "--room-size",
        "5",
        "6",
        "--force",
    ]
    assert run("collect", *arguments) == 0
    (command,) = seen
    assert (command.task, str(command.out), command.any_angle, command.force) == ("maze", "x.npz", True, True)
    assert (command.env.clip_noise, command.env.room_size, command.env.noise_std) == (False, (5, 6), None)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["trian"], "train"),
        (["quick-start"], "quickstart"),
        (["demos", "inof"], "demos info"),
        (["analyze", "horizons"], "analyze horizon"),
    ],
)
def test_unknown_command_suggests_the_closest(words, meant, capsys):
    assert run(*words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"error: there is no command '{' '.join(words)}': did you mean '{meant}'?\n"


def test_unknown_command_that_is_like_no_other(capsys):
    assert run("xyzzy") == 2
    assert capsys.readouterr().err == "error: there is no command 'xyzzy': run pidm-nav to list them\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("doctor --nonsense", "Unrecognized options: --nonsense"),
        ("collect --out x.npz --epsiodes 3", "Unrecognized options: --epsiodes, 3: did you mean --episodes?"),
        ("train --agent bc --demos maze/astar --predictor learned", "Unrecognized options: --predictor, learned"),
        ("collect --task maze", "--out STR is missing: File to write, .npz or .hdf5, or minari:ID"),
        ("collect --out", "--out needs a value"),
        ("collect --out x.npz --episodes many", "--episodes: 'many' is not an integer"),
        ("record --size 3.5", "--size: '3.5' is not an integer"),
        ("record --fps fast", "--fps: 'fast' is not a number"),
        ("collect --out x.npz --expert me", "'--expert': choose one of astar, human-like, random, scripted"),
        ("evaluate maze/pidm --metric retrun", "'--metric': choose one of 'goal ratio', return, 'success rate'"),
        ("demos convert one.npz", "OUT is missing: "),
        ("train --agnet bc", "--agnet is not an option: did you mean '--agent'?"),
        ("train --batch-size 8 --no-scale-observations --learning-rate=1", "no task is given: give --demos"),
        ("train --agent bc --demos zigzag/astar --idm-demos zigzag/astar", "bc does not use --idm-demos: leave it out"),
        ("train --agent bc --demos zigzag/astar --predictor-demos maze/astar", "bc does not use --predictor-demos"),
        ("train --demos zigzag/astar --idm-demos random --random-play-steps 0", "--random-play-steps is 0: it must"),
        ("train --demos zigzag/astar --out ", "--out is '': give a name"),
        ("train --demos zigzag/astar --out=", "--out is '': give a name"),
        ("train --config missing.yaml", "there is no config 'missing.yaml': give a YAML file"),
        ("demos replay zigzag/astar --gif x.gif --fps 0", "--fps is 0.0: it must be a number from 0.1 to 1,000"),
        ("collect --out x.npz --room-size 100", "--room-size needs two integers, such as 800 600"),
        ("collect --out x.npz --room-size 100 wide", "--room-size needs two integers, such as 800 600"),
    ],
)
def test_wrong_options_are_told_in_one_line(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*words.split(" ")) == 2
    assert list(tmp_path.glob("[!r]*")) == []  # of `runs`, the default folder
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert told in error


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell, capsys):
    assert run("completion", shell) == 0
    script = capsys.readouterr().out
    assert all(word in script for words in COMMANDS for word in words.split())
    assert "learning-rate" in script  # one of those that depend on the agent
    assert "four-room" in script and "zigzag/human-like" in script and "delta-pidm" in script


@pytest.fixture(scope="module")
def bash_script() -> str:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        main(["completion", "bash"])
    return told.getvalue()


@pytest.mark.parametrize(
    ("words", "found", "absent"),
    [
        ("", ["train", "demos", "completion"], ["info"]),
        ("demos re", ["replay"], ["report"]),
        ("train --task ", ["maze", "tour-3d"], ["maze/pidm"]),
        ("train --agent de", ["delta-pidm"], ["bc"]),
        ("play --agent maze/", ["maze/pidm"], ["zigzag/pidm"]),
        ("evaluate maze/pidm a", ["astar"], []),
        ("evaluate --ep", ["--episodes"], ["--agent"]),
        ("evaluate maze/pidm --video ", [], ["--episodes", "astar"]),  # what is left is files
        ("demos info maze/", ["maze/human-like", "maze/astar"], []),
        ("collect --expert ", ["astar", "human-like"], []),
        ("train --horiz", ["--horizons"], []),
        ("train --random", ["--random-play-steps"], []),
        ("completion ", ["bash", "zsh", "fish"], []),
    ],
)
def test_the_script_for_bash_completes(words, found, absent, bash_script):
    given = ["pidm-nav", *words.split(" ")]
    asked = f"COMP_WORDS=({' '.join(map(shlex.quote, given))}); COMP_CWORD={len(given) - 1}; _pidm_nav"
    code = f'{bash_script}\n{asked}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    ended = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert set(found) <= set(ended.stdout.split()) and not set(absent) & set(ended.stdout.split())


def test_other_shells_are_refused(capsys):
    assert run("completion", "tcsh") == 2
    assert "choose one of bash, fish, zsh" in capsys.readouterr().err


@pytest.mark.parametrize("words", COMMANDS)
def test_help_names_no_empty_default_and_no_panel_twice(words, capsys):
    run(*words.split(), "--help")
    shown = capsys.readouterr().out
    assert "(default: )" not in shown and "options options" not in shown


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
    def fail(_: Any) -> None:
        raise error

    replace_run(monkeypatch, "doctor", fail)
    assert run("doctor") == 2
    assert capsys.readouterr().err == told + "\n"
    with pytest.raises(type(error)):
        main(["doctor", "--debug"])


def test_a_bug_is_not_hidden(monkeypatch):
    def fail(_: Any) -> None:
        raise RuntimeError("a bug")

    replace_run(monkeypatch, "doctor", fail)
    with pytest.raises(RuntimeError):
        main(["doctor"])


BROKEN_PLUGINS = {
    "def": "line 2, failed (SyntaxError: ",
    "1 / 0": "line 2, failed (ZeroDivisionError: division by zero): correct the file",
    "raise RuntimeError('no')": "line 2, failed (RuntimeError: no): correct the file, or add --debug for the traceback",
    "import nobodys_module": "line 2, failed (ModuleNotFoundError: No module named 'nobodys_module'): install it",
    "import json; json.loads('{')": "line 2, failed (JSONDecodeError: Expecting",
}


@pytest.mark.parametrize("code", BROKEN_PLUGINS)
@pytest.mark.parametrize("plugin", ["broken_parts.py", "broken_parts"])
def test_a_plugin_that_fails_is_told_with_its_line(code, plugin, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("broken_parts.py").write_text(f"import sys\n{code}\n")
    assert run("doctor", "--plugin", plugin) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the plugin '{tmp_path / 'broken_parts.py'}', {BROKEN_PLUGINS[code]}")
    assert error.count("\n") == 1
    with pytest.raises(ValueError) as raised:
        main(["doctor", "--plugin", plugin, "--debug"])
    assert type(raised.value.__cause__).__name__ in BROKEN_PLUGINS[code]


def test_a_plugin_of_the_environment_that_fails_is_told_too(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    environment = {**os.environ, "PIDM_NAV_PLUGINS": str(tmp_path / "broken.py")}
    command = [sys.executable, "-m", "pidm_nav.cli", "agents"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2 and "line 1, failed (ZeroDivisionError" in ended.stderr, ended.stderr


def test_control_c_exits_130(monkeypatch, capsys):
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    replace_run(monkeypatch, "doctor", stop)
    assert run("doctor") == 130
    assert capsys.readouterr().err == "stopped\n"
    with pytest.raises(KeyboardInterrupt):
        main(["doctor", "--debug"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_command_with_a_word_and_without_leftovers(number, code, box, tmp_path):
    words = [
        "train",
        "--demos",
        "zigzag/astar",
        "--agent",
        "bc",
        "--steps",
        "100000000",
        "--log-every",
        "5",
        "--out",
        "run",
    ]
    signaled = ["originals:run_and_signal", str(int(number)), "run/losses.jsonl", "1"]  # when it trains
    ended = box.run([*signaled, *words], tmp_path / "here")
    assert ended.code == code, ended.err
    assert ended.err.endswith("stopped\n") and "Traceback" not in ended.err
    assert not [path for path in tmp_path.rglob(".*") if ".tmp" in path.name or path.name.endswith(".lock")]


def test_debug_shows_the_traceback_of_a_real_process():
    command = [sys.executable, "-m", "pidm_nav.cli", "demos", "info", "nowhere.npz"]
    plain = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    debug = subprocess.run([*command, "--debug"], capture_output=True, text=True)
    assert debug.returncode == 1
    assert "Traceback" in debug.stderr


def test_errors_of_the_library_name_no_options():
    """Its users give arguments; the command line calls them by their options."""
    root, wrong = Path(pidm_nav.__file__).parent, []
    paths = {path for folder in (root, root / "agents", root / "demos") for path in folder.rglob("*.py")}
    for path in (path for path in paths if path.relative_to(root).parts[0] not in ("cli.py", "commands")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for part in ast.walk(node) if isinstance(node, ast.Raise) else ():
                if isinstance(part, ast.Constant) and re.search(r"(?<!\S)--[a-z]", str(part.value)):
                    wrong.append(f"{path.name}:{part.lineno}: {part.value}")
    assert not [each for each in wrong if not re.search("pip install|pidm-nav |ray start", each)], wrong


def test_an_option_means_the_same_wherever_it_is():
    """--device is where torch computes, in every command that has it; what a person plays with is the controller."""
    for words in COMMANDS:
        names = {each.name for each in fields(load_command(words))}
        assert words not in ("record", "play") or ("controller" in names and "device" not in names)


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise")
@pytest.mark.parametrize("words", ["train --help", "--version", "completion bash", ""])
def test_a_reader_who_has_seen_enough_ends_a_command_without_a_word(words):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pidm_nav.cli", *words.split()]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_overview_imports_nothing_heavy():
    code = (
        "import sys; from pidm_nav.cli import main; main([])\n"
        "heavy = {'torch', 'pygame', 'matplotlib', 'scipy', 'stable_baselines3'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", ["x" * 5000, "x y " * 2000, "9" * 5000])
@pytest.mark.parametrize("words", ["evaluate", "evaluate maze/pidm --episodes", "evaluate maze/pidm --metric", "demos"])
def test_a_long_value_is_not_echoed_whole(capsys, words, value):
    assert run(*words.split(), value) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and len(told) < 450


@pytest.mark.parametrize("host", ["a\0b", "", "x" * 500, "a b"])
def test_an_impossible_host_is_one_sentence(capsys, host, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["studio", "--no-browser", "--host", host])
    assert ended.value.code == 2 and "--host is" in capsys.readouterr().err


@pytest.mark.parametrize("otherwise", ["", "\nexcept KeyboardInterrupt: raise ImportError('as NumPy does') from None"])
def test_control_c_during_imports_is_a_word(tmp_path, otherwise):
    raised = "import signal; signal.raise_signal(signal.SIGINT)"
    (tmp_path / "gymnasium.py").write_text(f"try: {raised}{otherwise}" if otherwise else raised)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[1]}"}
    for code in ("from pidm_nav_command import main; main()", f"import pidm_nav_command; {raised}"):
        ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (130, "stopped\n")
    ended = subprocess.run([sys.executable, "-c", f"import os; os.close(2); {code}"], env=environment)
    assert ended.returncode == 130


THREAD = """
import threading
def run():
    from pidm_nav_command import main
    main()
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_the_command_runs_in_a_thread_which_handles_no_signals():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run([sys.executable, "-c", THREAD], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "") and "quickstart" in ended.stdout
