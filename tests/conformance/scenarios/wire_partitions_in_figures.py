"""Partitioned topics in use: growth, deletion of partitions, policies by name of a partition, and sums of the figures."""

from harness.consumers import TYPES, by_type, join
from harness.figures import figures
from harness.steps import drained, namespace, published, published_batches, rest, texts
from transcript import scenario

SUMS = (
    "msgInCounter",
    "bytesInCounter",
    "msgOutCounter",
    "bytesOutCounter",
    "backlogSize",
    "storageSize",
    "waitingPublishers",
)
OF_SUBSCRIPTIONS = ("msgBacklog", "msgOutCounter", "bytesOutCounter", "unackedMessages", "type", "msgBacklogNoDelayed")


def parts(s, n, name="p", ns="public/default"):
    topic = s.topic(name, ns)
    s.http("PUT", rest(topic, "/partitions"), n, quietly=True)
    names = [f"{topic}-partition-{i}" for i in range(n)]
    for each in names:
        s.lookup(each)
    return topic, names


def summed(s, topic, what, query=""):
    status, found = s.http("GET", rest(topic, "/partitioned-stats" + query), quietly=True)
    if status != 200:
        return s.note(what, [status, found])
    subscriptions = {
        name: {k: each.get(k) for k in OF_SUBSCRIPTIONS} | {"consumers": len(each["consumers"])}
        for name, each in sorted(found["subscriptions"].items())
    }
    s.note(
        what,
        {k: found[k] for k in SUMS if k in found}
        | {"metadata": found["metadata"], "partitions": sorted(found["partitions"])},
    )
    return s.note("subscriptions", subscriptions)


def both(c):
    """The texts of the two messages of a partition: those of Failover come up to a second behind the consumer."""
    found = (f for f in iter(lambda: c.recv_quietly(5), None) if f.type == "MESSAGE")
    return texts([f for _, f in zip(range(2), found, strict=False)])


@by_type
def sums_of_partitions_along_consumers(s, kind):
    topic, names = parts(s, 3)
    clients = [join(s, name, kind, consumer_name="n") for name in names]
    for i, name in enumerate(names):
        published(s, name, i + 1)
    published_batches(s, names[0], [b"a", b"b"])
    for c in clients:
        drained(c, 0.3)
    summed(s, topic, "delivered")
    clients[1].ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    summed(s, topic, "one left", "?perPartition=false")
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    summed(s, topic, "skipped", "?perPartition=true&getPreciseBacklog=true")
    s.http("DELETE", rest(names[2]))
    s.http("DELETE", rest(names[2], "?force=true"))
    summed(s, topic, "without the last")


@scenario
def sums_of_partitions_that_grow(s):
    topic, names = parts(s, 1)
    c = join(s, names[0], "Shared", consumer_name="n")
    published(s, names[0], 2)
    for n in (3, 2, 3, 0, -1):
        s.call("POST", rest(topic, "/partitions"), n)
        s.call("GET", rest(topic, "/partitions"), keep=True)
    s.lookup(topic + "-partition-2")
    published(s, topic + "-partition-2", 1)
    summed(s, topic, "grown")
    s.note("came", texts(drained(c, 0.3)))
    s.call("POST", rest(topic, "/partitions?updateLocalTopicOnly=true"), 4)
    s.call("POST", rest(topic, "/partitions?force=true"), 4)
    s.call("GET", rest(topic, "/partitions"), keep=True)


@scenario
def policies_of_a_partition_and_its_topic(s):
    topic, names = parts(s, 2)
    for path, body in (
        ("maxProducers", 1),
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
        ("maxConsumersPerSubscription", 2),
        ("compactionThreshold", 100),
    ):
        s.call("POST", rest(names[0], "/" + path), body)
        s.call("GET", rest(topic, "/" + path), keep=True)
        s.call("GET", rest(names[1], f"/{path}?applied=true"), keep=True)
        s.call("DELETE", rest(names[1], "/" + path))
        s.call("GET", rest(topic, "/" + path), keep=True)
    c = s.connect()
    s.call("POST", rest(topic, "/maxProducers"), 1)
    s.eventually("policy", lambda: s.http("GET", rest(topic, "/maxProducers"), quietly=True)[1] == 1)
    for i, name in enumerate(names):
        c.producer(name, 2 * i, producer_name="a")
        c.producer(name, 2 * i + 1, producer_name="b")
    s.call("DELETE", rest(topic, "/partitions?force=true"))
    s.call("GET", rest(topic, "/maxProducers"), keep=True)


@scenario
def subscriptions_of_partitions_one_by_one(s):
    topic, names = parts(s, 2)
    s.http("PUT", rest(names[0], "/subscription/one"), quietly=True)
    for path in ("/subscriptions", "/partitioned-stats", "/subscription/one/properties"):
        s.http("GET", rest(topic, path), keep=None)
    for method, path in (
        ("POST", "/subscription/one/skip_all"),
        ("POST", "/subscription/one/expireMessages/1"),
        ("POST", "/subscription/one/resetcursor/0"),
        ("DELETE", "/subscription/one"),
        ("GET", "/subscriptions"),
    ):
        s.http(method, rest(topic, path))
    summed(s, topic, "end")


@scenario
def consumers_of_all_types_on_partitions(s):
    topic, names = parts(s, 2)
    for i, kind in enumerate(TYPES):
        for name in names:
            c = s.connect(f"{kind}{name[-1]}")
            c.subscribe(name, f"s{i}", permits=10, quietly=True, subType=kind, consumer_name=f"n{i}")
    for name in names:
        published(s, name, 2)
    for c in s.connections:
        if c.name[-1] in "01" and c.name not in ("quiet", "setup"):
            s.note(c.name, both(c))
    summed(s, topic, "end")


@scenario
def partitions_terminated_one_by_one(s):
    topic, names = parts(s, 2)
    published(s, names[0], 2)
    s.http("POST", rest(names[0], "/terminate"))
    s.http("POST", rest(topic, "/terminate"))
    s.http("POST", rest(topic, "/terminate/partitions"), keep=True)
    s.http("POST", rest(topic, "/terminate/partitions"), keep=True)
    c = s.connect()
    for i, name in enumerate(names):
        c.producer(name, i, producer_name="p")
        c.subscribe(name, "sub", i, permits=5, initialPosition="Earliest")
        for _ in range(3):
            c.recv(1)


@scenario
def partitioned_topic_deleted_and_made_again(s):
    ns = namespace(s)
    topic, names = parts(s, 2, ns=ns)
    published(s, names[0], 2)
    c = join(s, names[1], "Shared", consumer_name="n")
    s.http("DELETE", rest(topic, "/partitions?force=true"))
    c.recv(3)
    s.http("GET", rest(topic, "/partitions"), keep=True)
    s.http("PUT", rest(topic, "/partitions"), 3)
    s.http("GET", rest(topic, "/partitioned-stats"), keep=("msgInCounter", "storageSize"))
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
    s.lookup(names[0])
    published(s, names[0], 1)
    figures(s, names[0], "again")


@scenario
def missed_partitions_created(s):
    ns = namespace(s)
    topic, names = parts(s, 3, ns=ns)
    s.http("DELETE", rest(names[1], "?force=true"))
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
    s.http("POST", rest(topic, "/createMissedPartitions"))
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
    s.http("POST", rest(names[0], "/createMissedPartitions"))
    s.http("POST", rest(topic + "-none", "/createMissedPartitions"))
