"""The read loop of a dispatcher: reads from the disk, failed reads, its end."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.dispatchers.ports import Transformed
from magnetar.broker.topics.rate_limits import Limits, PeriodBucket, Throttle, Throttles
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError, StorageFailedError
from magnetar.storage.position import EARLIEST, Position
from tests.broker.dispatch_fakes import (
    EXCLUSIVE,
    KEY_SHARED,
    SHARED,
    Bench,
    entry,
    got,
)


async def test_cold_reads_deliver_all_in_order():
    bench = Bench(cold=True)
    consumer = await bench.join(EXCLUSIVE, permits=1000)
    bench.publish(*[entry() for _ in range(350)])
    await bench.settle()
    assert got(consumer) == list(range(350))


async def test_a_cold_read_of_a_consumer_that_left_is_not_lost():
    bench = Bench(cold=True)
    first = await bench.join(EXCLUSIVE, permits=10)
    bench.publish(entry(), entry())
    bench.leave(first)
    second = await bench.join(EXCLUSIVE, permits=10)
    await bench.settle()
    assert got(first) == []
    assert got(second) == [0, 1]


async def test_redeliver_during_a_cold_read_sends_each_once():
    bench = Bench(cold=True)
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.publish(entry(), entry())
    bench.redeliver(consumer)
    await bench.settle()
    assert got(consumer) == [0, 1]


async def test_seek_waits_for_the_read_under_way():
    bench = Bench(cold=True)
    consumer = await bench.join(EXCLUSIVE, permits=10)
    positions = bench.publish(*[entry() for _ in range(4)])
    await bench.subscription.seek(positions[2])
    again = await bench.join(EXCLUSIVE, permits=10)
    await bench.settle()
    assert got(consumer) == []
    assert got(again) == [2, 3]


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_entries_acknowledged_during_their_conversion_are_not_sent(sub_type):
    bench, converted = Bench(), asyncio.Event()

    class SlowConverter:
        flags = 0

        async def __call__(self, spans, _order):
            await converted.wait()
            return Transformed(spans=spans)

    bench.subscription.context.transform = SlowConverter()
    consumer = await bench.join(sub_type, permits=10)
    positions = bench.publish(*[entry(b"%d" % k) for k in range(4)])
    await bench.settle()
    bench.ack(consumer, positions[1], positions[2])
    converted.set()
    await bench.settle()
    assert got(consumer) == [0, 3]
    assert consumer.permits.unacked == (0 if sub_type == EXCLUSIVE else 2)
    converted.clear()
    (last,) = bench.publish(entry())
    await bench.settle()
    bench.ack(consumer, last)
    converted.set()
    await bench.settle()
    bench.publish(entry())
    await bench.settle()
    assert got(consumer) == [5]


async def test_entries_of_a_compacted_topic_before_the_cursor_are_sent():
    """The log has dropped them, which moves the cursor of a reader; the compacted ledger still has them."""

    class CompactedReader:
        def __init__(self, cursor):
            self.rewind, self._cursor = cursor.rewind, cursor

        async def read(self, *limits):
            spans = self._cursor.read(*limits)
            self._cursor.ack_cumulative(Position(7, 1))
            return spans

    bench = Bench()
    bench.subscription.context.reader = CompactedReader(bench.cursor)
    bench.subscription.context.transform = lambda spans, _order: spans
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.publish(entry(), entry(), entry())
    await bench.settle()
    assert got(consumer) == [0, 1, 2]


async def test_a_failed_read_is_tried_again_after_the_back_off():
    bench = Bench()
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.cursor.errors = [StorageFailedError("no disk"), StorageFailedError("no disk")]
    bench.publish(entry(), entry())
    assert got(consumer) == []
    reads = bench.cursor.reads
    bench.flow(consumer, 1)
    bench.clock.advance(14.9)
    assert bench.cursor.reads == reads
    bench.clock.advance(0.2)
    assert bench.cursor.reads == reads + 1
    bench.clock.advance(30)
    assert got(consumer) == [0, 1]


async def test_a_damaged_entry_that_cannot_be_acknowledged_is_read_again_after_a_pause():
    bench = Bench(skip_damaged_entries=True)
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.cursor.errors = [CorruptEntryError(Position(99, 0))] * 1000
    bench.publish(entry())
    assert bench.cursor.reads < 5
    bench.cursor.errors = []
    bench.clock.advance(60)
    assert got(consumer) == [0]


@pytest.mark.parametrize("skip", [False, True])
async def test_the_entries_of_a_lost_ledger_are_skipped_where_the_setting_allows_it(skip):
    bench = Bench(skip_damaged_entries=skip)
    consumer = await bench.join(EXCLUSIVE, permits=10)
    bench.cursor.errors = [NoSuchLedgerError(bench.log.ledger_id)]
    bench.publish(entry(), entry(), entry())
    assert bench.cursor.deleted == ({0, 1, 2} if skip else set())
    bench.clock.advance(60)
    assert got(consumer) == ([] if skip else [0, 1, 2])
    bench.publish(entry())
    assert got(consumer)[-1] == 3


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_a_changed_dispatch_rate_does_not_wait_for_the_debt_of_the_former(kind):
    bench = Bench()

    def throttle(messages):
        return Throttles(Throttle(Limits(messages, period_s=3600), lambda: bench.clock.now))

    bench.subscription.context.throttle = throttle(1)
    consumer = await bench.join(kind, permits=10)
    bench.publish(entry(), entry(), entry(), entry(), entry())
    assert got(consumer) == [0]
    bench.subscription.set_settings(bench.subscription.context.settings)
    bench.subscription.context.throttle = throttle(2)
    bench.clock.run()
    assert got(consumer) == [1, 2]
    bench.subscription.set_settings(bench.subscription.context.settings)
    bench.subscription.context.throttle = None
    bench.clock.run()
    assert got(consumer) == [3, 4]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_redeliveries_obey_the_dispatch_rate(kind):
    bench = Bench()
    consumer = await bench.join(kind, permits=20)
    positions = bench.publish(*[entry(key="k") for _ in range(5)])
    assert got(consumer) == [0, 1, 2, 3, 4]
    rate = Throttle(Limits(2, period_s=10), lambda: bench.clock.now, PeriodBucket)
    bench.subscription.context.throttle = Throttles(rate)
    bench.redeliver(consumer, *positions)
    assert got(consumer) == [0, 1]
    bench.publish(entry(key="k"))
    bench.clock.advance(9)
    assert got(consumer) == []
    bench.clock.advance(1)
    assert got(consumer) == [2, 3]
    bench.clock.advance(10)
    assert got(consumer) == [4, 5]


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_a_rate_of_bytes_bounds_each_read(kind):
    bench, asked = Bench(), []
    rate = Throttle(Limits(0, 3000, 10), lambda: bench.clock.now, PeriodBucket)
    bench.subscription.context.throttle = Throttles(rate)
    read = bench.cursor.read

    def noted(max_entries, max_bytes, *more):
        asked.append(max_bytes)
        return read(max_entries, max_bytes, *more)

    bench.cursor.read = noted
    consumer = await bench.join(kind, permits=20)
    bench.publish(entry(b"x" * 1000, key="k"))
    assert got(consumer) == [0]
    assert asked[0] == 3000
    assert 1500 < asked[-1] < 2000, "the size of the first entry is taken"


async def test_the_topic_hears_when_the_last_reader_leaves():
    bench = Bench()
    bench.subscription.durable = False
    reader = await bench.join(EXCLUSIVE)
    bench.leave(reader)
    assert bench.empty == [bench.subscription]
    assert bench.subscription.sought is None


async def test_a_seek_that_closes_the_last_reader_ends_its_subscription_but_not_its_place():
    """Apache Pulsar 4.2.4 lists the subscription no longer; the next reader of its name begins at the place of the
    seek.
    """
    bench = Bench()
    bench.subscription.durable = False
    await bench.join(EXCLUSIVE)
    await bench.subscription.seek(EARLIEST)
    assert bench.empty == [bench.subscription]
    assert bench.subscription.sought is not None
    await bench.subscription.seek(EARLIEST, rolls_back=True)
    assert bench.empty == [bench.subscription]


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_an_entry_that_comes_back_during_a_cold_read_without_entries_is_sent(sub_type):
    """The wake met the read and had no effect, and a read that finds nothing wakes nothing."""
    bench = Bench(cold=True)
    consumer = await bench.join(sub_type, permits=10)
    [first] = bench.publish(entry(key="a"))
    await bench.settle()
    assert got(consumer) == [0]
    bench.publish(entry(key="b"))  # a cold read of the entry begins
    bench.cursor.deleted.add(1)
    bench.redeliver(consumer, first)
    await bench.settle()
    assert got(consumer) == [0]


async def test_close_tells_all_and_stops():
    bench = Bench(cold=True)
    consumer = await bench.join(EXCLUSIVE, permits=5)
    bench.publish(entry())
    await bench.subscription.close()
    await bench.settle()
    assert consumer.outbox.names() == ["CLOSE_CONSUMER"]
    await bench.subscription.close()


@pytest.mark.parametrize(("members", "most"), [(2, 1000), (5000, 200)])
async def test_a_turn_has_fewer_reads_where_each_looks_at_thousands_of_consumers(members, most):
    """Each of 128 reads of a turn looked at 10,000 consumers, of which one had permits: 0.3 s, several times."""
    bench = Bench()
    consumer, *_ = [await bench.join(SHARED) for _ in range(members)]
    bench.publish(*[entry(b"")] * 1000)
    bench.subscription.on_flow(consumer, 1000)
    before = bench.cursor.reads
    bench.subscription.dispatcher.loop._run()
    assert (bench.cursor.reads - before) * 100 <= most
    bench.clock.run()
    assert len(got(consumer)) == 1000


async def test_a_turn_sends_fewer_entries_where_each_is_a_span():
    """Scattered entries counted by their few bytes, and a turn had 7,000 of them."""
    bench = Bench()
    consumer = await bench.join(SHARED)
    positions = bench.publish(*[entry(b"")] * 6000)
    bench.flow(consumer, 10_000)
    bench.clock.run()
    assert len(got(consumer)) == 6000
    ids = [pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id) for p in positions[::2]]
    bench.subscription.on_redeliver(consumer, ids, None)
    bench.subscription.dispatcher.loop._run()
    assert 0 < len(got(consumer)) < 2500
    bench.clock.run()
    assert consumer.held_entries == 6000


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED])
async def test_a_waiting_read_takes_the_next_entries_when_redeliveries_have_used_up_the_permits(sub_type):
    bench = Bench()
    consumer = await bench.join(sub_type, permits=3)
    bench.publish(entry(), entry())
    assert got(consumer) == [0, 1]
    bench.redeliver(consumer)
    assert got(consumer) == [0]
    dispatcher = bench.subscription.dispatcher
    assert dispatcher.loop.waits_for_entries
    bench.publish(entry(), entry())
    assert got(consumer) == []
    assert dispatcher.held.replay.entries == 2
    assert not dispatcher.loop.waits_for_entries
    bench.flow(consumer, 10)
    assert got(consumer) == [1, 2, 3]


async def test_a_waiting_read_ends_with_its_last_consumer():
    bench = Bench()
    first = await bench.join(SHARED, permits=3)
    bench.publish(entry())
    bench.leave(first)
    await bench.join(SHARED)
    bench.publish(entry())
    assert bench.subscription.dispatcher.held.replay.entries == 0
