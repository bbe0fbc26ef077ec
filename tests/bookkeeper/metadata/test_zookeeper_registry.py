"""The registry of bookies over a service of nodes whose watches a test fires. On a real ZooKeeper:
``tests/cluster/test_placement.py``.
"""

from __future__ import annotations

import asyncio
import json

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.errors import NoSuchNodeError
from magnetar.bookkeeper.metadata.bookie_racks import DEFAULT_RACK
from magnetar.bookkeeper.metadata.zookeeper_registry import ZooKeeperRegistry
from magnetar.bookkeeper.zookeeper.values import Node, WatchEvent, WatchKind
from tests.waiting import until

BOOKIE = "b1:3181"
RACKS = "/bookies"


class Session:
    """Nodes with one-shot watches."""

    def __init__(self) -> None:
        self.values = {"/ledgers/available": b"", f"/ledgers/available/{BOOKIE}": b""}
        self._watches = {}

    def set(self, path, value):
        self.values[path] = value
        for watch in self._watches.pop(path, ()):
            asyncio.get_running_loop().call_soon(watch, WatchEvent(WatchKind.CHANGED, path))

    def _watch(self, path, watch):
        if watch is not None:
            self._watches.setdefault(path, []).append(watch)

    async def exists(self, path, watch=None):
        self._watch(path, watch)
        return object() if path in self.values else None

    async def get(self, path, watch=None):
        if path not in self.values:
            raise NoSuchNodeError(path)
        self._watch(path, watch)
        return Node(self.values[path], None)

    async def children(self, path, watch=None):
        if path not in self.values:
            raise NoSuchNodeError(path)
        self._watch(path, watch)
        return [each.removeprefix(f"{path}/") for each in self.values if each.startswith(f"{path}/")]


async def test_a_change_of_racks_is_reported_like_a_change_of_bookies():
    """A ledger that waits for bookies may wait for bookies of other racks."""
    background, session = Background("test"), Session()
    registry = await ZooKeeperRegistry.open(session, "/ledgers", background)
    reports = []
    registry.on_change(lambda: reports.append(registry.rack(BOOKIE)))
    assert registry.rack(BOOKIE) == DEFAULT_RACK
    for rack in ("/one", "/two"):
        session.set(RACKS, json.dumps({"g": {BOOKIE: {"rack": rack}}}).encode())
        await until(lambda rack=rack: registry.rack(BOOKIE) == rack)
    assert reports == ["/one", "/two"]
    session.set(RACKS, session.values[RACKS])
    await until(lambda: RACKS in session._watches)
    assert reports == ["/one", "/two"]
    await background.close()
