"""Requests of producers that cross each other: one id used twice, topics that end meanwhile, answers in their order."""

from harness.steps import backlog, rest
from transcript import encode, encode_send, scenario

MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
STRING = dict(name="s", schema_data=b"", type="String")


def request(topic, producer_id, request_id, **more):
    return encode("PRODUCER", topic=topic, producer_id=producer_id, request_id=request_id, **more)


@scenario
def same_id_asked_for_with_every_difference(s):
    """A request with an id in use gets the existing producer, with any other fields."""
    topic, other = s.topic(), s.topic("other")
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    for more in (
        {"producer_name": "b"},
        {"topic": other},
        {"producer_access_mode": "Exclusive"},
        {"producer_access_mode": "ExclusiveWithFencing"},
        {"epoch": 5},
        {"epoch": 5, "producer_name": "a"},
        {"schema": STRING},
        {"encrypted": True},
        {"topic_epoch": 7},
        {"initial_subscription_name": "first"},
        {"topic": "bad://x"},
        {"topic": other + "-partition-9"},
        {"metadata": [{"key": "k", "value": "v"}]},
        {"txn_enabled": True},
        {"user_provided_producer_name": False},
    ):
        c.ask("PRODUCER", **({"topic": topic, "producer_id": 1} | more))
    s.call("GET", rest(topic, "/subscriptions"), keep=True)
    c.publish(1, 0)
    c.recv()


@scenario
def refused_and_asked_again_on_the_same_id(s):
    topic, other = s.topic(), s.topic("other")
    c, d = s.connect(), s.connect()
    d.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    for mode in ("Shared", "Exclusive"):
        c.producer(topic, 1, producer_name="b", producer_access_mode=mode)
    c.producer("bad://x", 1)
    c.producer(topic + "-partition-2", 1)
    c.producer(other, 1, producer_name="b")
    c.publish(1, 0)
    c.recv()


@scenario
def waiting_id_asked_for_again_in_other_ways(s):
    topic, other = s.topic(), s.topic("other")
    c, d = s.connect(), s.connect()
    d.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    c.producer(topic, 1, producer_name="b", producer_access_mode="Shared")
    c.producer(other, 1, producer_name="c")
    c.producer(topic, 2, producer_name="b", producer_access_mode="WaitForExclusive")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    d.ask("CLOSE_PRODUCER", producer_id=1)
    c.recv(2)
    c.none(0.3)


@scenario
def waiting_producers_of_one_name(s):
    topic = s.topic()
    c, d, e = s.connect(), s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    d.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    e.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    d.recv(2)
    d.ask("CLOSE_PRODUCER", producer_id=1)
    e.recv(2)


@scenario
def waiting_producer_when_the_topic_goes(s):
    for i, (method, path) in enumerate(
        (("DELETE", "?force=true"), ("PUT", "/unload"), ("POST", "/terminate"), ("DELETE", "/truncate"))
    ):
        topic = s.topic(f"t{i}")
        c, d = s.connect(), s.connect()
        c.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
        d.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
        s.call(method, rest(topic, path))
        c.recv(1)
        d.recv(1)
        d.none(0.2)


@scenario
def waiting_on_the_two_domains(s):
    for domain in ("persistent", "non-persistent"):
        topic = s.topic(domain[:3], domain=domain)
        c, d = s.connect(), s.connect()
        c.producer(topic, 1, producer_name="a")
        d.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
        d.producer(topic, 2, producer_name="c", producer_access_mode="WaitForExclusive")
        c.producer(topic, 2, producer_name="d")
        c.ask("CLOSE_PRODUCER", producer_id=1)
        d.recv(2)
        d.publish(1, 0)
        d.recv()
        d.send("CLOSE_PRODUCER", producer_id=1, request_id=77)
        d.recv_sorted(2)


@scenario
def fencing_while_sends_are_under_way(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a")
    c.publish(1, 0)
    c.recv()
    d.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing")
    c.none(0.3)
    d.publish(1, 0)
    d.recv()
    c.producer(topic, 2, producer_name="c")
    c.producer(topic, 3, producer_name="c", producer_access_mode="ExclusiveWithFencing")
    d.none(0.3)


@scenario
def requests_for_producers_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.raw(request(topic, 1, 1, producer_name="a") + request(topic, 2, 2, producer_name="b"), "PRODUCER 1, PRODUCER 2")
    c.recv_sorted(2)
    c.raw(request(topic, 3, 3, producer_name="a") + request(topic, 4, 4, producer_name="b"), "names in use")
    c.recv_sorted(2)


@scenario
def sends_behind_the_request_for_their_producer(s):
    """A SEND before the answer to PRODUCER closes the connection: the producer does not exist yet."""
    topic = s.topic()
    c = s.connect()
    c.raw(request(topic, 1, 1, producer_name="a") + encode_send(1, 0), "PRODUCER, SEND")
    c.recv(3)
    c.recv(3)


@scenario
def closing_what_is_being_made(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 9, quietly=True, producer_name="warm")
    c.raw(request(topic, 1, 1, producer_name="a") + encode("CLOSE_PRODUCER", producer_id=1, request_id=2), "both")
    c.recv_sorted(2, 3)
    c.none(0.3)
    c.producer(topic, 1, producer_name="a")


@scenario
def epochs_of_a_reconnecting_producer(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    c.producer(topic, 1, producer_name="a", epoch=3)
    for client in (c, d):
        for epoch in (0, 2, 3, 4, 5, 2**63):
            client.producer(topic, 2, producer_name="a", epoch=epoch)
            client.producer(topic, 2, producer_name="a", epoch=epoch, user_provided_producer_name=False)


@scenario
def metadata_of_producers(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a", metadata=[{"key": "k", "value": "v"}, {"key": "l", "value": ""}])
    s.call("GET", rest(topic, "/stats"), keep=lambda b: [p["metadata"] for p in b["publishers"]])
    c.producer(topic, 2, producer_name="b", metadata=[{"key": "", "value": ""}])
    c.producer(topic, 3, producer_name="c", metadata=[{"key": "k", "value": "v"}, {"key": "k", "value": "v"}])
    c.recv(1)


@scenario
def first_subscriptions_of_every_kind(s):
    c = s.connect()
    for i, (domain, name) in enumerate(
        (
            ("persistent", "a"),
            ("persistent", ""),
            ("persistent", "a/b"),
            ("non-persistent", "a"),
        )
    ):
        topic = s.topic(f"t{i}", domain=domain)
        c.producer(topic, i, producer_name="p", initial_subscription_name=name)
        c.publish(i, 0)
        c.recv()
        s.call("GET", rest(topic, "/subscriptions"), keep=True)
        c.subscribe(topic, name or "x", i, permits=5)
        c.recv(0.5)


@scenario
def first_subscriptions_with_blank_names(s):
    """A producer creates subscriptions by whose names no consumer can subscribe."""
    topic = s.topic()
    c = s.connect()
    for i, name in enumerate((" ", "\t", "  ")):
        c.producer(topic, i, producer_name=f"p{i}", initial_subscription_name=name)
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)
    c.publish(0, 0)
    c.recv()
    c.ask("SUBSCRIBE", topic=topic, subscription=" ", subType="Exclusive", consumer_id=5)
    s.note("backlog", backlog(s, topic))
    for i in range(3):
        c.ask("CLOSE_PRODUCER", producer_id=i)
    s.call("PUT", rest(topic, "/unload"))
    s.note("backlog", backlog(s, topic))
    c.producer(topic, 7, producer_name="p7", initial_subscription_name=" ")
    s.note("backlog", backlog(s, topic))
    other = s.topic("t2", domain="non-persistent")
    c.producer(other, 8, producer_name="p8", initial_subscription_name=" ")
    s.call("GET", rest(other, "/subscriptions"), keep=True)


@scenario
def first_subscription_of_a_refused_producer(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    c.producer(topic, 2, producer_name="a", initial_subscription_name="late")
    c.producer(topic, 3, producer_name="b", initial_subscription_name="exclusive", producer_access_mode="Exclusive")
    c.producer(
        topic,
        4,
        producer_name="c",
        initial_subscription_name="schema",
        schema=dict(name="s", schema_data=b"{", type="Avro"),
    )
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)


@scenario
def producers_of_a_terminated_topic(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    s.call("POST", rest(topic, "/terminate"))
    c.recv()
    for i, mode in enumerate(MODES):
        c.producer(topic, 10 + i, producer_name="b", producer_access_mode=mode)
    c.producer(topic, 20, producer_name="c", schema=STRING)
    c.producer(topic, 21, producer_name="c", initial_subscription_name="first")
    c.ask("GET_SCHEMA", topic=topic)
    s.call("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def many_closes_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    for i in range(5):
        c.producer(topic, i, quietly=True, producer_name=f"p{i}")
    c.raw(
        b"".join(encode_send(i, 0) + encode("CLOSE_PRODUCER", producer_id=i, request_id=i) for i in range(5)),
        "five times SEND, CLOSE_PRODUCER",
    )
    c.recv_sorted(10)
    c.none(0.3)


@scenario
def close_of_a_producer_with_another_epoch_of_requests(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    c.send("CLOSE_PRODUCER", producer_id=1, request_id=0)
    c.recv()
    c.send("CLOSE_PRODUCER", producer_id=1, request_id=2**64 - 1)
    c.recv()
    c.send("CLOSE_PRODUCER", producer_id=2**64 - 1, request_id=7)
    c.recv()
    c.send("CLOSE_PRODUCER", producer_id=2, request_id=8)
    c.recv()
