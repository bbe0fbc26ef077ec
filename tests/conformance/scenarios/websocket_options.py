"""Sessions of WebSockets with each option, and the messages that they send and get."""

from harness.joining import join as served
from harness.steps import published, rest, stats
from transcript import scenario


def seen(s, c, seconds=0.4):
    """Notes the metadata and payload of the messages that come until silence."""
    frames = [f for f in iter(lambda: c.recv_quietly(seconds), None) if f]
    for f in frames:
        what = s.frame_text(f)[1]
        s.note("frame", [what["metadata"], what["payload"]] if f.type == "MESSAGE" else f.type)


@scenario
def web_socket_consumer_of_each_option(s):
    topic = s.topic()
    published(s, topic, [b"a", b"b", b"c"])
    for i, q in enumerate(
        (
            dict(subscriptionType="Shared", receiverQueueSize=1),
            dict(subscriptionType="Exclusive", subscriptionMode="NonDurable"),
            dict(subscriptionType="Failover", priorityLevel=1),
            dict(subscriptionType="Key_Shared"),
            dict(subscriptionType="shared"),
            dict(ackTimeoutMillis=500),
            dict(ackTimeoutMillis=5000),
            dict(negativeAckRedeliveryDelay=100),
            dict(pullMode="true"),
            dict(maxRedeliverCount=1),
            dict(maxRedeliverCount=1, deadLetterTopic=topic + "-d"),
            dict(subscriptionInitialPosition="Earliest"),
            dict(consumerName="n"),
            dict(cryptoFailureAction="DISCARD"),
            dict(readCompacted="true"),
            dict(token="x"),
            dict(receiverQueueSize=-1),
            dict(receiverQueueSize="x"),
        )
    ):
        w = s.web_socket("consumer", topic, f"s{i}", **q)
        if w.is_open:
            w.none(0.3)
            w.close()
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)


@scenario
def web_socket_consumer_redelivers_after_negative_acks(s):
    topic = s.topic()
    w = s.web_socket("consumer", topic, "s", subscriptionType="Shared", negativeAckRedeliveryDelay=200)
    published(s, topic, [b"a", b"b"])
    m = w.recv()
    w.recv()
    w.send(type="negativeAcknowledge", messageId=m["messageId"])
    w.recv(3)
    w.none(0.5)


@scenario
def web_socket_consumer_in_pull_mode(s):
    topic = s.topic()
    w = s.web_socket("consumer", topic, "s", subscriptionType="Shared", pullMode="true")
    published(s, topic, [b"a", b"b", b"c"])
    w.none(0.5)
    w.send(type="permit", permitMessages=2)
    w.recv()
    w.recv()
    w.none(0.5)
    w.send(type="permit", permitMessages=1)
    w.recv()


@scenario
def web_socket_consumer_unsubscribes(s):
    topic = s.topic()
    w = s.web_socket("consumer", topic, "s")
    w.send(type="unsubscribe")
    w.recv(1)
    s.call("GET", rest(topic, "/subscriptions"), keep=lambda b: b)


@scenario
def web_socket_messages_of_every_field(s):
    topic = s.topic()
    c = served(s, topic, "Exclusive")
    w = s.web_socket("producer", topic, producerName="p")
    for m in (
        dict(payload="eA=="),
        dict(payload="eA==", key="k", properties={"a": "b"}, context="1"),
        dict(payload=""),
        dict(payload=None),
        dict(context="x"),
        dict(payload="!!"),
        dict(payload="eA==", eventTime="2020-01-01T00:00:00Z"),
        dict(payload="eA==", eventTime=5),
        dict(payload="eA==", sequenceId=44),
        dict(payload="eA==", replicationClusters=["standalone"]),
        dict(payload="eA==", disableReplication=True),
        dict(payload="eA==", deliverAt=100),
    ):
        w.ask(**m)
    seen(s, c)


@scenario
def web_socket_producer_options(s):
    topic = s.topic()
    for q in (
        dict(sendTimeoutMillis=1000),
        dict(batchingEnabled="true", batchingMaxMessages=2, batchingMaxPublishDelay=50),
        dict(messageRoutingMode="SinglePartition"),
        dict(messageRoutingMode="x"),
        dict(compressionType="LZ4"),
        dict(compressionType="x"),
        dict(initialSequenceId=5),
        dict(hashingScheme="JavaStringHash"),
        dict(maxPendingMessages=1),
        dict(accessMode="Exclusive"),
        dict(initialSubscriptionName="init"),
    ):
        w = s.web_socket("producer", topic, producerName="p", **q)
        if w.is_open:
            w.ask(payload="eA==")
            w.close()
            s.until(lambda: not stats(s, topic)["publishers"])
    c = s.connect()
    c.subscribe(topic, "sub", 1, 50, initialPosition="Earliest", quietly=True)
    seen(s, c)
    s.call("GET", rest(topic, "/subscriptions"), keep=lambda b: b)


@scenario
def web_socket_reader_from_every_place(s):
    topic = s.topic()
    published(s, topic, [b"a", b"b", b"c"])
    for m in ("earliest", "latest", "x", ""):
        w = s.web_socket("reader", topic, messageId=m)
        if w.is_open:
            w.recv(0.6)
            w.close()
    w = s.web_socket("reader", topic)
    w.none(0.4)
    w.close()
    w = s.web_socket("reader", topic, readerName="me", messageId="earliest", receiverQueueSize=5)
    f = w.recv()
    w.send(messageId=f["messageId"])
    w.send(type="isEndOfTopic")
    w.recv(1)
    w.recv(1)
    w.recv(1)
    x = stats(s, topic)["subscriptions"]
    s.note("subs", sorted(k.split("-")[0] for k in x))


@scenario
def web_socket_stats_of_sessions(s):
    topic = s.topic()
    p, c, r = (
        s.web_socket("producer", topic, producerName="p"),
        s.web_socket("consumer", topic, "sub", consumerName="c"),
        s.web_socket("reader", topic),
    )
    p.ask(payload="eA==")
    c.recv()
    r.recv()
    x = stats(s, topic)
    s.note("publishers", [[b["producerName"], b["accessMode"], b["msgRateIn"] > -1] for b in x["publishers"]])
    s.note("subs", sorted([v["type"], v["isDurable"], len(v["consumers"])] for k, v in x["subscriptions"].items()))
