"""Malformed, oversized and out-of-order input: the effect on that connection, without effect on others."""

import struct
import time

from transcript import encode, encode_send, scenario


def frame(command, total=None, size=None):
    """A frame of raw command bytes; total and size override the two length fields."""
    size = len(command) if size is None else size
    return struct.pack(">II", (len(command) + 4 if total is None else total) & 0xFFFFFFFF, size & 0xFFFFFFFF) + command


def neighbour(s):
    """Another connection with an open producer, made before the trouble; the returned check publishes on it."""
    topic = s.topic("neighbour")
    c = s.connect("neighbour")
    c.producer(topic, 1, producer_name="p", quietly=True)

    def works():
        s.note("neighbour can publish", None not in c.publish_all(1, [b"x"]))

    return works


def closed_by(s, name, data, **connect):
    """Sends the bytes on a connection of its own and logs all frames until it is closed."""
    c = s.connect(name, **connect)
    c.raw(data, name, tolerant=True)
    c.recv()


@scenario
def commands_before_connect_close(s):
    topic = s.topic()
    closed_by(s, "lookup", encode("LOOKUP", topic=topic, request_id=1), handshake=False)
    closed_by(s, "producer", encode("PRODUCER", topic=topic, producer_id=1, request_id=1), handshake=False)
    closed_by(
        s,
        "subscribe",
        encode("SUBSCRIBE", topic=topic, subscription="sub", subType="Exclusive", consumer_id=1, request_id=1),
        handshake=False,
    )
    closed_by(s, "partitions", encode("PARTITIONED_METADATA", topic=topic, request_id=1), handshake=False)


@scenario
def second_connect_closes(s):
    closed_by(s, "again", encode("CONNECT", client_version="x", protocol_version=21))


@scenario
def ping_is_answered_even_before_connect(s):
    s.keep_pong = True
    c = s.connect(handshake=False)
    c.send("PING")
    c.recv()
    c.send("CONNECT", client_version="x", protocol_version=21)
    c.recv()
    c.send("PING")
    c.recv()


@scenario
def garbage_closes_only_that_connection(s):
    works = neighbour(s)
    closed_by(s, "no protobuf", frame(b"\xff" * 30))
    closed_by(s, "no protobuf before connect", frame(b"\xff" * 30), handshake=False)
    closed_by(s, "text", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", handshake=False)
    works()


@scenario
def frame_of_a_wrong_size_closes(s):
    works = neighbour(s)
    closed_by(s, "size 0", struct.pack(">I", 0))
    closed_by(s, "size -1", struct.pack(">i", -1))
    closed_by(s, "over the limit", struct.pack(">II", 5242880 + 10240 + 1, 10) + bytes(100))
    closed_by(s, "command longer than the frame", frame(bytes(16), size=100))
    works()


@scenario
def unknown_and_empty_commands_close(s):
    closed_by(s, "type 999", frame(bytes.fromhex("08e707")))
    closed_by(s, "type without its command", frame(bytes.fromhex("0817")))
    closed_by(s, "nothing", frame(b""))


@scenario
def frame_in_single_bytes_is_put_together(s):
    topic = s.topic()
    c = s.connect()
    for byte in encode("LOOKUP", topic=topic, request_id=7):
        c._write(bytes([byte]))
        time.sleep(0.001)
    c.recv()


@scenario
def many_commands_in_one_write_are_all_answered(s):
    topic = s.topic()
    c = s.connect(handshake=False)
    c.raw(
        encode("CONNECT", client_version="x", protocol_version=21)
        + b"".join(encode("PARTITIONED_METADATA", topic=topic, request_id=n) for n in range(5)),
        "CONNECT and five PARTITIONED_METADATA",
    )
    c.recv()
    c.recv_sorted(5)


@scenario
def half_a_frame_and_then_the_end_harms_nobody(s):
    works = neighbour(s)
    for cut in (2, 6, 20):
        c = s.connect("half")
        c.raw(encode("LOOKUP", topic=s.topic(), request_id=1)[:cut], cut)
        c.close()
    works()


@scenario
def send_without_a_producer_closes(s):
    works = neighbour(s)
    closed_by(s, "unknown producer", encode_send(7, 0))
    topic = s.topic()
    c = s.connect("closed producer")
    c.producer(topic, 1, quietly=True)
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    c.publish(1, 0)
    c.recv()
    works()


@scenario
def commands_for_unknown_consumers(s):
    """Commands without an answer are ignored, requests get an error; closing an unknown consumer succeeds."""
    c = s.connect()
    c.send("FLOW", consumer_id=9, messagePermits=10)
    c.send("ACK", consumer_id=9, ack_type="Individual", message_id=[dict(ledgerId=1, entryId=1)])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=9)
    c.none()
    c.ask("UNSUBSCRIBE", consumer_id=9)
    c.ask("SEEK", consumer_id=9, message_publish_time=1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=9)
    c.ask("CLOSE_CONSUMER", consumer_id=9)
    c.ask("CLOSE_PRODUCER", producer_id=9)


@scenario
def flow_of_no_permits_closes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, quietly=True)
    c.send("FLOW", consumer_id=1, messagePermits=0)
    c.recv()


@scenario
def id_in_use_answers_with_what_is_there(s):
    """A second PRODUCER or SUBSCRIBE with an id of this connection counts as a retry, with any other fields."""
    topic, other = s.topic(), s.topic("other")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.producer(other, 1, producer_name="q")
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "another", 1)
    s.http("GET", "/admin/v2/" + topic.replace("://", "/") + "/subscriptions", keep=True)


@scenario
def names_that_are_no_topic(s):
    c = s.connect()
    for n, name in enumerate(
        [
            "",
            "foo://public/default/t",
            "persistent://public/default",
            "persistent://public//t",
            "persistent://public/de fault/t",
            "public/t",
            "persistent://public/default/a/b",
        ]
    ):
        c.ask("LOOKUP", topic=name, authoritative=False)
        c.ask("PARTITIONED_METADATA", topic=name)
        c.producer(name, n)
        c.subscribe(name, "sub", n)


@scenario
def rest_bodies_that_are_broken(s):
    path = f"/admin/v2/tenants/{s.tag}"
    s.http("PUT", path, raw=b"{")
    s.http("PUT", path, raw=b"[]")
    s.http("PUT", path, raw=b'{"allowedClusters": 5}')
    s.http("PUT", path)
    s.http("GET", path)


@scenario
def rest_paths_that_lead_nowhere(s):
    works = neighbour(s)
    s.http("GET", "/admin/v2/nothing")
    s.http("GET", "/nothing")
    for path in [
        "/admin/v2/persistent/public/default/%zz/stats",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/admin/v2/persistent/public/default/..%2f..%2fetc%2fpasswd/stats",
    ]:
        s.note(path, s.http("GET", path, quietly=True)[0] in range(400, 500))
    works()
