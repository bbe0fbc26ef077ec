"""Parked slabs: their bytes are in the journal alone, until write-behind has them in the ledger file."""

import asyncio
import random
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from magnetar.storage import events
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.embedded.ledger_state import LedgerState
from magnetar.storage.embedded.parked_bytes import ParkedBytes
from magnetar.storage.errors import CorruptEntryError
from magnetar.storage.position import Position
from tests.storage.engine_for_tests import TINY, World, append, read_all, settle
from tests.storage.records_for_tests import slab_of
from tests.twins.sim_files import SimDisk

PARKING = replace(
    TINY, unwritten_memory_bytes=0, cache_bytes=0, write_behind_bytes=1 << 20, journal_segment_bytes=64 << 10
)
"""All slabs are parked at once, and stay so until a timer or a flush."""


def ledger_with(sizes):
    """A ledger of parked slabs, and all of its bytes."""
    file = SimDisk().open("/segment", create=True)
    ledger = LedgerState(1, {})
    ledger.index = LedgerIndex()
    at, content = 64, b""
    for size in sizes:
        slab = slab_of(1, ledger.last_confirmed + 1, [b"x" * size])
        file.write([slab.data], at)
        ledger.confirm(slab, (file, at)).slab = None
        at += slab.size_bytes + 7
        content += slab.data
    return ledger, content


def test_parked_slabs_read_like_the_ledger_file():
    ledger, content = ledger_with([10, 500, 1, 77, 300])
    parked = ledger.parked(0, 1 << 20)
    source = ParkedBytes(parked)
    start = parked[0].offset
    assert source.size(1) == start + len(content)
    for seed in range(200):
        offset, size = random.Random(seed).randrange(len(content)), random.Random(-seed).randrange(1, 900)
        assert source.read(1, size, start + offset) == content[offset : offset + size]


def test_parked_slabs_of_several_segments_and_of_distant_places_read_like_the_ledger_file():
    disk, rng = SimDisk(), random.Random(7)
    ledger = LedgerState(1, {})
    ledger.index = LedgerIndex()
    content, places = b"", {}
    for number in range(40):
        name = f"/segment{number // 15}"
        file = disk.open(name, create=True)
        at = places.get(name, 64) + rng.choice([0, 7, 70_000])
        slab = slab_of(1, ledger.last_confirmed + 1, [b"%d" % number * 200])
        file.write([slab.data], at)
        ledger.confirm(slab, (file, at)).slab = None
        places[name] = at + slab.size_bytes
        content += slab.data
    parked = ledger.parked(0, 1 << 20)
    source = ParkedBytes(parked)
    for _ in range(200):
        offset, size = rng.randrange(len(content)), rng.randrange(1, len(content))
        assert source.read(1, size, parked[0].offset + offset) == content[offset : offset + size]


def test_a_segment_that_ends_early_ends_the_bytes():
    ledger, content = ledger_with([100] * 4)
    parked = ledger.parked(0, 1 << 20)
    file, at = parked[2].place
    file.truncate(at + 10)
    size = parked[0].size_bytes
    assert ParkedBytes(parked).read(1, 1 << 20, parked[0].offset) == content[: 2 * size + 10]


def test_parked_slabs_end_before_a_slab_in_memory_and_at_the_limit_of_bytes():
    ledger, _ = ledger_with([100] * 6)
    assert [slab.first_entry_id for slab in ledger.parked(2, ledger.unwritten[4].offset)] == [2, 3]
    assert [slab.first_entry_id for slab in ledger.parked(2, 1)] == [2]
    ledger.unwritten[4].slab = slab_of(1, 4, [b"in memory"])
    assert [slab.first_entry_id for slab in ledger.parked(2, 1 << 20)] == [2, 3]
    assert ledger.parked(4, 1 << 20) == []
    ledger.written()
    assert ledger.parked(0, 1 << 20) == []
    assert ledger.parked(6, 1 << 20) == []


def test_a_read_takes_a_bounded_number_of_parked_slabs():
    ledger, _ = ledger_with([1] * 300)
    assert [slab.first_entry_id for slab in ledger.parked(10, 1 << 20)] == list(range(10, 266))


def test_lost_entries_of_a_slab():
    ledger = LedgerState(1, {})
    ledger.index = LedgerIndex()
    slab = slab_of(1, 0, [b"a" * 50, b"b" * 50, b"c" * 50])
    job = ledger.confirm(slab, (None, 0))
    assert job.lost(slab.data) == []
    data = bytearray(slab.data)
    data[slab.offset_view[1] + 40] ^= 1
    assert job.lost(data) == [Position(1, 1)]
    assert job.lost(bytes(len(data))) == [Position(1, entry) for entry in range(3)]


async def filled(world, count=20):
    storage = await world.open(PARKING)
    writer = await storage.ledgers.create()
    bodies = [bytes([number]) * 1000 for number in range(count)]
    for body in bodies:
        await append(writer, [body])
    state = storage.ledgers._states[writer.ledger_id]
    assert len(state.unwritten) == count
    assert all(slab.slab is None for slab in state.unwritten)
    return storage, writer, bodies


async def test_parked_entries_are_read_from_the_journal():
    storage, writer, bodies = await filled(World())
    assert await read_all(storage.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    assert len(storage.ledgers._states[writer.ledger_id].unwritten) == len(bodies)
    await storage.close()


async def test_a_parked_slab_larger_than_a_piece_is_read_once():
    storage = await World().open(replace(PARKING, journal_segment_bytes=2 << 20, read_piece_bytes=32 << 10))
    writer = await storage.ledgers.create()
    bodies = [number.to_bytes(2) * 500 for number in range(600)]
    for first in range(0, 600, 200):
        await append(writer, bodies[first : first + 200])
    assert await read_all(storage.ledgers, writer.ledger_id, 599) == bodies
    state = storage.ledgers._states[writer.ledger_id]
    assert len(state.unwritten) == 3
    assert all(slab.slab is None for slab in state.unwritten)
    # A piece may end within a record, which the next piece reads again.
    assert storage.stats().file_read_bytes < 1.1 * state.length_bytes
    await storage.close()


async def test_pieces_of_a_backlog_leave_the_unwritten_slabs_in_the_cache():
    """The slabs are in memory in any case, so an eviction of them frees no memory."""
    storage = await World().open(replace(PARKING, unwritten_memory_bytes=3 << 10, cache_bytes=16 << 10))
    writer = await storage.ledgers.create()
    bodies = [bytes([number]) * 1000 for number in range(40)]
    for body in bodies:
        await append(writer, [body])
    unwritten = storage.ledgers._states[writer.ledger_id].unwritten
    kept = [job.slab for job in unwritten if job.slab is not None]
    assert 1 < len(kept) < 4
    assert await read_all(storage.ledgers, writer.ledger_id, 39) == bodies
    assert storage.stats().cache.evictions > 20
    assert [storage.cache.peek(writer.ledger_id, slab.first_entry_id) for slab in kept] == kept
    await storage.close()


async def test_parked_entries_reach_their_ledger_file():
    world = World()
    storage, writer, bodies = await filled(world)
    await storage.checkpoint()
    assert not storage.ledgers._states[writer.ledger_id].unwritten
    for _ in range(3):
        await append(writer, [b"later" * 100] * 20)
        await storage.checkpoint()
    assert await read_all(storage.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    await storage.close()


async def test_a_stop_writes_parked_entries():
    world = World()
    storage, writer, bodies = await filled(world)
    await storage.close()
    again = await world.open(PARKING)
    assert (await again.ledgers.open_recover(writer.ledger_id)).last_entry_id == len(bodies) - 1
    assert await read_all(again.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    await again.close()


async def test_a_reader_that_comes_late_to_the_segment_finds_the_ledger_file():
    """The read of a parked slab begins; write-behind and a checkpoint are faster, and new frames overwrite the place."""
    storage, writer, bodies = await filled(World())
    reads = storage._parts.reads
    held = []
    pool = reads._pool
    reads._pool = type("Held", (), {"run": lambda _self, job, done: held.append((job, done))})()
    reading = asyncio.ensure_future(read_all(storage.ledgers, writer.ledger_id, 0))
    await settle()
    file, at = storage.ledgers._states[writer.ledger_id].unwritten[0].place
    await storage.checkpoint()
    file.write([b"\xaa" * 1032], at)
    reads._pool = pool
    ((job, done),) = held
    pool.run(job, done)
    assert await reading == bodies[:1]
    await storage.close()


@pytest.mark.parametrize("kept", [0, 1 << 20])
async def test_damage_in_the_journal_costs_the_entry_of_a_parked_slab_alone(kept):
    """A slab in memory does not need the journal."""
    world = World()
    storage = await world.open(replace(PARKING, unwritten_memory_bytes=kept))
    writer = await storage.ledgers.create()
    for number in range(3):
        await append(writer, [bytes([number]) * 1000])
    file, at = storage.ledgers._states[writer.ledger_id].unwritten[1].place
    file.write([b"?"], at + 500)
    with capture_logs() as logs:
        await storage.checkpoint()
    lost = [(log["ledger_id"], log["entry_id"]) for log in logs if log["event"] == events.ENTRY_LOST]
    assert lost == ([] if kept else [(writer.ledger_id, 1)])
    if kept:
        assert len(await read_all(storage.ledgers, writer.ledger_id, 2)) == 3
    else:
        assert await read_all(storage.ledgers, writer.ledger_id, 0)
        with pytest.raises(CorruptEntryError):
            await storage.ledgers.read(writer.ledger_id, 1, 1, 1)
        assert await storage.ledgers.read(writer.ledger_id, 2, 2, 1)
    await storage.close()
