"""Watches of a subtree with a node that the client may not read; tests/cluster has the others, on a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.errors import MetadataAccessError, NoSuchNodeError
from magnetar.bookkeeper.zookeeper.values import Node, NodeStat, SessionState, WatchEvent, WatchKind
from magnetar.storage.zookeeper.children_watch import ChildrenWatch
from magnetar.storage.zookeeper.tree_watch import TreeWatch
from tests.waiting import until


class GuardedTree:
    """A session of ZooKeeper: path -> time of the last change. `refused`: the paths that the client may not read."""

    state = SessionState.CONNECTED

    def __init__(self, *paths):
        self.nodes = dict.fromkeys(paths, 1)
        self.refused = set()
        self.watchers = []

    async def exists(self, path, watcher):
        self.watchers.append(watcher)
        return self._stat(path) if path in self.nodes else None

    async def get(self, path, watcher):
        self._require(path)
        self.watchers.append(watcher)
        return Node(b"", self._stat(path))

    async def children(self, path, watcher):
        self._require(path)
        self.watchers.append(watcher)
        return [each.rpartition("/")[2] for each in self.nodes if each.rpartition("/")[0] == path]

    def _require(self, path):
        if path not in self.nodes:
            raise NoSuchNodeError(path)
        if path in self.refused:
            raise MetadataAccessError(path)

    def _stat(self, path):
        return NodeStat(0, 0, 0, 0, 0, 1, self.nodes[path], 0)


@pytest.fixture
async def background():
    made = Background("test")
    yield made
    await made.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    for module in ("tree_watch", "children_watch"):
        monkeypatch.setattr(f"magnetar.storage.zookeeper.{module}.REFUSED_S", 0.001)


async def test_a_node_that_may_not_be_read_keeps_no_other_node_from_its_watch(background):
    session = GuardedTree("/a", *(f"/a/{number}" for number in range(200)), "/a/0/b")
    session.refused.add("/a/0")
    reported = []
    watch = TreeWatch(session, "/a", reported.append, background)
    async with asyncio.timeout(5):
        await watch.ready.wait()
    assert len(session.watchers) == 2 * 200
    assert reported == []
    session.refused.clear()
    await until(lambda: reported == ["/a/0", "/a/0/b"])
    watch.cancel()


async def test_changes_beside_a_node_that_may_not_be_read_leave_one_read_of_it_to_come(background, monkeypatch):
    monkeypatch.setattr("magnetar.storage.zookeeper.tree_watch.REFUSED_S", 60)
    session = GuardedTree("/a", "/a/secret")
    session.refused.add("/a/secret")
    reported = []
    watch = TreeWatch(session, "/a", reported.append, background)
    await watch.ready.wait()
    for number in range(20):
        session.nodes[f"/a/{number}"] = 1
        for watcher in session.watchers[:]:
            if watcher == watch._children_fired:
                session.watchers.remove(watcher)
                watcher(WatchEvent(WatchKind.CHANGED, "/a"))
        await until(lambda: f"/a/{number}" in reported)  # noqa: B023 - awaited in this round
    await until(lambda: len(background._tasks) == 1)
    watch.cancel()


async def test_children_that_may_not_be_read_are_reported_once_they_may(background):
    session, reported = GuardedTree("/a", "/a/b"), []
    session.refused.add("/a")
    watch = ChildrenWatch(session, "/a", reported.append, background)
    async with asyncio.timeout(5):
        await watch.ready.wait()
    assert reported == []
    session.refused.clear()
    await until(lambda: reported == [["b"]])
    watch.cancel()


def delete_all(session):
    session.nodes.clear()
    watchers, session.watchers = session.watchers, []
    for watcher in watchers:
        watcher(WatchEvent(WatchKind.DELETED, "/a"))


async def test_a_node_that_is_gone_with_its_namespace_keeps_no_watch(background, monkeypatch):
    monkeypatch.setattr("magnetar.storage.zookeeper.children_watch._DELETED_S", 60)
    session, reported = GuardedTree("/a", "/a/b"), []
    watch = ChildrenWatch(session, "/a", reported.append, background)
    await watch.ready.wait()
    delete_all(session)
    await until(lambda: reported == [["b"], []])
    watch.cancel()
    await asyncio.sleep(0)
    assert session.watchers == []


async def test_children_of_a_node_that_returns_are_reported(background, monkeypatch):
    monkeypatch.setattr("magnetar.storage.zookeeper.children_watch._DELETED_S", 0.001)
    session, reported = GuardedTree("/a", "/a/b"), []
    watch = ChildrenWatch(session, "/a", reported.append, background)
    await watch.ready.wait()
    delete_all(session)
    await until(lambda: len(session.watchers) == 1)
    session.nodes |= {"/a": 2, "/a/c": 2}
    session.watchers.pop()(WatchEvent(WatchKind.CREATED, "/a"))
    await until(lambda: reported[-1] == ["c"])
    delete_all(session)
    session.nodes |= {"/a": 3, "/a/d": 3}  # before the watch reads the node again
    await until(lambda: reported[-1] == ["d"])
    assert len(session.watchers) == 1
    watch.cancel()


async def test_a_watch_is_settled_when_its_reads_have_been_reported(background):
    session, reported, go_on = GuardedTree("/a", "/a/b"), [], asyncio.Event()
    watch = TreeWatch(session, "/a", reported.append, background)
    await watch.ready.wait()
    await watch.settled()  # no watch has fired
    get = session.get

    async def late(path, watcher):
        await go_on.wait()
        return await get(path, watcher)

    session.get = late
    session.nodes |= {"/a/c": 1, "/a/c/d": 1}
    watch._children_fired(WatchEvent(WatchKind.CHILDREN, "/a"))
    settled = asyncio.create_task(watch.settled())
    await asyncio.sleep(0)
    assert not settled.done()
    go_on.set()
    await settled
    assert reported == ["/a/c", "/a/c/d"]
    watch.cancel()


async def test_a_node_that_is_read_again_later_keeps_no_watch_from_being_settled(background, monkeypatch):
    monkeypatch.setattr("magnetar.storage.zookeeper.tree_watch.REFUSED_S", 60)
    session = GuardedTree("/a", "/a/b")
    session.refused.add("/a/b")
    watch = TreeWatch(session, "/a", lambda _: None, background)
    await watch.ready.wait()
    async with asyncio.timeout(5):
        await watch.settled()
    watch.cancel()


async def test_a_look_that_leaves_a_node_to_another_look_waits_for_it(background):
    """The look at the parent ends before the look that has begun with its child meanwhile."""
    session, reported, go_on = GuardedTree("/a"), [], asyncio.Event()
    watch = TreeWatch(session, "/a", reported.append, background)
    await watch.ready.wait()
    get, children, first = session.get, session.children, asyncio.Event()

    async def late(path, watcher):
        await go_on.wait()
        return await get(path, watcher)

    async def later(path, watcher):
        await first.wait()
        return await children(path, watcher)

    session.get, session.children = late, later
    session.nodes["/a/c"] = 1
    watch._children_fired(WatchEvent(WatchKind.CHILDREN, "/a"))
    settled = asyncio.create_task(watch.settled())
    await asyncio.sleep(0)
    watch._value_fired(WatchEvent(WatchKind.CHANGED, "/a/c"))  # takes the node first
    await asyncio.sleep(0)
    first.set()
    await until(lambda: len(watch._looks) == 1)
    await asyncio.sleep(0)
    assert not settled.done()
    go_on.set()
    await settled
    assert reported == ["/a/c"]
    watch.cancel()


async def test_a_node_is_changing_from_the_notice_of_its_change_to_the_report(background):
    session, reported, changing = GuardedTree("/a", "/a/1"), [], {}
    watch = TreeWatch(session, "/a", reported.append, background, changing)
    await watch.ready.wait()
    session.nodes["/a/1"] = 2
    watch._value_fired(WatchEvent(WatchKind.CHANGED, "/a/1"))
    assert list(changing) == ["/a/1"]
    assert reported == []
    await changing["/a/1"]
    assert reported == ["/a/1"]
    await until(lambda: not changing)
    watch._value_fired(WatchEvent(WatchKind.UNKNOWN, "/a/1"))  # a lost connection: read it once the session is back
    assert not changing
    watch.cancel()
