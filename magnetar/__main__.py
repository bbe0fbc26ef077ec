"""`python -m magnetar` is the `magnetar` command. Each group of commands loads only its own modules."""

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from magnetar.broker.settings import Settings

EXIT_USAGE = 2
EXIT_FILE = 74
EXIT_MISSING = 78
EXIT_CLOSED_PIPE = 141
_SERVICES = ("standalone", "broker")
_HELP = ("-h", "--help")
_OPTIONS = (*_HELP, "--version")


async def _run_with_faults(settings: "Settings") -> int:
    from magnetar.testing.running import run  # noqa: PLC0415 - only where faultKitPort is set

    return await run(settings)


def _hold_standard_streams(name: str) -> None:
    """Open the standard streams that the caller has closed (`>&-`), so that no file or socket gets their descriptors,
    here or in a child process.

    What a broker prints is discarded then; the output of another command fails.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            fails = descriptor == 1 and name not in _SERVICES
            opened = os.open(os.devnull, os.O_RDONLY if fails else os.O_RDWR)  # the lowest free descriptor: this one
            os.set_inheritable(opened, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the same
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the same


def main() -> int:
    """Run the command line; returns the exit code of the process."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    _hold_standard_streams(name)
    if name == "standalone":
        from magnetar.broker.cli import main as run_broker  # noqa: PLC0415 - nothing before it: its start is timed

        return run_broker(with_faults=_run_with_faults)
    try:
        code = _other(name)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes at exit
        return EXIT_CLOSED_PIPE
    except OSError as error:
        sys.stderr.write(f"magnetar {name}: error: {error}\n")
        with contextlib.suppress(OSError):
            sys.stdout.close()
        return EXIT_FILE
    return code


def parser_of_completed(name: str) -> "ArgumentParser | None":
    """Return the parser of a command that argparse reads, for completion; None where a package of an extra is
    missing.
    """
    from magnetar.cli.argparse_completion import subcommand_of  # noqa: PLC0415 - only for a shell that completes

    try:
        if name == "pipeline":
            from magnetar.pipeline.cli import build_parser as build_pipeline_parser  # noqa: PLC0415 - the same

            return build_pipeline_parser()
        from magnetar.broker.cli import build_parser  # noqa: PLC0415 - the same

        with contextlib.redirect_stderr(io.StringIO()):  # beside the line that a shell completes
            return subcommand_of(build_parser([name], {}), name)
    except (ModuleNotFoundError, SystemExit):
        return None


def _asks_for_help(arguments: list[str]) -> bool:
    return any(each in _HELP for each in arguments)


def _other(name: str) -> int:
    from magnetar.command_names import (  # noqa: PLC0415 - not for `standalone`
        BROKER_COMMANDS,
        CLI_COMMANDS,
        COMPLETE_VARIABLE,
        no_such_command,
    )

    if COMPLETE_VARIABLE in os.environ:
        from magnetar.cli.main import complete  # noqa: PLC0415 - only for a shell that completes

        return complete(COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE], parser_of_completed)
    if name == "help":
        sys.argv[1:] = [*sys.argv[2:], "--help"]
        return _other(sys.argv[1])
    if name == "pipeline":  # above the broker, which knows nothing of it
        try:
            from magnetar.pipeline.cli import main as run_pipeline  # noqa: PLC0415 - needs the extra `spark`
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("magnetar"):
                raise
            remedy = f"{error}: pip install '/path/to/magnetar[spark]'"
            if _asks_for_help(sys.argv[2:]):
                text = f"{BROKER_COMMANDS[name].capitalize()}.\n\nJobs and options come with packages that are missing"
                sys.stdout.write(f"usage: magnetar pipeline [-h] JOB ...\n\n{text} ({remedy}).\n")
                return 0
            sys.stderr.write(f"magnetar pipeline: error: {remedy}\n")
            return EXIT_MISSING
        return run_pipeline(sys.argv[2:])
    if name in CLI_COMMANDS:  # beside the broker, which knows nothing of it
        from magnetar.cli.main import main as run_command  # noqa: PLC0415 - not for the broker

        return run_command(sys.argv[1:])
    if name and name not in BROKER_COMMANDS and name not in _OPTIONS:
        sys.stderr.write(f"magnetar: error: {no_such_command(name)}\n")
        return EXIT_USAGE
    from magnetar.broker.cli import main as run_broker  # noqa: PLC0415 - not for the others

    if name:
        return run_broker(further=CLI_COMMANDS)
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        run_broker(["--help"], further=CLI_COMMANDS)
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
