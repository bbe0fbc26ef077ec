"""Records from a frame whose checksum is wrong. A record counts by its own checksum and by the proof of its ledger,
because the bytes of a damaged record may look like records. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.ledger_head import BIRTH_ENTRY_ID
from magnetar.storage.records import find_entry, peek_record, valid_record_at, with_ids
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from magnetar.storage.records import RecordHeader

__all__ = ["LostRecord", "SalvagedRecord", "salvage"]

_FEW_LEDGERS = 64
_SEARCH_BYTES = 6 << 20
_ZEROS = bytes(8)
_NOT_ZERO = re.compile(rb"[^\0]")


class SalvagedRecord(NamedTuple):
    """An intact record at ``start .. end`` of the payload."""

    ledger_id: int
    entry_id: int
    """-1: the ledger's birth record, which comes before entry 0."""
    start: int
    end: int


class LostRecord(NamedTuple):
    """A damaged record. The ids come from its header, which may be damaged too."""

    ledger_id: int
    entry_id: int
    start: int
    after: SalvagedRecord | None
    """The last intact record before the damaged record; None without such a record."""

    @property
    def is_birth(self) -> bool:
        """Whether this is a ledger's birth record, so no entry is lost."""
        return self.entry_id == BIRTH_ENTRY_ID


def salvage(
    payload: bytes, known: Collection[int], proof_of: Callable[[int], int], *, exact: bool = False
) -> list[SalvagedRecord | LostRecord]:
    """Return the records in the order of the payload. Behind damage, bytes that look like a record count only when they
    name a known ledger.

    ``proof_of(ledger id)``: the number that every record of the ledger has, NO_PROOF for ledgers of earlier versions.
    ``exact``: the frame is known to end where the payload ends, so the search goes on behind zeros, which may be a page
    whose write was lost or went to a wrong place. A lost page may instead hold records that an earlier use of the
    segment left there. Such records are intact too; only the caller recognizes them, because their ledgers have these
    entries already.
    """
    found: list[SalvagedRecord | LostRecord] = []
    at = 0
    last: SalvagedRecord | None = None
    while at + RECORD_HEADER_BYTES <= len(payload):
        header = _proven_record_at(payload, at, proof_of)
        if header is not None:
            entry_id = -1 if header.entry_id == BIRTH_ENTRY_ID else header.entry_id
            last = SalvagedRecord(header.ledger_id, entry_id, at, at + RECORD_HEADER_BYTES + header.body_bytes)
            found.append(last)
            at = last.end
            continue
        peeked = peek_record(payload, at)
        if peeked is None:
            break
        if not any(payload[at : at + RECORD_HEADER_BYTES]):
            behind = _search(payload, at, known, proof_of) if exact else None
            if behind is None:
                break
            at = behind
            continue
        born = with_ids(payload, at, peeked.ledger_id, BIRTH_ENTRY_ID, proof_of(peeked.ledger_id)) is not None
        lost = LostRecord(peeked.ledger_id, BIRTH_ENTRY_ID if born else peeked.entry_id, at, last)
        found.append(lost)
        following = _next_record(payload, lost, at + RECORD_HEADER_BYTES + peeked.body_bytes, known, proof_of)
        if following is None:
            break
        at = following
    return found


def _proven_record_at(payload: bytes, at: int, proof_of: Callable[[int], int]) -> RecordHeader | None:
    header = valid_record_at(payload, at, len(payload))
    if header is not None and (proof := proof_of(header.ledger_id)) and header.last_add_confirmed != proof:
        return None
    return header


def _next_record(
    payload: bytes, lost: LostRecord, said: int, known: Collection[int], proof_of: Callable[[int], int]
) -> int | None:
    """Offset of the next intact record; None without such a record.

    The length in the damaged header may be wrong, so an intact record before the end that this length names counts. The
    search looks for records of all known ledgers, or, with more than 64 ledgers, for records of the damaged record's
    ledger and of the ledger before; when both fail, it goes byte by byte.
    """
    start, end = lost.start + RECORD_HEADER_BYTES, len(payload)
    near = {lost.ledger_id, *(() if lost.after is None else (lost.after.ledger_id,))}
    wanted = known if len(known) <= _FEW_LEDGERS else [each for each in near if each in known]
    places = (find_entry(payload, start, end, ledger_id, 0, proof_of(ledger_id)) for ledger_id in wanted)
    first = min((place[0] for place in places if place is not None), default=None)
    named = said == end or (said < end and _proven_record_at(payload, said, proof_of) is not None)
    if first is not None and (first < said or not named):
        return first
    return said if named else _search(payload, start, known, proof_of)


def _search(payload: bytes, start: int, known: Collection[int], proof_of: Callable[[int], int]) -> int | None:
    """Offset of the first intact record of a known ledger, searched byte by byte for at most 6 MiB of candidates. Skips
    runs of zeros, because length and checksum of a record are not both zero.
    """
    at, last, left = start, len(payload) - RECORD_HEADER_BYTES, _SEARCH_BYTES
    while at <= last and left:
        if payload.startswith(_ZEROS, at):
            behind = _NOT_ZERO.search(payload, at + len(_ZEROS))
            if behind is None:
                return None
            at = behind.start() + 1 - len(_ZEROS)
            continue
        ledger_id = int.from_bytes(payload[at + 8 : at + 16], "little")
        if ledger_id in known and _proven_record_at(payload, at, proof_of) is not None:
            return at
        at, left = at + 1, left - 1
    return None
