"""Appending, rolling, failing, trimming, ending: one managed ledger on the in-memory stores."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from magnetar.storage.errors import (
    EntryTooLargeError,
    LedgerFencedError,
    ManagedLedgerClosedError,
    ManagedLedgerFencedError,
    ManagedLedgerTerminatedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageFullError,
    WriteFailedError,
)
from magnetar.storage.managed.entry_index import broker_index
from magnetar.storage.managed.managed_ledger import AppendPiece, AppendState
from magnetar.storage.managed.position_search import entry_timestamp
from magnetar.storage.position import EARLIEST, LATEST, Position
from tests.storage.managed_for_tests import KEEP, NAME, Ground, append, message, payload, read_all, run_of, settle
from tests.twins.memory_ledgers import MemoryLedgerStore

DROP = dataclasses.replace(KEEP, retention_time_ms=0, retention_size_bytes=0)
FULL = StorageFullError("full")


async def opened(config=KEEP, **store):
    ground = Ground(MemoryLedgerStore(**store))
    return ground, await ground.open(config)


def indexes(entries):
    return [index for _, _, index in entries]


async def everything(ledger):
    return await read_all(ledger.new_read_cursor(EARLIEST))


# --- appending


async def test_opening_and_idling_creates_no_ledger():
    ground, ledger = await opened()
    assert await ground.ledgers.list_ledgers() == []
    assert (ledger.last_confirmed, ledger.entries, ledger.size_bytes) == (EARLIEST, 0, 0)
    assert (ledger.first_position, await ledger.read_last_entry()) == (None, None)
    await ground.restart()
    assert await ground.ledgers.list_ledgers() == []
    assert ground.scheduler.timers == []


async def test_done_is_called_later_in_order_with_the_pieces():
    _, ledger = await opened()
    results = []
    runs = [run_of([b"a"] * count) for count in (3, 4, 5)]
    for run in runs:
        ledger.append(run, results.append)
    assert results == []
    assert ledger.pending_appends == 3
    await settle()
    assert [result.run for result in results] == runs
    assert [result.pieces for result in results] == [
        [AppendPiece(0, 0, 0, 3)],
        [AppendPiece(0, 3, 0, 4)],
        [AppendPiece(0, 7, 0, 3), AppendPiece(1, 0, 3, 5)],
    ]
    assert ledger.last_confirmed == Position(1, 1)
    assert (ledger.pending_appends, ledger.entries_added, ledger.entries) == (0, 12, 12)


async def test_a_run_larger_than_several_ledgers():
    _, ledger = await opened()
    positions = await append(ledger, [b"%d" % k for k in range(35)])
    assert [position.ledger_id for position in positions] == [0] * 10 + [1] * 10 + [2] * 10 + [3] * 5
    assert [body for _, body, _ in await everything(ledger)] == [b"%d" % k for k in range(35)]


async def test_listeners_hear_of_a_burst_once():
    _, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=1000))
    await append(ledger, [b"first"])
    calls = []
    remove = ledger.add_listener(lambda: calls.append(ledger.entries))
    for _ in range(50):
        ledger.append(run_of([b"x"] * 3), lambda _result: None)
    await settle()
    assert calls == [151]
    remove()
    remove()
    await append(ledger, [b"more"])
    assert calls == [151]


async def test_stamping_follows_the_configuration():
    _, ledger = await opened(dataclasses.replace(KEEP, entry_timestamp=True, max_entries_per_ledger=1000))
    await append(ledger, [message(publish_time=5)], [3])
    ledger.set_config(dataclasses.replace(ledger.config, entry_index=False))
    await append(ledger, [message(publish_time=6)])
    ledger.set_config(dataclasses.replace(ledger.config, entry_timestamp=False))
    await append(ledger, [message(publish_time=7)])
    ledger.set_config(dataclasses.replace(ledger.config, entry_index=True))
    await append(ledger, [message(publish_time=8)], [2])
    now_ms = ledger._env.clock.now_ms()
    spans = [await ledger.read_entry(ledger._ledgers.at(k)) for k in range(4)]
    assert [broker_index(span.body(0)) for span in spans] == [2, -1, -1, 4]
    assert [entry_timestamp(span.slab, span.start) for span in spans] == [now_ms, now_ms, 7, 8]
    assert payload(spans[2], 0) == bytes(spans[2].body(0)) == message(publish_time=7)


async def test_the_index_counts_messages_over_ledgers_and_restarts():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 12, [1, 3, 2] * 4)
    ground = await ground.restart()
    ledger = await ground.open()
    await append(ledger, [b"y"] * 2, [5, 1])
    assert indexes(await everything(ledger)) == [0, 3, 5, 6, 9, 11, 12, 15, 17, 18, 21, 23, 28, 29]
    assert ledger.stats().last_index == 29


async def test_counts_a_peer_made_up_do_not_disturb_the_index():
    ground, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=100))
    await append(ledger, [b"x"] * 4, [5, -2, 0, 1])
    await append(ledger, [b"x"] * 2)
    assert indexes(await everything(ledger)) == [4, -1, -1, 5, 6, 7]
    assert (await ground.after_crash().open()).stats().last_index == 7


async def test_entries_of_the_broker_itself():
    _, ledger = await opened()
    results = []
    ledger.append_entry(b"mine", results.append, num_messages=4)
    await settle()
    assert results[0].error is None
    span = await ledger.read_last_entry()
    assert (payload(span, 0), broker_index(span.body(0))) == (b"mine", 3)


async def test_an_entry_the_store_cannot_take_harms_nobody():
    _, ledger = await opened(max_record_bytes=1000)
    await append(ledger, [b"before"])
    results = []
    ledger.append(run_of([b"x"]), results.append)
    ledger.append(run_of([b"small", b"x" * 990]), results.append)
    ledger.append(run_of([b"y" * 300] * 4), results.append)
    await settle()
    assert [type(result.error) for result in results] == [type(None), EntryTooLargeError, type(None)]
    assert ledger.state is AppendState.OPEN
    assert indexes(await everything(ledger)) == list(range(6))


# --- rolling


async def test_rolls_after_the_entry_that_fills_it_by_size():
    config = dataclasses.replace(KEEP, max_entries_per_ledger=1000, max_size_per_ledger_bytes=500)
    _, ledger = await opened(config)
    await append(ledger, [b"x" * 100] * 9)
    assert [slot.entries for slot in ledger.ledgers] == [4, 4, 1]
    for _ in range(5):
        await append(ledger, [b"x" * 100])
    assert [slot.entries for slot in ledger.ledgers] == [4, 4, 4, 2]
    assert all(slot.closed_at_ms and slot.size_bytes > 500 for slot in ledger.ledgers[:3])


async def test_the_next_ledger_is_there_before_it_is_needed_and_listed_before_its_first_entry():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    assert len(await ground.ledgers.list_ledgers()) == 2
    assert len(ledger.ledgers) == 1
    after = ground.after_crash()
    again = await after.open()
    assert await after.ledgers.list_ledgers() == [slot.ledger_id for slot in again.ledgers] == [0]
    create = ground.ledgers.create
    ground.ledgers.create = None  # a switch that had to create would fail
    await append(ledger, [b"x"] * 3)
    assert ledger.last_confirmed == Position(1, 0)
    ground.ledgers.create = create


async def test_no_entry_of_the_next_ledger_before_all_of_this_one_are_confirmed():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 9)
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"y"] * 3), results.append)
    await settle()
    writers = ground.ledgers._ledgers
    assert (writers[0].last_add_pushed, writers[1].last_add_pushed) == (9, -1)
    ground.ledgers.release()
    await settle()
    assert results[0].pieces == [AppendPiece(0, 9, 0, 1), AppendPiece(1, 0, 1, 3)]


async def test_minimum_age():
    ground, ledger = await opened(dataclasses.replace(KEEP, min_rollover_ms=60_000))
    await append(ledger, [b"x"] * 25)
    assert [slot.entries for slot in ledger.ledgers] == [25]
    ground.scheduler.advance(61)
    await append(ledger, [b"y"] * 3)
    assert [slot.entries for slot in ledger.ledgers] == [25, 3]


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        (dataclasses.replace(KEEP, max_rollover_ms=60_000), 60.1),
        (dataclasses.replace(KEEP, max_rollover_ms=60_000, min_rollover_ms=90_000), 90.1),
        (dataclasses.replace(KEEP, inactive_rollover_ms=5_000), 6.3),
    ],
)
async def test_an_aged_or_idle_ledger_is_closed_without_traffic(config, seconds):
    ground, ledger = await opened(config)
    await append(ledger, [b"x"])
    for _ in range(int(seconds * 10) - 2):
        ground.scheduler.advance(0.1)
    await settle()
    assert ledger.ledgers[0].closed_at_ms == 0
    for _ in range(4):
        ground.scheduler.advance(0.1)
    await settle()
    assert ledger.ledgers[0].closed_at_ms
    assert len(await ground.ledgers.list_ledgers()) == 1, "nothing is created for nobody"
    await append(ledger, [b"y"])
    assert ledger.last_confirmed == Position(1, 0)


async def test_a_ledger_with_traffic_is_not_idle():
    ground, ledger = await opened(dataclasses.replace(KEEP, inactive_rollover_ms=5_000))
    await append(ledger, [b"x"])
    for _ in range(3):
        ground.scheduler.advance(4)
        await append(ledger, [b"x"])
    assert len(ledger.ledgers) == 1


async def test_roll_on_request():
    ground, ledger = await opened()
    await ledger.roll()
    await append(ledger, [b"x"])
    await ledger.roll()
    assert ledger.ledgers[0].closed_at_ms
    ground.ledgers.hold()
    ledger.append(run_of([b"y"]), lambda _result: None)
    await settle()
    rolling = asyncio.ensure_future(ledger.roll())
    await settle()
    assert not rolling.done()
    ground.ledgers.release()
    await rolling
    assert [slot.entries for slot in ledger.ledgers] == [1, 1]


# --- failing


async def test_a_failed_append_fails_what_is_behind_it_until_resumed():
    ground, ledger = await opened()
    await append(ledger, [b"kept"])
    ground.ledgers.hold()
    results = []
    for _ in range(3):
        ledger.append(run_of([b"lost"] * 5), results.append)
    await settle()
    ground.ledgers.fail_appends = FULL
    ground.ledgers.release()
    await settle()
    assert [result.error for result in results] == [FULL, FULL, FULL]
    assert all(result.pieces == [] for result in results)
    assert ledger.state is AppendState.WRITE_FAILED
    ground.ledgers.fail_appends = None
    ledger.append(run_of([b"refused"]), results.append)
    assert len(results) == 3
    await settle()
    assert isinstance(results[3].error, WriteFailedError)
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"again"])
    assert indexes(await everything(ledger)) == [0, 1]
    assert ledger.last_confirmed.ledger_id > 0


async def test_resuming_too_early_is_refused():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.ledgers.hold()
    ledger.append(run_of([b"x"]), lambda _result: None)
    ledger._appender.state = AppendState.WRITE_FAILED
    with pytest.raises(AssertionError):
        ledger.ready_to_create_new_ledger()
    ground.ledgers.release()
    await settle()
    ledger.ready_to_create_new_ledger()
    ledger.ready_to_create_new_ledger()
    assert ledger.state is AppendState.OPEN


async def test_a_split_run_that_fails_in_the_middle_tells_what_is_on_disk():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    results = []
    ledger.append(run_of([b"y"] * 6, [2] * 6), results.append)
    writer = ground.ledgers._ledgers[1]
    writer.refuse = LedgerFencedError
    await settle()
    assert results[0].pieces == [AppendPiece(0, 8, 0, 2)]
    assert isinstance(results[0].error, LedgerFencedError)
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"])
    assert indexes(await everything(ledger)) == [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12]


async def test_a_failed_ledger_without_entries_disappears():
    ground, ledger = await opened()
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"x"])
    ground.ledgers.fail_appends = None
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"y"])
    await settle()
    assert [slot.entries for slot in ledger.ledgers] == [1]
    assert await ground.ledgers.list_ledgers() == [1]


async def test_entries_reported_as_failed_that_exist_after_all_count():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 2)
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"there"], [4])
    ground.ledgers.fail_appends = None
    # as after a lost answer of a remote store: the entry is on its disk
    from magnetar.protocol.speed import stamp
    from magnetar.storage.slab import Slab

    run = run_of([b"there"], [4])
    writer = ground.ledgers._ledgers[0]
    writer._confirm(Slab(0, 2, *stamp(run.data, run.offsets, run.num_messages, 0, 1, 0, 2, 1, -1, 1)))
    heard = []
    ledger.add_listener(lambda: heard.append(1))
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"next"])
    assert indexes(await everything(ledger)) == [0, 1, 5, 6]
    assert heard


async def test_a_failed_ledger_that_is_gone_is_forgotten():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.ledgers.fail_appends = FULL
    with pytest.raises(StorageFullError):
        await append(ledger, [b"y"])
    ground.ledgers.fail_appends = None
    await ground.ledgers.delete(0)
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"z"])
    assert indexes(await everything(ledger)) == [1]


async def test_no_ledger_can_be_created():
    ground, ledger = await opened()
    ground.metadata.fail_writes = FULL
    results = []
    ledger.append(run_of([b"x"]), results.append)
    ledger.append(run_of([b"x"]), results.append)
    await settle()
    assert [result.error for result in results] == [FULL, FULL]
    assert ledger.state is AppendState.WRITE_FAILED
    ground.metadata.fail_writes = None
    ledger.ready_to_create_new_ledger()
    await append(ledger, [b"y"])
    assert ledger.entries == 1


async def test_a_ledger_ahead_that_cannot_be_created_is_tried_again_later():
    ground, ledger = await opened(dataclasses.replace(KEEP, max_entries_per_ledger=100))
    await append(ledger, [b"x"] * 70)
    ground.metadata.fail_writes = FULL
    await append(ledger, [b"x"] * 15)
    await settle()
    assert ledger.state is AppendState.OPEN
    ground.metadata.fail_writes = None
    await append(ledger, [b"x"])
    await settle()
    assert ledger._switch._ahead is None
    ground.scheduler.advance(11)
    await append(ledger, [b"x"])
    await settle()
    assert ledger._switch._ahead is not None


async def test_another_owner_fences_this_one():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 3)
    other = Ground(ground.ledgers, ground.metadata)
    taken = await other.open()
    assert taken.last_confirmed == Position(0, 2)
    with pytest.raises(LedgerFencedError):
        await append(ledger, [b"y"])
    ledger.ready_to_create_new_ledger()
    with pytest.raises(ManagedLedgerFencedError):
        await append(ledger, [b"y"])
    assert ledger.state is AppendState.FENCED
    with pytest.raises(ManagedLedgerFencedError):
        await append(ledger, [b"y"])
    with pytest.raises(ManagedLedgerFencedError):
        await ledger.open_cursor("c")
    with pytest.raises(ManagedLedgerFencedError):
        await ledger.terminate()
    await ground.factory.close()
    await append(taken, [b"z"])
    assert indexes(await everything(taken)) == [0, 1, 2, 3]


async def test_fencing_is_noticed_when_a_ledger_is_sealed():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 3)
    value, _ = await ground.metadata.get("/managed-ledgers/" + NAME)
    await ground.metadata.put("/managed-ledgers/" + NAME, value)
    await ledger.roll()
    assert ledger.state is AppendState.FENCED


# --- trimming


async def test_consumed_ledgers_go_when_the_next_one_is_begun():
    ground, ledger = await opened(DROP)
    slow, fast = await ledger.open_cursor("slow", "earliest"), await ledger.open_cursor("fast", "earliest")
    reader = ledger.new_read_cursor(EARLIEST)
    every = await append(ledger, [b"x"] * 25)
    reader.ack(every[3])
    fast.ack_cumulative(every[-1])
    slow.ack_cumulative(every[8])
    await settle()
    assert len(ledger.ledgers) == 3
    slow.ack(every[9])
    await settle()
    assert len(ledger.ledgers) == 3, "all of the first is consumed, and still there for newcomers"
    slow.ack(every[10])
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [1, 2]
    assert (reader.mark_delete, reader.backlog_entries) == (every[9], 15)
    assert ledger.first_position == every[10]
    assert 0 not in await ground.ledgers.list_ledgers()
    with pytest.raises(NoSuchEntryError):
        await ledger.read_entry(every[0])
    await ledger.delete_cursor("slow")
    await settle()
    assert [slot.ledger_id for slot in ledger.ledgers] == [2]


async def test_retention_keeps_and_time_drops():
    ground, ledger = await opened(dataclasses.replace(KEEP, retention_time_ms=60_000))
    await append(ledger, [b"x"] * 25)
    assert await ledger.trim(ground.clock.now_ms()) == []
    ground.scheduler.advance(61)
    assert await ledger.trim(ground.clock.now_ms()) == [0, 1]
    ledger.set_config(DROP)
    await ledger.roll()
    await settle()
    assert ledger.entries == 0
    assert ledger.last_confirmed == Position(2, 4)


async def test_the_index_goes_on_when_every_entry_is_gone():
    ground, ledger = await opened(DROP)
    await append(ledger, [b"x"] * 10, [2] * 10)
    await settle()
    assert ledger.entries == 0
    ground = await ground.restart()
    ledger = await ground.open(DROP)
    assert (ledger.last_confirmed, await ledger.read_last_entry()) == (EARLIEST, None)
    await append(ledger, [b"y"])
    assert ledger.stats().last_index == 20


async def test_a_list_that_cannot_be_stored_drops_nothing():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 25)
    ledger.config = DROP
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.trim(ground.clock.now_ms())
    assert len(ledger.ledgers) == 3
    assert len(await everything(ledger)) == 25
    ground.metadata.fail_writes = None
    assert await ledger.trim(ground.clock.now_ms()) == [0, 1]


async def test_truncate():
    ground, ledger = await opened()
    cursor = await ledger.open_cursor("c", "earliest")
    await append(ledger, [b"x"] * 25)
    await ledger.truncate()
    assert (ledger.entries, cursor.backlog_entries, await ground.ledgers.list_ledgers()) == (0, 0, [3])
    again = await ground.after_crash().open()
    assert again.cursors["c"].backlog_entries == 0
    await append(ledger, [b"y"])
    assert [body for _, body, _ in await read_all(cursor)] == [b"y"]


# --- time, properties, positions


async def test_expiry():
    ground, ledger = await opened(dataclasses.replace(KEEP, entry_timestamp=True))
    cursor = await ledger.open_cursor("c", "earliest")
    times = []
    for _ in range(15):
        ground.scheduler.advance(10)
        times.append(ground.clock.now_ms())
        await append(ledger, [message()])
    cursor.ack(ledger._ledgers.at(4))
    assert await ledger.expire(cursor, times[8]) == 7
    assert cursor.backlog_entries == 7
    assert await ledger.expire(cursor, times[8]) == 0
    assert await ledger.expire(cursor, times[14] + 1) == 7
    assert await ledger.expire(cursor, times[14] + 1) == 0


async def test_properties_are_durable():
    ground, ledger = await opened()
    await ledger.set_property("a", "b")
    await ledger.set_property("c", "d")
    await ledger.set_property("a", None)
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.set_property("c", "e")
    assert ledger.properties == {"c": "d"}
    assert (await ground.after_crash().open()).properties == {"c": "d"}


async def test_many_properties_are_one_transaction():
    ground, ledger = await opened()
    await ledger.set_properties({"a": "b", "c": "d"})
    writes = []
    put = ground.metadata.put

    async def counted(*args):
        writes.append(args)
        return await put(*args)

    ground.metadata.put = counted
    await ledger.set_properties({f"k{i}": "v" for i in range(1000)} | {"a": None})
    assert len(writes) == 1
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.set_properties({"c": "e", "k1": None, "new": "x"})
    assert ledger.properties == {"c": "d"} | {f"k{i}": "v" for i in range(1000)}
    assert (await ground.after_crash().open()).properties == ledger.properties


async def test_positions():
    _, ledger = await opened()
    every = await append(ledger, [b"x"] * 12)
    assert ledger.next_valid(every[9]) == every[10]
    assert ledger.previous(every[10]) == every[9]
    assert ledger.entries_between(every[2], every[11]) == 9
    assert not ledger.is_valid(Position(0, 10))
    assert ledger.stats().entries == 12


async def test_a_new_cursor_at_a_position():
    _, ledger = await opened()
    every = await append(ledger, [b"x"] * 12)
    assert (await ledger.open_cursor("a", every[4])).backlog_entries == 8
    assert (await ledger.open_cursor("b", "latest")).backlog_entries == 0
    assert ledger.new_read_cursor(LATEST).backlog_entries == 0


async def test_two_who_open_the_same_cursor_get_one():
    _, ledger = await opened()
    one, other = await asyncio.gather(ledger.open_cursor("a"), ledger.open_cursor("a"))
    assert one is other


# --- ending


async def test_terminate():
    ground, ledger = await opened()
    every = await append(ledger, [b"x"] * 3)
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"y"]), results.append)
    terminating = asyncio.ensure_future(ledger.terminate())
    await settle()
    ledger.append(run_of([b"z"]), results.append)
    ground.ledgers.release()
    assert await terminating == Position(0, 3)
    assert results[0].error is None
    assert isinstance(results[1].error, ManagedLedgerTerminatedError)
    assert await ledger.terminate() == Position(0, 3)
    ground = await ground.restart()
    ledger = await ground.open()
    assert ledger.terminated
    assert await ledger.terminate() == Position(0, 3)
    with pytest.raises(ManagedLedgerTerminatedError):
        await append(ledger, [b"z"])
    assert len(await everything(ledger)) == len(every) + 1


async def test_a_termination_that_cannot_be_stored_may_be_tried_again():
    ground, ledger = await opened()
    await append(ledger, [b"x"])
    ground.metadata.fail_writes = FULL
    with pytest.raises(StorageFullError):
        await ledger.terminate()
    ground.metadata.fail_writes = None
    assert await ledger.terminate() == Position(0, 0)
    assert (await ground.after_crash().open()).terminated


async def test_close_finishes_what_is_pending_and_refuses_the_rest():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 9)
    ground.ledgers.hold()
    results = []
    ledger.append(run_of([b"y"] * 3), results.append)
    closing = asyncio.ensure_future(ledger.close())
    await settle()
    assert not closing.done()
    ground.ledgers.release()
    await closing
    await ledger.close()
    assert results[0].pieces == [AppendPiece(0, 9, 0, 1)]
    assert isinstance(results[0].error, ManagedLedgerClosedError)
    with pytest.raises(ManagedLedgerClosedError):
        await append(ledger, [b"z"])
    with pytest.raises(ManagedLedgerClosedError):
        await ledger.open_cursor("c")
    assert await ground.ledgers.list_ledgers() == [0]
    again = await ground.open()
    assert (again is not ledger, again.entries) == (True, 10)


async def test_close_on_a_full_disk_loses_nothing_confirmed():
    ground, ledger = await opened()
    cursor = await ledger.open_cursor("c", "earliest")
    every = await append(ledger, [b"x"] * 5)
    cursor.ack(every[0])
    ground.metadata.fail_writes = FULL
    await ledger.close()
    ground.metadata.fail_writes = None
    again = await ground.open()
    assert again.entries == 5
    assert again.cursors["c"].backlog_entries in (4, 5)


async def test_an_empty_topic_can_be_given_its_first_ledger():
    _, ledger = await opened()
    assert await ledger.ensure_ledger() == Position(0, -1)
    assert await ledger.ensure_ledger() == Position(0, -1)
    await append(ledger, [b"x"])
    assert await ledger.ensure_ledger() == ledger.position_at(0) == Position(0, 0)
    await ledger.close()
    _, ledger = await opened()
    await ledger.terminate()
    assert await ledger.ensure_ledger() == EARLIEST


async def test_closing_with_a_ledger_ahead_or_an_empty_one_leaves_nothing_behind():
    ground, ledger = await opened()
    await append(ledger, [b"x"] * 8)
    await settle()
    await ledger.close()
    assert await ground.ledgers.list_ledgers() == [0]
    ground, ledger = await opened()
    await ledger.ensure_ledger()
    await ledger.roll()
    assert await ground.ledgers.list_ledgers() == []
    await ledger.ensure_ledger()
    await ledger.close()
    assert await ground.ledgers.list_ledgers() == []


async def test_a_failing_read_of_an_existing_entry_is_told():
    ground, ledger = await opened(cached=False)
    every = await append(ledger, [b"x"] * 3)
    cursor = ledger.new_read_cursor(EARLIEST)
    await ground.ledgers.delete(0)
    with pytest.raises(NoSuchLedgerError):
        await cursor.read(1, 1)
    with pytest.raises(NoSuchLedgerError):
        await cursor.read_positions(every)
    with pytest.raises(NoSuchLedgerError):
        await ledger.position_for_time(1)
