"""The stored form of a cursor's acknowledgements, and the entries of a cursor ledger. Pure.

State (MessagePack, after the format version byte)::

    u8 version = 1
    [ mark-delete ledger, mark-delete entry,
      [[ledger, roaring bitmap of acknowledged entries], ...],
      [[ledger, entry, remaining batch indexes as little-endian bitset], ...],
      {position property: i64, ...} ]

Entry of a cursor ledger (little-endian): one state is one entry, or several when it is larger than a chunk. An
increment holds only changes; a reader applies it to the full state before it::

    u8 magic 0x43 | u8 version = 1 | u8 flags | u8 0 | i64 base | bytes of the state

    flags: 1 = last chunk of its state, 2 = increment
    base:  entry id of the first chunk of the full state this entry belongs to or builds upon

So the newest entry leads to all needed entries: read the newest entry, go to ``base``, read forward. A full state whose
last chunk is missing (the process died between them) does not count: the entry before its base leads to the previous
full state.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from pyroaring import BitMap

from magnetar.storage.errors import CursorStateError
from magnetar.storage.position import Position

__all__ = ["CursorState", "StateEntry", "decode_state", "encode_entries", "encode_state", "parse_entry"]

STATE_VERSION = 1
ENTRY_MAGIC = 0x43
ENTRY_VERSION = 1
_LAST, _INCREMENT = 1, 2
_HEADER = struct.Struct("<BBBBq")


@dataclass(slots=True)
class CursorState:
    """A full state, or an increment: mark-delete and properties replace, the rest adds up."""

    mark_delete: Position
    deleted: dict[int, BitMap] = field(default_factory=dict)
    partial: dict[Position, int] = field(default_factory=dict)
    properties: dict[str, int] = field(default_factory=dict)

    def add(self, increment: CursorState) -> None:
        """Apply an increment. The reader drops its positions at or before mark-delete."""
        self.mark_delete = increment.mark_delete
        self.properties = increment.properties
        for ledger_id, held in increment.deleted.items():
            known = self.deleted.get(ledger_id)
            self.deleted[ledger_id] = held if known is None else known | held
        self.partial.update(increment.partial)


def encode_state(state: CursorState) -> bytes:
    for held in state.deleted.values():
        held.run_optimize()
    values = (
        state.mark_delete.ledger_id,
        state.mark_delete.entry_id,
        [(ledger_id, held.serialize()) for ledger_id, held in state.deleted.items()],
        [
            (position.ledger_id, position.entry_id, remaining.to_bytes((remaining.bit_length() + 7) // 8, "little"))
            for position, remaining in state.partial.items()
        ],
        state.properties,
    )
    return bytes((STATE_VERSION,)) + msgspec.msgpack.encode(values)


def decode_state(data: bytes) -> CursorState:
    """Raises CursorStateError on any other bytes."""
    if not data or data[0] != STATE_VERSION:
        raise CursorStateError(f"unknown version {data[:1].hex()}")
    try:
        ledger_id, entry_id, deleted, partial, properties = msgspec.msgpack.decode(data[1:], type=_Values)
        return CursorState(
            Position(ledger_id, entry_id),
            {ledger: BitMap.deserialize(held) for ledger, held in deleted},
            {Position(ledger, entry): int.from_bytes(bits, "little") for ledger, entry, bits in partial},
            properties,
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise CursorStateError(str(error)) from error


_Values = tuple[int, int, list[tuple[int, bytes]], list[tuple[int, int, bytes]], dict[str, int]]


class StateEntry(NamedTuple):
    """One entry of a cursor ledger, taken apart."""

    is_last: bool
    is_increment: bool
    base: int
    payload: bytes


def encode_entries(state: bytes, first_entry_id: int, chunk_bytes: int) -> list[bytes]:
    """The entries of a full state that begin at ``first_entry_id``."""
    chunks = [state[start : start + chunk_bytes] for start in range(0, len(state), chunk_bytes)]
    flags = [0] * (len(chunks) - 1) + [_LAST]
    return [
        _HEADER.pack(ENTRY_MAGIC, ENTRY_VERSION, flag, 0, first_entry_id) + chunk
        for flag, chunk in zip(flags, chunks, strict=True)
    ]


def encode_increment(state: bytes, base: int) -> bytes:
    """The entry of an increment to the full state whose first chunk is entry ``base``."""
    return _HEADER.pack(ENTRY_MAGIC, ENTRY_VERSION, _LAST | _INCREMENT, 0, base) + state


def parse_entry(body: Any) -> StateEntry:
    """Raises CursorStateError on any other bytes."""
    data = bytes(body)
    if len(data) < _HEADER.size:
        raise CursorStateError("entry too short")
    magic, version, flags, _, base = _HEADER.unpack_from(data)
    if magic != ENTRY_MAGIC or version != ENTRY_VERSION:
        raise CursorStateError(f"unknown entry {data[:2].hex()}")
    return StateEntry(bool(flags & _LAST), bool(flags & _INCREMENT), base, data[_HEADER.size :])
