"""Requests of the admin API that read entries: the content of a backlog, the position of a broker index."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.admin.api import MessagePosition, StoredMessage
from magnetar.broker.limits import MAX_ACK_SET_WORDS
from magnetar.broker.slices import give_way
from magnetar.protocol.message_id import bits_to_words
from magnetar.protocol.metadata import metadata_bytes, parse_entry_metadata, parse_metadata
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.errors import NoSuchEntryError, StorageError
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.topic import Topic
    from magnetar.storage.slab import Slab, Span

_SCAN_ENTRIES = 100
_SCAN_BYTES = 4 << 20
_LARGE_METADATA_BYTES = 64 << 10
_METADATA_IN_ONE_TURN = 256 << 10


class IndexedLog(Protocol):
    """A log whose existing entries are numbered from 0."""

    @property
    def entries(self) -> int: ...
    @property
    def confirmed_index(self) -> int: ...
    @property
    def first_position(self) -> Position | None: ...
    def position_at(self, ordinal: int) -> Position: ...
    async def read_entry(self, position: Position) -> Span: ...


async def entry_of_index(ledger: IndexedLog, index: int) -> Position | None:
    """Find the entry with the message of that broker index by bisection; None when no entry has it.

    The index of an entry is the index of its last message. The search ends with None at an entry without an index
    (written before the index was on). As in Apache Pulsar, -1:-1 is the answer for all messages before the index of
    the first entry, also for those in its batch.
    """
    low, high, first = 0, ledger.entries, ledger.first_position
    if index < 0 or index > ledger.confirmed_index:
        return None
    found = -1
    while low < high:
        middle = (low + high) // 2
        try:
            span = await ledger.read_entry(ledger.position_at(middle))
        except NoSuchEntryError:
            if ledger.first_position == first:
                raise
        if ledger.first_position != first:  # trimmed during the wait: the ordinals have changed
            return await entry_of_index(ledger, index)
        metadata = parse_entry_metadata(bytes(span.body(0)))
        if metadata is None or not metadata.HasField("index"):
            return None
        if metadata.index < index:
            low = middle + 1
        else:
            high, found = middle, metadata.index
    if low == 0 and found > index:
        return Position(-1, -1)
    return ledger.position_at(low) if low < ledger.entries else None


async def analyze_backlog(topic: Topic, found: Subscription, start: Position | None = None) -> dict[str, object]:
    """AnalyzeSubscriptionBacklogResult: counts the backlog entry by entry, up to the limits of a scan.

    start: the position at which the scan begins; as in Apache Pulsar, entries from there to mark-delete count too.
    """
    mark_delete = found.cursor.mark_delete
    begin = mark_delete.next() if start is None else start
    cursor = topic.ledger.new_read_cursor(begin)
    limits, monotonic = topic.context.settings, topic.context.monotonic
    end = monotonic() + limits.subscription_backlog_scan_max_time_ms / 1000
    remaining, counts, aborted = limits.subscription_backlog_scan_max_entries, _Counts(), False
    try:
        while cursor.has_more and not aborted:
            if monotonic() > end:
                aborted = True
                break
            result = cursor.read(_SCAN_ENTRIES, _SCAN_BYTES)
            spans = await result if inspect.isawaitable(result) else result
            wanted = [
                (position, span.slab, i)
                for span in spans
                for i in range(span.start, span.end)
                for position in (span.slab.position(i),)
                if position <= mark_delete or not found.cursor.is_deleted(position)
            ]
            # As in Apache Pulsar acknowledged entries use up the limit too, and the last entry of the limit is not
            # counted.
            remaining -= sum(span.end - span.start for span in spans) - len(wanted)
            for position, slab, i in wanted[: max(0, remaining - 1)]:
                if counts.add(position, slab, i) > _METADATA_IN_ONE_TURN:
                    counts.metadata_bytes = 0
                    await give_way()
            remaining -= len(wanted)
            aborted = remaining <= 0
            await give_way()  # entries of the cache are there at once
    finally:
        cursor.close()
    return counts.json(aborted=aborted)


def messages_of(slab: Slab, i: int) -> tuple[int, bool]:
    """How many messages entry `i` of the slab declares, 0 for unreadable metadata, and whether the entry is a marker.

    Megabytes of metadata, which take a tenth of a second to parse, are scanned: there an entry whose bytes cannot hold
    the messages that it declares counts as one message.
    """
    body = slab.body(i)
    if metadata_bytes(body) > _LARGE_METADATA_BYTES:
        facts = slab.facts()
        flags = memoryview(facts.flags).cast("I")[i]
        messages = memoryview(facts.batch_sizes).cast("q")[i]
        return 0 if flags & EntryFlag.UNREADABLE else messages, bool(flags & EntryFlag.MARKER)
    metadata = parse_metadata(body)
    return (0, False) if metadata is None else (metadata.num_messages_in_batch, metadata.HasField("marker_type"))


class _Counts:
    """The counted entries of a scan."""

    def __init__(self) -> None:
        self.entries = self.messages = self.markers = 0
        self.first: Position | None = None
        self.last: Position | None = None
        self.metadata_bytes = 0

    def add(self, position: Position, slab: Slab, i: int) -> int:
        """Count entry `i` of the slab; return the bytes of metadata since they were set to 0."""
        self.entries += 1
        self.first, self.last = self.first or position, position
        messages, is_marker = messages_of(slab, i)
        self.messages += messages
        self.markers += is_marker
        self.metadata_bytes += metadata_bytes(slab.body(i))
        return self.metadata_bytes

    def json(self, *, aborted: bool) -> dict[str, object]:
        """AnalyzeSubscriptionBacklogResult."""
        out: dict[str, object] = {
            "entries": self.entries,
            "messages": self.messages,
            "markerMessages": self.markers,
            "filterRejectedEntries": 0,
            "filterAcceptedEntries": self.entries,
            "filterRescheduledEntries": 0,
            "filterRejectedMessages": 0,
            "filterAcceptedMessages": self.messages,
            "filterRescheduledMessages": 0,
            "aborted": aborted,
        }
        if self.first is not None and self.last is not None:
            out["firstMessageId"] = f"{self.first.ledger_id}:{self.first.entry_id}"
            out["lastMessageId"] = f"{self.last.ledger_id}:{self.last.entry_id}"
        return out


async def place_of_reset(
    topic: Topic, message: MessagePosition, *, excluded: bool
) -> tuple[Position, list[int] | None]:
    """The entry at which a subscription continues after a reset to a message, or with `excluded` to the message behind
    it, and the remaining messages of its batch. A batch index counts only when the entry can be read.
    """
    position = Position(message.ledger_id, message.entry_id)
    following = Position(message.ledger_id, message.entry_id + 1)
    if message.batch_index < 0:
        return (following if excluded else position), None
    messages = await _messages_at(topic, position)
    first = message.batch_index + excluded
    if first >= messages or messages > 64 * MAX_ACK_SET_WORDS:  # too large for an ack set
        return (following if excluded else position), None
    return position, bits_to_words((1 << messages) - (1 << first)) if first else None


async def left_by_expiry(topic: Topic, message: MessagePosition) -> list[int] | None:
    """The messages of a batch that an expiry up to its message leaves, as words of an ack set: those from the message
    on, empty for the whole batch. None when the expiry takes the entry as well: as in Apache Pulsar 4.2.4 in the open
    ledger, for the first message, and for an entry that cannot be read.
    """
    position = Position(message.ledger_id, message.entry_id)
    newest = topic.ledger.ledgers[-1]
    if message.batch_index < 1 or (newest.ledger_id == position.ledger_id and not newest.closed_at_ms):
        return None
    messages = await _messages_at(topic, position)
    if messages <= message.batch_index or messages > 64 * MAX_ACK_SET_WORDS:
        return [] if messages else None
    return bits_to_words((1 << messages) - (1 << message.batch_index))


async def _messages_at(topic: Topic, position: Position) -> int:
    """The number of messages in an entry; 0 when it cannot be read."""
    try:
        span = await topic.ledger.read_entry(position)
        metadata = parse_metadata(span.body(0))
    except StorageError:
        return 0
    return 0 if metadata is None else metadata.num_messages_in_batch


async def stored_message(topic: Topic, position: Position) -> StoredMessage | None:
    """The entry at a position as it is stored; None when the log has no such entry."""
    try:
        span = await topic.ledger.read_entry(position)
    except NoSuchEntryError:
        return None
    return StoredMessage(span.first_position, bytes(span.body(0)))
