"""`stats` and `lag`: rates and storage of topics, and the backlog of subscriptions."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from magnetar.cli.commands.resources import TOPIC_COLUMNS, stats_of, topic_names, topic_rows
from magnetar.cli.errors import CommandLineError, NotFoundError
from magnetar.cli.output import as_objects, as_table
from magnetar.cli.pulsar_admin.kinds import duration
from magnetar.cli.pulsar_admin.verb import topic_of
from magnetar.cli.session import HELP, Session, with_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

LAG_COLUMNS: Final[tuple[str, ...]] = (
    "TOPIC",
    "SUBSCRIPTION",
    "BACKLOG",
    "MSG/S OUT",
    "MSG/S IN",
    "CAUGHT UP IN",
    "CONSUMERS",
    "UNACKED",
)
_FOR_EVER: Final = "never"


def names_below(session: Session, what: str) -> list[str]:
    """The topic, or the topics of a namespace."""
    return topic_names(session, what) if _is_namespace(what) else [str(topic_of(what))]


def _is_namespace(what: str) -> bool:
    """Whether the text is TENANT/NAMESPACE, else it names a topic."""
    return "://" not in what and what.count("/") == 1


@click.command(context_settings=HELP)
@click.argument("what", default="public/default")
@with_broker
def stats(session: Session, what: str) -> None:
    """Figures of WHAT: a topic, or all topics of a namespace (public/default)."""
    if not _is_namespace(what):
        _shown_topic(session, what)
        return
    rows = topic_rows(session, topic_names(session, what))
    session.out.table(TOPIC_COLUMNS, rows, empty=f"no topics in {what}")


def _shown_topic(session: Session, topic: str) -> None:
    count, found = stats_of(session, topic)
    session.out.value({"topic": str(topic_of(topic)), "partitions": count, "stats": found})


@click.command(context_settings=HELP)
@click.argument("what", default="public/default")
@click.option("-w", "--watch", is_flag=True, help="again and again until Ctrl-C")
@click.option("--every", default="2s", show_default=True, metavar="DURATION", help="with --watch")
@click.option("--above", type=click.IntRange(min=0), help="exit code 1 when a backlog is above so many messages")
@with_broker
def lag(session: Session, what: str, watch: bool, every: str, above: int | None) -> int:
    """How far the subscriptions of WHAT are behind: a topic, or all topics of a namespace (public/default)."""
    pause_s = duration(every)
    if pause_s < 1:
        raise CommandLineError("--every: at least one second")
    rows = sorted(lag_rows(session, what), key=lambda row: -row[2])
    while watch:
        _draw(session, rows)
        time.sleep(pause_s)
        rows = sorted(lag_rows(session, what), key=lambda row: -row[2])
    session.out.table(LAG_COLUMNS, rows, empty=f"no subscriptions in {what}")
    return 1 if above is not None and any(row[2] > above for row in rows) else 0


def lag_rows(session: Session, what: str) -> Iterator[tuple[Any, ...]]:
    """Return one row per subscription."""
    for topic in names_below(session, what):
        try:
            _, found = stats_of(session, topic)
        except NotFoundError:
            if not _is_namespace(what):
                raise
            continue  # deleted since the list was made
        incoming = float(found.get("msgRateIn", 0))
        for name, each in sorted(found.get("subscriptions", {}).items()):
            backlog, outgoing = int(each.get("msgBacklog", 0)), float(each.get("msgRateOut", 0))
            consumers, unacked = len(each.get("consumers", ())), int(each.get("unackedMessages", 0))
            yield topic, name, backlog, outgoing, incoming, caught_up(backlog, incoming, outgoing), consumers, unacked


def caught_up(backlog: int, incoming: float, outgoing: float) -> str:
    """Return how long the subscription needs for the backlog at these rates."""
    if backlog == 0:
        return "now"
    if outgoing <= incoming:
        return _FOR_EVER
    left = backlog / (outgoing - incoming)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if left >= size:
            return f"{left / size:.1f} {unit}"
    return f"{left:.0f} s"


def _draw(session: Session, rows: list[tuple[Any, ...]]) -> None:
    """Show one round of --watch: on a terminal, clear the screen; elsewhere, append a JSON line or a table."""
    if session.out.as_json:
        session.out.line(as_objects(LAG_COLUMNS, rows))
        return
    table = as_table(LAG_COLUMNS, rows, colour=False) if rows else "no subscriptions\n"
    stamp = time.strftime("%H:%M:%S")
    clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else ""
    session.out.text(f"{session.target.name}  {stamp}\n\n{table}", head=clear)
