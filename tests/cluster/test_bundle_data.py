"""The leader's averages of load change hands: written by Apache Pulsar, continued by this broker, and back.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import json

import pytest
import requests
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from magnetar.broker.ownership.load_averages import BROKER_AVERAGES, BUNDLE_DATA, BrokerLoad, decode_bundle_load
from tests.cluster.broker_processes import Member, connect
from tests.cluster.conftest import LONG
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker, initialize_by_pulsar
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`: a leader writes once a minute"),
]
NAMESPACE = "public/averaged"
OFTEN = {
    "loadBalancerResourceQuotaUpdateIntervalMinutes": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 1000,
    "loadBalancerReportUpdateMaxIntervalMinutes": 1,
    "loadBalancerSheddingEnabled": "false",
    "statsUpdateFrequencyInSecs": 5,
}


class Averages:
    """The nodes of the averages."""

    def __init__(self, zookeeper):
        self.client = KazooClient(zookeeper)
        self.client.start()

    def close(self):
        self.client.stop()
        self.client.close()

    def stored(self, bundle):
        """The value of the bundle's node, None without a node."""
        try:
            return self.client.get(f"{BUNDLE_DATA}/{bundle}")[0]
        except NoNodeError:
            return None

    def continued(self, bundle, before):
        """Wait until a leader has written the averages with more samples; return their number and their value."""

        def more():
            value = self.stored(bundle)
            load = None if value is None else decode_bundle_load(value)
            count = 0 if load is None else load.long_term_data.num_samples
            return (count, value) if count > before else None

        return wait_for(more, 400, f"more than {before} samples of {bundle}", every=1.0)

    def brokers(self):
        return set(self.client.get_children(BROKER_AVERAGES))


def id_of(member):
    return member.http.removeprefix("http://")


def leads(member):
    found = requests.get(f"{member.http}/admin/v2/brokers/leaderBroker", timeout=60)
    return found.ok and found.json().get("brokerId") == id_of(member)


def test_averages_continue_under_leaders_of_both_kinds(cluster, tmp_path):
    initialize_by_pulsar(cluster)
    first, second = (PulsarBroker(tmp_path, name, cluster.zookeeper, **MORE, **OFTEN) for name in ("p1", "p2"))
    ours = Member(tmp_path, "ours", cluster.zookeeper, **MORE, **OFTEN)
    averages, clients = Averages(cluster.zookeeper), []
    try:
        first.start()
        wait_for(lambda: leads(first), 60, "the leader")
        ours.start()
        body = {"bundles": {"numBundles": 1}}
        requests.put(f"{first.http}/admin/v2/namespaces/{NAMESPACE}", json=body, timeout=60)
        url = f"{ours.http}/admin/v2/namespaces/{NAMESPACE}"  # the other broker follows within a moment
        wait_for(lambda: requests.get(url, timeout=60).status_code == 200, 30, "the namespace")
        clients.append(connect(first, ours))
        producer = clients[0].create_producer(f"persistent://{NAMESPACE}/t")
        producer.send(b"1")
        bundle = f"{NAMESPACE}/0x00000000_0xffffffff"
        samples, of_pulsar = averages.continued(bundle, 0)

        first.terminate()
        wait_for(lambda: leads(ours), 120, "this broker as the leader")
        wait_for(lambda: averages.brokers() == {id_of(ours)}, 120, "the end of the average of the stopped broker")
        producer.send(b"2")  # at this broker now
        samples, of_ours = averages.continued(bundle, samples)
        assert shape(json.loads(of_ours)) == shape(json.loads(of_pulsar))
        node = json.loads(averages.client.get(f"{BROKER_AVERAGES}/{id_of(ours)}")[0])
        assert node.keys() == {camel(name) for name in BrokerLoad.__struct_fields__}

        second.start()
        clients.append(connect(second))
        ours.terminate()
        wait_for(lambda: leads(second), 120, "the broker of Apache Pulsar as the leader")
        clients[1].create_producer(f"persistent://{NAMESPACE}/t").send(b"3")
        averages.continued(bundle, samples)
    finally:
        for each in clients:
            each.close()
        for each in (first, second, ours):
            each.end()
        averages.close()


def shape(value):
    """Names of members, in order, and limits of samples."""
    if not isinstance(value, dict):
        return "number"
    return [[name, each if name == "maxSamples" else shape(each)] for name, each in value.items()]


def camel(name):
    first, *more = name.split("_")
    return first + "".join(each.title() for each in more)
