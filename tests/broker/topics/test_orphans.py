"""The sweep over a real store in which every kind of owner keeps ledgers."""

from __future__ import annotations

import asyncio

from magnetar.broker.compaction.topic_compaction import COMPACTED, COMPACTION_CURSOR
from magnetar.broker.topics import orphans
from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.factory import ManagedLedgerFactory
from tests.broker.compaction_for_tests import single
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.storage.engine_for_tests import ManualClock
from tests.storage.managed_for_tests import append

BEFORE = {
    "log": {"component": "managed-ledger", "pulsar/managed-ledger": NAME.persistence_name},
    "cursor": {"component": "managed-ledger", "pulsar/managed-ledger": NAME.persistence_name, "pulsar/cursor": "s"},
    "compaction": {COMPACTED: NAME.persistence_name},
    "snapshot": {"component": "delayed-index-bucket", "pulsar/managed-ledger": NAME.persistence_name},
}


class RealGround:
    """A data directory and a factory on it."""

    def __init__(self, storage):
        self.storage, self.ledgers, self.metadata = storage, storage.ledgers, storage.metadata
        self.clock = ManualClock()
        self.scheduler = asyncio.get_running_loop()
        self.factory = ManagedLedgerFactory(self.ledgers, self.metadata, self.clock, self.scheduler)

    async def open(self, config, name):
        return await self.factory.open(name, config)


async def opened(path):
    storage = await open_embedded(str(path), EngineSettings())
    bench = TopicBench(ground=RealGround(storage))
    await bench.open()
    return storage, bench


async def test_every_owner_is_asked_and_the_topic_is_whole_afterwards(tmp_path):
    storage, bench = await opened(tmp_path / "data")
    subscription = await bench.subscribe()
    ids = await append(bench.topic.ledger, [single("a", b"1"), single("b", b"2"), single("a", b"3")])
    subscription.cursor.ack(ids[1])
    await subscription.cursor.flush()
    bench.topic.compaction.start()
    await bench.topic.compaction.wait()
    made = {kind: (await storage.ledgers.create(properties)).ledger_id for kind, properties in BEFORE.items()}
    assert await orphans.sweep(storage, {}) == [], "nothing of this process's own time is looked at"
    await bench.close()
    await storage.close()

    storage, bench = await opened(tmp_path / "data")
    known = {str(NAME): bench.topic}
    kept = set(await storage.ledgers.list_ledgers()) - set(made.values())
    assert bench.topic.compaction.current().ledger.ledger_id in kept
    assert await orphans.sweep(storage, known) == sorted(made.values())
    assert set(await storage.ledgers.list_ledgers()) == kept
    assert await orphans.sweep(storage, {}) == []
    topic = await bench.reopen()
    assert topic.subscriptions.by_name["s"].cursor.is_deleted(ids[1])
    assert topic.compaction.current().ledger.entries == 2
    assert topic.ledger.entries == 3
    await bench.close()
    await storage.close()


async def test_a_compacted_ledger_stays_where_its_subscription_has_no_record(tmp_path):
    """A repair of the metadata does not make the lost record anew, and the compacted ledger may be the only copy of its
    messages. The topic is not loaded at the sweep.
    """
    storage, bench = await opened(tmp_path / "data")
    await append(bench.topic.ledger, [single("a", b"1"), single("a", b"2")])
    bench.topic.compaction.start()
    await bench.topic.compaction.wait()
    compacted = bench.topic.compaction.current().ledger.ledger_id
    await bench.close()
    await storage.metadata.delete(cursor_path(NAME.persistence_name, COMPACTION_CURSOR))
    await storage.close()

    storage, bench = await opened(tmp_path / "data")
    await bench.close()
    assert await orphans.sweep(storage, {}) == []
    assert compacted in await storage.ledgers.list_ledgers()
    await storage.close()
