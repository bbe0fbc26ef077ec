"""Reading ledger files beside the engine that writes them."""

import asyncio
import dataclasses
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, FileHeader
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_format import encode_index
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.embedded.store_version import encode_version
from magnetar.storage.errors import (
    CorruptEntryError,
    DamagedFileError,
    NoSuchEntryError,
    NoSuchLedgerError,
)
from magnetar.storage.reading.data_directory import DataDirectory
from tests.storage.engine_for_tests import ROOT, TINY, World, append, read_all, run_until_crash, settle
from tests.storage.records_for_tests import bodies_of, record
from tests.twins.sim_files import SimDisk

STORE = b"s" * 16


def entry(index, messages=1, payload=b"x"):
    """An entry as the broker stores it; `index` None: without broker entry metadata."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if messages != 1:
        metadata.num_messages_in_batch = messages
    raw = metadata.SerializeToString()
    sent = struct.pack(">I", len(raw)) + raw + payload
    if index is None:
        return sent
    stored = pb.BrokerEntryMetadata(broker_timestamp=5, index=index).SerializeToString()
    return b"\x0e\x02" + struct.pack(">I", len(stored)) + stored + sent


def disk_with(ledger_id, bodies, *, seal=False):
    """A simulated data directory with one ledger file."""
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    disk.put(layout.version, encode_version(STORE))
    data = FileHeader(LEDGER_MAGIC, STORE, ledger_id).pack()
    index = LedgerIndex()
    for entry_id, body in enumerate(bodies):
        index.add(entry_id, len(data))
        data += record(ledger_id, entry_id, body)
    if seal:
        data += encode_index(ledger_id, len(bodies), len(data) - FILE_HEADER_BYTES, index)
    disk.put(layout.ledger(ledger_id), data)
    return disk


def segment_of(bodies, **options):
    return DataDirectory(ROOT, disk_with(3, bodies, **options)).open_ledger(3)


def read_everything(segment):
    return bodies_of(list(segment.slabs(0, segment.entries)), 0, segment.entries - 1)


async def test_entries_written_behind_can_be_read_beside_the_engine():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"a", b"b"])
    await settle()
    with DataDirectory(ROOT, world.disk).open_ledger(writer.ledger_id) as segment:
        assert (segment.entries, segment.sealed) == (2, False)
        assert read_everything(segment) == [b"a", b"b"]
        await append(writer, [b"c" * 5000])
        await settle()
        segment.refresh()
        assert read_everything(segment) == [b"a", b"b", b"c" * 5000]
    await storage.close()


async def test_entries_that_are_only_in_the_journal_are_not_claimed():
    world = World()
    storage = await world.open(dataclasses.replace(TINY, write_behind_bytes=1 << 20))
    writer = await storage.ledgers.create()
    await append(writer, [b"a"])
    await settle()
    with pytest.raises(NoSuchLedgerError):
        DataDirectory(ROOT, world.disk).open_ledger(writer.ledger_id)
    world.scheduler.advance(0.06)
    await settle()
    with DataDirectory(ROOT, world.disk).open_ledger(writer.ledger_id) as segment:
        await append(writer, [b"b"])
        await settle()
        segment.refresh()
        assert segment.entries == 1, "the second is confirmed, but stands in the journal alone"
        with pytest.raises(NoSuchEntryError):
            segment.read(1)
    await storage.close()


async def test_a_closed_and_checkpointed_ledger_says_its_end_itself():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"%d" % k for k in range(40)])
    await writer.close()
    await storage.close()
    with DataDirectory(ROOT, world.disk).open_ledger(writer.ledger_id) as segment:
        assert (segment.entries, segment.sealed) == (40, True)
        assert bodies_of(list(segment.slabs(7, 9)), 7, 8) == [b"7", b"8"]


async def test_a_deleted_ledger_is_gone_but_an_open_one_stays_readable():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"a"])
    await writer.close()
    await settle()
    directory = DataDirectory(ROOT, world.disk)
    assert directory.ledger_ids() == [writer.ledger_id]
    with directory.open_ledger(writer.ledger_id) as segment:
        await storage.ledgers.delete(writer.ledger_id)
        await settle()
        with pytest.raises(NoSuchLedgerError):
            directory.open_ledger(writer.ledger_id)
        assert read_everything(segment) == [b"a"]
    await storage.close()


async def _work(world, confirmed):
    """Appends to two ledgers, closes one ledger; records the confirmed entries."""
    storage = await world.open()
    writers = [await storage.ledgers.create() for _ in range(2)]
    for turn in range(6):
        for writer in writers:
            await append(writer, [b"%d.%d." % (writer.ledger_id, turn) + b"." * 700])
            confirmed[writer.ledger_id] = writer.last_add_confirmed
    await writers[0].close()
    await storage.close()


@pytest.mark.parametrize("crash_at", [*range(20, 130, 9), None])
@pytest.mark.parametrize("mode", ["nothing", "some"])
def test_entries_read_before_a_crash_are_a_prefix_of_the_ledger_after_it(crash_at, mode):
    """A reader never gives entries that a recovery could take back, wherever the process dies."""
    world, confirmed = World(), {}
    world.disk.crash_at = crash_at
    run_until_crash(world.disk, _work(world, confirmed))
    seen = {}
    before = world.disk.copy()  # the files as other processes see them, with unsynced writes
    for ledger_id in _ids(before):
        with DataDirectory(ROOT, before).open_ledger(ledger_id) as segment:
            seen[ledger_id] = read_everything(segment)
    after = world.after_crash(mode, seed=crash_at or 0)

    async def recovered():
        storage = await after.open()
        for ledger_id, bodies in seen.items():
            info = await storage.ledgers.open_recover(ledger_id)
            assert info.entries >= len(bodies)
            assert info.last_entry_id >= confirmed.get(ledger_id, -1)
            assert await read_all(storage.ledgers, ledger_id, len(bodies) - 1) == bodies
        await storage.close()

    asyncio.run(recovered())


def _ids(disk):
    try:
        return DataDirectory(ROOT, disk).ledger_ids()
    except FileNotFoundError:
        return []


@given(
    steps=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=60),
    sealed=st.booleans(),
    big=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_entry_of_an_index_equals_that_of_a_walk(steps, sealed, big):
    index, bodies, last = 100, [], []
    for messages, has_index in steps:
        index += messages
        known = index - 1 if has_index else None
        bodies.append(entry(known, messages, b"." * (9000 if big else 6 * messages)))
        last.append(known)
    segment = segment_of(bodies, seal=sealed)
    for wanted in range(99, index + 2):
        naive = next((k for k, known in enumerate(last) if known is not None and known >= wanted), len(bodies))
        assert segment.entry_of_index(wanted) == naive
    known = [(k, m) for k, (m, has) in zip(last, steps, strict=True) if has]
    expected = (known[0][0] - known[0][1] + 1, known[-1][0] + 1) if known else None
    assert segment.index_range() == expected


@pytest.mark.parametrize("seal", [False, True])
def test_a_damaged_entry_is_named_and_its_neighbours_are_read(seal):
    bodies = [b"%d" % k * 200 for k in range(9)]
    disk = disk_with(3, bodies, seal=seal)
    layout = Layout(ROOT)
    disk.flip_bit(layout.ledger(3), (FILE_HEADER_BYTES + 4 * 232 + 100) * 8)
    segment = DataDirectory(ROOT, disk).open_ledger(3)
    if not seal:
        assert segment.entries == 4, "an open ledger ends before what is not intact"
        return
    assert segment.read(3).last_entry_id == 3
    with pytest.raises(CorruptEntryError, match="3:4"):
        segment.read(4)
    assert bodies_of(list(segment.slabs(5, 9)), 5, 8) == bodies[5:]


def test_an_open_ledger_ends_before_a_record_that_is_being_written():
    disk = disk_with(3, [b"a" * 100, b"b" * 100, b"c" * 100])
    path = Layout(ROOT).ledger(3)
    for size in range(FILE_HEADER_BYTES, len(disk.content(path))):
        shorter = disk.copy()
        shorter.put(path, disk.content(path)[:size])
        with DataDirectory(ROOT, shorter).open_ledger(3) as segment:
            assert segment.entries == (size - FILE_HEADER_BYTES) // 132


def test_a_file_of_another_store_or_ledger_is_refused():
    disk = disk_with(3, [b"a"])
    layout = Layout(ROOT)
    disk.put(layout.ledger(4), disk.content(layout.ledger(3)))
    directory = DataDirectory(ROOT, disk)
    with pytest.raises(DamagedFileError, match="ledger 3"):
        directory.open_ledger(4)
    with pytest.raises(NoSuchLedgerError):
        directory.open_ledger(5)


def test_a_folder_that_is_no_data_directory_is_refused():
    with pytest.raises(FileNotFoundError, match="not a data directory"):
        DataDirectory("/elsewhere", SimDisk())


def test_an_open_ledger_can_be_opened_again_with_a_part_of_its_walk():
    bodies = [entry(k, payload=b"." * 9000) for k in range(50)]
    disk = disk_with(3, bodies)
    directory = DataDirectory(ROOT, disk)
    with directory.open_ledger(3) as whole:
        walked = whole.walked(whole.entry_of_index(33))
    assert 0 < walked.entry_id <= 33
    with directory.open_ledger(3, walked) as later:
        assert (later.first_entry_id, later.entries) == (walked.entry_id, 50)
        assert later.entry_of_index(33) == 33
        assert bodies_of(list(later.slabs(33, 50)), 33, 49) == bodies[33:]
        with pytest.raises(NoSuchEntryError):
            later.read(walked.entry_id - 1)
    disk.flip_bit(Layout(ROOT).ledger(3), (walked.offset + 100) * 8)
    with directory.open_ledger(3, walked) as later, pytest.raises(CorruptEntryError):
        later.read(walked.entry_id)
