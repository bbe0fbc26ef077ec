"""Producers, consumers and readers at /ws/v2, as Apache Pulsar's WebSocket service serves them."""

import base64

from harness.wire import pb
from transcript import scenario


def b64(data):
    return base64.b64encode(data).decode()


def publish(s, topic, *payloads):
    """Messages by a producer of the binary protocol."""
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, payloads)


def producer(s, topic, **query):
    return s.web_socket("producer", topic, **query)


def consumer(s, topic, subscription="sub", **query):
    return s.web_socket("consumer", topic, subscription, **query)


def reader(s, topic, **query):
    return s.web_socket("reader", topic, **query)


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
def ws_paths(s):
    topic = s.topic()
    path = topic.replace("://", "/")
    for at in (
        "/ws/v2/producer/persistent/public/default",
        "/ws/v2/producer/persistent/public/no-such-namespace/t",
        "/ws/v2/producer/persistent/no-such-tenant/ns/t",
        "/ws/v2/producer/other/public/default/t",
        "/ws/v2/producer",
        "/ws/v2/producer/" + path + "/more",
        "/ws/v2/consumer/" + path,
        "/ws/v2/consumer/" + path + "/",
        "/ws/v2/consumer/" + path + "/sub/more",
        "/ws/v2/consumer/persistent/public/no-such-namespace/t/sub",
        "/ws/v2/reader/" + path + "/more",
        "/ws/v2/reader/persistent/public/no-such-namespace/t",
        "/ws/v2/other/" + path,
        "/ws/v2",
        "/ws",
        "/other",
    ):
        s.web_socket_at(at)


@scenario
def ws_paths_without_upgrade(s):
    topic = s.topic().replace("://", "/")
    s.http("GET", "/ws/v2/producer/" + topic)
    s.http("POST", "/ws/v2/producer/" + topic, {})
    s.http("GET", "/ws/v2/consumer/" + topic + "/sub")
    s.http("GET", "/ws/v2/consumer/" + topic)
    s.http("GET", "/ws/v2/reader/" + topic)
    s.http("GET", "/ws/v2/other/" + topic)


@scenario
def ws_consumer_parameters(s):
    topic = s.topic()
    for name, values in {
        "ackTimeoutMillis": ("0", "500", "1000", "2000", "x", "-1"),
        "subscriptionType": ("Exclusive", "Shared", "Failover", "Key_Shared", "shared", "x"),
        "subscriptionMode": ("Durable", "NonDurable", "x"),
        "subscriptionInitialPosition": ("Latest", "Earliest", "x"),
        "receiverQueueSize": ("0", "1", "5000", "-1", "x"),
        "consumerName": ("mine", ""),
        "priorityLevel": ("0", "3", "-1", "x"),
        "negativeAckRedeliveryDelay": ("0", "100", "-1", "x"),
        "maxRedeliverCount": ("1", "0", "-1", "x"),
        "deadLetterTopic": ("dlq",),
        "cryptoFailureAction": ("CONSUME", "x"),
        "pullMode": ("true", "x"),
        "unknown": ("x",),
    }.items():
        for value in values:
            c = s.web_socket("consumer", topic, f"{name}-{value}"[:20], **{name: value})
            c.close()


@scenario
def ws_exclusive_consumer_is_taken(s):
    topic = s.topic()
    consumer(s, topic)
    consumer(s, topic)
    consumer(s, topic, subscriptionType="Shared")


@scenario
def ws_consumer_window(s):
    topic = s.topic()
    c = consumer(s, topic, receiverQueueSize=2)
    publish(s, topic, *(b"m%d" % i for i in range(5)))
    first = c.recv()
    c.recv()
    c.none()
    c.send(messageId=first["messageId"])
    c.recv()
    c.none()


@scenario
def ws_consumer_with_a_window_of_0(s):
    topic = s.topic()
    c = consumer(s, topic, receiverQueueSize=0)
    publish(s, topic, b"a", b"b")
    got = c.recv()
    c.none()
    c.send(messageId=got["messageId"])
    c.recv()
    c.none()


@scenario
def ws_consumer_acknowledgements_last(s):
    topic = s.topic()
    c = consumer(s, topic)
    publish(s, topic, b"a", b"b", b"c")
    for _ in range(2):
        got = c.recv(quietly=True)
        c.send(type="acknowledge", messageId=got["messageId"])
    c.recv(quietly=True)
    path = "/admin/v2/" + topic.replace("://", "/")
    s.eventually("one is left", lambda: backlog(s, path) == 1)
    c.close()
    s.eventually("the consumer is gone", lambda: not consumers(s, path))
    c = consumer(s, topic)
    c.recv()
    c.none()


def stats(s, path):
    return s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"].get("sub", {})


def backlog(s, path):
    return stats(s, path).get("msgBacklog")


def consumers(s, path):
    return stats(s, path).get("consumers")


@scenario
def ws_consumer_bad_commands(s):
    topic = s.topic()
    for text in (
        "no json",
        "[]",
        "{}",
        '{"messageId": "*"}',
        '{"messageId": "AAAA"}',
        '{"type": "permit"}',
        "null",
        '{"type": "permit", "permitMessages": "x"}',
        '{"type": "negativeAcknowledge"}',
        '{"messageId": 1}',
        '{"type": "other"}',
        '{"messageId": "CAEQAg==", "more": 1}',
        "",
    ):
        c = consumer(s, topic, f"sub{len(s.web_sockets)}")
        c.send_text(text)
        c.recv(1)
        c.close()


@scenario
def ws_consumer_binary_frame(s):
    c = consumer(s, s.topic())
    c.send_bytes(b"{}")
    c.recv(2)


@scenario
def ws_consumer_negative_acknowledgement(s):
    topic = s.topic()
    c = consumer(s, topic, subscriptionType="Shared", negativeAckRedeliveryDelay=300)
    publish(s, topic, b"a")
    got = c.recv()
    c.send(type="negativeAcknowledge", messageId=got["messageId"])
    got = c.recv()
    c.send(type="acknowledge", messageId=got["messageId"])
    c.none(1)


@scenario
def ws_consumer_ack_timeout(s):
    topic = s.topic()
    c = consumer(s, topic, subscriptionType="Shared", ackTimeoutMillis=1001)
    publish(s, topic, b"a")
    c.recv()
    got = c.recv()
    c.send(messageId=got["messageId"])
    c.none(2.5)


@scenario
def ws_consumer_dead_letters(s):
    topic = s.topic()
    dead = consumer(s, topic + "-sub-DLQ", "d")
    c = consumer(s, topic, subscriptionType="Shared", negativeAckRedeliveryDelay=100, maxRedeliverCount=1)
    publish(s, topic, b"a")
    for _ in range(2):
        got = c.recv()
        c.send(type="negativeAcknowledge", messageId=got["messageId"])
    got = dead.recv(quietly=True)
    s.note("payload", got["payload"])
    s.note("properties", sorted(got["properties"]))
    c.none(1)


@scenario
def ws_consumer_pull_mode(s):
    topic = s.topic()
    c = consumer(s, topic, pullMode="true")
    publish(s, topic, *(b"m%d" % i for i in range(5)))
    c.none()
    c.send(type="permit", permitMessages=2)
    got = c.recv()
    c.recv()
    c.none()
    c.send(messageId=got["messageId"])
    c.none()
    c.send(type="permit", permitMessages=1)
    c.recv()
    c.none()


@scenario
def ws_permits_without_pull_mode(s):
    topic = s.topic()
    c = consumer(s, topic, receiverQueueSize=1)
    publish(s, topic, b"a", b"b")
    c.recv()
    c.send(type="permit", permitMessages=1)
    c.none()


@scenario
def ws_consumer_unsubscribes(s):
    topic = s.topic()
    c = consumer(s, topic)
    c.send(type="unsubscribe")
    path = "/admin/v2/" + topic.replace("://", "/")
    s.eventually("the subscription is gone", lambda: not stats(s, path))
    publish(s, topic, b"a")
    c.none()


@scenario
def ws_end_of_topic(s):
    topic = s.topic()
    c = consumer(s, topic)
    r = reader(s, topic)
    c.ask(type="isEndOfTopic")
    r.ask(type="isEndOfTopic")
    s.http("POST", "/admin/v2/" + topic.replace("://", "/") + "/terminate", keep=None)

    def ended(w):
        w.send(type="isEndOfTopic", quietly=True)
        return w.recv(quietly=True)["endOfTopic"]

    s.eventually("the consumer saw the end", lambda: ended(c))
    s.eventually("the reader saw the end", lambda: ended(r))
    producer(s, topic)


@scenario
def ws_publish_to_a_terminated_topic(s):
    topic = s.topic()
    p = producer(s, topic)
    s.http("POST", "/admin/v2/" + topic.replace("://", "/") + "/terminate", keep=None)
    p.ask(payload=b64(b"x"), context="c")


@scenario
def ws_consume_batches(s):
    topic = s.topic()
    p = producer(s, topic, batchingEnabled="true", batchingMaxMessages=3, batchingMaxPublishDelay=2000)
    c = consumer(s, topic, receiverQueueSize=2)
    for i in range(3):
        p.send(payload=b64(b"m%d" % i), key="k", properties={"i": str(i)})
    first, second = c.recv(), c.recv()
    c.none()
    c.send(messageId=first["messageId"])
    third = c.recv()
    path = "/admin/v2/" + topic.replace("://", "/")
    s.note("backlog", backlog(s, path) > 0)
    c.send(messageId=second["messageId"])
    c.send(messageId=third["messageId"])
    s.eventually("all is acknowledged", lambda: backlog(s, path) == 0)


@scenario
def ws_reader_reads(s):
    topic = s.topic()
    publish(s, topic, b"a", b"b", b"c")
    r = reader(s, topic, messageId="earliest")
    first = r.recv()
    r.recv()
    r.recv()
    r.none()
    r = reader(s, topic, messageId=first["messageId"], shown="messageId=FIRST")
    r.recv()
    r = reader(s, topic)
    r.none()
    reader(s, topic, messageId="latest").none()


@scenario
def ws_reader_window(s):
    topic = s.topic()
    publish(s, topic, b"a", b"b", b"c")
    r = reader(s, topic, messageId="earliest", receiverQueueSize=1)
    got = r.recv()
    r.none()
    r.send(messageId=got["messageId"])
    r.recv()
    r.none()
    r.send()
    r.recv()


@scenario
def ws_reader_parameters(s):
    topic = s.topic()
    publish(s, topic, b"a")
    for name, values in {
        "messageId": ("", "x", "****", "AAAA"),
        "receiverQueueSize": ("0", "-1", "5000"),
        "readerName": ("mine", ""),
        "cryptoFailureAction": ("x",),
    }.items():
        for value in values:
            reader(s, topic, **{name: value})


@scenario
def ws_reader_queue_size_x(s):
    reader(s, s.topic(), receiverQueueSize="x")


@scenario
def ws_reader_bad_commands(s):
    topic = s.topic()
    for text in ("no json", "{}", "[]"):
        r = reader(s, topic)
        r.send_text(text)
        r.recv(1)


@scenario
def ws_partitioned_topic(s):
    topic = f"persistent://public/default/{s.tag}-p"
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 3, keep=None)
    c = consumer(s, topic)
    p = producer(s, topic, messageRoutingMode="RoundRobinPartition")
    partitions = set()
    for i in range(6):
        p.send(payload=b64(b"m%d" % i), quietly=True)
        p.recv(quietly=True)
        got = c.recv(quietly=True)
        partitions.add(pb.MessageIdData.FromString(base64.b64decode(got["messageId"])).partition)
        c.send(messageId=got["messageId"], quietly=True)
    s.note("partitions", sorted(partitions))
    ids = set()
    for key in ("a", "a", "a"):
        p.send(payload=b64(b"k"), key=key, quietly=True)
        ids.add(pb.MessageIdData.FromString(base64.b64decode(p.recv(quietly=True)["messageId"])).partition)
    s.note("one partition for one key", len(ids))
    path = "/admin/v2/" + topic.replace("://", "/")

    def left():
        return sum(backlog(s, f"{path}-partition-{i}") or 0 for i in range(3))

    s.eventually("three are left", lambda: left() == 3)


@scenario
def ws_partitioned_topic_by_key(s):
    topic = f"persistent://public/default/{s.tag}-p"
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 4, keep=None)
    for scheme in ("JavaStringHash", "Murmur3_32Hash"):
        p = producer(s, topic, hashingScheme=scheme)
        for key in ("a", "b", "customer-17", "ü", ""):
            p.send(payload=b64(b"k"), key=key)
            p.recv()


@scenario
def ws_reader_of_a_partitioned_topic(s):
    topic = f"persistent://public/default/{s.tag}-p"
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/partitions", 2, keep=None)
    r = reader(s, topic, messageId="earliest")
    p = producer(s, topic, messageRoutingMode="RoundRobinPartition")
    got = set()
    for i in range(4):
        p.send(payload=b64(b"m%d" % i), quietly=True)
        p.recv(quietly=True)
        got.add(r.recv(quietly=True)["payload"])
    s.note("payloads", sorted(got))


@scenario
def ws_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = consumer(s, topic)
    p = producer(s, topic)
    p.ask(payload=b64(b"x"), context="c")
    got = c.recv()
    c.send(messageId=got["messageId"])
    c.none()


@scenario
def ws_sessions_outlive_an_unload(s):
    topic = s.topic()
    c = consumer(s, topic)
    p = producer(s, topic)
    p.ask(payload=b64(b"a"))
    got = c.recv()
    c.send(messageId=got["messageId"])
    path = "/admin/v2/" + topic.replace("://", "/")
    s.eventually("acknowledged", lambda: backlog(s, path) == 0)
    s.http("PUT", path + "/unload", keep=None)
    s.eventually("the consumer is back", lambda: consumers(s, path), timeout=20)
    p.send(payload=b64(b"b"))
    got = p.recv(20, quietly=True)
    s.note("result", got["result"])
    while (got := c.recv(20, quietly=True)) and got["payload"] != b64(b"b"):
        pass  # what was acknowledged just before may come again
    s.note("payload", got["payload"])


@scenario
def ws_stats(s):
    topic = s.topic()
    c = consumer(s, topic)
    p = producer(s, topic)
    r = reader(s, topic)
    p.ask(payload=b64(b"a"))
    c.recv(quietly=True)
    r.recv(quietly=True)
    s.http("GET", "/admin/v2/proxy-stats/" + topic.replace("://", "/") + "/stats")
    s.http("GET", "/admin/v2/proxy-stats/persistent/public/default/none/stats")
    status, body = s.http("GET", "/admin/v2/proxy-stats/stats")
    s.note("own", bool(isinstance(body, dict) and body.get(topic)))
    s.http("GET", "/admin/v2/proxy-stats/metrics")
    s.http("GET", "/ws/v2/proxy-stats/stats")
