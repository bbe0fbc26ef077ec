"""The outcomes of an attempt to convert an entry, and converted entries in the form dispatch works with."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.broker.foreign_entries.failures import Failed
from magnetar.broker.foreign_entries.flights import Flight
from magnetar.broker.foreign_entries.frames import Declined
from magnetar.converters.outcome import Converted
from magnetar.protocol import speed
from magnetar.storage.slab import Slab, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_HEADER = struct.Struct("<IIQQq")


class ConvertedSlab(Slab):
    """The converted entries `start ..` of `stored`, as records at the positions of the stored entries.

    Broker entry metadata stays in front of each entry, so consumers that negotiated it see the unchanged index. The
    records go to consumers only, so their checksum field is zero. `stored_span` calls `bypassed` with the number of
    entries that go to a consumer as stored.
    """

    __slots__ = ("_bypassed", "_start", "_stored")

    def __init__(
        self,
        stored: Slab,
        start: int,
        entries: Sequence[bytes],
        bypassed: Callable[[int], None] = lambda _: None,
        *,
        same_id: bool = False,
    ) -> None:
        """same_id: all records of `stored` have the id of its first record, as in a non-persistent topic."""
        parts: list[bytes | memoryview] = []
        step = 0 if same_id else 1
        offsets = array("q", [0])
        for k, entry in enumerate(entries, start):
            body = stored.body(k)
            prefix = body[: speed.after_prefix(body)]
            size = len(prefix) + len(entry)
            parts += (_HEADER.pack(size, 0, stored.ledger_id, stored.first_entry_id + k * step, -1), prefix, entry)
            offsets.append(offsets[-1] + _HEADER.size + size)
        super().__init__(stored.ledger_id, stored.first_entry_id + start * step, b"".join(parts), offsets.tobytes())
        self._stored = stored
        self._bypassed = bypassed
        self._start = start

    @property
    def kept_bytes(self) -> int:
        return len(self.data) + self._stored.kept_bytes

    def stored_span(self, span: Span) -> Span:
        self._bypassed(span.entries)
        return Span(self._stored, self._start + span.start, self._start + span.end)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The breaker of the converter is open; try the entry again in `wait_ms`."""

    wait_ms: int


Outcome = Converted | Declined | Failed | Unavailable | Flight
