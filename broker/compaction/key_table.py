"""The newest place of every key, in bounded memory however many keys there are.

A dict holds the keys until it is full; then the table writes all keys to a temporary file, in parts by the key's
digest, and empties the dict. In the end the table reads the parts one after the other, newest records last, so that
memory holds the keys of a single part; a part that is still too large is split again by the next byte of the digest.
The table writes and reads the file in large pieces only. A key has one record for each `spill` of it::

    16 bytes digest | i64 place, little-endian

For measurements against SQLite see docs/features/compaction.md. Call `spill` and `newest` outside the event loop once
the table is full: they read and write the file.
"""

from __future__ import annotations

from struct import Struct
from typing import IO, TYPE_CHECKING

from magnetar.broker.compaction.examine import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KEYS_IN_MEMORY", "KeyTable"]

KEYS_IN_MEMORY = 100_000
"""The bound of keys in memory, some 20 MB."""
_RECORD = Struct(f"<{DIGEST_BYTES}sq")
_PARTS = 64
_PLACES_AT_ONCE = 4096
"""Places in one list of `newest`: making a list holds the interpreter lock, and other threads need it between lists."""
_READ_BYTES = _RECORD.size * 32_768


class KeyTable:
    """Maps the digest of a key to the place (any int64) that was put last."""

    def __init__(self, keys_in_memory: int = KEYS_IN_MEMORY, directory: str | None = None, *, depth: int = 0) -> None:
        self._limit = keys_in_memory
        self._directory = directory
        self._depth = depth
        self._newest: dict[bytes, int] = {}
        self._file: IO[bytes] | None = None
        self._pieces: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        self._end = 0
        self.spilled_bytes = 0
        """Bytes that the table has written to temporary files since its creation."""
        self.put = self._newest.__setitem__
        self.place_in_memory = self._newest.get

    @property
    def is_full(self) -> bool:
        """Whether the caller should `spill`; a table may exceed its limit a little."""
        return len(self._newest) >= self._limit

    @property
    def weight_bytes(self) -> int:
        """The bytes that `newest` has to process: an estimate of its work."""
        return self.spilled_bytes + _RECORD.size * len(self._newest)

    def spill(self) -> None:
        """Move the keys in memory to the file. Raises OSError."""
        import tempfile  # noqa: PLC0415 - with a good deal behind it, not at the start

        parts: list[list[bytes]] = [[] for _ in range(_PARTS)]
        depth, pack = self._depth, _RECORD.pack
        for digest, place in self._newest.items():
            parts[digest[depth] % _PARTS].append(pack(digest, place))
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - closed by close()
        self._file.seek(self._end)
        for pieces, records in zip(self._pieces, parts, strict=True):
            if records:
                data = b"".join(records)
                _write_all(self._file, data)
                pieces.append((self._end, len(data)))
                self._end += len(data)
                self.spilled_bytes += len(data)
        self._newest.clear()

    def newest(self) -> Iterator[list[int]]:
        """Yield the newest place of each key, in lists of places. The table is of no use afterwards. Raises OSError."""
        if self._file is None:
            places = list(self._newest.values())
            for start in range(0, len(places), _PLACES_AT_ONCE):
                yield places[start : start + _PLACES_AT_ONCE]
            return
        if self._newest:
            self.spill()
        for pieces in self._pieces:
            if pieces:
                part = self._read_part(pieces)
                yield from part.newest()
                self.spilled_bytes += part.spilled_bytes
                part.close()

    def _read_part(self, pieces: list[tuple[int, int]]) -> KeyTable:
        part = KeyTable(self._limit, self._directory, depth=min(self._depth + 1, DIGEST_BYTES - 1))
        assert self._file is not None
        for start, size in pieces:
            for at in range(start, start + size, _READ_BYTES):
                self._file.seek(at)
                for digest, place in _RECORD.iter_unpack(_read_all(self._file, min(_READ_BYTES, start + size - at))):
                    part.put(digest, place)
                if part.is_full:
                    part.spill()
        return part

    def close(self) -> None:
        """Free the file and the memory. Idempotent."""
        self._newest.clear()
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _read_all(file: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = file.read(size)
        if not part:
            raise OSError("the temporary file of a compaction ends early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
