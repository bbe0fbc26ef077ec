"""The ZooKeeper session against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from magnetar.bookkeeper.errors import (
    MetadataRequestError,
    MetadataUnavailableError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeVersionError,
    NoSuchNodeError,
)
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import (
    Check,
    Create,
    Delete,
    SessionState,
    Set,
    WatchKind,
    ZooKeeperOptions,
)
from tests.waiting import until


def options(cluster, **changes):
    return ZooKeeperOptions(cluster.zookeeper, **{"session_timeout_ms": 6000, "request_timeout_s": 20.0, **changes})


@pytest.fixture
async def session(cluster):
    opened = await ZooKeeperSession.connect(options(cluster))
    yield opened
    await opened.close()


@pytest.fixture
async def root(session):
    return await session.create(f"/test-{uuid.uuid4().hex}")


async def test_values_have_versions_and_a_lost_comparison_changes_nothing(session, root):
    path = f"{root}/a"
    assert await session.create(path, b"0") == path
    with pytest.raises(NodeExistsError):
        await session.create(path, b"other")
    assert (await session.set(path, b"1", version=0)).version == 1
    with pytest.raises(NodeVersionError):
        await session.set(path, b"2", version=0)
    node = await session.get(path)
    assert (node.value, node.version, node.stat.ephemeral_owner) == (b"1", 1, 0)
    with pytest.raises(NodeVersionError):
        await session.delete(path, version=0)
    with pytest.raises(NodeNotEmptyError):
        await session.delete(root)
    await session.delete(path, version=1)
    assert await session.exists(path) is None
    with pytest.raises(NoSuchNodeError):
        await session.get(path)


async def test_parents_are_made_on_demand(session, root):
    with pytest.raises(NoSuchNodeError):
        await session.create(f"{root}/x/y/z", b"v")
    await session.create(f"{root}/x/y/z", b"v", make_parents=True)
    assert await session.children(f"{root}/x") == ["y"]


async def test_sequential_nodes_count_up(session, root):
    made = [await session.create(f"{root}/ID-", sequential=True, ephemeral=True) for _ in range(3)]
    assert made == [f"{root}/ID-{number:010}" for number in range(3)]
    stat = await session.exists(made[0])
    assert stat.ephemeral_owner == session.session_id


async def test_a_transaction_is_all_or_nothing_and_names_the_operation_that_failed(session, root):
    made = await session.commit([Create(f"{root}/a", b"1"), Create(f"{root}/a/b"), Set(f"{root}/a", b"2", 0)])
    assert made[:2] == [f"{root}/a", f"{root}/a/b"]
    assert made[2].version == 1
    with pytest.raises(NodeVersionError) as failed:
        await session.commit([Create(f"{root}/c"), Check(f"{root}/a", 7), Delete(f"{root}/a/b")])
    assert failed.value.path == f"{root}/a"
    assert sorted(await session.children(root)) == ["a"]
    assert await session.children(f"{root}/a") == ["b"]


async def test_a_watch_fires_once(session, root):
    events = asyncio.Queue()
    assert await session.exists(f"{root}/a", watch=events.put_nowait) is None
    await session.children(root, watch=events.put_nowait)
    await session.create(f"{root}/a")
    seen = {(await events.get()).kind, (await events.get()).kind}
    assert seen == {WatchKind.CREATED, WatchKind.CHILDREN}
    await session.get(f"{root}/a", watch=events.put_nowait)
    await session.set(f"{root}/a", b"x")
    await session.set(f"{root}/a", b"y")
    event = await events.get()
    assert (event.kind, event.path) == (WatchKind.CHANGED, f"{root}/a")
    assert events.empty()


async def test_ephemeral_nodes_end_with_the_session(cluster, session, root):
    other = await ZooKeeperSession.connect(options(cluster))
    await other.create(f"{root}/lock", ephemeral=True)
    gone = asyncio.Queue()
    await session.exists(f"{root}/lock", watch=gone.put_nowait)
    await other.close()
    assert (await gone.get()).kind is WatchKind.DELETED
    with pytest.raises(MetadataUnavailableError):
        await other.get("/")


async def test_an_unsendable_request_fails_and_leaves_the_session_connected(session, root):
    for change in (
        session.set(root, bytes(2_000_000)),
        session.create(f"{root}/big", bytes(2_000_000)),
        session.commit([Set(root, bytes(600_000)), Create(f"{root}/big", bytes(600_000))]),
    ):
        with pytest.raises(MetadataRequestError):
            await change
    await session.set(root, bytes(1_040_000))
    with pytest.raises(MetadataRequestError):
        await session.set(root, "text")
    assert session.state is SessionState.CONNECTED


async def test_a_thousand_operations_are_pipelined(session, root):
    made = await asyncio.gather(*(session.create(f"{root}/{number:04}") for number in range(1000)))
    assert len(made) == 1000
    await session.sync(root)
    assert len(await session.children(root)) == 1000


async def test_no_server_is_an_error_within_the_deadline():
    nobody = ZooKeeperOptions("127.0.0.1:1", connect_timeout_s=0.3)
    with pytest.raises(MetadataUnavailableError, match="no connection to ZooKeeper"):
        await ZooKeeperSession.connect(nobody)


async def test_an_outage_suspends_the_session_and_reads_wait_for_its_end(cluster, session, root):
    await session.create(f"{root}/kept", ephemeral=True)
    states, events = [], asyncio.Queue()
    suspended, connected = asyncio.Event(), asyncio.Event()

    def on_state(state):
        states.append(state)
        if state is SessionState.SUSPENDED:
            suspended.set()
        elif suspended.is_set():
            connected.set()

    session.on_state(on_state)
    await session.get(root, watch=events.put_nowait)
    before = session.session_id
    await asyncio.to_thread(cluster.stop, "zk")
    waiting = asyncio.create_task(session.get(root))
    await asyncio.to_thread(cluster.kill, "zk")
    await suspended.wait()
    assert (await events.get()).kind is WatchKind.UNKNOWN
    await asyncio.to_thread(cluster.start, "zk")
    await waiting
    await connected.wait()
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert session.session_id == before
    assert (await session.get(f"{root}/kept")).stat.ephemeral_owner == before


async def test_a_client_whose_thread_failed_opens_another_session(session, root, monkeypatch):
    await session.create(f"{root}/mine", ephemeral=True, make_parents=True)
    monkeypatch.setattr(session, "_pause_s", 0.01)
    states, first, connection = [], session.session_id, session._client._connection
    session.on_state(states.append)

    def unexpected(*_arguments):
        monkeypatch.delattr(connection, "_read_response")
        raise RuntimeError("an answer to another request")

    monkeypatch.setattr(connection, "_read_response", unexpected)
    with pytest.raises(MetadataUnavailableError):
        await session.create(f"{root}/lost")
    await until(lambda: states == [SessionState.LOST, SessionState.CONNECTED])
    assert session.session_id != first
    await session.create(f"{root}/later", ephemeral=True)
    await asyncio.sleep(1)
    assert states == [SessionState.LOST, SessionState.CONNECTED], "the new session stays"
