"""Reading record batches out of a Kafka log segment, or any file of batches, without touching the file.

The caller supplies `read(position, length)`; this module decides which bytes to read. Every batch comes with its
position and the position after it, so that reading can resume behind any batch.

    segment = { entry }* | [torn tail: an entry cut by a crash, or the zeros of a preallocated file]

A torn tail ends the iteration and is reported by `LogEnd`. Damage in front of the tail
raises an error with its position, because no place behind damage is a reliable batch boundary; or, with `on_damage`,
reading continues at the next entry with a right checksum (`batch_search`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from magnetar.converters.kafka.batch_search import SearchBounds, find_batch
from magnetar.converters.kafka.errors import DamagedLogError
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
    """One complete entry of the file, and its position."""

    position: int
    next_position: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class LogDamage:
    """A stretch of the file that holds no usable entry: from `position` up to `next_position`, where reading goes on
    (the size of the file when nothing usable follows).
    """

    position: int
    next_position: int
    reason: str


class LogFile:
    """Iterates the entries of a file from a position on; afterwards `end` and `valid_bytes` show why and where.

    Args: on_damage: called for every skipped stretch, where no entry can be read or the checksum of an entry is wrong;
          may raise. Without on_damage, an unreadable entry raises, and the caller has to verify the checksums.
    """

    def __init__(
        self,
        read: ReadAt,
        size: int,
        *,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_damage: Callable[[LogDamage], None] | None = None,
    ) -> None:
        self._read = read
        self._size = size
        self._max_batch_bytes = max_batch_bytes
        self._on_damage = on_damage
        self._chunk, self._chunk_start = b"", 0
        self._first_offset: int | None = None
        self._last_offset = -1
        self.end: LogEnd | None = None
        self.valid_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of the file, as given by the caller."""
        return self._size

    def batches(self, position: int = 0) -> Iterator[LogBatch]:
        """Yield the entries from `position`, which must be 0 or the `next_position` of a batch.

        With `on_damage`, checksums are verified and entries with a wrong checksum are skipped; without it, call
        `ensure_valid()` of each batch.
        Raises: DamagedLogError (with the position) for impossible sizes and magics, unless `on_damage` is given.
        """
        self.end, self.valid_bytes = None, position
        while self._size - position >= LOG_OVERHEAD:
            try:
                item = self._entry_at(position)
            except DamagedLogError as error:
                position = self._behind_damage(error)
                continue
            if item is None:
                torn = self._damage_in_place_of_a_tail(position)
                if torn is None:
                    return
                self.end = None
                position = self._behind_damage(torn)
                continue
            if self._on_damage is not None and not item.batch.is_valid:
                position = self._behind_wrong_checksum(item, self._on_damage)
                continue
            self._last_offset = item.batch.last_offset
            self._first_offset = self._first_offset or self._last_offset
            yield item
            position = self.valid_bytes = item.next_position
        self.end = LogEnd.CLEAN if position == self._size else LogEnd.TORN

    def _entry_at(self, position: int) -> LogBatch | None:
        """Return the entry at `position`; at the end of the file set `end` and return None. Raises: DamagedLogError."""
        head = self._bytes(position, _HEADER_BYTES)
        size = int.from_bytes(head[8:LOG_OVERHEAD], "big", signed=True)
        if size == 0 and not any(head[:LOG_OVERHEAD]):
            self._ensure_zeros(position)
            self.end = LogEnd.PREALLOCATED
            return None
        end = position + LOG_OVERHEAD + size
        if size < MIN_SIZES[0] or LOG_OVERHEAD + size > self._max_batch_bytes:
            raise DamagedLogError(position, f"an entry cannot have {size} bytes")
        data = self._bytes(position, LOG_OVERHEAD + size) if end <= self._size else b""
        if len(data) < LOG_OVERHEAD + size:
            self.end = LogEnd.TORN
            return None
        return LogBatch(position, end, _view(data, position))

    def _damage_in_place_of_a_tail(self, position: int) -> DamagedLogError | None:
        """Return the damage if usable batches follow an apparent torn tail: a flipped bit in a size looks alike."""
        if self.end is not LogEnd.TORN:
            return None
        found = find_batch(self._bounded_read, position + 1, self._search_bounds())
        if found is None:
            return None
        return DamagedLogError(position, f"the entry would end behind the file, but another one starts at {found}")

    def _bytes(self, position: int, length: int) -> bytes:
        """Return data[position : position + length] from the chunk; read a new chunk where this chunk is too short."""
        at = position - self._chunk_start
        if at < 0 or at + length > len(self._chunk):
            self._chunk, self._chunk_start, at = self._read(position, max(length, _CHUNK_BYTES)), position, 0
        return self._chunk[at : at + length]

    def _ensure_zeros(self, start: int) -> None:
        position = start
        while position < self._size:
            chunk = self._read(position, _CHUNK_BYTES)
            if not chunk:
                break
            if chunk.strip(b"\x00"):
                raise DamagedLogError(start, "zeros where an entry should start, data behind them")
            position += len(chunk)

    def _behind_damage(self, error: DamagedLogError) -> int:
        """Report the damage and return the position where reading continues. Raises: `error`, without `on_damage`."""
        if self._on_damage is None:
            raise error
        found = find_batch(self._bounded_read, error.position + 1, self._search_bounds())
        following = self._size if found is None else found
        self._on_damage(LogDamage(error.position, following, error.reason))
        self.valid_bytes = following
        return following

    def _behind_wrong_checksum(self, item: LogBatch, on_damage: Callable[[LogDamage], None]) -> int:
        """Report the damage and return the position where reading continues: behind the entry, or at an entry that
        begins inside it, which proves that its size is wrong.
        """
        found = find_batch(self._bounded_read, item.position + 1, self._search_bounds(), before=item.next_position)
        following = item.next_position if found is None else found
        batch = item.batch
        reason = f"the checksum of the batch is wrong: stored {batch.crc:#010x}, computed {batch.computed_crc():#010x}"
        on_damage(LogDamage(item.position, following, reason))
        self.valid_bytes = following
        return following

    def _bounded_read(self, position: int, length: int) -> bytes:
        return self._read(position, min(length, self._size - position)) if position < self._size else b""

    def _search_bounds(self) -> SearchBounds:
        return SearchBounds((self._last_offset + 1, self._first_offset or 0), self._max_batch_bytes)


def _view(data: bytes, position: int) -> Batch:
    magic = data[MAGIC_OFFSET]
    if magic > 2:
        raise DamagedLogError(position, f"unknown magic {magic}: known are 0, 1 and 2")
    if len(data) < LOG_OVERHEAD + MIN_SIZES[magic]:
        raise DamagedLogError(position, f"{len(data)} bytes are too few for magic {magic}")
    return batch_at(data, magic)
