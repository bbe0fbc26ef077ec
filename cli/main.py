"""The commands of this room by name: each is imported when it is given, so that no other pays for it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from magnetar.cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

COMMANDS: Final = {
    "admin": ("pulsar_admin.command", "admin", "the verbs and flags of pulsar-admin"),
    "client": ("pulsar_client.command", "client", "produce, consume and read with the flags of pulsar-client"),
}
"""Name -> module of this room, name in it, and what it is for."""


EXIT_OF_USAGE: Final = {"admin": 1}
"""Where a wrong command line does not end with 2: pulsar-admin knows one failure."""


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room; returns the exit code of the process."""
    import click  # noqa: PLC0415 - only for these commands

    name, rest = arguments[0], list(arguments[1:])
    command = command_of(name)
    try:
        result = command.main(rest, prog_name=f"magnetar {name}", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return EXIT_OF_USAGE.get(name, error.exit_code)
    except CliError as error:
        sys.stderr.write(f"magnetar {name}: error: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    return int(result or 0)


def command_of(name: str) -> click.Command:
    """The click command of that name."""
    module, attribute, _ = COMMANDS[name]
    found: click.Command = getattr(import_module(f"magnetar.cli.{module}"), attribute)
    return found
