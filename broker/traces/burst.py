"""A burst: what goes through the broker in one turn, on one producer or to one consumer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Burst:
    """Entries that go through the broker together. begun_ns: since 1970. client: the name of the producer or consumer.

    first: ledger and entry id of the first; -1, -1 when nothing was stored.
    """

    topic: str
    client: str
    begun_ns: int
    messages: int
    size_bytes: int
    first: tuple[int, int] = (-1, -1)
