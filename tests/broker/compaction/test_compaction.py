"""Compaction of a topic: its survivors, the messages of readers, the state after restarts."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.compaction.record import CompactionRecord
from magnetar.broker.compaction.topic_compaction import COMPACTED, COMPACTION_CURSOR, TopicCompaction
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import parse_metadata
from magnetar.storage.errors import CorruptEntryError, ManagedLedgerFencedError, StorageError, StorageFullError
from magnetar.storage.position import EARLIEST, LATEST, Position
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.broker.compaction_for_tests import TOPIC, Bench, batch, entries_of, messages_of, read_on, single
from tests.storage.managed_for_tests import Ground, MemoryLedgerStore, settle

CODECS = [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]


async def test_the_last_of_each_key_stays_at_its_position():
    bench = await Bench().open()
    ids = await bench.publish(
        single("a", b"1"), single("b", b"1"), single("a", b"2"), single(None, b"keyless"), single("b", b"")
    )
    await bench.compact()
    assert await bench.values() == [(ids[2], -1, "a", b"2")]
    (more,) = await bench.publish(single("c", b"3"))
    assert await bench.values() == [(ids[2], -1, "a", b"2"), (more, -1, "c", b"3")]


async def test_batches_that_survive_whole_name_their_messages():
    """As in Apache Pulsar, `compacted_batch_indexes` and the size come with every batch of a compacted topic."""
    bench = await Bench().open()
    bodies = [single("a", b"1"), batch(("b", b"1"), ("c", b"2"), codec=pb.ZLIB), batch(("d", b"3"))]
    ids = await bench.publish(*bodies)
    for _ in range(2):
        await bench.compact()
        found = await read_on(bench.reader())
        assert [position for position, _ in found[:3]] == ids
        plain = await bench.log.read_entry(ids[0])
        assert found[0][1] == bytes(plain.body(0))
        metadata = [parse_metadata(body) for _, body in found]
        assert [list(each.compacted_batch_indexes) for each in metadata] == [[], [0, 1], [0]]
        assert [each.num_messages_in_batch for each in metadata[1:]] == [2, 1]
        assert metadata[1].uncompressed_size == 20


async def test_a_damaged_entry_of_the_cursor_leaves_the_compacted_topic():
    """The messages of the compacted topic exist nowhere else: the log was trimmed up to the horizon."""
    bench = await Bench().open()
    await bench.publish(single("a", b"1"), single("b", b"1"))
    await bench.compact()
    await bench.publish(single("a", b"2"))
    await bench.compact()
    await bench.drop_consumed()
    expected = await bench.values()
    assert [value for *_, value in expected] == [b"1", b"2"]
    cursor_ledger = bench.log.cursors[COMPACTION_CURSOR]._saver._store._ledger_id
    last = (await bench.ground.ledgers.open_recover(cursor_ledger)).last_entry_id
    assert last >= 3
    for entry_id in range(last + 1):
        again = Bench(bench.ground.after_crash())
        again.ground.ledgers.corrupt.add(Position(cursor_ledger, entry_id))
        await again.open()
        assert await again.values() == expected, f"{entry_id} of {last} is damaged"


@pytest.mark.parametrize("codec", CODECS)
async def test_batches_lose_messages_and_keep_indexes(codec):
    bench = await Bench().open()
    first, second = await bench.publish(
        batch(("a", b"1"), ("b", b"1"), (None, b"x"), ("c", b"1"), codec=codec),
        batch(("a", b"2"), ("d", b""), codec=codec),
    )
    await bench.compact()
    expected = [(first, 1, "b", b"1"), (first, 3, "c", b"1"), (second, 0, "a", b"2")]
    assert await bench.values() == expected
    ids = await bench.publish(single("b", b"2"), single("c", b""))
    await bench.compact()
    assert await bench.values() == [expected[2], (ids[0], -1, "b", b"2")]


async def test_null_values_and_compressed_empty_values_are_tombstones():
    bench = await Bench().open()
    await bench.publish(single("a"), single("b"), single("a", b"", null_value=True), single("b", b"", codec=pb.LZ4))
    await bench.compact()
    assert await bench.values() == []
    assert bench.compaction.stats().removed_events == 2, "a tombstone and the value that it removes count once"
    assert sum(bench.compaction.write_latency_ms().buckets) == bench.compaction.stats().entries


async def test_an_encrypted_batch_stays_and_keeps_tombstones():
    """The keys of an encrypted batch are unknown: a tombstone may hide an old value in it."""
    bench = await Bench().open()
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    sealed = batch(("a", b"1"), ("b", b"2"), encryption_keys=keys)
    ids = await bench.publish(sealed, single("a", b"2", encryption_keys=keys), single("b", b""))
    await bench.compact()
    found = await read_on(bench.reader())
    assert [position for position, _ in found] == ids


async def test_a_batch_that_does_not_parse_stays():
    bench = await Bench().open()
    broken = single("a", b"\xff" * 20, num_messages_in_batch=3)
    ids = await bench.publish(broken, b"\x00\x01", single("x", b"m", marker_type=10), single("a"))
    await bench.compact()
    await bench.publish(single("b"))
    await bench.compact()
    assert [position for position, _ in await read_on(bench.reader())][:2] == [ids[0], ids[3]]


async def test_a_run_that_is_closed_before_it_begins_ends_the_waits_for_it():
    """The waits took turn after turn of the event loop for ever."""
    bench = await Bench().open()
    await bench.publish(single("a"))
    assert bench.compaction.start()
    waiting = asyncio.ensure_future(bench.compaction.wait())
    await bench.compaction.close()
    async with asyncio.timeout(1):
        await waiting
    assert not bench.compaction.is_running


async def test_an_opening_that_has_lost_the_log_deletes_no_ledger():
    """The ledger may be that of a run of the new owner: the compacted topic was lost, and with it the messages that the
    log had dropped.
    """
    bench = await Bench(Ground(layout=PulsarLayout())).open()
    await bench.publish(single("a"))
    cursor = await bench.log.open_cursor(COMPACTION_CURSOR, "earliest")
    started = await bench.ground.ledgers.create({})
    cursor.note_properties(CompactionRecord(started=started.ledger_id).properties())
    await cursor.flush()
    grounds = [Ground(bench.ground.ledgers, bench.ground.metadata, bench.ground.layout) for _ in range(2)]
    stale, _ = [await ground.open(bench.config) for ground in grounds]
    compaction = TopicCompaction(TOPIC, stale, bench.ground.ledgers, bench.settings)
    with pytest.raises(ManagedLedgerFencedError):
        await compaction.open()
    assert started.ledger_id in bench.ground.ledgers._ledgers


async def test_an_opening_that_has_lost_the_log_misses_no_compacted_ledger():
    """The new owner has compacted again and deleted the ledger: an error in the log, and readers without the values."""
    bench = await Bench(Ground(layout=PulsarLayout())).open()
    await bench.publish(single("a"))
    await bench.compact()
    grounds = [Ground(bench.ground.ledgers, bench.ground.metadata, bench.ground.layout) for _ in range(2)]
    stale, _ = [await ground.open(bench.config) for ground in grounds]
    await bench.ground.ledgers.delete(bench.compaction.current().ledger.ledger_id)
    compaction = TopicCompaction(TOPIC, stale, bench.ground.ledgers, bench.settings)
    with pytest.raises(ManagedLedgerFencedError):
        await compaction.open()


async def test_nothing_to_do_is_a_success_and_writes_nothing():
    bench = await Bench().open()
    await bench.compact()
    await bench.publish(single("a"))
    await bench.compact()
    before = bench.compaction.ledger_json()
    await bench.compact()
    assert bench.compaction.ledger_json() == before


async def test_a_run_over_an_empty_topic_counts_until_the_topic_is_compacted():
    bench = await Bench().open()
    for runs in (1, 2):
        await bench.compact()
        assert bench.compaction.stats().runs_succeeded == runs
        assert bench.compaction.stats().succeeded_ms > 0
    await bench.publish(single("a"), single("a"))
    for _ in range(2):
        await bench.compact()
        assert (bench.compaction.stats().runs_succeeded, bench.compaction.stats().removed_events) == (3, 1)


async def test_dropped_ledgers_are_read_from_the_compacted_one():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i % 15}", b"%d" % i) for i in range(45)])
    await bench.compact()
    await bench.drop_consumed()
    assert bench.log.entries == 0
    assert [v[0] for v in await bench.values()] == ids[30:]
    bench = await bench.restart()
    assert [v[0] for v in await bench.values()] == ids[30:]
    more = await bench.publish(single("k0", b"new"), single("other"))
    await bench.compact()
    await bench.drop_consumed()
    assert [v[0] for v in await bench.values()] == [*ids[31:], *more]


@pytest.mark.parametrize("more", [True, False])
async def test_a_durable_subscription_of_a_log_that_is_all_dropped(more):
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(10)])
    await bench.compact()
    await bench.drop_consumed()
    bench = await bench.restart()
    assert bench.log.entries == 0
    reader, cursor = await bench.subscription()
    if more:
        ids += await bench.publish(single("more"))
    assert [p for p, _ in await read_on(reader)] == ids
    cursor.ack_many(ids[:4])
    bench = await bench.restart()
    reader, cursor = await bench.subscription()
    assert [p for p, _ in await read_on(reader)] == ids[4:]


async def test_uncompacted_entries_are_not_dropped():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(25)])
    await bench.compact()
    ids += await bench.publish(*[single(f"k{i}", b"2") for i in range(25)])
    await bench.drop_consumed()
    assert bench.log.first_position.ledger_id == ids[25].ledger_id
    assert [v[0] for v in await bench.values()] == ids


async def test_readers_begin_at_their_start_position():
    bench = await Bench().open()
    ids = await bench.publish(*[single("ab"[i % 2], b"%d" % i) for i in range(4)])
    await bench.compact()
    for start, expected in ((ids[0], ids[2:]), (ids[2], ids[2:]), (ids[3], ids[3:]), (LATEST, [])):
        assert [v[0] for v in await bench.values(start)] == expected


async def test_a_reader_goes_on_over_a_compaction_and_a_trim():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(30)])
    await bench.compact()
    reader = bench.reader()
    first = entries_of(await reader.read(12, 1 << 20))
    more = await bench.publish(single("k20", b"new"), single("k1", b"new"))
    await bench.compact()
    await bench.drop_consumed()
    rest = await read_on(reader)
    assert [p for p, _ in first] == ids[:12]
    assert [p for p, _ in rest] == [p for p in ids[12:] if p != ids[20]] + more


async def test_the_cursor_shows_the_place_of_a_compacted_reader_while_the_log_has_it():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(30)])
    await bench.compact()
    reader = bench.reader()
    for count in (12, 6):
        last = entries_of(await reader.read(count, 1 << 20))[-1][0]
        assert reader._cursor.read_position == last.next()
    assert last == ids[17]


async def test_a_reader_behind_the_horizon_gets_entries_dropped_meanwhile():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(30)])
    reader = bench.reader()
    first = entries_of(reader.read(5, 1 << 20))
    await bench.compact()
    await bench.drop_consumed()
    rest = await read_on(reader)
    assert [p for p, _ in first + rest] == ids


@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize("dropped", [True, False])
async def test_acknowledgements_hold_over_a_restart(cumulative, dropped):
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(30)])
    await bench.compact()
    if dropped:
        await bench.drop_consumed()
    await bench.publish(single("later"))
    reader, cursor = await bench.subscription()
    assert len(await read_on(reader)) == 31
    if cumulative:
        cursor.ack_cumulative(ids[11])
    else:
        cursor.ack_many(ids[:12])
    await cursor.flush()
    reader.rewind()
    assert [p for p, _ in await read_on(reader)][:18] == ids[12:]
    bench = await bench.crash()
    reader, cursor = await bench.subscription()
    found = [p for p, _ in await read_on(reader)]
    assert found[:18] == ids[12:]
    cursor.ack_many(found)
    await cursor.flush()
    bench = await bench.restart()
    reader, cursor = await bench.subscription()
    assert await read_on(reader) == []
    assert cursor.backlog_entries == 0
    assert not reader.earlier.is_active


async def test_acks_out_of_order_in_dropped_ledgers():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(10)])
    await bench.compact()
    await bench.drop_consumed()
    reader, cursor = await bench.subscription()
    await read_on(reader)
    cursor.ack_many([ids[0], ids[3], ids[5]])
    reader.rewind()
    assert [p for p, _ in await read_on(reader)] == [ids[k] for k in (1, 2, 4, 6, 7, 8, 9)]
    await cursor.flush()
    bench = await bench.crash()
    reader, cursor = await bench.subscription()
    assert [p for p, _ in await read_on(reader)] == ids[1:], "what was acked out of order may come again"


async def test_seek_to_the_beginning_reaches_dropped_ledgers():
    bench = await Bench().open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(10)])
    await bench.compact()
    await bench.drop_consumed()
    more = await bench.publish(single("z"))
    reader, cursor = await bench.subscription()
    await read_on(reader)
    cursor.ack_cumulative(more[0])
    assert await read_on(reader) == []
    await cursor.reset(EARLIEST)
    assert [p for p, _ in await read_on(reader)] == ids + more
    await cursor.reset(ids[8])
    assert [p for p, _ in await read_on(reader)] == ids[8:] + more
    await cursor.reset(LATEST)
    assert await read_on(reader) == []


async def test_publishing_while_a_compaction_runs():
    bench = await Bench().open()
    await bench.publish(*[single(f"k{i % 50}", b"%d" % i) for i in range(500)])
    assert bench.compaction.start()
    assert not bench.compaction.start(), "one at a time"
    assert bench.compaction.status().status == "RUNNING"
    late = []
    while bench.compaction.is_running:
        late += await bench.publish(single("k0", b"late"))
        await settle(1)
    assert bench.compaction.status().status == "SUCCESS"
    values = await bench.values()
    assert [v[0] for v in values][-len(late) :] == late
    assert len({v[2] for v in values}) == 50


@pytest.mark.parametrize("when", [0, 2])
async def test_a_failed_compaction_leaves_the_old_state(when):
    bench = await Bench().open()
    await bench.publish(single("a"))
    await bench.compact()
    ids = await bench.publish(single("a", b"2"))
    before = (bench.compaction.ledger_json(), await bench.values())
    bench.compaction.start()
    for _ in range(when):
        await asyncio.sleep(0)
    bench.ground.ledgers.fail_appends = StorageFullError("full")
    await bench.compaction.wait()
    bench.ground.ledgers.fail_appends = None
    assert bench.compaction.status().status == "ERROR"
    assert bench.compaction.stats().failed_ms
    assert (bench.compaction.ledger_json(), await bench.values()) == before
    held = [k for k, ledger in bench.ground.ledgers._ledgers.items() if "compacted" in ledger.properties]
    assert held == [before[0]["ledgerId"]], "the one it was writing is deleted"
    await bench.compact()
    assert [v[0] for v in await bench.values()] == ids


async def test_a_damaged_entry_fails_the_compaction():
    bench = await Bench(Ground(MemoryLedgerStore(cached=False))).open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(5)])
    bench.ground.ledgers.corrupt.add(ids[2])
    bench.compaction.start()
    await bench.compaction.wait()
    assert bench.compaction.status().status == "ERROR"
    bench.settings.skip_damaged = True
    await bench.compact()
    assert [v[0] for v in await bench.values()] == [*ids[:2], *ids[3:]]


async def test_a_damaged_compacted_entry_is_no_entry_of_the_log_to_skip():
    bench = await Bench(Ground(MemoryLedgerStore(cached=False))).open()
    await bench.publish(single("a"), single("b"))
    await bench.compact()
    ledger_id = bench.compaction.current().ledger.ledger_id
    bench.ground.ledgers.corrupt |= {Position(ledger_id, entry_id) for entry_id in range(2)}
    with pytest.raises(StorageError) as caught:
        await read_on(bench.reader())
    assert not isinstance(caught.value, CorruptEntryError)


@pytest.mark.parametrize("damaged", [(4,), (4, 5, 6), (5, 6)])
async def test_a_damaged_compacted_entry_holds_no_reader_behind_it(damaged):
    """The search for the place of a reader met the damaged entry, wherever the reader was."""
    bench = await Bench(Ground(MemoryLedgerStore(cached=False))).open()
    ids = await bench.publish(*[single(f"k{i}") for i in range(10)])
    await bench.compact()
    ledger_id = bench.compaction.current().ledger.ledger_id
    bench.ground.ledgers.corrupt |= {Position(ledger_id, entry_id) for entry_id in damaged}
    assert [v[0] for v in await bench.values(ids[7])] == ids[7:]
    reader = bench.reader(ids[1])
    assert [p for p, _ in entries_of(await reader.read(100, 1 << 20))] == ids[1 : damaged[0]]
    with pytest.raises(StorageError):
        await reader.read(100, 1 << 20)


@pytest.mark.parametrize("step", ["_save", "write_survivors"])
async def test_closing_deletes_the_ledger_that_a_compaction_writes(step, monkeypatch):
    """No record may name the ledger: it stayed with its writer in memory, and on bookies for good."""
    bench = await Bench().open()
    await bench.publish(single("a", b"1"))
    ledgers, begun = bench.ground.ledgers, asyncio.Event()

    async def compacted():
        return [each for each in await ledgers.list_ledgers() if COMPACTED in await ledgers.properties(each)]

    async def stands_still(*_):
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(TopicCompaction if step == "_save" else Compactor, step, stands_still)
    bench.compaction.start()
    await begun.wait()
    assert len(await compacted()) == 1
    await bench.compaction.close()
    assert await compacted() == []


async def test_closing_stops_a_compaction():
    bench = await Bench().open()
    await bench.publish(*[single(f"k{i}") for i in range(2000)])
    bench.compaction.start()
    await settle(3)
    await bench.compaction.close()
    assert not bench.compaction.is_running
    assert not bench.compaction.start()
    bench = await bench.restart()
    await bench.compact()
    assert len(await bench.values()) == 2000


async def test_deletion_takes_the_compacted_ledger_along():
    bench = await Bench().open()
    await bench.publish(single("a"))
    await bench.compact()
    await bench.compaction.close()
    await bench.log.begin_deletion(bench.compaction.ledger_ids)
    await bench.log.delete()
    assert await bench.ground.ledgers.list_ledgers() == []


async def test_threshold():
    bench = await Bench().open()
    await bench.publish(*[single(f"k{i % 3}", bytes(100)) for i in range(20)])
    bench.compaction.start_if_needed(0)
    bench.compaction.start_if_needed(1 << 20)
    assert not bench.compaction.is_running
    bench.compaction.start_if_needed(1000)
    assert bench.compaction.is_running
    await bench.compaction.wait()
    bench.compaction.start_if_needed(1000)
    assert not bench.compaction.is_running
    assert bench.log.cursors[COMPACTION_CURSOR].backlog_entries == 0


async def test_last_entry():
    bench = await Bench().open()
    ids = await bench.publish(batch(("a", b"1"), ("b", b"1"), ("a", b"")), single(None, b"gone"))
    assert not bench.compaction.covers_all
    await bench.compact()
    assert bench.compaction.covers_all
    span = await bench.compaction.last_entry()
    assert span.first_position == ids[0]
    assert messages_of(bytes(span.body(0)))[-1][0] == 1
    await bench.publish(single("c"))
    assert not bench.compaction.covers_all


async def test_a_lost_compacted_ledger_is_made_again():
    bench = await Bench().open()
    ids = await bench.publish(single("a"), single("b"))
    await bench.compact()
    await bench.ground.ledgers.delete(bench.compaction.ledger_json()["ledgerId"])
    bench = await bench.restart()
    assert bench.compaction.current() is None
    assert [v[0] for v in await bench.values()] == ids
    await bench.compact()
    assert [v[0] for v in await bench.values()] == ids
