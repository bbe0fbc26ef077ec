"""Policies of topics and compacted topics, shared and handed over between Apache Pulsar and this broker."""

from __future__ import annotations

import pathlib

import pulsar
import pytest
import requests

from tests.cluster.broker_processes import Member, connect
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker, initialize_by_pulsar
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LIB, reason=NO_LIB)]


@pytest.fixture(scope="module")
def brokers(cluster, tmp_path_factory):
    directory = pathlib.Path(tmp_path_factory.mktemp("policies"))
    initialize_by_pulsar(cluster)
    made = (
        PulsarBroker(directory, "pulsar", cluster.zookeeper, **MORE),
        Member(directory, "ours", cluster.zookeeper, **MORE),
    )
    try:
        yield made
    finally:
        for each in made:
            each.end()


def call(broker, method, path, body=None):
    answer = requests.request(method, f"{broker.http}/admin/v2/{path}", json=body, timeout=60)
    assert answer.status_code < 300, (path, answer.status_code, answer.text)
    return answer


def full(topic):
    return f"persistent://public/default/{topic}"


POLICIES = (
    ("maxProducers", 3),
    ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20}),
    ("delayedDelivery", {"tickTime": 2000, "active": True, "maxDeliveryDelayInMillis": 5000}),
    ("subscriptionTypesEnabled", ["Exclusive", "Shared"]),
    ("deduplicationEnabled", False),
)


def running(broker):
    return broker if broker.process is not None and broker.process.poll() is None else broker.start()


def has_policies(broker, topic, policies):
    for name, value in policies:
        found = requests.get(f"{broker.http}/admin/v2/persistent/public/rules/{topic}/{name}", timeout=60)
        if found.status_code != 200 or not found.text:
            return False
        same = sorted(found.json()) == sorted(value) if isinstance(value, list) else found.json() == value
        if not same:
            return False
    return True


def test_policies_of_topics_hold_on_both_kinds(brokers):
    theirs, ours = (running(each) for each in brokers)
    call(theirs, "PUT", "namespaces/public/rules", {"bundles": {"numBundles": 4}})
    for setter, reader, topic in ((theirs, ours, "set by pulsar"), (ours, theirs, "set by ours")):
        call(setter, "PUT", f"persistent/public/rules/{topic}/partitions", 2)  # any broker answers about it
        for name, value in POLICIES:
            call(setter, "POST", f"persistent/public/rules/{topic}/{name}", value)
        wait_for(lambda r=reader, t=topic: has_policies(r, t, POLICIES), 30, f"{topic} at the other kind")
        call(reader, "POST", f"persistent/public/rules/{topic}/maxConsumers", 7)
        changed = (*POLICIES, ("maxConsumers", 7))
        wait_for(lambda s=setter, t=topic, c=changed: has_policies(s, t, c), 30, "a change by the other kind")
        call(reader, "POST", f"persistent/public/rules/{topic}/maxConsumers?isGlobal=true", 9)
        scope = [("maxConsumers?isGlobal=true", 9)]
        wait_for(lambda s=setter, t=topic, c=scope: has_policies(s, t, c), 30, "a policy for all clusters")
    assert theirs.terminate() is not None
    for topic in ("set by pulsar", "set by ours"):  # the topic of policies itself moved to this broker
        wait_for(
            lambda t=topic: has_policies(ours, t, (*POLICIES, ("maxConsumers", 7))), 60, "policies after a takeover"
        )
    client = connect(ours)
    three = [client.create_producer("persistent://public/rules/set by pulsar-partition-0") for _ in range(3)]
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/rules/set by pulsar-partition-0")
    for each in three:
        each.close()
    client.close()
    call(ours, "DELETE", "persistent/public/rules/set by ours/maxConsumers")
    theirs.start()
    assert ours.terminate() == 0
    wait_for(lambda: has_policies(theirs, "set by ours", POLICIES), 60, "policies back at Pulsar")
    assert not call(theirs, "GET", "persistent/public/rules/set by ours/maxConsumers").text
    ours.start()


def compacted(broker, topic):
    path = topic.replace("://", "/")
    call(broker, "PUT", f"{path}/compaction")

    def done():
        return call(broker, "GET", f"{path}/compaction").json()["status"] == "SUCCESS"

    wait_for(done, 60, "the compaction")


def newest(broker, topic):
    """Key -> value of the messages that a reader of the compacted topic gets; fails for a key that comes twice."""
    client = connect(broker)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = {}
    while reader.has_message_available():
        message = reader.read_next(20_000)
        assert message.partition_key() not in found
        found[message.partition_key()] = message.data().decode()
    client.close()
    return found


def keyed(broker, topic, values):
    client = connect(broker)
    producer = client.create_producer(topic, batching_enabled=False)
    for key, value in values:
        producer.send(value.encode(), partition_key=key)
    client.close()


def test_compacted_topics_are_read_and_compacted_again_by_the_other_kind(brokers):
    theirs, ours = (running(each) for each in brokers)
    topic = full("compacted-again")
    assert ours.terminate() == 0
    keyed(theirs, topic, [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("c", "2")])
    compacted(theirs, topic)
    assert newest(theirs, topic) == {"a": "2", "b": "1", "c": "2"}
    ours.start()
    theirs.terminate()
    assert newest(ours, topic) == {"a": "2", "b": "1", "c": "2"}
    keyed(ours, topic, [("b", "2"), ("d", "1")])
    compacted(ours, topic)
    assert newest(ours, topic) == {"a": "2", "b": "2", "c": "2", "d": "1"}
    theirs.start()
    assert ours.terminate() == 0
    assert newest(theirs, topic) == {"a": "2", "b": "2", "c": "2", "d": "1"}
    keyed(theirs, topic, [("a", "3")])
    compacted(theirs, topic)
    assert newest(theirs, topic) == {"a": "3", "b": "2", "c": "2", "d": "1"}
    ours.start()
    theirs.terminate()
    assert newest(ours, topic) == {"a": "3", "b": "2", "c": "2", "d": "1"}
