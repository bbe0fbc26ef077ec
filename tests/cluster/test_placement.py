"""Racks and groups of real bookies: the settings of tools decide which bookies a ledger gets."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
import requests

from magnetar.bookkeeper.bookies.isolation import POLICY_KEY, groups_of_ledger, isolation_groups
from magnetar.bookkeeper.bookies.placement import PlacementRules
from magnetar.bookkeeper.bookies.secure_connect import SecureConnect
from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.errors import NoSuchNodeError
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions
from tests.cluster.broker_processes import Member, connect, initialize
from tests.waiting import until

PAIR = LedgerOptions(2, 2, 2)
ENFORCED = ClientOptions(placement=PlacementRules(enforce_min_racks=True))

pytestmark = pytest.mark.timeout(180)


def uri(cluster):
    return f"zk+hierarchical://{cluster.zookeeper}/ledgers"


@pytest.fixture
async def racks(cluster):
    """A function that writes the node of racks; afterwards the fixture removes all racks."""
    session = await ZooKeeperSession.connect(ZooKeeperOptions(cluster.zookeeper))

    async def write(value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        try:
            await session.set("/bookies", data)
        except NoSuchNodeError:
            await session.create("/bookies", data)

    yield write
    await write({})
    await session.close()


async def ensembles(client, count=8):
    made = [await client.create(PAIR) for _ in range(count)]
    return [set(writer.metadata.last_segment.bookies) for writer in made]


async def test_a_client_follows_the_racks_and_keeps_good_groups_beside_a_malformed_one(cluster, racks):
    b1, b2, b3 = cluster.bookies
    await racks({"default": {b1: {"rack": "/r1"}, b2: {"rack": "/r1"}, b3: {"rack": "/r2"}}})
    async with await BookKeeper.connect(uri(cluster), ENFORCED) as client:
        assert all(b3 in ensemble for ensemble in await ensembles(client))
        await racks({"broken": [3], "default": {b1: {"rack": "r2"}, b2: {"rack": "/r1"}, b3: {"rack": "/r1"}}})
        await until(lambda: client.bookies.rack(b1) == "/r2", 30, "the new racks")
        assert all(b1 in ensemble for ensemble in await ensembles(client))
        assert client.bookies.groups == {"default": {b1, b2, b3}}


def publish_with_groups(member, groups, namespace, topics):
    """Set racks, and the group red for the namespace; publish, and return the last ledger of each topic."""
    base = f"{member.start().http}/admin/v2"
    for bookie, group in groups.items():
        url = f"{base}/bookies/racks-info/{bookie}?group={group}"
        assert requests.post(url, json={"rack": "/r1", "hostname": "h"}, timeout=30).status_code == 204
    shown = requests.get(f"{base}/bookies/racks-info", timeout=30).json()
    assert {bookie: group for group, members in shown.items() for bookie in members} == groups
    listed = requests.get(f"{base}/bookies/all", timeout=30).json()["bookies"]
    assert {each["bookieId"] for each in listed} == groups.keys()
    assert requests.put(f"{base}/namespaces/{namespace}", timeout=30).status_code == 204
    url = f"{base}/namespaces/{namespace}/persistence/bookieAffinity"
    assert requests.post(url, json={"bookkeeperAffinityGroupPrimary": "red"}, timeout=30).status_code == 204
    assert requests.get(url, timeout=30).json()["bookkeeperAffinityGroupPrimary"] == "red"
    client = connect(member)
    for topic in topics:
        client.create_producer(topic).send(b"x")
    client.close()
    paths = [topic.replace("://", "/") for topic in topics]
    stats = [requests.get(f"{base}/{path}/internalStats", timeout=30).json() for path in paths]
    return [each["ledgers"][-1]["ledgerId"] for each in stats]


async def test_a_namespace_keeps_its_ledgers_on_its_group_of_bookies(cluster, racks, tmp_path):
    await asyncio.to_thread(initialize, cluster)
    b1, b2, b3 = cluster.bookies
    quorums = {f"managedLedgerDefault{each}": 2 for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    member = Member(tmp_path, "p1", cluster.zookeeper, **quorums)
    namespace = f"public/{uuid.uuid4().hex}"
    topics = [f"persistent://{namespace}/t{number}" for number in range(4)]
    groups = {b1: "red", b2: "blue", b3: "red"}
    try:
        ledgers = await asyncio.to_thread(publish_with_groups, member, groups, namespace, topics)
    finally:
        member.end()
    async with await BookKeeper.connect(uri(cluster)) as reader:
        for ledger_id in ledgers:
            metadata = await reader.metadata(ledger_id)
            assert set(metadata.last_segment.bookies) == {b1, b3}
            assert groups_of_ledger(metadata.custom, None) == isolation_groups("red", None), POLICY_KEY


async def test_bookies_tell_their_free_space(cluster):
    options = ClientOptions(disk_weights=True)
    async with await BookKeeper.connect(uri(cluster), options) as client:
        for address in client.bookies.writable.values():
            assert await SecureConnect(options.security).free_space(address) > 0
        writer = await client.create(PAIR)
        await writer.append(b"a")
        await writer.close()
