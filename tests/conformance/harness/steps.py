"""Steps that many scenarios share: messages put on a topic, batches, namespaces with policies, reads."""

import json
import struct
import time

import pulsar_pb as pb
from harness.wire import fill

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
EARLIEST = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}
LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}


def rest(topic, more=""):
    return "/admin/v2/" + topic.replace("://", "/") + more


def namespace(s, name="ns", **policies):
    """A new namespace; policies are REST paths below it and the bodies to post there."""
    ns = s.namespace(name)
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {}, quietly=True)
    for path, body in policies.items():
        s.http("POST", f"/admin/v2/namespaces/{ns}/{path}", body, quietly=True)
    return ns


def setup_connection(s):
    """One unlogged connection per run for set-up."""
    return next((c for c in s.connections if c.name == "setup"), None) or s.connect("setup")


def published(s, topic, payloads=3, first=0, producer="p", **metadata):
    """Messages put on a topic by a connection of their own, unlogged; their ids."""
    c = setup_connection(s)
    c.producer(topic, 99, quietly=True, producer_name=producer)
    payloads = [b"m%d" % i for i in range(first, first + payloads)] if isinstance(payloads, int) else payloads
    ids = c.publish_all(99, payloads, first, **metadata)
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=99)
    return ids


def batch(*payloads, **each):
    """The payload of a batch; `each` gives lists of a field's values, a value for each message."""
    out = b""
    for i, payload in enumerate(payloads):
        m = pb.SingleMessageMetadata()
        fill(m, dict(payload_size=len(payload)) | {k: v[i] for k, v in each.items()})
        raw = m.SerializePartialToString()
        out += struct.pack(">I", len(raw)) + raw + payload
    return out


def published_batches(s, topic, *batches, **metadata):
    """Batches put on a topic, unlogged; their ids."""
    c = setup_connection(s)
    c.producer(topic, 98, quietly=True, producer_name="p")
    keep, s.lines, ids, first = s.lines, [], [], 0
    for payloads in batches:
        n = len(payloads)
        c.publish(98, first, batch(*payloads), command=dict(num_messages=n), num_messages_in_batch=n, **metadata)
        ids.append(c.recv_quietly().message_id)
        first += n
    s.lines = keep
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=98)
    return ids


def read(c, n, timeout=10):
    """n messages, unlogged: a scenario notes the facts that it needs."""
    frames = [c.recv_quietly(timeout) for _ in range(n)]
    return [f for f in frames if f and f.type == "MESSAGE"]


def drained(c, seconds=0.7):
    """All messages until nothing comes for so long, unlogged."""
    return [f for f in iter(lambda: c.recv_quietly(seconds), None) if f.type == "MESSAGE"]


def told(frames):
    """Payload and redelivery count of each."""
    return [[f.payload.decode("latin-1"), f.command.redelivery_count] for f in frames]


def texts(frames):
    return [f.payload.decode("latin-1") for f in frames]


def ack(c, *ids, consumer_id=1, kind="Individual", quietly=True, **more):
    return c.ask("ACK", quietly, consumer_id=consumer_id, ack_type=kind, message_id=list(ids), **more)


def now_ms(offset=0):
    return int(time.time() * 1000) + offset


def avro(*fields, name="R"):
    """The text of a record schema; fields are (name, type) or (name, type, default)."""
    members = [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields]
    return json.dumps({"type": "record", "name": name, "fields": members}).encode()


def stats(s, topic):
    return s.http("GET", rest(topic, "/stats"), quietly=True)[1]


def backlog(s, topic):
    return {k: v["msgBacklog"] for k, v in stats(s, topic)["subscriptions"].items()}


def compact(s, topic):
    """Compact the topic, and wait until the compaction has succeeded."""
    path = rest(topic, "/compaction")
    s.http("PUT", path, quietly=True)
    s.eventually("compacted", lambda: s.http("GET", path, quietly=True)[1]["status"] == "SUCCESS", 15)


def plain_and_partitioned(s, domain="persistent"):
    """A namespace with a plain topic t and p of two partitions; its REST path below the domain."""
    base = f"/admin/v2/{domain}/{namespace(s)}"
    s.http("PUT", base + "/t", quietly=True)
    s.http("PUT", base + "/p/partitions", 2, quietly=True)
    return base


def schema(kind, data=b"", name="s", **properties):
    """The fields of a schema in a command."""
    return dict(
        name=name, schema_data=data, type=kind, properties=[dict(key=k, value=v) for k, v in properties.items()]
    )


def java_slot(name):
    """The slot of a text in a Java hash table of 16, as long as it has at most 12 texts."""
    value = 0
    for unit in name.encode():
        value = (31 * value + unit) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15
