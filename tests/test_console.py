"""What is printed stays plain text: neither markup nor control characters of a file reach the terminal."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from pidm_nav.console import counted, print_table, printable, say, shell_command


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Δ text\n\tand more", "plain Δ text\n\tand more"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("back\x08\rover\x00\x7f\x9b", "back\\x08\\x0dover\\x00\\x7f\\x9b"),
        ("name\udcff.npz", "name\\udcff.npz"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    assert printable(text) == shown == printable(printable(text))


@pytest.mark.parametrize("text", ["run[/bold]x", "run[red]x", "[/]", "x\x1b[2Jy"])
def test_what_is_said_is_what_was_given(text, capsys):
    say(text)
    print_table([{text: text, "number": 1.0}], title=text)
    told = capsys.readouterr().out
    assert told.count(printable(text)) == 4 and "\x1b" not in told


def test_numbers_have_their_nouns():
    assert [counted(number, "step") for number in (0, 1, 2000)] == ["0 steps", "1 step", "2,000 steps"]


def screen(code: str, columns: int) -> list[str]:
    """Return the lines that a terminal shows after a program has run in it."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals need Unix")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "40", "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    told = b""
    while chunk := _read(ours):
        told += chunk
    os.close(ours)
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|[\r\n]|[^\r\n\x1b]+", told.decode()):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # what Linux says at the end
        return b""


SENTENCE = "After five demonstrations PIDM reaches 95% of the goals, BC 60%; PIDM is better in nine of nine pairs."


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_what_is_said_beside_a_bar_stands_above_it_and_is_wrapped_at_words(columns):
    code = f"""
from pidm_nav.console import progress_bar, say
with progress_bar("trainings", 2) as advance:
    say({SENTENCE!r})
    advance(2)
say("done")
"""
    shown = screen(code, columns)
    assert " ".join(" ".join(shown).split()) == f"{SENTENCE} done"  # no bar is left, and no word is broken
    assert max(map(len, shown)) <= columns


@pytest.mark.parametrize("folder", ["quickstart", "my quickstart"])
def test_a_command_that_takes_several_lines_can_be_copied(folder):
    agent = f"{folder}/sweeps/agents/four-room_pidm_2_0"
    command = shell_command("play", "--task", "four-room", "--agent", agent, "--rounds", 3)
    shown = screen(f"from pidm_nav.console import say_command; say_command({command!r})", 60)
    assert len(shown) > 2 and max(map(len, shown)) <= 60
    joined = subprocess.run(
        ["sh", "-c", "set -- " + "\n".join(shown) + '\nprintf "%s\\n" "$@"'], capture_output=True, text=True
    )
    assert joined.stdout.splitlines() == shlex.split(command)
    assert f"--agent {agent} --rounds" in " ".join(joined.stdout.splitlines())


def test_columns_of_spaces_stay_and_the_rest_is_indented():
    shown = screen("from pidm_nav.console import say; say('  name      ' + 'word ' * 20, indent=12)", 40)
    assert shown[0].startswith("  name      word word") and shown[1].startswith(" " * 12 + "word")
