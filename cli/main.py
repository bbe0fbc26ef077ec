"""The commands of this room by name. A command is imported only when it runs, so that others start fast."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.errors import CliError, CommandLineError
from magnetar.command_names import BROKER_COMMANDS, CLI_COMMANDS

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Sequence

    import click

MODULES: Final = {
    "admin": ("pulsar_admin.command", "admin"),
    "client": ("pulsar_client.command", "client"),
    "topics": ("commands.resources", "topics"),
    "subscriptions": ("commands.resources", "subscriptions"),
    "namespaces": ("commands.resources", "namespaces"),
    "tenants": ("commands.resources", "tenants"),
    "permissions": ("commands.resources", "permissions"),
    "schemas": ("commands.resources", "schemas"),
    "stats": ("commands.figures", "stats"),
    "lag": ("commands.figures", "lag"),
    "produce": ("commands.messages", "produce"),
    "consume": ("commands.messages", "consume"),
    "tail": ("commands.messages", "tail"),
    "peek": ("commands.messages", "peek"),
    "export": ("commands.export", "export"),
    "backup": ("commands.backups", "backup"),
    "restore": ("commands.backups", "restore"),
    "doctor": ("commands.doctor", "doctor"),
    "context": ("commands.contexts", "context"),
    "completion": ("commands.completion", "completion"),
}
"""Name of a command -> module of this room, name in the module."""
EXIT_OF_USAGE: Final = {"admin": 1}
"""Command -> exit code of a wrong command line, where it is not 2: pulsar-admin has a single exit code for failures."""
EXIT_INTERRUPTED: Final = 130


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room; returns the exit code of the process. Raises: OSError if it cannot print."""
    import click  # noqa: PLC0415 - only for these commands

    name, rest = arguments[0], list(arguments[1:])
    try:
        with command_of(name).make_context(f"magnetar {name}", rest) as context:  # main() of click keeps closed pipes
            result = context.command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_OF_USAGE.get(name, error.exit_code)
    except CliError as error:
        return _failed(name, str(error), error.exit_code)
    except UnicodeEncodeError as error:
        # Python has a byte that is no UTF-8 as half of a surrogate pair, which payloads and names of files may contain.
        if not any(error.object[error.start : error.end] in each for each in arguments):
            raise
        text = f"an argument is no text in UTF-8: {error.object!a}"
        return _failed(name, text, EXIT_OF_USAGE.get(name, CommandLineError.exit_code))
    return int(result or 0)


def _failed(name: str, text: str, exit_code: int) -> int:
    from magnetar.cli.output import for_stream  # noqa: PLC0415 - after a failure

    sys.stderr.write(for_stream(f"magnetar {name}: error: {text}\n", sys.stderr))
    return exit_code


def command_of(name: str) -> click.Command:
    """Return the click command of that name."""
    module, attribute = MODULES[name]
    found: click.Command = getattr(import_module(f"magnetar.cli.{module}"), attribute)
    return found


def completed_group(parser_of: Callable[[str], ArgumentParser | None] = lambda _: None) -> click.Group:
    """Return all commands as a single click group, for completion only.

    Args:    parser_of: returns the parser of a command of BROKER_COMMANDS; without a parser the command has just name
                        and help.
    """
    import click  # noqa: PLC0415 - only for completion

    from magnetar.cli.argparse_completion import as_click  # noqa: PLC0415 - the same

    class _All(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
            return sorted({**BROKER_COMMANDS, **CLI_COMMANDS})

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
            if cmd_name in MODULES:
                found = command_of(cmd_name)
                found.short_help = CLI_COMMANDS[cmd_name]
                return found
            text = BROKER_COMMANDS.get(cmd_name)
            return None if text is None else click.Command(cmd_name, help=text)

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            """The completed command has the words of its parser; lists of commands load no parser."""
            name, command, rest = super().resolve_command(ctx, args)
            parser = parser_of(name) if name is not None and name in BROKER_COMMANDS else None
            return name, command if parser is None else as_click(str(name), parser), rest

    return _All("magnetar")


def complete(variable: str, instruction: str, parser_of: Callable[[str], ArgumentParser | None]) -> int:
    """Answer the shell that asks for completions. Returns the exit code of the process."""
    from click.shell_completion import shell_complete  # noqa: PLC0415 - only for completion

    extra: dict[str, Any] = {}
    return shell_complete(completed_group(parser_of), extra, "magnetar", variable, instruction)
