"""Opening, recovering, listing and deleting managed ledgers."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect

import pytest

from magnetar.storage.errors import (
    BadVersionError,
    LedgerListError,
    NoSuchLedgerError,
    NoSuchManagedLedgerError,
    StorageClosedError,
)
from magnetar.storage.managed.cursors.store import CursorStore
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.ledger_switch import LedgerSwitch
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedLedgerInfo
from magnetar.storage.managed.orphaned_ledgers import ManagedLedgerReferences, sweep_orphans
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import KEEP, NAME, Ground, append, read_all, settle

PATH = ledger_list_path(NAME)


async def record(ground):
    return ManagedLedgerInfo.FromString((await ground.metadata.get(PATH))[0])


async def test_the_same_name_gives_the_same_managed_ledger():
    ground = Ground()
    one, other = await asyncio.gather(ground.open(), ground.open())
    assert one is other
    assert not ground.factory._locks
    await one.close()
    assert await ground.open() is not one


async def test_only_existing_managed_ledgers_on_request():
    ground = Ground()
    with pytest.raises(NoSuchManagedLedgerError):
        await ground.factory.open(NAME, KEEP, create_if_missing=False)
    assert not await ground.factory.exists(NAME)
    await ground.open()
    assert await ground.factory.exists(NAME)


@pytest.mark.parametrize("layout", [None, PulsarLayout()])
async def test_the_time_of_a_managed_ledger_that_was_not_in_use_since(layout):
    ground = Ground(layout=layout, created_ms={PATH: 5})
    assert await ground.factory.unused_since_ms(NAME) is None
    await ground.factory.make_known(NAME)
    assert await ground.factory.unused_since_ms(NAME) == (5 if layout else ground.clock.now_ms())

    managed = await ground.open()
    assert await ground.factory.unused_since_ms(NAME) is None
    await managed.open_cursor("s")
    await managed.close()
    assert await ground.factory.unused_since_ms(NAME) is None

    managed = await ground.open()
    await managed.delete_cursor("s")
    await append(managed, [b"a"])
    await managed.close()
    assert await ground.factory.unused_since_ms(NAME) is None


async def test_created_by_another_in_the_same_moment():
    ground = Ground()

    async def lost(path, value, expected_version=None):
        raise BadVersionError(path, -1, 0)

    ground.metadata.put = lost
    with pytest.raises(NoSuchManagedLedgerError):
        await ground.open()


async def test_names():
    ground = Ground()
    for name in ("b", "a"):
        ledger = await ground.open(name=f"public/default/persistent/{name}")
        await ledger.open_cursor("s")
    assert await ground.factory.names("public/default/persistent") == [
        "public/default/persistent/a",
        "public/default/persistent/b",
    ]
    assert await ground.factory.names("public/other/persistent") == []


async def test_the_stored_list_is_pulsars_record():
    ground = Ground()
    ledger = await ground.open()
    await append(ledger, [b"x"] * 19)
    await settle()
    found = await record(ground)
    assert [(info.ledgerId, info.entries, info.size > 0, info.timestamp > 0) for info in found.ledgerInfo] == [
        (0, 10, True, True),
        (1, 0, False, False),  # open
        (2, 0, False, False),  # created ahead
    ]
    await ledger.terminate()
    found = await record(ground)
    assert (found.terminatedPosition.ledgerId, found.terminatedPosition.entryId) == (1, 8)
    assert {item.key: item.value for item in found.properties} == {"index": "18"}
    assert [info.entries for info in found.ledgerInfo] == [10, 9]


async def test_a_layout_without_the_time_of_creation_has_that_of_the_node():
    ground = Ground(layout=PulsarLayout(), created_ms={PATH: 1234})
    created = await ground.open()
    now_ms = ground.clock.now_ms()
    assert created.created_ms == now_ms
    await append(created, [b"a"])
    again = await ground.restart()
    assert (await again.open()).created_ms == 1234


async def test_a_list_that_is_none_is_an_error():
    ground = Ground()
    await ground.metadata.put(PATH, b"\xff\xff")
    with pytest.raises(LedgerListError):
        await ground.open()


async def test_after_a_crash_every_open_ledger_is_recovered_not_only_the_last():
    ground = Ground()
    ledger = await ground.open()
    await append(ledger, [b"x"] * 9)
    await settle()
    ground.metadata.before_write = lambda _path: (_ for _ in ()).throw(StorageClosedError("the seal is never stored"))
    await append(ledger, [b"y"] * 4)
    await settle()
    after = ground.after_crash()
    assert [info.timestamp for info in (await record(after)).ledgerInfo] == [0, 0]
    ledger = await after.open()
    assert [(slot.ledger_id, slot.entries) for slot in ledger.ledgers] == [(0, 10), (1, 3)]
    assert all(slot.closed_at_ms and slot.size_bytes for slot in ledger.ledgers)
    assert [index for _, _, index in await read_all(ledger.new_read_cursor(EARLIEST))] == list(range(13))
    assert all(info.timestamp for info in (await record(after)).ledgerInfo)


async def test_a_lost_ledger_is_reported():
    ground = Ground()
    ledger = await ground.open()
    await append(ledger, [b"x"])
    after = ground.after_crash()
    await after.ledgers.delete(0)
    with pytest.raises(NoSuchLedgerError):
        await after.open()


async def test_a_log_of_apache_pulsar_opens_without_its_last_ledger():
    """Apache Pulsar drops the last ledger from the list if it does not exist; otherwise the topic would never open."""
    ground = Ground(layout=PulsarLayout())
    ledger = await ground.open()
    cursor = await ledger.open_cursor("s", EARLIEST)
    stored = await append(ledger, [b"x"] * 14)
    cursor.ack_cumulative(stored[12])
    await cursor.flush()
    last = stored[-1].ledger_id
    after = ground.after_crash()
    await after.ledgers.delete(last)
    ledger = await after.open()
    assert [slot.entries for slot in ledger.ledgers] == [10]
    cursor = ledger.cursors["s"]
    assert [position for position, _, _ in await read_all(cursor)] == []
    (position,) = await append(ledger, [b"y"])
    assert position.ledger_id > last
    assert [found for found, _, _ in await read_all(cursor)] == [position]
    assert [found for found, _, _ in await read_all(ledger.new_read_cursor(EARLIEST))] == [*stored[:10], position]


async def test_only_the_last_ledger_may_be_lost():
    ground = Ground(layout=PulsarLayout())
    ledger = await ground.open()
    stored = await append(ledger, [b"x"] * 14)
    value = ledger_list_path(NAME)
    after = ground.after_crash()
    listed = PulsarLayout().decode_list((await after.metadata.get(value))[0])
    for slot in listed.ledgers:
        slot.closed_at_ms = 0
    await after.metadata.put(value, PulsarLayout().encode_list(listed))
    await after.ledgers.delete(stored[0].ledger_id)
    with pytest.raises(NoSuchLedgerError):
        await after.open()


@pytest.mark.parametrize("layout", [None, PulsarLayout()])
async def test_the_index_goes_on_behind_a_lost_ledger(layout):
    ground = Ground(layout=layout)
    ledger = await ground.open()
    stored = await append(ledger, [b"x"] * 10)
    await ledger.roll()
    after = ground.after_crash()
    for slot in ledger.ledgers:
        slot.properties = {}
    await ledger._list.save()
    await after.ledgers.delete(stored[0].ledger_id)
    assert (await after.open()).stats().last_index == 9


async def test_the_index_goes_on_behind_damaged_entries():
    ground = Ground()
    ledger = await ground.open()
    await append(ledger, [b"x"] * 5)
    after = ground.after_crash()
    after.ledgers.corrupt |= {Position(0, 4), Position(0, 3)}
    ledger = await after.open()
    assert ledger.stats().last_index == 4
    await append(ledger, [b"y"])
    assert ledger.stats().last_index == 5


async def test_nothing_readable_at_all():
    ground = Ground()
    ledger = await ground.open()
    await append(ledger, [b"x"] * 2)
    after = ground.after_crash()
    after.ledgers.corrupt |= {Position(0, 0), Position(0, 1)}
    assert (await after.open()).stats().last_index == 1, "each counts as one message, so no index comes twice"


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("counts", [[1, 1, 0], [1, 1, 0, 0, -1], [1, 1] + [0] * 30, [0, 0], [2, 0, 0]])
async def test_the_index_goes_on_behind_entries_without_messages(counts, cached):
    """An entry without messages has no index, as in Apache Pulsar: the entries before it tell how to go on."""
    ground = Ground()
    ground.ledgers.cached = cached
    ledger = await ground.open()
    expected = sum(count for count in counts if count > 0) - 1
    await append(ledger, [b"x"] * len(counts), counts)
    for restart in (ground.after_crash, ground.restart):
        again = restart()
        again = await again if inspect.isawaitable(again) else again
        opened = await again.open()
        assert opened.stats().last_index == expected
        await append(opened, [b"y"])
        indexes = [index for _, _, index in await read_all(opened.new_read_cursor(EARLIEST)) if index >= 0]
        assert indexes[-1] == expected + 1
        assert len(set(indexes)) == len(indexes)


async def test_the_index_of_a_closed_ledger_is_noted_and_costs_no_read():
    ground = Ground()
    ledger = await ground.open()
    await append(ledger, [b"x"] * 25, [1, 0] * 12 + [0])
    again = await ground.restart()
    reads = again.ledgers.reads
    assert (await again.open()).stats().last_index == 11
    assert again.ledgers.reads == reads


async def test_the_index_is_known_when_every_message_was_trimmed():
    ground = Ground()
    config = dataclasses.replace(KEEP, retention_time_ms=0, retention_size_bytes=0)
    ledger = await ground.open(config)
    cursor = await ledger.open_cursor("s", "earliest")
    await append(ledger, [b"x"] * 10)
    cursor.ack_cumulative(ledger.last_confirmed)
    await append(ledger, [b"y"], [0])
    await ledger.trim(ground.clock.now_ms() + 1000)
    assert [slot.ledger_id for slot in ledger.ledgers] == [1]
    assert (await ground.after_crash().open(config)).stats().last_index == 9


@pytest.mark.parametrize("is_open", [True, False])
async def test_delete(is_open):
    ground = Ground()
    ledger = await ground.open()
    cursor = await ledger.open_cursor("s", "earliest")
    await append(ledger, [b"x"] * 19)
    cursor.ack(ledger.last_confirmed)
    await cursor.flush()
    if not is_open:
        await ledger.close()
    await ground.factory.delete(NAME)
    assert await ground.ledgers.list_ledgers() == []
    assert not await ground.factory.exists(NAME)
    with pytest.raises(NoSuchManagedLedgerError):
        await ground.factory.delete(NAME)
    ledger = await ground.open()
    assert (ledger.cursors, ledger.entries) == ({}, 0)


async def test_a_deletion_that_a_crash_cut_is_finished_by_the_next():
    ground = Ground()
    ledger = await ground.open()
    await ledger.open_cursor("s", "earliest")
    await append(ledger, [b"x"] * 3)
    writes = ground.metadata.writes
    await ground.factory.delete(NAME)
    steps = ground.metadata.writes - writes
    assert steps >= 3
    for cut in range(steps):
        again = Ground()
        ledger = await again.open()
        await ledger.open_cursor("s", "earliest")
        await append(ledger, [b"x"] * 3)
        left = cut

        def before_write(_path):
            nonlocal left
            left -= 1
            if left < 0:
                raise StorageClosedError("cut")

        again.metadata.before_write = before_write
        failed = False
        try:
            await again.factory.delete(NAME)
        except StorageClosedError:
            failed = True
        again = again.after_crash()
        assert await again.factory.exists(NAME) is failed
        if failed:
            await again.factory.delete(NAME)
        assert not await again.factory.exists(NAME)
        assert await again.metadata.children(PATH) == []
        await sweep_orphans(again.ledgers, again.metadata, [ManagedLedgerReferences(again.metadata)], 1 << 62)
        assert await again.ledgers.list_ledgers() == []
        assert await again.metadata.children("/") == []


async def test_a_closed_factory_opens_nothing():
    ground = Ground()
    await ground.open()
    await ground.factory.close()
    await ground.factory.close()
    with pytest.raises(StorageClosedError):
        await ground.open()


async def test_cursors_are_brought_up_side_by_side_and_keep_their_order():
    ground = Ground()
    managed = await ground.open()
    await append(managed, [b"1", b"2"])
    names = [f"c{number:03}" for number in range(140)]
    for name in names:
        await managed.open_cursor(name, EARLIEST)
    await managed.close()
    reads, most, get = 0, 0, ground.metadata.get

    async def slow(path):
        nonlocal reads, most
        reads += 1
        most = max(most, reads)
        await asyncio.sleep(0)
        reads -= 1
        return await get(path)

    ground.metadata.get = slow
    again = await ground.open()
    assert list(again.cursors) == sorted(names)
    assert most == 64


async def test_a_cursor_that_cannot_be_read_fails_the_opening():
    ground = Ground()
    managed = await ground.open()
    for name in ("a", "b"):
        await managed.open_cursor(name, EARLIEST)
    await managed.close()
    await ground.metadata.put(f"{PATH}/b", b"\xff")
    with pytest.raises(LedgerListError):
        await ground.open()


@pytest.mark.parametrize("saves", [False, True])
async def test_cursors_that_an_end_leaves_out_count_as_unsaved(monkeypatch, saves):
    """The end of the log is cut off before it comes to the cursors; a save under way counts until it succeeds."""
    ground = Ground()
    managed = await ground.open()
    positions = await append(managed, [b"1", b"2"])
    for name in ("a", "b"):
        (await managed.open_cursor(name, EARLIEST)).ack(positions[0])
    await managed.cursors["b"].flush()
    assert ground.factory.unsaved_in_open_logs == 1

    async def hangs(*_, **__):
        await asyncio.Event().wait()

    saving = []
    if saves:
        monkeypatch.setattr(CursorStore, "write", hangs)
        saving.append(asyncio.ensure_future(managed.cursors["a"].flush()))
        await settle()
        assert ground.factory.unsaved_in_open_logs == 1
    monkeypatch.setattr(LedgerSwitch, "settle", hangs)
    closing = asyncio.ensure_future(ground.factory.close())
    await settle()
    for task in (closing, *saving):
        task.cancel()
    await asyncio.gather(closing, *saving, return_exceptions=True)
    assert (ground.factory.unsaved_cursors, ground.factory.unsaved_in_open_logs) == (1, 0)
    for task in managed._background._tasks:
        task.cancel()


async def test_acknowledgements_of_a_log_whose_deletion_is_cut_off_do_not_count_as_unsaved(monkeypatch):
    """The deletion is certain: the next start completes it."""
    ground = Ground()
    managed = await ground.open()
    positions = await append(managed, [b"1", b"2"])
    (await managed.open_cursor("a", EARLIEST)).ack(positions[0])

    async def hangs(*_, **__):
        await asyncio.Event().wait()

    monkeypatch.setattr(CursorStore, "delete", hangs)
    deleting = asyncio.ensure_future(managed.delete())
    await settle()
    assert managed.is_doomed
    assert managed.cursors["a"].has_unsaved_acks
    assert ground.factory.unsaved_in_open_logs == 0
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    assert ground.factory.unsaved_cursors == 0
    for task in managed._background._tasks:
        task.cancel()


async def test_an_owner_whose_acknowledgement_is_refused_learns_of_the_next_owner():
    ground = Ground(layout=PulsarLayout())
    lost = []
    ground.factory.on_taken_over = lost.append
    managed = await ground.open()
    cursor = await managed.open_cursor("s", "earliest")
    (place,) = await append(managed, [b"a"])
    await Ground(ground.ledgers, ground.metadata, ground.layout).open()
    assert not lost
    cursor.ack(place)
    ground.scheduler.advance(1.1)
    await settle()
    assert lost == [NAME]
