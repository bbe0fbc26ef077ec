"""Bundles over REST on real services: unloaded, transferred and split, whichever broker is called."""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid

import pulsar
import pytest
import requests
from kazoo.client import KazooClient

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, command, frame
from tests.cluster.broker_processes import (
    Member,
    check_complete,
    connect,
    free_port,
    initialize,
    read_numbers,
    serving,
)
from tests.cluster.broker_processes import Publisher as Publishing
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)


def listeners(name):
    """Listeners that both brokers have, and a listener of this broker alone."""
    port, web_port = free_port(), free_port()
    urls = [f"inside:pulsar://127.0.0.1:{port}", f"inside:http://127.0.0.1:{web_port}"]
    urls += [f"outside:pulsar://{name}.example:6650"]
    urls += [f"outside:http://{name}.example:8080", f"only-{name}:pulsar://{name}.example:6660"]
    ports = {"brokerServicePort": port, "webServicePort": web_port}
    names = {"advertisedListeners": ",".join(urls), "internalListenerName": "inside"}
    return {**ports, **names, "failureDomainsEnabled": "true"}


@pytest.fixture(scope="module")
def members(cluster, tmp_path_factory):
    initialize(cluster)
    directory = tmp_path_factory.mktemp("bundles")
    made = [Member(directory, name, cluster.zookeeper, **listeners(name)) for name in ("b1", "b2")]
    with serving(made) as started:
        yield started


@pytest.fixture
def client(members):
    opened = connect(*members)
    yield opened
    opened.close()


def call(member, method, path, body=None, status=204):
    answer = requests.request(method, f"{member.http}/admin/v2/{path}", json=body, timeout=60)
    assert answer.status_code == status, (method, path, answer.status_code, answer.text)
    return answer


@pytest.fixture
def namespace(members):
    """A new namespace with two bundles, which both brokers have read."""
    name = f"public/{uuid.uuid4().hex}"
    call(members[0], "PUT", f"namespaces/{name}", {"bundles": {"numBundles": 2}})
    url = f"{members[1].http}/admin/v2/namespaces/{name}"
    wait_for(lambda: requests.get(url, timeout=30).status_code == 200)
    return name


def lookup(member, topic):
    path = topic.replace("://", "/")
    return requests.get(f"{member.http}/lookup/v2/topic/{path}", timeout=60).json()["brokerUrl"]


def bundle_of(member, topic):
    return requests.get(f"{member.http}/lookup/v2/topic/{topic.replace('://', '/')}/bundle", timeout=60).text


def test_a_bundle_is_transferred_under_load_and_back(members, client, namespace):
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    publishing = Publishing(client, topic)
    publishing.start()
    publishing.until(20)
    for target in (*members, members[0]):
        broker_id = target.http.removeprefix("http://")
        for asked in members:  # the leader and another
            path = f"namespaces/{namespace}/{bundle_of(members[0], topic)}/unload?destinationBroker={broker_id}"
            call(asked, "PUT", path)
            wait_for(lambda t=target: lookup(members[0], topic) == t.url)
            publishing.until(publishing.acknowledged + 20)
    publishing.finish()
    check_complete(read_numbers(consumer, publishing.acknowledged - 1), publishing.acknowledged)
    path = f"namespaces/{namespace}/{bundle_of(members[0], topic)}/unload?destinationBroker=nowhere:1"
    call(members[0], "PUT", path, status=409)


def test_bundles_are_split_under_load_by_every_algorithm(members, client, namespace):
    topics = [f"persistent://{namespace}/t{number}" for number in range(8)]
    consumers = [client.subscribe(each, "s", initial_position=pulsar.InitialPosition.Earliest) for each in topics]
    publishing = [Publishing(client, each) for each in topics[:3]]
    for each in publishing:
        each.start()
        each.until(10)

    def ranges():
        boundaries = [call(each, "GET", f"namespaces/{namespace}/bundles", status=200).json() for each in members]
        assert boundaries[0] == boundaries[1]
        found = boundaries[0]["boundaries"]
        return [f"{low}_{high}" for low, high in itertools.pairwise(found)]

    for number, (algorithm, unload) in enumerate(
        (("range_equally_divide", False), ("topic_count_equally_divide", True), ("specified_positions_divide", True))
    ):
        before = ranges()
        of_topics = [bundle_of(members[0], topic) for topic in topics]
        chosen = max(of_topics, key=of_topics.count)
        low, high = (int(each, 16) for each in chosen.split("_"))
        body = [low + (high - low) // 3] if algorithm.startswith("specified") else None
        query = f"splitAlgorithmName={algorithm}&unload={str(unload).lower()}"
        call(members[number % 2], "PUT", f"namespaces/{namespace}/{chosen}/split?{query}", body)
        wait_for(
            lambda b=before: (
                len(
                    requests.get(f"{members[1].http}/admin/v2/namespaces/{namespace}/bundles", timeout=30).json()[
                        "boundaries"
                    ]
                )
                >= len(b) + 1
            )
        )
        for each in publishing:
            each.until(each.acknowledged + 10)
    ranges()
    for each in publishing:
        each.finish()
    for consumer, each in zip(consumers, publishing, strict=False):
        check_complete(read_numbers(consumer, each.acknowledged - 1), each.acknowledged)
    for topic in topics:
        assert lookup(members[0], topic) == lookup(members[1], topic)


def test_a_whole_namespace_is_unloaded_and_goes_on(members, client, namespace):
    topics = [f"persistent://{namespace}/t{number}" for number in range(6)]
    producers = [client.create_producer(each) for each in topics]
    for each in producers:
        each.send(b"1")
    call(members[0], "PUT", f"namespaces/{namespace}/unload")
    for each in producers:
        each.send(b"2")
    for topic in topics:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        assert [consumer.receive(30_000).data() for _ in range(2)] == [b"1", b"2"]


def test_partitioned_topics_grow_and_go_wherever_their_partitions_are(members, client, namespace):
    path = f"persistent/{namespace}/parts"
    call(members[0], "PUT", f"{path}/partitions", 4)
    topic = f"persistent://{namespace}/parts"
    wait_for(lambda: client.get_topic_partitions(topic) and len(client.get_topic_partitions(topic)) == 4)
    consumer = client.subscribe(topic, "s")
    for index in range(4):
        producer = client.create_producer(f"{topic}-partition-{index}")
        producer.send(b"x")
        producer.close()
    assert len({lookup(members[0], f"{topic}-partition-{index}") for index in range(4)}) <= 2
    call(members[1], "POST", f"{path}/partitions", 7)
    for index in (4, 5, 6):
        for each in members:
            url = f"{each.http}/admin/v2/{path}-partition-{index}/subscriptions"
            wait_for(lambda u=url: requests.get(u, timeout=30).json() == ["s"])
    url = f"{members[0].http}/admin/v2/{path}/partitions"
    wait_for(lambda: requests.get(url, timeout=30).json()["partitions"] == 7)  # a watch reports the new number
    stats = call(members[0], "GET", f"{path}/partitioned-stats", status=200).json()
    assert len(stats["partitions"]) == 7
    assert stats["msgInCounter"] == 4
    consumer.close()
    call(members[1], "DELETE", f"{path}/partitions")
    for each in members:
        url = f"{each.http}/admin/v2/namespaces/{namespace}/topics"
        wait_for(lambda u=url: requests.get(u, timeout=30).json() == [])
    url = f"{members[0].http}/admin/v2/persistent/{namespace}/partitioned"
    wait_for(lambda: requests.get(url, timeout=30).json() == [])  # this broker has followed
    call(members[0], "DELETE", f"namespaces/{namespace}")
    for each in members:
        url = f"{each.http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda u=url: requests.get(u, timeout=30).status_code == 404)


def test_isolation_policies_choose_the_broker(members, client):
    first, second = (each.http.removeprefix("http://") for each in members)
    namespace = f"public/iso{uuid.uuid4().hex}"
    failover = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"}}
    policy = {"namespaces": [namespace], "primary": [second], "secondary": [], "auto_failover_policy": failover}
    path = "clusters/c1/namespaceIsolationPolicies"
    call(members[0], "POST", f"{path}/only-b2", policy)
    try:
        for each in members:
            wait_for(lambda e=each: "only-b2" in requests.get(f"{e.http}/admin/v2/{path}", timeout=30).json())
        call(members[0], "PUT", f"namespaces/{namespace}", {"bundles": {"numBundles": 4}})
        url = f"{members[1].http}/admin/v2/namespaces/{namespace}"
        wait_for(lambda: requests.get(url, timeout=30).status_code == 200)
        owners = {lookup(members[number % 2], f"persistent://{namespace}/t{number}") for number in range(8)}
        assert owners == {members[1].url}
        found = call(members[0], "GET", f"{path}/brokers", status=200).json()
        assert {each["brokerName"]: each["primary"] for each in found} == {first: False, second: True}
    finally:
        call(members[0], "DELETE", f"{path}/only-b2")
    owned = call(members[0], "GET", f"brokers/c1/{second}/ownedNamespaces", status=200).json()
    assert any(name.startswith(namespace) for name in owned)


@contextlib.contextmanager
def zookeeper_session(zookeeper):
    client = KazooClient(zookeeper)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def named_lookup(member, topic, listener):
    """The answer to a LOOKUP of the binary protocol."""
    with contextlib.closing(RawPeer(member.url)) as peer:
        names = {"advertised_listener_name": listener} if listener else {}
        peer.write(frame(command("LOOKUP", "lookupTopic", topic=topic, request_id=1, authoritative=False, **names)))
        return peer.receive().lookupTopicResponse


def test_lookups_by_listener_give_the_addresses_of_the_owner(members, namespace):
    topic = f"persistent://{namespace}/t"
    owner = next(each for each in members if each.url == lookup(members[0], topic))
    path = f"lookup/v2/topic/{topic.replace('://', '/')}"
    for each in members:
        for listener, url in (
            ("", owner.url),
            ("inside", owner.url),
            ("outside", f"pulsar://{owner.name}.example:6650"),
            (f"only-{owner.name}", f"pulsar://{owner.name}.example:6660"),
        ):
            answer = named_lookup(each, topic, listener)
            assert (answer.response, answer.brokerServiceUrl) == (pb.CommandLookupTopicResponse.Connect, url)
            assert not answer.proxy_through_service_url
            for more in ({"params": {"listenerName": listener}}, {"headers": {"X-Pulsar-ListenerName": listener}}):
                found = requests.get(f"{each.http}/{path}", timeout=60, **more).json()
                web = f"http://{owner.name}.example:8080" if listener == "outside" else owner.http
                assert (found["brokerUrl"], found["httpUrl"]) == (url, web)
        other = next(f"only-{one.name}" for one in members if one is not owner)
        for listener in (other, "none"):
            answer = named_lookup(each, topic, listener)
            assert (answer.error, answer.message) == (pb.ServiceNotReady, f"the broker do not have {listener} listener")
            assert requests.get(f"{each.http}/{path}?listenerName={listener}", timeout=60).status_code == 500


def test_namespaces_of_an_anti_affinity_group_are_apart(members, cluster):
    """The nodes are those that Apache Pulsar 4.2.4 wrote for the same calls."""
    group, names = uuid.uuid4().hex, [f"public/{uuid.uuid4().hex}" for _ in range(2)]
    ids = [each.http.removeprefix("http://") for each in members]
    with zookeeper_session(cluster.zookeeper) as zookeeper:
        for number, name in enumerate(names):
            asked, other = members[number], members[1 - number]
            call(asked, "PUT", f"namespaces/{name}", {"bundles": {"numBundles": 1}})
            domain = {"brokers": [ids[number]]}
            call(asked, "POST", f"clusters/c1/failureDomains/d{number}", domain)
            assert json.loads(zookeeper.get(f"/admin/clusters/c1/failureDomain/d{number}")[0]) == domain
            url = f"{asked.http}/admin/v2/namespaces/{name}/antiAffinity"
            assert requests.post(url, data=group, headers={"content-type": "application/json"}, timeout=60).ok
            assert json.loads(zookeeper.get(f"/admin/local-policies/{name}")[0])["namespaceAntiAffinityGroup"] == group
            url = f"{other.http}/admin/v2/namespaces/{name}"
            wait_for(lambda u=url: requests.get(u, timeout=30).status_code == 200)
            assert call(other, "GET", f"namespaces/{name}/antiAffinity", status=200).text == group
            path = f"{other.http}/admin/v2/clusters/c1/failureDomains/d{number}"
            wait_for(lambda u=path, d=domain: requests.get(u, timeout=30).json() == d)
    found = call(members[0], "GET", f"namespaces/c1/antiAffinity/{group}?tenant=public", status=200).json()
    assert sorted(found) == sorted(names)
    conflict = call(members[0], "POST", "clusters/c1/failureDomains/d9", {"brokers": [ids[1]]}, status=409)
    assert conflict.json()["reason"] == f"[{ids[1]}] already exists in d1"
    owners = {lookup(members[number], f"persistent://{name}/t") for number, name in enumerate(names)}
    assert owners == {each.url for each in members}
    for number in range(2):
        call(members[0], "DELETE", f"clusters/c1/failureDomains/d{number}", status=200)
    report = call(members[0], "GET", "broker-stats/load-report", status=200).json()
    assert report["advertisedListeners"].keys() == {"inside", "outside", "only-b1"}
    assert report["cpu"]["limit"] >= 100
