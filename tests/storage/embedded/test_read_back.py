"""Parked slabs come back from the journal: whole, in few reads, and never from a place that has other bytes."""

import weakref
from dataclasses import replace

import pytest

from magnetar.storage.embedded import direct_io, read_back
from magnetar.storage.embedded.direct_io import BLOCK_BYTES
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.embedded.ledger_state import LedgerState
from magnetar.storage.embedded.read_back import ReadBack
from tests.storage.engine_for_tests import TINY, World, append
from tests.storage.records_for_tests import slab_of
from tests.twins.sim_files import SimDisk


class Segment:
    """A file of the simulated disk that counts its reads."""

    def __init__(self, name: str = "/segment"):
        disk = SimDisk()
        disk.make_dir("/")
        self._file = disk.open(name, create=True)
        self.ranges = []

    def write(self, buffers, offset):
        self._file.write(buffers, offset)

    def read(self, size, offset):
        self.ranges.append((offset, size))
        return self._file.read(size, offset)

    def read_past_cache(self, target, offset):
        assert offset % BLOCK_BYTES == len(target) % BLOCK_BYTES == 0
        self.ranges.append((offset, len(target)))
        return self._file.read_past_cache(target, offset)


class Parked:
    """Slabs of one ledger, parked at chosen places."""

    def __init__(self):
        self.ledger = LedgerState(1, {})
        self.ledger.index = LedgerIndex()
        self.jobs, self.data = [], []

    def add(self, file, offset, size=1000):
        slab = slab_of(1, self.ledger.last_confirmed + 1, [bytes([len(self.jobs)]) * size])
        file.write([slab.data], offset)
        job = self.ledger.confirm(slab, (file, offset))
        job.slab = None
        self.jobs.append(job)
        self.data.append(slab.data)
        return offset + slab.size_bytes

    def read_all(self, back):
        """Read all slabs in order, with a ``clear`` where the buffer is full; returns how many clears there were."""
        clears = 0
        for index, expected in enumerate(self.data):
            data = back.read(self.jobs, index)
            if data is None:
                back.clear()
                clears += 1
                data = back.read(self.jobs, index)
            assert bytes(data) == expected
        return clears


def test_slabs_that_follow_each_other_come_by_one_read():
    parked, file = Parked(), Segment()
    end = 4096 + 64
    for gap in (0, 0, 100, 3000, 0):
        end = parked.add(file, end + gap)
    file.write([bytes(8192)], end)
    assert parked.read_all(ReadBack()) == 0
    assert len(file.ranges) == 1


def test_slabs_far_from_each_other_come_by_reads_of_their_own():
    parked, file = Parked(), Segment()
    parked.add(file, 10_000)
    end = parked.add(file, 500_000)
    file.write([bytes(8192)], end)
    assert parked.read_all(ReadBack()) == 0
    assert [size for _, size in file.ranges] == [4096, 4096]


def test_slabs_of_two_segments_come_from_their_segments():
    parked, files = Parked(), [Segment(), Segment()]
    ends = [4160, 4160]
    for turn in (0, 1, 1, 0):
        ends[turn] = parked.add(files[turn], ends[turn])
    for file, end in zip(files, ends, strict=True):
        file.write([bytes(8192)], end)
    assert parked.read_all(ReadBack()) == 0


def test_a_slab_in_memory_ends_a_read():
    parked, file = Parked(), Segment()
    end = 4160
    for _ in range(3):
        end = parked.add(file, end, 6000)
    file.write([bytes(8192)], end)
    parked.jobs[1].slab = slab_of(1, 1, [b"in memory"])
    back = ReadBack()
    assert bytes(back.read(parked.jobs, 0)) == parked.data[0]
    assert bytes(back.read(parked.jobs, 2)) == parked.data[2]
    assert len(file.ranges) == 2


def test_a_full_buffer_asks_for_a_clear(monkeypatch):
    monkeypatch.setattr(read_back, "_BUFFER_BYTES", 64 << 10)
    parked, file = Parked(), Segment()
    end = 4160
    for _ in range(10):
        end = parked.add(file, end, 20_000)
    file.write([bytes(8192)], end)
    assert parked.read_all(ReadBack()) >= 3


def test_earlier_views_stay_valid_until_a_clear(monkeypatch):
    monkeypatch.setattr(read_back, "_GAP_BYTES", 0)
    parked, file = Parked(), Segment()
    for at in (4160, 50_000, 100_000):
        file.write([bytes(8192)], parked.add(file, at))
    back = ReadBack()
    views = [back.read(parked.jobs, index) for index in range(3)]
    assert [bytes(view) for view in views] == parked.data
    assert len(file.ranges) == 3


def test_a_slab_larger_than_the_buffer_comes_without_it(monkeypatch):
    monkeypatch.setattr(read_back, "_BUFFER_BYTES", 16 << 10)
    parked, file = Parked(), Segment()
    parked.add(file, 4160, 50_000)
    assert parked.read_all(ReadBack()) == 0
    assert file.ranges == [(4160, len(parked.data[0]))]


def test_a_segment_that_ends_early_is_an_error():
    parked, file = Parked(), Segment()
    parked.add(file, 4160)
    parked.jobs[0].size_bytes += 5000
    with pytest.raises(OSError, match="ends at"):
        ReadBack().read(parked.jobs, 0)


async def test_the_memory_goes_back_when_slabs_come_from_memory_again(monkeypatch):
    taken = []

    def aligned_memory(size):
        memory, start = direct_io.aligned_memory(size)
        taken.append(weakref.ref(memory))
        return memory, start

    monkeypatch.setattr(read_back, "aligned_memory", aligned_memory)
    parking = replace(TINY, unwritten_memory_bytes=1500, write_behind_bytes=1 << 20, journal_segment_bytes=64 << 10)
    storage = await World().open(parking)
    writer = await storage.ledgers.create()
    for _ in range(2):
        for _ in range(3):
            await append(writer, [b"x" * 1000])
        await storage.checkpoint()
        assert taken[-1]() is not None
        for _ in range(read_back._IDLE_GROUPS):
            await append(writer, [b"y"])
            await storage.checkpoint()
        assert taken[-1]() is not None, "the group behind a read gives its bytes back, the next groups the memory"
        await append(writer, [b"y"])
        await storage.checkpoint()
        assert taken[-1]() is None
    assert len(taken) == 2
    await storage.close()
