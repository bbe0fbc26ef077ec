"""Connecting, finding topics, creating producers, publishing: the basics."""

import json
import struct

import crc32c

import pulsar_pb as pb
from transcript import scenario

RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}).encode()
OTHER_RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}).encode()


def rest(topic):
    return "/admin/v2/" + topic.replace("://", "/")


def namespace(s, name="ns", **policies):
    """A new namespace; policies are REST paths below it and the bodies to post there."""
    ns = s.namespace(name)
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    for path, body in policies.items():
        s.http("POST", f"/admin/v2/namespaces/{ns}/{path}", body, quietly=True)
    return ns


def batch(first, *payloads):
    out = b""
    for i, payload in enumerate(payloads):
        meta = pb.SingleMessageMetadata(payload_size=len(payload), sequence_id=first + i).SerializeToString()
        out += struct.pack(">I", len(meta)) + meta + payload
    return out


@scenario
def handshake_negotiates_the_lower_protocol_version(s):
    for version in (12, 21, 99):
        s.connect(quietly=False, protocol_version=version)


@scenario
def lookup_needs_a_namespace_but_no_topic(s):
    """A lookup of a missing topic returns the broker's address and creates no topic."""
    c = s.connect()
    topic = f"persistent://public/default/{s.tag}-new"
    c.ask("LOOKUP", topic=topic)
    c.ask("LOOKUP", topic=topic, authoritative=True)
    s.http("GET", rest(topic) + "/stats")
    c.ask("LOOKUP", topic=f"persistent://public/{s.tag}-none/t")
    c.ask("LOOKUP", topic=f"persistent://{s.tag}-none/default/t")


@scenario
def partitioned_metadata_with_and_without_auto_creation(s):
    """The answer for a new topic is 0 when it may be created, and asking creates nothing."""
    c, topic = s.connect(), s.topic()
    for auto in (False, True, False):
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=auto)
    c.producer(topic, quietly=True)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    c.ask("PARTITIONED_METADATA", topic=f"persistent://public/{s.tag}-none/t")
    c.ask("PARTITIONED_METADATA", topic="persistent://public/default")


@scenario
def partitioned_topic_takes_producers_only_on_its_partitions(s):
    c, topic = s.connect(), s.topic()
    s.http("PUT", rest(topic) + "/partitions", 2)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.producer(topic + "-partition-0", 2, producer_name="p")
    c.producer(topic + "-partition-1", 3, producer_name="p")
    c.producer(topic + "-partition-2", 4, producer_name="p")
    c.publish(3, 0)
    c.recv()
    d = s.connect()
    d.subscribe(topic + "-partition-1", permits=1, initialPosition="Earliest")
    d.recv()


@scenario
def topics_of_a_namespace_by_mode(s):
    ns = namespace(s)
    c = s.connect()
    for i, name in enumerate("ab"):
        c.producer(s.topic(name, ns), i, quietly=True)
    c.producer(s.topic("c", ns, "non-persistent"), 2, quietly=True)
    s.http("PUT", rest(s.topic("p", ns)) + "/partitions", 2, quietly=True)
    for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        answer = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode=mode).command
        s.note(mode, sorted(answer.topics))
        s.note(
            "hash is crc32c of the sorted names",
            answer.topics_hash == struct.pack("<I", crc32c.crc32c(",".join(sorted(answer.topics)).encode())).hex(),
        )


@scenario
def producer_name_is_generated_or_chosen(s):
    c, topic = s.connect(), s.topic()
    a = c.producer(topic, 1)
    b = c.producer(topic, 2)
    s.note("generated names differ", a.command.producer_name != b.command.producer_name)
    c.producer(topic, 3, producer_name="mine")


@scenario
def producer_name_in_use_is_refused_until_its_owner_closes(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="x")
    a.producer(topic, 2, producer_name="x")
    b.producer(topic, 1, producer_name="x", epoch=1)
    a.none()
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.producer(topic, 1, producer_name="x", epoch=2)


@scenario
def exclusive_producer_keeps_others_out(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="y")
    b.producer(topic, 1, producer_name="y", producer_access_mode="Exclusive")
    a.publish(1, 0, producer_name="x")
    a.recv()


@scenario
def waiting_producer_takes_over_when_the_owner_leaves(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="y", producer_access_mode="WaitForExclusive")
    b.none()
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.recv()
    b.publish(1, 0, producer_name="y")
    b.recv()


@scenario
def receipts_come_in_order_with_ascending_entries(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, quietly=True, producer_name="p")
    for i in range(5):
        c.publish(1, i, b"m%d" % i)
    for _ in range(5):
        c.recv()


@scenario
def batch_is_one_entry_and_counts_in_the_index(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, quietly=True, producer_name="p")
    c.publish(
        1,
        0,
        batch(0, b"a", b"b", b"c"),
        command=dict(num_messages=3, highest_sequence_id=2),
        num_messages_in_batch=3,
        highest_sequence_id=2,
    )
    c.recv()
    d.recv()
    c.publish(1, 3, b"d")
    c.recv()
    d.recv()


@scenario
def bad_checksum_is_refused_and_the_connection_stays(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, quietly=True, producer_name="p")
    c.publish(1, 0, bad_crc=True)
    c.recv()
    c.publish(1, 0)
    c.recv()


@scenario
def deduplication_answers_repeats_without_a_position(s):
    topic = s.topic(namespace=namespace(s, deduplication=True))
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, quietly=True, producer_name="p")
    for i in (0, 1, 1, 0, 7, 3):
        c.publish(1, i, b"m%d" % i)
        c.recv()
    for _ in range(3):
        d.recv()
    d.none()


@scenario
def deduplication_tells_a_returning_producer_its_last_sequence_id(s):
    topic = s.topic(namespace=namespace(s, deduplication=True))
    a, b = s.connect(), s.connect()
    a.producer(topic, producer_name="p")
    a.publish(1, 5)
    a.recv()
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.producer(topic, producer_name="p", epoch=1)
    b.publish(1, 5)
    b.recv()
    b.publish(1, 6)
    b.recv()
    b.producer(topic, 2, producer_name="q")


@scenario
def schema_of_a_producer_is_registered_and_incompatible_ones_refused(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 1, producer_name="p", schema=dict(name="s", type="Avro", schema_data=RECORD))
    c.producer(topic, 2, producer_name="q", schema=dict(name="s", type="Avro", schema_data=RECORD))
    c.producer(topic, 3, producer_name="r", schema=dict(name="s", type="Avro", schema_data=OTHER_RECORD))
    c.producer(topic, 3, producer_name="r")
    c.ask("GET_SCHEMA", topic=topic)


@scenario
def terminated_topic_closes_its_producers_and_takes_no_new_ones(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, producer_name="p")
    c.publish(1, 0)
    c.recv()
    s.http("POST", rest(topic) + "/terminate", keep=["ledgerId", "entryId"])
    c.recv()
    c.producer(topic, producer_name="p", epoch=1)


@scenario
def non_persistent_topic_stores_nothing(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.producer(topic, producer_name="p")
    c.publish(1, 0, b"lost")
    c.recv()
    c.subscribe(topic, permits=10, initialPosition="Earliest")
    c.publish(1, 1, b"seen")
    c.recv_sorted(2)
    c.none()
