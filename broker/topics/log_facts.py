"""Facts that the entries of a log give: times, the last message, the properties that users keep with a topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compaction.compacted_ledger import last_batch_index
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.errors import StorageError
from magnetar.storage.managed.stored_layout import USER_PROPERTY
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.compaction.topic_compaction import TopicCompaction
    from magnetar.storage.slab import Span

_INDEX = "index"
_MARKERS_IN_ONE_TURN = 100


class ReadableLog(Protocol):
    """A log whose entries can be read one by one."""

    @property
    def confirmed_index(self) -> int: ...
    @property
    def first_position(self) -> Position | None: ...
    @property
    def last_confirmed(self) -> Position: ...
    def previous(self, position: Position) -> Position: ...
    async def read_entry(self, position: Position) -> Span: ...
    async def read_last_entry(self) -> Span | None: ...


class LogWithProperties(Protocol):
    """A log that keeps properties."""

    @property
    def properties(self) -> Mapping[str, str]: ...
    async def change_properties(self, change: Callable[[Mapping[str, str]], Mapping[str, str | None]]) -> None: ...


async def entry_time_ms(ledger: ReadableLog, position: Position) -> int:
    """Entry timestamp: the broker's if the entry has a broker timestamp, else the publish time; 0 when the entry does
    not exist.
    """
    try:
        span = await ledger.read_entry(position)
    except StorageError:
        return 0
    facts = span.slab.facts()
    stamped = memoryview(facts.broker_timestamp).cast("q")[span.start]
    published: int = memoryview(facts.publish_time).cast("q")[span.start]
    return stamped if stamped >= 0 else published


async def last_publish_ms(ledger: ReadableLog) -> int:
    """Publish time of the last entry; 0 for an empty ledger, or while the entry cannot be read."""
    try:
        span = await ledger.read_last_entry()
    except StorageError:
        return 0
    if span is None:
        return 0
    found: int = memoryview(span.slab.facts().publish_time).cast("q")[span.start]
    return found


class LastMessage:
    """Finds the last message of a log.

    A marker that the log had when its topic was loaded is no message: no consumer gets the marker, and a reader would
    wait for it for ever. A later marker counts until the next load, as in Apache Pulsar.
    """

    def __init__(self, ledger: ReadableLog) -> None:
        self._ledger = ledger
        self._loaded_end = ledger.last_confirmed
        self._markers_from: Position | None = None
        """From this position to the end at the load there are only markers."""

    async def message_id(self, compaction: TopicCompaction | None = None) -> tuple[Position, int]:
        """Position and batch index of the last message; (-1, -1) and -1 when the topic is empty, 0 after compaction of
        all.

        compaction: set for a reader of the compacted topic; it counts when compaction covers the whole log.
        """
        if compaction is not None and compaction.covers_all:
            compacted = await compaction.last_entry()
            return (EARLIEST, 0) if compacted is None else (compacted.first_position, last_batch_index(compacted))
        return _id_of(await self._last_entry())

    async def entry_id(self) -> tuple[Position, int]:
        """Position and batch index of the last entry, be it a marker; (-1, -1) and -1 when the topic is empty."""
        return _id_of(await self._ledger.read_last_entry())

    async def _last_entry(self) -> Span | None:
        ledger, steps = self._ledger, 0
        span = await ledger.read_last_entry()
        if span is not None and self._markers_from is not None and span.first_position <= self._loaded_end:
            span = await self._entry_before(self._markers_from)
        while span is not None and span.first_position <= self._loaded_end and _is_marker(span):
            self._markers_from = span.first_position
            span = await self._entry_before(self._markers_from)
            steps += 1
            if steps % _MARKERS_IN_ONE_TURN == 0:
                await asyncio.sleep(0)
        return span

    async def _entry_before(self, position: Position) -> Span | None:
        first, earlier = self._ledger.first_position, self._ledger.previous(position)
        return None if first is None or earlier < first else await self._ledger.read_entry(earlier)


def _id_of(span: Span | None) -> tuple[Position, int]:
    if span is None:
        return EARLIEST, -1
    facts = span.slab.facts()
    batched = memoryview(facts.flags).cast("I")[span.start] & EntryFlag.BATCHED
    size = memoryview(facts.batch_sizes).cast("q")[span.start]
    return span.first_position, size - 1 if batched else -1


def _is_marker(span: Span) -> bool:
    return bool(memoryview(span.slab.facts().flags).cast("I")[span.start] & EntryFlag.MARKER)


class TopicProperties:
    """The properties that users keep with a topic, among those of its log, whose last message had the broker index
    `index_at_load` when the topic was loaded.
    """

    def __init__(self, ledger: LogWithProperties, index_at_load: int) -> None:
        self._ledger = ledger
        self._index_at_load = index_at_load

    @property
    def index_as_kept(self) -> int:
        """The broker index of the last message when the list of ledgers was written, or the topic loaded."""
        return max(self._index_at_load, int(self._ledger.properties.get(_INDEX, -1)))

    def of_users(self) -> dict[str, str]:
        return _of_users(self._ledger.properties)

    async def change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace the properties that users keep with the topic by ``change(properties)``, in one transaction; durable
        on return. Of changes at the same time each gets the properties that the change before has left.
        """

        def changes(properties: Mapping[str, str]) -> Mapping[str, str | None]:
            now = _of_users(properties)
            new = change(now)
            gone: dict[str, str | None] = dict.fromkeys(now.keys() - new.keys())
            return {USER_PROPERTY + key: value for key, value in (gone | new).items()}

        await self._ledger.change_properties(changes)


def _of_users(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(USER_PROPERTY): value for key, value in properties.items() if key.startswith(USER_PROPERTY)
    }
