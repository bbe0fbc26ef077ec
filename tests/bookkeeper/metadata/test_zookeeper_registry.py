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
        self._watches_of_children = {}

    def set(self, path, value):
        self.values[path] = value
        self._fire(self._watches, WatchEvent(WatchKind.CHANGED, path))

    def add(self, path):
        self.values[path] = b""
        self._fire(self._watches_of_children, WatchEvent(WatchKind.CHILDREN, path.rpartition("/")[0]))

    @staticmethod
    def _fire(watches, event):
        for watch in watches.pop(event.path, ()):
            asyncio.get_running_loop().call_soon(watch, event)

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
        if watch is not None:
            self._watches_of_children.setdefault(path, []).append(watch)
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


async def test_a_directory_that_appears_between_two_reads_is_followed():
    """The first read-only bookie of a cluster creates the directory."""
    background, session = Background("test"), Session()
    directory, children = "/ledgers/available/readonly", session.children

    async def just_before(path, watch=None):
        try:
            return await children(path, watch)
        finally:
            session.values.setdefault(directory, b"")

    session.children = just_before
    registry = await ZooKeeperRegistry.open(session, "/ledgers", background)
    session.add(f"{directory}/b2:3181")
    await until(lambda: "b2:3181" in registry.read_only)
    await background.close()
