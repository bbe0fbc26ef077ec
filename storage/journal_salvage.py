"""Records out of a frame whose checksum is wrong: each intact record counts by its own checksum. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.records import find_entry, peek_record, valid_record_at
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["LostRecord", "SalvagedRecord", "salvage"]

_FEW_LEDGERS = 64
_SEARCH_BYTES = 6 << 20


class SalvagedRecord(NamedTuple):
    """An intact record at ``start .. end`` of the payload."""

    ledger_id: int
    entry_id: int
    start: int
    end: int


class LostRecord(NamedTuple):
    """A damaged one. The ids are what its header says (perhaps damaged too), or -1."""

    ledger_id: int
    entry_id: int
    start: int
    after: SalvagedRecord | None
    """The intact record before it."""


def salvage(payload: bytes, known: Collection[int]) -> list[SalvagedRecord | LostRecord]:
    """In order of the payload. Of what looks like a record only ledgers that are known count."""
    found: list[SalvagedRecord | LostRecord] = []
    at = 0
    last: SalvagedRecord | None = None
    while at + RECORD_HEADER_BYTES <= len(payload):
        header = valid_record_at(payload, at, len(payload))
        if header is not None:
            last = SalvagedRecord(header.ledger_id, header.entry_id, at, at + RECORD_HEADER_BYTES + header.body_bytes)
            found.append(last)
            at = last.end
            continue
        peeked = peek_record(payload, at)
        if peeked is None or not any(payload[at : at + RECORD_HEADER_BYTES]):
            break
        found.append(LostRecord(peeked.ledger_id, peeked.entry_id, at, last))
        following = _next_record(payload, at, at + RECORD_HEADER_BYTES + peeked.body_bytes, known)
        if following is None:
            break
        at = following
    return found


def _next_record(payload: bytes, at: int, said: int, known: Collection[int]) -> int | None:
    """Offset of the next intact record: where the damaged one's length says, else the first one that is found."""
    if said == len(payload):
        return said
    if said < len(payload) and valid_record_at(payload, said, len(payload)) is not None:
        return said
    if len(known) <= _FEW_LEDGERS:
        found = (find_entry(payload, at + 1, len(payload), ledger_id, 0) for ledger_id in known)
        return min((place[0] for place in found if place is not None), default=None)
    for offset in range(at + 1, min(len(payload) - RECORD_HEADER_BYTES + 1, at + _SEARCH_BYTES)):
        ledger_id = int.from_bytes(payload[offset + 8 : offset + 16], "little")
        if ledger_id in known and valid_record_at(payload, offset, len(payload)) is not None:
            return offset
    return None
