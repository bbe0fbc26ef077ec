"""The leader balances real load: a bundle leaves the broker that has it all, a bundle with many topics is split."""

from __future__ import annotations

import itertools
import uuid

import pulsar
import pytest
import requests

from tests.cluster.broker_processes import (
    Member,
    Publisher,
    check_complete,
    connect,
    initialize,
    read_numbers,
    serving,
)
from tests.cluster.conftest import LONG
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`: the leader acts once a minute"),
]
SETTINGS = {
    "statsUpdateFrequencyInSecs": 5,
    "loadBalancerReportUpdateMinIntervalMillis": 1000,
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder",
    "minUnloadMessage": 1,
    "maxUnloadPercentage": 0.5,
    "loadBalancerNamespaceBundleMaxTopics": 5,
}
TOPICS = 8


@pytest.fixture(scope="module")
def members(cluster, tmp_path_factory):
    initialize(cluster)
    directory = tmp_path_factory.mktemp("balancing")
    made = [Member(directory, name, cluster.zookeeper, **SETTINGS) for name in ("l1", "l2")]
    with serving(made) as started:
        yield started


def call(member, method, path, body=None):
    answer = requests.request(method, f"{member.http}/admin/v2/{path}", json=body, timeout=60)
    assert answer.ok, (method, path, answer.status_code, answer.text)
    return answer


def new_namespace(members, bundles):
    name = f"public/{uuid.uuid4().hex}"
    call(members[0], "PUT", f"namespaces/{name}", {"bundles": {"numBundles": bundles}})
    url = f"{members[1].http}/admin/v2/namespaces/{name}"
    wait_for(lambda: requests.get(url, timeout=30).status_code == 200, 60)
    return name


def ranges(member, namespace):
    found = call(member, "GET", f"namespaces/{namespace}/bundles").json()["boundaries"]
    return [f"{low}_{high}" for low, high in itertools.pairwise(found)]


def owned(member, namespace):
    broker_id = member.http.removeprefix("http://")
    names = call(member, "GET", f"brokers/c1/{broker_id}/ownedNamespaces").json()
    return [name for name in names if name.startswith(f"{namespace}/")]


def counted(members, metric):
    """The sum over the brokers: each of them may have been the leader."""
    pages = [requests.get(f"{each.http}/metrics", timeout=60).text for each in members]
    lines = [line for page in pages for line in page.splitlines() if line.startswith(f"{metric}{{")]
    assert len(lines) == len(members)
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_load_moves_bundles_and_many_topics_split_one(members):
    first, second = members
    busy, crowded = new_namespace(members, 4), new_namespace(members, 1)
    broker_id = first.http.removeprefix("http://")
    for part in ranges(first, busy):
        call(first, "PUT", f"namespaces/{busy}/{part}/unload?destinationBroker={broker_id}")
    client = connect(*members)
    try:
        topics = [f"persistent://{busy}/t{number}" for number in range(TOPICS)]
        consumers = [client.subscribe(each, "s", initial_position=pulsar.InitialPosition.Earliest) for each in topics]
        publishing = [Publisher(client, each) for each in topics]
        producers = [client.create_producer(f"persistent://{crowded}/t{number}") for number in range(TOPICS)]
        for each in publishing:
            each.start()
        assert owned(second, busy) == []
        wait_for(lambda: owned(second, busy), 300, "a bundle to leave the busy broker", every=1.0)
        wait_for(lambda: len(ranges(second, crowded)) > 1, 300, "the crowded bundle to be split", every=1.0)
        assert owned(first, busy), "not everything is moved"
        wait_for(lambda: counted(members, "pulsar_lb_unload_bundle_total") >= 1, 60)
        wait_for(lambda: counted(members, "pulsar_lb_bundles_split_total") >= 1, 60)
        for producer in producers:
            producer.send(b"after")
        for each in publishing:
            each.until(each.acknowledged + 20)
            each.finish()
        for consumer, each in zip(consumers, publishing, strict=True):
            check_complete(read_numbers(consumer, each.acknowledged - 1), each.acknowledged)
    finally:
        client.close()
