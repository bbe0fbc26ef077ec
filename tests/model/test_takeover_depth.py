"""The answers of ZooKeeper that a takeover awaits one after the other, and so its time where ZooKeeper is slow.

Bookies answer at once here and every answer about metadata takes a second of virtual time: the seconds of a step are the
number of requests of which each waits for the answer to its predecessor.
"""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.ownership.ownership import Here
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.bookkeeper.ledger_store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.storage.entry_cache import EntryCache
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import ManagedLedgerConfig
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from magnetar.storage.zookeeper.zookeeper_metadata import ZooKeeperMetadataStore
from tests.bookkeeper.sim_cluster import SimCluster, simulated
from tests.broker.ownership.test_bundle_ownership import TOPIC, World
from tests.model.virtual_loop import LoopClock
from tests.storage.managed_for_tests import NAME, append, message
from tests.twins.memory_cluster import MemoryCluster
from tests.twins.sim_zookeeper import SimSession, SimZooKeeper

ANSWER_S = 1.0
CONFIG = ManagedLedgerConfig(min_rollover_ms=0, retention_time_ms=-1, retention_size_bytes=-1, entry_timestamp=False)


class Owner:
    """A broker's storage. Its answers about metadata take ``answer_s``."""

    def __init__(self, cluster, nodes):
        self.answer_s, self.requests = 0.0, 0
        loop = asyncio.get_running_loop()
        self.client = cluster.join(add_quorum_timeout_s=60.0, recovery_timeout_s=60.0)
        self.client.store._ask = self._ask_later
        self.store = BookKeeperLedgerStore(self.client.client, BookKeeperSettings(3, 3, 2), EntryCache(1 << 20))
        self.store.isolation_of = self._groups
        metadata = ZooKeeperMetadataStore(SimSession(nodes, self._ask_later, self._ask_later))
        self.factory = ManagedLedgerFactory(
            self.store, metadata, LoopClock(loop), loop, PulsarLayout(), created_ms=self._created_ms
        )

    async def _ask_later(self, operation):
        self.requests += 1
        await asyncio.sleep(self.answer_s)
        return operation()

    async def _groups(self, _properties):
        return await self._ask_later(lambda: None)

    async def _created_ms(self, _path):
        return await self._ask_later(lambda: 1)

    async def answers(self, work):
        """Await the work; return its result and the number of answers that it awaited one after the other."""
        loop = asyncio.get_running_loop()
        self.answer_s, begun_s = ANSWER_S, loop.time()
        result = await work
        return result, int((loop.time() - begun_s) / ANSWER_S)


async def left_behind(cursors, *, killed):
    """A log with entries and acknowledgements that its owner has left; the next owner."""
    cluster, nodes = SimCluster(), SimZooKeeper()
    cluster.network.latency_s = 0.0, 0.0
    first = Owner(cluster, nodes)
    log = await first.factory.open(NAME, CONFIG)
    opened = [await log.open_cursor(f"s{number}", "earliest") for number in range(cursors)]
    positions = await append(log, [message(b"%d" % number) for number in range(6)])
    for cursor in opened:
        for position in positions[1::2]:
            cursor.ack(position)
        await cursor.flush()
    if killed:
        first.client.party.pause()
    else:
        await log.close()
    return Owner(cluster, nodes)


@pytest.mark.parametrize("cursors", [0, 1, 3, 20])
@simulated
async def test_of_a_killed_owner(cursors):
    owner = await left_behind(cursors, killed=True)
    log, answers = await owner.answers(owner.factory.open(NAME, CONFIG))
    # list; metadata of the ledger, in recovery, closed; save of the list; records of the cursors
    assert answers == 6
    assert [cursor.backlog_entries for cursor in log.cursors.values()] == [3] * cursors
    _, answers = await owner.answers(append(log, [message()]))
    assert answers == 2  # save of the list with the next ledger; proof that no other broker has taken the ledger


@pytest.mark.parametrize("cursors", [0, 1, 3, 20])
@simulated
async def test_of_an_owner_that_closed(cursors):
    owner = await left_behind(cursors, killed=False)
    log, answers = await owner.answers(owner.factory.open(NAME, CONFIG))
    assert answers == 3  # list; save of the list; records of the cursors
    _, answers = await owner.answers(append(log, [message()]))
    assert answers == 4  # id of the next ledger, its metadata, save of the list, proof


@simulated
async def test_of_a_new_log():
    cluster = SimCluster()
    cluster.network.latency_s = 0.0, 0.0
    owner = Owner(cluster, SimZooKeeper())
    log, answers = await owner.answers(owner.factory.open(NAME, CONFIG))
    assert answers == 3  # a look for the list, its record, the save that shows it to be this owner's
    _, answers = await owner.answers(append(log, [message()]))
    assert answers == 4


@simulated
async def test_requests_of_a_killed_owners_log():
    """Requests at the same time cost the services as much as requests one after the other."""
    owner = await left_behind(1, killed=True)
    log, _ = await owner.answers(owner.factory.open(NAME, CONFIG))
    await append(log, [message()])
    assert owner.requests == 19


def slow(session):
    """Have each answer of this session take ``ANSWER_S``."""
    for name in ("get", "children", "create_ephemeral", "put", "is_mine"):
        call = getattr(session, name)

        async def later(*arguments, call=call):
            await asyncio.sleep(ANSWER_S)
            return await call(*arguments)

        setattr(session, name, later)


@pytest.mark.parametrize(
    ("authoritative", "most"),
    [
        pytest.param(False, 3, id="leader"),  # node, brokers and leader; reports; the new node
        pytest.param(True, 2, id="chosen"),
    ],
)
@simulated
async def test_of_a_lookup(authoritative, most):
    broker = World(MemoryCluster(), 1)
    await broker.ownership.start()
    await broker.ownership.lookup(TopicName.parse("persistent://t/n/other"), authoritative=True)
    slow(broker.session)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    assert await broker.lookup(TOPIC, authoritative=authoritative) == Here()
    assert int((loop.time() - begun_s) / ANSWER_S) == most
    await broker.tasks.close()
