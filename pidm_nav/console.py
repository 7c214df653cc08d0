"""Output of commands: text, tables and progress bars."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from pidm_nav.plugins import plugins_in_use

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Advance = Callable[..., None]
"""Called as advance(steps, note="...") as work progresses."""


_drawn_on: list[Console] = []  # the terminal of a progress bar, which must also print everything else


def console(stderr: bool = False) -> Console:
    """Return the console; lines are wide enough for tables if the output is a file or a pipe."""
    from rich.console import Console

    terminal = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not terminal.is_terminal:
        return Console(stderr=stderr, width=160, highlight=False, soft_wrap=True)
    return _drawn_on[-1] if _drawn_on else terminal


def say(text: str, style: str | None = None, indent: int = 0) -> None:
    """Print plain text, wrapped with a hanging indent in a terminal."""
    terminal, text = console(), printable(text)
    if terminal.is_terminal:
        text = "\n".join(wrapped(line, terminal.width, " " * indent) for line in text.split("\n"))
    terminal.print(text, style=style, markup=False)


def shell_command(*words: object) -> str:
    """Return a `pidm-nav` command to run next: its words quoted for a shell, with the plugins of this command."""
    plugins = [word for plugin in plugins_in_use for word in ("--plugin", plugin)]
    return shlex.join(["pidm-nav", *map(str, words), *plugins])


def say_command(command: str, indent: int = 2, style: str = "cyan") -> None:
    """Print a shell command that can be copied and run, also if it takes several lines."""
    terminal, text, margin = console(), printable(command), "\n" + " " * indent
    if terminal.is_terminal:
        unbroken = re.sub("'[^']*'", lambda quoted: quoted[0].replace(" ", "\0"), text)
        text = wrapped(unbroken, terminal.width - indent - 2, "  ").replace("\n", f" \\{margin}").replace("\0", " ")
    terminal.print(margin[1:] + text, style=style, markup=False)


def wrapped(line: str, width: int, indent: str = "") -> str:
    """Return a line wrapped at words; spaces stay, as they may align columns."""
    keep: Any = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
    return textwrap.fill(line, max(width, 20), subsequent_indent=indent, **keep)


def printable(text: str) -> str:
    """Return a text with escaped control characters, so that file contents cannot control the terminal."""
    text = text.encode(errors="backslashreplace").decode()  # file names may hold invalid bytes
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural: "1 episode", "2,000 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


Rows = Sequence[Mapping[str, Any]]


def print_table(rows: Rows, columns: Mapping[str, str] | None = None, title: str = "") -> None:
    """Print rows as a table.

    Args:
        rows: one mapping per row.
        columns: keys to show, and their headings. Default: all keys of the first row.
        title: title of the table.
    """
    console().print(_make_table(rows, columns or {key: key for key in rows[0]}, title))


def _make_table(rows: Rows, columns: Mapping[str, str], title: str = "") -> Table:
    from rich.table import Table
    from rich.text import Text

    heading_line = Text(printable(title)) if title else None
    table = Table(box=None, pad_edge=False, header_style="bold", title=heading_line, title_justify="left")
    for key, heading in columns.items():
        numeric = all(isinstance(row.get(key, 0.0), int | float) for row in rows)
        table.add_column(Text(printable(heading)), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(printable(_text(row.get(key, "")))) for key in columns))
    return table


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@contextmanager
def progress_bar(
    title: str, total: int, done: int = 0, show: bool = True, table: Callable[[], Rows] | None = None
) -> Iterator[Advance]:
    """Show a progress bar on standard error, and yield the function that advances it.

    Args:
        title: title of the bar.
        total: total number of steps.
        done: number of steps done before.
        show: draw the bar, unless standard error is a file or a pipe.
        table: returns the rows of a table above the bar.
    """
    terminal = console(stderr=True)
    if not show or not (terminal.is_terminal or terminal.is_jupyter):
        yield lambda steps=1, note="": None
        return
    if terminal.is_jupyter:
        yield from _notebook_bar(title, total, done)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar(Progress):
        def get_renderables(self) -> Iterable[RenderableType]:
            rows = table() if table is not None else ()
            if rows:
                yield _make_table(rows, {key: key for key in rows[0]})
            yield self.make_tasks_table(self.tasks)

    note_column = TextColumn("{task.fields[note]}", markup=False)
    columns = [TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), note_column]
    settings: dict[str, Any] = {"console": terminal, "transient": True, "speed_estimate_period": 1800}
    with Bar(*columns, TimeRemainingColumn(), **settings) as progress, _owning(terminal):
        bar = progress.add_task(printable(title), total=total, completed=done, note="")

        def advance(steps: int = 1, note: str | None = None) -> None:
            fields: dict[str, Any] = {} if note is None else {"note": printable(note)}
            progress.update(bar, advance=steps, **fields)

        yield advance


@contextmanager
def _owning(terminal: Console) -> Iterator[None]:
    """Print all output inside the block above the bar on this terminal."""
    _drawn_on.append(terminal)
    try:
        yield
    finally:
        _drawn_on.remove(terminal)


def _notebook_bar(title: str, total: int, done: int) -> Iterator[Advance]:
    """Show a bar in a notebook, without ipywidgets, which rich would need."""
    import IPython.display

    notebook: Any = IPython.display
    handle = notebook.display(notebook.HTML(""), display_id=True)

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal done
        done += steps
        bar = f'<progress value="{done}" max="{total}"></progress>'
        handle.update(notebook.HTML(f"{escape(title)} {bar} {done:,}/{total:,} {escape(note)}"))

    try:
        yield advance
    finally:
        handle.update(notebook.HTML(""))
