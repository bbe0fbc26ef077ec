"""Distributions and rates: they show the last full period of real activity."""

from __future__ import annotations

import pytest

from magnetar.broker.admin_backend.topic_figures import topic_stats
from magnetar.broker.meters.distributions import BucketMeter, CacheMeter, LatencyMeter
from magnetar.storage.position import Position
from tests.broker.compaction_for_tests import single
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import append, run_of, settle


def test_buckets_take_their_upper_bound_and_the_last_is_open():
    meter = BucketMeter((1, 10))
    for value, times in ((0.5, 2), (1, 1), (5, 3), (10.5, 4)):
        meter.add(value, times)
    assert meter.last().buckets == (0, 0, 0)
    meter.roll()
    assert meter.last() == ((3, 3, 4), 0.5 * 2 + 1 + 15 + 42)
    meter.roll()
    assert meter.last() == ((0, 0, 0), 0.0)


def test_quantiles_are_within_a_fifth():
    meter = LatencyMeter()
    for milliseconds in range(1, 1001):
        meter.period.add(float(milliseconds), 1)
    assert set(meter.quantiles().values()) == {0.0}
    meter.roll()
    found = meter.quantiles()
    for quantile, true in ((0.0, 1), (0.5, 500), (0.95, 950), (0.99, 990), (0.999, 999), (1.0, 1000)):
        assert true <= found[quantile] <= true * 1.2 + 0.1
    assert (meter.count, meter.sum_ms) == (1000, 500_500)
    meter.period.add(0.5, 2)
    assert (meter.count, meter.sum_ms) == (1002, 500_501)
    meter.roll()
    meter.roll()
    assert (meter.count, meter.sum_ms) == (1002, 500_501)
    assert set(meter.quantiles().values()) == {0.0}


def test_values_above_all_bounds_count_in_the_last_bucket():
    meter = LatencyMeter()
    meter.period.add(1e9, 1)
    meter.roll()
    assert meter.quantiles()[1.0] > 60_000


def test_cache_rates_are_differences_per_second():
    meter = CacheMeter()
    meter.roll((100, 1000), (10, 50), 10)
    meter.roll((160, 4000), (10, 50), 60)
    assert meter.hits.rates().messages_per_second == 1
    assert meter.hits.rates().bytes_per_second == 50
    assert meter.misses.rates().messages_per_second == 0


PREFIX = 14
"""Bytes of the broker entry metadata before the entry."""


class Sender:
    """As much of a producer as a stored run needs."""

    name = "p"


async def test_a_topic_counts_latency_sizes_and_rates():
    bench = TopicBench()
    topic = await bench.open()
    subscription = await bench.subscribe()
    bench.ground.ledgers.hold()
    run = run_of([b"x" * 300] * 4)
    topic.publishing.append(run, lambda result: topic.publishing.stored(Sender(), run, 4, result.pieces))
    await settle()
    bench.pass_time(0.015)
    bench.ground.ledgers.release()
    await settle()
    subscription.cursor.read(1, 1 << 20)
    bench.ground.ledgers.cached = False
    await subscription.cursor.read(3, 1 << 20)
    subscription.cursor.ack(Position(0, 0))
    await subscription.cursor.flush()
    topic.roll_rates(10)
    bench.context.publish_latency.roll()
    stats = topic_stats(topic, {})
    assert stats.write_latency_ms.buckets == (0, 0, 0, 0, 4, 0, 0, 0, 0, 0)
    assert (stats.write_latency_ms.count, stats.write_latency_ms.sum) == (4, pytest.approx(60))
    assert stats.entry_sizes.buckets == (0, 4, 0, 0, 0, 0, 0, 0, 0)
    assert stats.entry_sizes.sum == 1200
    assert (stats.storage_write_rate, stats.storage_read_rate) == (0.4, 0.3)
    assert (stats.storage_read_bytes_rate, stats.mark_delete_rate) == (pytest.approx(0.3 * (300 + PREFIX)), 0.1)
    assert (stats.failed_reads, stats.failed_appends, stats.ledger_switch_ms.count) == (0, 0, 0)
    assert bench.context.publish_latency.count == 4
    assert 15 <= bench.context.publish_latency.quantiles()[0.5] <= 18


async def test_compaction_figures():
    bench = TopicBench()
    topic = await bench.open()
    await append(topic.ledger, [single("a", b"1"), single("a", b"2"), single("b", b"3")])
    topic.compaction.start()
    await topic.compaction.wait()
    found = topic.compaction.stats()
    assert (found.runs_succeeded, found.runs_failed, found.removed_events, found.entries) == (1, 0, 1, 2)
    assert 0 < found.size_bytes < found.read_bytes
    bench.ground.ledgers.cached = False
    (damaged,) = await append(topic.ledger, [single("c", b"4")])
    bench.ground.ledgers.corrupt.add(damaged)
    topic.compaction.start()
    await topic.compaction.wait()
    assert (topic.compaction.stats().runs_succeeded, topic.compaction.stats().runs_failed) == (1, 1)


async def test_new_ledgers_count_in_their_period():
    bench = TopicBench()
    topic = await bench.open()
    for expected in (0, 2, 0):
        topic.ledger.counters.switches_ms = (0.7, 300) if expected else ()
        topic.roll_rates(10)
        stats = topic_stats(topic, {})
        assert stats.ledger_switch_ms.count == expected
        assert stats.ledger_switch_ms.buckets[1] == stats.ledger_switch_ms.buckets[-2] == expected // 2
    assert topic.ledger.counters.switches_ms == ()
    topic.roll_rates(0)
    assert topic_stats(topic, {}).storage_read_rate == 0
