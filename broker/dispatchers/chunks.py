"""Assigns all chunks of a message to the same consumer of a Shared subscription, which can then join them.

Dispatch of a read with chunks, as in Apache Pulsar 4.2.4: its entries go in turns to consumers that can take messages,
each turn until the consumer's permits are used up. The first chunk of a message goes to the consumer in turn, the other
chunks of the message to the same consumer; while this consumer has no permits, the other chunks wait.

Differences from Apache Pulsar: the dispatcher still reads entries behind waiting chunks for the other consumers. A
chunk of an unknown message (the first chunk is gone, or its consumer was forgotten because too many messages are
unfinished) goes to the consumer in turn, whose client discards the chunk; in Apache Pulsar such a chunk waits for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.broker.dispatchers.round_robin_plan import Book
from magnetar.protocol.metadata import parse_metadata
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.consumer_selection import RoundRobin
    from magnetar.storage.slab import Span

NOT_LAST_CHUNK = int(EntryFlag.NOT_LAST_CHUNK)
MAX_UNFINISHED = 1000
"""The most messages whose consumer is remembered; the consumer of the oldest message is forgotten first."""
_FEW_UNFINISHED = 4
_SMALL_ENTRY_BYTES = 4096
"""In entries up to this size on average a search for the uuids of few messages is faster than a look at each entry: a
producer that ended within a message leaves the message unfinished for as long as its consumer stays.
"""


class Chunk(NamedTuple):
    """One chunk of the message `uuid`."""

    uuid: str | bytes
    """Bytes when the uuid is not UTF-8, which is its producer's choice."""
    chunk_id: int
    chunks: int


def chunk_in(body: memoryview) -> Chunk | None:
    """Return the chunk that the entry holds, None for a whole message."""
    metadata = parse_metadata(body)
    if metadata is None or not (
        metadata.HasField("uuid") and metadata.HasField("chunk_id") and metadata.HasField("num_chunks_from_msg")
    ):
        return None
    return Chunk(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg)


class ChunkOwners:
    """The consumers of unfinished messages: a chunk of the message was sent, its last chunk was not."""

    def __init__(self) -> None:
        self._owners: dict[str | bytes, Consumer] = {}

    def concern(self, spans: Sequence[Span]) -> bool:
        """Whether `plan` must plan the read: it holds chunks, or may hold the last chunk of an unfinished message."""
        if any(span.slab.facts().any_flags & NOT_LAST_CHUNK for span in spans):
            return True
        return bool(self._owners) and any(self._may_be_named(span) for span in spans)

    def _may_be_named(self, span: Span) -> bool:
        """Whether the entries may name an unfinished message."""
        if len(self._owners) > _FEW_UNFINISHED or span.size_bytes > _SMALL_ENTRY_BYTES * span.entries:
            return True
        data, offsets = span.slab.data, span.slab.offset_view
        start, end = offsets[span.start], offsets[span.end]
        return any(data.find(_as_stored(uuid), start, end) >= 0 for uuid in self._owners)

    def forget(self, consumer: Consumer) -> None:
        """Forget the messages of a consumer that left; the chunks that it held are sent again, in order."""
        self._owners = {uuid: owner for uuid, owner in self._owners.items() if owner is not consumer}

    def clear(self) -> None:
        self._owners.clear()

    def must_wait(self, uuid: str | bytes) -> bool:
        """Whether the consumer of the unfinished message cannot take messages now."""
        owner = self._owners.get(uuid)
        return owner is not None and not Book(owner).usable

    def plan(
        self,
        members: RoundRobin[Consumer],
        chunks: Sequence[Chunk | None],
        sizes: Sequence[int] | None,
        behind: Collection[str | bytes] = (),
    ) -> list[Consumer | None]:
        """Choose the consumer of each entry of a read, None when no consumer may get it now. Advances the round robin.

        `sizes` are the messages that each entry still holds (None: one each). `behind`: messages of which an earlier
        chunk waits, and so do their other chunks.
        """
        books: dict[Consumer, Book] = {}

        def usable(consumer: Consumer) -> bool:
            if consumer not in books:
                books[consumer] = Book(consumer)
            return books[consumer].usable

        given: list[Consumer | None] = []
        passed: list[int] = []
        turn: Consumer | None = None
        for k, chunk in enumerate(chunks):
            if turn is None or not usable(turn):
                turn = members.next(usable, passed)
            if turn is None:
                break
            consumer = turn if chunk is None else self._owner(chunk, turn)
            if not usable(consumer) or (chunk is not None and chunk.uuid in behind):
                given.append(None)
                continue
            books[consumer].take(1 if sizes is None else sizes[k])
            if chunk is not None:
                self._sent(chunk, consumer)
            given.append(consumer)
        return given + [None] * (len(chunks) - len(given))

    def _owner(self, chunk: Chunk, turn: Consumer) -> Consumer:
        return self._owners.get(chunk.uuid, turn)

    def _sent(self, chunk: Chunk, consumer: Consumer) -> None:
        if chunk.chunk_id == chunk.chunks - 1:
            self._owners.pop(chunk.uuid, None)
            return
        if chunk.uuid not in self._owners and len(self._owners) >= MAX_UNFINISHED:
            del self._owners[next(iter(self._owners))]
        self._owners[chunk.uuid] = consumer


def _as_stored(uuid: str | bytes) -> bytes:
    return uuid if isinstance(uuid, bytes) else uuid.encode()
