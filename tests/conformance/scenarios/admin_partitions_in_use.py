"""Partitions, subscriptions, indexes and lists of topics beside their clients."""

from harness.consumers import by_type
from harness.joining import join as served
from harness.steps import EARLIEST, ack, drained, namespace, published, published_batches, rest
from transcript import scenario

FIRST = {"ledgerId": -1, "entryId": -1}


def seen(s, c, seconds=0.4):
    """The messages that come until silence; notes each payload and redelivery count, or the type of the frame."""
    frames = [f for f in iter(lambda: c.recv_quietly(seconds), None) if f]
    shown = [
        f"{f.payload.decode('latin-1')} {f.command.redelivery_count}" if f.type == "MESSAGE" else f.type for f in frames
    ]
    s.note("frames", shown)
    return [f for f in frames if f.type == "MESSAGE"]


@by_type
def non_persistent_unloaded_and_deleted(s, kind):
    topic = s.topic(domain="non-persistent")
    c = served(s, topic, kind)
    p = s.connect("p")
    p.producer(topic, 1, producer_name="p")
    p.publish(1, 0, b"a")
    p.recv()
    seen(s, c)
    s.call("PUT", rest(topic, "/unload"))
    c.recv(1)
    p.recv(1)
    s.lookup(topic)
    s.call("GET", rest(topic, "/stats"), keep=lambda b: [sorted(b["subscriptions"]), b["msgInCounter"]])
    c = served(s, topic, kind, "again")
    s.call("DELETE", rest(topic))
    s.call("DELETE", rest(topic, "?force=true"))
    c.recv(1)
    s.call("GET", rest(topic, "/stats"))


@scenario
def indexes_of_partitions(s):
    topic = s.topic(namespace=namespace(s))
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    s.lookup(topic + "-partition-0")
    published(s, topic + "-partition-0", 2)
    for t in (topic, topic + "-partition-0", topic + "-partition-1", topic + "-partition-9"):
        s.call("GET", rest(t, "/getMessageIdByIndex?index=1"), keep=True)
        s.call("GET", rest(t, "/lastMessageId"), keep=True)
        s.call("GET", rest(t, "/messageid/1"), keep=True)


@scenario
def system_topics_in_lists(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic), quietly=True)
    s.http("POST", rest(topic, "/maxProducers"), 3, quietly=True)
    s.lookup(f"persistent://{ns}/__x")
    s.http("PUT", f"/admin/v2/persistent/{ns}/__own", quietly=True)
    for q in ("", "?includeSystemTopic=true", "?includeSystemTopic=false", "?bundle=0x00000000_0xffffffff"):
        s.call("GET", f"/admin/v2/persistent/{ns}{q}", keep=lambda b: sorted(x for x in b if "change_events" not in x))
        s.call(
            "GET",
            f"/admin/v2/namespaces/{ns}/topics{q}",
            keep=lambda b: sorted(x for x in b if "change_events" not in x),
        )
    c = s.connect()
    for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        f = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode=mode)
        s.note(mode, sorted(t for t in f.command.topics if "change_events" not in t))


@scenario
def missed_partitions_made_after_deletions(s):
    ns = namespace(s, autoTopicCreation={"allowAutoTopicCreation": False})
    topic = s.topic("p", ns)
    s.call("PUT", rest(topic, "/partitions?createLocalTopicOnly=true"), 3)
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
    s.call("DELETE", rest(topic + "-partition-1"))
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
    s.lookup(topic + "-partition-1")
    c = s.connect()
    c.producer(topic + "-partition-1", 1, producer_name="p")
    s.call("POST", rest(topic, "/createMissedPartitions"))
    c.producer(topic + "-partition-1", 2, producer_name="p")
    s.lookup(topic + "-partition-3")
    c.producer(topic + "-partition-3", 3, producer_name="p")
    s.call("POST", rest(topic, "/partitions?updateLocalTopicOnly=true"), 4)
    c.producer(topic + "-partition-3", 4, producer_name="q")
    s.call("POST", rest(topic, "/partitions?force=true"), 4)
    s.call("POST", rest(topic, "/partitions"), 2)
    s.call("GET", rest(topic, "/partitions"), keep=True)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.ask("PARTITIONED_METADATA", topic=topic + "-partition-1")


@scenario
def growth_beside_subscriptions_and_producers(s):
    ns = namespace(s)
    topic = s.topic("p", ns)
    s.http("PUT", rest(topic, "/partitions"), 1, quietly=True)
    s.lookup(topic + "-partition-0")
    c = s.connect()
    c.subscribe(topic + "-partition-0", "shared", 1, 10, subType="Shared")
    c.subscribe(topic + "-partition-0", "r", 2, durable=False, start_message_id=EARLIEST)
    s.call("PUT", rest(topic, "/subscription/made?replicated=true"), FIRST)
    s.call("PUT", rest(topic, "/subscription/made/properties"), {"a": "b"})
    s.call("POST", rest(topic, "/partitions"), 3)
    for n in range(3):
        s.call("GET", rest(f"{topic}-partition-{n}", "/subscriptions"), keep=sorted)
        s.call("GET", rest(f"{topic}-partition-{n}", "/subscription/made/properties"), keep=lambda b: b)
    x = s.http("GET", rest(topic, "/partitioned-stats"), quietly=True)[1]
    s.note(
        "subs",
        {
            k: [v["type"], len(v["consumers"]), v["isReplicated"], v["subscriptionProperties"]]
            for k, v in sorted(x["subscriptions"].items())
            if k != "r"
        },
    )


@scenario
def partitions_deleted_under_clients(s):
    ns = namespace(s)
    topic = s.topic("p", ns)
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    for n in range(2):
        s.lookup(f"{topic}-partition-{n}")
        c.subscribe(f"{topic}-partition-{n}", "s", n)
        c.producer(f"{topic}-partition-{n}", n, producer_name="p")
    s.call("DELETE", rest(topic, "/partitions"))
    s.call("DELETE", rest(topic))
    s.call("DELETE", rest(topic, "/partitions?force=true"))
    c.recv_sorted(4, 2)
    s.call("GET", rest(topic, "/partitions"), keep=True)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
    c.producer(topic, 9, producer_name="p")


@scenario
def backlog_analyzed_with_bounds(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/sub"), FIRST, quietly=True)
    ids = published(s, topic, 6)
    published_batches(s, topic, [b"a", b"b", b"c"])
    for body in (None, {}, {"ledgerId": ids[2]["ledgerId"], "entryId": 2}, {"ledgerId": -1, "entryId": -1}):
        _, b = s.call(
            "POST",
            rest(topic, "/subscription/sub/analyzeBacklog"),
            body,
            keep=[
                "entries",
                "messages",
                "filterRejectedEntries",
                "filterAcceptedEntries",
                "filterAcceptedMessages",
                "aborted",
            ],
        )
    c = served(s, topic, "Shared")
    frames = drained(c)
    ack(c, frames[1].message_id, frames[3].message_id)
    s.call("POST", rest(topic, "/subscription/sub/analyzeBacklog"), {}, keep=["entries", "messages", "aborted"])
    s.call(
        "GET",
        rest(topic, "/stats?subscriptionBacklogSize=true&getPreciseBacklog=true"),
        keep=lambda b: {k: b["subscriptions"]["sub"][k] for k in ("msgBacklog", "backlogSize", "unackedMessages")},
    )
    s.call(
        "GET",
        rest(
            topic,
            "/stats?subscriptionBacklogSize=false&getPreciseBacklog=true&getEarliestTimeInBacklog=true&excludePublishers=true&excludeConsumers=true",
        ),
        keep=lambda b: [
            b["subscriptions"]["sub"]["backlogSize"],
            len(b["subscriptions"]["sub"]["consumers"]),
            b["publishers"],
        ],
    )


@by_type
def subscription_properties_in_use(s, kind):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, 5, subType=kind, subscription_properties=[dict(key="a", value="1")])
    if kind == "Failover":
        c.recv(2)
    d = s.connect("d")
    d.subscribe(topic, "sub", 1, 5, subType=kind, subscription_properties=[dict(key="a", value="2")])
    s.call("GET", rest(topic, "/subscription/sub/properties"), keep=True)
    s.call("PUT", rest(topic, "/subscription/sub/properties"), {"b": "3"})
    s.call("GET", rest(topic, "/subscription/sub/properties"), keep=True)
    published(s, topic, 2)
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    s.call("GET", rest(topic, "/subscription/sub/properties"), keep=True)
    s.call("PUT", rest(topic, "/subscription/sub/properties"), {})
    s.call("GET", rest(topic, "/subscription/sub/properties"), keep=True)
    s.call("DELETE", rest(topic, "/subscription/sub"))
    s.call("DELETE", rest(topic, "/subscription/sub?force=true"))
    s.call("GET", rest(topic, "/subscription/sub/properties"), keep=True)
