"""The command `pidm-nav`, which a Ctrl-C also ends with a word while the package is being imported."""

import os
import signal
import threading
from types import FrameType


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: nothing is written yet, and an exception may leave the import of compiled code as another one."""
    try:
        os.write(2, b"stopped\n")
    finally:  # also if standard error is closed
        os._exit(130)


def _replace(before: object, after: object) -> None:
    """Replace the handler of Ctrl-C, unless it is another one or this is a thread, which has none."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is before:
        signal.signal(signal.SIGINT, after)  # type: ignore[arg-type]


_replace(signal.default_int_handler, _stop)  # neither one that ignores it nor somebody else's


def main() -> None:
    """Import the package, and run the command."""
    from pidm_nav.cli import main as run

    _replace(_stop, signal.default_int_handler)
    run()
