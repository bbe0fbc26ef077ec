"""One message on its way from a row to its entry."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """value None is a tombstone. Times are milliseconds since 1970 UTC, 0 for none."""

    value: bytes | None
    key: bytes | None = None
    ordering_key: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    event_time_ms: int = 0
    deliver_at_ms: int = 0
    schema_version: bytes | None = None
    """Of the topic it goes to; None: that of its producer."""


class Row(NamedTuple):
    """A message and where its row wants it: a topic without partition, a partition or -1."""

    topic: str
    partition: int
    message: Message
