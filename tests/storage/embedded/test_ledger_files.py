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
