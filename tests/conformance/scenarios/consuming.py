"""Subscriptions, flow, acknowledgement, redelivery, seek in the view of a consumer."""

import struct
import time

import pulsar_pb as pb
from transcript import fill, scenario


def published(s, topic, payloads=3, first=0, producer="p", **metadata):
    """Messages put on a topic by a connection of their own, unlogged; their ids."""
    c = s.connect("setup")
    c.producer(topic, 1, quietly=True, producer_name=producer)
    payloads = [b"m%d" % i for i in range(payloads)] if isinstance(payloads, int) else payloads
    ids = c.publish_all(1, payloads, first, **metadata)
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
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


def published_batches(s, topic, *batches):
    """Batches put on a topic, unlogged; their ids."""
    c = s.connect("setup")
    c.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines, ids, first = s.lines, [], [], 0
    for payloads in batches:
        c.publish(
            1, first, batch(*payloads), command=dict(num_messages=len(payloads)), num_messages_in_batch=len(payloads)
        )
        ids.append(c.recv_quietly().message_id)
        first += len(payloads)
    s.lines = keep
    return ids


def admin(topic):
    return "/admin/v2/" + topic.replace("://", "/")


def read(c, n, timeout=10):
    """n messages, unlogged: a scenario notes the facts that it needs."""
    frames = [c.recv_quietly(timeout) for _ in range(n)]
    return [f for f in frames if f and f.type == "MESSAGE"]


def told(frames):
    return [[f.payload.decode("latin-1"), f.command.redelivery_count] for f in frames]


@scenario
def subscription_types_do_not_mix(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, subType="Shared")
    for kind in "Exclusive", "Failover", "Key_Shared":
        b.subscribe(topic, subType=kind)
    b.subscribe(topic, subType="Shared")


@scenario
def subscription_type_is_free_when_nobody_is_connected(s):
    topic = s.topic()
    c = s.connect()
    for kind in "Shared", "Failover", "Exclusive", "Key_Shared":
        c.subscribe(topic, subType=kind)
        c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def durable_subscription_keeps_its_position(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, initialPosition="Earliest")
    ids = published(s, topic, 3)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, consumer_id=2, permits=10, initialPosition="Latest")
    c.recv()
    c.recv()
    c.none()


@scenario
def initial_position_of_a_new_subscription(s):
    topic = s.topic()
    published(s, topic, 2)
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "from-the-start", permits=10, initialPosition="Earliest")
    a.recv()
    a.recv()
    b.subscribe(topic, "from-now", permits=10, initialPosition="Latest")
    b.none()
    published(s, topic, [b"new"], 2)
    b.recv()
    a.recv()


@scenario
def reader_starts_with_the_message_named(s):
    """The broker sends the start message itself; the client drops it when it is to be exclusive."""
    topic = s.topic()
    ids = published(s, topic, 4)
    c = s.connect()
    c.subscribe(topic, "reader", permits=10, durable=False, start_message_id=ids[1])
    for _ in range(3):
        c.recv()
    c.none()


@scenario
def permits_count_messages_and_a_batch_may_exceed_them(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, initialPosition="Earliest")
    published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.recv()
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=2)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.recv()


@scenario
def ack_is_answered_when_it_has_a_request_id(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 3)
    read(c, 3)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    c.none()
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]], request_id=77)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[2]], request_id=78)


@scenario
def cumulative_ack_covers_all_before(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 4)
    read(c, 4)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[2]])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.recv()
    c.none()


@scenario
def part_of_a_batch_acked_is_not_consumed_again(s):
    """ack_set has a bit for each message still to be consumed, both ways."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType="Shared")
    ids = published_batches(s, topic, [b"a", b"b", b"c"])
    read(c, 1)
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0] | dict(ack_set=[0b101], batch_size=3)])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.recv()


@scenario
def redelivery_of_named_messages_counts(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType="Shared")
    ids = published(s, topic, 3)
    read(c, 3)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[1]])
    c.recv()
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[1]])
    c.recv()
    c.none()


@scenario
def shared_consumers_divide_the_messages(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, quietly=True, permits=100, subType="Shared")
    b.subscribe(topic, quietly=True, permits=100, subType="Shared")
    published(s, topic, 40)
    got = [[f.payload for f in iter(lambda c=c: c.recv_quietly(0.5), None)] for c in (a, b)]
    s.note("each message once", sorted(got[0] + got[1]) == sorted(b"m%d" % i for i in range(40)))
    s.note("both have some", min(map(len, got)) > 0)


@scenario
def closing_a_shared_consumer_hands_its_messages_on(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, quietly=True, permits=10, subType="Shared")
    ids = published(s, topic, 3)
    read(a, 3)
    b.subscribe(topic, quietly=True, permits=10, subType="Shared")
    b.none()
    a.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]])
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b.recv()
    b.recv()
    b.none()


@scenario
def failover_consumers_are_told_who_is_active(s):
    """ACTIVE_CONSUMER_CHANGE may come before the answer to SUBSCRIBE."""
    topic = s.topic()
    a, b = s.connect(), s.connect()
    for c, name, priority in (a, "first", 0), (b, "second", 1):
        c.send(
            "SUBSCRIBE",
            topic=topic,
            subscription="sub",
            subType="Failover",
            consumer_id=1,
            request_id=priority,
            consumer_name=name,
            priority_level=priority,
        )
        c.recv_sorted(2)
    a.none()
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b.recv()


@scenario
def key_shared_keeps_a_key_with_one_consumer(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    for c, name in (a, "left"), (b, "right"):
        c.subscribe(
            topic,
            quietly=True,
            permits=100,
            subType="Key_Shared",
            consumer_name=name,
            keySharedMeta=dict(keySharedMode="AUTO_SPLIT"),
        )
    c = s.connect("setup")
    c.producer(topic, 1, quietly=True, producer_name="p")
    keys = [f"key-{i}" for i in range(20)]
    for turn in range(3):
        for i, key in enumerate(keys):
            c.publish_all(1, [b"%d" % turn], turn * 20 + i, partition_key=key)
    seen = {}
    for who, conn in ("a", a), ("b", b):
        while (f := conn.recv_quietly(0.5)) is not None:
            seen.setdefault(f.metadata.partition_key, []).append((who, f.payload.decode()))
    s.note("every key came", sorted(seen) == sorted(keys))
    s.note("keys with more than one consumer", [k for k, v in seen.items() if len({who for who, _ in v}) > 1])
    s.note("keys out of order", [k for k, v in seen.items() if [t for _, t in v] != ["0", "1", "2"]])
    s.note("both consumers got some", len({who for v in seen.values() for who, _ in v}) == 2)


@scenario
def seek_closes_the_consumer_and_moves_the_subscription(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("ACK", quietly=True, consumer_id=1, ack_type="Cumulative", message_id=[ids[2]])
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    c.subscribe(topic, permits=10)
    c.recv()
    c.recv()
    c.none()


@scenario
def last_message_id_and_the_mark_delete_position(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    f = c.ask("GET_LAST_MESSAGE_ID", quietly=True, consumer_id=1)
    s.note("entry of the empty topic is -1", f.command.last_message_id.entryId == 2**64 - 1)
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("ACK", quietly=True, consumer_id=1, ack_type="Cumulative", message_id=[ids[1]])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def unsubscribe_with_another_consumer_connected(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, quietly=True, subType="Shared")
    b.subscribe(topic, quietly=True, subType="Shared")
    a.ask("UNSUBSCRIBE", consumer_id=1)
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    a.ask("UNSUBSCRIBE", consumer_id=1)
    s.http("GET", admin(topic) + "/subscriptions", keep=True)


@scenario
def delayed_message_comes_when_it_is_due(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "shared", quietly=True, permits=10, subType="Shared")
    b.subscribe(topic, "exclusive", quietly=True, permits=10)
    start = time.monotonic()
    published(s, topic, [b"later"], deliver_at_time=int(time.time() * 1000) + 1500)
    s.note("exclusive has it at once", told(read(b, 1, 1)))
    s.note("shared", told(read(a, 1, 5)))
    s.note("not before it was due", time.monotonic() - start > 1.3)


@scenario
def end_of_a_terminated_topic_is_told_after_the_last_ack(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10)
    ids = published(s, topic, 2)
    read(c, 2)
    s.http("POST", admin(topic) + "/terminate", quietly=True)
    c.send("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[0]])
    c.none()
    c.send("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1]])
    c.recv()


@scenario
def consumer_stats_over_the_wire(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType="Shared", consumer_name="me")
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("ACK", quietly=True, consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def unload_closes_consumers_and_keeps_what_was_acked(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType="Shared")
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("ACK", quietly=True, consumer_id=1, ack_type="Individual", message_id=[ids[1]])
    time.sleep(0.5)
    s.http("PUT", admin(topic) + "/unload")
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, permits=10, subType="Shared")
    c.recv()
    c.recv()
    c.none()
