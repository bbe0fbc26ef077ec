"""Several subscriptions of a topic, of all types: positions apart, trims, unsubscribes, loads, and all figures."""

from harness.consumers import TYPES, by_types, join
from harness.figures import figures, internal_figures
from harness.steps import EARLIEST, LATEST, ack, drained, published, published_batches, rest, texts
from transcript import scenario


def all_joined(s, topic, permits=100):
    return {kind: join(s, topic, kind, permits, kind, subscription=kind, consumer_name="n") for kind in TYPES}


def came(s, clients, seconds=0.4):
    for kind, c in clients.items():
        s.note(kind, [f.payload[-2:].decode("latin-1") for f in drained(c, seconds) if f.type == "MESSAGE"])


@scenario
def subscriptions_that_unsubscribe_one_by_one(s):
    topic = s.topic()
    clients = all_joined(s, topic, 2)
    published_batches(s, topic, [b"a", b"b"], [b"c"], [b"d", b"e"])
    came(s, clients)
    for kind, c in clients.items():
        c.ask("UNSUBSCRIBE", consumer_id=1)
        figures(s, topic, f"without {kind}")
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def subscriptions_deleted_over_rest_in_use(s):
    topic = s.topic()
    clients = all_joined(s, topic)
    published(s, topic, 2)
    for kind, c in clients.items():
        s.http("DELETE", rest(topic, f"/subscription/{kind}"))
        s.http("DELETE", rest(topic, f"/subscription/{kind}?force=true"))
        drained(c, 0.3)
    figures(s, topic, "end")


@by_types("Exclusive", "Shared", "Key_Shared")
def subscription_that_changes_to_each_type(s, kind):
    topic = s.topic()
    published(s, topic, 2)
    for other in TYPES:
        c = s.connect()
        c.subscribe(topic, "sub", quietly=True, subType=kind, initialPosition="Earliest", consumer_name="a")
        d = s.connect()
        d.subscribe(topic, "sub", subType=other, consumer_name="b")
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        d.subscribe(topic, "sub", 2, subType=other, consumer_name="b")
        figures(s, topic, other)
        d.close()
        s.eventually(
            "gone",
            lambda: not s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]["consumers"],
        )


@scenario
def subscriptions_from_each_start_beside_each_other(s):
    topic = s.topic()
    ids = published(s, topic, 4)
    c = s.connect()
    starts = {
        "earliest": dict(initialPosition="Earliest"),
        "latest": dict(initialPosition="Latest"),
        "by-id": dict(start_message_id=ids[2]),
        "reader": dict(durable=False, start_message_id=ids[2]),
        "reader-earliest": dict(durable=False, start_message_id=EARLIEST),
        "reader-latest": dict(durable=False, start_message_id=LATEST),
        "reader-none": dict(durable=False),
    }
    for i, (name, more) in enumerate(starts.items()):
        c.subscribe(topic, name, i, 10, quietly=True, **more)
        s.note(name, texts([f for f in drained(c, 0.4) if f.type == "MESSAGE"]))
    figures(s, topic, "all")
    published(s, topic, 1, first=9)
    s.note("new", sorted(f.command.consumer_id for f in drained(c, 0.4)))
    internal_figures(s, topic, "insides")


@scenario
def subscriptions_of_a_topic_up_to_its_limit(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.call("POST", rest(topic, "/maxSubscriptionsPerTopic"), 2)
    s.eventually("policy", lambda: s.http("GET", rest(topic, "/maxSubscriptionsPerTopic"), quietly=True)[1] == 2)
    c = s.connect()
    c.subscribe(topic, "a", 1)
    c.subscribe(topic, "r", 2, durable=False, start_message_id=EARLIEST)
    c.subscribe(topic, "b", 3)
    s.http("PUT", rest(topic, "/subscription/d"))
    c.subscribe(topic, "e", 4, subType="Shared")
    c.producer(topic, 1, producer_name="p", initial_subscription_name="f")
    s.http("DELETE", rest(topic, "/subscription/a?force=true"))
    c.recv(2)
    c.subscribe(topic, "b", 5)
    c.subscribe(topic, "g", 6)
    s.http("GET", rest(topic, "/subscriptions"), keep=True)
    figures(s, topic, "end")


@scenario
def subscriptions_and_a_truncation(s):
    topic = s.topic()
    clients = all_joined(s, topic, 2)
    published(s, topic, 4)
    came(s, clients)
    s.http("DELETE", rest(topic, "/truncate"))
    figures(s, topic, "truncated", ("unackedMessages",))
    published(s, topic, 2, first=10)
    came(s, clients)
    for c in clients.values():
        c.send("FLOW", consumer_id=1, messagePermits=5)
    came(s, clients)


@scenario
def subscriptions_with_the_same_client_on_one_connection(s):
    topic = s.topic()
    c = s.connect()
    for i, kind in enumerate(TYPES):
        c.subscribe(topic, f"s{i}", i, 10, quietly=True, subType=kind, consumer_name="same")
    ids = published(s, topic, 2)
    frames = [f for f in drained(c, 1.2) if f.type == "MESSAGE"]
    s.note("came", sorted([f.command.consumer_id, f.payload.decode()] for f in frames))
    for i in range(4):
        ack(c, ids[0], consumer_id=i)
        c.ask("CLOSE_CONSUMER", consumer_id=i)
    figures(s, topic, "end")
    c.ask("CONSUMER_STATS", quietly=True, consumer_id=0)
