"""The command `pidm-nav`, which a Ctrl-C also ends with a word while the package is being imported."""

import os
import signal
from types import FrameType


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: nothing is written yet, and an exception may leave the import of compiled code as another one."""
    os.write(2, b"stopped\n")
    os._exit(130)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # neither ignored nor somebody else's
    signal.signal(signal.SIGINT, _stop)


def main() -> None:
    """Import the package, and run the command."""
    from pidm_nav.cli import main as run

    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
