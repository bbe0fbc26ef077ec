"""Exclusive and Failover as a client sees them."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.dispatchers.ports import Parked, Transformed
from magnetar.broker.errors import (
    BrokerError,
    ConsumerBusyError,
    MetadataError,
    ServiceNotReadyError,
    SubscriptionBusyError,
)
from magnetar.storage.errors import StorageFailedError
from magnetar.storage.position import EARLIEST
from magnetar.storage.slab import Span
from tests.broker.dispatch_fakes import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Bench,
    KeySharedPolicy,
    entry,
    got,
)
from tests.twins.fake_connection import FakeConnection


async def test_nothing_is_sent_before_flow():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE)
    bench.publish(entry(), entry())
    assert got(consumer) == []
    bench.flow(consumer, 1)
    assert got(consumer) == [0]
    bench.flow(consumer, 5)
    assert got(consumer) == [1]
    assert consumer.permits.available == 4


async def test_a_turn_is_one_write():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=1000)
    bench.publish(*[entry(b"%d" % i) for i in range(500)])
    assert got(consumer) == list(range(500))
    assert consumer.outbox.writes == 1


async def test_large_reads_of_a_turn_are_not_joined():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=1000)
    bench.publish(*[entry(bytes(2000)) for _ in range(250)])
    assert len(got(consumer)) == 250
    assert consumer.outbox.writes == 3, "one for each read of at most a hundred entries"


async def test_permits_count_messages_and_every_entry_read_is_sent():
    """Verified against Apache Pulsar 4.2.4: FLOW 2, 3, 5, 4 on batches of three give 2, 0, 4, 0 entries."""
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE)
    bench.publish(*[entry(batch=3) for _ in range(12)])
    sent = []
    for permits in (2, 3, 5, 4):
        bench.flow(consumer, permits)
        sent.append(len(got(consumer)))
    assert sent == [2, 0, 4, 0]
    assert consumer.permits.available == 14 - 18


async def test_second_exclusive_consumer_is_refused_while_the_first_lives():
    bench = Bench()
    first = await bench.join(EXCLUSIVE)
    with pytest.raises(ConsumerBusyError):
        await bench.join(EXCLUSIVE)
    first.outbox.alive = False
    second = await bench.join(EXCLUSIVE, permits=10)
    assert list(bench.subscription.consumers) == [second]
    bench.publish(entry())
    assert got(second) == [0]


@pytest.mark.parametrize("other", [SHARED, FAILOVER, KEY_SHARED])
async def test_types_do_not_mix_but_may_change_without_consumers(other):
    bench = Bench()
    first = await bench.join(EXCLUSIVE)
    with pytest.raises(SubscriptionBusyError):
        await bench.join(other)
    bench.leave(first)
    await bench.join(other)
    assert bench.subscription.sub_type == other


async def test_redelivery_is_a_rewind_to_the_mark_delete_position():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(*[entry() for _ in range(4)])
    assert got(consumer) == [0, 1, 2, 3]
    bench.ack(consumer, positions[1], cumulative=True)
    bench.ack(consumer, positions[2])
    bench.redeliver(consumer)
    messages = consumer.outbox.take()
    assert [m.position.entry_id for m in messages] == [3]
    assert messages[0].count == 0


async def test_named_messages_of_an_exclusive_consumer_redeliver_all():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(entry(), entry())
    got(consumer)
    bench.redeliver(consumer, positions[1])
    assert [(m.position.entry_id, m.count) for m in consumer.outbox.take()] == [(0, 0), (1, 0)]


async def test_epochs_grow_and_are_carried():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10, epoch=3)
    bench.publish(entry())
    assert [m.epoch for m in consumer.outbox.take()] == [3]
    bench.redeliver(consumer, epoch=5)
    assert [m.epoch for m in consumer.outbox.take()] == [5]
    bench.redeliver(consumer, epoch=4)
    assert [m.epoch for m in consumer.outbox.take()] == [5]
    bench.redeliver(consumer)
    assert [m.epoch for m in consumer.outbox.take()] == [5]


async def test_without_an_epoch_none_is_sent():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.publish(entry())
    assert [m.epoch for m in consumer.outbox.take()] == [None]


async def test_next_consumer_starts_after_the_acknowledged():
    bench = Bench()
    first = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(*[entry() for _ in range(3)])
    bench.ack(first, positions[0])
    bench.leave(first)
    second = await bench.join(EXCLUSIVE, permits=10)
    bench.clock.run()
    assert got(second) == [1, 2]


async def test_a_stuck_peer_gets_nothing_until_it_is_writable():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=1000)
    consumer.outbox.writable = False
    bench.publish(*[entry() for _ in range(10)])
    bench.publish(entry())
    assert got(consumer) == []
    assert len(consumer.outbox.waiting) == 1
    consumer.outbox.become_writable()
    bench.clock.run()
    assert got(consumer) == list(range(11))


async def test_one_turn_is_bounded_in_bytes():
    bench = Bench()
    outbox = FakeConnection()
    consumer = await bench.join(EXCLUSIVE, permits=10_000, outbox=outbox)
    limit = 0

    def full(_message):
        nonlocal limit
        limit += 1
        outbox.writable = False

    outbox.on_message = full
    bench.publish(*[entry(bytes(10_000)) for _ in range(300)])
    assert 0 < limit < 150
    sizes = [limit]
    while limit < 300:
        before = limit
        outbox.become_writable()
        bench.clock.run()
        sizes.append(limit - before)
    assert got(consumer) == list(range(300))


async def test_markers_and_unreadable_entries_are_acknowledged_and_skipped():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.publish(entry(), entry(marker_type=21), b"\0\0\0\5junk!", entry())
    assert got(consumer) == [0, 3]
    assert bench.cursor.deleted == {1, 2}
    assert consumer.permits.available == 8


async def test_hash_ranges_of_an_exclusive_consumer_leave_the_others_in_the_backlog():
    bench = Bench()
    # sticky hashes: k1 24618, k2 32712, key1 293
    policy = KeySharedPolicy(sticky=True, ranges=((24618, 24618), (30000, 40000)))
    consumer = await bench.join(EXCLUSIVE, permits=10, key_shared=policy)
    bench.publish(entry(key="k1"), entry(key="key1"), entry(key="k2"), entry(key="key1"))
    assert got(consumer) == [0, 2]
    assert not bench.cursor.deleted


async def test_cumulative_ack_needs_exactly_one_id():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(entry(), entry(), entry())
    bench.ack(consumer, positions[0], positions[2], cumulative=True)
    assert not bench.cursor.deleted
    bench.ack(consumer, cumulative=True)
    bench.ack(consumer, positions[1], cumulative=True)
    assert bench.cursor.deleted == {0, 1}


async def test_part_of_a_batch_is_redelivered_with_its_ack_set():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(entry(batch=3), entry())
    got(consumer)
    bench.ack(consumer, positions[0], ack_set=[0b101])
    available = consumer.permits.available
    bench.redeliver(consumer)
    messages = consumer.outbox.take()
    assert [(m.position.entry_id, m.ack_set) for m in messages] == [(0, (0b101,)), (1, ())]
    assert consumer.permits.available == available - 3


async def test_ack_waits_for_the_flush_only_when_a_request_id_is_given():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(entry(), entry())
    assert bench.ack(consumer, positions[0]) is None
    durable = bench.ack(consumer, positions[1], request_id=5)
    assert bench.cursor.flushes == 0
    await durable
    assert bench.cursor.flushes == 1


async def test_acks_of_missing_entries_change_nothing():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.publish(entry())
    for position in [(99, 7), (7, 2**40), (2**64 - 1, 2**64 - 1), (7, 5)]:
        bench.ack(consumer, position)
        bench.ack(consumer, position, ack_set=[1])
    bench.ack(consumer, (2**64 - 1, 2**64 - 1), cumulative=True)
    assert not bench.cursor.deleted


async def test_seek_closes_the_consumer_first_and_reads_from_there():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(*[entry() for _ in range(3)])
    bench.ack(consumer, positions[2], cumulative=True)
    got(consumer)
    await bench.subscription.seek(positions[1])
    assert consumer.outbox.names() == ["CLOSE_CONSUMER"]
    assert consumer.outbox.consumers == {}
    assert not bench.subscription.consumers
    again = await bench.join(EXCLUSIVE, permits=10)
    bench.clock.run()
    assert got(again) == [1, 2]


async def test_seek_is_fenced_against_itself_and_joiners_wait_for_it():
    bench = Bench()
    await bench.join(EXCLUSIVE, permits=10)
    moving = bench.subscription.seek(EARLIEST)
    moving.send(None)
    with pytest.raises(BrokerError, match="Failed to fence subscription"):
        await bench.subscription.seek(EARLIEST)
    joining = asyncio.ensure_future(bench.join(EXCLUSIVE))
    await asyncio.sleep(0)
    assert not bench.subscription.consumers
    with pytest.raises(StopIteration):
        moving.send(None)
    joined = await joining
    assert list(bench.subscription.consumers) == [joined]


async def test_the_end_of_a_seek_does_not_open_a_subscription_that_was_closed_meanwhile():
    """The consumer that waits for the seek subscribes again; a closed subscription would send it nothing."""
    bench = Bench()
    await bench.join(EXCLUSIVE, permits=10)
    moving = bench.subscription.seek(EARLIEST)
    moving.send(None)
    joining = asyncio.ensure_future(bench.join(EXCLUSIVE))
    await asyncio.sleep(0)
    await bench.subscription.close()
    with pytest.raises(StopIteration):
        moving.send(None)
    with pytest.raises(ServiceNotReadyError):
        await joining
    assert not bench.subscription.consumers


async def test_unsubscribe_wants_the_only_consumer_or_force():
    bench = Bench()
    first = await bench.join(FAILOVER, "a")
    second = await bench.join(FAILOVER, "b")
    with pytest.raises(MetadataError):
        bench.subscription.unsubscribe(first)
    bench.subscription.unsubscribe(first, force=True)
    assert second.outbox.names()[-1] == "CLOSE_CONSUMER"
    assert not bench.subscription.consumers
    with pytest.raises(ServiceNotReadyError):
        await bench.join(FAILOVER)


async def test_end_of_topic_follows_the_last_ack_and_for_late_comers_the_next_read():
    """Reads at the end follow after 15 s, then 30 s, then each minute, and notify each consumer once."""
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(entry(), entry())
    bench.subscription.on_terminated()
    bench.ack(consumer, positions[0])
    assert consumer.outbox.names() == ["MESSAGE", "MESSAGE"]
    bench.ack(consumer, positions[1])
    assert consumer.outbox.names()[2:] == ["REACHED_END_OF_TOPIC"]
    bench.flow(consumer, 1)
    assert consumer.outbox.names()[3:] == []
    bench.ack(consumer, positions[1])
    assert consumer.outbox.names()[3:] == ["REACHED_END_OF_TOPIC"]
    bench.leave(consumer)
    late = await bench.join(EXCLUSIVE)
    assert late.outbox.names() == []
    bench.flow(late, 1)
    assert late.outbox.names() == []
    for wait_s, told in ((15, ["REACHED_END_OF_TOPIC"]), (30, []), (60, []), (60, [])):
        bench.clock.advance(wait_s - 0.5)
        assert late.outbox.names() == []
        bench.clock.advance(0.5)
        assert late.outbox.names() == told, "no consumer is notified twice by the wait alone"
        late.outbox.frames.clear()


async def test_consumers_that_wait_when_the_topic_is_terminated_are_notified_once():
    """Apache Pulsar 4.2.4 sends nothing more within 100 s."""
    for sub_type in (EXCLUSIVE, SHARED):
        bench = Bench()
        consumer = await bench.join(sub_type, permits=10)
        bench.subscription.on_terminated()
        bench.clock.advance(200)
        assert consumer.outbox.names() == ["REACHED_END_OF_TOPIC"]


async def test_each_request_to_terminate_notifies_the_consumers_at_the_end():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    (position,) = bench.publish(entry())
    bench.subscription.on_terminated(by_request=True)
    bench.subscription.on_terminated(by_request=True)
    assert consumer.outbox.names() == ["MESSAGE"]
    bench.ack(consumer, position)
    bench.subscription.on_terminated(by_request=True)
    assert consumer.outbox.names()[1:] == ["REACHED_END_OF_TOPIC"] * 2
    bench.subscription.on_terminated()
    assert consumer.outbox.names()[3:] == [], "a consumer that joins asks for nothing"


async def test_a_terminated_topic_is_at_its_end_for_the_first_reader_there():
    bench = Bench()
    waiting = await bench.join(SHARED, permits=1)
    bench.subscription.on_terminated()
    assert waiting.outbox.names() == ["REACHED_END_OF_TOPIC"]
    bench.flow(waiting, 1)
    assert waiting.outbox.names()[1:] == []
    bench = Bench()
    first, second = await bench.join(SHARED), await bench.join(SHARED)
    bench.subscription.on_terminated()
    assert first.outbox.names() == second.outbox.names() == ["REACHED_END_OF_TOPIC"]
    bench.flow(first, 1)
    assert first.outbox.names()[1:] == second.outbox.names()[1:] == ["REACHED_END_OF_TOPIC"]
    bench.flow(second, 1)
    assert second.outbox.names()[2:] == []


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED])
async def test_the_first_consumer_behind_a_seek_to_the_end_of_the_topic_is_notified_at_its_first_read(sub_type):
    """The wait for the next read at the end outlived the SEEK, and was up to a minute."""
    bench = Bench()
    consumer = await bench.join(sub_type, permits=10)
    (position,) = bench.publish(entry())
    bench.subscription.on_terminated()
    bench.ack(consumer, position)
    bench.flow(consumer, 1)
    await bench.subscription.seek(position._replace(entry_id=position.entry_id + 1))
    behind = await bench.join(sub_type, permits=10)
    assert behind.outbox.names() == ["REACHED_END_OF_TOPIC"]


async def test_readers_at_the_end_hear_of_a_dropped_backlog():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE)
    positions = bench.publish(entry(), entry())
    bench.subscription.on_terminated()
    bench.cursor.ack_cumulative(positions[1])
    bench.subscription.backlog_dropped(positions[1])
    bench.clock.run()
    assert consumer.outbox.names() == []
    bench.flow(consumer, 1)
    assert consumer.outbox.names() == ["REACHED_END_OF_TOPIC"]


class LateConverter:
    """Parks the first entry for a second at the first attempt and sends everything later."""

    flags = 0

    def __init__(self):
        self.attempts = 0

    def __call__(self, spans, _order):
        self.attempts += 1
        if self.attempts > 1:
            return Transformed(spans=spans)
        return Transformed(parked=[Parked(next(iter(spans[0].cut(1))), 1000)], rest=spans)


async def test_a_timer_before_its_time_by_the_wall_clock_loses_no_attempt():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    behind_ms = 0
    bench.subscription.context.now_ms = lambda: bench.clock.now_ms() - behind_ms
    bench.subscription.context.transform = converter = LateConverter()
    bench.publish(entry(), entry())
    assert (got(consumer), converter.attempts) == ([], 1)
    behind_ms = 20
    bench.clock.advance(1.0)
    assert got(consumer) == []
    bench.clock.advance(0.05)
    assert (got(consumer), converter.attempts) == ([0, 1], 2)


class PassingConverter:
    """Passes over some entries at the first attempt, each for a second, and holds back the rest behind another."""

    flags = 0

    def __init__(self, passed, stop_at=None):
        self.passed, self.stop_at = passed, stop_at

    def __call__(self, spans, _order):
        singles = [Span(each.slab, k, k + 1) for each in spans for k in range(each.start, each.end)]
        passed, stop_at = self.passed, self.stop_at
        self.passed, self.stop_at = (), None
        rest = [] if stop_at is None else singles[stop_at:]
        sent = singles[: len(singles) - len(rest)]
        return Transformed(
            spans=[each for k, each in enumerate(sent) if k not in passed],
            parked=[Parked(singles[k], 1000) for k in passed] + [Parked(each, 1000) for each in rest[:1]],
            rest=rest,
        )


async def test_an_entry_that_was_passed_over_comes_after_a_failed_read():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.subscription.context.transform = PassingConverter((0,))
    bench.publish(entry(), entry())
    assert got(consumer) == [1]
    read, errors = bench.cursor.read_positions, [StorageFailedError("no disk")]

    def read_positions(positions):
        if errors:
            raise errors.pop()
        return read(positions)

    bench.cursor.read_positions = read_positions
    bench.clock.advance(1.0)
    assert (got(consumer), errors) == ([], [])
    bench.clock.advance(60)
    assert got(consumer) == [0]
    bench.clock.advance(60)
    assert got(consumer) == []


async def test_an_entry_that_was_passed_over_before_the_held_entries_comes_too():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.subscription.context.transform = PassingConverter((0,), stop_at=1)
    bench.publish(entry(), entry())
    assert got(consumer) == []
    bench.clock.advance(1.0)
    assert sorted(got(consumer)) == [0, 1]
