"""What is printed stays plain text: neither markup nor control characters of a file reach the terminal."""

import pytest

from pidm_nav.console import counted, print_table, printable, say


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
