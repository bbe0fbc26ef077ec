"""Local policies as one broker knows them, while other clients change them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from magnetar.broker.errors import MetadataError
from magnetar.broker.ownership.bundle_map import LOCAL_POLICIES, BundleMap
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.policies.values import LocalPolicies
from magnetar.storage.errors import StorageUnavailableError
from tests.twins.memory_cluster import MemoryCluster

NAMESPACE = "public/default"
PATH = f"{LOCAL_POLICIES}/{NAMESPACE}"


class Broker:
    """A broker's map; its reads of the metadata wait for a turn of the loop."""

    def __init__(self, cluster):
        self.session, self.changes, self.reads = cluster.connect(), [], 0
        self.fails = False
        self.get, self.session.get = self.session.get, self.slow_get
        self.map = BundleMap(self.session, lambda _namespace: even_bundles(2), self.changes.append)

    async def slow_get(self, path):
        self.reads += 1
        found = await self.get(path)
        await asyncio.sleep(0)
        if self.fails:
            raise StorageUnavailableError("no answer")
        return found


async def write(session, count):
    await session.put(PATH, msgspec.json.encode(LocalPolicies(bundles=even_bundles(count))))
    await told()


@pytest.fixture
async def cluster():
    return MemoryCluster()


@pytest.fixture
async def broker(cluster):
    """A broker that knows the namespace, and that its own node exists."""
    made = Broker(cluster)
    assert await made.map.bundles(NAMESPACE) == even_bundles(2)
    await told()
    assert await made.map.bundles(NAMESPACE) == even_bundles(2)
    made.changes.clear()
    return made


async def told():
    """Watches have fired."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_reader_gets_the_bundles_of_before_while_another_one_reads(broker, cluster):
    """A lookup reads the changed node; the task that releases bundles cut meanwhile must not see the former bundles."""
    await write(cluster.connect(), 8)
    assert broker.changes == [NAMESPACE]
    assert broker.map.known(NAMESPACE) == even_bundles(2)  # topics are served on
    found = await asyncio.gather(*(broker.map.bundles(NAMESPACE) for _ in range(3)))
    assert found == [even_bundles(8)] * 3
    reads = broker.reads
    assert await broker.map.bundles(NAMESPACE) == even_bundles(8)
    assert broker.reads == reads


async def test_a_change_during_a_read_is_read_as_well(broker, cluster):
    other = cluster.connect()
    await write(other, 4)
    reading = asyncio.create_task(broker.map.bundles(NAMESPACE))
    await asyncio.sleep(0)
    await write(other, 8)
    await reading
    assert await broker.map.bundles(NAMESPACE) == even_bundles(8)


async def test_a_read_that_fails_leaves_the_change_to_be_read(broker, cluster):
    await write(cluster.connect(), 8)
    broker.fails = True
    with pytest.raises(StorageUnavailableError):
        await broker.map.bundles(NAMESPACE)
    assert broker.map.known(NAMESPACE) == even_bundles(2)
    broker.fails = False
    assert await broker.map.bundles(NAMESPACE) == even_bundles(8)


@pytest.mark.parametrize(
    "junk",
    [
        b"junk",
        b'{"bundles":{"boundaries":["\xff"]}}',
        b'{"bundles":{"boundaries":["0x00000000","high"]}}',
        pytest.param(b'{"unknown":' + b"[" * 100_000, id="deep"),
    ],
)
async def test_bundles_that_cannot_be_read_are_not_known(broker, cluster, junk):
    await cluster.connect().put(PATH, junk)
    await told()
    for _ in range(2):
        with pytest.raises(MetadataError):
            await broker.map.bundles(NAMESPACE)
        assert broker.map.known(NAMESPACE) is None
    await write(cluster.connect(), 8)
    assert await broker.map.bundles(NAMESPACE) == even_bundles(8)
