"""How much one frame of the metadata log may hold."""

from __future__ import annotations

import asyncio

from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.metadata.logged_metadata import MOST_GROUP_BYTES

VALUE = bytes(256 << 10)
COUNT = 64


async def test_operations_that_come_together_are_split_by_their_size(tmp_path):
    storage = await open_embedded(str(tmp_path))
    before = storage.metadata.transactions
    await asyncio.gather(*(storage.metadata.put(f"/n/{number}", VALUE) for number in range(COUNT)))
    assert storage.metadata.transactions - before >= COUNT * len(VALUE) // MOST_GROUP_BYTES
    assert len(await storage.metadata.children("/n")) == COUNT
    await storage.close()
