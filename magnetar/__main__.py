"""`python -m magnetar` and the console script `magnetar`."""

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from magnetar.broker.cli import main as run_command  # noqa: PLC0415 - the import is part of what is timed

    sys.exit(run_command())


if __name__ == "__main__":
    main()
