"""The topics of a data directory, from its metadata alone."""

import asyncio

from magnetar.storage.embedded.engine import EngineSettings, open_embedded
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.reading.stored_topics import stored_topics


async def test_every_topic_with_its_ledgers(tmp_path):
    storage = await open_embedded(str(tmp_path / "data"), EngineSettings())
    loop = asyncio.get_running_loop()
    factory = ManagedLedgerFactory(storage.ledgers, storage.metadata, SystemClock(), loop)
    for name in ("t/n/persistent/b%2Fc", "t/n/persistent/a-partition-3"):
        await factory.open(name)
    await factory.close()
    await storage.close()
    found = stored_topics(str(tmp_path / "data"))
    assert [topic.topic for topic in found] == ["persistent://t/n/a-partition-3", "persistent://t/n/b/c"]
    assert found[0].ledgers == ()
