"""The command `doctor`."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pidm_nav.console import say
from pidm_nav.version import __version__


@dataclass(frozen=True)
class Check:
    """What was looked for, whether it is there, and what its absence costs."""

    name: str
    found: bool
    detail: str
    cost: str = ""  # what does not work without it
    remedy: str = ""  # the command that brings it


OPTIONAL = {  # package: (what does not work without it, how to install it)
    "minari": ("no exchange of demonstrations with Minari; npz files work", "pip install 'pidm-nav[minari]'"),
    "ray": ("no sweeps on a cluster; this machine's cores work", "pip install 'pidm-nav[cluster]'"),
    "vizdoom": ("no task in a 3D world; the 2D tasks work", "pip install 'pidm-nav[3d]'"),
    "tensorboard": ("no loss curves in TensorBoard; losses.jsonl is always written", "pip install tensorboard"),
}


@dataclass(frozen=True)
class Doctor:
    """Look at what works on this machine, and what each absence costs.

    Example: pidm-nav doctor
    """

    def run(self) -> None:
        """Print every check."""
        checks = examine(Path.cwd())
        width = max(len(check.name) for check in checks)
        for check in checks:
            say(f"{'ok' if check.found else 'missing':<9}{check.name:<{width + 2}}{check.detail}")
            if not check.found:
                say(f"{'':<{width + 11}}costs: {check.cost}\n{'':<{width + 11}}get it: {check.remedy}", style="dim")
        absent = [check.name for check in checks if not check.found]
        all_but = f"Everything except what needs {', '.join(absent)} works." if absent else "Everything works."
        say(f"\n{all_but}\nNext: pidm-nav quickstart")


def examine(folder: Path) -> list[Check]:
    """Return every check in reading order; `folder` is where commands would write."""
    return [
        Check("pidm-nav", True, f"{__version__}, in {Path(__file__).parents[1]}"),
        Check(
            "Python",
            sys.version_info >= (3, 10),
            f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            "pidm-nav needs Python 3.10 or newer",
            "install a newer Python",
        ),
        _check_torch(),
        _check_folder(folder),
        _check_display(),
        _check_gamepad(),
        _check_ffmpeg(),
        *(_check_package(name, *about) for name, about in OPTIONAL.items()),
    ]


def _check_torch() -> Check:
    """Look for torch, its threads and the cores."""
    cost, remedy = "no training and no agents; environments and demonstrations work", "pip install torch"
    try:
        import torch
    except ImportError as error:
        return Check("torch", False, str(error), cost, remedy)
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU (none is needed)"
    threads = f"{torch.get_num_threads()} threads on {os.cpu_count()} cores"
    return Check("torch", True, f"{torch.__version__}, {threads}{device}", cost, remedy)


def _check_folder(folder: Path) -> Check:
    """Look whether files can be written to the current folder."""
    cost, remedy = "nothing can be saved here", "cd to a folder of your own, or give --out"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".pidm-nav-"):
            return Check("folder", True, f"{folder} is writable")
    except OSError as error:
        return Check("folder", False, f"{folder}: {(error.strerror or str(error)).lower()}", cost, remedy)


def _check_display() -> Check:
    """Look whether a window could be opened, without opening one."""
    import pygame

    cost = "no record, play and --render, which need a window; everything else works, videos and GIFs too"
    remedy = "run these on a desktop (over ssh: ssh -X)"
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return Check("display", False, "none (neither DISPLAY nor WAYLAND_DISPLAY is set)", cost, remedy)
    try:
        pygame.display.init()
        driver = pygame.display.get_driver()
        # SDL falls back to a driver that draws nowhere, and says nothing
        if driver in ("dummy", "offscreen"):
            return Check("display", False, f"none (SDL draws to '{driver}')", cost, remedy)
        sizes = pygame.display.get_desktop_sizes()
        return Check("display", True, f"{driver}, " + " and ".join(f"{w} x {h}" for w, h in sizes))
    except pygame.error as error:
        return Check("display", False, f"none ({error})", cost, remedy)
    finally:
        pygame.display.quit()


def _check_gamepad() -> Check:
    """Look for gamepads that are plugged in."""
    import pygame

    cost, remedy = "record and play take the keyboard, which steers less finely", "plug one in"
    try:
        pygame.joystick.init()
        names = [pygame.joystick.Joystick(index).get_name() for index in range(pygame.joystick.get_count())]
    except pygame.error as error:
        return Check("gamepad", False, f"none ({error})", cost, remedy)
    return Check("gamepad", bool(names), ", ".join(names) or "none", cost, remedy)


def _check_ffmpeg() -> Check:
    """Look for the ffmpeg that writes mp4 files."""
    cost, remedy = "no mp4 videos; GIFs work", "pip install imageio-ffmpeg"
    try:
        release = str(import_module("imageio_ffmpeg").get_ffmpeg_version())
    except (ImportError, RuntimeError, OSError) as error:
        return Check("ffmpeg", False, " ".join(str(error).split()), cost, remedy)
    return Check("ffmpeg", True, f"{release}, for mp4 videos", cost, remedy)


def _check_package(name: str, cost: str, remedy: str) -> Check:
    """Look an optional package up without importing it."""
    try:
        return Check(name, True, version(name), cost, remedy)
    except PackageNotFoundError:
        return Check(name, False, "not installed", cost, remedy)
