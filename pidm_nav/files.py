"""Atomic writing of files, with locks against other processes."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

MAX_WAIT = 60.0  # seconds for another writer


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds, and is removed if it fails."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"'{path}' is a folder: give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path) as temporary:
            yield temporary
            with temporary.open("rb+") as written:  # Windows cannot flush a file opened for reading
                os.fsync(written.fileno())
            os.replace(temporary, path)
    except OSError as error:
        raise OSError(f"cannot write '{path}' ({error.strerror or error}): choose another place") from None


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder in the same file system as `parent`."""
    parent.mkdir(parents=True, exist_ok=True)
    with _temporary(parent / "pidm-nav") as folder:
        folder.mkdir()
        yield folder


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a hidden temporary path, locked for one writer at a time; leftovers of killed writers are removed."""
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    with only_writer(temporary, "try again", wait=True):
        try:
            _remove(temporary)
            yield temporary
        finally:
            _remove(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and the locks of dead writers, also of those that died after their file was whole."""
    for lock in folder.glob("..*.tmp*.lock"):
        temporary = lock.with_name(lock.name[1:].removesuffix(".lock"))
        with suppress(OSError), only_writer(temporary, "try again") as locked:  # a living writer holds its lock
            if locked:
                _remove(temporary)


def _remove(path: Path) -> None:
    """Remove a file, a folder or a link, but never a link's target."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def only_writer(path: str | Path, remedy: str, wait: bool = False) -> Iterator[bool]:
    """Lock a file or folder against other processes inside the block; the lock ends with its process.

    Yields whether it is locked: a file system without locks locks nothing.

    Args:
        path: file or folder to lock, by a hidden file beside it; its folder must exist.
        remedy: end of the error if another process holds the lock.
        wait: wait up to a minute for the other process.
    """
    path = Path(path).absolute()
    place = path.with_name(f".{path.name}.lock")
    place.parent.stat()  # raises an error if the folder is missing, which FileLock would create
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(place.lstat().st_mode):  # one call, as another process may remove its lock at any time
            raise OSError(f"the lock '{place}' is a link or a folder, not a file: remove it")
    lock = FileLock(place, MAX_WAIT if wait else 0, thread_local=False)  # another thread may release it
    try:
        lock.acquire(poll_interval=0.01)
    except Timeout:
        raise BlockingIOError(f"'{path}' is being written to by another process: {remedy}") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
            raise
    try:
        yield lock.is_locked
    finally:
        with suppress(OSError):  # removed while held; waiting processes create another
            place.unlink()
        lock.release()


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a binary file."""
    with atomic_file(path) as temporary, temporary.open("xb") as file:
        file.write(content)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(content, indent=indent) + "\n")


def read_bytes(path: str | Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; folders, devices and pipes raise ValueError."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"'{path}' is not a regular file: replace it by one")
    if status.st_size > most:
        raise ValueError(f"'{path}' has {status.st_size:,} bytes, and at most {most:,} are read: give a smaller file")
    return Path(path).read_bytes()


def read_json(path: str | Path, remedy: str) -> Any:
    """Read a JSON file; the error for a damaged file ends with the remedy."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"'{path}' is not a readable JSON file: {remedy}") from None


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file; floats have six digits, and nan is empty."""
    with atomic_file(path) as temporary, temporary.open("x", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "" if value != value else f"{value:.6g}"


def writable_folder(folder: str | Path, what: str = "folder") -> Path:
    """Create a folder, and check that files can be written to it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OSError(f"cannot write to '{folder}' ({reason}): choose another {what}") from None
