"""Paths of the shared metadata store."""

import asyncio
import inspect
from urllib.parse import quote, quote_plus

import pytest

from magnetar.broker.clustering.pulsar_paths import PulsarPaths
from magnetar.broker.clustering.seen_values import SeenValues
from magnetar.storage.coordination import Coordination
from magnetar.storage.errors import BadVersionError, GuardChangedError, StorageFullError
from magnetar.storage.interfaces import Guard
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.twins.memory_cluster import MemoryCluster

NAMES = ("plain", "a b", "a+b", "é%*-_.~", "sub/1 x:y")


@pytest.mark.parametrize("encode", [lambda name: quote(name, safe=""), quote_plus])
async def test_names_are_encoded_as_java_does(encode):
    cluster = MemoryCluster()
    paths = PulsarPaths(cluster.connect(), SeenValues(1 << 20))
    for name in NAMES:
        own = f"/admin/partitioned-topics/t/n/persistent/{encode(name)}"
        assert await paths.put(own, b"x", -1) == 0
        assert await paths.get(own) == (b"x", 0)
        java = PulsarLayout().cursor_node(name)
        assert java in await paths.children("/admin/partitioned-topics/t/n/persistent")
        await paths.delete(own)
    assert cluster.nodes("/admin") == []


async def test_nodes_of_this_broker_alone_lie_apart():
    cluster = MemoryCluster()
    paths = PulsarPaths(cluster.connect(), SeenValues(1 << 20))
    for path in ("/delayed-index/a", "/deleted-managed-ledgers/a", "/magnetar/health"):
        await paths.put(path, b"")
        assert await paths.get(path) == (b"", 0)
    assert cluster.nodes("/") == [
        "/magnetar/delayed-index/a",
        "/magnetar/deleted-managed-ledgers/a",
        "/magnetar/health",
    ]


async def test_the_path_of_a_guard_is_encoded_too():
    paths = PulsarPaths(MemoryCluster().connect(), SeenValues(1 << 20))
    guard = Guard(f"/managed-ledgers/t/n/persistent/{quote('a b*', safe='')}", 0)
    await paths.put(guard.path, b"")
    await paths.put(f"{guard.path}/s", b"", -1, guard)
    await paths.put(guard.path, b"")
    with pytest.raises(GuardChangedError):
        await paths.delete(f"{guard.path}/s", None, guard)
    await paths.delete(f"{guard.path}/s", None, Guard(guard.path, 1))


def test_every_method_of_a_shared_store_is_there():
    wanted = {name for name, _ in inspect.getmembers(Coordination) if not name.startswith("_")}
    assert wanted <= set(dir(PulsarPaths))


async def test_a_tenant_adds_no_large_values_beyond_its_share():
    """A role with the right to consume chooses the properties of its subscriptions, 64 KB each."""
    seen = SeenValues(2 << 20)
    paths = PulsarPaths(MemoryCluster().connect(), seen)
    value = bytes(64 << 10)

    async def fill(tenant):
        puts = [paths.put(f"/managed-ledgers/{tenant}/n/persistent/t/{k}", value, -1) for k in range(100)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        assert {type(each) for each in results if each != 0} == {StorageFullError}
        return results.count(0)

    assert [await fill("attacker"), await fill("victim")] == [32, 16]
    attacked, other = "/managed-ledgers/attacker/n/persistent/t", "/managed-ledgers/victim/n/persistent/t"
    await paths.put(f"{attacked}/new", b"usual", -1)
    await paths.put(f"{attacked}/0", value + bytes(1 << 10), 0)
    with pytest.raises(StorageFullError):
        await paths.put(f"{attacked}/1", 2 * value, 0)
    await paths.put("/ledgers/7", value, -1)
    before = seen.total_bytes
    with pytest.raises(BadVersionError):
        await paths.put(f"{other}/0", value + bytes(1 << 10), 7)
    assert seen.total_bytes == before
    for number in range(4):
        await paths.delete(f"{other}/{number}")
    await paths.put(f"{other}/4", b"short", 0)
    assert await paths.put(f"{other}/4", value, 1) == 2


async def test_the_values_of_a_closed_topic_count_no_more_and_count_again_when_they_are_read():
    seen = SeenValues(2 << 20)
    paths = PulsarPaths(MemoryCluster().connect(), seen)
    for topic in ("a", "b"):
        for node in (f"/managed-ledgers/t/n/persistent/{topic}", f"/managed-ledgers/t/n/persistent/{topic}/s"):
            await paths.put(node, bytes(10 << 10), -1)
    assert seen.total_bytes == 4 * (9 << 10)
    paths.log_closed("t/n/persistent/a")
    assert seen.total_bytes == 2 * (9 << 10)
    await paths.get("/managed-ledgers/t/n/persistent/a/s")
    assert seen.total_bytes == 3 * (9 << 10)
    paths.log_closed("t/n/persistent/a")
    paths.log_closed("t/n/persistent/b")
    assert not seen.total_bytes and not seen._sizes and not seen._by_log
