"""A broker knows the new names of another broker at once: requests that a load balancer spreads find them."""

from __future__ import annotations

import uuid

import pulsar
import pytest
import requests

from tests.cluster.broker_processes import Member, connect, initialize, serving
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)
ROUNDS = 50


@pytest.fixture(scope="module")
def members(cluster, tmp_path_factory):
    initialize(cluster)
    directory = tmp_path_factory.mktemp("members")
    made = [Member(directory, name, cluster.zookeeper) for name in ("m1", "m2")]
    with serving(made) as started:
        yield started


@pytest.fixture(scope="module")
def clients(members):
    """A client for each broker: its first request of a topic goes there."""
    opened = [connect(each) for each in members]
    yield opened
    for each in opened:
        each.close()


def answer(method, member, path, body=None):
    """The status, and the answer of an error."""
    with requests.Session() as session:
        found = session.request(method, f"{member.http}/admin/v2/{path}", json=body, timeout=60)
    return found.status_code, found.text if found.status_code >= 300 else ""


def test_names_that_the_other_broker_has_just_created(members, clients):
    one, two = members
    tenant_body = {"allowedClusters": [requests.get(f"{one.http}/admin/v2/clusters", timeout=30).json()[0]]}
    for number in range(ROUNDS):
        a, b = (one, two) if number % 2 else (two, one)
        at_b = clients[members.index(b)]
        tenant = f"t{uuid.uuid4().hex}"
        topic = f"{tenant}/n/parts"
        assert answer("PUT", a, f"tenants/{tenant}", tenant_body) == (204, "")
        assert answer("PUT", b, f"namespaces/{tenant}/n", {"bundles": {"numBundles": 4}}) == (204, "")
        assert answer("PUT", a, f"persistent/{topic}/partitions", 2) == (204, "")
        found = requests.get(f"{b.http}/admin/v2/persistent/{topic}/partitions", timeout=60)
        assert (found.status_code, found.json()["partitions"]) == (200, 2)
        assert answer("PUT", a, f"persistent/{tenant}/n/more/partitions", 3) == (204, "")
        assert len(at_b.get_topic_partitions(f"persistent://{tenant}/n/more")) == 3
        assert answer("PUT", a, f"persistent/{tenant}/n/last/partitions", 2) == (204, "")
        producer = at_b.create_producer(f"persistent://{tenant}/n/last", schema=pulsar.schema.StringSchema())
        assert producer.send("x").partition() in (0, 1)
        producer.close()
        topics = requests.get(f"{b.http}/admin/v2/persistent/{tenant}/n", timeout=60).json()
        assert f"persistent://{tenant}/n/last" not in topics


def test_a_name_that_the_other_broker_has_just_deleted_can_be_taken_again(members):
    one, two = members
    body = {"allowedClusters": [requests.get(f"{one.http}/admin/v2/clusters", timeout=30).json()[0]]}
    tenant = f"t{uuid.uuid4().hex}"
    for number in range(ROUNDS):
        a, b = (one, two) if number % 2 else (two, one)
        assert answer("PUT", a, f"tenants/{tenant}", body) == (204, "")
        assert answer("PUT", b, f"namespaces/{tenant}/n", {"bundles": {"numBundles": 1}}) == (204, "")
        assert answer("DELETE", a, f"namespaces/{tenant}/n") == (204, "")
        assert answer("DELETE", b, f"tenants/{tenant}") == (204, "")


def test_policies_that_the_other_broker_has_just_changed(members):
    """The notice of the change and the request race for the broker, whose threads a busy machine holds up."""
    one, two = members
    namespace, stale = f"public/{uuid.uuid4().hex}", 0
    assert answer("PUT", one, f"namespaces/{namespace}", {"bundles": {"numBundles": 1}}) == (204, "")
    for number in range(1, ROUNDS + 1):
        a, b = (one, two) if number % 2 else (two, one)
        path = f"namespaces/{namespace}/maxProducersPerTopic"
        assert answer("POST", a, path, number) == (204, "")
        url = f"{b.http}/admin/v2/{path}"
        stale += requests.get(url, timeout=60).text != str(number)
        wait_for(lambda url=url, number=number: requests.get(url, timeout=60).text == str(number), 10, "the policy")
    assert stale <= ROUNDS // 4, "half of the first answers were stale when requests did not wait for the notice"
