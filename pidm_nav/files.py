"""How files are written: whole or not at all, by one writer at a time, and with nothing left behind."""

from __future__ import annotations

import csv
import itertools
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl

_uses = itertools.count()  # so that threads, and blocks within blocks, have names of their own


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; it replaces `path` if the block succeeds and is removed if it fails."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"'{path}' is a folder: give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path) as temporary:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
    except OSError as error:
        raise OSError(f"cannot write '{path}' ({error.strerror or error}): choose another place") from None


@contextmanager
def temporary_folder(parent: Path, name: str = "pidm-nav") -> Iterator[Path]:
    """Make a folder whose content can be renamed to its place in the same file system; it is removed at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    with _temporary(parent / name) as folder:
        folder.mkdir()
        yield folder


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a hidden name that says which process uses it, and remove what dead processes left for the same path."""
    _remove_leftovers(path)
    start, end = _marks(path)
    temporary = path.with_name(f"{start}{os.getpid()}-{next(_uses)}{end}")
    _remove(temporary)  # left by a dead process that had our number, as in a container that was started again
    try:
        yield temporary
    finally:
        _remove(temporary)


def _marks(path: Path) -> tuple[str, str]:
    """Return how temporary names for a path begin and end on this machine."""
    return f".{path.stem}.{socket.gethostname()}-", f".tmp{path.suffix}"


def _remove_leftovers(path: Path) -> None:
    start, end = _marks(path)
    with suppress(OSError):
        for other in path.parent.iterdir():
            owner, _, use = other.name.removeprefix(start).removesuffix(end).partition("-")
            if other.name == f"{start}{owner}-{use}{end}" and owner.isdigit() and not _is_alive(int(owner)):
                _remove(other)


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where this would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def only_writer(path: str | Path, remedy: str, wait: bool = False) -> Iterator[None]:
    """Be the only process that writes to a file or folder while the block runs; the lock dies with its process.

    What dead processes left beside the path is removed first.

    Args:
        path: what is written to; its lock is a hidden file beside it, whose folder must exist.
        remedy: what to do about the process that holds the lock, for the error.
        wait: wait for that process instead of raising an error.
    """
    if sys.platform == "win32":  # has no such locks: nothing keeps two processes from writing to one place
        yield
        return
    path = Path(path).absolute()
    place = path.with_name(f".{path.name}.lock")
    _remove_leftovers(path)
    while True:
        lock = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 200).decode(errors="replace") or "another process"
            os.close(lock)
            raise BlockingIOError(f"'{path}' is being written to by {holder}: {remedy}") from None
        except OSError:  # a file system without locks
            pass
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(place)):
                break
        os.close(lock)  # its last holder has removed it: take the one that is there now
    try:
        with suppress(OSError):  # a full disk: the lock holds without a text that says whose it is
            os.ftruncate(lock, 0)
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()} since {now}".encode(), 0)
        yield
    finally:
        _remove(place)
        os.close(lock)


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
