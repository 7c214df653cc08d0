"""The one way to write a file: whole or not at all, under a temporary name that is renamed at the end."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; it replaces `path` if the block succeeds and is removed if it fails."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"'{path}' is a folder: give the name of a file")
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(f"cannot write '{path}' ({error.strerror or error}): choose another place") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a binary file."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(content, indent=indent) + "\n")


def read_json(path: str | Path, remedy: str) -> Any:
    """Read a JSON file; the error for a damaged one ends in the remedy."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"'{path}' is not a readable JSON file: {remedy}") from None


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file with one line per row; floats keep six digits, and a missing number is empty."""
    with atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "" if value != value else f"{value:.6g}"


def writable_folder(folder: str | Path, option: str = "--out") -> Path:
    """Make a folder and check that files can be written to it, before any work is done for it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OSError(f"cannot write to '{folder}' ({reason}): choose another {option}") from None
