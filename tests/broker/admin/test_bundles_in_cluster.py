"""Calls about bundles and topics of which another broker of the cluster is the owner."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools

import pytest

from magnetar.broker.admin.wide_answers import WALKS_AT_ONCE_OF_ADDRESS
from magnetar.broker.errors import RestError
from magnetar.broker.ownership.ownership import AskBroker, BrokerAddresses, Here, ServedAt
from magnetar.broker.policies.records import even_bundles
from magnetar.broker.policies.values import BundlesData
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName
from tests.broker.admin_fakes import open_client

NAMESPACE = "public/default"
URL = f"/admin/v2/namespaces/{NAMESPACE}"
OTHER = BrokerAddresses("pulsar://other:6650", None, "http://other:8080", None)
LOW, HIGH = "0x00000000_0x80000000", "0x80000000_0xffffffff"


class Cluster:
    """Two bundles; ``owners`` maps each to its owner, ``calls`` lists the operations that the routes request."""

    def __init__(self):
        self.owners = {LOW: Here(), HIGH: ServedAt(OTHER)}
        self.is_leader = True
        self.answer = Here()
        self.elsewhere = set()
        self.calls = []
        self.topics_elsewhere = None

    def serves(self, name):
        return str(name) not in self.elsewhere

    def bundles(self, _namespace):
        return even_bundles(2)

    def owned(self):
        return [f"{NAMESPACE}/{bundle}" for bundle, owner in self.owners.items() if isinstance(owner, Here)]

    async def bundle_owner(self, bundle):
        return self.owners.get(bundle.rpartition("/")[2])

    async def lookup_bundle(self, bundle, *, authoritative):
        return self.owners.get(bundle.rpartition("/")[2]) or AskBroker(OTHER, authoritative)

    async def lookup(self, _name, *, authoritative):
        return self.answer

    async def release(self, bundle):
        self.calls.append(("release", bundle.rpartition("/")[2]))
        return True

    async def assign(self, bundle, broker):
        self.calls.append(("assign", bundle.rpartition("/")[2], broker))
        return self.is_leader

    async def split(self, bundle, hashes):
        self.calls.append(("split", bundle.rpartition("/")[2], list(hashes)))
        return True

    async def forget(self, namespace):
        self.calls.append(("forget", namespace))

    async def brokers(self):
        return ["localhost:8080", "other:8080"]

    def leads(self):
        return self.is_leader

    async def leader(self):
        return ("localhost:8080", "http://localhost:8080") if self.is_leader else ("other:8080", OTHER.web_url)

    # --- calls to other brokers

    async def call(self, method, path, body=None):
        self.calls.append((method, path))
        if "refused" in path:
            raise RestError(412, "in use")
        return self.topics_elsewhere


@pytest.fixture
async def client():
    return await open_client()


@pytest.fixture
def cluster(client):
    made = Cluster()
    client.broker.ownership.current = made
    client.broker.peers = made
    return made


async def test_a_namespace_is_unloaded_wherever_its_bundles_are(client, cluster):
    answer = await client("PUT", f"{URL}/unload")
    assert answer.status == 204
    assert sorted(cluster.calls) == [("PUT", f"{URL}/{HIGH}/unload"), ("release", LOW)]


async def test_a_bundle_is_unloaded_at_its_owner(client, cluster):
    assert (await client("PUT", f"{URL}/{LOW}/unload")).status == 204
    answer = await client("PUT", f"{URL}/{HIGH}/unload")
    assert answer.status == 307
    assert answer.headers["location"] == f"http://other:8080{URL}/{HIGH}/unload?authoritative=true"
    assert cluster.calls == [("release", LOW)]


async def test_redirects_to_an_owner_are_authoritative_at_the_leader_alone(client, cluster):
    cluster.answer = ServedAt(OTHER)
    for cluster.is_leader in (True, False):
        query = f"authoritative={str(cluster.is_leader).lower()}"
        for method, path in (
            ("PUT", f"{URL}/{HIGH}/unload"),
            ("PUT", f"{URL}/{HIGH}/split"),
            ("GET", f"{URL}/{HIGH}/topicHashPositions"),
            ("GET", f"/admin/v2/persistent/{NAMESPACE}/t/stats"),
        ):
            answer = await client(method, path)
            assert (answer.status, answer.headers["location"]) == (307, f"http://other:8080{path}?{query}")


async def test_every_broker_answers_about_permissions_of_a_topic(client, cluster):
    topic = f"/admin/v2/persistent/{NAMESPACE}/t"
    assert (await client("PUT", topic)).status == 204
    cluster.answer = ServedAt(OTHER)
    assert (await client("GET", f"{topic}/stats")).status == 307
    assert (await client("POST", f"{topic}/permissions/role", ["consume"])).status == 204
    assert (await client("GET", f"{topic}/permissions")).json == {"role": ["consume"]}
    assert (await client("DELETE", f"{topic}/permissions/role")).status == 204


async def test_a_request_about_another_broker_goes_there(client, cluster):
    for path in ("health?brokerId=other%3A8080", "c1/other:8080/ownedNamespaces"):
        answer = await client("GET", f"/admin/v2/brokers/{path}")
        assert (answer.status, answer.headers["location"]) == (307, f"http://other:8080/admin/v2/brokers/{path}")
    assert (await client("GET", "/admin/v2/brokers/health?brokerId=none%3A8080")).status == 404


async def test_a_split_without_its_positions_is_refused_before_its_owner_is_found(client, cluster):
    path = f"{URL}/{HIGH}/split?splitAlgorithmName=specified_positions_divide"
    assert (await client("PUT", path)).status == 412
    assert (await client("PUT", path, [5])).status == 307


async def test_a_request_for_a_split_is_judged_in_the_order_of_apache_pulsar(client, cluster):
    for bundle, namespace in ((LOW, NAMESPACE), ("zz", NAMESPACE), ("LARGEST", NAMESPACE), (LOW, "public/none")):
        path = f"/admin/v2/namespaces/{namespace}/{bundle}/split?splitAlgorithmName"
        assert (await client("PUT", f"{path}=nope", raw=b"x")).status == 400
        answer = await client("PUT", f"{path}=nope")
        assert answer.json["reason"].startswith("Unsupported namespace bundle split algorithm")
        answer = await client("PUT", f"{path}=specified_positions_divide")
        assert answer.json["reason"].startswith("With specified_positions_divide split algorithm")
        if bundle == "zz":
            assert (await client("PUT", f"{path}=%20")).json["reason"] == "Invalid bundle range: zz"
        answer = await client("PUT", f"/admin/v2/namespaces/{namespace}/{bundle}/unload?destinationBroker=nope:1")
        assert (answer.status, cluster.calls) == (409, [])


async def test_a_bundle_of_a_missing_namespace_is_refused_in_the_same_words_however_it_is_chosen(client, cluster):
    for bundle in (LOW, "LARGEST"):
        answer = await client("PUT", f"/admin/v2/namespaces/public/none/{bundle}/split")
        assert (answer.status, answer.json["reason"], cluster.calls) == (404, "Namespace not found", [])


async def test_a_missing_quota_is_refused_in_the_words_of_zookeeper(client, cluster):
    answer = await client("DELETE", f"/admin/v2/resource-quotas/{NAMESPACE}/{LOW}")
    node = f"/loadbalance/resource-quota/{NAMESPACE}/{LOW}"
    refused = "org.apache.zookeeper.KeeperException$NoNodeException: KeeperErrorCode = NoNode for"
    assert (answer.status, answer.json["reason"]) == (404, f"{refused} {node}")
    assert cluster.calls == []


async def test_lists_have_the_non_persistent_topics_of_all_brokers(client, cluster):
    high = f"non-persistent://{NAMESPACE}/elsewhere"
    cluster.topics_elsewhere = [high]
    for path in (f"non-persistent/{NAMESPACE}", f"namespaces/{NAMESPACE}/topics?mode=ALL"):
        cluster.calls.clear()
        assert (await client("GET", f"/admin/v2/{path}")).json == [high]
        assert cluster.calls == [("GET", f"/admin/v2/non-persistent/{NAMESPACE}/{HIGH}")]
    cluster.calls.clear()
    assert (await client("GET", f"/admin/v2/non-persistent/{NAMESPACE}?bundle={LOW}")).json == []
    assert (await client("GET", f"/admin/v2/persistent/{NAMESPACE}")).json == []
    assert cluster.calls == []


async def test_lists_of_many_bundles_make_calls_for_a_few_requests_at_a_time(client, cluster, monkeypatch):
    lows = [f"0x{number << 24:08x}" for number in range(100)]
    bundles = [f"{low}_{high}" for low, high in itertools.pairwise([*lows, "0xffffffff"])]
    monkeypatch.setattr(
        cluster, "bundles", lambda _: BundlesData(boundaries=[*lows, "0xffffffff"], num_bundles=len(bundles))
    )
    cluster.owners = dict.fromkeys(bundles, ServedAt(OTHER))
    active, most, made = 0, 0, 0

    async def call(_method, _path, _body=None):
        nonlocal active, most, made
        active, made = active + 1, made + 1
        most = max(most, active)
        await asyncio.sleep(0)
        active -= 1

    monkeypatch.setattr(cluster, "call", call)
    requests = [client("GET", f"/admin/v2/non-persistent/{NAMESPACE}") for _ in range(3 * WALKS_AT_ONCE_OF_ADDRESS)]
    answers = await asyncio.gather(*requests)
    assert {(each.status, *each.json) for each in answers} == {(200,)}
    assert made == len(bundles) * len(requests)
    assert most <= 8 * WALKS_AT_ONCE_OF_ADDRESS


async def test_the_owner_of_a_bundle_without_topics_answers_with_no_content(client, cluster):
    assert (await client("GET", f"/admin/v2/non-persistent/{NAMESPACE}")).json == []


async def test_the_owner_of_a_non_persistent_topic_answers_about_its_partitions(client, cluster):
    cluster.answer = ServedAt(OTHER)
    path = f"/admin/v2/non-persistent/{NAMESPACE}/t/partitions"
    answer = await client("GET", path)
    assert (answer.status, answer.headers["location"]) == (307, f"http://other:8080{path}?authoritative=true")
    assert (await client("GET", f"/admin/v2/persistent/{NAMESPACE}/t/partitions")).status == 404
    assert (await client("PUT", f"/admin/v2/non-persistent/{NAMESPACE}/parts/partitions", 2)).status == 204
    assert (await client("GET", f"/admin/v2/non-persistent/{NAMESPACE}/parts/partitions")).json["partitions"] == 2


async def test_a_bundle_is_transferred_by_the_leader(client, cluster):
    assert (await client("PUT", f"{URL}/{LOW}/unload?destinationBroker=nowhere:1")).status == 409
    assert (await client("PUT", f"{URL}/{LOW}/unload?destinationBroker=other:8080")).status == 204
    assert (await client("PUT", f"{URL}/{HIGH}/unload?destinationBroker=localhost:8080")).status == 204
    assert cluster.calls == [
        ("assign", LOW, "other:8080"),
        ("release", LOW),
        ("assign", HIGH, "localhost:8080"),
        ("PUT", f"{URL}/{HIGH}/unload"),
    ]
    cluster.is_leader = False
    answer = await client("PUT", f"{URL}/{LOW}/unload?destinationBroker=other:8080")
    assert answer.status == 307
    expected = f"http://other:8080{URL}/{LOW}/unload?destinationBroker=other%3A8080&authoritative=false"
    assert answer.headers["location"] == expected
    cluster.calls.clear()
    # the request of a leader to the owner
    assert (await client("PUT", f"{URL}/{LOW}/unload?destinationBroker=other:8080&authoritative=true")).status == 204
    assert cluster.calls == [("release", LOW)]


async def test_a_bundle_is_split_by_its_owner(client, cluster):
    answer = await client("PUT", f"{URL}/{HIGH}/split?unload=true")
    assert answer.status == 307
    assert answer.headers["location"] == f"http://other:8080{URL}/{HIGH}/split?unload=true&authoritative=true"
    assert (await client("PUT", f"{URL}/{LOW}/split")).status == 204
    assert cluster.calls == [("split", LOW, [0x40000000])]
    cluster.calls.clear()
    assert (await client("PUT", f"{URL}/{LOW}/split?unload=true")).status == 204
    released = [("release", "0x00000000_0x40000000"), ("release", "0x40000000_0x80000000")]
    assert cluster.calls == [("split", LOW, [0x40000000]), *released]
    bundles = (await client("GET", f"/admin/v2/namespaces/{NAMESPACE}")).json["bundles"]
    assert bundles["numBundles"] == 2  # the bundles in force
    assert (await client("PUT", f"{URL}/{LOW}/split?splitAlgorithmName=none")).status == 412


async def test_given_positions_outside_of_the_bundle_are_left_out(client, cluster):
    await client("PUT", "/admin/v2/persistent/public/default/a")
    await client("PUT", "/admin/v2/persistent/public/default/b")
    path = f"{URL}/{LOW}/split?splitAlgorithmName=specified_positions_divide"
    answer = await client("PUT", path, [1, 0, 0x80000000, 0x90000000, 5])
    assert answer.status == 204, answer.raw
    assert cluster.calls in ([], [("split", LOW, [1, 5])])  # with fewer than two topics there is nothing to part


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", f"{URL}/{HIGH}/clearBacklog"),
        ("post", f"{URL}/{HIGH}/clearBacklog/s"),
        ("post", f"{URL}/{HIGH}/unsubscribe/s"),
        ("get", f"{URL}/{HIGH}/topicHashPositions"),
        ("get", f"/admin/v2/non-persistent/{NAMESPACE}/{HIGH}"),
    ],
)
async def test_calls_about_a_bundle_go_to_its_owner(client, cluster, method, path):
    answer = await client(method.upper(), path)
    assert answer.status == 307
    assert answer.headers["location"].startswith("http://other:8080/admin/v2/")


async def test_non_persistent_topics_of_a_bundle_without_an_owner_are_no_content_and_make_no_owner(client, cluster):
    cluster.owners[HIGH] = None
    answer = await client("GET", f"/admin/v2/non-persistent/{NAMESPACE}/{HIGH}")
    assert answer.status == 204
    answer = await client("GET", f"/admin/v2/non-persistent/{NAMESPACE}/{LOW}")
    assert (answer.status, answer.json) == (200, [])


async def test_the_hashes_of_a_bundle_without_an_owner_are_refused(client, cluster):
    cluster.owners.clear()
    answer = await client("GET", f"{URL}/{HIGH}/topicHashPositions")
    assert answer.status == 412
    assert answer.json["reason"] == f"Failed to find ownership for ServiceUnit:{NAMESPACE}/{HIGH}"


async def test_calls_about_all_bundles_become_calls_about_each(client, cluster):
    assert (await client("POST", f"{URL}/clearBacklog")).status == 204
    assert cluster.calls == [("POST", f"{URL}/{each}/clearBacklog") for each in (LOW, HIGH)]


@pytest.mark.parametrize(("method", "operation"), [("POST", "clearBacklog"), ("PUT", "unload")])
async def test_a_bundle_that_fails_leaves_the_effect_on_the_others(client, cluster, monkeypatch, method, operation):
    lows = [f"0x{number << 24:08x}" for number in range(100)]
    bundles = [f"{low}_{high}" for low, high in itertools.pairwise([*lows, "0xffffffff"])]
    monkeypatch.setattr(cluster, "bundles", lambda _: BundlesData(boundaries=[*lows, "0xffffffff"], num_bundles=100))
    cluster.owners = dict.fromkeys(bundles, ServedAt(OTHER))
    called = []

    async def call(_method, path, _body=None):
        called.append(path)
        if bundles[3] in path:
            raise RestError(503, "another broker does not answer")

    monkeypatch.setattr(cluster, "call", call)
    answer = await client(method, f"{URL}/{operation}")
    assert (answer.status, answer.json["reason"]) == (503, "another broker does not answer")
    assert called == [f"{URL}/{each}/{operation}" for each in bundles]


async def test_a_deleted_namespace_is_given_up_everywhere(client, cluster):
    await client("PUT", "/admin/v2/namespaces/public/gone")
    assert (await client("DELETE", "/admin/v2/namespaces/public/gone")).status == 204
    assert ("PUT", f"/admin/v2/namespaces/public/gone/{HIGH}/unload?settled=true") in cluster.calls
    assert cluster.calls[-1] == ("forget", "public/gone")


OUTSIDE = BrokerAddresses("pulsar://out:6650", None, "http://out:8080", None)
LOOKUP = f"/lookup/v2/topic/persistent/{NAMESPACE}/t"


async def test_a_lookup_by_listener_gives_the_addresses_of_the_broker_it_leads_to(client, cluster):
    listening = dataclasses.replace(OTHER, listeners=(("out", OUTSIDE),))
    cluster.answer = ServedAt(listening)
    for asked in (f"{LOOKUP}?listenerName=out", LOOKUP):
        answer = await client("GET", asked, headers={"X-Pulsar-ListenerName": "out"})
        assert (answer.json["brokerUrl"], answer.json["httpUrl"]) == (OUTSIDE.service_url, OUTSIDE.web_url)
    assert (await client("GET", LOOKUP)).json["brokerUrl"] == OTHER.service_url
    cluster.answer = AskBroker(listening, authoritative=True)
    answer = await client("GET", LOOKUP, headers={"X-Pulsar-ListenerName": "out"})
    assert answer.headers["location"] == f"http://out:8080{LOOKUP}?authoritative=true&listenerName=out"
    for found in (cluster.answer, ServedAt(listening), Here()):
        cluster.answer = found
        assert (await client("GET", f"{LOOKUP}?listenerName=none")).status == 500


async def test_a_subscription_of_a_partitioned_topic_is_made_wherever_its_partitions_are(client, cluster):
    topic = "/admin/v2/persistent/public/default/parts"
    assert (await client("PUT", f"{topic}/partitions", 2)).status == 204
    cluster.elsewhere.add("persistent://public/default/parts-partition-1")
    assert (await client("PUT", f"{topic}/subscription/s?replicated=true", "earliest")).status == 204
    assert cluster.calls == [("PUT", f"{topic}-partition-1/subscription/s?replicated=true")]
    assert (await client("GET", f"{topic}-partition-0/subscriptions")).json == ["s"]


async def test_a_failure_domain_is_a_list_of_ids(client):
    path = "/admin/v2/clusters/standalone/failureDomains/d"
    for brokers in (5, "a:1", [["a:1"]]):
        assert (await client("POST", path, {"brokers": brokers})).status == 400
    assert (await client("POST", path, {"brokers": ["a:1", "a:1"], "more": 1})).status == 204
    assert (await client("GET", path)).json == {"brokers": ["a:1"]}


FORCE = Settings(force_delete_namespace_allowed=True)


@pytest.mark.parametrize("force", [True, False])
async def test_a_topic_whose_creation_was_under_way_at_another_broker_goes_with_its_namespace(force):
    """The other broker had not seen the mark of the deletion when the load of the topic began."""
    client = await open_client(FORCE)
    cluster = client.broker.ownership.current = client.broker.peers = Cluster()
    late = [TopicName.parse(f"persistent://{NAMESPACE}/late-{number}") for number in range(2)]
    unload = cluster.call

    async def call(method, path, body=None):
        await unload(method, path, body)
        if path.endswith("unload?settled=true") and late:
            await client.topics.create(late.pop(), {})

    cluster.call = call
    answer = await client("DELETE", f"{URL}?force={str(force).lower()}")
    assert answer.status == (204 if force else 409)
    rounds = [("release", LOW), ("PUT", f"{URL}/{HIGH}/unload?settled=true")]
    assert cluster.calls == (rounds * 3 + [("forget", NAMESPACE)] if force else rounds)
    assert bool(client.topics.plain) is not force
    assert client.broker.namespaces.exists(NAMESPACE) is not force


async def test_a_deletion_gives_up_while_topics_come_again_and_again():
    client = await open_client(FORCE)
    cluster = client.broker.ownership.current = client.broker.peers = Cluster()

    async def call(_method, _path, body=None):
        await client.topics.create(TopicName.parse(f"persistent://{NAMESPACE}/again"), {})

    cluster.call = call
    assert (await client("DELETE", f"{URL}?force=true")).status == 409
    assert not client.broker.namespaces.policies(NAMESPACE).deleted


@pytest.mark.parametrize("query", ["", "?settled=true"])
async def test_an_unload_for_a_deletion_awaits_the_loads_under_way(client, cluster, query):
    async def settled(namespace):
        cluster.calls.append(("settled", namespace))

    client.topics.settled = settled
    assert (await client("PUT", f"{URL}/{LOW}/unload{query}")).status == 204
    assert cluster.calls == [("release", LOW), *([("settled", NAMESPACE)] if query else [])]
