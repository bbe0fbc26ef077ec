"""The report that a broker gives of itself."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest

from magnetar.broker import load_reports
from magnetar.broker.advertised import AdvertisedAddresses
from magnetar.broker.load_reports import LoadReports
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.ownership.cluster_nodes import decode_report, encode_report
from magnetar.broker.ownership.ownership import OwnershipDoor
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName


def rates(messages, size):
    return SimpleNamespace(rates=lambda: SimpleNamespace(messages_per_second=messages, bytes_per_second=size))


def topic(name, *, producers=1, consumers=1):
    subscription = SimpleNamespace(consumers=[SimpleNamespace(out=rates(5.0, 500.0))] * consumers)
    return SimpleNamespace(
        name=TopicName.parse(f"persistent://{name}"),
        publishing=SimpleNamespace(rate_in=rates(10.0, 1000.0)),
        subscriptions=SimpleNamespace(by_name={"s": subscription}),
        producers=[object()] * producers,
    )


@pytest.fixture
def broker():
    listeners = ("in:pulsar://127.0.0.1:6650", "out:pulsar://mq.example:6650")
    settings = dataclasses.replace(
        Settings(), advertised_listeners=listeners, load_balancer_override_broker_nics=("no",)
    )
    addresses = AdvertisedAddresses(settings)
    addresses.bound(6650, None, 8080, None)
    topics = [topic("t/n/a"), topic("t/n/b", consumers=2), topic("t/other/a", producers=0)]
    policies = {"t/n": SimpleNamespace(bundles=even_bundles(1))}
    return SimpleNamespace(
        settings=settings,
        addresses=addresses,
        process_load=SimpleNamespace(cpu_percent=lambda: 50.0, cores=lambda: 1.5),
        memory=MemoryAccount(MemoryLimits.of_total(64 << 20, 5 << 20)),
        ownership=OwnershipDoor(),
        namespaces=SimpleNamespace(policies=policies.get),
        topics=SimpleNamespace(loaded={str(each.name): each for each in topics}),
        now_ms=lambda: 1_700_000_000_000,
    )


async def test_a_report_sums_up_topics_by_bundle(broker):
    report = await LoadReports(broker).current()
    whole = "t/n/0x00000000_0xffffffff"
    assert report.bundles == sorted(report.last_stats) == [whole, "t/other"]
    of_bundle = report.last_stats[whole]
    assert (of_bundle.topics, of_bundle.producer_count, of_bundle.consumer_count) == (2, 2, 3)
    assert (of_bundle.msg_rate_in, of_bundle.msg_throughput_in) == (20.0, 2000.0)
    assert (of_bundle.msg_rate_out, of_bundle.msg_throughput_out) == (15.0, 1500.0)
    assert (report.num_topics, report.num_bundles, report.num_producers, report.num_consumers) == (3, 2, 2, 4)
    assert (report.msg_rate_in, report.msg_throughput_out) == (30.0, 2000.0)
    assert report.last_update == report.start_timestamp == 1_700_000_000_000


async def test_a_report_has_true_resources_and_can_be_written(broker):
    reports = LoadReports(broker)
    report = await reports.current()
    assert (report.cpu.usage, report.cpu.limit) == (75.0, 150.0)
    assert 1 < report.memory.usage < report.memory.limit
    assert (report.direct_memory.usage, report.direct_memory.limit) == (0.0, 64.0)
    assert (report.bandwidth_in.share, report.bandwidth_out.limit) == (0.0, -1000.0)
    assert report.max_resource_usage == report.highest_share == 0.5
    assert reports.bandwidth_percent() == (0.0, 0.0)
    assert [name for name, _ in report.addresses.listeners] == ["in", "out"]
    assert decode_report(encode_report(report)) == report


async def test_topics_of_a_report_are_summed_in_slices(broker, monkeypatch):
    names = [f"t/n/{number}" for number in range(1000)]
    broker.topics.loaded = {name: topic(name) for name in names}
    turn, summed = [0], []

    def noted(each):
        summed.append(turn[0])
        return usage_of(each)

    async def ticks():
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    usage_of = load_reports._usage_of
    monkeypatch.setattr(load_reports, "_usage_of", noted)
    ticking = asyncio.create_task(ticks())
    report = await LoadReports(broker).current()
    ticking.cancel()
    assert report.num_topics == len(names) == len(summed)
    assert max(map(summed.count, set(summed))) <= 64
