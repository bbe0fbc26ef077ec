"""A cursor's position and holes (acknowledged entries behind mark-delete) as Pulsar stores them. Pure.

The metadata node has a ``ManagedCursorInfo``; each entry of a cursor ledger is a ``PositionInfo`` with the full state,
and the last entry is in force. In the node the holes are ranges ``(lower, upper]`` of positions; in a cursor ledger
they may also be one bit set per ledger (``LongListMap``, bit i = entry i is acknowledged). In the bits of a batch a set
bit is a message without acknowledgement.

Pulsar writes every field below, and reads the holes in both forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from magnetar.protocol.message_id import bits_to_words, words_to_bits
from magnetar.storage.errors import CursorStateError
from magnetar.storage.managed.cursors.state import CursorState
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.entry_bits import bitmap_of_bits, bits_of_bitmap
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import ManagedCursorInfo, PositionInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from magnetar.storage.pulsar_layout.pulsar_records_pb2 import (
        BatchedEntryDeletionIndexInfo,
        LongListMap,
        LongProperty,
        MessageRange,
    )

__all__ = [
    "batch_bytes",
    "decode_position_info",
    "encode_position_info",
    "fill_cursor_info",
    "range_count",
    "state_of_cursor_info",
]

_LAST_ENTRY = 1 << 32
_COMPACTED, _HORIZON = "CompactedTopicLedger", ("CompactionHorizonLedger", "CompactionHorizonEntry")


def fill_cursor_info(message: ManagedCursorInfo, state: CursorState) -> None:
    """Write the whole state into a node's record."""
    message.markDeleteLedgerId, message.markDeleteEntryId = state.mark_delete
    for ledger_id, first, last in _ranges(state):
        each = message.individualDeletedMessages.add()
        each.lowerEndpoint.ledgerId, each.lowerEndpoint.entryId = ledger_id, first - 1
        each.upperEndpoint.ledgerId, each.upperEndpoint.entryId = ledger_id, last
    for name, value in state.properties.items():
        message.properties.add(name=name, value=value)
    _fill_batches(message.batchedEntryDeletionIndexInfo.add, state)


def state_of_cursor_info(message: ManagedCursorInfo) -> CursorState:
    """Return the state in a node's record. A record without a position means the position before the first entry.
    Raises CursorStateError.
    """
    at = Position(
        message.markDeleteLedgerId if message.HasField("markDeleteLedgerId") else -1,
        message.markDeleteEntryId if message.HasField("markDeleteEntryId") else -1,
    )
    return _state(
        at,
        message.individualDeletedMessages,
        (),
        message.batchedEntryDeletionIndexInfo,
        message.properties,
    )


def encode_position_info(state: CursorState, max_bytes: int) -> bytes:
    """Return an entry of a cursor ledger. The newest holes are left out if not all fit; their entries are
    redelivered.
    """
    message = PositionInfo(ledgerId=state.mark_delete.ledger_id, entryId=state.mark_delete.entry_id)
    for name, value in state.properties.items():
        message.properties.add(name=name, value=value)
    left = max_bytes
    for ledger_id in sorted(ledger for ledger, held in state.deleted.items() if held):
        words = _words_of_entries(state.deleted[ledger_id])
        left -= 10 * len(words) + 32  # an upper bound of its bytes in protobuf
        if left < 0:
            break
        message.individualDeletedMessageRanges.add(key=ledger_id, values=words)
    _fill_batches(message.batchedEntryDeletionIndexInfo.add, state, left)
    return message.SerializeToString()


def decode_position_info(entry: bytes) -> CursorState:
    """Raises CursorStateError."""
    try:
        message = PositionInfo.FromString(entry)
    except DecodeError as error:
        raise CursorStateError(str(error)) from error
    if not message.IsInitialized():
        raise CursorStateError("a required field is missing")
    return _state(
        Position(message.ledgerId, message.entryId),
        message.individualDeletedMessages,
        message.individualDeletedMessageRanges,
        message.batchedEntryDeletionIndexInfo,
        message.properties,
    )


def range_count(state: CursorState) -> int:
    """Return the number of ranges that the holes need in a node's record."""
    return sum(len(held - held.shift(1)) for held in state.deleted.values())


def batch_bytes(state: CursorState) -> int:
    """Return an upper bound of the bytes that the parts of batches need in either message."""
    return sum(_part_bytes(-(-bits.bit_length() // 64)) for bits in state.partial.values())


def _part_bytes(words: int) -> int:
    return 10 * words + 32


def _ranges(state: CursorState) -> Iterator[tuple[int, int, int]]:
    """(ledger, first, last) of each run of acknowledged entries, ascending."""
    for ledger_id in sorted(state.deleted):
        held = state.deleted[ledger_id]
        firsts, lasts = held - held.shift(1), held - held.shift(-1)
        for first, last in zip(firsts, lasts, strict=True):
            yield ledger_id, first, last


def _fill_batches(add, state: CursorState, max_bytes: int = 1 << 20) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - of either message
    for position in sorted(state.partial):
        words = bits_to_words(state.partial[position])
        max_bytes -= _part_bytes(len(words))
        if max_bytes < 0:
            return
        info = add()
        info.position.ledgerId, info.position.entryId = position
        info.deleteSet.extend(words)


def _state(
    mark_delete: Position,
    ranges: Iterable[MessageRange],
    words: Iterable[LongListMap],
    batches: Iterable[BatchedEntryDeletionIndexInfo],
    properties: Iterable[LongProperty],
) -> CursorState:
    deleted: dict[int, BitMap] = {}
    for each in ranges:
        _add_range(deleted, each)
    for held in words:
        bits = words_to_bits(held.values)
        found = bitmap_of_bits(bits.to_bytes((bits.bit_length() + 7) // 8, "little"))
        deleted[held.key] = deleted[held.key] | found if held.key in deleted else found
    partial = {
        Position(each.position.ledgerId, each.position.entryId): words_to_bits(each.deleteSet) for each in batches
    }
    kept = {name: held for name, held in deleted.items() if held}
    numbers = {each.name: each.value for each in properties}
    if not all(isinstance(name, str) for name in numbers):
        raise CursorStateError("the name of a property is no text in UTF-8")
    return CursorState(mark_delete, kept, partial, _with_horizon(numbers, mark_delete))


def _add_range(deleted: dict[int, BitMap], each: MessageRange) -> None:
    """Add the range (lower, upper]. Across ledgers it covers the end of the first ledger and the start of the last."""
    lower, upper = each.lowerEndpoint, each.upperEndpoint
    if lower.ledgerId == upper.ledgerId:
        parts = [(lower.ledgerId, lower.entryId + 1, upper.entryId + 1)]
    else:
        parts = [(lower.ledgerId, lower.entryId + 1, _LAST_ENTRY), (upper.ledgerId, 0, upper.entryId + 1)]
    for ledger_id, start, stop in parts:
        if 0 <= start < stop <= _LAST_ENTRY:
            deleted.setdefault(ledger_id, BitMap()).add_range(start, stop)


def _with_horizon(properties: dict[str, int], mark_delete: Position) -> dict[str, int]:
    """Add Magnetar's compaction horizon: Pulsar's compacted topic reaches to its cursor's mark-delete position
    implicitly.
    """
    if _COMPACTED in properties and _HORIZON[0] not in properties:
        return {**properties, _HORIZON[0]: mark_delete.ledger_id, _HORIZON[1]: mark_delete.entry_id}
    return properties


def _words_of_entries(held: BitMap) -> list[int]:
    """Return the words of a bit set with a bit per entry, and the zero word that Pulsar's bit sets end with."""
    return [*bits_to_words(int.from_bytes(bits_of_bitmap(held), "little")), 0]
