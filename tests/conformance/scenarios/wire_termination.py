"""Terminated topics: reads, seeks, producers and subscriptions at their end."""

from harness.steps import EARLIEST, published, read, rest
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def terminate(s, topic):
    s.http("POST", rest(topic, "/terminate"), quietly=True)


def heard(s, c, what, seconds=1.0):
    """Types of all frames until nothing comes, messages by their payload."""
    frames = list(iter(lambda: c.recv_quietly(seconds), None))
    s.note(what, [f.payload.decode() if f.type == "MESSAGE" else f.type for f in frames])


def acked(c, id_, consumer_id=1):
    c.send("ACK", quietly=True, consumer_id=consumer_id, ack_type="Individual", message_id=[id_])


@scenario
def end_of_topic_by_type(s):
    """When a consumer of each type gets the end of the topic: nothing read, all read, all acked."""
    for kind in "Exclusive", "Shared", "Key_Shared", "Failover":
        topic = s.topic(kind)
        c = s.connect(kind)
        c.subscribe(topic, subType=kind, consumer_name="n", quietly=True)
        if kind == "Failover":
            c.recv_quietly()
        ids = published(s, topic, 2)
        terminate(s, topic)
        heard(s, c, f"{kind} terminated", 0.4)
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
        heard(s, c, f"{kind} read", 0.4)
        acked(c, ids[0])
        heard(s, c, f"{kind} one acked", 0.4)
        acked(c, ids[1])
        heard(s, c, f"{kind} all acked", 0.4)
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
        heard(s, c, f"{kind} another FLOW", 0.4)


@scenario
def end_of_an_empty_topic(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "idle", 1, quietly=True)
    c.subscribe(topic, "waiting", 2, permits=10, quietly=True)
    c.subscribe(topic, "shared", 3, permits=10, **SHARED)
    terminate(s, topic)
    s.note("told", sorted({f.command.consumer_id for f in iter(lambda: c.recv_quietly(1), None)}))


@scenario
def seek_on_a_terminated_topic(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    ids = published(s, topic, 2)
    read(c, 2)
    acked(c, ids[0]), acked(c, ids[1])
    terminate(s, topic)
    s.note("terminated", {f.type for f in iter(lambda: c.recv_quietly(0.5), None)} == {"REACHED_END_OF_TOPIC"})
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.subscribe(topic, permits=10, quietly=True)
    heard(s, c, "after the seek", 0.5)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def terminated_topic_after_an_unload(s):
    topic = s.topic()
    published(s, topic, 2)
    terminate(s, topic)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, permits=10, initialPosition="Earliest", quietly=True)
    heard(s, c, "came", 0.5)


@scenario
def reader_of_a_terminated_topic(s):
    topic = s.topic()
    published(s, topic, 2)
    terminate(s, topic)
    c = s.connect()
    c.subscribe(topic, "r", durable=False, permits=1, start_message_id=EARLIEST, quietly=True)
    heard(s, c, "first", 0.4)
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=5)
    heard(s, c, "rest", 0.4)


@scenario
def termination_with_waiting_producers(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    terminate(s, topic)
    a.recv(2)
    b.recv(2)


@scenario
def termination_of_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    s.http("POST", rest(topic, "/terminate"))
    c.none()


@scenario
def second_termination(s):
    """Each request to terminate the topic notifies all consumers of subscriptions without a backlog."""
    topic = s.topic()
    ids = published(s, topic, 2)
    consumers = {}
    for kind in "Exclusive", "Shared", "Key_Shared", "Failover", "Reader":
        c = consumers[kind] = s.connect(kind)
        start = dict(durable=False, start_message_id=EARLIEST) if kind == "Reader" else dict(initialPosition="Earliest")
        c.subscribe(topic, kind, permits=10, subType="Shared" if kind == "Reader" else kind, quietly=True, **start)
        heard(s, c, f"{kind} joined", 1.5 if kind == "Failover" else 0.4)
    terminate(s, topic)
    terminate(s, topic)
    for kind, c in consumers.items():
        heard(s, c, f"{kind} has a backlog", 0.4)
        acked(c, ids[0]), acked(c, ids[1])
        heard(s, c, f"{kind} has none", 0.4)
    s.http("POST", rest(topic, "/terminate"), keep=True)
    for kind, c in consumers.items():
        heard(s, c, f"{kind} again", 0.4)


@scenario
def second_termination_after_an_unload(s):
    topic = s.topic()
    published(s, topic, 2)
    terminate(s, topic)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    heard(s, c, "joined", 0.5)
    terminate(s, topic)
    heard(s, c, "second", 0.5)
    terminate(s, topic)
    heard(s, c, "third", 0.5)
