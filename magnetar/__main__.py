"""`python -m magnetar` is the `magnetar` command. Each group of commands loads only its own modules."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


async def _run_with_faults(settings: "Settings") -> int:
    from magnetar.testing.running import run  # noqa: PLC0415 - only where faultKitPort is set

    return await run(settings)


def main() -> int:
    """Run the command line; returns the exit code of the process."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name == "standalone":
        from magnetar.broker.cli import main as run_broker  # noqa: PLC0415 - nothing before it: its start is timed

        return run_broker(with_faults=_run_with_faults)
    return _other(name)


def _other(name: str) -> int:
    from magnetar.command_names import CLI_COMMANDS, COMPLETE_VARIABLE  # noqa: PLC0415 - not for `standalone`

    if COMPLETE_VARIABLE in os.environ:
        from magnetar.cli.main import complete  # noqa: PLC0415 - only for a shell that completes

        return complete(COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
    if name == "pipeline":  # above the broker, which knows nothing of it
        from magnetar.pipeline.cli import main as run_pipeline  # noqa: PLC0415 - needs the extra `spark`

        return run_pipeline(sys.argv[2:])
    if name in CLI_COMMANDS:  # beside the broker, which knows nothing of it
        from magnetar.cli.main import main as run_command  # noqa: PLC0415 - not for the broker

        return run_command(sys.argv[1:])
    from magnetar.broker.cli import main as run_broker  # noqa: PLC0415 - not for the others

    return run_broker(further=CLI_COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
