"""CONNECT in all its fields, frames before and behind it, incomplete frames and commands of no type."""

import struct

from harness.wire import checksummed, framed, headers_and_payload, metadata_of, pb
from transcript import encode, encode_send, scenario

FLAGS = (
    "supports_auth_refresh",
    "supports_broker_entry_metadata",
    "supports_partial_producer",
    "supports_topic_watchers",
    "supports_get_partitioned_metadata_without_auto_creation",
    "supports_repl_dedup_by_lid_and_eid",
    "supports_topic_watcher_reconcile",
)
ANY = "persistent://public/default/any"


def lookup(request_id=1, topic=ANY):
    return encode("LOOKUP", topic=topic, request_id=request_id, authoritative=False)


def raw_command(number, body=b"", field=None):
    """A frame of a BaseCommand put together by hand: its type and one field's bytes."""
    command = b"\x08" + varint(number)
    if field is not None:
        command += varint(field << 3 | 2) + varint(len(body)) + body
    return struct.pack(">II", 4 + len(command), len(command)) + command


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


@scenario
def features_one_by_one(s):
    for flag in FLAGS:
        c = s.connect(quietly=False, feature_flags={flag: True})
        c.close()
    for flag in FLAGS:
        s.connect(quietly=False, feature_flags=dict.fromkeys(FLAGS, True) | {flag: False}).close()


@scenario
def watchers_without_the_feature(s):
    c = s.connect(feature_flags={})
    c.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace="public/none", topics_pattern="x")
    d = s.connect(feature_flags={"supports_topic_watchers": False}, protocol_version=10)
    d.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace="public/none", topics_pattern="x")


@scenario
def versions_beyond_what_is_known(s):
    for version in (0, 1, 5, 19, 20, 21, 22, 23, 100, 2**31 - 1, -1, -(2**31)):
        s.connect(quietly=False, protocol_version=version).close()


@scenario
def connect_without_any_optional_field(s):
    c = s.connect(handshake=False)
    c.send("CONNECT", client_version="x")
    c.recv()
    c.ask("LOOKUP", topic=ANY)
    c.ask("PARTITIONED_METADATA", topic=ANY)


@scenario
def connect_with_empty_texts(s):
    c = s.connect(handshake=False)
    c.send(
        "CONNECT",
        client_version="",
        auth_method_name="",
        auth_data=b"",
        proxy_to_broker_url="",
        original_principal="",
        original_auth_data="",
        original_auth_method="",
        proxy_version="",
    )
    c.recv()
    c.ask("LOOKUP", topic=ANY)


@scenario
def connect_of_a_proxy_in_parts(s):
    for fields in (
        {"proxy_to_broker_url": "127.0.0.1:1"},
        {"proxy_to_broker_url": "pulsar://broker:6650"},
        {"original_principal": "x"},
        {"original_auth_data": "x"},
        {"original_auth_method": "token"},
        {"original_principal": "x", "original_auth_data": "y", "original_auth_method": "z"},
        {"proxy_version": "1.2.3"},
        {"auth_method": "AuthMethodYcaV1"},
        {"auth_method": "AuthMethodAthens", "auth_data": b"x"},
        {"auth_method_name": "token", "auth_data": b"x" * 10_000},
    ):
        c = s.connect(handshake=False)
        c.send("CONNECT", client_version="x", protocol_version=21, **fields)
        c.recv()
        c.ask("LOOKUP", topic=ANY)
        c.close()


@scenario
def client_versions_of_every_kind(s):
    for text in ("Pulsar-Java-v4.2.4", "", " ", "ü", "x" * 1000, "\n", "a b"):
        s.connect(quietly=False, client_version=text).close()


@scenario
def connect_twice_in_one_write(s):
    c = s.connect(handshake=False)
    c.raw(encode("CONNECT", client_version="x") * 2 + lookup(), "CONNECT, CONNECT, LOOKUP")
    for _ in range(3):
        c.recv(3)


@scenario
def second_connect_behind_open_clients(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.subscribe(topic, "sub", 1)
    c.send("CONNECT", client_version="x", protocol_version=21)
    c.recv()
    s.eventually(
        "gone", lambda: d.producer(topic, 1, quietly=True, producer_name="a").type == "PRODUCER_SUCCESS", timeout=5
    )
    d.subscribe(topic, "sub", 1)


@scenario
def pings_and_pongs_before_connect(s):
    s.keep_pong = True
    c = s.connect(handshake=False)
    c.raw(encode("PING") + encode("PONG") + encode("PING"), "PING, PONG, PING")
    c.recv()
    c.recv()
    c.send("CONNECT", client_version="x")
    c.recv()
    c.raw(encode("PONG") * 3 + encode("PING"), "PONG, PONG, PONG, PING")
    c.recv()


@scenario
def each_request_before_connect(s):
    ids = {"txnid_least_bits": 1, "txnid_most_bits": 0}
    for kind, fields in (
        ("PRODUCER", dict(topic=ANY, producer_id=1, request_id=1)),
        ("SUBSCRIBE", dict(topic=ANY, subscription="s", subType="Exclusive", consumer_id=1, request_id=1)),
        ("LOOKUP", dict(topic=ANY, request_id=1)),
        ("PARTITIONED_METADATA", dict(topic=ANY, request_id=1)),
        ("GET_TOPICS_OF_NAMESPACE", dict(namespace="public/default", request_id=1)),
        ("GET_SCHEMA", dict(topic=ANY, request_id=1)),
        ("GET_OR_CREATE_SCHEMA", dict(topic=ANY, request_id=1, schema=dict(name="s", schema_data=b"", type="String"))),
        ("WATCH_TOPIC_LIST", dict(request_id=1, watcher_id=1, namespace="public/default", topics_pattern="x")),
        ("WATCH_TOPIC_LIST_CLOSE", dict(request_id=1, watcher_id=1)),
        ("CLOSE_PRODUCER", dict(producer_id=1, request_id=1)),
        ("CLOSE_CONSUMER", dict(consumer_id=1, request_id=1)),
        ("FLOW", dict(consumer_id=1, messagePermits=1)),
        ("ACK", dict(consumer_id=1, ack_type="Individual")),
        ("SEEK", dict(consumer_id=1, request_id=1)),
        ("UNSUBSCRIBE", dict(consumer_id=1, request_id=1)),
        ("REDELIVER_UNACKNOWLEDGED_MESSAGES", dict(consumer_id=1)),
        ("GET_LAST_MESSAGE_ID", dict(consumer_id=1, request_id=1)),
        ("CONSUMER_STATS", dict(consumer_id=1, request_id=1)),
        ("NEW_TXN", dict(request_id=1)),
        ("TC_CLIENT_CONNECT_REQUEST", dict(request_id=1, tc_id=0)),
        ("END_TXN_ON_PARTITION", dict(request_id=1, topic=ANY, **ids)),
    ):
        c = s.connect(handshake=False)
        c.send(kind, **fields)
        c.recv(3)
        c.close()


@scenario
def types_that_are_no_command(s):
    for number in (0, 1, 5, 14, 23, 26, 27, 30, 67, 68, 69, 81, 82, 99, 1000, 2**31 - 1):
        c = s.connect()
        c.raw(raw_command(number), f"type {number} without a field")
        c.recv(2)
        c.close()


@scenario
def type_of_one_and_field_of_another(s):
    """A BaseCommand of type LOOKUP with the fields of another command beside or instead of its own."""
    c = s.connect()
    base = pb.BaseCommand.FromString(lookup()[8:])
    base.type = pb.BaseCommand.PARTITIONED_METADATA
    c.raw(framed(base), "PARTITIONED_METADATA with the field of LOOKUP")
    c.recv(2)
    d = s.connect()
    base = pb.BaseCommand.FromString(lookup()[8:])
    base.ping.SetInParent()
    d.raw(framed(base), "LOOKUP with a ping beside")
    d.recv(2)
    e = s.connect()
    base = pb.BaseCommand.FromString(lookup()[8:])
    base.type = pb.BaseCommand.PING
    s.keep_pong = True
    e.raw(framed(base), "PING with the field of LOOKUP")
    e.recv(2)


@scenario
def command_without_a_type(s):
    c = s.connect()
    c.raw(struct.pack(">II", 4, 0), "an empty command")
    c.recv(2)
    d = s.connect()
    body = lookup()[8:]
    d.raw(struct.pack(">II", 4 + len(body) - 2, len(body) - 2) + body[2:], "LOOKUP without its type")
    d.recv(2)


@scenario
def type_that_comes_twice(s):
    """The last counts."""
    body = lookup()[8:]
    metadata = encode("PARTITIONED_METADATA", topic="persistent://public/default/t", request_id=2)[8:]
    ping, another = b"\x08" + varint(18), metadata[:2]
    for name, command in {
        "PING, then LOOKUP": ping + body,
        "LOOKUP, then PING": body + ping,
        "LOOKUP, then another without its field": body + another,
        "LOOKUP, then PARTITIONED_METADATA": body + metadata,
        "PARTITIONED_METADATA, then LOOKUP": metadata + body,
        "the same twice": body[:2] + body,
    }.items():
        c = s.connect()
        c.raw(struct.pack(">II", 4 + len(command), len(command)) + command, name)
        c.recv(2)
        c.none(0.3)


@scenario
def sizes_that_disagree(s):
    whole = lookup()
    for name, head in {
        "command longer than the frame": struct.pack(">II", len(whole) - 4, len(whole)),
        "command much longer": struct.pack(">II", len(whole) - 4, 2**31 - 1),
        "command of no bytes": struct.pack(">II", len(whole) - 4, 0),
        "negative command": struct.pack(">Ii", len(whole) - 4, -1),
        "frame of three bytes": struct.pack(">I", 3) + b"\0\0\0",
        "frame of no bytes": struct.pack(">I", 0),
        "negative frame": struct.pack(">i", -1),
        "frame of four bytes": struct.pack(">II", 4, 0),
        "frame of a GiB": struct.pack(">I", 2**30),
    }.items():
        c = s.connect()
        c.raw(head + whole[8:], name, tolerant=True)
        c.recv(2)
        c.close()


@scenario
def lookup_with_bytes_behind_it(s):
    c = s.connect()
    command = lookup()[8:]
    for tail in (b"\0", b"\x0e\x01abcd", b"x" * 1000):
        c.raw(
            struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail, f"{len(tail)} bytes behind"
        )
        c.recv(2)


def send_frame(tail, producer_id=1, sequence_id=0, **more):
    base = pb.BaseCommand()
    base.type = pb.BaseCommand.SEND
    base.send.producer_id, base.send.sequence_id = producer_id, sequence_id
    for name, value in more.items():
        setattr(base.send, name, value)
    return framed(base, tail)


@scenario
def entries_of_odd_forms(s):
    """Wrong magic numbers, sizes and metadata behind SEND."""
    good = headers_and_payload(metadata_of(0, {}), b"x")
    meta = metadata_of(0, {}).SerializeToString()
    forms = {
        "plain": good,
        "checked": checksummed(good),
        "bad checksum": checksummed(good, bad=True),
        "other magic": b"\x0e\x03abcd" + good,
        "magic of entry metadata": b"\x0e\x02" + struct.pack(">I", 2) + b"\x08\x05" + checksummed(good),
        "magic alone": b"\x0e\x01",
        "magic and half": b"\x0e\x01ab",
        "magic and checksum": b"\x0e\x01\0\0\0\0",
        "metadata too long": struct.pack(">I", 1000) + meta,
        "metadata of no bytes": struct.pack(">I", 0) + b"x",
        "negative metadata": struct.pack(">i", -1) + meta + b"x",
        "no payload": struct.pack(">I", len(meta)) + meta,
        "one byte": b"x",
        "nothing": b"",
        "garbage": b"garbage of some length",
        "checked garbage": checksummed(b"garbage of some length"),
        "checked nothing": checksummed(b""),
    }
    for i, (name, tail) in enumerate(forms.items()):
        topic = s.topic(f"t{i}")
        c = s.connect()
        c.producer(topic, 1, quietly=True, producer_name="p")
        c.raw(send_frame(tail), name)
        c.recv(2)
        c.ask("CLOSE_PRODUCER", producer_id=1)
        c.close()


@scenario
def entries_of_few_bytes(s):
    for i, tail in enumerate(
        (b"\x0e", b"\x0e\x01", b"\x0e\x02", b"\0", b"ab", b"abc", b"abcd", b"\x0e\x02ab", b"\x0e\x01abc")
    ):
        topic = s.topic(f"t{i}")
        c = s.connect()
        c.producer(topic, 1, quietly=True, producer_name="p")
        c.raw(send_frame(tail), tail.hex())
        c.recv(2)
        c.ask("CLOSE_PRODUCER", producer_id=1)
        c.close()


@scenario
def lookup_behind_connect_in_one_write(s):
    c = s.connect(handshake=False)
    c.raw(encode("CONNECT", client_version="x", protocol_version=21) + lookup(1), "CONNECT, LOOKUP")
    c.recv(3)
    c.recv(3)


@scenario
def refused_sends_take_no_entry(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    good = headers_and_payload(metadata_of(0, {}), b"x")
    for i in range(3):
        c.raw(send_frame(checksummed(good, bad=True), sequence_id=2 * i), "bad checksum")
        c.recv(2)
        c.raw(send_frame(checksummed(good), sequence_id=2 * i + 1), "good")
        c.recv(2)


@scenario
def commands_in_pieces_of_odd_sizes(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    data = encode_send(1, 0, b"abc" * 50) + lookup(7) + encode_send(1, 1, b"x")
    for at in (1, 3, 4, 7, 8, 9, 20, 60, 200):
        c.raw(data[:at], f"{at} bytes")
        c.raw(data[at:], "the rest")
        c.recv_sorted(3)


@scenario
def numbers_longer_than_their_types(s):
    """Varints of ten bytes, booleans that are two, enums far away."""
    c = s.connect()
    topic = s.topic().encode()
    name = b"\x0a" + varint(len(topic)) + topic
    for note, body in {
        "request id of 2^64-1": name + b"\x10" + b"\xff" * 9 + b"\x01",
        "authoritative of 2": name + b"\x10\x01\x18\x02",
        "request id twice": name + b"\x10\x01\x10\x02",
        "topic twice": b"\x0a\x01x" + name + b"\x10\x03",
        "overlong request id": name + b"\x10\x81\x80\x80\x00",
        "request id of eleven bytes": name + b"\x10" + b"\xff" * 10 + b"\x01",
    }.items():
        c.raw(raw_command(23, body, 23), note)
        c.recv(2)


@scenario
def hundred_lookups_in_one_write(s):
    c = s.connect()
    c.raw(b"".join(lookup(i) for i in range(100)), "100 LOOKUPs")
    frames = [c.recv_quietly() for _ in range(100)]
    s.note("answers", sorted(f.command.request_id for f in frames if f) == list(range(100)))


@scenario
def close_of_a_connection_behind_requests(s):
    """Requests before the broken frame may get their answers, those behind it never do."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.raw(encode("PING") + struct.pack(">II", 4, 0) + lookup(5), "PING, an empty command, LOOKUP")
    c.recv(2)
