"""Both engines give every job's outcome once, whatever the jobs do to themselves."""

import functools
import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidm_nav.experiments import engines
from pidm_nav.experiments.engines import Outcome, Outcomes, run_local, run_ray

RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
ENGINES = [
    pytest.param(functools.partial(run_local, workers=2), id="local"),
    pytest.param(functools.partial(run_ray, workers=2, address="local"), id="ray", marks=[RAY, pytest.mark.slow]),
]
Run = Callable[[Callable[[int], Outcome], list[int]], Outcomes[int]]


def make_job(folder: Path) -> Callable[[int], Outcome]:
    """A job by number; a closure, as workers cannot import this module."""

    def job(number: int) -> Outcome:
        tries = folder / f"tries-{number}"
        with tries.open("a") as file:
            file.write("x")
        if number == 3:
            raise ValueError("three is wrong")
        if number == 5 or (number == 6 and tries.stat().st_size == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": number**2, "threads": os.environ["OMP_NUM_THREADS"], "process": os.getpid()}

    return job


@pytest.mark.parametrize("run", ENGINES)
def test_outcomes_errors_and_crashes(run: Run, tmp_path: Path) -> None:
    outcomes = dict(run(make_job(tmp_path), list(range(10))))
    assert sorted(outcomes) == list(range(10))
    tries = {number: (tmp_path / f"tries-{number}").stat().st_size for number in outcomes}
    for number in set(outcomes) - {3, 5}:
        assert outcomes[number]["square"] == number**2
        assert outcomes[number]["threads"] == "1"
        assert outcomes[number]["process"] != os.getpid()
    assert outcomes[3]["error"] == "ValueError: three is wrong"  # its own error, told with where it came from
    assert "three is wrong" in outcomes[3]["traceback"]
    assert "died" in outcomes[5]["error"] and tries[5] > 1  # crashes every time
    assert tries[6] > 1  # crashed once, then went well


def test_an_error_is_not_tried_again(tmp_path: Path) -> None:
    list(run_local(make_job(tmp_path), [3], workers=1))
    assert (tmp_path / "tries-3").read_text() == "x"


def test_jobs_are_handed_out_in_order() -> None:
    def job(number: int) -> Outcome:
        return {}

    assert [number for number, _ in run_local(job, [4, 2, 9, 1], workers=1)] == [4, 2, 9, 1]


def test_leaving_early_ends_the_workers() -> None:
    def job(number: int) -> Outcome:
        return {"process": os.getpid()}

    outcomes = run_local(job, list(range(50)), workers=1)
    process = next(outcomes)[1]["process"]
    outcomes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_stop_right_after_handing_out_jobs_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engines, "wait", stop)
    for _ in range(10):  # the jobs may or may not have reached the workers
        with pytest.raises(KeyboardInterrupt):
            list(run_local(lambda number: {}, [1, 2], workers=2))


def test_missing_ray_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str, *rest: Any) -> None:
        return None

    monkeypatch.setattr(engines.importlib.util, "find_spec", find_spec)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pidm-nav\[cluster\]'"):
        next(run_ray(lambda job: {}, [1]))
