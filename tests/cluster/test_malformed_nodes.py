"""Nodes of ZooKeeper that another program has damaged, beside a broker of Apache Pulsar and one of this project.

The topics of a load go on meanwhile, no broker ends, and when the node has its former value the damaged topic serves
all of its messages, with the acknowledgements of its subscription.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import contextlib
import pathlib
import uuid

import pulsar
import pytest
import requests
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from pulsar.schema import JsonSchema, Record, String

from tests.cluster.broker_processes import connect
from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.load import SETTLE_S
from tests.cluster.pulsar_broker import LIB, NO_LIB
from tests.cluster.scenes import loaded
from tests.cluster.two_kinds import both_kinds, bring, move
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
COUNT = 20
EMPTY, CUT, NULL, BYTES = b"", b'{"bundles":', b"null", b"\xff\xfe\x00\x01" * 8
EARLIEST = pulsar.InitialPosition.Earliest


class Named(Record):
    name = String()


class Victim:
    """A topic with a schema, every second message of it acknowledged, in a namespace with one bundle."""

    def __init__(self, kinds, owner):
        self.kinds, self.owner = kinds, owner
        self.namespace = f"public/{uuid.uuid4().hex}"
        self.topic = f"persistent://{self.namespace}/v"
        answer = requests.put(f"{owner.http}/admin/v2/namespaces/{self.namespace}", json={"bundles": {"numBundles": 1}})
        assert answer.status_code == 204, answer.text
        for each in kinds:
            url = f"{each.http}/admin/v2/namespaces/{self.namespace}"
            wait_for(lambda url=url: requests.get(url, timeout=30).ok, 30, "the namespace")
        client = self.client()
        consumer = self.subscribe(client)
        producer = client.create_producer(self.topic, schema=JsonSchema(Named), batching_enabled=False)
        for number in range(COUNT):
            producer.send(Named(name=str(number)))
        for number in range(COUNT):
            message = consumer.receive(60_000)
            if number % 2 == 0:
                consumer.acknowledge(message)
        wait_for(lambda: self.unacknowledged(owner) == COUNT // 2, 60, "acknowledgements")
        wait_for(lambda: self.cursor_state(owner) == "Open", 60, "the first ledger of acknowledgements")
        client.close()
        self.unload()
        self.look_up(owner)

    def client(self):
        return connect(*self.kinds)

    def subscribe(self, client):
        how = {"consumer_type": pulsar.ConsumerType.Shared, "initial_position": EARLIEST}
        return client.subscribe(self.topic, "s", schema=JsonSchema(Named), **how)

    def path(self):
        return self.topic.replace("://", "/")

    def unacknowledged(self, broker):
        answer = requests.get(f"{broker.http}/admin/v2/{self.path()}/stats", timeout=30)
        found = answer.json().get("subscriptions", {}).get("s", {}) if answer.ok else {}
        return found.get("msgBacklog") if found else None

    def cursor_state(self, broker):
        """The state of the cursor: Apache Pulsar forgets the mark-delete position of a cursor that closes while its
        first ledger is being created ("Failed to update cursor metadata").
        """
        answer = requests.get(f"{broker.http}/admin/v2/{self.path()}/internalStats", timeout=30)
        return answer.json()["cursors"]["s"]["state"] if answer.ok else None

    def unload(self):
        """Have the bundle unloaded, if its owner can be found."""
        with contextlib.suppress(AssertionError, requests.RequestException):
            move(self.kinds[1], [self.topic], self.owner)

    def look_up(self, owner):
        def found():
            answer = requests.get(f"{self.kinds[1].http}/lookup/v2/topic/{self.path()}", timeout=60)
            return answer.ok and answer.json()["brokerUrl"] == owner.url

        with contextlib.suppress(AssertionError):  # the leader of Apache Pulsar may choose another broker
            wait_for(found, 10, "the owner")

    def check(self):
        """Every message is there, and exactly the unacknowledged messages come again. Returns the owner's address."""
        client = self.client()
        reader = client.create_reader(self.topic, pulsar.MessageId.earliest, schema=JsonSchema(Named))
        stored = [reader.read_next(60_000).value().name for _ in range(COUNT)]
        assert stored == [str(number) for number in range(COUNT)]
        assert not reader.has_message_available()
        consumer = self.subscribe(client)
        again = [int(consumer.receive(60_000).value().name) for _ in range(COUNT // 2)]
        assert sorted(again) == list(range(1, COUNT, 2))
        with pytest.raises(pulsar.Timeout):
            consumer.receive(int(SETTLE_S * 1000))
        client.close()

    def ledger(self, zookeeper):
        """The path of the metadata of the first ledger."""
        answer = requests.get(f"{self.kinds[1].http}/admin/v2/{self.path()}/internalStats", timeout=30)
        digits = f"{answer.json()['ledgers'][0]['ledgerId']:010}"
        path = f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
        assert zookeeper.exists(path)
        return path


@pytest.fixture(scope="module")
def kinds(cluster, tmp_path_factory):
    with both_kinds(cluster, pathlib.Path(tmp_path_factory.mktemp("kinds"))) as started:
        yield started


@pytest.fixture(scope="module")
def load(kinds):
    with loaded(kinds, pause_s=0.02) as made:
        bring(kinds[0], made, kinds[1])
        yield made
        figure("malformed nodes", messages=made.check())


@pytest.fixture(scope="module")
def zookeeper(cluster):
    client = KazooClient(cluster.zookeeper)
    client.start(30)
    yield client
    client.stop()
    client.close()


@contextlib.contextmanager
def damaged(zookeeper, path, value):
    """Let the node have this value in the block, then the value of before; without a node before, no node."""
    try:
        before = zookeeper.get(path)[0]
        zookeeper.set(path, value)
    except NoNodeError:
        before = None
        with contextlib.suppress(NodeExistsError):
            zookeeper.create(path, value, makepath=True)
    try:
        yield
    finally:
        with contextlib.suppress(NoNodeError):
            zookeeper.delete(path) if before is None else zookeeper.set(path, before)


def broker_node(_victim, _zookeeper):
    return "/loadbalance/brokers/127.0.0.1:9"


def owner_node(victim, _zookeeper):
    return f"/namespace/{victim.namespace}/0x00000000_0xffffffff"


def policies(victim, _zookeeper):
    return f"/admin/policies/{victim.namespace}"


def local_policies(victim, _zookeeper):
    return f"/admin/local-policies/{victim.namespace}"


def partitioned(victim, _zookeeper):
    return f"/admin/partitioned-topics/{victim.namespace}/persistent/v"


def schema(victim, _zookeeper):
    return f"/schemas/{victim.namespace}/v"


def ledger(victim, zookeeper):
    return victim.ledger(zookeeper)


def ledger_list(victim, _zookeeper):
    return f"/managed-ledgers/{victim.namespace}/persistent/v"


def cursor(victim, _zookeeper):
    return f"/managed-ledgers/{victim.namespace}/persistent/v/s"


def averages(victim, _zookeeper):
    return f"/loadbalance/bundle-data/{victim.namespace}/0x00000000_0xffffffff"


def configuration(_victim, _zookeeper):
    return "/admin/configuration"


NODES = [
    *(broker_node, owner_node, policies, local_policies, partitioned, schema, ledger, ledger_list, cursor, averages),
    configuration,
]


@pytest.mark.parametrize("value", [EMPTY, CUT, NULL, BYTES], ids=["empty", "cut", "null", "bytes"])
@pytest.mark.parametrize("node", NODES, ids=lambda each: each.__name__)
def test_a_topic_comes_back_with_its_node(kinds, load, zookeeper, node, value):
    victim = Victim(kinds, kinds[1])
    with damaged(zookeeper, node(victim, zookeeper), value):
        victim.unload()
        victim.look_up(kinds[1])
        load.more(10)
    assert [each.process.poll() for each in kinds] == [None, None]
    victim.check()
    load.more(10)
