"""Non-persistent topics by type of subscription: delivery, drops, requests of an administrator, and all figures."""

from harness.consumers import by_type, by_types, join
from harness.figures import figures
from harness.steps import EARLIEST, LATEST, ack, drained, published, published_batches, rest
from transcript import scenario


def came(s, c, what="came", seconds=0.5):
    frames = [f for f in drained(c, seconds) if f.type == "MESSAGE"]
    s.note(what, [[f.command.message_id.entryId, f.payload[-2:].decode("latin-1")] for f in frames])


def figured(s, topic, what):
    figures(s, topic, what, ("msgDropRate", "messageAckRate"))


@by_types("Exclusive", "Failover", "Key_Shared")
def non_persistent_life_of_a_consumer(s, kind):
    topic = s.topic(domain="non-persistent")
    c = join(s, topic, kind, consumer_name="n", permits=3)
    ids = published(s, topic, 2)
    came(s, c)
    figured(s, topic, "published")
    ack(c, *[i for i in ids if i])
    figured(s, topic, "acknowledged")
    published(s, topic, 4, first=5)
    came(s, c, "beyond the permits")
    figured(s, topic, "dropped")
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=5)
    published_batches(s, topic, [b"a", b"b", b"c"])
    came(s, c, "batch")
    figured(s, topic, "batch")
    c.ask("UNSUBSCRIBE", consumer_id=1)
    figured(s, topic, "left")


@by_types("Shared", "Key_Shared", "Failover")
def non_persistent_life_of_two_consumers(s, kind):
    topic = s.topic(domain="non-persistent")
    a, b = join(s, topic, kind, consumer_name="a"), join(s, topic, kind, consumer_name="b")
    for i, key in enumerate(("x", "y", "z", "x")):
        published(s, topic, 2, first=2 * i, partition_key=key)
    came(s, a, "a")
    came(s, b, "b")
    figured(s, topic, "both")
    a.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    published(s, topic, 2, first=20, partition_key="x")
    came(s, b, "b alone")
    figured(s, topic, "one")


@by_type
def non_persistent_topic_under_an_administrator(s, kind):
    topic = s.topic(domain="non-persistent")
    c = join(s, topic, kind, consumer_name="n")
    published(s, topic, 1)
    came(s, c)
    for method, path, body in (
        ("POST", "/subscription/sub/skip/1", None),
        ("POST", "/subscription/sub/skip_all", None),
        ("POST", "/subscription/sub/resetcursor", EARLIEST),
        ("POST", "/subscription/sub/resetcursor/0", None),
        ("POST", "/subscription/sub/expireMessages/1", None),
        ("PUT", "/subscription/new", LATEST),
        ("DELETE", "/subscription/sub", None),
        ("DELETE", "/truncate", None),
        ("POST", "/terminate", None),
        ("PUT", "/compaction", None),
        ("GET", "/internalStats", None),
        ("GET", "/lastMessageId", None),
        ("GET", "/subscriptions", None),
        ("GET", "/examinemessage", None),
        ("DELETE", "", None),
        ("PUT", "/unload", None),
    ):
        s.http(method, rest(topic, path), body)
        c.recv(0.2)
    figured(s, topic, "end")


@scenario
def non_persistent_partitions_and_their_figures(s):
    topic = s.topic("p", domain="non-persistent")
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        c = join(s, part, "Shared", consumer_name="n")
        published(s, part, i + 1)
        came(s, c, f"partition {i}")
        figured(s, part, f"partition {i}")
    s.http("GET", rest(topic, "/partitioned-stats"), keep=("msgInCounter", "msgOutCounter", "bytesInCounter"))
    s.http("GET", rest(topic, "/partitioned-internalStats"))
    s.http("POST", rest(topic, "/partitions"), 3)
    s.http("GET", rest(topic, "/partitions"), keep=True)
    s.http("DELETE", rest(topic, "/partitions"))
    s.http("DELETE", rest(topic, "/partitions?force=true"))
    s.http("GET", rest(topic, "/partitions"), keep=True)


@scenario
def non_persistent_topic_with_policies(s):
    topic = s.topic(domain="non-persistent")
    c = join(s, topic, "Shared", consumer_name="n")
    for path, body in (
        ("maxProducers", 1),
        ("maxConsumers", 1),
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
        ("deduplicationEnabled", True),
        ("delayedDelivery", {"active": True, "tickTime": 100}),
        ("publishRate", {"publishThrottlingRateInMsg": 10}),
        ("maxMessageSize", 100),
        ("subscriptionTypesEnabled", ["Shared"]),
    ):
        s.call("POST", rest(topic, "/" + path), body)
        s.call("GET", rest(topic, "/" + path), keep=True)
    s.eventually("policy", lambda: s.http("GET", rest(topic, "/subscriptionTypesEnabled"), quietly=True)[1])
    d = s.connect()
    d.producer(topic, 1, producer_name="a")
    d.producer(topic, 2, producer_name="b")
    d.subscribe(topic, "second", 3, subType="Shared")
    d.subscribe(topic, "second", 4, subType="Exclusive")
    came(s, c)
    figured(s, topic, "end")
