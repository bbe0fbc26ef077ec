"""The common parts of the commands of this room: options that choose the broker, `--json`, and the session made from
these options.
"""

from __future__ import annotations

import asyncio
import os
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from magnetar.cli.contexts import Context
from magnetar.cli.errors import (
    CliError,
    CommandLineError,
    ConfigurationError,
    ConflictError,
    DeniedError,
    NotFoundError,
    UnreachableError,
)
from magnetar.cli.output import Output
from magnetar.cli.target import Target, chosen_target
from magnetar.cli.web import Web, hint_of_certificate
from magnetar.client.errors import BusyError, ClientError, ForeignPeerError, InputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

HELP = {"help_option_names": ["-h", "--help"]}
_T = TypeVar("_T")


class NamedPath(click.Path):
    """A path that is not empty: the text of an unset variable of a shell would be this directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


class Session:
    """One broker and the output of one command."""

    def __init__(self, target: Target, out: Output) -> None:
        self.target, self.out = target, out
        self.web = Web(target)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work that uses the binary protocol. Raises: CliError."""
        try:
            return asyncio.run(work)
        except ClientError as error:
            raise cli_error(error, self.target.credentials.tls_cert) from error


def cli_error(error: ClientError, certificate: str | None = None) -> CliError:
    """Return the error of this room for an error of a client, with a certificate or without."""
    text = str(error)
    if isinstance(error, InputError):
        return ConfigurationError(text)
    if isinstance(error, ForeignPeerError):
        return UnreachableError(f"{text}: is this the port of a broker? Give --url, or a context")
    if isinstance(error, RefusedError):
        if "NotFound" in text:
            return NotFoundError(text)
        if "InvalidTopicName" in text:
            return CommandLineError(text)
        return DeniedError(text) if "Authorization" in text or "Authentication" in text else ConflictError(text)
    if isinstance(error, BusyError):
        return UnreachableError(text)
    hint = hint_of_certificate(certificate)
    return UnreachableError(f"{text}: is the broker up, and is this its port? Give --url, or a context{hint}")


_OPTIONS = (
    click.option("--context", metavar="NAME", help="a context of `magnetar context`"),
    click.option("--url", metavar="URL", help="service URL, pulsar://HOST:PORT or pulsar+ssl://HOST:PORT"),
    click.option("--admin-url", metavar="URL", help="address of the admin API"),
    click.option("--token", metavar="TOKEN", help="file:PATH, env:NAME or the token"),
    click.option("--tls-trust-certs", metavar="FILE", help="authorities to trust"),
    click.option("--tls-allow-insecure", is_flag=True, help="do not check certificates"),
    click.option("--json", "as_json", is_flag=True, help="print JSON"),
)


def with_broker(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options, and gives the command a Session as its first argument."""

    @wraps(command)
    def run(
        context: str | None,
        url: str | None,
        admin_url: str | None,
        token: str | None,
        tls_trust_certs: str | None,
        tls_allow_insecure: bool,
        as_json: bool,
        **given: Any,
    ) -> Any:
        flags = Context(url, admin_url, token, None, tls_trust_certs, tls_allow_insecure=tls_allow_insecure)
        target = chosen_target(flags, context, os.environ)
        return command(Session(target, Output(as_json=as_json)), **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
