"""Engines that run independent jobs in processes on this machine (joblib) or on a Ray cluster.

An engine takes a function and jobs, and yields each finished job with its outcome. A job whose worker process dies is
retried; a job that raises an exception is not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from pidm_nav.console import printable
from pidm_nav.plugins import PLUGINS_VARIABLE

Work = TypeVar("Work")
Outcome = dict[str, Any]  # of the function, or {"error": ..., "traceback": ...}
Outcomes = Generator[tuple[Work, Outcome], None, None]  # closing it ends the workers
Runner = Callable[[Callable[[Work], Outcome], Sequence[Work]], Outcomes[Work]]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
RETRIES = 3  # of a job whose Ray worker died


def _share_plugins(cloudpickle: Any) -> None:
    """Pickle classes of plugin files by value, as workers cannot import them by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("pidm_nav_plugin_"):
            cloudpickle.register_pickle_by_value(module)


def attempt(function: Callable[[Work], Outcome], job: Work) -> Outcome:
    """Return the function's outcome, or its error as an outcome."""
    try:
        return function(job)
    except (Exception, SystemExit) as error:
        message = "".join(traceback.format_exception_only(error)).strip()
        return {"error": printable(message), "traceback": printable(traceback.format_exc())}


def run_local(function: Callable[[Work], Outcome], jobs: Sequence[Work], workers: int | None = None) -> Outcomes[Work]:
    """Run jobs in persistent processes on this machine, each with one thread.

    When a process dies, the job that caused it is unknown. So all running jobs are retried at the end, one at a time; a
    job that dies twice alone fails.
    """
    import joblib
    from joblib.externals.loky import get_reusable_executor

    try:
        from joblib.externals import cloudpickle
    except ImportError:  # joblib 1.6 no longer vendors it
        import cloudpickle
    _share_plugins(cloudpickle)
    together = min(workers or joblib.cpu_count(), len(jobs))
    settings: dict[str, Any] = {"env": ONE_THREAD, "initializer": _begin_worker, "initargs": (os.getpid(),)}
    executor, running = None, dict[Future[Outcome], Work]()
    try:
        for at_once in (together, 1, 1):
            waiting, crashed = deque(jobs), dict[Future[Outcome], Work]()
            while waiting or running:
                executor = get_reusable_executor(together, **settings)  # a new one if a process has died
                while waiting and len(running) < at_once:
                    job = waiting.popleft()
                    running[executor.submit(attempt, function, job)] = job
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    job = running.pop(future)
                    if isinstance(future.exception(), BrokenProcessPool):
                        crashed[future] = job
                    else:
                        yield job, future.result()
            jobs = list(crashed.values())
        for future, job in crashed.items():
            reason = str(future.exception()).strip().partition("\n")[0]
            yield job, {"error": printable(f"the worker process died repeatedly ({reason})")}
    finally:
        if executor is not None:
            if running:
                _wait_for_hand_over(executor)
            executor.shutdown(wait=True, kill_workers=bool(running))


def _wait_for_hand_over(executor: Any) -> None:
    """Wait until the processes have received all jobs; killing them earlier breaks loky's thread."""
    with contextlib.suppress(BrokenProcessPool):
        last = executor.submit(int)
        while not (last.running() or last.done()):
            time.sleep(0.001)


def _begin_worker(parent: int) -> None:
    """Ignore Ctrl-C, which the parent handles, and exit when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def require_ray() -> None:
    """Raise ModuleNotFoundError unless Ray is installed."""
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError("Ray is not installed: pip install 'pidm-nav[cluster]'")


def run_ray(
    function: Callable[[Work], Outcome],
    jobs: Sequence[Work],
    workers: int | None = None,
    address: str = "auto",
    cpus_per_job: float = 1.0,
    gpus_per_job: float = 0.0,
    runtime_env: Mapping[str, Any] | None = None,
) -> Outcomes[Work]:
    """Run jobs as Ray tasks.

    Args:
        function: function to run; the package must be installed on all machines of the cluster.
        jobs: arguments of the function.
        workers: number of CPU cores of a new local Ray.
        address: address of the cluster; "auto" for the one on this machine or else a new local one, "local" for a new
            local one.
        cpus_per_job: CPU cores that a job reserves.
        gpus_per_job: GPUs, or fraction of one, that a job reserves and sees.
        runtime_env: Ray's runtime environment, such as {"working_dir": "."} for your own modules.
    """
    require_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    try:
        _connect(address, workers, cpus_per_job, runtime_env or {})
        _share_plugins(ray.cloudpickle)
        reserved: dict[str, Any] = {"num_cpus": cpus_per_job, "num_gpus": gpus_per_job}
        task: Any = ray.remote(**reserved, max_retries=RETRIES, retry_exceptions=False)(attempt)
        shared = ray.put(function)
        resources: Any = ray.cluster_resources
        waiting, running = deque(jobs), dict[Any, Work]()
        while waiting or running:
            # one more than fits keeps workers busy; resources change as machines join and leave
            slots = int(resources().get("CPU", 1) / cpus_per_job) + 1
            if gpus_per_job:
                slots = min(slots, int(resources().get("GPU", 0) / gpus_per_job) + 1)
            while waiting and len(running) < max(2, slots):
                job = waiting.popleft()
                running[task.remote(shared, job)] = job
            ended, _ = ray.wait(list(running), num_returns=1)
            for reference in ended:
                job = running.pop(reference)
                try:
                    outcome = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0]
                    outcome = {"error": printable(f"the worker process died {RETRIES + 1} times ({reason})")}
                yield job, outcome
    finally:
        ray.shutdown()


def _connect(address: str, workers: int | None, cpus_per_job: float, runtime_env: Mapping[str, Any]) -> None:
    """Join the cluster, or start one on this machine."""
    import ray

    plugins = {PLUGINS_VARIABLE: os.environ[PLUGINS_VARIABLE]} if PLUGINS_VARIABLE in os.environ else {}
    variables = {**ONE_THREAD, **plugins, **runtime_env.get("env_vars", {})}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    quiet["runtime_env"] = {**runtime_env, "env_vars": variables}
    if address != "local":
        try:
            ray.init(address=address, **quiet)
            return
        except ConnectionError:
            if address != "auto":
                raise OSError(f"there is no Ray cluster at '{address}': start one with `ray start --head`") from None
    ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
    resources: Any = ray.cluster_resources
    own = resources().get("CPU", 0)
    if cpus_per_job > own:  # otherwise Ray waits forever
        raise ValueError(f"cpus_per_job is {cpus_per_job:g}, and Ray has {own:g} CPU cores here: reserve fewer")
