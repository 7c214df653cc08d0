"""Runs commands in forked processes that are limited, watched and killed.

A process that has imported everything, and has run a few commands, forks a child per run, so that a run costs neither
imports nor what is made once per process, such as plans and fonts. The child calls
`pidm_nav.cli.main`, or a function of a test helper, in a folder of its own. An audit hook sees every file that Python
code opens for writing, renames or removes: it counts them, kills the process (SIGKILL) at a given one, and notes those
outside the folder.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import pkgutil
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

LIBRARIES = (
    "torch",
    "torch.optim.swa_utils",
    "safetensors.torch",
    "stable_baselines3",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_pdf",
    "scipy.stats",
    "scipy.spatial",
    "pygame",
    "PIL.Image",
    "PIL.GifImagePlugin",
    "imageio.v2",
    "imageio_ffmpeg",
    "jinja2",
    "joblib",
    "tyro",
    "yaml",
    "rich.table",
    "rich.progress",
)
WARM_UP = (  # no training: torch refuses to go on with that in a fork
    "collect --task zigzag --episodes 1 --out d.npz",
    "evaluate zigzag/pidm --episodes 1",
    "evaluate astar --task maze --episodes 1",
    "demos plot d.npz --out x.png",
    "demos replay d.npz --gif x.gif --size 32",
)
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MEGABYTE = 1 << 20
TOO_LONG = "took too long"


@dataclass
class Limits:
    """What a run may use, and when it is killed; None for no limit."""

    kill_at: int | None = None  # number of the change to the folder before which the process is killed
    kill_bytes: int | None = None  # size of a file beyond which the process is killed
    file_bytes: int | None = None  # size beyond which files cannot grow, as on a full disk
    seconds: float | None = None  # of processor time
    megabytes: int | None = None  # of memory beyond what the server has
    inline: bool = False  # run the jobs of a sweep in this process instead of in workers; predictors learn in 20 steps


@dataclass
class Ended:
    """How a run ended."""

    code: int  # the exit code, or minus the number of a signal
    out: str
    err: str
    changes: int  # to files in the folder
    megabytes: float  # the most memory used beyond what the server has
    outside: list[str] = field(default_factory=list)  # files changed outside the folder, modules that data imported
    result: Any = None  # what a function returned

    @property
    def told(self) -> bool:
        """Whether the run ended with one sentence, as errors must."""
        return self.code == 2 and self.err.strip().startswith("error: ") and "\n" not in self.err.strip()


class Sandbox:
    """The process that forks; close it at the end."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment |= {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "MPLBACKEND": "Agg", "COLUMNS": "160"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, __file__], stdin=pipe, stdout=pipe, env=environment)

    def run(
        self,
        words: list[str],
        folder: Path,
        *,
        allowed: Path | None = None,
        env: dict[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Ended:
        """Run a command in a folder.

        A first word such as `module:function` calls a function with the other words; one that ends with `.py` is a
        program that gets them as its arguments.

        Args:
            words: the command's words.
            folder: the current folder of the run.
            allowed: the folder outside which no file may be written; defaults to `folder`.
            env: more environment variables.
            limits: what the run may use.
        """
        folder.mkdir(parents=True, exist_ok=True)
        notes = (allowed or folder).with_name(f"{(allowed or folder).name}.run")
        notes.mkdir(exist_ok=True)
        request = {"words": words, "folder": str(folder), "allowed": str(allowed or folder), "notes": str(notes)}
        request |= {"env": {"TMPDIR": str(notes), **(env or {})}, "limits": vars(limits or Limits())}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        out, err = ((notes / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        told = notes / "result.json"
        result = json.loads(told.read_text()) if told.exists() else None
        outside = (notes / "outside").read_text(errors="replace").splitlines()
        for name in ("out", "err", "outside", "result.json"):
            (notes / name).unlink(missing_ok=True)
        return Ended(reply["code"], out, err, reply["changes"], reply["megabytes"], outside, result)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Watch:
    """The audit hook: what it may not see happen, and what it counts."""

    def __init__(self) -> None:
        self.active = False
        self.changes = 0
        self.kill_at: int | None = None

    def begin(self, allowed: str, notes: str, counter: int, outside: int, kill_at: int | None) -> None:
        self.allowed, self.notes, self.counter, self.outside, self.kill_at = allowed, notes, counter, outside, kill_at
        self.changes, self.process, self.active = 0, os.getpid(), True

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or os.getpid() != self.process:
            return
        if event == "pickle.find_class":
            self._note(f"pickle {arguments}")
        elif event == "import" and arguments[0] in ("this", "antigravity"):
            self._note(f"import {arguments[0]}")
        elif event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
            for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._change(event, os.path.abspath(os.fsdecode(path)))

    def _change(self, event: str, path: str) -> None:
        if path.startswith(self.allowed + os.sep) or path == self.allowed:
            self.changes += 1
            os.pwrite(self.counter, self.changes.to_bytes(8, "little"), 0)
            if self.changes == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        elif not path.startswith((self.notes, "/dev/", "/proc/")) and "__pycache__" not in path:
            self._note(f"{event} {path}")

    def _note(self, line: str) -> None:
        os.write(self.outside, line.encode(errors="replace") + b"\n")


class TookTooLong(BaseException):
    """A run used more processor time than it may."""


WATCH = Watch()


def serve() -> None:
    """Fork a child for every line of standard input, and write how it ended to standard output."""
    channel = os.dup(1)
    os.dup2(2, 1)
    for module in (*LIBRARIES, "minari", *_own_modules()):
        with contextlib.suppress(ImportError):  # of an extra that is not installed
            import_module(module)
    _warm_up()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # or every child would take the server's torch apart
    sys.addaudithook(WATCH)
    gc.collect()
    gc.freeze()  # or the first collection of every child would copy all of the server's memory
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans of killed children become ours, so that we see them end
    for line in sys.stdin.buffer:
        request = json.loads(line)
        notes = Path(request["notes"])
        counter = os.open(notes / "changes", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        before = _resident()
        child = os.fork()
        if child == 0:
            _become(request, counter)
            return
        _, status, used = os.wait4(child, 0)
        _reap()
        changes = int.from_bytes(os.pread(counter, 8, 0), "little")
        os.close(counter)
        (notes / "changes").unlink()
        megabytes = max(used.ru_maxrss / 1024 - before, 0.0)
        reply = {"code": os.waitstatus_to_exitcode(status), "changes": changes, "megabytes": megabytes}
        os.write(channel, json.dumps(reply).encode() + b"\n")


def _warm_up() -> None:
    """Run commands that leave behind what the next ones need, too."""
    from pidm_nav.cli import main

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
        os.chdir(folder)
        for command in WARM_UP:
            main(command.split())
        os.chdir(here)


def _own_modules() -> list[str]:
    import pidm_nav

    return [
        found.name for found in pkgutil.walk_packages(pidm_nav.__path__, "pidm_nav.") if "world3d" not in found.name
    ]


def _reap() -> None:
    """Wait until the workers of a killed process have ended."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _resident() -> float:
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _become(request: dict[str, Any], counter: int) -> None:
    """Be the run: in the child, whose exit code is the run's."""
    limits, notes = Limits(**request["limits"]), Path(request["notes"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(notes / name, flags), number)
    outside = os.open(notes / "outside", flags)
    os.environ.update(request["env"])
    tempfile.tempdir = None
    os.chdir(request["folder"])
    _limit(limits)
    if limits.inline:
        _run_inline()
    WATCH.begin(request["allowed"], request["notes"], counter, outside, limits.kill_at)
    code = _call(request["words"], notes)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking torch apart would take longer than most runs


def _limit(limits: Limits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = limits.kill_bytes or limits.file_bytes
    if size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if limits.kill_bytes else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    if limits.seconds is not None:

        def stop(number: int, frame: object) -> None:
            raise TookTooLong(TOO_LONG)

        signal.signal(signal.SIGVTALRM, stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, limits.seconds)
        used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        most = used + int(2 * limits.seconds) + 5
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    if limits.megabytes is not None and Path("/proc/self/statm").exists():
        own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = own + limits.megabytes * MEGABYTE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _run_inline() -> None:
    from pidm_nav.agents.learned import Learned
    from pidm_nav.commands import experiments
    from pidm_nav.experiments import engines, quickstart

    def run_here(function: Any, jobs: Any, workers: int | None = None) -> Any:
        for job in jobs:
            yield job, engines.attempt(function, job)

    engines.run_local = experiments.run_local = quickstart.run_local = run_here
    # 20 steps instead of 2,000, which would take most of the time
    Learned.__init__.__defaults__ = (20, *Learned.__init__.__defaults__[1:])


def _call(words: list[str], notes: Path) -> int:
    """Run the words and return the exit code."""
    from pidm_nav.cli import main

    module, _, name = words[0].partition(":")
    try:
        if module.endswith(".py"):
            sys.argv = words
            sys.path.insert(0, str(Path(module).parent))  # as when Python runs a script
            runpy.run_path(module, run_name="__main__")
        elif name:
            result = getattr(import_module(module), name)(*words[1:])
            WATCH.active = False
            (notes / "result.json").write_text(json.dumps(result))
        else:
            main(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except (ValueError, OSError, ImportError) as error:  # of a function; a command tells them itself
        if not name:
            traceback.print_exc()
            return 1
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        WATCH.active = False
    return 0


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder by its relative name; None for a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = None if path.is_dir() else path.read_bytes()
    return found


def leftovers(folder: Path) -> list[str]:
    """The hidden and temporary files and folders that should not be there when nothing runs."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(name for name in names if any(part.startswith(".") or ".tmp" in part for part in Path(name).parts))


if __name__ == "__main__":
    sys.modules["sandbox"] = sys.modules["__main__"]
    serve()
