"""`context`: brokers by name."""

from __future__ import annotations

import os
from typing import Any

import click

from magnetar.cli.contexts import Context, ContextFile
from magnetar.cli.errors import CommandLineError
from magnetar.cli.output import Output
from magnetar.cli.session import HELP
from magnetar.cli.target import chosen_target


@click.group("context", context_settings=HELP, no_args_is_help=True)
def context() -> None:
    """Brokers by name, so that other commands need no addresses and credentials."""


_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON")


@context.command("list")
@_JSON
def list_contexts(as_json: bool) -> None:
    """All contexts; the current context has a star."""
    file = ContextFile.load(os.environ)
    rows = [
        ("*" if name == file.current else "", name, each.service_url, each.admin_url, each.description)
        for name, each in sorted(file.contexts.items())
    ]
    Output(as_json=as_json).table(("CURRENT", "NAME", "URL", "ADMIN URL", "DESCRIPTION"), rows, empty="no contexts")


@context.command("add")
@click.argument("name")
@click.option("--url", "service_url", metavar="URL", help="pulsar://HOST:PORT or pulsar+ssl://HOST:PORT")
@click.option("--admin-url", metavar="URL")
@click.option("--token", metavar="TOKEN", help="file:PATH or env:NAME (best), or the token")
@click.option("--basic", metavar="USER:PASSWORD")
@click.option("--tls-trust-certs", metavar="FILE", help="authorities to trust")
@click.option("--tls-cert", metavar="FILE", help="our certificate")
@click.option("--tls-key", metavar="FILE", help="its key")
@click.option("--tls-allow-insecure", is_flag=True, help="do not check certificates")
@click.option("--description", default="")
@click.option("--use", is_flag=True, help="make it the current context")
@_JSON
def add_context(name: str, use: bool, as_json: bool, **given: Any) -> None:
    """Add context NAME, or replace it."""
    if not given["service_url"] and not given["admin_url"]:
        raise CommandLineError("give --url, --admin-url or both")
    made = Context(**given)
    chosen_target(made, None, {"HOME": "/nonexistent"})  # refuses invalid addresses
    file = ContextFile.load(os.environ)
    file.put(name, made)
    if use:
        file.select(name)
    file.save()
    current = " (current)" if file.current == name else ""
    Output(as_json=as_json).done(f"context {name}{current} in {file.path}", name=name, **made.shown())


@context.command("use")
@click.argument("name")
@_JSON
def use_context(name: str, as_json: bool) -> None:
    """Make NAME the current context."""
    file = ContextFile.load(os.environ)
    file.select(name)
    file.save()
    Output(as_json=as_json).done(f"commands use {name} now", current=name)


@context.command("show")
@click.argument("name", required=False)
@_JSON
def show_context(name: str | None, as_json: bool) -> None:
    """Show the context NAME, or the current context, without its secrets."""
    file = ContextFile.load(os.environ)
    chosen = name or file.current
    if chosen is None:
        raise CommandLineError("there is no current context: `magnetar context use NAME`, or give NAME")
    Output(as_json=as_json).fields({"name": chosen, **file.get(chosen).shown()})


@context.command("remove")
@click.argument("name")
@_JSON
def remove_context(name: str, as_json: bool) -> None:
    """Forget context NAME."""
    file = ContextFile.load(os.environ)
    file.remove(name)
    file.save()
    Output(as_json=as_json).done(f"removed {name}", removed=name)
