"""The broker index of entries as they come from the broker.

A broker sends the index in broker entry metadata (`exposingBrokerEntryMetadataToClientEnabled`). From a broker that
does not, the tracker requests the index of the first entry and counts messages from there, since indexes have no gaps.
Where an entry does not directly follow its predecessor, the tracker requests the index again, so a message that was
not delivered cannot shift the count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.errors import CatalogUnavailableError
from magnetar.pipeline.offsets import Position
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus
from magnetar.protocol.metadata import parse_entry_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_MAGIC_ENTRY_METADATA = b"\x0e\x02"
NO_INDEX = -1


class Indexed(NamedTuple):
    """Entries of one ledger, with the index of each entry's last message (NO_INDEX without) and number of messages."""

    chunk: EntryChunk
    last_index: Int64s
    messages: Int64s


class IndexTracker:
    """`track` takes entries in order. `ask(position)` gives first and last index of an entry, None without an index."""

    def __init__(self, ask: Callable[[Position], tuple[int, int] | None]) -> None:
        self._ask = ask
        self._before: Position | None = None
        self._index: int | None = None
        self.asked = 0
        """Number of index requests to the broker."""

    def restart(self) -> None:
        """Forget the last index: the next entry need not follow it."""
        self._before = self._index = None

    def track(self, chunk: EntryChunk) -> Indexed:
        """The entries with their indexes, with broker entry metadata added where the broker omitted them.

        If the broker does not answer a request for an index: only the entries before that entry. Raises:
        CatalogUnavailableError when this leaves no entry.
        """
        headers = Headers(chunk, verify=False)
        messages = _declared(headers)
        told = headers.has(ColumnFlag.HAS_INDEX)
        if not told.all():
            return self._told_and_asked(chunk, headers, messages, told)
        index = headers.last_index
        messages[1:] = np.where(np.diff(chunk.entry_ids) == 1, np.diff(index), messages[1:])
        before = self._index_before(chunk, 0)
        if before is not None:
            messages[0] = index[0] - before
        self._remember(chunk, len(chunk) - 1, int(index[-1]))
        return Indexed(chunk, index, messages)

    def _index_before(self, chunk: EntryChunk, i: int) -> int | None:
        """The index of the entry that entry i directly follows, as far as that is known."""
        follows = self._before == (chunk.ledger_id, int(chunk.entry_ids[i]) - 1)
        return self._index if follows else None

    def _remember(self, chunk: EntryChunk, i: int, index: int | None) -> None:
        self._before, self._index = Position(chunk.ledger_id, int(chunk.entry_ids[i])), index

    def _told_and_asked(self, chunk: EntryChunk, headers: Headers, messages: Int64s, told: Bools) -> Indexed:
        bodies: list[bytes] = []
        last: list[int] = []
        for i in range(len(chunk)):
            body = bytes(chunk.entry(i))
            before = self._index_before(chunk, i)
            if told[i]:
                index: int | None = int(headers.last_index[i])
                if before is not None:
                    messages[i] = int(headers.last_index[i]) - before
            elif before is not None:
                index = before + int(messages[i])
            else:
                try:
                    index = self._asked(chunk, i)
                except CatalogUnavailableError:
                    if not bodies:
                        raise
                    break
            if index is not None and not told[i]:
                body = with_index(body, index, parse_entry_metadata(body))
            self._remember(chunk, i, index)
            bodies.append(body)
            last.append(NO_INDEX if index is None else index)
        n = len(bodies)
        copied = EntryChunk.of_bodies(chunk.topic, bodies, partition=chunk.partition, ledger_id=chunk.ledger_id)
        data, starts, ends = copied.data, copied.offsets, copied.ends
        kept = EntryChunk(chunk.topic, chunk.partition, chunk.ledger_id, data, starts, ends, chunk.entry_ids[:n])
        return Indexed(kept, np.array(last, np.int64), messages[:n])

    def _asked(self, chunk: EntryChunk, i: int) -> int | None:
        self.asked += 1
        bounds = self._ask(Position(chunk.ledger_id, int(chunk.entry_ids[i])))
        return None if bounds is None else bounds[1]


def messages_in(chunk: EntryChunk) -> int:
    """How many messages the entries declare together; an unreadable entry counts as one message."""
    return int(_declared(Headers(chunk, verify=False)).sum()) if len(chunk) else 0


def _declared(headers: Headers) -> Int64s:
    readable = headers[EntryColumn.STATUS] == EntryStatus.FINE
    return np.where(readable, np.maximum(headers.messages, 1), 1)


def with_index(body: bytes, index: int, stored: pb.BrokerEntryMetadata | None = None) -> bytes:
    """The entry with broker entry metadata that holds this index before it."""
    metadata = pb.BrokerEntryMetadata(index=index)
    if stored is not None:
        metadata.MergeFrom(stored)
        body = body[6 + int.from_bytes(body[2:6], "big") :]
    raw = metadata.SerializeToString()
    return b"".join((_MAGIC_ENTRY_METADATA, len(raw).to_bytes(4, "big"), raw, body))
