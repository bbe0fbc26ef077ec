"""The newest place of every key, in bounded memory however many keys there are.

Keys live in a dict until it is full; then all of it goes to a temporary file, cut into parts by the key's digest, and
the dict starts anew. In the end each part is read back alone, newest last, so only one part's keys are in memory at a
time; a part that is still too large is cut again by the next byte of the digest. The file is written and read in large
pieces only, one record a key and fill::

    16 bytes digest | i64 place, little-endian

Measured against SQLite as the table: see docs/features/compaction.md. Not for the event loop once it is full: `spill`
and `newest` read and write the file.
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
"""Places in one step, which holds the interpreter lock: other threads must get their turns."""
_READ_BYTES = _RECORD.size * 32_768


class KeyTable:
    """Digest of a key -> place (any int64) that was put last."""

    def __init__(self, keys_in_memory: int = KEYS_IN_MEMORY, directory: str | None = None, *, depth: int = 0) -> None:
        self._limit = keys_in_memory
        self._directory = directory
        self._depth = depth
        self._newest: dict[bytes, int] = {}
        self._file: IO[bytes] | None = None
        self._pieces: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        self._end = 0
        self.spilled_bytes = 0
        """Bytes ever written to temporary files."""
        self.put = self._newest.__setitem__

    @property
    def is_full(self) -> bool:
        """Time to `spill`; a table may grow over it a little."""
        return len(self._newest) >= self._limit

    @property
    def weight_bytes(self) -> int:
        """How much work reading all of it is."""
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
        """The newest place of each key, in lists of some keys each. Ends the table. Raises OSError."""
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
        """Free file and memory. Idempotent."""
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
