"""A consumer gives back, or leaves behind, everything it holds: the work of the turn, and where the entries go."""

from __future__ import annotations

import asyncio

import pytest
from pyroaring import BitMap

from magnetar.broker.dispatchers.keyed_spans import KeyHashes
from magnetar.broker.subscriptions.subscription_stats import subscription_stats
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import Position
from tests.broker.dispatch_fakes import FAILOVER, KEY_SHARED, SHARED, Bench, entry, got
from tests.calls import PYTHON, C, calls_of

LEDGER = 7


async def holding(sub_type, entries: int):
    """A bench with two consumers, the first of which holds so many entries."""
    bench = Bench()
    consumer, other = [await bench.join(sub_type) for _ in range(2)]
    if sub_type == SHARED:
        consumer.pending_acks.add_run(LEDGER, 0, entries)
    else:
        consumer.pending_acks.add_keyed(LEDGER, range(entries), [1 + i % 1000 for i in range(entries)])
    consumer.permits.unacked = entries
    bench.subscription.dispatcher.held.unacked.add(entries)
    return bench, consumer, other


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_redelivery_of_everything_makes_no_call_for_each_entry(sub_type):
    """A call for each of 50,000 entries of Key_Shared took a turn of 0.16 s."""
    counts = []
    for entries in (10, 20_000):
        bench, consumer, _ = await holding(sub_type, entries)
        counts.append(calls_of(lambda: bench.subscription.on_redeliver(consumer, None, None), PYTHON))  # noqa: B023
        held = bench.subscription.dispatcher.held
        assert (len(held.replay), len(consumer.pending_acks)) == (entries, 0)
        assert (consumer.permits.unacked, held.unacked.total) == (0, 0)
        assert consumer.redelivered.total_messages == entries
        assert held.tracker.counts(LEDGER, 0, entries) == [1] * entries
        if sub_type == KEY_SHARED:
            assert held.replay.first_of_hash(10) == (LEDGER, 9)
    assert counts[1] < counts[0] + 1000, counts  # less than one for 20 entries; collections call back


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_redelivery_by_ids_makes_no_call_for_each_entry(sub_type):
    """Six calls for each of the 30,000 ids of a round of the event loop took 0.2 s."""
    counts = []
    for entries in (10, 20_000):
        bench, consumer, _ = await holding(sub_type, 2 * entries)
        ids = [pb.MessageIdData(ledgerId=LEDGER, entryId=2 * number) for number in reversed(range(entries))]
        counts.append(calls_of(lambda: bench.subscription.on_redeliver(consumer, ids, None), PYTHON))  # noqa: B023
        held = bench.subscription.dispatcher.held
        assert (len(held.replay), len(consumer.pending_acks)) == (entries, entries)
        assert (consumer.permits.unacked, held.unacked.total) == (entries, entries)
        assert consumer.redelivered.total_messages == entries
        assert held.tracker.counts(LEDGER, 0, 2 * entries) == [1, 0] * entries
        if sub_type == KEY_SHARED:
            assert held.replay.first_of_hash(11) == (LEDGER, 10)
    assert counts[1] < counts[0] + 1000, counts


async def test_redelivery_by_ids_makes_no_call_for_ledgers_that_the_consumer_does_not_hold():
    """A command of 1 MB names 120,000 ledgers; four calls for each took 0.8 s in one round of the event loop."""
    counts = []
    for ledgers in (10, 20_000):
        bench, consumer, _ = await holding(SHARED, 10)
        ids = [pb.MessageIdData(ledgerId=LEDGER + 1 + number, entryId=0) for number in range(ledgers)]
        ids.append(pb.MessageIdData(ledgerId=LEDGER, entryId=3))
        counts.append(calls_of(lambda: bench.subscription.on_redeliver(consumer, ids, None), PYTHON))  # noqa: B023
        assert (len(bench.subscription.dispatcher.held.replay), len(consumer.pending_acks)) == (1, 9)
    assert counts[1] < counts[0] + 1000, counts


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_a_consumer_that_leaves_makes_no_call_for_each_entry(sub_type):
    counts = []
    for entries in (10, 20_000):
        bench, consumer, _ = await holding(sub_type, entries)
        counts.append(calls_of(lambda: bench.subscription.remove_consumer(consumer), PYTHON))  # noqa: B023
        held = bench.subscription.dispatcher.held
        assert (len(held.replay), held.unacked.total, bool(held.tracker)) == (entries, 0, False)
    assert counts[1] < counts[0] + 1000, counts  # less than one for 20 entries; collections call back


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_turn_of_key_shared_takes_in_few_of_the_entries_that_come_back(leaves):
    """50,000 entries of as many keys took a turn of 0.1 s, and 0.2 s beside draining hashes."""
    entries = 40_000
    bench, consumer, other = await holding(KEY_SHARED, entries)
    bench.log.append(*[entry(key=f"k{i}") for i in range(entries)])
    bench.cursor.at = entries
    dispatcher, turns = bench.subscription.dispatcher, bench.subscription.context.turns
    hashes = KeyHashes(bench.log.slabs[0], dispatcher.selector)
    consumer.pending_acks.clear()
    consumer.pending_acks.add_keyed(LEDGER, range(entries), [hashes[i] for i in range(entries)])
    dispatcher.add_consumer(bench.new(KEY_SHARED))
    assert dispatcher.draining
    other.permits.flow(5)
    counts = [calls_of(lambda: come_back(bench, consumer, leaves=leaves), C)]
    assert not dispatcher.draining
    while turns._waiting:
        counts.append(calls_of(turns._round, C))
    assert len(got(other)) == 5
    assert max(counts) < 60_000, counts  # some six for each of 8,192 entries
    assert len(counts) > entries // 8192, counts


@pytest.mark.parametrize("keys", [1, 40, 20_000])
async def test_changes_of_owners_in_every_turn_do_not_stop_a_subscription(keys):
    """20,000 entries get their owners in three turns; a consumer that joined or left in each turn stopped the rest."""
    entries = 20_000
    bench, consumer, other = await holding(KEY_SHARED, entries)
    bench.log.append(*[entry(key=f"k{i % keys}") for i in range(entries)])
    bench.cursor.at = entries
    dispatcher, turns = bench.subscription.dispatcher, bench.subscription.context.turns
    hashes = KeyHashes(bench.log.slabs[0], dispatcher.selector)
    consumer.pending_acks.clear()
    consumer.pending_acks.add_keyed(LEDGER, range(entries), [hashes[i] for i in range(entries)])
    other.permits.flow(entries)
    guests = [bench.new(KEY_SHARED) for _ in range(2)]
    come_back(bench, consumer, leaves=True)
    received, worked = [], []
    for turn in range(40):
        for guest in guests:
            (dispatcher.remove_consumer if turn % 2 else dispatcher.add_consumer)(guest)
        if turns._waiting and turn < 10:
            worked.append(calls_of(turns._round, C))
        elif turns._waiting:
            turns._round()
        received += got(other)
    assert len(received) >= 500, len(received)
    assert max(worked) < 90_000, worked
    next_of_key = list(range(keys))
    for entry_id in received:
        assert next_of_key[entry_id % keys] == entry_id, "the order of the key"
        next_of_key[entry_id % keys] += keys


def come_back(bench, consumer, *, leaves):
    if leaves:
        bench.subscription.remove_consumer(consumer)
    else:
        bench.subscription.on_redeliver(consumer, None, None)


async def test_a_read_that_ends_while_many_entries_come_back_overtakes_no_entry_of_its_key():
    bench = Bench(cold=True)
    consumer = await bench.join(KEY_SHARED)
    keys = [f"k{i % 500}" for i in range(20_000)]
    positions = bench.log.append(*[entry(key=key) for key in keys])
    hashes = KeyHashes(bench.log.slabs[0], bench.subscription.dispatcher.selector)
    consumer.pending_acks.add_keyed(LEDGER, range(19_000), [hashes[i] for i in range(19_000)])
    bench.subscription.dispatcher.held.unacked.add(19_000)
    consumer.permits.unacked = bench.cursor.at = 19_000
    bench.flow(consumer, 30_000)  # a cold read of the last entries begins
    bench.subscription.on_redeliver(consumer, None, None)
    received = []
    while len(received) < 20_000:
        await bench.settle()
        received += got(consumer)
    assert sorted(received) == [p.entry_id for p in positions]
    for key in range(500):
        assert [e for e in received if e % 500 == key] == list(range(key, 20_000, 500))


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_the_expiry_of_everything_makes_no_call_for_each_entry(sub_type):
    """200,000 entries that were held, or waited to be sent again, took a turn of 0.6 s."""
    counts = []
    for entries in (10, 20_000):
        bench, consumer, _ = await holding(sub_type, entries)
        held = bench.subscription.dispatcher.held
        held.replay.add_held(LEDGER, BitMap(range(entries, 2 * entries)), {entries: 7})
        held.tracker.increment_all(LEDGER, BitMap(range(2 * entries)))
        position = Position(LEDGER, 2 * entries - 2)
        counts.append(calls_of(lambda: bench.subscription.backlog_dropped(position), PYTHON))  # noqa: B023
        assert (list(held.replay), len(consumer.pending_acks)) == ([position.next()], 0)
        assert (consumer.permits.unacked, held.unacked.total) == (0, 0)
        assert held.tracker.counts(LEDGER, 0, 2 * entries) == [0] * (2 * entries - 1) + [1]
    assert counts[1] < counts[0] + 1000, counts  # less than one for 20 entries; collections call back


async def test_entries_acknowledged_up_to_mark_delete_do_not_come_back(monkeypatch):
    bench, consumer, _ = await holding(SHARED, 20)
    consumer.pending_acks.add(LEDGER - 1, 3, 2)
    monkeypatch.setattr(type(bench.cursor), "mark_delete", Position(LEDGER, 4))
    bench.subscription.on_redeliver(consumer, None, None)
    held = bench.subscription.dispatcher.held
    assert [entry_id for _, entry_id in held.replay] == list(range(5, 20))
    assert held.tracker.counts(LEDGER, 0, 6) == [0, 0, 0, 0, 0, 1]
    assert consumer.redelivered.total_messages == 22


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_the_redelivery_of_an_entry_that_cannot_exist_loses_no_other_entry(kind):
    bench = Bench()
    consumer = await bench.join(kind, permits=10)
    positions = bench.publish(entry(key="a"), entry(key="b"))
    assert got(consumer) == [0, 1]
    bench.redeliver(consumer, positions[0], (positions[0].ledger_id, 1 << 32), positions[1])
    assert got(consumer) == [0, 1]


@pytest.mark.parametrize("ack_set", [(), (0b110,)])
async def test_acknowledgements_of_entries_that_no_consumer_holds_look_at_each_consumer_once(ack_set):
    """With a thousand consumers 5,000 such ids took a turn of 0.8 s."""
    counts = []
    for consumers in (2, 102):
        bench = Bench(batch_index_acks=True)
        first, *others = [await bench.join(SHARED) for _ in range(consumers)]
        positions = bench.publish(*[entry(batch=3) for _ in range(400)])
        for consumer in others:
            consumer.pending_acks.add(LEDGER - 1, 0, 3)
            consumer.pending_acks.add(LEDGER, 1000, 3)
        counts.append(calls_of(lambda: bench.ack(first, *positions, ack_set=ack_set), PYTHON))  # noqa: B023
        assert bench.cursor.backlog_entries == (400 if ack_set else 0)
    assert counts[1] < counts[0] + 2000, counts


@pytest.mark.parametrize("ack_set", [(), (0b110,)])
async def test_acknowledgements_by_another_consumer_release_the_holder(ack_set):
    bench = Bench(batch_index_acks=True)
    holder, other = await bench.join(SHARED, permits=60), await bench.join(SHARED)
    positions = bench.publish(*[entry(batch=3) for _ in range(20)])
    assert (len(got(holder)), holder.permits.unacked) == (20, 60)
    bench.ack(other, *positions, ack_set=ack_set)
    left = 40 if ack_set else 0
    assert (holder.permits.unacked, bench.subscription.dispatcher.held.unacked.total) == (left, left)
    assert (len(holder.pending_acks), other.acks.total_messages) == (20 if ack_set else 0, 60 - left)
    bench.ack(other, *positions)
    assert (holder.permits.unacked, len(holder.pending_acks)) == (0, 0)


async def test_joins_of_consumers_that_hold_many_messages_have_a_turn_each():
    """200 joins looked through 200,000 held messages each, 64 of them in a round of the loop: 4.7 s."""
    bench, _, _ = await holding(KEY_SHARED, 20_000)
    joins = [asyncio.ensure_future(bench.join(KEY_SHARED)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(bench.subscription.consumers) == 2, "a join began in the round of its request"
    for present in (3, 4, 5):
        bench.subscription.context.turns._round()
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(bench.subscription.consumers) == present
    await asyncio.gather(*joins)


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED, FAILOVER])
async def test_all_consumers_are_disconnected_at_once(sub_type):
    """The broker removed one after the other; 2,000 consumers of a Failover subscription took 1.8 s."""
    bench, counts = Bench(), []
    for members in (10, 500):
        consumers = [await bench.join(sub_type, permits=1) for _ in range(members)]
        bench.clock.advance(1)
        counts.append(calls_of(bench.subscription.disconnect_all, PYTHON) / members)
        assert not bench.subscription.consumers
        bench.clock.run()
        assert all(consumer.outbox.names()[-1] == "CLOSE_CONSUMER" for consumer in consumers)
        assert not bench.subscription.dispatcher.held or bench.subscription.dispatcher.held.unacked.total == 0
    assert counts[1] <= 2 * counts[0], counts
    bench.publish(entry())
    back = await bench.join(sub_type, permits=5)
    bench.clock.advance(1)
    assert got(back) == [0]


async def test_a_join_of_key_shared_makes_no_call_for_each_held_entry():
    """A join beside 200,000 held messages took a turn of 0.2 s."""
    counts = []
    for entries in (10, 20_000):
        bench, consumer, _ = await holding(KEY_SHARED, entries)
        dispatcher, joins = bench.subscription.dispatcher, bench.new(KEY_SHARED)
        counts.append(calls_of(lambda: dispatcher.add_consumer(joins), PYTHON))  # noqa: B023
        owners = {key_hash: dispatcher.selector.select(key_hash) for key_hash in range(1, 1001)}
        held = consumer.pending_acks.by_hash(bytearray(b"\1" * 65536))
        moved = [key_hash for key_hash in held if owners[key_hash] is joins]
        drained = {each.key_hash: each.unacked_entries for each in dispatcher.draining.of(consumer)}
        assert drained == {key_hash: held[key_hash] for key_hash in moved}
        assert list(drained) == moved
    assert counts[1] < counts[0] + 4000, counts  # a few for each of a thousand hashes


async def test_changes_beside_a_draining_hash_make_no_call_for_each_waiting_entry():
    """Each change walked through all waiting entries: 100,000 entries took a turn of 0.1 s."""
    counts = []
    for entries in (10, 20_000):
        bench = Bench()
        former = await bench.join(KEY_SHARED)
        former.pending_acks.add_keyed(LEDGER, range(100), range(1, 60_000, 600))
        await bench.join(KEY_SHARED, permits=5)
        dispatcher = bench.subscription.dispatcher
        draining = [each.key_hash for each in dispatcher.draining.of(former)]
        ids = range(100, 100 + entries)
        dispatcher.held.replay.add_refused(LEDGER, ids, [draining[i % 3] for i in ids])
        assert dispatcher._replayable(2) == []
        found = []

        def change(dispatcher=dispatcher, former=former, entry_id=draining[0] // 600, found=found):
            found.append(dispatcher._replayable(2))
            dispatcher.held.acked(former, LEDGER, [entry_id])
            found.append(dispatcher._replayable(2))

        counts.append(calls_of(change, PYTHON))
        assert found == [[], [Position(LEDGER, 102), Position(LEDGER, 105)]]
    assert counts[1] < counts[0] + 100, counts


async def test_a_position_of_an_unknown_hash_makes_no_call_for_each_waiting_entry():
    """While the hash of a delayed entry was not known, each read walked through all entries that waited before it."""
    counts = []
    for entries in (10, 20_000):
        bench = Bench()
        await bench.join(KEY_SHARED, permits=0)
        replay = bench.subscription.dispatcher.held.replay
        replay.add_refused(LEDGER, range(entries), [1 + i % 9 for i in range(entries)])
        replay.add(LEDGER, entries)
        assert bench.subscription.dispatcher._replayable(2) == [Position(LEDGER, entries)]
        counts.append(calls_of(lambda bench=bench: bench.subscription.dispatcher._replayable(2), PYTHON))
    assert counts[1] < counts[0] + 100, counts


@pytest.mark.parametrize("ack_set", [[], [1]])
async def test_an_acknowledgement_spends_for_the_consumers_that_it_looks_at(ack_set):
    bench = Bench()
    consumers = [await bench.join(SHARED) for _ in range(200)]
    first, last = consumers[0], consumers[-1]
    bench.flow(last, 1)
    (position,) = bench.publish(entry(batch=2))
    bench.ack(last, position, ack_set=[3])
    assert last.outbox.spent == 0
    bench.ack(first, position, ack_set=ack_set)
    assert (first.outbox.spent, last.permits.unacked) == (200 // 64, len(ack_set))


async def test_a_blocked_subscription_redelivers():
    bench = Bench(max_unacked_per_subscription=4)
    c = await bench.join(permits=10)
    positions = bench.publish(*[entry() for _ in range(4)])
    assert got(c) == [0, 1, 2, 3]
    bench.publish(entry())
    bench.redeliver(c, positions[1])
    assert got(c) == [1]
    assert subscription_stats(bench.subscription).blocked_on_unacked
