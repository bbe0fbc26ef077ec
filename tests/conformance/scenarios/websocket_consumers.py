"""Consumers at /ws/v2, as Apache Pulsar's WebSocket service serves them."""

import base64

from transcript import scenario


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


def consumer(s, topic, subscription="sub", **query):
    return s.web_socket("consumer", topic, subscription, **query)


@scenario
def ws_exclusive_consumer_is_taken(s):
    topic = s.topic()
    consumer(s, topic)
    consumer(s, topic)
    consumer(s, topic, subscriptionType="Shared")


def publish(s, topic, *payloads):
    """Messages by a producer of the binary protocol."""
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, payloads)


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


def stats(s, path):
    return s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"].get("sub", {})


def backlog(s, path):
    return stats(s, path).get("msgBacklog")


def consumers(s, path):
    return stats(s, path).get("consumers")


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
def ws_pull_mode_with_no_permits(s):
    """A permit of 0 or less delivers a message too, which the next permits pay for."""
    for name, permits in enumerate(((0, 0, 3, 1, 1), (-2, 1, 1, 0, 4), (2, 0, -1, 1), (0, -1, 2, 0, 2))):
        topic = s.topic(str(name))
        c = consumer(s, topic, pullMode="true")
        for i, number in enumerate(permits):
            if i == 1:
                publish(s, topic, *(b"m%d" % i for i in range(20)))
            c.send(type="permit", permitMessages=number)
            while c.recv(0.7):
                pass


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


def producer(s, topic, **query):
    return s.web_socket("producer", topic, **query)


def reader(s, topic, **query):
    return s.web_socket("reader", topic, **query)


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


def b64(data):
    return base64.b64encode(data).decode()


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
def ws_consumer_message_id_of_one_character(s):
    topic = s.topic()
    for message in ({"messageId": "x"}, {"type": "negativeAcknowledge", "messageId": "x"}):
        c = consumer(s, topic)
        c.send(**message)
        c.recv()
