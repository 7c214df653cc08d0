"""The command `pidm-nav`, which a Ctrl-C also ends with a word while the package is being imported."""

import sys


def main() -> None:
    """Import the package, and run the command."""
    try:
        from pidm_nav.cli import main as run
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    run()
