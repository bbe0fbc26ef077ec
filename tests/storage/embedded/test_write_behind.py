"""The loop's side of write-behind: how pieces are made, when they wait, and that nothing is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.storage.embedded import write_behind
from magnetar.storage.embedded.cold_reads import ColdReads
from magnetar.storage.embedded.lanes import InlineThreads
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.embedded.ledger_state import LedgerState
from magnetar.storage.embedded.write_behind import WriteBehind
from magnetar.storage.embedded.writeback import Barrier, WriteBackResult
from tests.storage.engine_for_tests import TINY, ManualClock, ManualScheduler, World, limits_for_tests, settle
from tests.storage.records_for_tests import slab_of

NOWHERE = (None, 0)
SLAB_BYTES = len(slab_of(1, 0, [bytes(1000)]).data)


class Worker:
    """Takes ``seconds`` for each piece."""

    def __init__(self, clock: ManualClock):
        self.clock, self.seconds, self.pieces = clock, 0.0, []

    def work(self, pieces):
        self.clock.time_s += self.seconds
        jobs = [job for piece in pieces for job in piece if job is not None]
        self.pieces.append(len(jobs))
        return WriteBackResult(jobs, None, {}, [])


class Bench:
    def __init__(self, gather: int = 1, relaxed: int = 100, kept: int = 1000, held_off: int = 200):
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.worker = Worker(self.clock)
        self.done = []
        self.reads = ColdReads()
        self.behind = WriteBehind(
            InlineThreads(),
            self.scheduler,
            self.clock,
            self.worker,
            limits_for_tests(held_off_bytes=held_off * SLAB_BYTES),
            self.reads,
            gather_bytes=gather * SLAB_BYTES,
            relaxed_bytes=relaxed * SLAB_BYTES,
            kept_bytes=kept * SLAB_BYTES,
        )
        self.behind.on_written = lambda jobs, _result, _error: self.done.extend(jobs)
        self.ledger = LedgerState(1, {})
        self.ledger.index = LedgerIndex()

    def write(self, count: int = 1, frame_seconds: float = 0.001) -> None:
        jobs = []
        for _ in range(count):
            slab = slab_of(1, self.ledger.last_confirmed + 1, [bytes(1000)])
            jobs.append(self.ledger.confirm(slab, NOWHERE))
        self.behind.write(jobs, frame_seconds)


async def test_little_waits_for_more_or_for_its_time():
    bench = Bench(gather=4)
    bench.clock.time_s += 1
    bench.write(3)
    await settle()
    assert bench.worker.pieces == []
    assert bench.behind.unwritten_bytes == bench.ledger.unwritten_bytes == 3 * SLAB_BYTES
    bench.write()
    await settle()
    assert bench.worker.pieces == [4]
    assert bench.behind.unwritten_bytes == bench.ledger.unwritten_bytes == 0
    bench.write()
    await settle()
    assert bench.worker.pieces == [4]
    bench.scheduler.advance(0.1)
    await settle()
    assert bench.worker.pieces == [4, 1]


async def test_pieces_are_larger_when_they_follow_each_other():
    bench = Bench(gather=4)
    bench.clock.time_s += 1
    bench.write(4)
    await settle()
    bench.write(15)
    await settle()
    assert bench.worker.pieces == [4]
    bench.write()
    await settle()
    assert bench.worker.pieces == [4, 16]


async def test_a_busy_journal_has_the_device_between_two_pieces():
    bench = Bench(relaxed=1000)
    bench.worker.seconds = 0.002
    bench.write()  # under way while the next frames are written
    bench.write()
    await settle()
    assert bench.worker.pieces == [1]
    bench.scheduler.advance(0.005)
    await settle()
    assert bench.worker.pieces == [1]
    bench.scheduler.advance(0.005)
    await settle()
    assert bench.worker.pieces == [1, 1]


async def test_a_large_backlog_is_written_without_a_pause():
    bench = Bench(relaxed=3)
    bench.worker.seconds = 0.002
    bench.write()
    bench.write(4)
    await settle()
    assert bench.worker.pieces == [1, 4]


@pytest.mark.parametrize("cache_bytes", [0, 16 << 10, 1 << 30])
async def test_a_backlog_that_holds_appends_is_written_without_a_pause(cache_bytes: int):
    """Whatever the size of the cache: appends go on from three quarters of the limit."""
    storage = await World().open(replace(TINY, cache_bytes=cache_bytes, max_unwritten_bytes=64 << 10))
    behind = storage._parts.checkpointer._write_behind
    behind._frame_seen, behind.unwritten_bytes = True, 48 << 10
    behind._queue.append(None)
    assert behind._pause_s(took=1.0) <= 0.0
    behind._queue.clear()
    behind.unwritten_bytes = 0
    await storage.close()


@pytest.mark.parametrize("paused", [False, True])
async def test_awaited_slabs_are_written_without_a_pause(paused: bool):
    bench = Bench(relaxed=1000)
    bench.worker.seconds = 0.002
    bench.write()
    bench.write()
    if paused:
        await settle()
        assert bench.worker.pieces == [1]
    bench.behind.put(Barrier(lambda: None))
    bench.behind.press()
    await settle()
    assert sum(bench.worker.pieces) == 3
    assert isinstance(bench.done[-1], Barrier)


async def test_close_leaves_nothing_behind():
    bench = Bench(gather=50)
    bench.write(20)
    await bench.behind.close()
    assert bench.worker.pieces == [20]
    assert bench.ledger.written_offset == bench.ledger.end_offset


async def test_an_unwritten_slab_is_found_by_any_of_its_entries():
    ledger = LedgerState(1, {})
    ledger.index = LedgerIndex()
    sizes = [1, 3, 1, 200, 2]
    for size in sizes:
        ledger.confirm(slab_of(1, ledger.last_confirmed + 1, [b"x"] * size), NOWHERE)
    written = ledger.written()
    assert written.last_entry_id == 0
    assert ledger.unwritten_slab(0) is None
    for entry_id in range(1, sum(sizes)):
        slab = ledger.unwritten_slab(entry_id)
        assert slab.first_entry_id <= entry_id <= slab.last_entry_id
    assert ledger.unwritten_slab(sum(sizes)) is None


async def test_pieces_grow_with_the_backlog():
    bench = Bench(relaxed=1)
    mebibyte = (1 << 20) // SLAB_BYTES
    bench.write(64 * mebibyte)
    await settle()
    assert 3 * mebibyte < bench.worker.pieces[0] <= (4 << 20) // SLAB_BYTES
    await settle(200)
    assert sum(bench.worker.pieces) == 64 * mebibyte
    assert bench.worker.pieces[-2] == (2 << 20) // SLAB_BYTES, "not a slab more than a direct write takes"


def burst_of(bench, frames: int = 100) -> None:
    """Frames of 64 KiB that take half of the time."""
    slabs = (64 << 10) // SLAB_BYTES
    for _ in range(frames):
        bench.clock.time_s += 0.002
        bench.write(slabs, frame_seconds=0.001)


async def test_write_behind_holds_off_in_a_burst_and_goes_on_behind_it():
    bench = Bench(relaxed=1, held_off=1 << 20)
    burst_of(bench)
    await settle()
    begun = sum(bench.worker.pieces)
    for _ in range(20):
        burst_of(bench, frames=10)
        bench.scheduler.advance(0)
        await settle()
    assert sum(bench.worker.pieces) == begun
    bench.scheduler.advance(0.02)
    bench.scheduler.advance(0.02)
    await settle(200)
    assert bench.behind.unwritten_bytes == 0


async def test_a_burst_beyond_the_limit_is_written_while_it_lasts():
    bench = Bench(relaxed=1, held_off=1000)
    for _ in range(50):
        burst_of(bench, frames=10)
        bench.scheduler.advance(0)
        await settle()
    assert sum(bench.worker.pieces) > 1000


async def test_a_burst_of_many_small_slabs_is_written_while_it_lasts(monkeypatch):
    monkeypatch.setattr(write_behind, "_MOST_HELD_OFF", 1000)
    bench = Bench(relaxed=1, held_off=1 << 20)
    for _ in range(50):
        burst_of(bench, frames=10)
        bench.scheduler.advance(0)
        await settle()
    assert sum(bench.worker.pieces) > 1000


async def read_for(bench, seconds: float) -> None:
    """A reader whose reads follow each other, while no producer publishes."""
    end_s = bench.clock.time_s + seconds
    while bench.clock.time_s < end_s:
        bench.reads.begin(bench.clock.time_s)
        bench.scheduler.advance(0.004)
        await settle()
        bench.reads.end(bench.clock.time_s)
        bench.scheduler.advance(0.001)
        await settle()


async def test_readers_of_the_device_have_it_for_a_second_and_then_share_it():
    bench = Bench(relaxed=1 << 20, held_off=1 << 20)
    bench.worker.seconds = 0.004
    bench.reads.begin(bench.clock.time_s)
    bench.reads.end(bench.clock.time_s)
    bench.write(15 * (2 << 20) // SLAB_BYTES)
    await read_for(bench, 0.5)
    begun = len(bench.worker.pieces)
    assert begun <= 1
    await read_for(bench, 0.4)
    assert len(bench.worker.pieces) == begun
    await read_for(bench, 0.3)
    pieces = len(bench.worker.pieces)
    assert begun < pieces < begun + 0.3 / 0.012, "a piece of 4 ms and a pause of three times as long"
    bench.scheduler.advance(0.02)
    await settle(200)
    assert bench.behind.unwritten_bytes <= SLAB_BYTES, "without readers there are no pauses"


async def test_a_backlog_beyond_the_limit_is_written_beside_readers():
    bench = Bench(relaxed=1, held_off=1000)
    bench.reads.begin(bench.clock.time_s)
    bench.write(2000)
    await read_for(bench, 0.1)
    assert sum(bench.worker.pieces) > 900


async def test_awaited_slabs_do_not_wait_for_readers():
    bench = Bench(relaxed=1, held_off=1 << 20)
    bench.reads.begin(bench.clock.time_s)
    bench.write(5 * (2 << 20) // SLAB_BYTES)
    await settle()
    assert bench.behind.unwritten_bytes
    bench.behind.press()
    await settle(200)
    assert bench.behind.unwritten_bytes == 0


async def test_awaited_slabs_do_not_wait_for_the_end_of_a_burst():
    bench = Bench(relaxed=1, held_off=1 << 20)
    burst_of(bench)
    await settle()
    assert bench.behind.unwritten_bytes
    bench.behind.press()
    await settle(200)
    assert bench.behind.unwritten_bytes == 0


async def test_slabs_beyond_the_bound_of_memory_are_parked_oldest_first():
    bench = Bench(gather=1000, kept=3)
    bench.clock.time_s += 1
    bench.write(5)
    assert [job.slab is None for job in bench.ledger.unwritten] == [True, True, False, False, False]
    bench.write()
    assert [job.slab is None for job in bench.ledger.unwritten] == [True, True, True, False, False, False]
    jobs = list(bench.ledger.unwritten)
    bench.behind.press()
    await settle()
    assert all(job.slab is None for job in jobs), "written slabs leave memory"
    bench.write(3)
    assert all(job.slab is not None for job in bench.ledger.unwritten), "and their room is free again"
