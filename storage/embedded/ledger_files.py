"""The files in ``ledgers/``: a bounded number of them open, usable from any thread."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, FileHeader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from magnetar.storage.embedded.files import Buffer, File, FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.interfaces import Clock

__all__ = ["LedgerFiles"]

_WRITEBACK_BYTES = 256 << 10
"""Smaller writes are left to the system."""


class _Handle:
    """An open file and how many threads are using it."""

    __slots__ = ("doomed", "file", "users")

    def __init__(self, file: File) -> None:
        self.file, self.users, self.doomed = file, 0, False


class LedgerFiles:
    """Reads, writes, syncs and removes ledger files by ledger id.

    A file comes into being with the first write; ``created`` collects folder entries that need a ``sync_dir``.
    """

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        store_id: bytes,
        clock: Clock,
        max_open: int,
        writeback_lag_bytes: int = 0,
    ) -> None:
        self._files, self._layout, self._store_id, self._clock = files, layout, store_id, clock
        self._max_open = max_open
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self._lock = threading.Lock()
        self._unsynced_names = False
        self._writeback_lag_bytes = writeback_lag_bytes
        self._dirty: deque[tuple[int, int, int]] = deque()
        """Written and left in the system's cache, oldest first: (ledger id, offset, size)."""
        self._dirty_bytes = 0

    @property
    def open_files(self) -> int:
        return len(self._handles)

    def write(self, ledger_id: int, buffers: Sequence[Buffer], offset: int, *, create: bool = True) -> None:
        """Write at a file offset; the first write creates the file with its header."""
        with self._open(ledger_id, create=create) as file:
            if offset == FILE_HEADER_BYTES:
                header = FileHeader(LEDGER_MAGIC, self._store_id, ledger_id, created_ms=self._clock.now_ms())
                buffers, offset = [header.pack(), *buffers], 0
            size = sum(map(len, buffers))
            in_cache = True
            if size >= _WRITEBACK_BYTES:
                in_cache = not file.write_past_cache(buffers, offset)
            else:
                file.write(buffers, offset)
        if in_cache and size >= _WRITEBACK_BYTES:
            self._dirty.append((ledger_id, offset, size))
            self._dirty_bytes += size
        while self._dirty_bytes > self._writeback_lag_bytes:
            self._start_writeback()

    def _start_writeback(self) -> None:
        """Have the system write the oldest of what it holds: a checkpoint then finds little to wait for.

        Not sooner: a burst that fits into memory leaves the device to the journal.
        """
        ledger_id, offset, size = self._dirty.popleft()
        self._dirty_bytes -= size
        with contextlib.suppress(FileNotFoundError), self._open(ledger_id, create=False) as file:
            file.start_writeback(offset, size)

    def read(self, ledger_id: int, size: int, offset: int) -> bytes:
        """Raises FileNotFoundError when there is no file."""
        with self._open(ledger_id, create=False) as file:
            return file.read(size, offset)

    def size(self, ledger_id: int) -> int:
        """Bytes of the file, 0 when there is none."""
        try:
            with self._open(ledger_id, create=False) as file:
                return file.size()
        except FileNotFoundError:
            return 0

    def truncate(self, ledger_id: int, size: int) -> None:
        with self._open(ledger_id, create=False) as file:
            file.truncate(size)

    def sync(self, ledger_id: int) -> None:
        """All that was written to the file is durable on return (its name after ``sync_names``)."""
        try:
            with self._open(ledger_id, create=False) as file:
                file.sync()
        except FileNotFoundError:
            return  # deleted meanwhile

    def sync_names(self) -> None:
        """Names of files created or removed before are durable on return."""
        if self._unsynced_names:
            self._unsynced_names = False
            self._files.sync_dir(self._layout.ledgers)

    def remove(self, ledger_id: int) -> None:
        """Close and remove; nothing happens when there is no file."""
        with self._lock:
            handle = self._handles.pop(ledger_id, None)
            if handle is not None:
                self._retire(handle)
        path = self._layout.ledger(ledger_id)
        if self._files.exists(path):
            self._files.remove(path)
            self._unsynced_names = True

    def close(self) -> None:
        with self._lock:
            for handle in self._handles.values():
                self._retire(handle)
            self._handles.clear()

    @contextmanager
    def _open(self, ledger_id: int, *, create: bool) -> Iterator[File]:
        with self._lock:
            handle = self._handles.get(ledger_id)
            if handle is None:
                handle = self._handles[ledger_id] = _Handle(self._open_file(ledger_id, create=create))
            else:
                self._handles.move_to_end(ledger_id)
            handle.users += 1
            self._shrink()
        try:
            yield handle.file
        finally:
            with self._lock:
                handle.users -= 1
                if handle.doomed and not handle.users:
                    handle.file.close()

    def _open_file(self, ledger_id: int, *, create: bool) -> File:
        path = self._layout.ledger(ledger_id)
        try:
            return self._files.open(path)
        except FileNotFoundError:
            if not create:
                raise
        file = self._files.open(path, create=True)
        # Only now: a sync_names in another thread must not take the mark for a name that is not there yet.
        self._unsynced_names = True
        return file

    def _shrink(self) -> None:
        while len(self._handles) > self._max_open:
            _, handle = self._handles.popitem(last=False)
            self._retire(handle)

    @staticmethod
    def _retire(handle: _Handle) -> None:
        handle.doomed = True
        if not handle.users:
            handle.file.close()
