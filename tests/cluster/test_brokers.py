"""Brokers of this project on a real ZooKeeper and real bookies, with the official client."""

from __future__ import annotations

import contextlib
import time
import uuid

import pulsar
import pytest
import requests
from kazoo.client import KazooClient

from tests.cluster.broker_processes import (
    SESSION_MS,
    Member,
    Publisher,
    check_complete,
    connect,
    initialize,
    read_numbers,
    serving,
)
from tests.cluster.conftest import LONG
from tests.cluster.features import Scene, exclusive_producers, properties_of_subscriptions, schemas
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def initialized(cluster):
    said = initialize(cluster)
    assert "0 nodes made" in said[1]  # a repetition changes nothing
    return cluster


@pytest.fixture(scope="module")
def members(initialized, tmp_path_factory):
    directory = tmp_path_factory.mktemp("members")
    made = [Member(directory, name, initialized.zookeeper) for name in ("m1", "m2")]
    with serving(made) as started:
        yield started


@pytest.fixture
def zookeeper(initialized):
    opened = KazooClient(initialized.zookeeper)
    opened.start(30)
    yield opened
    opened.stop()
    opened.close()


@pytest.fixture
def topic():
    return f"persistent://public/default/{uuid.uuid4().hex}"


@pytest.fixture
def client(members):
    opened = connect(*members)
    yield opened
    opened.close()


def owner_of(members, topic):
    """(the broker that serves the topic, the other broker)."""
    path = topic.replace("://", "/")
    url = requests.get(f"{members[0].http}/lookup/v2/topic/{path}", timeout=30).json()["brokerUrl"]
    return tuple(sorted(members, key=lambda each: each.url != url))


def stats_of(member, topic):
    return requests.get(f"{member.http}/admin/v2/{topic.replace('://', '/')}/stats", timeout=30).json()


def test_a_cluster_that_was_not_initialized_is_refused(cluster, tmp_path):
    stranger = Member(tmp_path, "stranger", cluster.zookeeper, clusterName="nowhere")
    with pytest.raises(AssertionError):
        stranger.start()
    assert stranger.process.wait(30) == 78
    assert "initialize-cluster-metadata" in stranger.log_text()


def test_both_brokers_serve_one_cluster(members, client):
    names = {each.http.removeprefix("http://") for each in members}
    for each in members:
        assert names <= set(requests.get(f"{each.http}/admin/v2/brokers/c1", timeout=30).json())
    leaders = [requests.get(f"{each.http}/admin/v2/brokers/leaderBroker", timeout=30).json() for each in members]
    assert leaders[0] == leaders[1]
    assert leaders[0]["brokerId"] in names
    # Bundles of its own: those of public/default are where an earlier test moved them.
    namespace = f"public/{uuid.uuid4().hex}"
    assert requests.put(f"{members[0].http}/admin/v2/namespaces/{namespace}", timeout=30).status_code == 204
    wait_for(lambda: namespace in requests.get(f"{members[1].http}/admin/v2/namespaces/public", timeout=30).json())
    topics = [f"persistent://{namespace}/{uuid.uuid4().hex}" for _ in range(8)]
    consumers = [client.subscribe(topic, "s") for topic in topics]
    for number, topic in enumerate(topics):
        producer = client.create_producer(topic)
        producer.send(str(number).encode())
    assert [int(consumer.receive(30_000).data()) for consumer in consumers] == list(range(8))
    assert {owner_of(members, topic)[0].name for topic in topics} == {"m1", "m2"}
    for topic in topics:  # the wrong broker sends a request about a topic to the owner
        for each in members:
            stats = requests.get(f"{each.http}/admin/v2/{topic.replace('://', '/')}/stats", timeout=30)
            assert stats.json()["msgInCounter"] == 1


def test_a_broker_follows_changes_of_the_other(members):
    first, second = (each.http for each in members)
    name = f"public/{uuid.uuid4().hex}"
    assert requests.put(f"{first}/admin/v2/namespaces/{name}", timeout=30).status_code == 204
    wait_for(lambda: name in requests.get(f"{second}/admin/v2/namespaces/public", timeout=30).json())
    assert requests.post(f"{second}/admin/v2/namespaces/{name}/messageTTL", json=7, timeout=30).status_code == 204
    wait_for(lambda: requests.get(f"{first}/admin/v2/namespaces/{name}/messageTTL", timeout=30).text == "7")
    parts = f"persistent/{name}/parts"
    assert requests.put(f"{first}/admin/v2/{parts}/partitions", json=3, timeout=30).status_code == 204
    wait_for(lambda: requests.get(f"{second}/admin/v2/{parts}/partitions", timeout=30).json().get("partitions") == 3)


def test_a_deleted_tenant_leaves_no_nodes(members, client, zookeeper):
    tenant = f"t{uuid.uuid4().hex}"
    name, body = f"{tenant}/n", {"adminRoles": [], "allowedClusters": ["c1"]}
    first, second = (f"{each.http}/admin/v2" for each in members)
    assert requests.put(f"{first}/tenants/{tenant}", json=body, timeout=30).status_code == 204
    assert requests.put(f"{first}/namespaces/{name}", json={"bundles": {"numBundles": 4}}, timeout=30).ok
    wait_for(lambda: requests.put(f"{second}/persistent/{name}/parts/partitions", json=2, timeout=30).ok)
    for url in (first, second):
        path = f"{url}/persistent/{name}/parts/partitions"  # not found until the broker's watch has reported
        wait_for(lambda path=path: requests.get(path, timeout=30).json().get("partitions") == 2)
    client.create_producer(f"persistent://{name}/parts", schema=pulsar.schema.StringSchema()).close()
    assert f"/managed-ledgers/{name}/persistent/parts-partition-0" in nodes_of(zookeeper, tenant)
    for path in (f"persistent/{name}/parts/partitions", f"namespaces/{name}", f"tenants/{tenant}"):
        answer = requests.delete(f"{second}/{path}", timeout=60)
        assert answer.status_code == 204, (path, answer.text)
    assert nodes_of(zookeeper, tenant) == []


def nodes_of(zookeeper, tenant, path=""):
    """Paths of the tenant's nodes, those of ledgers left out."""
    found = [path] if f"/{tenant}" in path else []
    for name in zookeeper.get_children(path or "/"):
        if (path, name) != ("", "ledgers"):
            found += nodes_of(zookeeper, tenant, f"{path}/{name}")
    return found


def test_policies_of_topics_reach_every_broker_and_stay(members, client):
    namespace = f"public/{uuid.uuid4().hex}"
    assert requests.put(f"{members[0].http}/admin/v2/namespaces/{namespace}", timeout=30).status_code == 204
    path = f"persistent/{namespace}/t"
    urls = [f"{each.http}/admin/v2/{path}" for each in members]
    wait_for(lambda: requests.put(f"{urls[1]}/partitions", json=2, timeout=30).status_code in (204, 409))
    wait_for(lambda: requests.get(f"{urls[0]}/partitions", timeout=30).json().get("partitions") == 2)
    assert requests.post(f"{urls[0]}/maxProducers", json=1, timeout=30).status_code == 204
    wait_for(lambda: requests.get(f"{urls[1]}/maxProducers", timeout=30).text == "1")
    assert requests.post(f"{urls[1]}/maxConsumers", json=2, timeout=30).status_code == 204
    wait_for(lambda: requests.get(f"{urls[0]}/maxConsumers", timeout=30).text == "2")
    producer = client.create_producer(f"persistent://{namespace}/t-partition-0")
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(f"persistent://{namespace}/t-partition-0")
    producer.close()
    owner, other = owner_of(members, f"persistent://{namespace}/__change_events")
    owner.kill()
    try:
        other_url = f"{other.http}/admin/v2/{path}"
        assert requests.get(f"{other_url}/maxProducers", timeout=60).text == "1"  # known policies stay in force
        wait_for(lambda: requests.post(f"{other_url}/maxProducers", json=5, timeout=60).status_code == 204, 60)
    finally:
        owner.start()
    assert requests.get(f"{owner.http}/admin/v2/{path}/maxProducers", timeout=60).text == "5"


def test_a_killed_owner_is_replaced_and_nothing_is_lost(members, client, topic):
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    publisher = Publisher(client, topic)
    publisher.start()
    publisher.until(100)
    before = read_numbers(consumer, 50)
    time.sleep(1.5)  # acknowledgements are durable a second after they came
    owner, other = owner_of(members, topic)
    stored = publisher.acknowledged
    owner.kill()
    try:
        publisher.until(stored + 100)
        publisher.finish()
        assert owner_of([other], topic)[0] is other
        found = read_numbers(consumer, publisher.acknowledged - 1)
        check_complete(before + found, publisher.acknowledged)
        assert publisher.longest_silence_s < SESSION_MS / 1000 + 15
    finally:
        owner.start()


def test_an_owner_that_stops_hands_its_topics_over(members, client, topic):
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    publisher = Publisher(client, topic)
    publisher.start()
    publisher.until(100)
    owner, other = owner_of(members, topic)
    created_ms = stats_of(owner, topic)["topicCreationTimeStamp"]
    stored = publisher.acknowledged
    assert owner.terminate() == 0
    try:
        publisher.until(stored + 100)
        publisher.finish()
        assert abs(stats_of(other, topic)["topicCreationTimeStamp"] - created_ms) < 1000
        check_complete(read_numbers(consumer, publisher.acknowledged - 1), publisher.acknowledged)
        assert publisher.longest_silence_s < SESSION_MS / 1000  # no client waits for the end of a session
    finally:
        owner.start()


def test_an_unloaded_bundle_is_served_again(members, client, topic):
    producer = client.create_producer(topic)
    producer.send(b"1")
    bundle = requests.get(f"{members[0].http}/lookup/v2/topic/{topic.replace('://', '/')}/bundle", timeout=30).text
    for each in members:
        answer = requests.put(f"{each.http}/admin/v2/namespaces/public/default/{bundle}/unload", timeout=30)
        assert answer.status_code == 204, answer.text
    producer.send(b"2")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert [consumer.receive(30_000).data() for _ in range(2)] == [b"1", b"2"]


def test_features_hold_across_an_unload(members, client):
    """A sample of ``test_features``."""
    namespace, scene = f"public/{uuid.uuid4().hex}", Scene(client, members, delay_s=0)
    scene.admin("PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 1}})
    for each in members:  # the other broker follows within a moment
        wait_for(lambda url=f"{each.http}/admin/v2/namespaces/{namespace}": requests.get(url, timeout=30).ok)
    sample = (schemas, properties_of_subscriptions, exclusive_producers)
    halves = [feature(scene, f"persistent://{namespace}/{feature.__name__}") for feature in sample]
    for half in halves:
        next(half)
    scene.admin("PUT", f"namespaces/{namespace}/0x00000000_0xffffffff/unload")
    for half in halves:
        with contextlib.suppress(StopIteration):
            next(half)


@pytest.mark.skipif(not LONG, reason="part of `make cluster`")
def test_a_suspended_owner_is_replaced_and_disconnects_its_clients(members, client, topic):
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    publisher = Publisher(client, topic)
    publisher.start()
    publisher.until(100)
    owner, _ = owner_of(members, topic)
    stored = publisher.acknowledged
    owner.suspend()
    try:
        time.sleep(3 * SESSION_MS / 1000)
        owner.go_on()
        publisher.until(stored + 100)
        publisher.finish()
        check_complete(read_numbers(consumer, publisher.acknowledged - 1), publisher.acknowledged)
    finally:
        owner.end()  # the guard may have ended the owner: later tests would find one broker
        owner.start()
