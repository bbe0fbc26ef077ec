"""A partitioned topic that grows, shrinks by deletion and changes its form under its clients."""

import time

from harness.steps import avro, drained, namespace, published, rest, texts
from transcript import scenario


def parts(s, n, name="p", ns=None):
    topic = s.topic(name, ns or "public/default")
    s.http("PUT", rest(topic, "/partitions"), n, quietly=True)
    return topic


@scenario
def growth_keeps_subscriptions_and_their_place(s):
    topic = parts(s, 1)
    c = s.connect()
    part = topic + "-partition-0"
    s.lookup(part)
    c.subscribe(part, "sub", 1, subType="Shared", subscription_properties=[{"key": "k", "value": "v"}])
    published(s, part, 3)
    s.call("POST", rest(topic, "/partitions"), 3)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    for i in range(3):
        at = f"{topic}-partition-{i}"
        s.call("GET", rest(at, "/subscriptions"), keep=True)
        s.call("GET", rest(at, "/subscription/sub/properties"), keep=True)
    new = topic + "-partition-2"
    s.lookup(new)
    published(s, new, 2)
    c.subscribe(new, "sub", 2, 10, subType="Shared")
    s.note("of the new one", texts(drained(c)))


@scenario
def partition_deleted_and_asked_for_again(s):
    topic = parts(s, 2)
    part = topic + "-partition-1"
    c = s.connect()
    s.lookup(part)
    c.producer(part, 1, producer_name="p")
    s.call("DELETE", rest(part))
    s.call("DELETE", rest(part) + "?force=true")
    c.recv(2)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
    c.ask("PARTITIONED_METADATA", topic=part, metadata_auto_creation_enabled=False)
    s.lookup(part)
    c.producer(part, 2, producer_name="p")
    c.publish(2, 0, producer_name="p")
    c.recv()


@scenario
def schema_of_partitions_is_one(s):
    topic = parts(s, 2)
    c = s.connect()
    for i, text in enumerate((avro(("a", "int")), avro(("a", "int"), ("b", "string", "x")))):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        c.producer(part, i, producer_name=f"p{i}", schema={"name": "s", "type": "Avro", "schema_data": text})
    for name in (topic, topic + "-partition-0", topic + "-partition-1", topic + "-partition-9"):
        c.ask("GET_SCHEMA", topic=name)
    s.call(
        "GET",
        rest(topic).replace("/persistent/", "/schemas/") + "/schemas",
        keep=lambda r: len(r["getSchemaResponses"]),
    )


@scenario
def clients_of_the_base_name(s):
    topic = parts(s, 2)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    plain = s.topic("t")
    c.producer(plain, 2, producer_name="p")
    s.call("PUT", rest(plain, "/partitions"), 2)
    c.producer(plain + "-partition-0", 3, producer_name="p")
    c.ask("PARTITIONED_METADATA", topic=plain, metadata_auto_creation_enabled=True)


@scenario
def limit_of_topics_counts_partitions(s):
    ns = namespace(s, maxTopicsPerNamespace=4)
    for name, count in (("a", 2), ("b", 3), ("c", 2), ("d", 1)):
        s.call("PUT", f"/admin/v2/persistent/{ns}/{name}/partitions", count)
    s.call("PUT", f"/admin/v2/persistent/{ns}/t")
    s.call("POST", f"/admin/v2/persistent/{ns}/a/partitions", 5)
    s.call("GET", f"/admin/v2/persistent/{ns}/a/partitions", keep=True)
    s.call("DELETE", f"/admin/v2/persistent/{ns}/c/partitions")
    s.call("PUT", f"/admin/v2/persistent/{ns}/t")
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)


@scenario
def statistics_over_partitions(s):
    topic = parts(s, 2)
    c = s.connect()
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        c.subscribe(part, "sub", i, 10, subType="Shared", consumer_name="x")
        published(s, part, i + 2)
    drained(c)
    c.producer(topic + "-partition-0", 5, quietly=True, producer_name="p")
    c.producer(topic + "-partition-1", 6, quietly=True, producer_name="p")

    def kept(r):
        sub = r["subscriptions"]["sub"]
        return {k: r[k] for k in ("msgInCounter", "msgOutCounter", "storageSize", "backlogSize")} | {
            "publishers": len(r["publishers"]),
            "sub": {k: sub[k] for k in ("msgBacklog", "unackedMessages", "type", "msgOutCounter", "isDurable")},
            "consumers": [[x["consumerName"], x["unackedMessages"], x["availablePermits"]] for x in sub["consumers"]],
        }

    s.call("GET", rest(topic, "/partitioned-stats?perPartition=false"), keep=kept)
    s.call(
        "GET",
        rest(topic, "/partitioned-stats?excludePublishers=true&excludeConsumers=true"),
        keep=lambda r: [r["publishers"], r["subscriptions"]["sub"]["consumers"]],
    )
    s.call("GET", rest(topic, "/stats"))
    s.call("GET", rest(topic, "/internalStats"))


@scenario
def partitioned_topic_ended_under_its_clients(s):
    topic = parts(s, 2)
    c = s.connect()
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        c.producer(part, i, producer_name="p")
        c.publish(i, 0, producer_name="p")
        c.recv()
        c.subscribe(part, "sub", i, 10, subType="Shared")
        c.recv()
    s.call("POST", rest(topic, "/terminate/partitions"), keep=sorted)
    time.sleep(0.5)
    for _ in range(4):
        s.note("frame", getattr(c.recv_quietly(1), "type", None))
    for i in range(2):
        c.producer(f"{topic}-partition-{i}", 10 + i, producer_name="q")
    s.call("POST", rest(topic, "/partitions"), 3)
    new = topic + "-partition-2"
    s.lookup(new)
    c.producer(new, 20, producer_name="q")
