"""Reads ranges of files past the system's cache without a thread of the interpreter, for read-ahead.

A thread that reads a piece waits for the interpreter lock, which the loop holds while the loop sends the piece before,
and for a processor. The system's asynchronous I/O needs neither: the loop begins a read with a system call of some 30
us, and the device works while the loop goes on. A read never waits within the call (``RWF_NOWAIT``); where the system
would have to wait, the read fails, and the caller reads in a thread. A thread of the compiled helper, which never holds
the interpreter lock, copies the bytes of an ended read into their object and checks their records.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.storage.embedded.direct_io import BLOCK_BYTES
from magnetar.storage.embedded.files import NO_DESCRIPTOR, RealFile
from magnetar.storage.embedded.lanes import Idle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.embedded.files import File

__all__ = ["MOST_BYTES", "CompiledDirectReader", "DirectReader", "Done", "ReadRecords", "Wanted", "open_direct_reader"]

MOST_BYTES = 1 << 20
"""The most bytes of one read, the whole blocks around the ranges."""
_MOST_SKIPPED = 256
_UNAVAILABLE = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAGAIN, errno.ENOMEM}) | NO_DESCRIPTOR
"""Errors of a sandbox that forbids asynchronous I/O, or of a system without room for one user more."""


class ReadRecords(NamedTuple):
    """The bytes of a read and the intact records at their start."""

    data: bytes
    offsets: bytes
    """The offset of each record and the end of the last, as ``scan_records`` finds them; a 0 without a record."""


class Wanted(NamedTuple):
    """The records to read: see ``scan_records``."""

    ledger_id: int
    proof: int


Done = Callable[[ReadRecords | None], bool]


class DirectReader(Protocol):
    """Reads several ranges at a time. Loop only."""

    def begin(self, file: File, ranges: Sequence[tuple[int, int]], wanted: Wanted, done: Done) -> bool:
        """Begin to read these ranges (offset, size), each behind the range before; False: this reader does not take the
        read now, and does not call ``done``.

        The loop calls ``done`` later, never within this call, with the joined bytes and their records, or with None:
        the read failed, and a read by other means may have success. The bytes are fewer where the file ends, and where
        the ranges go beyond the most that the reader reads at a time. ``done`` returns whether the bytes were of use.
        """
        ...

    async def close(self) -> None:
        """Wait for the reads under way, then close. Idempotent."""
        ...


class CompiledDirectReader:
    """The reader of ``_direct_reader.c``. Needs real files and an event loop that watches descriptors.

    Behind a read that failed or was of no use the reader takes no read for one call of ``begin``, then for twice as
    many each time, up to 256, until a read is of use: on a file system that refuses such reads, and for entries larger
    than a piece, an attempt is a waste.
    """

    def __init__(self) -> None:
        from magnetar.storage.embedded._direct_reader import Reader  # noqa: PLC0415 - not built everywhere

        self._reader = Reader()
        self._reads: dict[int, Done] = {}
        self._idle = Idle()
        self._skip = self._skipped = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader.fileno(), self._on_wake)
        self._closed = False

    def begin(self, file: File, ranges: Sequence[tuple[int, int]], wanted: Wanted, done: Done) -> bool:
        if self._closed or not isinstance(file, RealFile):
            return False
        if self._skipped < self._skip:
            self._skipped += 1
            return False
        first = ranges[0][0] & -BLOCK_BYTES
        taken = [(at - first, min(part, first + MOST_BYTES - at)) for at, part in ranges if at < first + MOST_BYTES]
        size = -(-sum(taken[-1]) // BLOCK_BYTES) * BLOCK_BYTES
        if size <= 0:
            return False
        try:
            fd = file.direct_fileno()
            number = self._reader.begin(fd, first, size, taken, *wanted) if fd >= 0 else -1
        except (OSError, MemoryError):
            return False  # a thread reads through the cache, also on a file system that became read-only
        if number < 0:
            return False
        self._reads[number] = done
        self._idle.submitted += 1
        return True

    async def close(self) -> None:
        self._closed = True  # callers go on reading while the reader waits, and a read begun now might not end
        await self._idle.wait()
        if self._reader.fileno() >= 0:
            self._loop.remove_reader(self._reader.fileno())
            self._reader.close()

    def _on_wake(self) -> None:
        for number, got in self._reader.reap():
            done = self._reads.pop(number)
            useful = False
            try:
                useful = done(self._taken(number, got))
            except Exception as error:  # noqa: BLE001 - the reads behind this read have ended too
                self._loop.call_exception_handler({"message": "end of a direct read", "exception": error})
            finally:
                self._skipped = 0
                self._skip = 0 if useful else min(max(1, 2 * self._skip), _MOST_SKIPPED)
                self._idle.finish(1)

    def _taken(self, number: int, got: int) -> ReadRecords | None:
        try:
            records = ReadRecords._make(self._reader.take(number))
        except MemoryError:
            return None
        return records if got >= 0 else None


def open_direct_reader() -> DirectReader | None:
    """The compiled reader; None where the reader was not built, where ``MAGNETAR_PURE`` is set, where the loop watches
    no descriptors, or where the system has no asynchronous I/O for this process.

    A preloaded library (a fault injector, a sandbox) sees only calls of libc, and asynchronous I/O does not go through
    libc: None with ``LD_PRELOAD`` as well.
    """
    if os.environ.get("MAGNETAR_PURE") or os.environ.get("LD_PRELOAD"):
        return None
    try:
        return CompiledDirectReader()
    except (ImportError, NotImplementedError):
        return None
    except OSError as error:
        if error.errno not in _UNAVAILABLE:
            raise
        return None
