"""Bursts of entries, and a search for the trace contexts in their bytes that does not parse the messages.

A client with OpenTelemetry's instrumentation writes W3C's `traceparent` into the properties of each message. Protobuf
encodes such a property the same way in MessageMetadata and in the SingleMessageMetadata of a batch, so one search over
a burst finds the contexts of all its messages. The contexts in a batch that the client compressed or encrypted are
hidden.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


SEARCHED_BYTES: Final = 256 * 1024
"""Limit of the bytes searched in one burst; the search does not find contexts after them."""
LEAST_PART_BYTES: Final = 4096
"""The least that a part of a burst counts towards `SEARCHED_BYTES`: it bounds the number of searched parts."""
MOST_LOOKED_AT: Final = 64
"""Limit of the contexts of one burst that the search examines, sampled or not."""
MOST_TRACES: Final = 8
"""Limit of the traces of one burst: further traces get no span of the burst."""
_KEY_VALUE: Final = re.compile(rb"\n\x0btraceparent\x12700-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1


@dataclass(slots=True)
class Burst:
    """Entries that go through the broker in one turn, on one producer or to one consumer.

    begun_ns: nanoseconds since 1970. client: the name of the producer or consumer.

    first: ledger id and entry id of the first entry; -1, -1 when no entry was stored.
    """

    topic: str
    client: str
    begun_ns: int
    messages: int
    size_bytes: int
    first: tuple[int, int] = (-1, -1)


class TraceContext(NamedTuple):
    """The span of a client within which a message was sent."""

    trace_id: int
    span_id: int


class Found(NamedTuple):
    """The contexts of a burst. sampled: the sampled contexts, one per trace, in the order of their messages."""

    sampled: tuple[TraceContext, ...]
    has_any: bool
    """Whether the burst has any context: then the client's decision not to sample holds."""


def contexts_in(data: bytes, start: int, end: int) -> Found:
    """Find the contexts of the messages in `data[start:end]`, which are entries back to back."""
    sampled: dict[int, TraceContext] = {}
    has_any = False
    for trace_id, span_id, flags in _looked_at(data, start, min(end, start + SEARCHED_BYTES)):
        if not trace_id or not span_id:
            continue  # W3C: ids of zeros are invalid
        has_any = True
        if flags & _SAMPLED:
            sampled.setdefault(trace_id, TraceContext(trace_id, span_id))
            if len(sampled) == MOST_TRACES:
                break
    return Found(tuple(sampled.values()), has_any)


def _looked_at(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    for match in itertools.islice(_KEY_VALUE.finditer(data, start, end), MOST_LOOKED_AT):
        yield int(match[1], 16), int(match[2], 16), int(match[3], 16)
