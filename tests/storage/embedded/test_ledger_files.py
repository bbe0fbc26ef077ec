"""Ledger files while the process has few free descriptors, or a file cannot be read."""

from __future__ import annotations

import errno

import pytest

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_files import LedgerFiles
from tests.storage.engine_for_tests import ROOT, ManualClock
from tests.storage.records_for_tests import record
from tests.twins.sim_files import SimDisk

STORE = b"s" * 16


class Counted:
    """A file that counts among the open files of its disk."""

    def __init__(self, disk, file):
        self._disk, self._file = disk, file
        disk.open_files += 1

    def read(self, size, offset):
        if self._disk.fails:
            raise OSError(errno.EIO, "Input/output error (simulated)")
        return self._file.read(size, offset)

    def close(self):
        self._disk.open_files -= 1
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


class FewDescriptors(SimDisk):
    """A disk whose process may have `most` files open."""

    def __init__(self, most):
        super().__init__()
        self.most, self.open_files, self.fails = most, 0, False

    def open(self, path, *, create=False):
        if self.open_files >= self.most:
            raise OSError(errno.EMFILE, "Too many open files (simulated)", path)
        return Counted(self, super().open(path, create=create))


@pytest.fixture
def disk():
    return FewDescriptors(3)


@pytest.fixture
def files(disk):
    layout = Layout(ROOT)
    disk.make_dir(layout.ledgers)
    return LedgerFiles(disk, layout, STORE, ManualClock(), max_open=100)


def test_ledgers_share_the_descriptors_that_there_are(files, disk):
    for number in range(10):
        files.write(number, [record(number, 0, b"body")], FILE_HEADER_BYTES)
    for number in range(10):
        assert files.read(number, 1000, FILE_HEADER_BYTES) == record(number, 0, b"body")
    assert files.open_files == disk.open_files == 3
    files.close()
    assert disk.open_files == 0


def test_a_file_in_use_keeps_its_descriptor(files, disk):
    disk.most = 1
    files.write(1, [record(1, 0, b"body")], FILE_HEADER_BYTES)
    with files._open(1, create=False) as used:
        with pytest.raises(OSError, match="Too many open files"):
            files.write(2, [record(2, 0, b"body")], FILE_HEADER_BYTES)
        assert used.file.size() > 0
    files.write(2, [record(2, 0, b"body")], FILE_HEADER_BYTES)
    assert files.open_files == disk.open_files == 1


def test_a_file_whose_head_cannot_be_read_is_closed(files, disk):
    files.write(1, [record(1, 0, b"body")], FILE_HEADER_BYTES)
    files.close()
    disk.fails = True
    for _ in range(5):
        with pytest.raises(OSError, match="Input/output error"):
            files.read(1, 1000, FILE_HEADER_BYTES)
    assert disk.open_files == 0


class Watched:
    """A file that notes which of its bytes the system begins to write. ``direct``: writes past the cache are taken."""

    def __init__(self, file, direct, begun):
        self._file, self._direct, self._begun = file, direct, begun

    def write_past_cache(self, buffers, offset):
        return self._file.write_past_cache(buffers, offset) and self._direct

    def start_writeback(self, offset, size):
        self._begun.append((offset, size))

    def __getattr__(self, name):
        return getattr(self._file, name)


class WatchedDisk(SimDisk):
    def __init__(self, *, direct=True):
        super().__init__()
        self.direct, self.begun = direct, []

    def open(self, path, *, create=False):
        return Watched(super().open(path, create=create), self.direct, self.begun)


def watched_files(disk):
    layout = Layout(ROOT)
    disk.make_dir(layout.ledgers)
    return LedgerFiles(disk, layout, STORE, ManualClock(), max_open=100, writeback_lag_bytes=1 << 30)


def write_behind(files, end, sizes):
    """Write records of these sizes, each behind the last; return the end."""
    for size in sizes:
        files.write(7, [bytes(size)], end)
        end += size
    return end


def test_small_writes_reach_the_device_before_they_are_many():
    disk = WatchedDisk()
    files = watched_files(disk)
    files.write(7, [record(7, 0, b"body")], FILE_HEADER_BYTES)
    begin = files.size(7)
    end = write_behind(files, begin, [60_000] * 40)
    shift = files.file_offset(7, begin) - begin
    assert len(disk.begun) == 8, "40 writes of 60,000 bytes, 256 KiB at a time"
    ends = [offset + size for offset, size in disk.begun]
    assert all(at % 4096 == 0 for at in ends), "the next write changes the last page again"
    assert disk.begun[0][0] == 0, "the head of the file is among them"
    assert [offset for offset, _ in disk.begun[1:]] == ends[:-1], "each byte once, in order"
    assert end + shift - ends[-1] < (256 << 10) + 4096, "the rest is left to the sync"


def test_a_sync_leaves_nothing_of_small_writes():
    disk = WatchedDisk()
    files = watched_files(disk)
    end = write_behind(files, FILE_HEADER_BYTES, [250_000])
    files.sync(7)
    end = write_behind(files, end, [250_000])
    assert disk.begun == []
    write_behind(files, end, [20_000])
    ((offset, _),) = disk.begun
    assert offset == files.file_offset(7, FILE_HEADER_BYTES + 250_000)


def test_writes_past_the_cache_leave_the_pages_at_their_ends():
    disk = WatchedDisk()
    files = watched_files(disk)
    end = write_behind(files, FILE_HEADER_BYTES, [300_001] * 31)
    assert disk.begun == []
    write_behind(files, end, [300_001])
    assert len(disk.begun) == 1, "two pages of each of 32 writes"


def test_large_writes_through_the_cache_keep_their_lag():
    disk = WatchedDisk(direct=False)
    files = watched_files(disk)
    write_behind(files, FILE_HEADER_BYTES, [300_000] * 40)
    assert disk.begun == [], "a burst that fits into memory"


def test_a_file_that_is_replaced_while_it_is_closed_is_not_the_file_of_the_last_writes():
    disk = SimDisk()
    layout = Layout(ROOT)
    disk.make_dir(layout.ledgers)
    files = LedgerFiles(disk, layout, STORE, ManualClock(), max_open=1)
    entry = record(1, 0, b"body")
    files.write(1, [entry], FILE_HEADER_BYTES)
    files.write(2, [record(2, 0, b"body")], FILE_HEADER_BYTES)  # closes the first file
    disk.put(layout.ledger(1), disk.content(layout.ledger(1)))
    second = FILE_HEADER_BYTES + len(entry)
    files.write(1, [record(1, 1, b"body")], second)
    assert not files.holds(1, second)
    files.write(1, [record(1, 2, b"body")], 2 * second - FILE_HEADER_BYTES)
    assert files.holds(1, second)
    assert files.holds(2, FILE_HEADER_BYTES)


def test_a_write_does_not_lengthen_a_file_that_another_program_has_cut():
    disk = SimDisk()
    files = watched_files(disk)
    entry = record(1, 0, b"body")
    files.write(1, [entry], FILE_HEADER_BYTES)
    path = Layout(ROOT).ledger(1)
    disk.open(path).truncate(4100)
    with pytest.raises(OSError, match=f"another program has cut {path}"):
        files.write(1, [record(1, 1, b"body")], FILE_HEADER_BYTES + len(entry))
    assert len(disk.content(path)) == 4100


def test_a_file_that_the_engine_cuts_takes_writes():
    disk = SimDisk()
    files = watched_files(disk)
    entry = record(1, 0, b"body")
    files.write(1, [entry, entry], FILE_HEADER_BYTES)
    files.truncate(1, FILE_HEADER_BYTES + len(entry))
    files.write(1, [record(1, 1, b"body")], FILE_HEADER_BYTES + len(entry))
    assert files.holds(1, FILE_HEADER_BYTES + 2 * len(entry))
