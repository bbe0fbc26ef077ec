"""``verify --repair metadata``: topics come back from their ledger files and the journal, with every entry."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.rebuilding import rebuild_records
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.metadata.salvage import inspect_metadata
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import MetadataDamagedError
from magnetar.storage.managed.config import ManagedLedgerConfig
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.rebuild import GUARD
from magnetar.storage.position import EARLIEST
from tests.storage.engine_for_tests import ROOT, World, settle
from tests.storage.managed_for_tests import append, given, payload
from tests.twins.sim_files import SimulatedCrash

NAMES = [f"t/n/persistent/topic-{k}" for k in range(3)] + ["t/n/persistent/many-partition-4"]
CONFIG = ManagedLedgerConfig(max_entries_per_ledger=3, min_rollover_ms=0)
"""Without retention: the topic trims ledgers that no subscription needs."""

BODIES = [b"entry %d" % k for k in range(8)]


async def fill(world: World, *, close: bool, checkpoint: bool) -> None:
    """Fill topics of several ledgers; without a checkpoint the last ledger of each topic is in the journal alone."""
    storage = await world.open()
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, world.clock, world.scheduler)
    for name in NAMES:
        ledger = await factory.open(name, CONFIG)
        await ledger.open_cursor("jobs", EARLIEST)
        for body in BODIES:
            await append(ledger, [body])
            await settle()
    if checkpoint:
        await storage.checkpoint()
    if close:
        await factory.close()
        await storage.close()


async def read_topics(world: World) -> dict[str, list[bytes]]:
    storage = await world.open()
    assert not storage.recovery.damaged_entries
    assert not storage.recovery.set_aside
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, world.clock, world.scheduler)
    found = {}
    for name in await factory.names("t/n/persistent"):
        ledger = await factory.open(name, CONFIG, create_if_missing=False)
        cursor, bodies = ledger.new_read_cursor(EARLIEST), list[bytes]()
        while spans := await given(cursor.read(1000, 1 << 20)):
            bodies += [payload(span, k) for span in spans for k in range(span.start, span.end)]
        found[name] = bodies
        assert all(cursor.backlog_entries == len(found[name]) for cursor in ledger.cursors.values())
        assert GUARD in ledger.cursors
    await factory.close()
    await storage.close()
    return found


def remove_metadata(world: World) -> None:
    for path in world.disk.paths():
        if path.startswith(f"{ROOT}/metadata/"):
            world.disk.remove(path)
    world.disk.sync_dir(f"{ROOT}/metadata")


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("close", [True, False])
async def test_lost_metadata_with_whole_ledgers(close, checkpoint):
    first = World()
    await fill(first, close=close, checkpoint=checkpoint)
    world = first if close else first.after_crash("nothing")
    remove_metadata(world)
    with pytest.raises(MetadataDamagedError):
        await world.open()
    report = verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    said = "\n".join(report.repaired)
    assert report.damaged
    assert "namespace t/n: made anew" in said
    assert "persistent://t/n/many: listed again with 5 partitions" in said
    assert GUARD in said
    assert await read_topics(world) == dict.fromkeys(sorted(NAMES), BODIES)
    assert not verify_store(ROOT, files=world.disk, clock=world.clock).damaged


@pytest.mark.parametrize("operation", range(0, 60, 3))
async def test_an_interrupted_repair_is_repeated(operation):
    world = World()
    await fill(world, close=True, checkpoint=False)
    remove_metadata(world)
    world.disk.operations, world.disk.crash_at = 0, operation
    try:
        verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    except BaseException as error:
        assert type(error).__name__ == "SimulatedCrash"  # noqa: PT017 - not an Exception
    after = World(world.disk.after_crash("some", operation))
    verify_store(ROOT, files=after.disk, clock=after.clock, repair=["metadata"], rebuild=rebuild_records)
    assert await read_topics(after) == dict.fromkeys(sorted(NAMES), BODIES)


async def test_remains_of_the_metadata_are_kept():
    """Both snapshots lost a block, the logs are whole: policies and positions in them come back too."""
    world = World()
    await fill(world, close=True, checkpoint=True)
    storage = await world.open()
    for number in range(200):
        await storage.metadata.put(f"/admin/policies/kept/{number % 50}", b"{}" + bytes(300))
    await storage.close()
    snapshots = [path for path in world.disk.paths() if path.endswith(".snapshot")]
    assert len(snapshots) == 2
    for path in snapshots:
        world.disk.flip_bit(path, 800)
    with pytest.raises(MetadataDamagedError):
        await world.open()
    verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    assert await read_topics(world) == dict.fromkeys(sorted(NAMES), BODIES)
    found = inspect_metadata(world.disk, Layout(ROOT))
    assert found.complete
    assert sum(path.startswith("/admin/policies/kept/") for path in found.tree.nodes) > 40


async def test_metadata_of_yesterday_are_refused_and_completed():
    """An operator put back an old copy of the folder: the journal has seen later changes."""
    world = World()
    await fill(world, close=True, checkpoint=True)
    old = {path: world.disk.content(path) for path in world.disk.paths() if path.startswith(f"{ROOT}/metadata/")}
    storage = await world.open()
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, world.clock, world.scheduler)
    ledger = await factory.open("t/n/persistent/new", CONFIG)
    await ledger.open_cursor("jobs", EARLIEST)
    for body in BODIES:
        await append(ledger, [body])
    await factory.close()
    await storage.close()
    remove_metadata(world)
    for path, data in old.items():
        world.disk.put(path, data)
    with pytest.raises(MetadataDamagedError, match="the journal has seen change"):
        await world.open()
    verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    storage = await world.open()
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, world.clock, world.scheduler)
    ledger = await factory.open("t/n/persistent/new", CONFIG, create_if_missing=False)
    assert ledger.entries == len(BODIES)
    assert "jobs" in (await factory.open(NAMES[0], CONFIG)).cursors
    await factory.close()
    await storage.close()


async def test_ledger_ids_are_not_given_again():
    """No new ledger gets the id of an old ledger, even when a file set aside is the only trace of that id."""
    world = World()
    await fill(world, close=True, checkpoint=True)
    remove_metadata(world)
    world.disk.make_dir(f"{ROOT}/lost+found")
    world.disk.put(f"{ROOT}/lost+found/000000000777.ledger", b"")
    verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    storage = await world.open()
    assert (await storage.ledgers.create()).ledger_id == 778
    await storage.close()


async def test_whole_metadata_are_left_alone():
    world = World()
    await fill(world, close=True, checkpoint=True)
    before = {path: world.disk.content(path) for path in world.disk.paths()}
    report = verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    assert report.repaired == []
    assert {path: world.disk.content(path) for path in world.disk.paths()} == before


async def test_a_ledger_only_the_metadata_do_not_know_is_never_set_aside():
    world = World()
    await fill(world, close=True, checkpoint=True)
    storage = await world.open()
    path = "/ledgers/" + f"{(await storage.ledgers.list_ledgers())[2]:019d}"
    await storage.metadata.delete(path)
    await storage.close()
    names = world.disk.list_dir(f"{ROOT}/ledgers")
    with pytest.raises(MetadataDamagedError, match="do not know 1 ledgers"):
        await world.open()
    await asyncio.sleep(0)
    assert world.disk.list_dir(f"{ROOT}/ledgers") == names
    assert any(finding.kind == "metadata" for finding in verify_store(ROOT, files=world.disk).findings)


async def with_a_deleted_topic() -> tuple[World, list[int]]:
    """The journal still has the records of the deleted ledgers; one of two copies of a log's header is damaged. Also
    returns the remaining ledgers.
    """
    world = World()
    storage = await world.open()
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, world.clock, world.scheduler)
    for name in NAMES[:2]:
        ledger = await factory.open(name, CONFIG)
        await append(ledger, BODIES[:2])
        await settle()
    await factory.delete(NAMES[0])
    left = await storage.ledgers.list_ledgers()
    world = world.after_crash("everything")
    log = max(path for path in world.disk.paths() if path.endswith(".log"))
    world.disk.flip_bit(log, 16 * 8)
    return world, left


async def has_only(world: World, ledgers: list[int]) -> None:
    storage = await world.open()
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, world.clock, world.scheduler)
    assert await storage.ledgers.list_ledgers() == ledgers
    assert await factory.names("t/n/persistent") == [NAMES[1]]
    await storage.close()


async def test_a_deleted_topic_stays_deleted_where_the_metadata_are_complete():
    world, left = await with_a_deleted_topic()
    report = verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
    assert report.damaged
    assert report.repaired
    await has_only(world, left)


@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize("mode", ["nothing", "everything", "some"])
async def test_a_deleted_topic_stays_deleted_behind_a_repair_that_was_cut_off(mode, is_repeated):
    is_cut, operation = True, 0
    while is_cut:
        world, left = await with_a_deleted_topic()
        world.disk.operations, world.disk.crash_at = 0, operation
        try:
            verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
            is_cut = False
        except SimulatedCrash:
            world = World(world.disk.after_crash(mode, operation))
        world.disk.crash_at = -1
        if is_repeated:
            verify_store(ROOT, files=world.disk, clock=world.clock, repair=["metadata"], rebuild=rebuild_records)
        await has_only(world, left)
        assert not any(path.endswith(".repair") for path in world.disk.paths())
        if is_repeated:  # else older files with damage may be left, which no start reads
            assert not verify_store(ROOT, files=world.disk, clock=world.clock).damaged
        operation += 1
    assert operation > 20
