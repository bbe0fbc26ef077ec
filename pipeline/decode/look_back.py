"""Looking back: the chunks of a message that stand before the range that is read.

A range of indexes may begin between the chunks of a message. The message belongs to the range that has its last chunk,
so that reader goes backwards for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from magnetar.pipeline.decode.chunked_messages import Chunk, JoinedMessage
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from magnetar.pipeline.decode.headers import Headers
    from magnetar.pipeline.entry_chunk import EntryChunk

    LookBack = Callable[[str, int, int], Iterator[EntryChunk]]
    """(topic, ledger id, entry id) -> chunks of entries before that entry, the newest chunk first."""

MAX_ENTRIES: Final = 200_000
"""The most earlier entries that are searched for the chunks of one message."""


def chunk_at(chunk: EntryChunk, headers: Headers, i: int) -> Chunk:
    """The `Chunk` of entry i; precondition: the entry is a chunk of a message."""
    data = memoryview(chunk.data)
    start, length = int(headers[EntryColumn.UUID_START][i]), int(headers[EntryColumn.UUID_LENGTH][i])
    return Chunk(
        bytes(data[start : start + max(length, 0)]),
        int(headers[EntryColumn.CHUNK_ID][i]),
        int(headers[EntryColumn.CHUNKS][i]),
        chunk.ledger_id,
        int(chunk.entry_ids[i]),
        bytes(data[int(headers[EntryColumn.METADATA_END][i]) : int(chunk.ends[i])]),
        bool(headers[EntryColumn.FLAGS][i] & int(ColumnFlag.ENCRYPTED)),
    )


def is_chunk(headers: Headers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which entries are chunks; a message in a single chunk counts as a plain message."""
    fine = headers[EntryColumn.STATUS] == EntryStatus.FINE
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        fine
        & headers.has(ColumnFlag.IS_CHUNK)
        & (headers[EntryColumn.CHUNKS] > 1)
        & (headers[EntryColumn.CHUNK_ID] >= 0)
        & (headers[EntryColumn.CHUNK_ID] < headers[EntryColumn.CHUNKS])
    )
    return found


def joined_backwards(
    earlier: Iterable[tuple[EntryChunk, Headers]], last: Chunk, max_bytes: int
) -> JoinedMessage | None:
    """The message that `last` is the last chunk of; None when its other chunks are not found within the bounds."""
    found: dict[int, Chunk] = {last.number: last}
    entries, size = 0, len(last.payload)
    for chunk, headers in earlier:
        for i in np.flatnonzero(is_chunk(headers))[::-1].tolist():
            piece = chunk_at(chunk, headers, i)
            if piece.uuid != last.uuid or piece.total != last.total or piece.number >= last.number:
                continue
            size += len(piece.payload) - (len(found[piece.number].payload) if piece.number in found else 0)
            found[piece.number] = piece
            if size > max_bytes:
                return None
            if piece.number == 0:
                return _joined(found, last.total)
        entries += len(chunk)
        if entries >= MAX_ENTRIES:
            return None
    return None


def _joined(found: dict[int, Chunk], count: int) -> JoinedMessage | None:
    if len(found) != count:
        return None
    payload = b"".join(found[number].payload for number in range(count))
    encrypted = sum(each.encrypted for each in found.values())
    return JoinedMessage(payload, found[0].ledger_id, found[0].entry_id, encrypted, count)
