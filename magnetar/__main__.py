"""`python -m magnetar` is the `magnetar` command."""

import sys

CLIENT_COMMANDS = frozenset({"admin", "client"})
"""The commands of `magnetar.cli`: named here, so that `standalone` starts without a look at that room."""


def main() -> int:
    """Run the command line; returns the exit code of the process."""
    if sys.argv[1:2] == ["pipeline"]:  # above the broker, which knows nothing of it
        from magnetar.pipeline.cli import main as run_pipeline  # noqa: PLC0415 - needs the extra `spark`

        return run_pipeline(sys.argv[2:])
    if sys.argv[1:2] and sys.argv[1] in CLIENT_COMMANDS:  # beside the broker, which knows nothing of it
        from magnetar.cli.main import main as run_command  # noqa: PLC0415 - not for the broker

        return run_command(sys.argv[1:])
    from magnetar.broker.cli import main as run_broker  # noqa: PLC0415 - not for the pipeline

    return run_broker()


if __name__ == "__main__":
    sys.exit(main())
