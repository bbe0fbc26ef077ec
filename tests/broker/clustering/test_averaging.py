"""The leader's averages in the metadata service: written at times, continued by the next leader, deleted when unused."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from magnetar.broker.clustering.averaging import Averaging
from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport
from magnetar.broker.ownership.load_averages import LoadAverages, decode_bundle_load
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.policies.values import LocalPolicies
from magnetar.broker.settings import Settings
from magnetar.storage.errors import StorageUnavailableError
from tests.twins.memory_cluster import MemoryCluster
from tests.waiting import until

LOW, HIGH = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
DATA, AVERAGES = "/loadbalance/bundle-data", "/loadbalance/broker-time-average"


class World:
    """The register of brokers and the metadata store."""

    def __init__(self):
        self.cluster = MemoryCluster()
        self.metadata = self.cluster.connect()
        self.broker_id, self.is_leader = "a:1", True
        self.now = 0.0
        self.reports = {}
        self.settings = dataclasses.replace(
            Settings(),
            load_balancer_report_update_min_interval_millis=1,
            load_balancer_max_number_of_bundles_in_bundle_load_report=1,
        )
        self.report("a:1", 1, **{LOW: 10.0})

    def report(self, name, at, **rates):
        stats = {bundle: BundleUsage(msg_rate_in=rate, topics=1) for bundle, rate in rates.items()}
        self.reports[name] = LoadReport(last_update=at, last_stats=stats)

    async def candidates(self, *, persistent):
        assert persistent
        return dict(self.reports)

    async def names(self):
        return list(self.reports)

    def leader(self):
        averages = LoadAverages()
        return Averaging(self.settings, self.metadata, self, averages, lambda: self.now), averages

    async def stored(self, bundle):
        found = await self.metadata.get(f"{DATA}/{bundle}")
        return None if found is None else decode_bundle_load(found[0])


@pytest.fixture
async def world():
    return World()


async def test_a_changed_report_is_a_sample(world):
    averaging, averages = world.leader()
    await averaging.sample()
    await averaging.sample()
    assert averages.bundles[LOW].long_term_data.num_samples == 1
    world.report("a:1", 2, **{LOW: 30.0})
    await averaging.sample()
    assert averages.bundles[LOW].long_term_data.msg_rate_in == 20.0


async def test_the_next_leader_continues(world):
    averaging, _ = world.leader()
    await averaging.sample()
    await averaging.write()
    found = await world.stored(LOW)
    assert found.long_term_data.msg_rate_in == 10.0
    other, averages = world.leader()
    world.report("a:1", 2, **{LOW: 30.0})
    await other.sample()
    assert averages.bundles[LOW].long_term_data.num_samples == 2
    assert averages.bundles[LOW].long_term_data.msg_rate_in == 20.0


async def test_a_node_that_is_no_average_is_replaced(world):
    await world.metadata.put(f"{DATA}/{LOW}", b"{")
    averaging, averages = world.leader()
    await averaging.sample()
    assert averages.bundles[LOW].long_term_data.num_samples == 1
    await averaging.write()
    assert await world.stored(LOW) is not None


async def test_only_the_heaviest_bundles_are_written(world):
    world.report("a:1", 1, **{LOW: 10.0, HIGH: 20.0})
    averaging, _ = world.leader()
    await averaging.sample()
    await averaging.write()
    assert world.cluster.nodes(DATA) == [f"{DATA}/{HIGH}"]


async def test_bundles_and_brokers_that_are_gone_lose_their_nodes(world):
    world.report("b:1", 1, **{HIGH: 20.0})
    averaging, _ = world.leader()
    await averaging.sample()
    await averaging.write()
    assert world.cluster.nodes("/loadbalance") == [
        f"{AVERAGES}/a:1",
        f"{AVERAGES}/b:1",
        f"{DATA}/{LOW}",
        f"{DATA}/{HIGH}",
    ]
    del world.reports["b:1"]
    await averaging.sample()
    assert world.cluster.nodes("/loadbalance") == [f"{AVERAGES}/a:1", f"{DATA}/{LOW}"]


async def test_an_error_of_the_store_leaves_the_nodes_of_gone_bundles_for_the_next_pass(world, monkeypatch):
    world.report("b:1", 1, **{HIGH: 20.0})
    averaging, averages = world.leader()
    await averaging.sample()
    await averaging.write()
    delete, failures = world.metadata.delete, [StorageUnavailableError("away"), StorageUnavailableError("away")]

    async def failing(path, expected_version=None):
        if failures:
            raise failures.pop()
        await delete(path, expected_version)

    monkeypatch.setattr(world.metadata, "delete", failing)
    del world.reports["b:1"]
    world.report("a:1", 2, **{LOW: 30.0})
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            await averaging.sample()
    await averaging.sample()
    assert world.cluster.nodes("/loadbalance") == [f"{AVERAGES}/a:1", f"{DATA}/{LOW}"]
    assert averages.bundles[LOW].long_term_data.num_samples == 2, "a report is one sample, whatever fails behind it"


async def test_a_bundle_that_comes_back_keeps_its_node(world, monkeypatch):
    averaging, _ = world.leader()
    world.report("a:1", 1, **{LOW: 10.0, HIGH: 20.0})
    await averaging.sample()
    await averaging.write()

    async def failing(_path, _expected_version=None):
        raise StorageUnavailableError("away")

    with monkeypatch.context() as away:
        away.setattr(world.metadata, "delete", failing)
        world.report("a:1", 2, **{LOW: 10.0})
        with pytest.raises(StorageUnavailableError):
            await averaging.sample()
    world.report("a:1", 3, **{LOW: 10.0, HIGH: 20.0})
    await averaging.sample()
    assert (await world.stored(HIGH)).long_term_data.msg_rate_in == 20.0


async def test_nodes_of_many_bundles_are_deleted_together(world, monkeypatch):
    many = {f"t/n/0x{number:08x}_0x{number + 1:08x}": 1.0 for number in range(200)}
    world.settings = dataclasses.replace(world.settings, load_balancer_max_number_of_bundles_in_bundle_load_report=0)
    averaging, _ = world.leader()
    world.report("a:1", 1, **many)
    await averaging.sample()
    await averaging.write()
    assert len(world.cluster.nodes(DATA)) == 200
    delete, under_way, most = world.metadata.delete, [0], [0]

    async def slow(path, expected_version=None):
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(0)
        await delete(path, expected_version)
        under_way[0] -= 1

    monkeypatch.setattr(world.metadata, "delete", slow)
    world.report("a:1", 2)
    await averaging.sample()
    assert world.cluster.nodes(DATA) == []
    assert most == [64]


async def test_a_new_leader_deletes_averages_of_bundles_that_ended_before(world):
    world.report("a:1", 1, **{LOW: 10.0, HIGH: 20.0, "t/gone/0x00000000_0xffffffff": 5.0})
    world.settings = dataclasses.replace(world.settings, load_balancer_max_number_of_bundles_in_bundle_load_report=0)
    averaging, _ = world.leader()
    await averaging.sample()
    await averaging.write()
    broken = {
        "t/broken": b"{",
        "t/deep": b'{"unknown":' + b"[" * 100_000,
        "t/no-text": b'{"bundles":{"boundaries":["\xff"]}}',
    }
    for name, node in broken.items():
        await world.metadata.put(f"/admin/local-policies/{name}", node)
    for name in ("t/n/0x00000000_0xffffffff", *(f"{each}/0x00000000_0xffffffff" for each in broken)):
        await world.metadata.put(f"{DATA}/{name}", b"{}")
    await world.metadata.put("/admin/local-policies/t/n", msgspec.json.encode(LocalPolicies(bundles=even_bundles(2))))
    world.report("a:1", 2, **{LOW: 10.0})  # the other half is still a bundle, now without topics
    other, _ = world.leader()
    await other.sample()
    assert world.cluster.nodes(DATA) == [
        f"{DATA}/t/broken/0x00000000_0xffffffff",
        f"{DATA}/t/deep/0x00000000_0xffffffff",
        f"{DATA}/{LOW}",
        f"{DATA}/{HIGH}",
        f"{DATA}/t/no-text/0x00000000_0xffffffff",
    ]


async def test_a_broker_that_does_not_lead_keeps_and_writes_nothing(world):
    averaging, averages = world.leader()
    await averaging.sample()
    world.is_leader = False
    await averaging.sample()
    assert averages.bundles == {}
    assert world.cluster.nodes("/loadbalance") == []


async def test_every_broker_has_a_node_and_the_leader_writes_all_after_the_interval(world):
    averaging, averages = world.leader()
    world.is_leader = False
    running = world.cluster
    task = asyncio.create_task(averaging.run())
    try:
        await until(lambda: running.nodes("/loadbalance") == [f"{AVERAGES}/a:1"])
        world.is_leader = True
        await until(lambda: averages.bundles)
        assert running.nodes(DATA) == []
        world.now = 15 * 60.0
        await until(lambda: running.nodes(DATA) == [f"{DATA}/{LOW}"])
    finally:
        task.cancel()
