"""Commands that argparse reads, as click commands: shells complete all commands through click."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE = click.Path(dir_okay=True)
_DIRECTORY = click.Path(file_okay=False)
_PATHS = {"FILE": _FILE, "PATH": _FILE, "DIR": _DIRECTORY}
"""Metavar -> the paths that a shell offers."""


def as_click(name: str, parser: argparse.ArgumentParser) -> click.Command:
    """Return a command with the words of the parser, its subcommands included. It serves completion alone: its call
    does nothing.

    argparse has no public list of its arguments; `_actions` is the same in all its versions.
    """
    choices = _subcommands(parser)
    params = list(_params(parser))
    if not choices:
        return click.Command(name, params=params, help=parser.description)
    commands = {each: as_click(each, inner) for each, inner in choices.items()}
    return click.Group(name, params=params, commands=commands, help=parser.description)


def subcommand_of(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """Return the parser of a subcommand. Raises: KeyError if the parser has no such subcommand."""
    return _subcommands(parser)[name]


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            return dict(action.choices)
    return {}


def _params(parser: argparse.ArgumentParser) -> Iterator[click.Parameter]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):  # noqa: SLF001 - the same
            continue
        if action.help == argparse.SUPPRESS:
            continue
        if not action.option_strings:
            many = action.nargs in (argparse.ZERO_OR_MORE, argparse.ONE_OR_MORE)
            yield click.Argument([action.dest], type=_type(action), nargs=-1 if many else 1, required=False)
        elif action.nargs == 0:
            yield click.Option([*action.option_strings, action.dest], is_flag=True, help=action.help)
        else:
            repeated = isinstance(action, argparse._AppendAction)  # noqa: SLF001 - the same
            yield click.Option(
                [*action.option_strings, action.dest], type=_type(action), multiple=repeated, help=action.help
            )


def _type(action: argparse.Action) -> Any:
    if action.choices is not None:
        return click.Choice([str(choice) for choice in action.choices])
    return _PATHS.get(str(action.metavar or action.dest.upper()))
