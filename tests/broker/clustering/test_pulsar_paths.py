"""Paths of the shared metadata store."""

import inspect
from urllib.parse import quote, quote_plus

import pytest

from magnetar.broker.clustering.pulsar_paths import PulsarPaths
from magnetar.storage.coordination import Coordination
from magnetar.storage.errors import GuardChangedError
from magnetar.storage.interfaces import Guard
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.twins.memory_cluster import MemoryCluster

NAMES = ("plain", "a b", "a+b", "é%*-_.~", "sub/1 x:y")


@pytest.mark.parametrize("encode", [lambda name: quote(name, safe=""), quote_plus])
async def test_names_are_encoded_as_java_does(encode):
    cluster = MemoryCluster()
    paths = PulsarPaths(cluster.connect())
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
    paths = PulsarPaths(cluster.connect())
    for path in ("/delayed-index/a", "/deleted-managed-ledgers/a", "/magnetar/health"):
        await paths.put(path, b"")
        assert await paths.get(path) == (b"", 0)
    assert cluster.nodes("/") == [
        "/magnetar/delayed-index/a",
        "/magnetar/deleted-managed-ledgers/a",
        "/magnetar/health",
    ]


async def test_the_path_of_a_guard_is_encoded_too():
    paths = PulsarPaths(MemoryCluster().connect())
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
