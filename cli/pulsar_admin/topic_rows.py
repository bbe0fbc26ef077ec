"""The common parts of the rows of `pulsar-admin topics`: their form, flags that many verbs take, positions as JSON."""

from __future__ import annotations

from typing import Any, Final

from magnetar.cli.pulsar_admin.verb import Flag, Verb, flag

SUBSCRIPTION: Final = flag("-s --subscription!", text="name of the subscription")
PROPERTIES: Final = flag("-p --property", "map", text="repeatable")


def message_id(position: dict[str, int], **more: Any) -> Any:
    """Return a position as the Java client writes it."""
    return {**position, "batchIndex": -1, **more}


def plain_message_id(position: dict[str, int]) -> Any:
    """Return a position as the Java client writes a MessageIdImpl."""
    return {**position, "batchSize": 0, "batchIndex": -1}


def topic_row(
    name: str,
    method: str,
    route: str,
    text: str,
    *flags: Flag,
    argument: str = "topic",
    show: str = "none",
    **more: Any,
) -> Verb:
    return Verb("topics", name, argument, method, route, flags, show=show, help=text, **more)
