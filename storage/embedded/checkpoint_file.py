"""``journal/checkpoint``: how far ledger files are synced, and therefore which journal frames recovery needs.

The engine replaces the file as a whole (new file, sync, rename, sync of the folder). The file holds two equal copies,
so one damaged sector costs nothing. A copy (little-endian)::

     0      file header (``file_header.py``), file id = checkpoint number, generation = last
                             durable change of the metadata, salt = 1: ``bound_salts``
    64  u64 next sequence        frames below are in synced ledger files; replay begins here
    72  u64 free generation      segments up to this generation hold no frame that is needed
    80  u64 ledgers
    88      ledgers x (u64 ledger id, u64 entries, u64 length)   unsealed ledgers as far as they are synced
    ..  u32 crc32c               of all bytes before in this copy
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import CHECKPOINT_MAGIC, FILE_HEADER_BYTES, FileHeader, parse_file_header
from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.errors import DamagedFileError, StorageFailedError

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.layout import Layout

__all__ = ["Checkpoint", "decode_checkpoint", "encode_checkpoint", "read_checkpoint", "write_checkpoint"]

_FIXED = struct.Struct("<QQQ")


@dataclass(slots=True)
class Checkpoint:
    """Decoded checkpoint."""

    number: int = 0
    next_sequence: int = 0
    free_generation: int = 0
    synced: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Ledger id -> (entries, length in bytes)."""
    damaged_copies: int = 0
    metadata_sequence: int = 0
    """The last change of the metadata that was durable when the engine planned the checkpoint."""
    bound_salts: bool = True
    """The salts of all segments used after the checkpoint are bound to the store (``journal/uses.py``)."""


def encode_checkpoint(store_id: bytes, checkpoint: Checkpoint, now_ms: int) -> bytes:
    """Return the bytes of both copies."""
    flat = array("Q")
    for ledger_id, (entries, length) in checkpoint.synced.items():
        flat.extend((ledger_id, entries, length))
    head = FileHeader(
        CHECKPOINT_MAGIC,
        store_id,
        checkpoint.number,
        generation=checkpoint.metadata_sequence,
        salt=checkpoint.bound_salts,
        created_ms=now_ms,
    ).pack()
    body = _FIXED.pack(checkpoint.next_sequence, checkpoint.free_generation, len(checkpoint.synced)) + flat.tobytes()
    copy = head + body
    copy += crc32c(copy).to_bytes(4, "little")
    return copy + copy


def decode_checkpoint(path: str, data: bytes) -> Checkpoint:
    """Decode the first intact copy. Raises DamagedFileError when both copies are damaged, UnsupportedFormatError."""
    # Both copies have the same length, so the second copy begins in the middle even when the first copy is damaged.
    half = len(data) // 2
    problem: DamagedFileError | None = None
    for number, start in enumerate((0, half)):
        try:
            found = _decode_copy(path, data[start : start + half])
        except DamagedFileError as error:
            problem = problem or error
            continue
        found.damaged_copies = number or _damaged(path, data[half:])
        return found
    raise problem or DamagedFileError(path, 0, "empty")


def _damaged(path: str, data: bytes) -> int:
    try:
        _decode_copy(path, data)
    except DamagedFileError:
        return 1
    return 0


def _decode_copy(path: str, data: bytes) -> Checkpoint:
    header = parse_file_header(path, data, CHECKPOINT_MAGIC)
    if len(data) < FILE_HEADER_BYTES + _FIXED.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise DamagedFileError(path, FILE_HEADER_BYTES, "checkpoint has a wrong checksum")
    next_sequence, free_generation, count = _FIXED.unpack_from(data, FILE_HEADER_BYTES)
    if len(data) != FILE_HEADER_BYTES + _FIXED.size + count * 24 + 4:
        raise DamagedFileError(path, FILE_HEADER_BYTES, "checkpoint has a wrong length")
    flat = array("Q")
    flat.frombytes(data[FILE_HEADER_BYTES + _FIXED.size : -4])
    synced = dict(zip(flat[0::3], zip(flat[1::3], flat[2::3], strict=True), strict=True))
    return Checkpoint(
        header.file_id,
        next_sequence,
        free_generation,
        synced,
        metadata_sequence=header.generation,
        bound_salts=header.salt == 1,
    )


def read_checkpoint(files: FileSystem, layout: Layout) -> Checkpoint:
    """Read the checkpoint. Raises FileNotFoundError, DamagedFileError, UnsupportedFormatError, OSError."""
    file = files.open_read_only(layout.checkpoint)
    try:
        return decode_checkpoint(layout.checkpoint, file.read(file.size(), 0))
    finally:
        file.close()


def write_checkpoint(files: FileSystem, layout: Layout, store_id: bytes, checkpoint: Checkpoint, now_ms: int) -> None:
    """Write the checkpoint, durable on return; after a crash before that the old checkpoint may still count.

    Raises OSError (no space: the caller may try again), and StorageFailedError when a sync failed.
    """
    temporary = layout.checkpoint + ".new"
    data = encode_checkpoint(store_id, checkpoint, now_ms)
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write([data], 0)
        try:
            file.sync()
        except OSError as error:
            raise StorageFailedError(f"fsync of the checkpoint: {error}") from error
    finally:
        file.close()
    files.rename(temporary, layout.checkpoint)
    try:
        files.sync_dir(layout.journal)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise
        raise StorageFailedError(f"fsync of the journal folder: {error}") from error
