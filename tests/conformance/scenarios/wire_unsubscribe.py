"""UNSUBSCRIBE and deletion over REST by type, with and without force, and the commands that follow."""

from harness.joining import join
from harness.steps import published, read, rest, stats
from transcript import scenario


@scenario
def connected_subscriptions_deleted_over_rest(s):
    for domain in ("persistent", "non-persistent"):
        for kind in ("Exclusive", "Shared", "Key_Shared"):
            for durable in (True, False):
                topic = s.topic(f"{domain}{kind}{durable}", domain=domain)
                c = s.connect(f"{domain}{kind}{durable}")
                c.subscribe(topic, subType=kind, durable=durable, quietly=True)
                c.subscribe(topic, "other", 2, subType=kind, quietly=True)
                status, _ = s.http("DELETE", rest(topic, "/subscription/sub"), quietly=True)
                s.note("status", status // 100 * 100)
                status, _ = s.http("GET", rest(topic, "/subscriptions"), quietly=True)
                c.send("FLOW", consumer_id=1, messagePermits=1)
                told = [f.type for f in iter(lambda c=c: c.recv_quietly(0.2), None)]
                s.note("told", [kind for kind in told if kind != "ACTIVE_CONSUMER_CHANGE"])


@scenario
def unsubscribe_by_type_and_force(s):
    for sub_type in ("Exclusive", "Shared", "Key_Shared"):
        for force in (False, True):
            topic = s.topic(f"{sub_type}{force}")
            c = join(s, topic, sub_type, "a", permits=0)
            if sub_type != "Exclusive":
                d = join(s, topic, sub_type, "b", permits=0)
                d.ask("UNSUBSCRIBE", consumer_id=1, **({"force": True} if force else {}))
            c.ask("UNSUBSCRIBE", consumer_id=1, **({"force": True} if force else {}))
            c.none(0.1)
            s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))


@scenario
def unsubscribe_and_what_follows_it(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("SEEK", consumer_id=1, message_id=ids[0])
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.subscribe(topic, "sub", 1, 5, subType="Shared")
    c.none(0.3)
    published(s, topic, 1, first=2)
    c.recv()


@scenario
def unsubscribe_of_a_reader(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "r", 1, 5, durable=False, initialPosition="Earliest")
    read(c, 2)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))
    c.subscribe(topic, "r", 1, 5, durable=True)
    c.ask("UNSUBSCRIBE", consumer_id=1, force=True)
    s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))


@scenario
def unsubscribe_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c, d = s.connect(), s.connect()
    c.subscribe(topic, "sub", 1, subType="Shared")
    d.subscribe(topic, "sub", 1, subType="Shared")
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1, force=True)
    d.none(0.3)
    d.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(topic, "sub", 2)
    c.ask("UNSUBSCRIBE", consumer_id=2)
