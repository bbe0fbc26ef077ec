"""Reading record batches out of a Kafka log segment, or any file of batches, without touching the file.

The caller hands in `read(position, length)`; this module decides what to read. Every batch comes with its position and
the position after it, so reading resumes anywhere.

    segment = { entry }* | [torn tail: an entry cut by a crash, or the zeros of a preallocated file]

A torn tail ends the iteration and is reported by `LogEnd`; damage in front of it is an error that names the position:
nothing behind it can be trusted to be a batch boundary.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from magnetar.converters.kafka.errors import CorruptRecordError, UnsupportedMagicError
from magnetar.converters.kafka.framing import LOG_OVERHEAD, MAGIC_OFFSET, MIN_SIZES
from magnetar.converters.kafka.record_set import Batch, batch_at

ReadAt = Callable[[int, int], bytes]
"""read(position, length) -> up to length bytes; fewer only at the end of the file."""

MAX_BATCH_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_HEADER_BYTES = LOG_OVERHEAD + MIN_SIZES[0]


class LogEnd(enum.StrEnum):
    """Why the iteration ended."""

    CLEAN = "clean"
    TORN = "torn"
    """The last entry is cut."""
    PREALLOCATED = "preallocated"
    """Zeros follow: the file was created larger than its content."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One entry of the file, whole, and where it stands."""

    position: int
    next_position: int
    batch: Batch


class LogFile:
    """Iterates the entries of a file from a position on; afterwards `end` and `valid_bytes` say how that ended."""

    def __init__(self, read: ReadAt, size: int, *, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._read = read
        self._size = size
        self._max_batch_bytes = max_batch_bytes
        self.end: LogEnd | None = None
        self.valid_bytes = 0

    def batches(self, position: int = 0) -> Iterator[LogBatch]:
        """Yield the entries from `position`, which must be 0 or the `next_position` of a batch.

        Checksums are not verified here: ask each batch with `ensure_valid()`.
        Raises: CorruptRecordError (with the position) for sizes and magics that cannot be.
        """
        self.end, self.valid_bytes = None, position
        chunk, chunk_start = b"", position
        while self._size - position >= LOG_OVERHEAD:
            if len(chunk) - (position - chunk_start) < _HEADER_BYTES:
                chunk, chunk_start = self._read(position, _CHUNK_BYTES), position
            at = position - chunk_start
            size = int.from_bytes(chunk[at + 8 : at + LOG_OVERHEAD], "big", signed=True)
            if size == 0 and not any(chunk[at : at + LOG_OVERHEAD]):
                self.end = self._zeros_or_damage(position)
                return
            end = position + LOG_OVERHEAD + size
            if size < MIN_SIZES[0] or LOG_OVERHEAD + size > self._max_batch_bytes:
                raise CorruptRecordError(f"position {position}: an entry cannot have {size} bytes")
            if end > self._size:
                self.end = LogEnd.TORN
                return
            if at + LOG_OVERHEAD + size > len(chunk):
                chunk, chunk_start, at = self._read(position, max(end - position, _CHUNK_BYTES)), position, 0
            data = chunk[at : at + LOG_OVERHEAD + size]
            if len(data) < LOG_OVERHEAD + size:
                self.end = LogEnd.TORN
                return
            yield LogBatch(position, end, _view(data, position))
            position = self.valid_bytes = end
        self.end = LogEnd.CLEAN if position == self._size else LogEnd.TORN

    def _zeros_or_damage(self, position: int) -> LogEnd:
        start = position
        while position < self._size:
            chunk = self._read(position, _CHUNK_BYTES)
            if not chunk:
                break
            if chunk.strip(b"\x00"):
                raise CorruptRecordError(f"position {start}: zeros where an entry should start, data behind them")
            position += len(chunk)
        return LogEnd.PREALLOCATED


def _view(data: bytes, position: int) -> Batch:
    magic = data[MAGIC_OFFSET]
    if magic > 2:
        raise UnsupportedMagicError(magic)
    if len(data) < LOG_OVERHEAD + MIN_SIZES[magic]:
        raise CorruptRecordError(f"position {position}: {len(data)} bytes are too few for magic {magic}")
    return batch_at(data, magic)
