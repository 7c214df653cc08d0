"""Every numeric option of every command, with numbers that nobody means: a sentence and exit code 2, or it works.

The options are found in the dataclasses of the commands, so that a new one is tested without a word here.
PIDM_NAV_OPTIONS_SEED draws other numbers and spellings for the slow tests.
"""

import dataclasses
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pygame
import pytest

from pidm_nav.cli import COMMANDS, load_command, main
from pidm_nav.commands import experiments
from pidm_nav.demos import AStarExpert, collect, save_demos
from pidm_nav.experiments import quickstart
from pidm_nav.experiments.engines import attempt

resource = pytest.importorskip("resource", reason="limits on processes need Unix")

WHOLE = ("-1", "0", "99999999999999999999")
OTHERS = ("nan", "inf", "1e308", "1e-320")  # for whole numbers, these are refused while they are read
SPELLINGS = (
    "-inf",
    "NaN",
    "+0",
    "-0",
    "0x10",
    "1_0",
    "\u0663",
    "",
    "1,5",
    "\u00bd",
    "1e",
    "--1",
    "1 2",
    "\u22121",
    "e",
    "1/2",
)
AGENTS = ("bc", "pidm", "retrieval-bc")
LONG = ("quickstart", "analyze theory")  # commands that cannot do less than a few seconds of work
MOST_SECONDS = 20
MOST_MEMORY = 3 * 2**30
MAP = "##########\n#........#\n#..A.....#\n#....##..#\n#..2....1#\n##########\n"

ANALYSIS = "--demos demos.npz --out out"
SETTINGS = {  # the least work that each command can do
    "quickstart": "--fast --out out",
    "studio": "--no-browser",
    "play": "--task maze --rounds 1",
    "record": "--task maze --episodes 1",
    "collect": "--task maze --episodes 1 --out out.npz",
    "demos replay": "demos.npz --gif out.gif",
    "demos plot": "demos.npz --out out.png",
    "train": "--demos demos.npz --steps 2 --out out",
    "evaluate": "agent --episodes 1",
    "hub push": "agent nobody",
    "sweep": "--tasks zigzag --agents bc --num-demos 1 --seeds 1 --steps 2 --episodes 1 --checkpoint-fractions 0.5",
    "advise": "demos.npz --steps 2 --no-rollouts",
    "analyze predictor": f"{ANALYSIS} --subsets 2 --sizes 1",
    "analyze horizon": f"{ANALYSIS} --splits 2 --horizons 1",
    "analyze theory": "--out out --fast",
}
ALSO = {  # what an option needs beside it
    "--image-size": "--obs-type pixels",
    "--room-size": "--task custom --layout map.txt",
    "--video-episode": "--video out.gif",
    "--frame-size": "--demos pixels.npz --preset pixels",
    "--history": "--demos pixels.npz --preset pixels",
    "--shift": "--demos pixels.npz --preset pixels",
}


class Hang(BaseException):
    """Raised in a command that takes too long; no command catches it."""


def numeric_options(form: Any) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yield each numeric option of a dataclass: its name, how many numbers it takes, and its hostile values."""
    hints = get_type_hints(form, include_extras=True)
    for each in dataclasses.fields(form):
        kind = hints[each.name]
        while get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        if dataclasses.is_dataclass(kind):
            yield from numeric_options(kind)
        parts = {part for part in (kind, *get_args(kind)) if part in (int, float)}
        if parts:
            pair = get_origin(kind) is tuple and Ellipsis not in get_args(kind)
            values = WHOLE if parts == {int} else WHOLE[:2] + OTHERS
            sensible = tuple(value for value in values if value != str(each.default))
            yield f"--{each.name.replace('_', '-')}", len(get_args(kind)) if pair else 1, sensible


def hostile_values(rng: random.Random) -> tuple[str, ...]:
    """Draw numbers that are far too small or too large, and spellings that may or may not be numbers."""
    whole = [f"-{rng.randrange(1, 10 ** rng.randint(1, 30))}", str(rng.randrange(10**18, 10 ** rng.randint(19, 60)))]
    parts = [f"{rng.uniform(-10, 10):.3f}e{rng.choice('+-')}{rng.randint(100, 400)}" for _ in range(3)]
    return (*whole, *parts, *rng.sample(SPELLINGS, 2))


def cases() -> Iterator[Any]:
    """Yield every command with every numeric option and every hostile value; all but a few are slow."""
    rng, seed = random.Random(0), os.environ.get("PIDM_NAV_OPTIONS_SEED")
    drawn = random.Random(seed)
    for words in COMMANDS:
        command = load_command(words)
        tested = set()
        for agent in AGENTS if words == "train" else (None,):
            chosen = [] if agent is None else ["--agent", agent]
            form = command.form([*chosen, "--demos", "maze/human-like"]) if agent else command
            for option, count, hostile in numeric_options(form):
                often = ("-1",) if words in LONG else rng.sample(hostile, 2)
                for value in hostile_values(drawn) if seed else WHOLE + OTHERS:
                    slow = value not in often or option in tested
                    marks = [pytest.mark.slow] if slow else []
                    name = "-".join([words.replace(" ", "-"), *chosen[1:], option[2:], value])
                    yield pytest.param(words, chosen, option, [value] * count, id=name, marks=marks)
                tested.add(option)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demonstrations, an agent and a map."""
    folder = tmp_path_factory.mktemp("inputs")
    save_demos(collect(AStarExpert("zigzag"), "zigzag", 3, max_steps=25), folder / "demos.npz")
    pixels = collect(AStarExpert("zigzag"), "zigzag", 2, max_steps=12, obs_type="pixels", image_size=32)
    save_demos(pixels, folder / "pixels.npz")
    (folder / "map.txt").write_text(MAP)
    out, demos = str(folder / "agent"), str(folder / "demos.npz")
    main(["train", "--agent", "bc", "--demos", demos, "--steps", "2", "--out", out])
    return folder


@contextmanager
def watched() -> Iterator[None]:
    """Bound the time and the memory of what runs inside."""

    def stop(number: int, frame: object) -> None:
        raise Hang(f"still running after {MOST_SECONDS} s")

    status = Path("/proc/self/statm")
    used = int(status.read_text().split()[0]) * resource.getpagesize() if status.exists() else 0
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    # Code in C may be out of reach of signals: then the whole run ends, with the place.
    faulthandler.dump_traceback_later(3 * MOST_SECONDS, exit=True, file=sys.__stderr__)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS, 1)  # again and again, if something swallows the exception
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, limits[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.thorough
@pytest.mark.parametrize(("words", "chosen", "option", "values"), list(cases()))
def test_a_hostile_number_is_a_sentence_or_works(words, chosen, option, values, inputs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    play(monkeypatch)
    here = lambda function, jobs, workers=None: ((job, attempt(function, job)) for job in jobs)  # noqa: E731
    monkeypatch.setattr(experiments, "run_local", here)
    monkeypatch.setattr(quickstart, "run_local", here)
    if words == "studio":
        server = pytest.importorskip("pidm_nav.studio.server")
        monkeypatch.setattr(server, "serve", lambda *_: None)
    for name in ("demos.npz", "pixels.npz", "agent", "map.txt"):
        (tmp_path / name).symlink_to(inputs / name)
    settings = [*f"{SETTINGS[words]} {ALSO.get(option, '')}".split(), *chosen]
    capsys.readouterr()
    try:
        with watched():
            main([*words.split(), *settings, option, *values])
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    told = capsys.readouterr()
    assert code in (0, 2), told.err
    if code == 2:
        *_, last = told.err.splitlines()
        assert last.startswith("error: "), told.err
        assert "allocate" not in last and "MemoryError" not in last, last
    failed = [line for line in told.out.splitlines() if line.startswith("failed: ") and "ValueError" not in line]
    assert not failed, failed


def play(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a person press a key and soon close the window."""
    pressed = pygame.event.Event(pygame.KEYDOWN, key=pygame.K_RIGHT)
    script = iter([[], [pressed], [], [], []])
    monkeypatch.setattr(pygame.event, "get", lambda *_, **__: next(script, [pygame.event.Event(pygame.QUIT)]))


def test_every_command_with_numeric_options_is_covered():
    assert set(SETTINGS) == {
        words for words in COMMANDS if words == "train" or any(numeric_options(load_command(words)))
    }
