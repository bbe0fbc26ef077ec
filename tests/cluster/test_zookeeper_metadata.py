"""The MetadataStore on a real ZooKeeper: the contract of all stores, and cases that need several brokers."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from magnetar.bookkeeper.errors import MetadataUnavailableError
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions
from magnetar.storage.errors import BadVersionError, StorageUnavailableError
from magnetar.storage.interfaces import Guard
from magnetar.storage.zookeeper.zookeeper_metadata import ZooKeeperMetadataStore
from tests.storage.metadata_contract import MetadataStoreContract
from tests.waiting import until


@pytest.fixture
async def chroot(cluster):
    """An empty tree of its own."""
    session = await ZooKeeperSession.connect(ZooKeeperOptions(cluster.zookeeper, session_timeout_ms=6000))
    root = await session.create(f"/test-{uuid.uuid4().hex}")
    await session.close()
    return f"{cluster.zookeeper}{root}"


@pytest.fixture
async def connect(chroot):
    sessions = []

    async def connected(**changes):
        options = {"session_timeout_ms": 6000, "request_timeout_s": 20.0, **changes}
        sessions.append(await ZooKeeperSession.connect(ZooKeeperOptions(chroot, **options)))
        return sessions[-1]

    yield connected
    for session in sessions:
        await session.close()


@pytest.fixture
async def metadata(connect):
    store = ZooKeeperMetadataStore(await connect())
    yield store
    await store.close()


class TestZooKeeper(MetadataStoreContract):
    parents_may_go = False

    @staticmethod
    async def watching(store):
        await store.watching()


async def test_ephemeral_nodes_end_with_the_store_and_with_the_session(connect, metadata):
    for end in ("store", "session"):
        session = await connect()
        other = ZooKeeperMetadataStore(session)
        assert await other.create_ephemeral("/e/lock", b"other") == 0
        assert await other.is_mine("/e/lock")
        assert not await metadata.is_mine("/e/lock")
        with pytest.raises(BadVersionError):
            await metadata.create_ephemeral("/e/lock", b"mine")
        await (other if end == "store" else session).close()
        assert await metadata.get("/e/lock") is None


async def test_an_ephemeral_node_of_a_dead_session_is_taken_over(connect, metadata):
    session = await connect()
    await ZooKeeperMetadataStore(session).put_ephemeral("/e/x", b"old")
    assert await metadata.put_ephemeral("/e/x", b"new") == 0
    await session.close()
    assert await metadata.get("/e/x") == (b"new", 0)


async def test_numbers_are_given_once(connect, metadata):
    other = ZooKeeperMetadataStore(await connect())
    numbers = [await store.create_numbered("/counters/n/-") for store in (metadata, other, metadata)]
    assert numbers == [0, 1, 2]


async def test_nodes_have_the_time_of_their_creation(connect, metadata):
    before_ms = time.time() * 1000 - 1
    await metadata.put("/times/x", b"1")
    created_ms = await metadata.created_ms("/times/x")
    assert before_ms <= created_ms <= time.time() * 1000
    await asyncio.sleep(0.002)
    await metadata.put("/times/x", b"2")
    assert await ZooKeeperMetadataStore(await connect()).created_ms("/times/x") == created_ms
    assert await metadata.created_ms("/times/y") == 0


async def test_two_stores_count_one_sequence(connect, metadata):
    other = ZooKeeperMetadataStore(await connect())
    taken = await asyncio.gather(*(store.next_sequence("/seq") for store in (metadata, other) for _ in range(5)))
    assert sorted(taken) == list(range(10))


async def test_a_watch_sees_writes_of_others_also_in_later_nodes(connect, metadata):
    other = ZooKeeperMetadataStore(await connect())
    await metadata.put("/admin/policies/t", b"1")
    seen = []
    metadata.watch("/admin", seen.append)
    await metadata.watching()
    assert not seen
    await other.put("/admin/policies/t", b"2")
    await until(lambda: seen == ["/admin/policies/t"])
    for turn in range(3):  # also a node that was deleted is watched when it comes back
        await other.put("/admin/policies/t/n", b"%d" % turn)
        await until(lambda: seen and seen[-1] == "/admin/policies/t/n")
        seen.clear()
        await other.delete("/admin/policies/t/n")
        await until(lambda: seen == ["/admin/policies/t/n"])
        seen.clear()


async def test_every_change_of_many_is_followed_by_a_report(connect, metadata):
    other = ZooKeeperMetadataStore(await connect())
    read = {}

    async def note(path):
        read[path] = await metadata.get(path)

    tasks = set()
    metadata.watch("/w", lambda path: tasks.add(asyncio.ensure_future(note(path))))
    await metadata.watching()
    for turn in range(30):
        await asyncio.gather(*(other.put(f"/w/{name}/v", b"%d" % turn) for name in range(5)))
    for name in range(5):
        await until(lambda: read.get(f"/w/{name}/v") == (b"29", 29))  # noqa: B023 - awaited at once


@pytest.mark.parametrize("done", [True, False], ids=["the write was made", "the write was not made"])
async def test_a_write_whose_answer_was_lost_is_settled_by_reading(metadata, done, monkeypatch):
    """``done``: the service made the write before the connection broke."""

    def lose_once(name):
        real, lost = getattr(metadata.session, name), []

        async def call(*arguments, **options):
            if lost:
                return await real(*arguments, **options)
            lost.append(1)
            if done:
                await real(*arguments, **options)
            raise MetadataUnavailableError(arguments[0])

        monkeypatch.setattr(metadata.session, name, call)

    lose_once("create")
    assert await metadata.put("/a", b"1", -1) == 0
    lose_once("set")
    assert await metadata.put("/a", b"2", 0) == 1
    assert await metadata.get("/a") == (b"2", 1)
    lose_once("delete")
    await metadata.delete("/a", 1)
    assert await metadata.get("/a") is None


@pytest.mark.parametrize("done", [True, False], ids=["the write was made", "the write was not made"])
async def test_a_guarded_write_whose_answer_was_lost_is_settled_by_reading(metadata, done, monkeypatch):
    real, lost = metadata.session.commit, []

    async def lose_every_second(operations):
        lost.append(1)
        if done or len(lost) % 2 == 0:
            answer = await real(operations)
        if len(lost) % 2:
            raise MetadataUnavailableError(operations[0].path)
        return answer

    await metadata.put("/g", b"")
    monkeypatch.setattr(metadata.session, "commit", lose_every_second)
    guard = Guard("/g", 0)
    assert await metadata.put("/g/a", b"1", -1, guard) == 0
    assert await metadata.put("/g/a", b"2", 0, guard) == 1
    await metadata.delete("/g/a", 1, guard)
    assert await metadata.get("/g/a") is None
    assert len(lost) == 6


async def test_a_lost_answer_and_another_writer_are_a_lost_comparison(connect, metadata, monkeypatch):
    other = ZooKeeperMetadataStore(await connect())
    await metadata.put("/a", b"0", -1)
    real, lost = metadata.session.set, []

    async def lose_to_another(path, value, version):
        if not lost:
            lost.append(1)
            await other.put(path, b"theirs", version)
            raise MetadataUnavailableError(path)
        return await real(path, value, version)

    monkeypatch.setattr(metadata.session, "set", lose_to_another)
    with pytest.raises(BadVersionError) as lost_comparison:
        await metadata.put("/a", b"ours", 0)
    assert lost_comparison.value.found == 1
    assert await metadata.get("/a") == (b"theirs", 1)


async def test_without_an_answer_the_store_is_unavailable(metadata):
    await metadata.session.close()
    with pytest.raises(StorageUnavailableError):
        await metadata.get("/a")
    with pytest.raises(StorageUnavailableError):
        await metadata.put("/a", b"")


async def test_children_are_followed_also_of_a_node_that_comes_later(connect, metadata):
    other = ZooKeeperMetadataStore(await connect())
    seen = []
    cancel = metadata.watch_children("/managed-ledgers/t", seen.append)
    await metadata.watching()
    assert seen == [[]]
    await other.put("/managed-ledgers/t/b", b"")
    await until(lambda: seen[-1] == ["b"])
    await other.put("/managed-ledgers/t/a", b"")
    await until(lambda: sorted(seen[-1]) == ["a", "b"])
    await other.put("/managed-ledgers/t/a", b"changed")
    for name in "ab":
        await other.delete(f"/managed-ledgers/t/{name}")
    await until(lambda: seen[-1] == [])
    await other.delete("/managed-ledgers/t")
    await other.put("/managed-ledgers/t/again", b"")
    await until(lambda: seen[-1] == ["again"])
    cancel()


async def test_a_store_that_has_caught_up_has_reported_the_changes_of_others(connect, metadata):
    other, reported = ZooKeeperMetadataStore(await connect()), set()
    metadata.watch("/w", reported.add)
    await metadata.watching()
    for number in range(40):
        await other.put(f"/w/{number % 7}/n{number}/v", b"")
        await metadata.caught_up()
        assert f"/w/{number % 7}/n{number}/v" in reported
        reported.clear()
        await other.put(f"/w/{number % 7}/n{number}/v", b"changed")
        await metadata.caught_up()
        assert reported == {f"/w/{number % 7}/n{number}/v"}
    await other.close()
