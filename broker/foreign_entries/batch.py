"""One read of a dispatcher in conversion: the entries for a converter, and their outcomes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.dispatchers.ports import Transformed
from magnetar.broker.foreign_entries.outcomes import ConvertedSlab
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from magnetar.broker.dispatchers.ports import Order
    from magnetar.broker.foreign_entries.outcomes import Outcome
    from magnetar.converters.chain import LoadedConverter
    from magnetar.converters.outcome import Converted
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Slab

STORED: Final = "stored"
"""The result of an entry that the broker sends as it is stored."""
TAKEN_OUT: Final = "taken out"
"""The result of an entry that the broker does not send now: the entry is acknowledged or parked."""


@dataclass(slots=True)
class Item:
    """An entry that a converter takes: `index` in the slab of span number `span`."""

    span: int
    index: int
    chosen: LoadedConverter
    outcome: Outcome | None = None
    letter: asyncio.Future[bool] | None = None
    """The future of the dead letter while the broker stores it, else None."""
    result: bytes | str | None = None
    """The bytes to send, STORED or TAKEN_OUT; None: not settled yet."""


@dataclass(slots=True)
class Batch:
    """The spans of a read and the items among them; items are settled in order."""

    spans: list[Span]
    items: list[Item]
    order: Order
    bypassed: Callable[[int], None] = lambda _entries: None
    waited_s: float = 0.0
    waits_for: asyncio.Future[Any] | None = None
    transformed: Transformed = field(default_factory=Transformed)
    _settled: int = 0
    _stopped: Item | None = None

    def next(self) -> Item | None:
        """The first unsettled item; None when the batch is settled."""
        return None if self.is_settled else self.items[self._settled]

    @property
    def is_settled(self) -> bool:
        return self._stopped is not None or self._settled == len(self.items)

    def position(self, item: Item) -> Position:
        return self.spans[item.span].slab.position(item.index)

    def settle(self, item: Item, result: bytes | str) -> None:
        item.result = result
        self._settled += 1

    def stop_at(self, item: Item) -> None:
        """Settle the batch at this item: to keep the order, the broker sends neither this entry nor later entries."""
        self._stopped = item

    def converted(self, item: Item, converted: Converted) -> None:
        """Settle the item by a conversion.

        An identity is sent as stored. An entry without messages is not sent and counts as done. Batch indexes without
        a message are noted as cleared.
        """
        if converted.identity:
            self.settle(item, STORED)
        elif converted.is_empty:
            self.settle(item, TAKEN_OUT)
            self.transformed.done.append(self.position(item))
        else:
            self.settle(item, converted.entry)
            if converted.holes:
                self.transformed.cleared.append((self.position(item), ack_set(converted)))

    def result(self) -> list[Span] | Transformed:
        """The result of a settled batch: the list of spans itself if the broker sends all entries as stored."""
        if self._stopped is None and all(item.result is STORED for item in self.items):
            return self.spans
        out, rest = self.transformed, self.transformed.rest
        items: dict[int, list[Item]] = {}
        for item in self.items:
            items.setdefault(item.span, []).append(item)
        for number, span in enumerate(self.spans):
            if rest:
                rest.append(span)
                continue
            stopped = self._stopped if self._stopped is not None and self._stopped.span == number else None
            end = span.end if stopped is None else stopped.index
            out.spans += self._pieces(span.slab, span.start, end, items.get(number, []))
            if stopped is not None:
                rest.append(Span(span.slab, stopped.index, span.end))
        return out

    def _pieces(self, slab: Slab, start: int, end: int, items: list[Item]) -> Iterator[Span]:
        """Yield the entries start .. end - 1 in order, as stored or converted, without the TAKEN_OUT entries."""
        run: list[bytes] = []
        run_start = start
        for item in items:
            if item.index >= end:
                break
            if item.result is STORED:
                continue
            if run and (item.index > start or not isinstance(item.result, bytes)):
                yield self._converted(slab, run_start, run)
                run = []
            if start < item.index:
                yield Span(slab, start, item.index)
            if isinstance(item.result, bytes):
                run_start = run_start if run else item.index
                run.append(item.result)
            start = item.index + 1
        if run:
            yield self._converted(slab, run_start, run)
        if start < end:
            yield Span(slab, start, end)

    def _converted(self, slab: Slab, start: int, entries: list[bytes]) -> Span:
        return Span(ConvertedSlab(slab, start, entries, self.bypassed), 0, len(entries))


def ack_set(converted: Converted) -> list[int]:
    """The batch indexes that have a message, as words of an ack set (protocol/message_id.py)."""
    bits = bytearray(((1 << converted.messages) - 1).to_bytes(-(-converted.messages // 64) * 8, "little"))
    for hole in converted.holes:
        bits[hole >> 3] &= ~(1 << (hole & 7))
    return list(struct.unpack(f"<{len(bits) // 8}q", bits))
