"""Engines: many independent jobs on this machine's cores (joblib's processes) or on a Ray cluster.

An engine takes a function and jobs, and yields each job with what the function returned, in the order they
end. A job whose worker process dies is tried again; one that raises is not, as it would raise again.
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
Outcome = dict[str, Any]  # what the function returned, or {"error": ..., "traceback": ...}
Outcomes = Generator[tuple[Work, Outcome], None, None]  # closing it ends the workers
Runner = Callable[[Callable[[Work], Outcome], Sequence[Work]], Outcomes[Work]]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
RETRIES = 3  # how often a job whose Ray worker died is tried again


def _share_plugins(cloudpickle: Any) -> None:
    """Send classes of plugin files to workers as they are: workers cannot import them by name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("pidm_nav_plugin_"):
            cloudpickle.register_pickle_by_value(module)


def attempt(function: Callable[[Work], Outcome], job: Work) -> Outcome:
    """Return what the function returns, or its error as an outcome."""
    try:
        return function(job)
    except (Exception, SystemExit) as error:
        told = "".join(traceback.format_exception_only(error)).strip()
        return {"error": printable(told), "traceback": printable(traceback.format_exc())}


def run_local(function: Callable[[Work], Outcome], jobs: Sequence[Work], workers: int | None = None) -> Outcomes[Work]:
    """Run jobs in processes that are started once, each with one thread.

    When a process dies, nothing says which job did it, nor whether the others had begun: all that ran are tried
    again at the end, one at a time, and one that dies twice when alone is to blame.
    """
    import joblib
    from joblib.externals.loky import get_reusable_executor

    try:
        from joblib.externals import cloudpickle
    except ImportError:  # joblib 1.6 no longer brings its own
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
            yield job, {"error": printable(f"the worker process died again and again ({reason})")}
    finally:
        if executor is not None:
            if running:
                _see_handed_over(executor)
            executor.shutdown(wait=True, kill_workers=bool(running))


def _see_handed_over(executor: Any) -> None:
    """Wait until the processes have received every job: killing them earlier breaks loky's own thread."""
    with contextlib.suppress(BrokenProcessPool):
        last = executor.submit(int)
        while not (last.running() or last.done()):
            time.sleep(0.001)


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone: a killed sweep must not keep the cores busy."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def require_ray() -> None:
    """Refuse to go on without Ray, and say how to install it."""
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError("the engine ray is not installed: pip install 'pidm-nav[cluster]'")


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
        function: what to run; the package must be installed on every machine of the cluster.
        jobs: its arguments.
        workers: number of CPU cores of a local Ray; a running cluster has its own number.
        address: address of the cluster; "auto" for the one that runs on this machine or else a new local one, and
            "local" for a new local one.
        cpus_per_job: number of CPU cores that a job reserves.
        gpus_per_job: number of GPUs, or share of one, that a job reserves; Ray shows it no others.
        runtime_env: what Ray sets up on the machines of the cluster, such as {"working_dir": "."} for your own modules.
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
            # a little more than fits keeps workers busy; asked again each time, as machines come and go
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
                raise OSError(f"no Ray cluster answers at '{address}': start one with `ray start --head`") from None
    ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
    resources: Any = ray.cluster_resources
    own = resources().get("CPU", 0)
    if cpus_per_job > own:  # Ray would wait for a machine that is large enough
        raise ValueError(f"a job reserves {cpus_per_job:g} CPU cores, but Ray has {own:g} here: reserve fewer")
