"""Look through a part of the log for delayed entries: after a crash, and where a bucket's snapshot was lost."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from magnetar.protocol.runs import EntryFlag
from magnetar.storage.errors import CorruptEntryError

if TYPE_CHECKING:
    from magnetar.delayed.delay_ports import Log, ScanCursor
    from magnetar.delayed.firing import Firing
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span

__all__ = ["scan_log"]

_READ_ENTRIES, _READ_BYTES = 1000, 1 << 20
_DELAYED = int(EntryFlag.HAS_DELIVER_AT)


async def scan_log(log: Log, first: Position, last: Position, firing: Firing, *, repair: bool) -> int:
    """Index the delayed entries from ``first`` to ``last``; returns how many entries were looked at.

    An entry that cannot be read is no longer pending, so dispatch meets it and deals with it. Raises StorageError.
    """
    cursor: ScanCursor = log.new_read_cursor(first)
    seen = 0
    try:
        while True:
            await asyncio.sleep(0)
            try:
                result = cursor.read(_READ_ENTRIES, _READ_BYTES, last)
                spans = await result if inspect.isawaitable(result) else result
            except CorruptEntryError as error:
                firing.pending.discard(*error.position)
                cursor.move_to(error.position.next())
                continue
            if not spans:
                return seen
            for span in spans:
                seen += span.entries
                _scan(span, firing, repair=repair)
    finally:
        cursor.close()


def _scan(span: Span, firing: Firing, *, repair: bool) -> None:
    slab = span.slab
    facts = slab.facts()
    if facts.deliver_at is None or not facts.any_flags & _DELAYED:
        return
    times, flags = memoryview(facts.deliver_at).cast("q"), memoryview(facts.flags).cast("I")
    for k in range(span.start, span.end):
        if flags[k] & _DELAYED:
            firing.found(times[k], slab.position(k), repair=repair)
