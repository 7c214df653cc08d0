"""The doctor: every check tells what it found, and an absence what it costs."""

import builtins
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pidm_nav import DemoDataset, Episode, __version__, save_demos
from pidm_nav.cli import main
from pidm_nav.commands import doctor

NAMES = [
    "pidm-nav",
    "Python",
    "torch",
    "pygame-ce",
    "folder",
    "display",
    "gamepad",
    "ffmpeg",
    *doctor.EXTRAS,
    "tensorboard",
]
PACKAGES = {package: name for name, (packages, _) in doctor.EXTRAS.items() for package in packages}


def found(folder: Path) -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.examine(folder)}


def test_every_check_is_made_and_tells_something(tmp_path):
    checks = doctor.examine(tmp_path)
    assert [check.name for check in checks] == NAMES
    assert all(check.detail for check in checks)
    assert all(check.cost and check.remedy for check in checks if not check.found)


def test_command_prints_every_check_and_exits_0(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["doctor"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES)
    assert __version__ in shown
    assert "pidm-nav quickstart" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the current folder")
def test_a_deleted_current_folder_is_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit):
        main(["doctor"])
    assert capsys.readouterr().err == "error: the current folder was deleted: change to another one\n"


def lose(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let a package look as if it were not installed."""

    def lookup(wanted: str) -> str:
        if wanted == name:
            raise PackageNotFoundError(wanted)
        return "1.0"

    monkeypatch.setattr(doctor, "version", lookup)


def test_every_extra_for_users_is_checked():
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(extras) - {"docs", "test", "dev", "agents"}  # torch has a check of its own
    for name, (packages, _) in doctor.EXTRAS.items():
        wanted = {re.split(r"[\[>=<]", each)[0].replace("_", "-") for each in extras[name]}
        assert wanted - {"pidm-nav", "torch"} <= set(packages)


@pytest.mark.parametrize("name", [*PACKAGES, "tensorboard"])
def test_missing_package_costs_something_and_can_be_installed(name, tmp_path, monkeypatch, capsys):
    lose(monkeypatch, name)
    check = found(tmp_path)[PACKAGES.get(name, name)]
    assert not check.found and name in check.detail
    assert check.remedy.startswith("pip install ")
    main(["doctor"])
    shown = " ".join(capsys.readouterr().out.split())
    assert check.remedy in shown
    assert check.cost in shown


def test_folder_of_a_packages_name_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "ray").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    lose(monkeypatch, "ray")
    assert not found(tmp_path)["cluster"].found


def test_folder_that_is_not_there_or_writable(tmp_path):
    check = found(tmp_path / "gone")["folder"]
    assert not check.found
    assert "gone" in check.detail


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="displays have names on Linux only")
def test_no_display_on_linux_offers_the_studio(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    check = found(tmp_path)["display"]
    assert not check.found
    assert "record" in check.cost and "pidm-nav studio" in check.remedy
    monkeypatch.setattr(doctor, "version", lambda name: "1.0")
    main(["doctor"])
    assert "without a display: pidm-nav studio" in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="displays have names on Linux only")
@pytest.mark.parametrize("words", ["doctor", "play --task maze", "demos replay d.npz --gif x.gif"])
def test_libraries_print_nothing_of_their_own(words, tmp_path):
    steps = Episode(np.zeros((3, 3), np.float32), np.zeros((2, 1), np.float32), np.zeros(2), False, True, 0)
    save_demos(DemoDataset("Pendulum-v1", (steps,), {}), tmp_path / "d.npz")  # which pygame draws
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG", "SDL", "WAYLAND"))}
    environment |= {"DISPLAY": ":77"}
    command = [sys.executable, "-m", "pidm_nav.cli", *words.split()]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert "XDG_RUNTIME_DIR" not in ended.stderr + ended.stdout
    assert ended.returncode in (0, 2) and len(ended.stderr.splitlines()) == (ended.returncode == 2)


def test_a_driver_that_draws_nowhere_is_no_display(tmp_path, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    check = found(tmp_path)["display"]
    assert not check.found
    assert "dummy" in check.detail


def test_display_that_cannot_be_opened_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "no-such-driver")
    assert not found(tmp_path)["display"].found


def test_missing_ffmpeg_leaves_gifs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    check = found(tmp_path)["ffmpeg"]
    assert not check.found
    assert "GIF" in check.cost


def test_missing_torch_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not found(tmp_path)["torch"].found


@pytest.mark.parametrize("words", ["record --task maze", "record --list-controllers", "play --task maze"])
def test_pygame_in_the_place_of_pygame_ce_is_told_with_the_cure(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pygame", ModuleType("pygame"))  # what is left of it when one is uninstalled
    check = found(tmp_path)["pygame-ce"]
    assert not check.found and check.remedy == "pip uninstall -y pygame pygame-ce && pip install pygame-ce"
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2 and check.remedy in capsys.readouterr().err


def test_nothing_optional_is_imported(tmp_path, monkeypatch):
    real = builtins.__import__
    seen = []

    def watch(name, *args, **kwargs):
        seen.append(name.partition(".")[0])
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", watch)
    doctor.examine(tmp_path)
    assert not {"tensorboard", *PACKAGES} & set(seen)
