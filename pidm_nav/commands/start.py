"""Commands for the first five minutes: quickstart, doctor."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pidm_nav import __version__

if TYPE_CHECKING:
    from pidm_nav.experiments.quickstart import Plan, Report, Result


@dataclass(frozen=True)
class Check:
    """One line of the doctor's: what was looked for, whether it is there, and what its absence costs."""

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


def quickstart(
    out: Path = Path("quickstart"), force: bool = False, fast: bool = False, jobs: int | None = None
) -> None:
    """See BC and PIDM learn a maze from few demonstrations on this machine, in two to three minutes.

    Args:
        out: folder for the page, the animation, the curve, the table, the demonstrations and two agents.
        force: write into a folder that holds other things; those stay.
        fast: a few seconds that teach nothing, to see what comes out.
        jobs: trainings at a time; one a core by default.
    """
    from pidm_nav.experiments import quickstart as library
    from pidm_nav.experiments import quickstart_page as page

    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs is {jobs}: it must be at least 1")
    plan = library.FAST if fast else library.Plan()
    library.check_folder(out, force)
    console = Console(highlight=False)
    began = time.perf_counter()
    with library.workplace(out) as folder:
        with _progress(console, plan) as report:
            result = library.run(plan, folder / "agents", report, jobs)
            page.write_pictures(result, folder)
            page.write_tables(result, folder)
            library.save(result, folder)
            report("pictures", 1)
        (folder / "index.html").write_text(page.render_page(result, folder, out), encoding="utf-8")
    _summary(console, result, out, time.perf_counter() - began)


@contextmanager
def _progress(console: Console, plan: Plan) -> Iterator[Report]:
    """Three bars: demonstrations, trainings, pictures."""
    columns = [TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, TextColumn("[dim]{task.fields[last]}"), console=console, transient=True) as progress:
        trainings = 2 * len(plan.seeds) * (len(plan.sizes) + len(plan.astar_sizes))
        totals = {"demonstrations": 2 * plan.demos, "trainings": trainings, "pictures": 1}
        bars = {name: progress.add_task(name, total=total, last="", start=False) for name, total in totals.items()}
        progress.start_task(bars["demonstrations"])

        def report(what: str, advance: int) -> None:
            name = what if what in bars else "trainings"  # a training says which one it was
            progress.update(bars[name], advance=advance, last="" if what == name else what)
            following = list(bars.values())[list(bars).index(name) + 1 :]
            if progress.tasks[bars[name]].finished and following:
                progress.start_task(following[0])

        yield report


def _summary(console: Console, result: Result, out: Path, seconds: float) -> None:
    """What came out, how to look at it, and what to do next."""
    from pidm_nav.experiments import quickstart_page as page

    scores = page.score_rows(result)
    console.print(f"[bold]{escape(scores.title)}[/]")
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(scores.header):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for first, *cells in scores.rows:
        table.add_row(first, *cells, style="blue" if first.startswith("PIDM") else "dark_orange3")
    console.print(table)
    console.print(f"[dim]{escape(scores.note)}[/]\n")
    console.print(f"{page.headline(result)}\n")
    for name, value in page.how_made(result):
        if name in ("Evaluation", "Animation"):
            console.print(f"[dim]{name}: {escape(value)}.[/]")
    console.print(f"\nLook at it: [bold]{escape(str(out / 'index.html'))}[/]  ({seconds:.0f} s)\n", soft_wrap=True)
    for title, commands in page.next_steps(result, out):
        console.print(f"[bold]{title}[/]")
        for command in commands.splitlines():
            console.print(f"  [cyan]{escape(command)}[/]", soft_wrap=True)


def doctor() -> None:
    """Look what works on this machine, and say what each absence costs."""
    console = Console(highlight=False)
    checks = examine(Path.cwd())
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check.found else "[yellow]missing[/]"
        table.add_row(mark, check.name, escape(check.detail))
        if not check.found:
            table.add_row("", "", f"[dim]costs:[/] {escape(check.cost)}")
            table.add_row("", "", f"[dim]get it:[/] [cyan]{escape(check.remedy)}[/]")
    console.print(table)
    absent = [check.name for check in checks if not check.found]
    if absent:
        console.print(f"\nEverything but what stands under {', '.join(absent)} works.", soft_wrap=True)
    else:
        console.print("\nEverything works.")
    console.print("Next: [cyan]pidm-nav quickstart[/]")


def examine(folder: Path) -> list[Check]:
    """Every check, in the order to read them; `folder` is where commands would write."""
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
    """Torch, its threads and the cores."""
    cost, remedy = "no training and no agents; environments and demonstrations work", "pip install torch"
    try:
        import torch
    except ImportError as error:
        return Check("torch", False, str(error), cost, remedy)
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU (none is needed)"
    threads = f"{torch.get_num_threads()} threads on {os.cpu_count()} cores"
    return Check("torch", True, f"{torch.__version__}, {threads}{device}", cost, remedy)


def _check_folder(folder: Path) -> Check:
    """Whether files can be written where the user stands."""
    cost, remedy = "nothing can be saved here", "cd to a folder of your own, or give --out"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".pidm-nav-"):
            return Check("folder", True, f"{folder} is writable")
    except OSError as error:
        return Check("folder", False, f"{folder}: {(error.strerror or str(error)).lower()}", cost, remedy)


def _check_display() -> Check:
    """Whether a window can be opened; none is."""
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
    """The gamepads that are plugged in."""
    import pygame

    cost, remedy = "record and play take the keyboard, which steers less finely", "plug one in"
    try:
        pygame.joystick.init()
        names = [pygame.joystick.Joystick(index).get_name() for index in range(pygame.joystick.get_count())]
    except pygame.error as error:
        return Check("gamepad", False, f"none ({error})", cost, remedy)
    return Check("gamepad", bool(names), ", ".join(names) or "none", cost, remedy)


def _check_ffmpeg() -> Check:
    """The ffmpeg that writes mp4 files."""
    cost, remedy = "no mp4 videos; GIFs work", "pip install imageio-ffmpeg"
    try:
        release = str(import_module("imageio_ffmpeg").get_ffmpeg_version())
    except (ImportError, RuntimeError, OSError) as error:
        return Check("ffmpeg", False, " ".join(str(error).split()), cost, remedy)
    return Check("ffmpeg", True, f"{release}, for mp4 videos", cost, remedy)


def _check_package(name: str, cost: str, remedy: str) -> Check:
    """An optional package, looked up without importing it."""
    if find_spec(name) is None:
        return Check(name, False, "not installed", cost, remedy)
    try:
        return Check(name, True, version(name), cost, remedy)
    except PackageNotFoundError:  # a folder of that name, not an installed package
        return Check(name, False, "not installed", cost, remedy)
