"""Fixtures every test module may use."""

import functools
import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from sandbox import Sandbox
    from studio_server import Server

# A property is about results, not about how busy the machine is.
settings.register_profile("pidm-nav", deadline=None, max_examples=60)
settings.load_profile("pidm-nav")

# One thread each: the suite runs in parallel, and small networks are slower on two threads than on one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("MPLBACKEND", "Agg")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started in the background: what the tests start must hear it
    signal.signal(signal.SIGINT, signal.default_int_handler)


class SkipWithoutTorch:
    """Skips the modules and tests that import torch where the extra `agents` is not installed."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in ("torch", "stable_baselines3"):
            pytest.skip("needs torch: pip install 'pidm-nav[agents]'", allow_module_level=True)


if find_spec("torch") is None:
    sys.meta_path.append(SkipWithoutTorch)  # type: ignore[arg-type]


def pytest_collection_finish() -> None:
    """Keep what one test after another would make anew, and spare the garbage collector all that was imported."""
    from pidm_nav.demos.experts import astar

    astar.planner_for = functools.lru_cache(maxsize=64)(astar.Planner)  # of every map, speed and step
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the paper's recordings and physics vectors, which is not part of the repository."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the paper's recordings (../shared) are not on this machine")
    return folder


@pytest.fixture
def own_parts() -> Iterator[None]:
    """Forget what a test registers."""
    from pidm_nav.agents import registry

    known = [*registry.KINDS.values(), registry.AGENT_STYLES]
    before = [dict(each) for each in known]
    yield
    for each, kept in zip(known, before, strict=True):
        each.clear()
        each.update(kept)


@pytest.fixture(scope="session")
def box() -> "Iterator[Sandbox]":
    """A process that runs commands in forks of itself, which saves their imports."""
    pytest.importorskip("resource", reason="forks need Unix")
    pytest.importorskip("torch")
    from sandbox import Sandbox

    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a test module's studio works in."""
    return tmp_path_factory.mktemp("studio")


@pytest.fixture(scope="module")
def server(folder: Path) -> "Iterator[Server]":
    """A studio that works in `folder`."""
    pytest.importorskip("torch")
    from studio_server import Server

    made = Server(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    quiet = [f"--disable-{each}" for each in ("background-networking", "component-update", "sync", "gpu")]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", *quiet])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, server: "Server") -> Iterator[Any]:
    """The studio's page on a desktop."""
    from studio_server import opened

    with opened(browser, server) as page:
        yield page


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """With `-n auto`, run three workers on two cores: many tests wait for a browser, a server or a clock."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker tests that follow one another, so that the fixtures of a module are made once."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
