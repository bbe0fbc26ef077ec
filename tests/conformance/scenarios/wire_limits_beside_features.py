"""Limits of a topic or namespace beside batches, chunks, access modes, initial subscriptions and encryption."""

from harness.steps import EARLIEST, batch, namespace, rest, stats
from transcript import scenario

FIRST = {"ledgerId": -1, "entryId": -1}


@scenario
def size_of_messages_beside_batches_and_chunks(s):
    topic = s.topic(namespace=namespace(s))
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    s.call("POST", rest(topic, "/maxMessageSize"), 60)
    c.publish(1, 0, b"x" * 30)
    c.recv()
    c.publish(1, 1, batch(*[b"x" * 20] * 4), command=dict(num_messages=4), num_messages_in_batch=4)
    c.recv()
    for n in range(2):
        c.publish(1, 2, b"y" * 40, uuid="u", chunk_id=n, num_chunks_from_msg=2, total_chunk_msg_size=80)
        c.recv()
    c.publish(1, 3, b"z" * 59)
    c.recv()
    c.publish(1, 4, b"z" * 61)
    c.recv()
    c.none(0.2)
    c.publish(1, 5, b"z")
    c.recv(1)
    s.call("POST", rest(topic, "/maxMessageSize"), 0)
    c.producer(topic, 2, producer_name="q")
    c.publish(2, 4, b"z" * 61)
    c.recv()


@scenario
def deduplication_switched_during_a_life(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")

    def send(*ids):
        for i in ids:
            c.publish(1, i, b"m%d" % i)
            c.recv()

    send(0, 1, 1)
    s.call("POST", rest(topic, "/deduplicationEnabled"), True)
    s.until(lambda: stats(s, topic)["deduplicationStatus"] == "Enabled")
    send(1, 1, 2, 0)
    s.call("POST", f"/admin/v2/namespaces/{ns}/deduplication", False)
    send(2, 3)
    s.call("DELETE", rest(topic, "/deduplicationEnabled"))
    s.until(lambda: stats(s, topic)["deduplicationStatus"] == "Disabled")
    send(3, 1)
    s.call("POST", f"/admin/v2/namespaces/{ns}/deduplication", True)
    s.until(lambda: stats(s, topic)["deduplicationStatus"] == "Enabled")
    send(2, 3, 4)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")
    send(4, 5)


@scenario
def limits_of_subscriptions_beside_initial_subscriptions(s):
    topic = s.topic(namespace=namespace(s))
    s.call("POST", rest(topic, "/maxSubscriptionsPerTopic"), 1)
    c = s.connect()
    c.producer(topic, 1, producer_name="a", initial_subscription_name="s1")
    c.producer(topic, 2, producer_name="b", initial_subscription_name="s1")
    c.producer(topic, 3, producer_name="c", initial_subscription_name="s2")
    c.producer(topic, 4, producer_name="d", initial_subscription_name="")
    s.call("GET", rest(topic, "/subscriptions"), keep=lambda b: b)
    s.call("PUT", rest(topic, "/subscription/s3"), FIRST)
    c.subscribe(topic, "s4", 5)
    c.subscribe(topic, "r", 6, durable=False, start_message_id=EARLIEST)


@scenario
def initial_subscriptions_without_automatic_subscriptions(s):
    topic = s.topic(namespace=namespace(s))
    s.call("POST", rest(topic, "/autoSubscriptionCreation"), {"allowAutoSubscriptionCreation": False})
    c = s.connect()
    c.producer(topic, 1, producer_name="a", initial_subscription_name="s1")
    c.producer(topic, 2, producer_name="b")
    c.subscribe(topic, "s1", 5)
    c.subscribe(topic, "r", 6, durable=False, start_message_id=EARLIEST)
    s.call("PUT", rest(topic, "/subscription/s1"), FIRST)
    c.producer(topic, 3, producer_name="c", initial_subscription_name="s1")
    c.subscribe(topic, "s1", 7)
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)


@scenario
def encryption_required_and_every_way_to_produce(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = s.connect()
    c.producer(topic, 1, producer_name="before")
    s.call("POST", f"/admin/v2/namespaces/{ns}/encryptionRequired", True)
    c.none(0.5)
    c.publish(1, 0)
    c.recv(1)
    c.producer(topic, 2, producer_name="plain")
    c.producer(topic, 3, producer_name="enc", encrypted=True)
    c.publish(3, 0)
    c.recv(1)
    c.publish(3, 1, encryption_keys=[dict(key="k", value=b"v")])
    c.recv(1)
    s.call(
        "POST",
        "/topics/" + topic.replace("://", "/"),
        {"messages": [{"payload": "x"}]},
        keep=lambda b: b["messagePublishResults"][0]["errorCode"],
    )
    s.call("GET", f"/admin/v2/namespaces/{ns}/encryptionRequired", keep=lambda b: b)
    n = s.topic("n", ns, "non-persistent")
    c.producer(n, 5, producer_name="plain")
    c.producer(n, 6, producer_name="enc", encrypted=True)


@scenario
def limits_of_producers_beside_exclusive_access(s):
    topic = s.topic(namespace=namespace(s))
    s.call("POST", rest(topic, "/maxProducers"), 1)
    a, b = s.connect("a"), s.connect("b")
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing")
    a.recv(1)
    a.send(
        "PRODUCER",
        topic=topic,
        producer_id=2,
        request_id=72,
        producer_name="c",
        producer_access_mode="WaitForExclusive",
    )
    a.recv(0.5)
    b.ask("CLOSE_PRODUCER", producer_id=1)
    a.recv(1)
    b.producer(topic, 1, producer_name="b")
    s.call("DELETE", rest(topic, "/maxProducers"))
    b.producer(topic, 2, producer_name="b")


@scenario
def consumers_limited_on_every_level(s):
    ns = namespace(s, maxConsumersPerTopic=3, maxConsumersPerSubscription=2)
    topic = s.topic(namespace=ns)
    c = s.connect()
    for n in range(3):
        c.subscribe(topic, "s", n, subType="Shared")
    c.subscribe(topic, "t", 3, subType="Shared")
    c.subscribe(topic, "t", 4, subType="Shared")
    c.subscribe(topic, "r", 5, durable=False, start_message_id=EARLIEST)
    s.call("POST", rest(topic, "/maxConsumersPerSubscription"), 5)
    c.subscribe(topic, "s", 6, subType="Shared")
    s.call("POST", rest(topic, "/maxConsumers"), 0)
    c.subscribe(topic, "s", 6, subType="Shared")
    c.subscribe(topic, "r", 7, durable=False, start_message_id=EARLIEST)
