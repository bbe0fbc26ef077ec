"""Reads through a cursor: limits, skipped entries, waiting reads, damage."""

from __future__ import annotations

import asyncio

import pytest
from pyroaring import BitMap

from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError
from magnetar.storage.position import EARLIEST, LATEST, Position
from tests.storage.managed_for_tests import Ground, append, entries_of, given, read_all
from tests.twins.memory_ledgers import MemoryLedgerStore


def positions(spans):
    return [position for position, _, _ in entries_of(spans)]


async def filled(entries=25, *, cached=True, per_run=4):
    ground = Ground(MemoryLedgerStore(cached=cached))
    ledger = await ground.open()
    every = []
    for first in range(0, entries, per_run):
        every += await append(ledger, [b"%d" % k for k in range(first, min(first + per_run, entries))])
    return ground, ledger, every


def slow_reads(ground):
    """Let reads of the store wait for the event."""
    gate = asyncio.Event()
    read = ground.ledgers.read

    async def read_late(*arguments):
        found = await read(*arguments)
        await gate.wait()
        return found

    ground.ledgers.read = read_late
    return gate


async def test_a_cached_read_is_a_list_of_spans_over_the_stored_slabs():
    _, ledger, every = await filled()
    cursor = ledger.new_read_cursor(EARLIEST)
    spans = cursor.read(100, 1 << 20)
    assert isinstance(spans, list)
    assert positions(spans) == every
    assert cursor.read(100, 1 << 20) == []
    assert spans[0].slab is ledger.new_read_cursor(EARLIEST).read(1, 1)[0].slab


async def test_a_cold_read_is_awaited_and_gives_the_same():
    _, ledger, every = await filled(cached=False)
    cursor = ledger.new_read_cursor(EARLIEST)
    waiting = cursor.read(100, 1 << 20)
    assert not isinstance(waiting, list)
    found = positions(await waiting)
    assert found == every[: len(found)] != []
    assert [position for position, _, _ in await read_all(cursor)] == every[len(found) :]


@pytest.mark.parametrize("cached", [True, False])
async def test_limits(cached):
    _, ledger, every = await filled(cached=cached)
    cursor = ledger.new_read_cursor(EARLIEST)
    assert positions(await given(cursor.read(3, 1 << 20))) == every[:3]
    assert positions(await given(cursor.read(100, 1))) == every[3:4]  # at least one entry, whatever the limit
    size = cursor._ledgers.slots[0].size_bytes // 10
    assert positions(await given(cursor.read(100, 2 * size))) == every[4:6]
    assert positions(await given(cursor.read(100, 1 << 20, upto=every[6]))) == every[6:7]
    assert await given(cursor.read(100, 1 << 20, upto=every[6])) == []
    assert await given(cursor.read(0, 1 << 20)) == []
    assert cursor.read_position == every[7]


async def test_upto_in_an_earlier_ledger():
    _, ledger, every = await filled()
    cursor = ledger.new_read_cursor(every[12])
    assert cursor.read(100, 1 << 20, upto=every[5]) == []
    assert positions(cursor.read(100, 1 << 20, upto=Position(every[12].ledger_id, 99))) == every[12:20]


@pytest.mark.parametrize("cached", [True, False])
async def test_acknowledged_and_skipped_entries_are_cut_out(cached):
    _, ledger, every = await filled(cached=cached)
    cursor = ledger.new_read_cursor(EARLIEST)
    cursor.ack_many(every[2:5] + every[11:20])
    skipped = {every[7].ledger_id: BitMap([7, 8])}
    found = []
    while spans := await given(cursor.read(100, 1 << 20, skip=skipped.get)):
        found += positions(spans)
    assert found == [*every[:2], every[5], every[6], every[9], every[10], *every[20:]]
    cursor.rewind()
    assert [position for position, _, _ in await read_all(cursor)] == [*every[:2], *every[5:11], *every[20:]]


async def test_skipping_costs_no_more_reads_than_not_skipping():
    """Apache Pulsar #22560: alternating pending entries made each run between them a read of its own."""
    reads = []
    for skip in ({}.get, dict.fromkeys(range(3), BitMap(range(0, 10, 2))).get):
        ground, ledger, _ = await filled(cached=False)
        read, calls = ground.ledgers.read, []

        async def counted(*arguments, read=read, calls=calls):
            calls.append(arguments)
            return await read(*arguments)

        ground.ledgers.read = counted
        cursor = ledger.new_read_cursor(EARLIEST)
        while await given(cursor.read(100, 1 << 20, skip=skip)):
            pass
        reads.append(len(calls))
    assert 0 < reads[1] <= reads[0]


async def test_reading_goes_on_behind_a_mark_delete_that_has_overtaken_it():
    _, ledger, every = await filled()
    cursor = ledger.new_read_cursor(EARLIEST)
    cursor.read(2, 1 << 20)
    cursor.ack_cumulative(every[9])
    assert positions(cursor.read(1, 1 << 20)) == [every[10]]


async def test_new_entries_are_found_after_the_end_was_read():
    _, ledger, _ = await filled(9)
    cursor = ledger.new_read_cursor(LATEST)
    assert cursor.read(10, 1 << 20) == []
    assert not cursor.has_more
    more = await append(ledger, [b"a", b"b", b"c"])  # crosses into the next ledger
    assert more[0].ledger_id != more[2].ledger_id
    assert cursor.has_more
    assert positions(cursor.read(10, 1 << 20)) == more


@pytest.mark.parametrize("begun", [True, False])
async def test_rewind_or_reset_discards_a_waiting_read(begun):
    ground, ledger, every = await filled(cached=False)
    cursor = ledger.new_read_cursor(EARLIEST)
    gate = slow_reads(ground)
    waiting = asyncio.ensure_future(cursor.read(5, 1 << 20))
    if begun:
        await asyncio.sleep(0)
    with pytest.raises(AssertionError):
        cursor.read(5, 1 << 20)
    await cursor.reset(every[20])
    gate.set()
    assert await waiting == []
    assert positions(await given(cursor.read(2, 1 << 20))) == every[20:22]


async def test_entries_acknowledged_while_the_read_waits_are_not_given():
    ground, ledger, every = await filled(cached=False)
    cursor = ledger.new_read_cursor(EARLIEST)
    gate = slow_reads(ground)
    waiting = asyncio.ensure_future(cursor.read(4, 1 << 20))
    await asyncio.sleep(0)
    cursor.ack_many(every[:5])
    gate.set()
    assert positions(await waiting) == every[5:9]


async def test_a_ledger_dropped_while_the_read_waits():
    ground, ledger, every = await filled(cached=False)
    cursor = ledger.new_read_cursor(EARLIEST)
    read = ground.ledgers.read

    async def read_late(ledger_id, first, last, max_bytes):
        ground.ledgers.read = read
        await ledger._trimmer.drop_up_to(every[9])
        raise NoSuchLedgerError(ledger_id)

    ground.ledgers.read = read_late
    assert positions(await given(cursor.read(3, 1 << 20))) == every[10:13]


@pytest.mark.parametrize("cached", [True, False])
async def test_a_damaged_entry_stops_the_read_there_and_can_be_passed(cached):
    ground, ledger, every = await filled(cached=cached)
    ground.ledgers.corrupt.add(every[6])
    cursor = ledger.new_read_cursor(EARLIEST)
    found = []
    while len(found) < 6:
        found += positions(await given(cursor.read(100, 1 << 20)))
    assert found == every[:6]
    for _ in range(2):
        with pytest.raises(CorruptEntryError) as caught:
            await given(cursor.read(100, 1 << 20))
        assert caught.value.position == every[6]
    cursor.ack(every[6])
    assert [position for position, _, _ in await read_all(cursor)] == every[7:]
    cursor.move_to(every[8])
    assert positions(await given(cursor.read(1, 1 << 20))) == [every[8]]
    with pytest.raises(CorruptEntryError):
        await given(ledger.new_read_cursor(EARLIEST).read_positions([every[6]]))


async def test_a_lost_ledger_stops_the_read_until_its_entries_are_acknowledged():
    ground, ledger, every = await filled(cached=False)
    lost = every[10].ledger_id
    await ground.ledgers.delete(lost)
    cursor = ledger.new_read_cursor(every[9])
    assert positions(await given(cursor.read(100, 1 << 20))) == [every[9]]
    for _ in range(2):
        with pytest.raises(NoSuchLedgerError):
            await given(cursor.read(100, 1 << 20))
    assert cursor.positions_in(lost) == [each for each in every if each.ledger_id == lost]
    assert cursor.positions_in(lost + 1000) == []
    cursor.ack_many(cursor.positions_in(lost))
    assert [position for position, _, _ in await read_all(cursor)] == [
        each for each in every[10:] if each.ledger_id != lost
    ]


@pytest.mark.parametrize("cached", [True, False])
async def test_replay(cached):
    _, ledger, every = await filled(cached=cached)
    cursor = ledger.new_read_cursor(EARLIEST)
    cursor.ack(every[4])
    wanted = [every[1], every[2], every[4], every[5], every[13], Position(99, 0), Position(every[0].ledger_id, 50)]
    spans = await given(cursor.read_positions(wanted))
    assert positions(spans) == [every[1], every[2], every[5], every[13]]
    assert spans[0].entries == 2  # neighbours of one slab are one span
    assert cursor.read_position == Position(-1, 0) or cursor.read_position == every[0].previous().next()


async def test_replay_leaves_out_entries_acknowledged_while_it_waited():
    ground, ledger, every = await filled(cached=False)
    cursor = ledger.new_read_cursor(EARLIEST)
    gate = slow_reads(ground)
    waiting = asyncio.ensure_future(cursor.read_positions(every[:3]))
    await asyncio.sleep(0)
    cursor.ack(every[1])
    gate.set()
    assert positions(await waiting) == [every[0], every[2]]


async def test_replay_leaves_out_entries_acknowledged_in_each_of_its_reads():
    ground, ledger, every = await filled(cached=False)
    cursor = ledger.new_read_cursor(EARLIEST)
    read, acknowledged = ground.ledgers.read, iter(every[1:])

    async def read_and_acknowledge(*arguments):
        found = await read(*arguments)
        cursor.ack(next(acknowledged))
        return found

    ground.ledgers.read = read_and_acknowledge
    found = positions(await given(cursor.read_positions(every[:8])))
    assert found
    assert not [position for position in found if cursor.is_deleted(position)]


async def test_ack_sets():
    _, ledger, every = await filled()
    cursor = ledger.new_read_cursor(EARLIEST)
    assert cursor.ack_set(every[0]) is None
    assert cursor.ack(every[0], [0b110])
    assert cursor.ack_set(every[0]) == [0b110]
    assert not cursor.ack(every[0], [0b111])
    assert cursor.has_partial_acks
    assert cursor.backlog_entries == 25
    assert cursor.ack(every[0], [0b001])  # nothing left of 110 & 001
    assert cursor.is_deleted(every[0])
    assert cursor.ack_set(every[0]) is None
    assert cursor.ack_cumulative(every[5], [-1])
    assert (cursor.mark_delete, cursor.ack_set(every[5])) == (every[4], [-1])
    assert cursor.ack_cumulative(LATEST)
    assert (cursor.mark_delete, cursor.has_partial_acks, cursor.backlog_entries) == (every[-1], False, 0)
    assert not cursor.ack(Position(77, 0))


async def test_reset_snaps_to_an_existing_entry():
    _, ledger, every = await filled()
    cursor = ledger.new_read_cursor(LATEST)
    for target, first in (
        (EARLIEST, every[0]),
        (every[7], every[7]),
        (Position(every[7].ledger_id, 80), every[10]),
        (LATEST, None),
        (Position(999, 3), None),
        (Position(LATEST.ledger_id, 3), every[0]),
        (Position(LATEST.ledger_id, -1), every[0]),
        (Position(LATEST.ledger_id - 1, 3), None),
    ):
        await cursor.reset(target)
        assert cursor.backlog_entries == (25 - every.index(first) if first else 0)
        assert positions(cursor.read(1, 1 << 20)) == ([first] if first else [])
    await cursor.reset(every[3], [0b10])
    assert (cursor.mark_delete, cursor.ack_set(every[3])) == (every[2], [0b10])
    assert cursor.backlog_bytes == pytest.approx(ledger.size_bytes * 22 / 25, rel=0.02)


async def test_skip_counts_unacknowledged_entries_only():
    _, ledger, every = await filled()
    cursor = ledger.new_read_cursor(EARLIEST)
    cursor.ack_many([every[1], every[3], every[12]])
    assert cursor.individually_deleted_entries == 3
    assert cursor.skip(3) == 3
    assert cursor.mark_delete == every[4]
    assert positions(cursor.read(1, 1 << 20)) == [every[5]]
    assert cursor.skip(1000) == 19
    assert cursor.skip(1) == 0


async def test_closing_a_non_durable_cursor_forgets_it():
    _, ledger, _ = await filled(3)
    cursor = ledger.new_read_cursor(EARLIEST)
    assert not cursor.durable
    await cursor.flush()
    cursor.close()
    assert "c" not in ledger.cursors
    assert cursor.is_closed
