"""The headers and bodies of single messages over REST: every metadata field, batches, peeks, examination."""

from harness.steps import batch, published, rest, setup_connection
from transcript import scenario

FIELDS = [
    {}, {"partition_key": "k"}, {"partition_key": "a2V5", "partition_key_b64_encoded": True}, {"partition_key": "", "null_partition_key": True},
    {"ordering_key": b"ord"}, {"event_time": 1234567}, {"deliver_at_time": 1700000000001}, {"null_value": True},
    {"properties": [{"key": "a", "value": "b"}, {"key": "a", "value": "c"}, {"key": "d d", "value": "ü"}]}, {"replicated_from": "x"},
    {"replicate_to": ["r1", "r2"]}, {"schema_version": b"\0" * 8}, {"encryption_keys": [{"key": "k", "value": b"v", "metadata": [{"key": "m", "value": "n"}]}], "encryption_algo": "AES", "encryption_param": b"\1\2"},
    {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 9, "chunk_id": 0}, {"txnid_least_bits": 1, "txnid_most_bits": 2}, {"highest_sequence_id": 9},
    {"compression": "NONE", "uncompressed_size": 3}, {"marker_type": 10},
    {"partition_key": "kéy\nb", "properties": [{"key": "x\ny", "value": "z\r\n1"}]}, {"producer_name": "other"}, {"schema_id": b"\1\2"},
]  # fmt: skip


def neutral(name, value):
    if "publish" in name or "timestamp" in name:
        return "T"
    return "L:" + value.partition(":")[2] if name == "X-Pulsar-Message-ID" else value


def headers(s):
    found = sorted((k, v) for k, v in s.http_headers.items() if k.lower().startswith("x-pulsar"))
    return {k: neutral(k, v) for k, v in found}


def asked(s, what, method, path, **how):
    st, body = s.http(method, path, quietly=True, **how)
    s.note(what, [st, str(body)[:60] if st == 200 else 0, headers(s)])


def filled(s, topic):
    ids = []
    c = setup_connection(s)
    c.producer(topic, 99, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    for i, f in enumerate(FIELDS):
        c.publish(99, i, b"abc", **f)
        frame = c.recv_quietly()
        m = frame.command.message_id
        ids.append({"ledgerId": m.ledgerId, "entryId": m.entryId})
    s.lines = keep
    return ids


@scenario
def message_headers_by_position(s):
    topic = s.topic()
    for f, m in zip(FIELDS, filled(s, topic), strict=True):
        asked(s, str(sorted(f)), "GET", rest(topic, f"/ledger/{m['ledgerId']}/entry/{m['entryId']}"))


@scenario
def message_headers_by_peeks(s):
    topic = s.topic()
    s.call("PUT", rest(topic, "/subscription/s"))
    filled(s, topic)
    for i, f in enumerate(FIELDS, 1):
        asked(s, str(sorted(f)), "GET", rest(topic, f"/subscription/s/position/{i}"))
    for i in (0, -1, len(FIELDS) + 1, 10**6):
        asked(s, str(i), "GET", rest(topic, f"/subscription/s/position/{i}"))


@scenario
def message_headers_by_examination(s):
    topic = s.topic()
    filled(s, topic)
    for position in ("earliest", "latest", "middle", ""):
        for i in (0, 1, 2, 5, len(FIELDS), len(FIELDS) + 1, 1000, -1):
            asked(
                s,
                f"{position} {i}",
                "GET",
                rest(topic, f"/examinemessage?initialPosition={position}&messagePosition={i}"),
            )


@scenario
def message_headers_of_batches(s):
    topic = s.topic()
    s.call("PUT", rest(topic, "/subscription/s"))
    c = setup_connection(s)
    c.producer(topic, 99, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    each = {
        "partition_key": ["a", "b"],
        "event_time": [5, 6],
        "properties": [[{"key": "x", "value": "1"}], [{"key": "y", "value": "2"}]],
    }
    c.publish(
        99,
        0,
        batch(b"one", b"two", **each),
        command={"num_messages": 2},
        num_messages_in_batch=2,
        properties=[{"key": "out", "value": "3"}],
    )
    m = c.recv_quietly().command.message_id
    c.publish(99, 2, batch(b"one"), command={"num_messages": 1}, num_messages_in_batch=1)
    c.recv_quietly()
    s.lines = keep
    asked(s, "position", "GET", rest(topic, f"/ledger/{m.ledgerId}/entry/{m.entryId}"))
    for i in (1, 2, 3):
        asked(s, f"peek {i}", "GET", rest(topic, f"/subscription/s/position/{i}"))
    for where in ("earliest", "latest"):
        for i in (1, 2, 3):
            asked(s, f"{where} {i}", "GET", rest(topic, f"/examinemessage?initialPosition={where}&messagePosition={i}"))


@scenario
def messages_by_position_that_are_not_there(s):
    topic = s.topic()
    [m] = published(s, topic, 1)
    led = m["ledgerId"]
    for path in (
        f"/ledger/{led}/entry/1",
        f"/ledger/{led}/entry/-1",
        "/ledger/-1/entry/-1",
        "/ledger/x/entry/0",
        f"/ledger/{led}/entry/99999999999999999999",
        "/ledger/0/entry/0",
    ):
        asked(s, path.replace(str(led), "L"), "GET", rest(topic, path))
    asked(s, "none", "GET", rest(topic + "-none", "/ledger/1/entry/1"))
    asked(s, "np", "GET", rest(topic.replace("persistent", "non-persistent"), "/ledger/1/entry/1"))
    for i in (
        "/messageid/0",
        "/messageid/x",
        "/messageIdByIndex?index=0",
        "/messageIdByIndex?index=5",
        "/messageIdByIndex?index=-1",
        "/messageIdByIndex",
        "/getMessageIdByIndex?index=0",
    ):
        s.call("GET", rest(topic, i), keep=True)


@scenario
def message_properties_in_the_order_of_a_hash_and_escaped(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/sub"), "earliest", quietly=True)
    names = ("name", "age", "k=1", "x-y", "zz", "aa", "B", "c10")
    values = ("<a href='x'>&</a>", "", "=", "é", "\t\\/", "1", '"', "9")
    published(s, topic, 1, properties=[dict(key=k, value=v) for k, v in zip(names, values, strict=True)])
    s.call("GET", rest(topic, "/subscription/sub/position/1"), show=["X-Pulsar-PROPERTY"])
    for count in (12, 13, 14):
        properties = [dict(key=f"{i * 37}-{i}", value="") for i in range(count)]
        published(s, topic, 1, first=count, properties=properties)
        s.call("GET", rest(topic, "/examinemessage"), show=["X-Pulsar-PROPERTY"])
