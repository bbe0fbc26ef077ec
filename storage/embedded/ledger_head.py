r"""The head of a ledger file: its identity, from which a repair can make the lists of ledgers again. Pure.

::

     0        file header (``file_header.py``): file id = ledger id, generation = data offset (a multiple of 4096)
    64        u32 bytes | u32 crc32c of all from here to the second copy, this field zero | properties, JSON | zeros
    offset-64 the file header again: damage of one sector costs nothing
    offset    records

A file of format 1 has generation 0, no properties, and its records from byte 64 on. The journal holds the same
properties in the *birth record* of the ledger, right before its first entry: a record with the entry id
``BIRTH_ENTRY_ID``, which no entry has.

The property ``record-proof`` states that every record of the ledger has the ledger's *proof* in its field ``last add
confirmed``: a number computed from ledger id and store id, and clients do not have the store id. Bytes of a client
therefore never form such a record, and a search behind damage finds only entries of the ledger. Ledgers of earlier
versions have no proof: their records count by their checksum alone.
"""

from __future__ import annotations

import json
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, FileHeader, parse_file_header
from magnetar.storage.errors import DamagedFileError, UnsupportedFormatError
from magnetar.storage.records import record_crc

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BIRTH_ENTRY_ID",
    "HEAD_ALIGNMENT",
    "NO_PROOF",
    "LedgerHead",
    "birth_record",
    "encode_ledger_head",
    "find_data_offset",
    "parse_ledger_head",
    "parse_properties",
    "proof_from_id",
    "proof_of",
    "with_proof",
]

BIRTH_ENTRY_ID = 1 << 62
"""The entry id of a birth record; no entry has this id."""
HEAD_ALIGNMENT = 4096
NO_PROOF = 0
"""The proof of a ledger that an earlier version wrote without a proof."""
_MAX_HEAD_BYTES = 1 << 20
_PROOF_NOTE = "record-proof"
_PROOF_KIND = "1"
_PROOF_BYTES = 8
_SIGN = 1 << 63
_PART = struct.Struct("<II")
_RECORD = struct.Struct("<IIQQq")
_CRC = struct.Struct("<I")


class LedgerHead(NamedTuple):
    """The decoded head of a ledger file."""

    header: FileHeader
    data_offset: int
    """The offset of entry 0."""
    properties: dict[str, str] | None
    """None: format 1, or a damaged head."""
    damage: list[DamagedFileError]


def encode_ledger_head(header: FileHeader, properties: Mapping[str, str], data_offset: int = 0) -> bytes:
    """Return everything before the records: ``data_offset`` bytes, or for 0 the smallest size that fits.

    Raises ValueError when the properties do not fit into ``data_offset`` bytes.
    """
    body = _encode_properties(properties)
    least = 2 * FILE_HEADER_BYTES + _PART.size + len(body)
    size = data_offset or (least + HEAD_ALIGNMENT - 1) // HEAD_ALIGNMENT * HEAD_ALIGNMENT
    if size < least:
        raise ValueError(f"{len(body)} bytes of properties do not fit into a head of {size}")
    copy = header._replace(generation=size).pack()
    middle = _PART.pack(len(body), 0) + body
    middle += bytes(size - 2 * FILE_HEADER_BYTES - len(middle))
    crc = crc32c(middle, crc32c(struct.pack("<16sQ", header.store_id, header.file_id)))
    return copy + _PART.pack(len(body), crc) + middle[_PART.size :] + copy


def parse_ledger_head(path: str, data: bytes) -> LedgerHead:
    """Decode the head from ``data``, the first pages of a file.

    Raises DamagedFileError when both copies of the header are damaged or the head is cut off, UnsupportedFormatError.
    """
    damage: list[DamagedFileError] = []
    header: FileHeader | None = None
    second: FileHeader | None = None
    try:
        header = parse_file_header(path, data, LEDGER_MAGIC)
    except DamagedFileError as error:
        damage.append(error)
    if header is not None and not header.generation:
        return LedgerHead(header, FILE_HEADER_BYTES, None, damage)
    size = header.generation if header is not None else find_data_offset(data)
    if size is None or not 2 * FILE_HEADER_BYTES + _PART.size <= size <= len(data):
        raise damage[0] if damage else DamagedFileError(path, len(data), "cut off in its head")
    try:
        second = parse_file_header(path, data[size - FILE_HEADER_BYTES : size], LEDGER_MAGIC)
    except DamagedFileError as error:
        damage.append(DamagedFileError(path, size - FILE_HEADER_BYTES, error.detail))
    found = header or second
    assert found is not None
    middle = data[FILE_HEADER_BYTES : size - FILE_HEADER_BYTES]
    properties = _properties(found, middle)
    if properties is None:
        damage.append(DamagedFileError(path, FILE_HEADER_BYTES, "the ledger's properties are damaged"))
    return LedgerHead(found, size, properties, damage)


def find_data_offset(data: bytes) -> int | None:
    """Return the offset of the records from the second copy of the header; None without such a copy."""
    for size in range(HEAD_ALIGNMENT, min(len(data), _MAX_HEAD_BYTES) + 1, HEAD_ALIGNMENT):
        try:
            header = parse_file_header("", data[size - FILE_HEADER_BYTES : size], LEDGER_MAGIC)
        except (DamagedFileError, UnsupportedFormatError):
            continue  # no header, or bytes of a client that look like one
        if header.generation == size:
            return size
    return None


def birth_record(ledger_id: int, properties: Mapping[str, str], proof: int = NO_PROOF) -> bytes:
    """The record that the journal writes before the ledger's first entry."""
    body = _encode_properties(properties)
    record = bytearray(_RECORD.pack(len(body), 0, ledger_id, BIRTH_ENTRY_ID, proof or -1) + body)
    record[4:8] = _CRC.pack(record_crc(bytes(record), 0, len(record)))
    return bytes(record)


def parse_properties(body: bytes) -> dict[str, str] | None:
    """Return the properties of a birth record; None when they do not parse."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None


def with_proof(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new ledger: its records will have the proof."""
    return {**properties, _PROOF_NOTE: _PROOF_KIND}


def proof_of(store_id: bytes, ledger_id: int, properties: Mapping[str, str] | None) -> int:
    """The proof of the ledger with these properties; NO_PROOF when the properties name no proof, or are lost."""
    noted = properties is not None and properties.get(_PROOF_NOTE) == _PROOF_KIND
    return proof_from_id(store_id, ledger_id) if noted else NO_PROOF


def proof_from_id(store_id: bytes, ledger_id: int) -> int:
    """The proof of a ledger that has a proof.

    The proof is negative and even, so it is no entry id, and differs from the -1 that records of earlier versions have
    in this field for an empty ledger.
    """
    key = blake2b(struct.pack("<Q", ledger_id), key=store_id, digest_size=_PROOF_BYTES, person=b"record proof")
    return (int.from_bytes(key.digest(), "little") & ~1 & (_SIGN - 1)) - _SIGN


def _encode_properties(properties: Mapping[str, str]) -> bytes:
    return json.dumps(dict(properties), separators=(",", ":"), ensure_ascii=False).encode()


def _properties(header: FileHeader, middle: bytes) -> dict[str, str] | None:
    size, crc = _PART.unpack_from(middle)
    blank = middle[:4] + bytes(4) + middle[8:]
    if crc32c(blank, crc32c(struct.pack("<16sQ", header.store_id, header.file_id))) != crc:
        return None
    return parse_properties(middle[_PART.size : _PART.size + size])
