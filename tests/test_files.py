"""Files are written whole or not at all, by one writer at a time, and dead processes leave nothing for good."""

import csv
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pidm_nav.files import (
    atomic_file,
    only_writer,
    read_json,
    remove_leftovers,
    temporary_folder,
    writable_folder,
    write_bytes,
    write_json,
    write_rows,
    write_text,
)

Start = Callable[..., "subprocess.Popen[str]"]
HELD = "print('ready', flush=True); input()"  # what a process does inside a block until it may go on
ATOMIC = f"with atomic_file(path) as temporary: temporary.write_text('its own'); {HELD}"
FOLDER = f"with temporary_folder(path.parent) as folder: (folder / 'part').write_text('x'); {HELD}"
WRITER = f"with only_writer(path, 'wait for it'): {HELD}"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start processes that run code with the names of `pidm_nav.files` and a `path`; none outlives the test."""
    running: list[subprocess.Popen[str]] = []

    def run(code: str, path: Path) -> "subprocess.Popen[str]":
        header = "import os, sys; from pathlib import Path; from pidm_nav.files import *; path = Path(sys.argv[1])\n"
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen([sys.executable, "-c", header + code, str(path)], text=True, **streams)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def held(process: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    """The process, once it is inside its block."""
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# ---- whole or not at all


def test_a_file_appears_when_its_block_ends(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists() and temporary.parent == path.parent and temporary.suffix == ".txt"
    assert path.read_text() == "whole" and names(path.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_failing_block_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise error("stop")
    assert path.read_text() == "old" and names(tmp_path) == ["file.txt"]


def test_a_block_that_writes_nothing_is_an_error_that_names_the_file(tmp_path):
    told = r"cannot write '.*file.txt' \(No such file or directory\): choose another place"
    with pytest.raises(OSError, match=told), atomic_file(tmp_path / "file.txt"):
        pass


@pytest.mark.parametrize("write", [write_text, write_json, lambda path, text: write_rows(path, [{"a": text}])])
def test_a_folder_is_not_overwritten(tmp_path, write):
    (tmp_path / "there").mkdir()
    with pytest.raises(OSError, match="there' is a folder: give the name of a file"):
        write(tmp_path / "there", "text")


def test_a_place_below_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path, told in ((tmp_path / "file" / "x.txt", "cannot write '"), (tmp_path / "file", "cannot write to '")):
        with pytest.raises(OSError, match=f"{told}{path}"):
            write_text(path, "x") if path.suffix else writable_folder(path)
    assert names(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_file_and_is_told_with_its_name(tmp_path, start):
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    code = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (lambda: write_bytes(path, bytes(5000)), lambda: write_rows(path, [{"a": "x" * 5000}])):
    try:
        write()
    except OSError as error:
        print(error)
"""
    told, errors = start(code, path).communicate()
    assert told == f"cannot write '{path}' (File too large): choose another place\n" * 2 and not errors
    assert path.read_bytes() == b"old" and names(tmp_path) == ["file.bin"]


# ---- Windows

COLLECT = """
import signal
import sys
import pytest
for name in ("SIGKILL", "SIGALRM", "SIGXFSZ", "SIGUSR1"):
    vars(signal).pop(name)
for name in [name for name in sys.modules if name.split(".")[0] == "pidm_nav"]:
    del sys.modules[name]  # imported again, without the modules of Unix
sys.modules["resource"] = sys.modules["fcntl"] = None
sys.exit(pytest.main([sys.argv[1], "--collect-only", "-p", "no:xdist"]))
"""


def test_a_file_is_flushed_through_a_handle_that_may_write(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: os.write(descriptor, b""))  # fails as fsync does on Windows
    write_text(tmp_path / "file.txt", "whole")
    assert (tmp_path / "file.txt").read_text() == "whole"


@pytest.mark.slow  # collects the whole suite again
def test_tests_are_collected_without_the_modules_of_unix(box, tmp_path):
    program = tmp_path / "collect.py"
    program.write_text(COLLECT)
    found = box.run([str(program), str(Path(__file__).parent)], tmp_path / "here")
    assert found.code == 0, found.out[-2000:] + found.err[-2000:]


# ---- nothing left behind


@pytest.mark.parametrize("code", [ATOMIC, FOLDER])
def test_what_a_dead_process_left_is_gone_after_the_next_write(tmp_path, start, code):
    path = tmp_path / "file.txt"
    (tmp_path / ".file.txt").write_text("somebody's own")
    kill(held(start(code, path)))
    assert len(names(tmp_path)) == 3  # with the lock of the name that it wrote to
    if code is ATOMIC:
        write_text(path, "mine")
    else:
        with temporary_folder(tmp_path) as folder:
            assert names(folder) == []
    assert [name for name in names(tmp_path) if name != "file.txt"] == [".file.txt"]


DEAD = "os.replace = lambda *names: (os.rename(*names), os.kill(os.getpid(), 9))"  # killed when the file is whole


def test_a_lock_of_a_writer_that_died_after_its_file_was_whole_is_removed(tmp_path, start):
    assert start(f"{DEAD}\nwrite_text(path, 'whole')", tmp_path / "file.txt").wait() == -9
    assert names(tmp_path) == ["..file.tmp.txt.lock", "file.txt"] and (tmp_path / "file.txt").read_text() == "whole"
    kill(held(start(ATOMIC, tmp_path / "half.txt")))
    living = held(start(ATOMIC, tmp_path / "living.txt"))
    (tmp_path / "diary").write_text("dear diary")
    os.symlink(tmp_path / "diary", tmp_path / "..link.tmp.txt.lock")
    remove_leftovers(tmp_path)
    its_own = ["..living.tmp.txt.lock", ".living.tmp.txt"]
    assert names(tmp_path) == sorted([*its_own, "..link.tmp.txt.lock", "diary", "file.txt"])
    assert (tmp_path / "diary").read_text() == "dear diary"
    living.communicate("go on\n")
    assert (tmp_path / "living.txt").read_text() == "its own"


def test_leftovers_stay_where_no_lock_tells_who_lives(tmp_path, monkeypatch):
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with atomic_file(tmp_path / "file.txt") as temporary:
        temporary.write_text("its own")
        (tmp_path / f".{temporary.name}.lock").touch()
        remove_leftovers(tmp_path)
    assert (tmp_path / "file.txt").read_text() == "its own"


@pytest.mark.parametrize("code", [ATOMIC, FOLDER])
def test_what_a_living_process_writes_is_left_alone(tmp_path, start, code, monkeypatch):
    path = tmp_path / "pidm-nav"  # which is also how the temporary folder is called
    other = held(start(code, path))
    its_own = names(tmp_path)
    monkeypatch.setattr("pidm_nav.files.MAX_WAIT", 0)
    with pytest.raises(OSError, match=r"pidm-nav' .*is being written to by another process: try again"):
        write_text(path, "mine")
    assert names(tmp_path) == its_own
    other.communicate("go on\n")
    assert other.returncode == 0
    write_text(path, "mine")
    assert path.read_text() == "mine" and names(tmp_path) == ["pidm-nav"]


def test_a_temporary_folder_is_gone_at_the_end_whatever_happens(tmp_path):
    with pytest.raises(KeyboardInterrupt), temporary_folder(tmp_path / "new") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
        raise KeyboardInterrupt
    assert names(tmp_path / "new") == []


# ---- one writer at a time


def test_a_second_writer_is_refused_with_a_sentence(tmp_path, start):
    path = tmp_path / "run"
    first = held(start(WRITER, path))
    told = "run' is being written to by another process: choose another --out"
    with pytest.raises(OSError, match=told), only_writer(path, "choose another --out"):
        pass
    first.communicate("go on\n")
    assert first.returncode == 0 and names(tmp_path) == []
    with only_writer(path, ""):
        assert len(names(tmp_path)) == 1
    assert names(tmp_path) == []


def test_the_same_process_cannot_write_twice_at_once_either(tmp_path):
    with only_writer(tmp_path / "run", ""):
        with pytest.raises(OSError, match="another process: wait"), only_writer(tmp_path / "run", "wait"):
            pass
        with only_writer(tmp_path / "other", ""):
            pass


def test_the_lock_dies_with_its_process(tmp_path, start):
    kill(held(start(WRITER, tmp_path / "run")))
    with only_writer(tmp_path / "run", ""):
        pass
    assert names(tmp_path) == []


def test_a_failing_block_gives_the_lock_back(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), only_writer(tmp_path / "run", ""):
            raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_writer_may_wait_for_another(tmp_path, start):
    path = tmp_path / "run"
    code = "print('ready', flush=True)\nwith only_writer(path, '', wait=True): print(path.read_text())"
    with only_writer(path, ""):
        second = held(start(code, path))
        path.write_text("the first is done")
    told, errors = second.communicate()
    assert told == "the first is done\n" and not errors
    assert names(tmp_path) == ["run"]


def test_many_that_wait_never_overlap_and_leave_no_lock(tmp_path, start):
    path = tmp_path / "run"
    path.mkdir()
    code = """
print('ready', flush=True); input()
for _ in range(25):
    with only_writer(path, '', wait=True):
        os.close(os.open(path / 'inside', os.O_CREAT | os.O_EXCL))  # fails if another is inside
        os.unlink(path / 'inside')
        with (path / 'count').open('a') as file:
            file.write('x')
"""
    processes = [held(start(code, path)) for _ in range(6)]
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[1] for process in processes] == [""] * 6
    assert (path / "count").read_text() == "x" * 150 and names(tmp_path) == ["run"]


def test_a_lock_needs_a_folder_to_be_in(tmp_path):
    with pytest.raises(FileNotFoundError), only_writer(tmp_path / "nowhere" / "run", ""):
        pass
    assert names(tmp_path) == []


# ---- other people's folders


@pytest.mark.parametrize("write", [write_text, lambda path, _: only_writer(path, "").__enter__()])
@pytest.mark.parametrize("name", [".file.txt.lock", ".file.tmp.txt", "..file.tmp.txt.lock"])
def test_a_link_planted_for_a_lock_or_a_temporary_file_is_never_followed(tmp_path, write, name):
    (tmp_path / "diary").write_text("dear diary")
    os.symlink(tmp_path / "diary", tmp_path / name)
    with suppress(OSError):
        write(tmp_path / "file.txt", "text")
    assert (tmp_path / "diary").read_text() == "dear diary"


def test_a_link_in_place_of_a_lock_is_a_sentence(tmp_path):
    os.symlink(tmp_path / "diary", tmp_path / ".run.lock")  # even one that leads nowhere
    told = r"the lock '.*\.run\.lock' is a link or a folder.*: remove it"
    with pytest.raises(OSError, match=told), only_writer(tmp_path / "run", ""):
        pass
    assert names(tmp_path) == [".run.lock"]


def test_commands_spare_what_a_strangers_folder_points_at(tmp_path, monkeypatch):
    from pidm_nav.cli import main

    monkeypatch.chdir(tmp_path)
    diary = tmp_path / "diary"
    diary.write_text("dear diary")
    (tmp_path / "in").mkdir()
    main(["collect", "--task", "zigzag", "--episodes", "1", "--out", "in/d.npz"])
    for lock in ("in/.d.npz.lock", "sw/.manifest.json.lock"):
        (tmp_path / lock).parent.mkdir(exist_ok=True)
        os.symlink(diary, tmp_path / lock)
    for words in (
        "demos edit in/d.npz --keep 0 --in-place",
        "sweep --demos in/d.npz --agents retrieval-bc --num-demos 1 --seeds 1 --out sw",
    ):
        with pytest.raises(SystemExit) as ended:
            main(words.split())
        assert ended.value.code == 2
    assert diary.read_text() == "dear diary"


# ---- kinds of files


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "", "{", "\ufeff{}", "{'a': 1}", "1 2"])
def test_a_damaged_json_file_is_one_sentence(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^'.*file.json' is not a readable JSON file: mend it$"):
        read_json(path, "mend it")


def test_bytes_that_are_no_text_are_no_json(tmp_path):
    (tmp_path / "file.json").write_bytes(b'"\xff\xfe"')
    with pytest.raises(ValueError, match="not a readable JSON file: mend it"):
        read_json(tmp_path / "file.json", "mend it")


@pytest.mark.parametrize("indent", [None, 1])
def test_json_comes_back_as_it_was(tmp_path, indent):
    content = {"a": [1, 2.5, None, True], "ü": {"b": "text\n"}}
    write_json(tmp_path / "file.json", content, indent)
    assert read_json(tmp_path / "file.json", "") == content
    assert json.loads((tmp_path / "file.json").read_text(encoding="utf-8")) == content


def test_rows_have_the_columns_of_all_and_six_digits(tmp_path):
    rows = [{"a": 1 / 3, "b": "x,\ny"}, {"c": float("nan"), "a": 123456789}, {"b": True, "c": float("inf")}]
    write_rows(tmp_path / "file.csv", rows)
    with (tmp_path / "file.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    assert table == [["a", "b", "c"], ["0.333333", "x,\ny", ""], ["123456789", "", ""], ["", "True", "inf"]]


def test_no_rows_are_an_empty_table(tmp_path):
    write_rows(tmp_path / "file.csv", [])
    assert (tmp_path / "file.csv").read_text().strip() == ""


def test_text_is_utf_8_and_bytes_are_bytes(tmp_path):
    write_text(tmp_path / "a", "Δ\n")
    write_bytes(tmp_path / "b", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == "Δ\n".encode() and (tmp_path / "b").read_bytes() == b"\x00\xff"


def test_a_writable_folder_is_made_and_stays_empty(tmp_path):
    assert writable_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert names(tmp_path / "a" / "b") == []
