"""Assigns all chunks of a message to the same consumer of a Shared subscription, which can then join them.

Dispatch of a read with chunks, as in Apache Pulsar 4.2.4: its entries go in turns to consumers that can take messages,
each turn until the consumer's permits are used up. The first chunk of a message goes to the consumer in turn, the other
chunks of the message to the same consumer; while this consumer has no permits, the other chunks wait.

Differences from Apache Pulsar: the dispatcher still reads entries behind waiting chunks for the other consumers. A
chunk of an unknown message (the first chunk is gone, or its consumer was forgotten because too many messages are
unfinished) goes to the consumer in turn, whose client discards the chunk; in Apache Pulsar such a chunk waits for ever.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap

from magnetar.broker.dispatchers.round_robin_plan import Book
from magnetar.protocol.metadata import metadata_bytes, parse_metadata
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.dispatchers.consumer_selection import RoundRobin
    from magnetar.broker.dispatchers.replay_queue import ReplayQueue
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span

NOT_LAST_CHUNK = int(EntryFlag.NOT_LAST_CHUNK)
MAX_UNFINISHED = 1000
"""The most messages whose consumer is remembered; the consumer of the oldest message is forgotten first."""
_FEW_UNFINISHED = 4
_SMALL_ENTRY_BYTES = 4096
"""In entries up to this size on average a search for the uuids of few messages is faster than a look at each entry: a
producer that ended within a message leaves the message unfinished for as long as its consumer stays.
"""
_MOST_UUID_CHARS = 2048
"""The uuid of a client consists of the name of its producer and a number. The dispatcher keeps longer uuids by their
digest, because a thousand of megabytes would stay in memory.
"""
_MOST_METADATA_BYTES = 1 << 20
"""Parsing some megabytes of short properties takes a tenth of a second. The chunks of a message are filled up with its
payload, so that metadata are a small part of each.
"""


class LongUuid(NamedTuple):
    """A uuid of more than _MOST_UUID_CHARS."""

    digest: bytes


Uuid = str | bytes | LongUuid
"""Bytes when the uuid is not UTF-8, which is its producer's choice."""


class Chunk(NamedTuple):
    """One chunk of the message `uuid`."""

    uuid: Uuid
    chunk_id: int
    chunks: int


def chunk_in(body: memoryview) -> Chunk | None:
    """Return the chunk that the entry holds; None for a whole message, and for metadata of more than a MiB."""
    metadata = parse_metadata(body) if metadata_bytes(body) <= _MOST_METADATA_BYTES else None
    if metadata is None or not (
        metadata.HasField("uuid") and metadata.HasField("chunk_id") and metadata.HasField("num_chunks_from_msg")
    ):
        return None
    return Chunk(_kept(metadata.uuid), metadata.chunk_id, metadata.num_chunks_from_msg)


def _kept(uuid: str | bytes) -> Uuid:
    return uuid if len(uuid) <= _MOST_UUID_CHARS else LongUuid(blake2b(_as_stored(uuid), digest_size=16).digest())


class ChunkOwners:
    """The consumers of unfinished messages: a chunk of the message was sent, its last chunk was not."""

    def __init__(self) -> None:
        self._owners: dict[Uuid, Consumer] = {}

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
        return any(isinstance(u, LongUuid) or data.find(_as_stored(u), start, end) >= 0 for u in self._owners)

    def forget(self, consumer: Consumer) -> None:
        """Forget the messages of a consumer that left; the chunks that it held are sent again, in order."""
        self._owners = {uuid: owner for uuid, owner in self._owners.items() if owner is not consumer}

    def clear(self) -> None:
        self._owners.clear()

    def that_must_wait(self, uuids: Iterable[Uuid]) -> Iterator[Uuid]:
        """Yield those of the unfinished messages whose consumer cannot take messages now."""
        usable: dict[Consumer, bool] = {}
        for uuid in uuids:
            owner = self._owners.get(uuid)
            if owner is None:
                continue
            if owner not in usable:
                usable[owner] = Book(owner).usable
            if not usable[owner]:
                yield uuid

    def plan(
        self,
        members: RoundRobin[Consumer],
        chunks: Sequence[Chunk | None],
        sizes: Sequence[int] | None,
        behind: Collection[Uuid] = (),
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


class WaitingChunks:
    """The positions of chunks that their consumer could not take when they were read, by the uuid of their message;
    some have left the replay queue.
    """

    def __init__(self) -> None:
        self._of: dict[Uuid, dict[int, BitMap]] = {}
        self._positions = 0

    def __len__(self) -> int:
        """The number of messages that such chunks belong to."""
        return len(self._of)

    def add(self, uuid: Uuid, position: Position) -> None:
        """Note that a chunk waits."""
        waiting = self._of.setdefault(uuid, {}).setdefault(position.ledger_id, BitMap())
        if position.entry_id not in waiting:
            waiting.add(position.entry_id)
            self._positions += 1

    def discard(self, uuid: Uuid, position: Position) -> None:
        """Note that a chunk does not wait any more; no-op for other chunks."""
        ledgers = self._of.get(uuid)
        waiting = None if ledgers is None else ledgers.get(position.ledger_id)
        if ledgers is None or waiting is None or position.entry_id not in waiting:
            return
        waiting.remove(position.entry_id)
        self._positions -= 1
        if not waiting:
            del ledgers[position.ledger_id]
            if not ledgers:
                del self._of[uuid]

    def clear(self) -> None:
        self._of.clear()
        self._positions = 0

    def blocked(self, owners: ChunkOwners) -> dict[int, BitMap]:
        """The positions, by ledger, of chunks whose consumer cannot take messages now."""
        found: dict[int, list[BitMap]] = {}
        for uuid in owners.that_must_wait(self._of):
            for ledger_id, waiting in self._of[uuid].items():
                found.setdefault(ledger_id, []).append(waiting)
        return {ledger_id: BitMap.union(*parts) for ledger_id, parts in found.items()}

    def all(self) -> Collection[Uuid]:
        """The uuids of the messages of all these chunks."""
        return self._of.keys()

    def before(self, position: Position, replay: ReplayQueue, read: dict[int, BitMap]) -> set[Uuid]:
        """The uuids of chunks that are in the replay queue before the position, and not among the positions `read`."""
        found = set()
        not_read: dict[int, BitMap] = {}
        for uuid, ledgers in self._of.items():
            for ledger_id, waiting in ledgers.items():
                if ledger_id not in not_read:
                    not_read[ledger_id] = replay.of_ledger(ledger_id) - read.get(ledger_id, BitMap())
                others = waiting & not_read[ledger_id]
                if others and (ledger_id, others.min()) < position:
                    found.add(uuid)
        return found

    def forget_gone(self, replay: ReplayQueue) -> None:
        """Forget chunks that have left the replay queue, once there are more of these chunks than entries in it."""
        if self._positions <= replay.entries:
            return
        former, self._of, self._positions = self._of, {}, 0
        for uuid, ledgers in former.items():
            for ledger_id, waiting in ledgers.items():
                if left := waiting & replay.of_ledger(ledger_id):
                    self._of.setdefault(uuid, {})[ledger_id] = left
                    self._positions += len(left)


def by_ledger(positions: Iterable[Position]) -> dict[int, BitMap]:
    """The entry ids of positions in order, by ledger."""
    return {ledger_id: BitMap([each[1] for each in some]) for ledger_id, some in groupby(positions, itemgetter(0))}


def _as_stored(uuid: str | bytes) -> bytes:
    return uuid if isinstance(uuid, bytes) else uuid.encode()
