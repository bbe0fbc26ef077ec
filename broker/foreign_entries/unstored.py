"""Conversion of the entries of a non-persistent topic.

Entries keep their order: entries without conversion wait behind entries in conversion, in a bounded queue. The broker
sends an entry that cannot be converted as the producer sent it (policy raw) or, with every other policy, drops the
entry: a non-persistent topic does not guarantee delivery.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.foreign_entries.frames import Declined
from magnetar.broker.foreign_entries.outcomes import ConvertedSlab
from magnetar.broker.foreign_entries.transformer import SLICE_S
from magnetar.broker.slices import give_way
from magnetar.broker.tasks import TaskSet
from magnetar.converters.outcome import Converted, FailurePolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.foreign_entries.topic_books import TopicBooks
    from magnetar.converters.chain import LoadedConverter
    from magnetar.storage.slab import Slab

log = structlog.get_logger(__name__)
MAX_WAITING_BYTES: Final = 16 << 20
"""Bound of the queue; the broker drops a new burst that exceeds it."""


class UnstoredConverting:
    """Converts for one non-persistent topic; `publish` hands a slab to all subscriptions."""

    def __init__(self, books: TopicBooks, publish: Callable[[Slab], None]) -> None:
        self._books = books
        self._publish = publish
        self._waiting: deque[Slab] = deque()
        self._waiting_bytes = 0
        self._tasks = TaskSet()
        self._slice_end_s = 0.0
        self.dropped = 0
        """The number of entries dropped because the queue was full."""

    def send(self, slab: Slab) -> None:
        """Publish the entries of a burst, now or once they and earlier entries are converted."""
        if not self._waiting and not self._found(slab):
            self._publish(slab)
        elif self._waiting_bytes + slab.size_bytes > MAX_WAITING_BYTES:
            self.dropped += slab.count
        else:
            self._waiting.append(slab)
            self._waiting_bytes += slab.size_bytes
            if len(self._waiting) == 1:
                self._tasks.spawn(self._work(), "converting.unstored")

    def _found(self, slab: Slab) -> list[tuple[int, LoadedConverter]]:
        return self._books.tools.candidates.of(slab.slice(0, slab.count))

    async def _work(self) -> None:
        self._slice_end_s = self._books.tools.clock() + SLICE_S
        while self._waiting:
            slab = self._waiting[0]
            try:
                await self._convert(slab)
            except Exception:  # an error must not keep later entries in the queue for ever
                log.exception("converting.failed", topic=self._books.topic)
            self._waiting.popleft()
            self._waiting_bytes -= slab.size_bytes

    async def _convert(self, slab: Slab) -> None:
        start = 0
        for k, chosen in self._found(slab):
            await self._give_way()
            answer = await self._books.convert_unstored(slab, k, chosen)
            if isinstance(answer, Declined) or (isinstance(answer, Converted) and answer.identity):
                continue
            converted = isinstance(answer, Converted)
            if not converted and self._books.policy().failure is FailurePolicy.RAW:
                self._books.counters_of(chosen.name).raw += 1
                continue
            if start < k:
                self._publish(slab.part(start, k))
            if isinstance(answer, Converted):
                note = self._books.note_bypass
                self._publish(ConvertedSlab(slab, k, [answer.entry], note, same_id=True))
            else:
                self._books.counters_of(chosen.name).skipped += 1
            start = k + 1
        if start < slab.count:
            self._publish(slab.part(start, slab.count))

    async def _give_way(self) -> None:
        """Let others have their turn when the slice of time is over: a conversion on the loop does not wait."""
        clock = self._books.tools.clock
        if clock() >= self._slice_end_s:
            await give_way()
            self._slice_end_s = clock() + SLICE_S

    async def close(self) -> None:
        """Drop the waiting entries."""
        self._waiting.clear()
        await self._tasks.close()
