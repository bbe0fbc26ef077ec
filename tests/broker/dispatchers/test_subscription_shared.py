"""Shared subscriptions as clients see them."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from magnetar.broker.dispatchers.ports import Order, Transformed
from magnetar.broker.errors import ConsumerBusyError
from magnetar.broker.subscriptions.subscription_stats import consumer_stats, subscription_stats
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from magnetar.storage.position import Position
from tests.broker.dispatch_fakes import SHARED, Bench, entry, got


async def test_messages_are_divided_in_turns_of_twenty():
    bench = Bench()
    a = await bench.join(permits=100)
    b = await bench.join(permits=100)
    bench.publish(*[entry() for _ in range(100)])
    assert got(a) == [*range(20), *range(40, 60), *range(80, 100)]
    assert got(b) == [*range(20, 40), *range(60, 80)]
    assert a.outbox.writes == b.outbox.writes == 1


async def test_permits_follow_the_average_batch():
    """Verified against Apache Pulsar 4.2.4: FLOW 2, 3, 5, 4 on batches of three give 1, 1, 2, 1 entries."""
    bench = Bench()
    consumer = await bench.join()
    bench.publish(*[entry(batch=3) for _ in range(12)])
    sent = []
    for permits in (2, 3, 5, 4):
        bench.flow(consumer, permits)
        sent.append(len(got(consumer)))
    assert sent == [1, 1, 2, 1]


async def test_redelivery_of_named_messages_counts():
    bench = Bench()
    consumer = await bench.join(permits=10)
    positions = bench.publish(entry(), entry(), entry())
    got(consumer)
    for count in (1, 2):
        bench.redeliver(consumer, positions[1])
        assert [(m.position.entry_id, m.count) for m in consumer.outbox.take()] == [(1, count)]
    bench.redeliver(consumer)
    assert [(m.position.entry_id, m.count) for m in consumer.outbox.take()] == [(0, 1), (1, 3), (2, 1)]


async def test_messages_of_others_cannot_be_given_back():
    bench = Bench()
    a = await bench.join(permits=10)
    b = await bench.join()
    positions = bench.publish(entry())
    got(a)
    bench.redeliver(b, positions[0])
    assert got(a) == got(b) == []
    assert a.permits.unacked == 1


async def test_a_consumer_that_leaves_hands_on_without_counting():
    bench = Bench()
    a = await bench.join(permits=10)
    positions = bench.publish(entry(), entry(), entry())
    got(a)
    bench.redeliver(a, positions[2])
    got(a)
    b = await bench.join(permits=10)
    bench.ack(a, positions[1])
    bench.leave(a)
    assert [(m.position.entry_id, m.count) for m in b.outbox.take()] == [(0, 0), (2, 1)]


async def test_counts_are_lost_when_all_consumers_left():
    """Verified against Apache Pulsar 4.2.4."""
    bench = Bench()
    a = await bench.join(permits=10)
    positions = bench.publish(entry(), entry())
    bench.redeliver(a, positions[1])
    bench.leave(a)
    b = await bench.join(permits=10)
    assert [(m.position.entry_id, m.count) for m in b.outbox.take()] == [(0, 0), (1, 0)]


async def test_replay_goes_before_new_messages():
    bench = Bench()
    a = await bench.join(permits=2)
    positions = bench.publish(entry(), entry(), entry())
    assert got(a) == [0, 1]
    bench.subscription.on_redeliver(a, [_id(positions[0])], None)
    bench.flow(a, 1)
    assert got(a) == [0]
    bench.flow(a, 1)
    assert got(a) == [2]


async def test_partial_acks_as_the_oracle_counts_them():
    """Figures of Apache Pulsar 4.2.4: [available permits, unacked messages] after each step."""
    bench = Bench()
    c = await bench.join(permits=10)
    first, second = bench.publish(entry(batch=3), entry(batch=2))

    def figures():
        stats = subscription_stats(bench.subscription).consumers[0]
        return [stats.available_permits, stats.unacked_messages]

    assert figures() == [5, 5]
    assert subscription_stats(bench.subscription).consumers[0].avg_messages_per_entry == 3
    bench.ack(c, first, ack_set=[0b101])
    assert figures() == [5, 4]
    bench.ack(c, first, ack_set=[0b101])
    assert figures() == [5, 4]
    got(c)
    bench.redeliver(c)
    messages = c.outbox.take()
    assert [(m.position.entry_id, m.count, m.ack_set) for m in messages] == [(0, 1, (5,)), (1, 1, ())]
    assert figures() == [1, 4]
    bench.ack(c, first, ack_set=[0b100])
    assert figures() == [1, 3]
    bench.ack(c, first, ack_set=[0])
    assert figures() == [1, 2]
    bench.ack(c, second)
    assert figures() == [1, 0]
    bench.ack(c, second)
    bench.ack(c, (99999, 7))
    assert figures() == [1, 0]
    assert bench.cursor.deleted == {0, 1}


async def test_partial_acks_are_not_kept_when_switched_off():
    bench = Bench(batch_index_acks=False)
    c = await bench.join(permits=10)
    (position,) = bench.publish(entry(batch=2))
    bench.ack(c, position, ack_set=[0b10])
    assert c.permits.unacked == 2
    bench.ack(c, position, ack_set=[0])
    assert c.permits.unacked == 0
    assert bench.cursor.deleted == {0}


async def test_an_ack_of_another_consumer_is_honoured():
    bench = Bench()
    a = await bench.join(permits=40)
    b = await bench.join(permits=1)
    positions = bench.publish(*[entry() for _ in range(20)])
    assert a.permits.unacked == 20
    bench.ack(b, *positions)
    assert a.permits.unacked == 0
    assert subscription_stats(bench.subscription).unacked_messages == 0
    bench.leave(a)
    assert got(b) == []


async def test_cumulative_acks_are_ignored():
    bench = Bench()
    c = await bench.join(permits=10)
    positions = bench.publish(entry(), entry())
    bench.ack(c, positions[1], cumulative=True)
    assert not bench.cursor.deleted


async def test_unacked_limit_of_a_consumer_blocks_and_releases_at_half():
    bench = Bench(max_unacked_per_consumer=10)
    c = await bench.join(permits=100)
    positions = bench.publish(*[entry() for _ in range(30)])
    assert got(c) == list(range(10))
    assert subscription_stats(bench.subscription).consumers[0].blocked_on_unacked
    bench.flow(c, 7)
    assert c.permits.parked == 7
    bench.ack(c, *positions[:4])
    assert got(c) == []
    bench.ack(c, positions[4])
    assert got(c) == list(range(10, 15))
    assert c.permits.available == 107 - 15


async def test_messages_made_possible_by_an_ack_follow_its_answer():
    bench = Bench(max_unacked_per_consumer=2)
    c = await bench.join(permits=10)
    positions = bench.publish(entry(), entry(), entry())
    assert got(c) == [0, 1]
    durable = bench.ack(c, positions[0], request_id=1)
    assert got(c) == []
    await durable
    assert got(c) == []
    bench.clock.run()
    assert got(c) == [2]


async def test_a_partial_ack_starts_the_redelivery_count_anew():
    bench = Bench()
    c = await bench.join(permits=10)
    (position,) = bench.publish(entry(batch=3))
    bench.redeliver(c)
    bench.ack(c, position, ack_set=[0b11])
    c.outbox.take()
    bench.redeliver(c)
    assert [(m.count, m.ack_set) for m in c.outbox.take()] == [(1, (3,))]


async def test_redeliver_releases_a_blocked_consumer():
    bench = Bench(max_unacked_per_consumer=3)
    c = await bench.join(permits=10)
    positions = bench.publish(*[entry() for _ in range(5)])
    assert got(c) == [0, 1, 2]
    bench.redeliver(c, positions[1])
    assert got(c) == [1]
    assert subscription_stats(bench.subscription).consumers[0].blocked_on_unacked


async def test_unacked_limit_of_the_subscription():
    bench = Bench(max_unacked_per_subscription=10, max_read_entries=5)
    a = await bench.join(permits=100)
    b = await bench.join(permits=100)
    positions = bench.publish(*[entry() for _ in range(30)])
    first, second = got(a), got(b)
    assert len(first) + len(second) == 10
    assert subscription_stats(bench.subscription).blocked_on_unacked
    for position in positions[:5]:
        bench.ack(a, position)
    assert got(a) == got(b) == []  # half is left
    bench.ack(b, positions[5])
    assert len(got(a)) + len(got(b)) == 10  # two reads: the first ends below the limit


async def test_raised_limits_release():
    bench = Bench(max_unacked_per_consumer=2)
    c = await bench.join(permits=10)
    bench.publish(*[entry() for _ in range(5)])
    assert got(c) == [0, 1]
    bench.subscription.set_settings(type(bench.subscription.context.settings)(max_unacked_per_consumer=0))
    bench.clock.run()
    assert got(c) == [2, 3, 4]


async def test_only_writable_consumers_are_served():
    bench = Bench()
    a = await bench.join(permits=100)
    b = await bench.join(permits=2)
    a.outbox.writable = False
    bench.publish(*[entry() for _ in range(4)])
    assert got(b) == [0, 1]
    a.outbox.become_writable()
    bench.clock.run()
    assert got(a) == [2, 3]


async def test_limit_of_consumers():
    bench = Bench(max_consumers=1)
    await bench.join()
    with pytest.raises(ConsumerBusyError):
        await bench.join()


async def test_seek_forgets_replay_and_counts():
    bench = Bench()
    c = await bench.join(permits=10)
    positions = bench.publish(*[entry() for _ in range(4)])
    bench.redeliver(c, positions[3])
    await bench.subscription.seek(positions[2])
    assert c.outbox.names()[-1] == "CLOSE_CONSUMER"
    again = await bench.join(permits=10)
    assert [(m.position.entry_id, m.count) for m in again.outbox.take()] == [(2, 0), (3, 0)]


async def test_a_dispatch_counts_once_in_the_average_batch():
    """Verified against Apache Pulsar 4.2.4: 2 and 5 messages sent together are 3.5 for each entry, in stats 4."""
    bench = Bench()
    bench.publish(entry(batch=2))
    bench.publish(entry(batch=5))
    consumer = await bench.join(permits=100)
    assert consumer.stats().avg_messages_per_entry == 4
    bench.publish(entry(batch=1))
    assert consumer.average_messages_per_entry == pytest.approx(3.25)


async def test_each_turn_of_one_read_counts_in_the_average_batch():
    """Verified against Apache Pulsar 4.2.4: of 1, 1, 1 and 5 messages for 5 permits three entries go first, the fourth after."""
    bench = Bench()
    bench.publish(entry(), entry(), entry(), entry(batch=5))
    consumer = await bench.join(permits=5)
    assert got(consumer) == [0, 1, 2, 3]
    assert consumer.average_messages_per_entry == pytest.approx(1.4)
    assert consumer.stats().avg_messages_per_entry == 1


async def test_markers_in_the_middle_are_skipped():
    bench = Bench()
    c = await bench.join(permits=10)
    bench.publish(entry(), entry(marker_type=20), entry())
    assert got(c) == [0, 2]
    assert bench.cursor.deleted == {1}


class Delay:
    """A view that holds everything later than now."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: dict[Position, int] = {}
        self.cleared = 0

    def pending(self, ledger_id):
        return BitMap([p.entry_id for p in self.waiting])

    def offer(self, ledger_id, entries):
        held = {entry_id: deliver_at_ms for entry_id, deliver_at_ms in entries if deliver_at_ms > self.now}
        self.waiting |= {Position(ledger_id, entry_id): at for entry_id, at in held.items()}
        return held

    def holds_none(self, latest_ms, _ledger_id, _first, _last):
        return latest_ms <= self.now

    def take_due(self, max_entries):
        due = sorted((at, p) for p, at in self.waiting.items() if at <= self.now)[:max_entries]
        for _, p in due:
            del self.waiting[p]
        return [p for _, p in due]

    def has_due(self):
        return any(at <= self.now for at in self.waiting.values())

    memory_bytes = 0
    may_repeat = pauses_reading = False

    @property
    def pending_count(self):
        return len(self.waiting)

    def clear(self):
        self.cleared += 1
        self.waiting.clear()


async def test_delayed_entries_are_held_skipped_and_given_when_due():
    delay = Delay()
    bench = Bench(delay=delay)
    c = await bench.join(permits=10)
    bench.publish(entry(), entry(deliver_at_time=50), entry(), entry(deliver_at_time=40))
    assert got(c) == [0, 2]
    assert c.permits.available == 8
    assert subscription_stats(bench.subscription).msg_delayed == 2
    assert subscription_stats(bench.subscription).msg_backlog_no_delayed == 2
    bench.leave(c)
    c = await bench.join(permits=10)
    assert got(c) == [0, 2]
    delay.now = 45
    bench.subscription.wake()
    bench.clock.run()
    assert got(c) == [3]
    delay.now = 60
    bench.subscription.wake()
    bench.clock.run()
    assert got(c) == [1]
    cleared = delay.cleared
    await bench.subscription.seek(Position(7, 0))
    assert delay.cleared > cleared


@pytest.mark.parametrize("marks", [{"deliver_at_time": 50}, {"marker_type": 20}])
async def test_a_turn_over_entries_that_are_not_sent_is_short(marks):
    """After a restart a turn read 12,800 entries, and held them back one by one."""
    bench = Bench(delay=Delay())
    c = await bench.join()
    bench.publish(*[entry(b"", **marks)] * 10_000, entry())
    bench.subscription.on_flow(c, 1000)
    bench.subscription.dispatcher.loop._run()
    assert 2_000 <= bench.cursor.read_position.entry_id <= 4_000
    for _ in range(10):
        bench.clock.advance(0.01)
    assert got(c) == [10_000]


async def test_converted_spans_are_sent():
    bench = Bench()
    converted = []

    def transform(spans, order):
        assert order is Order.NONE
        converted.extend(spans)
        return spans

    async def later(spans, order):
        return transform(spans, order)

    c = await bench.join(permits=100)
    for how in (transform, later, lambda *read: Transformed(spans=transform(*read))):
        bench.subscription.context.transform = how
        before = bench.log.entries
        bench.log.append(entry(), entry())
        bench.publish(entry())
        await bench.settle()
        assert got(c) == [before, before + 1, before + 2]
    assert len(converted) >= 4


async def test_a_cold_replay_keeps_entries_added_meanwhile():
    bench = Bench(cold=True)
    c = await bench.join(permits=100)
    positions = bench.publish(*[entry() for _ in range(6)])
    await bench.settle()
    assert got(c) == list(range(6))
    bench.redeliver(c, positions[3])
    bench.redeliver(c, positions[1])
    bench.ack(c, positions[0])
    await bench.settle()
    assert sorted(got(c)) == [1, 3]


async def test_an_entry_acked_while_it_waits_in_replay_is_not_sent():
    bench = Bench()
    a = await bench.join(permits=5)
    positions = bench.publish(entry(), entry())
    got(a)
    a.outbox.writable = False
    bench.redeliver(a)
    assert subscription_stats(bench.subscription).msg_in_replay == 2
    bench.ack(a, positions[0])
    a.outbox.become_writable()
    bench.clock.run()
    assert got(a) == [1]
    assert subscription_stats(bench.subscription).msg_in_replay == 0


async def test_skipped_backlog_relieves_its_holders():
    bench = Bench()
    c = await bench.join(permits=5)
    positions = bench.publish(*[entry() for _ in range(4)])
    bench.cursor.ack_cumulative(positions[1])
    bench.subscription.backlog_dropped(positions[1], expired_messages=2)
    stats = subscription_stats(bench.subscription)
    assert (c.permits.unacked, stats.unacked_messages, stats.total_msg_expired) == (2, 2, 2)


async def test_rates_of_the_last_period():
    bench = Bench()
    c = await bench.join(permits=100)
    positions = bench.publish(*[entry() for _ in range(30)])
    bench.ack(c, *positions[:10])
    bench.redeliver(c, positions[20])
    bench.subscription.roll_rates(10)
    stats = subscription_stats(bench.subscription)
    assert (stats.msg_rate_out, stats.message_ack_rate, stats.msg_rate_redeliver) == (3.1, 1.0, 0.1)
    bench.leave(c)
    assert subscription_stats(bench.subscription).msg_out_counter == 31
    assert subscription_stats(bench.subscription).type_name == "Shared"


async def test_consumer_stats_of_the_wire():
    bench = Bench()
    c = await bench.join(SHARED, "me", permits=10)
    positions = bench.publish(entry(), entry(), entry())
    bench.ack(c, positions[0])
    values = consumer_stats(bench.subscription, c).wire()
    assert values["availablePermits"] == 7
    assert values["unackedMessages"] == 2
    assert values["msgBacklog"] == 2
    assert values["type"] == "Shared"
    assert values["connectedSince"] == "1970-01-01T00:16:40.000Z"


def _id(position):
    from magnetar.protocol import pulsar_api_pb2 as pb

    return pb.MessageIdData(ledgerId=position[0], entryId=position[1])


async def test_nothing_is_read_while_the_delay_view_pauses():
    delay = Delay()
    bench = Bench(delay=delay)
    c = await bench.join(permits=10)
    delay.pauses_reading = True
    bench.publish(entry(), entry())
    assert got(c) == []
    delay.pauses_reading = False
    bench.subscription.wake()
    bench.clock.run()
    assert got(c) == [0, 1]


async def test_an_entry_that_claims_more_messages_than_it_can_hold_costs_one_permit():
    bench = Bench()
    consumer = await bench.join(SHARED, permits=10)
    lying = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=2**31 - 1)
    bench.publish(entry(b"1"), encode_entry(lying, b"x"), entry(b"2"), entry(b"3"))
    await bench.settle()
    assert got(consumer) == [0, 1, 2, 3]
    assert consumer.permits.available == 6
