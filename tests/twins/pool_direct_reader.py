"""A ``DirectReader`` over any files and threads: the simulated disk has a direct reader like the real disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.bulk_read import read_ranges
from magnetar.storage.embedded.direct_reader import ReadRecords
from magnetar.storage.records import scan_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.embedded.direct_reader import Done, Wanted
    from magnetar.storage.embedded.files import File
    from magnetar.storage.embedded.lanes import Threads

__all__ = ["PoolDirectReader"]


class PoolDirectReader:
    """Reads in a pool, ``most`` reads of ``most_bytes`` at a time."""

    def __init__(self, threads: Threads, most: int = 4, most_bytes: int = 1 << 20) -> None:
        self._pool = threads.pool("direct", 1)
        self._most, self._most_bytes, self._under_way = most, most_bytes, 0
        self._closed = False
        self.reads = self.useful = 0

    def begin(self, file: File, ranges: Sequence[tuple[int, int]], wanted: Wanted, done: Done) -> bool:
        if self._closed or self._under_way == self._most:
            return False
        self._under_way += 1
        self.reads += 1

        def ended(found: ReadRecords | None, error: BaseException | None) -> None:
            self._under_way -= 1
            assert error is None or isinstance(error, OSError)
            self.useful += done(found)

        end = ranges[0][0] + self._most_bytes
        taken = [(offset, min(size, end - offset)) for offset, size in ranges if offset < end]

        def job() -> ReadRecords:
            data = read_ranges(file, taken)
            offsets, _, _ = scan_records(data, 0, len(data), *wanted)
            return ReadRecords(data, bytes(offsets))

        self._pool.run(job, ended)
        return True

    async def close(self) -> None:
        self._closed = True
        await self._pool.close()
