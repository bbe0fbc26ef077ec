"""Producers at /ws/v2, as Apache Pulsar's WebSocket service serves them."""

import base64

from harness.wire import plain, short_bytes
from transcript import scenario


def producer(s, topic, **query):
    return s.web_socket("producer", topic, **query)


def consumer(s, topic, subscription="sub", **query):
    return s.web_socket("consumer", topic, subscription, **query)


def b64(data):
    return base64.b64encode(data).decode()


@scenario
def ws_publish_and_consume(s):
    topic = s.topic()
    c = consumer(s, topic)
    p = producer(s, topic)
    p.ask(payload=b64(b"one"), context="1")
    p.ask(payload=b64(b"two"), properties={"a": "b"}, key="k", context="2")
    for _ in range(2):
        got = c.recv()
        c.send(messageId=got["messageId"], quietly=True)
    c.none()


@scenario
def ws_message_fields(s):
    topic = s.topic()
    c = consumer(s, topic)
    p = producer(s, topic)
    p.ask(payload="", context="empty")
    p.ask(payload=b64(b"x"), eventTime="2024-02-03T04:05:06.789+00:00")
    p.ask(payload=b64(b"x"), eventTime="2024-02-03T04:05:06.789Z")
    p.ask(payload=b64(b"x"), eventTime="2024-02-03T04:05:06.789+02:00")
    p.ask(payload=b64(b"x"), eventTime="yesterday", context="c")
    p.ask(payload=b64(b"x"), eventTime="1700000000000")
    p.ask(payload=b64(b"x"), replicationClusters=["standalone"])
    p.ask(payload=b64(b"x"), sequenceId=7)
    p.ask(payload=b64(b"x"), key="")
    p.ask(payload=b64(b"x"), deliverAfterMs=-1)
    for _ in range(8):
        c.recv()


@scenario
def ws_producer_bad_messages(s):
    p = producer(s, s.topic())
    p.send_text("no json")
    p.recv()
    p.send_text("")
    p.recv()
    p.send_text("[]")
    p.recv()
    p.send_text('"text"')
    p.recv()
    p.send_text("{}")
    p.recv()
    p.ask(payload=None, context="c")
    p.ask(payload="*not base64*", context="c")
    p.ask(payload="YQ", context="no padding")
    p.ask(payload=b64(b"x"), context=7)
    p.ask(payload=b64(b"x"), unknown=1)
    p.ask(payload=b64(b"x"), properties={"a": 1})
    p.ask(payload=b64(b"x"), properties=["a"])
    p.ask(payload=b64(b"x"), context="still here")


@scenario
def ws_producer_property_without_a_value(s):
    p = producer(s, s.topic())
    p.ask(payload=b64(b"x"), properties={"a": None})


@scenario
def ws_producer_null_and_trailing(s):
    p = producer(s, s.topic())
    p.send_text("null")
    p.recv(2)
    p.send_text('{"payload": "YQ=="} more')
    p.recv(2)
    p.send_text('{"payload": "YQ==", "payload": "Yg=="}')
    p.recv(2)
    p.ask(payload=b64(b"x"), context="still here")


@scenario
def ws_producer_binary_frame(s):
    p = producer(s, s.topic())
    p.send_bytes(b'{"payload": "YQ=="}')
    p.recv(2)


@scenario
def ws_producer_too_large_a_frame(s):
    p = producer(s, s.topic())
    p.send_text('{"payload": "' + "A" * 1048576 + '"}', "large")
    p.recv()


@scenario
def ws_producer_largest_frame(s):
    p = producer(s, s.topic())
    text = '{"payload":"' + "A" * (1048576 - 14 - 2) + '"}'
    p.send_text(text + " " * (1048576 - len(text)), "largest")
    p.recv()


@scenario
def ws_producer_name_is_taken(s):
    topic = s.topic()
    producer(s, topic, producerName="mine")
    producer(s, topic, producerName="mine")
    p = producer(s, topic)
    p.ask(payload=b64(b"x"))


@scenario
def ws_producer_parameters(s):
    topic = s.topic()
    for name, values in {
        "sendTimeoutMillis": ("1000", "0", "-1", "x"),
        "batchingEnabled": ("true", "TRUE", "x"),
        "messageRoutingMode": ("SinglePartition", "RoundRobinPartition", "CustomPartition", "x"),
        "compressionType": ("LZ4", "ZSTD", "ZLIB", "SNAPPY", "NONE", "lz4", "x"),
        "hashingScheme": ("JavaStringHash", "Murmur3_32Hash", "x"),
        "initialSequenceId": ("5", "-1", "x"),
        "maxPendingMessages": ("0", "-1", "x"),
        "unknown": ("x",),
    }.items():
        for value in values:
            producer(s, topic, **{name: value})


@scenario
def ws_producer_batching_parameters(s):
    topic = s.topic()
    for name, values in {
        "batchingMaxMessages": ("10", "0", "1", "-1", "x"),
        "batchingMaxPublishDelay": ("10", "0", "-1", "x"),
        "maxPendingMessages": ("10", "0", "-1", "x"),
    }.items():
        for value in values:
            producer(s, topic, batchingEnabled="true", **{name: value})


@scenario
def ws_producer_batches(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, permits=10)
    p = producer(s, topic, batchingEnabled="true", batchingMaxMessages=3, batchingMaxPublishDelay=2000)
    for i in range(3):
        p.send(payload=b64(b"m%d" % i), context=str(i))
    for _ in range(3):
        p.recv()
    while (got := c.recv_quietly()) and got.type != "MESSAGE":
        pass
    s.note("messages in the batch", got.metadata.num_messages_in_batch)


@scenario
def ws_producer_initial_sequence_id(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, permits=10)
    p = producer(s, topic, initialSequenceId=41, producerName="named")
    p.ask(payload=b64(b"a"))
    p.ask(payload=b64(b"b"), sequenceId=7)
    for _ in range(2):
        got = c.recv_quietly()
        s.note("sequence id", got.metadata.sequence_id)


@scenario
def ws_producer_compresses(s):
    topic = s.topic()
    c = consumer(s, topic)
    for codec in ("LZ4", "ZLIB", "ZSTD", "SNAPPY"):
        p = producer(s, topic, compressionType=codec)
        p.ask(payload=b64(b"text " * 100), context=codec)
        s.note("payload", c.recv(quietly=True)["payload"] == b64(b"text " * 100))


@scenario
def ws_publish_to_a_terminated_topic(s):
    topic = s.topic()
    p = producer(s, topic)
    s.http("POST", "/admin/v2/" + topic.replace("://", "/") + "/terminate", keep=None)
    p.ask(payload=b64(b"x"), context="c")


@scenario
def ws_producer_blank_name_and_unknown_codec(s):
    topic = s.topic()
    for name in ("", "%20"):
        producer(s, topic, producerName=name)
    p = producer(s, topic)
    for codec in ("LZ4", "lz4", "x", ""):
        p.ask(payload=b64(b"x"), compressionType=codec)


@scenario
def ws_producer_entries(s):
    """A consumer of the protocol shows the entries of single messages, of batches of one, two and three, with codecs."""
    batches = dict(batchingEnabled="true", batchingMaxMessages=3, batchingMaxPublishDelay=300)
    first = dict(payload=b64(b"a"), key="k", properties={"p": "q"}, replicationClusters=["x"])
    first |= dict(eventTime="2024-02-03T04:05:06.789Z")
    for query in ({}, batches, {"compressionType": "LZ4"}, batches | {"compressionType": "LZ4"}):
        topic = s.topic(f"t{len(query)}")
        p = producer(s, topic, **query)
        for count in (1, 2, 3):
            for i in range(count):
                p.send(**(first | {"payload": b64(b"%d" % i), "context": str(i)}), quietly=True)
            for _ in range(count):
                p.recv()
        for size in (4096, 4097):
            p.send(payload=b64(b"a" * size), quietly=True)
            p.recv()
        c = s.connect()
        c.subscribe(topic, permits=100, quietly=True, initialPosition="Earliest")
        while (got := c.recv_quietly(0.7)) is not None:
            metadata = {k: v for k, v in plain(got.metadata).items() if k not in ("producer_name", "publish_time")}
            s.note("entry", [metadata, short_bytes(got.payload)])
