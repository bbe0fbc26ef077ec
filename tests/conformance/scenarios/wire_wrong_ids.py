"""Commands with ids of other clients, of nothing, or of the wrong kind, and how the connection goes on."""

from harness.consumers import by_type, by_types
from harness.steps import EARLIEST, LATEST, drained, namespace, published, read, rest, texts
from transcript import encode, encode_send, scenario

STEADY = by_types("Exclusive", "Shared", "Key_Shared")
"""With Failover the active consumer depends on the name of the topic, and its messages come a second later."""
NONE = {"ledgerId": 9999999, "entryId": 3}


def alive(c):
    """Note whether the connection still answers."""
    c.ask("LOOKUP", topic="persistent://public/default/x", authoritative=False)


def followed(c, seconds=0.4):
    while c.recv(seconds):
        pass


@STEADY
def acks_of_messages_that_no_topic_has(s, kind):
    topic = s.topic()
    published(s, topic, 3)
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType=kind, initialPosition="Earliest")
    followed(c)
    for number, place in enumerate(
        (NONE, EARLIEST, LATEST, {"ledgerId": 0, "entryId": 0}, {"ledgerId": 1, "entryId": 2**40})
    ):
        for ack_type in ("Individual", "Cumulative"):
            c.send("ACK", consumer_id=1, ack_type=ack_type, message_id=[place], request_id=100 + number)
            followed(c, 0.3)
    s.note(
        "backlog",
        s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"].get("sub", {}).get("msgBacklog"),
    )


@STEADY
def acks_of_a_message_twice_and_of_messages_of_others(s, kind):
    topic = s.topic()
    ids = published(s, topic, 4)
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=2, subType=kind, initialPosition="Earliest")
    followed(c)
    for number, places in enumerate(([ids[0]], [ids[0]], [ids[3]], [ids[1], ids[1]], ids)):
        c.send("ACK", consumer_id=1, ack_type="Individual", message_id=places, request_id=100 + number)
        followed(c, 0.3)
        found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]
        s.note("figures", [found["msgBacklog"], found["unackedMessages"], found["consumers"][0]["availablePermits"]])


@STEADY
def redeliveries_of_messages_that_no_consumer_has(s, kind):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=10, subType=kind, initialPosition="Earliest")
    followed(c)
    for places in ([NONE], [ids[1], NONE], [EARLIEST], [ids[2], ids[2]], []):
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=places)
        followed(c)
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[0]])
    followed(c)


@STEADY
def redeliveries_with_epochs_that_go_back(s, kind):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=50, subType=kind, initialPosition="Earliest", consumer_epoch=5)
    followed(c)
    for epoch in (6, 6, 3, 0, 2**62, 7):
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, consumer_epoch=epoch)
        followed(c)


@STEADY
def requests_for_the_consumer_of_another_connection(s, kind):
    topic = s.topic()
    published(s, topic, 2)
    a, b = s.connect("a"), s.connect("b")
    a.subscribe(topic, quietly=True, consumer_id=7, permits=10, subType=kind, initialPosition="Earliest")
    followed(a)
    for name, fields in (
        ("UNSUBSCRIBE", {}), ("SEEK", {"message_id": EARLIEST}), ("GET_LAST_MESSAGE_ID", {}), ("CONSUMER_STATS", {}),
        ("CLOSE_CONSUMER", {}),
    ):  # fmt: skip
        b.send(name, consumer_id=7, request_id=9, **fields)
        b.recv(1)
    b.send("FLOW", consumer_id=7, messagePermits=3)
    b.send("ACK", consumer_id=7, ack_type="Individual", message_id=[EARLIEST], request_id=10)
    b.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=7)
    followed(b)
    alive(b)
    followed(a)


@scenario
def sends_with_the_id_of_another_producer(s):
    topic, other = s.topic(), s.topic("u")
    a, b = s.connect("a"), s.connect("b")
    a.producer(topic, 5, quietly=True)
    b.producer(other, 6, quietly=True)
    b.publish(6, 0)
    b.recv()
    b.publish(5, 0)
    followed(b)
    a.publish(5, 0)
    a.recv()


@scenario
def sends_behind_the_end_of_their_producer_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    c.raw(
        encode_send(1, 0) + encode("CLOSE_PRODUCER", producer_id=1, request_id=1) + encode_send(1, 1),
        "send, end of the producer, send",
    )
    followed(c, 1)


@scenario
def sends_of_two_producers_mixed_in_one_write(s):
    a, b = s.topic("a"), s.topic("b")
    c = s.connect()
    c.producer(a, 1, quietly=True)
    c.producer(b, 2, quietly=True)
    c.raw(b"".join(encode_send(1 + i % 2, i) for i in range(6)), "six sends in turns")
    c.recv_sorted(6)


@scenario
def closes_of_clients_of_the_other_kind(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    c.subscribe(topic, consumer_id=2, quietly=True)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("CLOSE_PRODUCER", producer_id=2)
    c.publish(1, 0)
    c.recv()
    c.send("FLOW", consumer_id=2, messagePermits=1)
    c.recv()


@scenario
def clients_of_both_kinds_with_one_id(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, consumer_id=1, permits=5)
    c.publish(1, 0)
    c.recv_sorted(2)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    published(s, topic, 1, 1)
    c.recv()
    c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def producers_with_the_id_of_a_producer(s):
    topic, other = s.topic(), s.topic("u")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.producer(topic, 1, producer_name="p")
    c.producer(topic, 1, producer_name="q")
    c.producer(other, 1, producer_name="p")
    c.producer(topic, 1, producer_name="p", epoch=1)
    c.publish(1, 0)
    c.recv()
    for t in (topic, other):
        s.note(
            "producers",
            [p["producerName"] for p in s.http("GET", rest(t, "/stats"), quietly=True)[1]["publishers"]]
            if t == topic
            else s.http("GET", rest(t, "/stats"), quietly=True)[0],
        )


@STEADY
def consumers_with_the_id_of_a_consumer(s, kind):
    topic, other = s.topic(), s.topic("u")
    c = s.connect()
    c.subscribe(topic, consumer_id=1, subType=kind)
    followed(c)
    c.subscribe(topic, consumer_id=1, subType=kind)
    c.subscribe(topic, "sub2", consumer_id=1, subType=kind)
    c.subscribe(other, consumer_id=1, subType=kind)
    c.subscribe(topic, consumer_id=1, subType=kind, permits=2)
    published(s, topic, 1)
    followed(c)


@by_type
def flows_of_odd_numbers(s, kind):
    topic = s.topic()
    published(s, topic, 5)
    for permits in (0, 2**31 - 1, 2**32 - 1, 2**31):
        c = s.connect(f"c{permits}")
        c.subscribe(topic, f"sub{permits}", 1, quietly=True, subType=kind, initialPosition="Earliest")
        followed(c, 1.2 if kind == "Failover" else 0.1)
        c.send("FLOW", consumer_id=1, messagePermits=permits)
        s.note("came", texts(drained(c, 0.5)) if permits else None)
        if not permits:
            followed(c)


@STEADY
def unsubscribes_beside_another_consumer(s, kind):
    topic = s.topic()
    a, b = s.connect("a"), s.connect("b")
    a.subscribe(topic, quietly=True, subType=kind, consumer_name="a")
    b.subscribe(topic, quietly=True, subType=kind, consumer_name="b")
    for c in (a, b):
        followed(c, 1.2 if kind == "Failover" else 0.1)
    a.send("UNSUBSCRIBE", consumer_id=1, request_id=5)
    followed(a)
    a.send("UNSUBSCRIBE", consumer_id=1, request_id=6, force=True)
    followed(a)
    followed(b)
    s.note("left", list(s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]))
    b.send("UNSUBSCRIBE", consumer_id=1, request_id=7)
    followed(b)


@STEADY
def seeks_beside_another_consumer(s, kind):
    topic = s.topic()
    ids = published(s, topic, 3)
    a, b = s.connect("a"), s.connect("b")
    for c in (a, b):
        c.subscribe(topic, quietly=True, subType=kind, consumer_name=c.name, initialPosition="Earliest")
    for c in (a, b):
        followed(c, 1.2 if kind == "Failover" else 0.1)
    a.send("SEEK", consumer_id=1, request_id=5, message_id=ids[1])
    followed(a)
    followed(b)
    b.send("SEEK", consumer_id=1, request_id=6, message_id=ids[0])
    followed(b)


@by_type
def two_seeks_and_a_flow_in_one_write(s, kind):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = s.connect()
    c.subscribe(topic, quietly=True, subType=kind, initialPosition="Earliest")
    followed(c, 1.2 if kind == "Failover" else 0.1)
    c.raw(
        encode("SEEK", consumer_id=1, request_id=5, message_id=ids[1])
        + encode("FLOW", consumer_id=1, messagePermits=2)
        + encode("CLOSE_CONSUMER", consumer_id=1, request_id=6),
        "seek, permits, end",
    )
    followed(c, 1)


@scenario
def last_ids_of_odd_topics(s):
    ns = namespace(s)
    for name, steps in {
        "empty": (),
        "one": (1,),
        "terminated": (1, "/terminate"),
        "ended": ("/terminate",),
        "unloaded": (2, "/unload"),
        "truncated": (2, "/truncate"),
    }.items():
        topic = s.topic(name, ns)
        s.http("PUT", rest(topic), quietly=True)
        for step in steps:
            if isinstance(step, int):
                published(s, topic, step)
            else:
                method = {"/terminate": "POST", "/unload": "PUT", "/truncate": "DELETE"}[step]
                s.http(method, rest(topic, step), quietly=True)
        s.lookup(topic)
        c = s.connect(name)
        for kind, initial in (("Exclusive", "Earliest"), ("Shared", "Latest")):
            c.subscribe(topic, kind, 1, quietly=True, subType=kind, initialPosition=initial)
            c.send("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=50)
            followed(c)
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def last_ids_of_non_persistent_topics_and_partitions(s):
    ns = namespace(s)
    s.http("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2, quietly=True)
    for topic in (f"non-persistent://{ns}/n", f"persistent://{ns}/p-partition-1"):
        s.lookup(topic)
        c = s.connect()
        c.subscribe(topic, quietly=True)
        c.send("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=50)
        followed(c)


@by_type
def messages_before_permits_and_after_they_are_used_up(s, kind):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, subType=kind)
    followed(c, 1.2 if kind == "Failover" else 0.1)
    published(s, topic, 3)
    c.none(0.3)
    for permits in (1, 1, 5):
        c.send("FLOW", consumer_id=1, messagePermits=permits)
        s.note("came", texts(read(c, min(permits, 1), 2)))
    published(s, topic, 5, 3)
    s.note("came", texts(drained(c, 0.5)))
