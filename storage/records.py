"""Scans log records as bytes and finds the next intact record behind damage. Pure. ``slab.py`` states the layout.

A scan accepts a record only if its length, checksum, ledger id and the succession of entry ids all fit. Behind a
damaged record the scan finds the next record by its ids and its checksum, so damage costs only the damaged entry.

``proof``: the number that all records of the ledger have in their field ``last_add_confirmed`` (``ledger_head.py``). No
bytes of a client contain it, so a search inside a damaged entry finds no record that a client put there. 0: an earlier
version wrote the ledger, and its records are valid without a proof.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.protocol.speed import scan_records
from magnetar.storage.slab import RECORD_HEADER_BYTES

__all__ = [
    "ANY_LEDGER",
    "PROOF_OFFSET",
    "Damage",
    "RecordHeader",
    "Run",
    "find_again",
    "find_entry",
    "find_exactly",
    "is_placeholder",
    "peek_record",
    "placeholder",
    "record_crc",
    "scan_records",
    "valid_record_at",
    "walk",
    "with_ids",
]

ANY_LEDGER = -1
PROOF_OFFSET = 24
"""The offset of the field ``last_add_confirmed`` in a record."""
_PAGE_BYTES = 4096
_CERTAIN_BYTES = 1 << 20
"""More bytes than one misdirected write of a device has."""
_MOST_CHAINS = 64
_MOST_TRIES = 1024
_HEADER = struct.Struct("<IIQQq")
_NO_LENGTH_NO_CRC = bytes(8)
_NOT_ZERO = re.compile(rb"[^\0]")
_IDS = struct.Struct("<QQ")
_CRC = struct.Struct("<I")


class RecordHeader(NamedTuple):
    """First 32 bytes of a record."""

    body_bytes: int
    crc: int
    ledger_id: int
    entry_id: int
    last_add_confirmed: int


class Run(NamedTuple):
    """Intact consecutive records. ``offsets`` are native int64, absolute in the buffer; the last is the end."""

    ledger_id: int
    first_entry_id: int
    offsets: bytes

    @property
    def entries(self) -> int:
        return (len(self.offsets) >> 3) - 1

    @property
    def start(self) -> int:
        return int.from_bytes(self.offsets[:8], "little")

    @property
    def end(self) -> int:
        return int.from_bytes(self.offsets[-8:], "little")


class Damage(NamedTuple):
    """Bytes ``start .. end - 1`` have no intact record of the expected entries."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    """Less than ``first_entry_id`` when no intact record follows in the buffer: the number of entries is unknown."""
    start: int
    end: int
    reason: str


def peek_record(buffer: bytes, offset: int) -> RecordHeader | None:
    """Return the fields of the header, unchecked; None when the buffer ends before the header does."""
    if offset + RECORD_HEADER_BYTES > len(buffer):
        return None
    return RecordHeader._make(_HEADER.unpack_from(buffer, offset))


def record_crc(buffer: bytes, offset: int, end: int) -> int:
    """Return the checksum of the record at ``offset .. end``: of the length field, then of all bytes behind the
    checksum.
    """
    view = memoryview(buffer)
    return crc32c(view[offset + 8 : end], crc32c(view[offset : offset + 4]))


def valid_record_at(buffer: bytes, offset: int, end: int, proof: int = 0) -> RecordHeader | None:
    """Return the header of the record at ``offset`` if the record is intact and ends before ``end``; else None."""
    header = peek_record(buffer, offset)
    if header is None or offset + RECORD_HEADER_BYTES + header.body_bytes > end:
        return None
    if proof and header.last_add_confirmed != proof:
        return None
    stop = offset + RECORD_HEADER_BYTES + header.body_bytes
    return header if record_crc(buffer, offset, stop) == header.crc else None


def placeholder(ledger_id: int, entry_id: int) -> bytes:
    """Return the record that takes the place of an entry whose bytes the journal lost: an empty record with a wrong
    checksum (all bits inverted). Every reader reports the entry as damaged and finds the next record right behind.
    """
    blank = bytearray(_HEADER.pack(0, 0, ledger_id, entry_id, -1))
    blank[4:8] = _CRC.pack(record_crc(bytes(blank), 0, RECORD_HEADER_BYTES) ^ 0xFFFFFFFF)
    return bytes(blank)


def is_placeholder(buffer: bytes, offset: int) -> bool:
    """Whether the record at ``offset`` is a placeholder for a lost entry."""
    header = peek_record(buffer, offset)
    return header is not None and buffer[offset : offset + RECORD_HEADER_BYTES] == placeholder(
        header.ledger_id, header.entry_id
    )


def with_ids(buffer: bytes, offset: int, ledger_id: int, entry_id: int, proof: int = 0) -> bytes | None:
    """Return the record at ``offset`` with these ids in its header if its checksum then fits; else None."""
    header = peek_record(buffer, offset)
    if header is None or offset + RECORD_HEADER_BYTES + header.body_bytes > len(buffer):
        return None
    if proof and header.last_add_confirmed != proof:
        return None
    record = bytearray(buffer[offset : offset + RECORD_HEADER_BYTES + header.body_bytes])
    _IDS.pack_into(record, 8, ledger_id, entry_id)
    return bytes(record) if record_crc(bytes(record), 0, len(record)) == header.crc else None


def find_entry(
    buffer: bytes, start: int, end: int, ledger_id: int, least_entry_id: int, proof: int = 0
) -> tuple[int, int] | None:
    """(offset, entry id) of the first intact record of this ledger at or behind ``start`` whose entry id is at least
    ``least_entry_id``; None when there is none.
    """
    pattern = struct.pack("<Q", ledger_id)
    at = start + 8
    while (at := buffer.find(pattern, at, end)) >= 0:
        offset = at - 8
        entry_id = _entry_id_at(buffer, at, end)
        if entry_id is not None and entry_id >= least_entry_id:
            header = valid_record_at(buffer, offset, end, proof)
            if header is not None:
                return offset, header.entry_id
        is_blank = not entry_id and not ledger_id and (least_entry_id > 0 or buffer[offset:at] == _NO_LENGTH_NO_CRC)
        at = _behind_zeros(buffer, at, end) if is_blank else at + 1
    return None


def find_exactly(buffer: bytes, start: int, end: int, ledger_id: int, entry_id: int, proof: int = 0) -> int | None:
    """Return the offset of the first intact record of this entry at or behind ``start``; None when there is none."""
    if not ledger_id and not entry_id:
        found = find_entry(buffer, start, end, 0, 0, proof)
        while found is not None and found[1]:
            found = find_entry(buffer, found[0] + 1, end, 0, 0, proof)
        return None if found is None else found[0]
    pattern = _IDS.pack(ledger_id, entry_id)
    at = start + 8
    while (at := buffer.find(pattern, at, end)) >= 0:
        if valid_record_at(buffer, at - 8, end, proof) is not None:
            return at - 8
        at += 1
    return None


def _entry_id_at(buffer: bytes, at: int, end: int) -> int | None:
    """Return the entry id behind the ledger id at ``at``; None when the buffer ends before the entry id does."""
    return int(_IDS.unpack_from(buffer, at)[1]) if at + 16 <= end else None


def _behind_zeros(buffer: bytes, at: int, end: int) -> int:
    """Return the next offset at which the id of ledger 0 may be, if its entry id is not 0. A torn file has long runs of
    zeros, and a test of each of their bytes takes a minute for 30 MB.
    """
    found = _NOT_ZERO.search(buffer, at + 8, end)
    return end if found is None else max(at + 1, found.start() - 15)


class _Chain(NamedTuple):
    """Intact consecutive records somewhere behind damage."""

    start: int
    first_entry_id: int
    end: int
    end_entry_id: int
    weight: int
    """The bytes of the chain, plus a page when the chain reaches the end of the buffer."""


def find_again(
    buffer: bytes, at: int, end: int, ledger_id: int, expected: int, proof: int = 0
) -> tuple[int, int] | None:
    """(offset, entry id) of the intact record at which a ledger goes on behind the damage at ``at``, where entry
    ``expected`` should be; None when there is none.

    A device may have put a page of other records of the same ledger there. So a record is accepted only if the entries
    before it have room before its offset, and among records that contradict each other the function prefers those with
    the most bytes in consistent chains.
    """
    chains = _chains_behind(buffer, at, end, ledger_id, expected, proof)
    best: list[tuple[int, int]] = []
    """From the last chain to the first: (weight of the chain and of its best followers, index of the chain)."""
    for index in range(len(chains) - 1, -1, -1):
        chain = chains[index]
        follower = max(
            (
                (best[len(chains) - 1 - later][0], -later)
                for later in range(index + 1, len(chains))
                if _may_follow(chains[later], chain.end, chain.end_entry_id)
            ),
            default=(0, 0),
        )
        best.append((chain.weight + follower[0], index))
    first = max((weight, -index) for weight, index in best) if best else None
    return None if first is None else (chains[-first[1]].start, chains[-first[1]].first_entry_id)


def _may_follow(chain: _Chain, at: int, entry_id: int) -> bool:
    """Whether the entries from ``entry_id`` to the chain have room between ``at`` and the chain. Before a chain that
    begins at ``at`` a few entries (a page of record headers) may be missing.
    """
    between = chain.first_entry_id - entry_id
    return 0 <= between * RECORD_HEADER_BYTES <= max(chain.start - at, _PAGE_BYTES if chain.start == at else 0)


def _chains_behind(buffer: bytes, at: int, end: int, ledger_id: int, expected: int, proof: int) -> list[_Chain]:
    """Return the chains that may follow; the last is longer than a misdirected write, or reaches the buffer's end."""
    chains: list[_Chain] = []
    position, tries = at, 0
    while len(chains) < _MOST_CHAINS and tries < _MOST_TRIES:
        tries += 1
        found = find_entry(buffer, position, end, ledger_id, expected, proof)
        if found is None:
            break
        start, first = found
        offsets, stop, reason = scan_records(buffer, start, end, ledger_id, proof)
        count = (len(offsets) >> 3) - 1
        if not count:  # find_entry and scan_records disagree about this record: search behind it
            position = start + 1
            continue
        reaches_end = stop >= end or (
            reason == "short" and _is_cut_off(buffer, stop, end, ledger_id, first + count, proof)
        )
        chain = _Chain(start, first, stop, first + count, stop - start + (_PAGE_BYTES if reaches_end else 0))
        position = stop
        if _may_follow(chain, at, expected):
            chains.append(chain)
            if reaches_end or chain.weight >= _CERTAIN_BYTES:
                break
    return chains


def _is_cut_off(buffer: bytes, at: int, end: int, ledger_id: int, entry_id: int, proof: int) -> bool:
    """Whether the bytes at ``at`` begin the record of this entry. Precondition: a record there is longer than the
    buffer.

    The ids decide, because other bytes, such as the rest of an overwritten entry, may claim any length.
    """
    header = peek_record(buffer, at) if at + RECORD_HEADER_BYTES <= end else None
    if header is None:
        return True
    is_proven = not proof or header.last_add_confirmed == proof
    return is_proven and (header.ledger_id, header.entry_id) == (ledger_id, entry_id)


def walk(
    buffer: bytes, start: int, end: int, ledger_id: int, first_entry_id: int, proof: int = 0
) -> list[Run | Damage]:
    """Return all intact runs in ``start .. end``, in order, and the damage between them.

    The first record should be entry ``first_entry_id``. Placeholders count as damage. A last record that is cut off by
    ``end`` is a Damage with reason "short" and unknown extent.
    """
    found: list[Run | Damage] = []
    expected, at = first_entry_id, start
    while at < end:
        header = peek_record(buffer, at)
        reason: str | None = "order"
        if header is None or header.entry_id == expected:
            offsets, at_end, reason = scan_records(buffer, at, end, ledger_id, proof)
            count = (len(offsets) >> 3) - 1
            if count > 0:
                found.append(Run(ledger_id, expected, bytes(offsets)))
                expected, at = expected + count, at_end
                if at >= end:
                    break
        following = find_again(buffer, at, end, ledger_id, expected, proof)
        if following is None:
            found.append(Damage(ledger_id, expected, expected - 1, at, end, reason or "order"))
            break
        if following[1] > expected:
            found.append(Damage(ledger_id, expected, following[1] - 1, at, following[0], reason or "order"))
        at, expected = following
    return found
