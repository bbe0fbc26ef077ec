"""The files in ``ledgers/``. The engine keeps a bounded number of them open; any thread may use them.

Offsets are *logical*: records begin at 64 (``FILE_HEADER_BYTES``) for any size of the file's head. A file's own offsets
are greater by its *shift*, which only this module knows; index and footer hold logical offsets too.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from magnetar.storage.embedded.bulk_read import read_ranges
from magnetar.storage.embedded.direct_io import BLOCK_BYTES
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, FileHeader, parse_file_header
from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.ledger_format import FOOTER_BYTES, parse_footer
from magnetar.storage.embedded.ledger_head import HEAD_ALIGNMENT, encode_ledger_head, find_data_offset
from magnetar.storage.errors import DamagedFileError
from magnetar.storage.records import find_entry, scan_records, valid_record_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from magnetar.storage.embedded.direct_reader import DirectReader, Done, Wanted
    from magnetar.storage.embedded.files import Buffer, File, FileSystem, Identity
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.interfaces import Clock

__all__ = ["LedgerFiles", "ReadOnce", "head_shift"]

_WRITEBACK_BYTES = 256 << 10
"""Smaller writes go through the system's cache, and the device gets them when a file has so many bytes of them."""
_EDGE_BYTES = 2 * BLOCK_BYTES
"""A write past the cache leaves the pages at both ends of its range in the cache."""

_SEARCH_BYTES = 1 << 20
"""The distance within which the engine searches for the first record behind a damaged head."""


class _Handle:
    """An open file and how many threads are using it."""

    __slots__ = ("cached_bytes", "cached_from", "doomed", "end", "file", "identity", "shift", "users")

    def __init__(self, file: File, shift: int | None) -> None:
        self.file, self.users, self.doomed = file, 0, False
        self.identity = file.identity()
        self.end = 0
        """The greatest end of the writes through this object: the file is at least as long."""
        self.cached_from = self.cached_bytes = 0
        """Where the bytes begin that writes have left in the system's cache alone, and about how many they are."""
        self.shift = shift
        """The size of the file's head beyond 64 bytes; None: the file has no head yet."""

    def at(self, offset: int) -> int:
        """The file's own offset of a logical offset."""
        return offset + (self.shift or 0) if offset >= FILE_HEADER_BYTES else offset

    def left(self, begin: int, end: int, size: int) -> None:
        """Note that a write of these offsets of the file has left ``size`` bytes in the system's cache. The system
        begins to write them when they are many: else the sync of a checkpoint brings the small writes of half a minute
        to the device at once, and the journal's frames wait behind them.
        """
        self.cached_from = min(self.cached_from, begin) if self.cached_bytes else begin
        self.cached_bytes += size
        if self.cached_bytes >= _WRITEBACK_BYTES:
            whole = end - end % BLOCK_BYTES  # the next write changes the last page again
            self.file.start_writeback(self.cached_from, whole - self.cached_from)
            self.cached_from, self.cached_bytes = whole, end - whole


class LedgerFiles:
    """Reads, writes, syncs and removes ledger files by ledger id.

    The first write creates a ledger's file; ``sync_names`` makes created and removed names durable.
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
        self._names_changed = self._names_synced = 0
        """The number of changes of the folder, and how many of them are durable at least."""
        self._writeback_lag_bytes = writeback_lag_bytes
        self._dirty: deque[tuple[int, int, int]] = deque()
        """Written and left in the system's cache, oldest first: (ledger id, offset, size)."""
        self._dirty_bytes = 0
        self._properties: dict[int, Mapping[str, str]] = {}
        """The properties of ledgers whose file has no head yet."""
        self._written: dict[int, Identity] = {}
        """The files that got writes since ``holds`` looked at them last, by ledger id: a file that was closed meanwhile
        may be another when it is open again.
        """

    def identify(self, ledger_id: int, properties: Mapping[str, str]) -> None:
        """Note the properties for the head of the ledger's file."""
        self._properties[ledger_id] = properties

    @property
    def open_files(self) -> int:
        return len(self._handles)

    def write(self, ledger_id: int, buffers: Sequence[Buffer], offset: int, *, create: bool = True) -> None:
        """Write at a logical offset. With ``create`` the first write creates the file; the write of the first record
        also writes the head. Raises FileNotFoundError without ``create``, OSError, also where another program has cut
        the file: this write would give the file its length again, with zeros in place of entries.
        """
        with self._open(ledger_id, create=create) as handle:
            if handle.file.size() < handle.end:
                raise OSError(errno.EIO, f"another program has cut {self._layout.ledger(ledger_id)}")
            self._written.setdefault(ledger_id, handle.identity)
            at, shift = handle.at(offset), handle.shift
            if offset == FILE_HEADER_BYTES:
                buffers, at, shift = self._with_head(handle, ledger_id, buffers)
            size = sum(map(len, buffers))
            in_cache = True
            if size >= _WRITEBACK_BYTES:
                in_cache = not handle.file.write_past_cache(buffers, at)
            else:
                handle.file.write(buffers, at)
            handle.end = max(handle.end, at + size)
            if size < _WRITEBACK_BYTES or not in_cache:
                handle.left(at, at + size, size if in_cache else _EDGE_BYTES)
            if offset == FILE_HEADER_BYTES:
                handle.shift = shift
                self._properties.pop(ledger_id, None)
        if in_cache and size >= _WRITEBACK_BYTES:
            with self._lock:  # write-behind, and a checkpoint that seals a large ledger
                self._dirty.append((ledger_id, offset, size))
                self._dirty_bytes += size
        while self._dirty_bytes > self._writeback_lag_bytes:
            self._start_writeback()

    def _with_head(
        self, handle: _Handle, ledger_id: int, buffers: Sequence[Buffer]
    ) -> tuple[Sequence[Buffer], int, int | None]:
        """(buffers, offset in the file, shift after the write): head and first records go out in one write.

        An existing head keeps its size, so that the records stay at their offsets.
        """
        header = FileHeader(LEDGER_MAGIC, self._store_id, ledger_id, created_ms=self._clock.now_ms())
        properties = self._properties.get(ledger_id)
        if handle.shift == 0:
            return [header.pack(), *buffers], 0, 0
        if handle.shift is None or properties is not None:
            size = 0 if handle.shift is None else handle.shift + FILE_HEADER_BYTES
            head = encode_ledger_head(header, properties or {}, size)
            return [head, *buffers], 0, len(head) - FILE_HEADER_BYTES
        return buffers, handle.at(FILE_HEADER_BYTES), handle.shift

    def _start_writeback(self) -> None:
        """Let the system write its oldest pages, so that a checkpoint waits only for a little data.

        The caller waits until more than ``writeback_lag_bytes`` are in the cache: during a burst that fits into memory
        only the journal uses the device.
        """
        with self._lock:
            if not self._dirty:
                return
            ledger_id, offset, size = self._dirty.popleft()
            self._dirty_bytes -= size
        with contextlib.suppress(FileNotFoundError), self._open(ledger_id, create=False) as handle:
            handle.file.start_writeback(handle.at(offset), size)

    def read(self, ledger_id: int, size: int, offset: int) -> bytes:
        """Read up to ``size`` bytes at a logical offset. Raises FileNotFoundError when there is no file."""
        with self._open(ledger_id, create=False) as handle:
            return handle.file.read(size, handle.at(offset))

    def read_once(self, ledger_id: int, size: int, offset: int) -> bytes:
        """Like ``read``, for bytes that are not read again soon."""
        with self._open(ledger_id, create=False) as handle:
            return read_ranges(handle.file, [(handle.at(offset), size)])

    def begin_read(self, reader: DirectReader, wanted: Wanted, size: int, offset: int, done: Done) -> bool:
        """Begin a read without a thread (``DirectReader.begin``); False also where the file is not open, or another
        thread opens a file. This call waits for no read or write; the first for a file opens a second descriptor.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            handle = self._handles.get(wanted.ledger_id)
            if handle is None:
                return False
            self._handles.move_to_end(wanted.ledger_id)
            return reader.begin(handle.file, [(handle.at(offset), size)], wanted, done)
        finally:
            self._lock.release()

    def head(self, ledger_id: int, size: int) -> bytes:
        """The first bytes of the file, its head included. Raises FileNotFoundError."""
        with self._open(ledger_id, create=False) as handle:
            return handle.file.read(size, 0)

    def file_offset(self, ledger_id: int, offset: int) -> int:
        """Return the place of a logical offset in the file, for messages."""
        try:
            with self._open(ledger_id, create=False) as handle:
                return handle.at(offset)
        except FileNotFoundError:
            return offset

    def size(self, ledger_id: int) -> int:
        """Return the logical size of the file (its end as a logical offset), 0 for a missing file."""
        try:
            with self._open(ledger_id, create=False) as handle:
                return max(0, handle.file.size() - (handle.shift or 0))
        except FileNotFoundError:
            return 0

    def holds(self, ledger_id: int, end: int) -> bool:
        """Whether the name still belongs to the file of the last writes, with bytes up to logical offset ``end``."""
        written = self._written.pop(ledger_id, None)
        try:
            with self._open(ledger_id, create=False) as handle:
                is_long = handle.file.size() >= handle.at(end)
                return is_long and self._files.identity(self._layout.ledger(ledger_id)) == (written or handle.identity)
        except FileNotFoundError:
            return False

    def truncate(self, ledger_id: int, size: int) -> None:
        with self._open(ledger_id, create=False) as handle:
            handle.end = min(handle.end, handle.at(size))
            handle.file.truncate(handle.at(size))

    def sync(self, ledger_id: int) -> None:
        """Make all bytes written to the file durable; ``sync_names`` does the same for its name."""
        try:
            with self._open(ledger_id, create=False) as handle:
                handle.cached_bytes = 0
                handle.file.sync()
        except FileNotFoundError:
            return  # deleted meanwhile

    def sync_names(self) -> None:
        """Make the names of files created or removed before this call durable, unless another thread's sync did."""
        changed = self._names_changed
        if changed != self._names_synced:
            # A second thread that calls meanwhile syncs the folder too: only a finished sync counts.
            self._files.sync_dir(self._layout.ledgers)
            self._names_synced = max(self._names_synced, changed)

    def remove(self, ledger_id: int) -> None:
        """Close and remove the file; a missing file is no error."""
        self._properties.pop(ledger_id, None)
        self._written.pop(ledger_id, None)
        with self._lock:
            handle = self._handles.pop(ledger_id, None)
            if handle is not None:
                self._retire(handle)
        path = self._layout.ledger(ledger_id)
        if self._files.exists(path):
            self._files.remove(path)
            with self._lock:
                self._names_changed += 1
                late = self._handles.pop(ledger_id, None)
                if late is not None:  # a reader opened the file meanwhile; its descriptor would keep the space
                    self._retire(late)

    def close(self) -> None:
        with self._lock:
            for handle in self._handles.values():
                self._retire(handle)
            self._handles.clear()

    @contextmanager
    def _open(self, ledger_id: int, *, create: bool) -> Iterator[_Handle]:
        with self._lock:
            handle = self._handles.get(ledger_id)
            if handle is None:
                handle = self._handles[ledger_id] = self._open_file(ledger_id, create=create)
            else:
                self._handles.move_to_end(ledger_id)
            handle.users += 1
            self._shrink()
        try:
            yield handle
        finally:
            with self._lock:
                handle.users -= 1
                if handle.doomed and not handle.users:
                    handle.file.close()

    def _open_file(self, ledger_id: int, *, create: bool) -> _Handle:
        path = self._layout.ledger(ledger_id)
        try:
            file = self._open_path(path)
        except FileNotFoundError:
            if not create:
                raise
        else:
            try:
                return _Handle(file, head_shift(file, ledger_id))
            except BaseException:
                file.close()
                raise
        file = self._open_path(path, create=True)
        # The count grows after the creation: a sync_names in another thread must not count a name that does not exist.
        self._names_changed += 1
        return _Handle(file, None)

    def _open_path(self, path: str, *, create: bool = False) -> File:
        """Open the file; without a free descriptor the files that no thread uses are closed for it, oldest first."""
        while True:
            try:
                return self._files.open(path, create=create)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                idle = next((number for number, handle in self._handles.items() if not handle.users), None)
                if idle is None:
                    raise
                self._retire(self._handles.pop(idle))

    def _shrink(self) -> None:
        while len(self._handles) > self._max_open:
            _, handle = self._handles.popitem(last=False)
            self._retire(handle)

    @staticmethod
    def _retire(handle: _Handle) -> None:
        handle.doomed = True
        if not handle.users:
            handle.file.close()


def head_shift(file: File, ledger_id: int) -> int | None:
    """Bytes of the head beyond 64; None when the file has no head: the file is empty, or torn before its first sync.

    Sources, in this order: the header, its second copy, the place of the first record, and, when head and first records
    are lost, the footer or the size of a head whose properties fit into a page.
    """
    data = file.read(FILE_HEADER_BYTES, 0)
    try:
        header = parse_file_header("", data, LEDGER_MAGIC)
    except DamagedFileError:
        size = _head_bytes(file, ledger_id, file.read(_SEARCH_BYTES, 0))
        return size - FILE_HEADER_BYTES if size is not None else None
    return header.generation - FILE_HEADER_BYTES if header.generation else 0


def _head_bytes(file: File, ledger_id: int, data: bytes) -> int | None:
    """Bytes of a damaged head; None when nothing of the ledger is found. The device may have written a page with other
    records of this ledger over the head.
    """
    known = find_data_offset(data)
    if known is None:
        known = _first_record(data, ledger_id)
    if known is not None:
        return known
    found = find_entry(data, 0, len(data), ledger_id, 0)
    if found is None:
        return None
    size = file.size()
    footer = parse_footer(file.read(FOOTER_BYTES, size - FOOTER_BYTES))
    if footer is not None and footer.ledger_id == ledger_id:
        return size - FOOTER_BYTES - footer.index_bytes - footer.length_bytes
    if size <= HEAD_ALIGNMENT or _goes_on(data, found[0], ledger_id):
        return FILE_HEADER_BYTES
    return HEAD_ALIGNMENT


def _first_record(data: bytes, ledger_id: int) -> int | None:
    """Return the offset of entry 0 among the offsets where entry 0 may begin."""
    places: list[int] = [*range(HEAD_ALIGNMENT, len(data), HEAD_ALIGNMENT), FILE_HEADER_BYTES]
    for at in places:
        header = valid_record_at(data, at, len(data))
        if header is not None and (header.ledger_id, header.entry_id) == (ledger_id, 0):
            return at
    return None


def _goes_on(data: bytes, record_at: int, ledger_id: int) -> bool:
    """Whether the records from ``record_at`` on continue behind the first page. If so, they are the ledger's records
    and no misplaced page.
    """
    while record_at < HEAD_ALIGNMENT:
        _, end, _ = scan_records(data, record_at, len(data), ledger_id)
        if end > HEAD_ALIGNMENT:
            return True
        found = find_entry(data, end, len(data), ledger_id, 0)
        if found is None:
            return False
        record_at = found[0]
    return False


class ReadOnce:
    """Ledger files whose bytes are read once (``LedgerBytes``)."""

    def __init__(self, files: LedgerFiles) -> None:
        self.read, self.size, self.begin = files.read_once, files.size, files.begin_read
