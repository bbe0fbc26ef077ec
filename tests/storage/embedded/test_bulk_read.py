"""Ranges of a file that are read past the cache, on the real disk of the test directory."""

from __future__ import annotations

import errno
import os
import random
import threading

import pytest

from magnetar.storage.embedded import bulk_read, files
from magnetar.storage.embedded.bulk_read import joined, read_ranges
from magnetar.storage.embedded.files import RealFiles

CONTENT = random.Random(1).randbytes(300_001)


@pytest.fixture(params=[True, False], ids=["direct", "cache"])
def file(request, tmp_path):
    opened = RealFiles(direct=request.param).open(str(tmp_path / "file"), create=True)
    opened.write_past_cache([CONTENT], 0)
    yield opened
    opened.close()


def ranges_of(rng: random.Random) -> list[tuple[int, int]]:
    cuts = sorted(rng.randrange(len(CONTENT)) for _ in range(2 * rng.randrange(1, 5)))
    return [(first, end - first) for first, end in zip(cuts[::2], cuts[1::2], strict=True)]


def test_ranges_are_joined(file):
    for seed in range(50):
        ranges = ranges_of(random.Random(seed))
        assert read_ranges(file, ranges) == b"".join(CONTENT[at : at + size] for at, size in ranges)


def test_the_end_of_the_file_ends_the_bytes(file):
    end = len(CONTENT)
    assert read_ranges(file, [(end - 10, 20)]) == CONTENT[-10:]
    assert read_ranges(file, [(end - 10, 5), (end - 2, 20), (end + 30, 5)]) == CONTENT[-10:-5] + CONTENT[-2:]
    assert read_ranges(file, [(end, 1)]) == b""
    assert read_ranges(file, [(end + 100_000, 1)]) == b""


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the test empties the cache")
def test_bytes_in_the_cache_come_from_there(tmp_path, monkeypatch):
    pytest.importorskip("magnetar.storage.embedded.journal._frame_writer")
    opened = RealFiles().open(str(tmp_path / "file"), create=True)
    if (direct_fd := opened.direct_fileno()) < 0:
        pytest.skip("no direct reads here")
    used, real = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, *more: used.append(fd) or real(fd, *more))
    opened.write([CONTENT], 0)
    assert read_ranges(opened, [(5, 200_000)]) == CONTENT[5:200_005]
    assert set(used) == {opened.fileno()}, "dirty pages"
    opened.sync()
    assert read_ranges(opened, [(5, 200_000)]) == CONTENT[5:200_005]
    assert set(used) == {opened.fileno()}, "clean pages"
    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    used.clear()
    assert read_ranges(opened, [(5, 200_000)]) == CONTENT[5:200_005]
    assert used[0] == direct_fd, "the device"
    opened.close()


def test_ranges_larger_than_the_memory_are_read_one_by_one(file, monkeypatch):
    monkeypatch.setattr(bulk_read, "_MEMORY_BYTES", 64 << 10)
    assert read_ranges(file, [(5, 100_000)]) == CONTENT[5:100_005]
    ranges = [(5, 10), (90_000, 50_000), (290_000, 50_000), (350_000, 1)]
    assert read_ranges(file, ranges) == CONTENT[5:15] + CONTENT[90_000:140_000] + CONTENT[290_000:]


def test_threads_have_memory_of_their_own(file):
    wrong = []

    def read(seed: int) -> None:
        for number in range(100):
            ranges = ranges_of(random.Random(seed + number))
            if read_ranges(file, ranges) != b"".join(CONTENT[at : at + size] for at, size in ranges):
                wrong.append(ranges)

    threads = [threading.Thread(target=read, args=(seed * 1000,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_first_readers_of_a_file_open_one_descriptor(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    opened = RealFiles().open(str(tmp_path / "file"), create=True)
    opened.write([CONTENT], 0)
    start = threading.Barrier(8)

    def read() -> None:
        start.wait()
        read_ranges(opened, [(0, 100)])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_without_another_descriptor_reads_through_the_cache(tmp_path, monkeypatch):
    opened = RealFiles().open(str(tmp_path / "file"), create=True)
    opened.write([CONTENT], 0)

    def refused(_fd: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(files, "open_direct", refused)
    assert read_ranges(opened, [(7, 90_000)]) == CONTENT[7:90_007]
    opened.close()


class BadSector:
    """A file of which one block cannot be read."""

    def __init__(self, bad: range) -> None:
        self.bad = bad

    def _check(self, at: int, size: int) -> None:
        if at < self.bad.stop and at + size > self.bad.start:
            raise OSError(errno.EIO, "bad sector")

    def read(self, size: int, offset: int) -> bytes:
        self._check(offset, size)
        return CONTENT[offset : offset + size]

    def read_past_cache(self, target: memoryview, offset: int) -> int:
        self._check(offset, len(target))
        data = CONTENT[offset : offset + len(target)]
        target[: len(data)] = data
        return len(data)


def test_a_bad_sector_between_the_ranges_costs_none_of_them():
    bad = BadSector(range(8192, 12288))
    assert read_ranges(bad, [(4096, 4000), (16384, 4000)]) == CONTENT[4096:8096] + CONTENT[16384:20384]
    with pytest.raises(OSError, match="bad sector"):
        read_ranges(bad, [(4096, 4000), (12000, 10)])


@pytest.mark.parametrize("function", {joined, b"".join}, ids=lambda function: type(function).__name__)
def test_both_joins_take_all_kinds_of_buffers(function):
    assert function([b"ab", memoryview(b"xcdx")[1:3], b"", bytearray(b"e")]) == b"abcde"
    assert function([]) == b""
