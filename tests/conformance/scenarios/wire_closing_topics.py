"""The end of a topic as its clients see it: unload, termination and deletion, and the order in which clients are closed."""

import time

from harness.steps import drained, namespace, published, rest
from transcript import scenario


def closed(c):
    """The ids of the CLOSE commands, in order."""
    told = [f.command for f in iter(lambda: c.recv_quietly(0.4), None) if f.type.startswith("CLOSE_")]
    return [x.producer_id if hasattr(x, "producer_id") else -x.consumer_id for x in told]


def crowded(s, name, ns="public/default", domain="persistent"):
    topic, c = s.topic(name, ns, domain), s.connect(name)
    for i, producer in enumerate(("zz", "b", "a", "p", "producer-1", "q", "x"), 1):
        c.producer(topic, i, quietly=True, producer_name=producer)
    for i, subscription in enumerate(("zz", "b", "sub", "a", "s1"), 1):
        c.subscribe(topic, subscription, i, quietly=True, subType="Shared")
    return topic, c


@scenario
def order_of_closes_at_an_unload(s):
    topic, c = crowded(s, "t")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.note("closed", closed(c))


@scenario
def order_of_closes_at_a_termination(s):
    topic, c = crowded(s, "t")
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("closed", closed(c))


@scenario
def order_of_closes_where_encryption_is_required(s):
    ns = namespace(s)
    _, c = crowded(s, "t", ns)
    s.http("POST", f"/admin/v2/namespaces/{ns}/encryptionRequired", True, quietly=True)
    s.note("closed", closed(c))


@scenario
def order_of_closes_of_a_non_persistent_topic(s):
    for name, method, path in (("t", "PUT", "/unload"), ("u", "DELETE", "?force=true")):
        topic, c = crowded(s, name, domain="non-persistent")
        s.http(method, rest(topic, path), quietly=True)
        s.note(path, closed(c))


@scenario
def order_of_closes_at_a_deletion(s):
    topic, c = crowded(s, "t")
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    s.note("closed", closed(c))


@scenario
def clients_at_the_unload_of_a_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.producer(topic, 2, quietly=True, producer_name="b")
    for i, sub_type in enumerate(("Exclusive", "Shared", "Failover", "Key_Shared")):
        c.subscribe(topic, sub_type, i, quietly=True, subType=sub_type)
    c.subscribe(topic, "reader", 9, quietly=True, durable=False)
    time.sleep(1.3)
    drained(c, 0.1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv_sorted(7)
    c.none(0.3)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.publish(1, 0)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=2)


@scenario
def clients_at_the_deletion_of_a_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.subscribe(topic, "s", 1, quietly=True, subType="Shared")
    c.subscribe(topic, "reader", 2, quietly=True, durable=False)
    s.http("DELETE", rest(topic))
    c.none(0.2)
    s.http("DELETE", rest(topic, "?force=true"))
    c.recv_sorted(3)
    c.publish(1, 0)
    c.ask("SEEK", consumer_id=1, message_publish_time=0)
    s.lookup(topic)
    c.producer(topic, 1, producer_name="a", epoch=1)
    c.publish(1, 0)
    c.recv()


@scenario
def clients_at_the_deletion_of_a_namespace(s):
    ns = namespace(s)
    c = s.connect()
    for i, domain in enumerate(("persistent", "non-persistent")):
        topic = f"{domain}://{ns}/t"
        s.lookup(topic)
        c.producer(topic, i, quietly=True, producer_name="a")
        c.subscribe(topic, "s", i, quietly=True)
    s.http("DELETE", f"/admin/v2/namespaces/{ns}?force=true", quietly=True)
    c.recv_sorted(4)
    c.none(0.2)
    c.ask("LOOKUP", topic=f"persistent://{ns}/t", authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=f"persistent://{ns}/t")


def drained_all(c):
    return list(iter(lambda: c.recv_quietly(0.7), None))


@scenario
def clients_at_the_termination_of_a_topic(s):
    topic = s.topic()
    published(s, topic, 1)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.subscribe(topic, "shared", 1, quietly=True, subType="Shared")
    c.subscribe(topic, "behind", 2, 5, quietly=True, initialPosition="Earliest")
    frame = c.recv_quietly()
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.recv_sorted(2)
    time.sleep(0.3)
    c.send("ACK", consumer_id=2, ack_type="Individual", message_id=[frame.message_id])
    s.note("told", {f.type for f in drained_all(c)} == {"REACHED_END_OF_TOPIC"})
    c.producer(topic, 1, producer_name="a", epoch=1)
    c.subscribe(topic, "new", 3, 5, initialPosition="Earliest")
    c.recv(2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=3)
    c.ask("UNSUBSCRIBE", consumer_id=3)


@scenario
def peers_of_each_version_at_the_unload(s):
    for version in (0, 4, 5, 11, 12, 21):
        topic = s.topic(f"t{version}")
        c = s.connect(protocol_version=version)
        c.producer(topic, 1, quietly=True, producer_name="a")
        c.subscribe(topic, "s", 1, quietly=True, subType="Shared")
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        c.recv_sorted(2, 2)
