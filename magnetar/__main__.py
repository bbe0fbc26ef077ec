"""`python -m magnetar` is the `magnetar` command."""

import sys


def main() -> int:
    """Run the command line; returns the exit code of the process."""
    if sys.argv[1:2] == ["pipeline"]:  # above the broker, which knows nothing of it
        from magnetar.pipeline.cli import main as run_pipeline  # noqa: PLC0415 - needs the extra `spark`

        return run_pipeline(sys.argv[2:])
    from magnetar.broker.cli import main as run_broker  # noqa: PLC0415 - not for the pipeline

    return run_broker()


if __name__ == "__main__":
    sys.exit(main())
