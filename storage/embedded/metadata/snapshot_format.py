"""Bytes of a metadata snapshot: the whole tree as it was before the first frame of the log of the same number. Pure.

::

     0      file header (``file_header.py``): file id = number, generation = sequence of that first frame
    64      blocks: u32 payload bytes | u32 crc32c of number, length, payload | payload (``changes.py``), about 4 KiB
    ..      footer, 64 bytes: 8s magic | u32 crc32c of the footer with this field zero | u32 crc32c of all blocks
            | u64 number | u64 changes | u64 blocks' bytes | 24 x zero

The writer writes a snapshot under a temporary name, syncs and renames it, so a snapshot exists as a whole or not at
all. Each block has its own checksum, so that a repair can use the intact blocks of a damaged file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, SNAPSHOT_MAGIC, FileHeader, parse_file_header
from magnetar.storage.embedded.metadata.changes import Change, decode_changes, encode_changes
from magnetar.storage.errors import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Snapshot", "decode_snapshot", "encode_snapshot", "intact_changes"]

_BLOCK_BYTES = 4 << 10
_BLOCK = struct.Struct("<II")
_FOOTER = struct.Struct("<8sIIQQQ24x")
_FOOTER_MAGIC = b"MGNTRMSF"
_CHANGE_BYTES = 16
"""The approximate bytes of a change beside path and value."""


class Snapshot(NamedTuple):
    """The content of an intact snapshot."""

    store_id: bytes
    number: int
    next_sequence: int
    changes: list[Change]


def encode_snapshot(
    store_id: bytes, number: int, next_sequence: int, changes: Iterable[Change], now_ms: int
) -> Iterator[bytes]:
    """Yield the file in pieces, which the caller writes one after the other."""
    yield FileHeader(SNAPSHOT_MAGIC, store_id, number, generation=next_sequence, created_ms=now_ms).pack()
    count = size = all_crc = 0
    for block in _blocks(changes):
        data = encode_changes(block)
        crc = _block_crc(number, data)
        piece = _BLOCK.pack(len(data), crc) + data
        count += len(block)
        size += len(piece)
        all_crc = crc32c(piece, all_crc)
        yield piece
    blank = _FOOTER.pack(_FOOTER_MAGIC, 0, all_crc, number, count, size)
    yield _FOOTER.pack(_FOOTER_MAGIC, crc32c(blank), all_crc, number, count, size)


def decode_snapshot(path: str, data: bytes) -> Snapshot:
    """Decode an intact snapshot. Raises DamagedFileError when any checksum, length or count is wrong,
    UnsupportedFormatError.
    """
    header = parse_file_header(path, data, SNAPSHOT_MAGIC)
    at = len(data) - _FOOTER.size
    if at < FILE_HEADER_BYTES:
        raise DamagedFileError(path, len(data), "cut off")
    magic, crc, all_crc, number, count, size = _FOOTER.unpack_from(data, at)
    blank = data[at : at + 8] + bytes(4) + data[at + 12 :]
    if magic != _FOOTER_MAGIC or crc32c(blank) != crc or number != header.file_id:
        raise DamagedFileError(path, at, "the footer is damaged, or the file is cut off")
    blocks = memoryview(data)[FILE_HEADER_BYTES:at]
    if size != len(blocks) or crc32c(blocks) != all_crc:
        raise DamagedFileError(path, _first_bad(data, header.file_id), "a block has a wrong checksum")
    changes = [change for block in intact_changes(data, number) for change in block]
    if len(changes) != count:
        raise DamagedFileError(path, FILE_HEADER_BYTES, f"{len(changes)} changes instead of {count}")
    return Snapshot(header.store_id, number, header.generation, changes)


def intact_changes(data: bytes, number: int) -> Iterator[list[Change]]:
    """Yield the changes of each intact block. The search does not find blocks behind a damaged length."""
    for at, size, crc in _walk(data):
        payload = data[at : at + size]
        if _block_crc(number, payload) == crc:
            try:
                yield decode_changes(payload)
            except ValueError:
                continue


def _walk(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(payload offset, bytes, checksum) of probable blocks."""
    at, end = FILE_HEADER_BYTES, len(data) - _FOOTER.size
    while at + _BLOCK.size <= end:
        size, crc = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        if at + size > end:
            return
        yield at, size, crc
        at += size


def _first_bad(data: bytes, number: int) -> int:
    for at, size, crc in _walk(data):
        if _block_crc(number, data[at : at + size]) != crc:
            return at
    return FILE_HEADER_BYTES


def _block_crc(number: int, payload: bytes) -> int:
    return crc32c(payload, crc32c(struct.pack("<QQ", number, len(payload))))


def _blocks(changes: Iterable[Change]) -> Iterator[list[Change]]:
    block: list[Change] = []
    size = 0
    for change in changes:
        block.append(change)
        size += _CHANGE_BYTES + len(change[1]) + len(change[3])
        if size >= _BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block
