"""`magnetar admin GROUP VERB`: makes click commands from the table, one group at a time."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from magnetar.cli.contexts import Context
from magnetar.cli.errors import CliError, CommandLineError, UnreachableError
from magnetar.cli.output import for_stream
from magnetar.cli.pulsar_admin.kinds import LABELS, converted
from magnetar.cli.pulsar_admin.steps import Answer, carried_out
from magnetar.cli.pulsar_admin.table import GROUPS, UNSUPPORTED, verbs_of_group
from magnetar.cli.target import chosen_target, with_auth
from magnetar.cli.web import Web

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.cli.pulsar_admin.verb import Flag, Request, Verb

HELP: Final = {"help_option_names": ["-h", "--help"]}
EXIT_FAILED: Final = 1
"""The exit code of every failure except a wrong command line, as in pulsar-admin."""


class _Around:
    """`steps.Surroundings` for a real broker and terminal."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def ask(self, request: Request) -> Answer:
        return Answer(*self._web.fetch(request.method, request.target, request.body))

    def confirm(self, question: str) -> bool:
        return click.confirm(question, err=True)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _Groups(click.Group):
    """The groups of pulsar-admin. A group is built when its name is given."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        if cmd_name in GROUPS:
            return _group(cmd_name)
        raise click.UsageError(_no_such("group", cmd_name, cmd_name, list(GROUPS), "magnetar admin --help"))


class _Verbs(click.Group):
    """The verbs of one group."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            full = f"{self.name} {cmd_name}"
            raise click.UsageError(
                _no_such("verb", full, cmd_name, list(self.commands), f"magnetar admin {self.name} --help")
            )
        return found


def _no_such(kind: str, full: str, name: str, known: Sequence[str], where: str) -> str:
    """Return the error text for a name that the table does not have."""
    reason = UNSUPPORTED.get(full)
    if reason is not None:
        return f"`{full}` of pulsar-admin is not supported: {reason}"
    near = difflib.get_close_matches(name, known, 3)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return f"there is no {kind} {name!r}.{hint} `{where}` lists all"


def _group(name: str) -> click.Group:
    verbs = verbs_of_group(name)
    return _Verbs(
        name,
        commands={verb.name: _command(verb) for verb in verbs.values()},
        help=GROUPS[name],
        context_settings=HELP,
        no_args_is_help=True,
    )


def _command(verb: Verb) -> click.Command:
    parameters: list[click.Parameter] = [_option(each) for each in verb.flags]
    parameters += [click.Argument([name], required=True) for name in verb.argument.split()]

    def run(**given: Any) -> None:
        _carry_out(verb, given)

    return click.Command(verb.name, params=parameters, callback=run, help=_help(verb), context_settings=HELP)


def _help(verb: Verb) -> str:
    return f"{verb.help[:1].upper()}{verb.help[1:]}."


def _option(flag: Flag) -> click.Option:
    text = flag.help
    if flag.default not in (None, False) and not isinstance(flag.default, dict):
        text = f"{text} (default: {flag.default})".strip()
    names = [*flag.names, flag.key]
    if flag.kind == "flag":
        return click.Option(names, is_flag=True, help=text)
    return click.Option(names, multiple=True, required=flag.required, metavar=LABELS[flag.kind], help=text)


def values_of(verb: Verb, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a verb from the result of click: converted, with defaults. Raises: CommandLineError."""
    values: dict[str, Any] = {name: given[name] for name in verb.argument.split()}
    for flag in verb.flags:
        found = given.get(flag.key)
        if not found:
            values[flag.key] = flag.default
            continue
        try:
            values[flag.key] = True if flag.kind == "flag" else converted(flag.kind, list(found))
        except CommandLineError as error:
            raise CommandLineError(f"{flag.names[-1]}: {error}") from None
    return values


def _carry_out(verb: Verb, given: dict[str, Any]) -> None:
    try:
        for piece in carried_out(verb, values_of(verb, given), _Around(_web())):
            click.echo(for_stream(piece, sys.stdout), nl=False)
    except CommandLineError as error:
        if error.__notes__ if hasattr(error, "__notes__") else False:
            _failed(error)
        raise click.UsageError(str(error)) from None
    except CliError as error:
        _failed(error)


def _failed(error: CliError) -> None:
    """Return the error text as pulsar-admin prints it, with the reason on a separate line."""
    reason = error.__notes__[0] if hasattr(error, "__notes__") else str(error)
    first = str(error) if isinstance(error, UnreachableError) else reason
    click.echo(for_stream(f"{first}\n\nReason: {reason}", sys.stderr), err=True)
    raise click.exceptions.Exit(EXIT_FAILED)


def _web() -> Web:
    options: dict[str, Any] = click.get_current_context().find_root().params
    flags = Context(
        admin_url=options["admin_url"],
        tls_trust_certs=options["tls_trust_cert_path"],
        tls_allow_insecure=options["tls_allow_insecure"],
    )
    flags = with_auth(flags, options["auth_plugin"], options["auth_params"])
    if options["token"] is not None:
        flags = dataclasses.replace(flags, token=options["token"])
    return Web(chosen_target(flags, options["context"], os.environ), options["request_timeout"])


@click.command(
    "admin",
    cls=_Groups,
    context_settings=HELP,
    no_args_is_help=True,
    epilog="Without --admin-url and --context: MAGNETAR_ADMIN_URL, the file PULSAR_CLIENT_CONF, the current context, "
    "http://127.0.0.1:8080.",
)
@click.option("--admin-url", metavar="URL", help="address of the admin API")
@click.option("--context", metavar="NAME", help="a context of `magnetar context`")
@click.option("--token", metavar="TOKEN", help="file:PATH, env:NAME or the token")
@click.option("--auth-plugin", metavar="CLASS", help="Pulsar's names of token, basic and TLS authentication")
@click.option("--auth-params", metavar="PARAMS", help="their parameters")
@click.option("--request-timeout", type=float, default=300, show_default=True, metavar="SECONDS")
@click.option("--tls-allow-insecure", is_flag=True, help="do not check certificates")
@click.option(
    "--tls-trust-cert-path", "--tls-trust-certs", "tls_trust_cert_path", metavar="FILE", help="authorities to trust"
)
@click.option("--tls-enable-hostname-verification", is_flag=True, help="without effect: names are checked")
@click.option("--tls-provider", metavar="NAME", hidden=True)
def admin(**_: Any) -> None:
    """The verbs and flags of Apache Pulsar's pulsar-admin, against any broker."""
