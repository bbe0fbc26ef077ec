"""The deletion of a managed ledger is one step: cut off at any write, the log is whole or goes with all that it had."""

from __future__ import annotations

import pytest

from magnetar.storage.errors import ManagedLedgerFencedError, NoSuchManagedLedgerError, StorageClosedError
from magnetar.storage.managed.deletion import NotedLog, note_deletion, noted_deletions
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.stored_layout import OwnLayout
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.managed_for_tests import NAME, Ground, append, everything

LAYOUTS = (OwnLayout(), PulsarLayout())
NOTES = "/deleted-managed-ledgers"


async def filled(layout=LAYOUTS[0]):
    """A log of three ledgers with two cursors, of which the second has a cursor ledger, and a ledger beside the log."""
    ground = Ground(layout=layout, created_ms={ledger_list_path(NAME): 1000} if layout is LAYOUTS[1] else None)
    ledger = await ground.open()
    for name in ("a", "b"):
        await ledger.open_cursor(name, "earliest")
    positions = await append(ledger, [b"x"] * 25)
    ledger.cursors["b"].ack_many(positions[1::2])
    await ledger.cursors["b"].flush()
    other = (await ground.ledgers.create({})).ledger_id
    return ground, ledger, other


class Cut(Exception):  # noqa: N818 - no failure of the store: the process ends
    """The process ends."""


def cut_at(ground, number):
    """End the process behind ``number`` writes to the stores; returns the count of writes, as a list."""
    made = []

    def cut(write):
        async def call(*args):
            if len(made) == number:
                raise Cut
            made.append(args)
            return await write(*args)

        return call

    ground.metadata.put, ground.metadata.delete = cut(ground.metadata.put), cut(ground.metadata.delete)
    ground.ledgers.delete = cut(ground.ledgers.delete)
    return made


async def completed(ground):
    """Complete the deletion as the next start does; whether there was a log to delete."""
    doomed = await ground.factory.cut_off_deletions()
    for name in doomed:
        await (await ground.factory.open(name, create_if_missing=False)).delete()
    return doomed


@pytest.mark.parametrize("layout", LAYOUTS, ids=["own", "pulsar"])
async def test_a_deletion_that_is_cut_off_takes_everything_or_nothing(layout):
    number, outcomes = 0, []
    while True:
        ground, ledger, other = await filled(layout)
        before = await everything(ledger)
        made = cut_at(ground, number)
        try:
            await ledger.begin_deletion([other])
            await ledger.delete()
        except Cut:
            pass
        else:
            break
        assert len(made) == number
        after = ground.after_crash()
        doomed = await completed(after)
        outcomes.append(bool(doomed))
        if await after.factory.exists(NAME):
            again = await after.open()
            if again.is_doomed:  # the note is missing: the next load of the topic completes the deletion
                await again.delete()
            else:
                assert outcomes == [False] * len(outcomes)
                assert (await everything(again), set(again.cursors)) == (before, {"a", "b"})
                number += 1
                continue
        assert await noted_deletions(after.metadata) == {}
        assert set(await after.ledgers.list_ledgers()) <= {other}
        assert await after.metadata.children("/managed-ledgers/public/default/persistent") == []
        fresh = await after.open()
        assert (await everything(fresh), dict(fresh.cursors), fresh.is_doomed) == ([], {}, False)
        number += 1
    assert True in outcomes
    assert await ground.ledgers.list_ledgers() == []
    assert await ground.metadata.children(NOTES) == []


async def test_a_doomed_log_that_is_missing_is_not_opened():
    ground, ledger, _ = await filled()
    await ledger.begin_deletion()
    assert ledger.is_doomed
    assert await ground.factory.cut_off_deletions() == [NAME]
    await ledger.delete()
    with pytest.raises(NoSuchManagedLedgerError):
        await ground.factory.open(NAME, create_if_missing=False)
    assert await ground.factory.cut_off_deletions() == []


@pytest.mark.parametrize("layout", LAYOUTS, ids=["own", "pulsar"])
async def test_entries_behind_the_mark_end_the_deletion(layout):
    """A broker that does not know the mark serves the log, and its messages stay."""
    ground, ledger, _ = await filled(layout)
    await ledger.begin_deletion()
    path = ledger_list_path(NAME)
    value, version = await ground.metadata.get(path)
    record = layout.decode_list(value)
    assert record.doomed
    writer = await ground.ledgers.create({})
    record.ledgers = [*record.ledgers, type(record.ledgers[0])(writer.ledger_id)]
    await ground.metadata.put(path, layout.encode_list(record), version)
    after = ground.after_crash()
    assert await completed(after) == []
    again = await after.open()
    assert not again.is_doomed
    assert len(await everything(again)) == 25
    assert "magnetar.deletion" not in again.properties


@pytest.mark.parametrize("layout", LAYOUTS, ids=["own", "pulsar"])
async def test_a_property_of_a_user_is_no_mark(layout):
    ground, ledger, _ = await filled(layout)
    last = ledger.ledgers[-1].ledger_id
    await ledger.set_property("user.magnetar.deletion", str(last))
    again = await ground.after_crash().open()
    assert not again.is_doomed


async def test_a_save_of_the_list_keeps_the_mark():
    ground, ledger, _ = await filled()
    await ledger.begin_deletion()
    await ledger.close()
    assert (await ground.after_crash().open()).is_doomed


async def test_a_repeated_mark_keeps_the_ledgers_of_the_first():
    """The compacted ledger of a topic stayed for ever in a cluster: its cursor had gone with the first attempt."""
    ground, ledger, other = await filled()
    await ledger.begin_deletion([other])
    after = ground.after_crash()
    again = await after.open()
    await again.begin_deletion()
    await again.delete()
    assert await after.ledgers.list_ledgers() == []
    assert await noted_deletions(after.metadata) == {}


async def test_a_log_is_gone_with_its_list_though_a_ledger_cannot_be_deleted():
    """The topic was reported as not deleted, and its next load began an empty topic of that name."""
    ground, ledger, _ = await filled()
    delete = ground.ledgers.delete

    async def fails(_ledger_id):
        raise StorageClosedError("no bookie")

    ground.ledgers.delete = fails
    await ledger.delete()
    ground.ledgers.delete = delete
    assert not await ground.factory.exists(NAME)
    [(noted, ledger_ids)] = (await noted_deletions(ground.metadata)).items()
    assert (noted.name, len(ledger_ids) >= 3) == (NAME, True)
    assert await ground.factory.cut_off_deletions() == []
    assert len(await ground.ledgers.list_ledgers()) == 1  # the ledger beside the log
    assert await noted_deletions(ground.metadata) == {}


async def test_a_former_owner_marks_nothing():
    ground, ledger, _ = await filled()
    newer = Ground(ground.ledgers, ground.metadata)
    theirs = await newer.open()
    await append(theirs, [b"y"])
    with pytest.raises(ManagedLedgerFencedError):
        await ledger.begin_deletion()
    assert not ledger.is_doomed
    assert await ground.metadata.children(NOTES) == []
    assert not (await ground.after_crash().open()).is_doomed


@pytest.mark.parametrize("has_marked", [False, True])
async def test_a_former_owner_deletes_no_log_that_was_made_anew(has_marked):
    """The list of the new log has the version that the former owner knows: the messages were deleted."""
    ground = Ground(layout=PulsarLayout())
    ledger = await ground.open()
    await ledger.open_cursor("s", "earliest")
    for value in "abc":
        await ledger.set_property("user.a", value)
    if has_marked:
        await ledger.begin_deletion()
    newer = Ground(ground.ledgers, ground.metadata, PulsarLayout())
    await (await newer.open()).delete()
    theirs = await newer.open()
    await theirs.open_cursor("s", "earliest")
    await append(theirs, [b"y"])
    while theirs._list._version < ledger._list._version:
        await theirs.set_property("user.a", "b")
    assert theirs._list._version == ledger._list._version
    with pytest.raises(ManagedLedgerFencedError):
        await ledger.delete()
    again = await newer.after_crash().open()
    assert (len(await everything(again)), set(again.cursors)) == (1, {"s"})


async def test_a_mark_that_is_not_stored_does_not_count():
    ground, ledger, _ = await filled()

    async def fails(*_args):
        raise StorageClosedError("full")

    put, ground.metadata.put = ground.metadata.put, fails
    with pytest.raises(StorageClosedError):
        await ledger.begin_deletion()
    ground.metadata.put = put
    await ledger.close()
    assert not (await ground.after_crash().open()).is_doomed


async def test_the_start_deletes_the_ledgers_of_a_note_whose_list_is_gone():
    ground = Ground()
    writer = await ground.ledgers.create({})
    await note_deletion(ground.metadata, NotedLog(NAME), [writer.ledger_id, 77])
    assert await ground.factory.cut_off_deletions() == []
    assert await ground.ledgers.list_ledgers() == []
    assert await ground.metadata.children(NOTES) == []


async def test_a_note_takes_no_ledger_that_the_list_has():
    """A repair of metadata made the lost list again, with the time of its oldest ledger and without the mark."""
    ground, ledger, _ = await filled()
    await ledger.begin_deletion()
    path, layout = ledger_list_path(NAME), OwnLayout()
    value, version = await ground.metadata.get(path)
    record = layout.decode_list(value)
    again = type(record)(record.ledgers, created_ms=record.created_ms + 1)
    await ground.metadata.put(path, layout.encode_list(again), version)
    after = ground.after_crash()
    assert await after.factory.cut_off_deletions() == []
    assert len(await everything(await after.open())) == 25


async def test_an_unreadable_note_stays():
    ground = Ground()
    for name, value in (("a", b"\xff"), ("b", b'{"a": 1}')):
        await ground.metadata.put(f"{NOTES}/{name}", value)
    assert await ground.factory.cut_off_deletions() == []
    assert len(await ground.metadata.children(NOTES)) == 2


async def deleted_but_for_ledgers(ground, made_at_ms):
    """Delete the log of the name, whose list was created at this time; its ledgers stay and are noted."""
    ground.created_ms[ledger_list_path(NAME)] = made_at_ms
    ledger = await ground.open()
    await append(ledger, [b"x"] * 15)

    async def fails(_ledger_id):
        raise StorageClosedError("no bookie")

    delete, ground.ledgers.delete = ground.ledgers.delete, fails
    await ledger.delete()
    ground.ledgers.delete = delete


@pytest.mark.parametrize("is_open", [False, True])
async def test_the_ledgers_of_a_former_log_go_though_the_log_was_made_anew(is_open):
    """The note and the ledgers stayed until the new log was deleted."""
    ground = Ground(layout=PulsarLayout(), created_ms={})
    await deleted_but_for_ledgers(ground, 1000)
    ground.created_ms[ledger_list_path(NAME)] = 2000
    again = await ground.open()
    await append(again, [b"y"] * 15)
    if not is_open:
        await again.close()
    assert await ground.factory.cut_off_deletions() == []
    assert await noted_deletions(ground.metadata) == {}
    fresh = await ground.after_crash().open()
    assert len(await everything(fresh)) == 15
    assert await ground.ledgers.list_ledgers() == [slot.ledger_id for slot in again.ledgers]


async def test_the_note_of_a_later_deletion_stays_where_an_earlier_deletion_is_completed():
    """A broker that completed the deletion of the former log removed the note of the next log."""
    ground = Ground(layout=PulsarLayout(), created_ms={})
    await deleted_but_for_ledgers(ground, 1000)
    slow, delete = Ground(ground.ledgers, ground.metadata, PulsarLayout(), ground.created_ms), ground.metadata.delete

    async def delete_late(path, *arguments):
        """The next log is made and its deletion begins before the note of the former log goes."""
        ground.metadata.delete = delete
        await ground.factory.cut_off_deletions()
        await deleted_but_for_ledgers(ground, 2000)
        await delete(path, *arguments)

    ground.metadata.delete = delete_late
    await slow.factory.cut_off_deletions()
    [(noted, ledger_ids)] = (await noted_deletions(ground.metadata)).items()
    assert (noted, len(ledger_ids)) == (NotedLog(NAME, 2000), 2)
    assert await slow.factory.cut_off_deletions() == []
    assert await ground.ledgers.list_ledgers() == []


async def test_a_mark_that_counts_no_more_keeps_the_ledgers_of_its_note():
    """Another broker has taken messages behind the mark; its ledgers, and those of before, belong to the topic."""
    ground = Ground(layout=PulsarLayout(), created_ms={ledger_list_path(NAME): 1000})
    ledger = await ground.open()
    await append(ledger, [b"x"] * 15)
    await ledger.begin_deletion()
    theirs = await Ground(ground.ledgers, ground.metadata, PulsarLayout(), ground.created_ms).open()
    theirs._list.doomed = False
    await append(theirs, [b"y"])
    assert await ground.factory.cut_off_deletions() == []
    assert len(await everything(await ground.after_crash().open())) == 16
