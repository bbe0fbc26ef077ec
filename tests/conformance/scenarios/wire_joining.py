"""SUBSCRIBE in every combination of its fields, and the fields that count."""

import time

from harness.steps import (
    EARLIEST,
    LATEST,
    drained,
    namespace,
    published,
    published_batches,
    read,
    rest,
    stats,
    texts,
)
from transcript import scenario

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
AUTO = dict(keySharedMode="AUTO_SPLIT")


def meta(sub_type):
    return {"keySharedMeta": AUTO} if sub_type == "Key_Shared" else {}


@scenario
def durable_and_not_durable_of_each_type(s):
    c = s.connect()
    for i, first in enumerate(TYPES):
        for j, second in enumerate(TYPES):
            topic = s.topic(f"t{i}{j}")
            c.subscribe(topic, "a", 1, subType=first, durable=False, **meta(first))
            c.subscribe(topic, "a", 2, subType=second, durable=True, **meta(second))
            c.subscribe(topic, "b", 3, subType=first, **meta(first))
            c.subscribe(topic, "b", 4, subType=second, durable=False, **meta(second))
            for consumer_id in range(1, 5):
                c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=consumer_id)


@scenario
def second_non_durable_consumer_of_each_type(s):
    c = s.connect()
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        published(s, topic, 2)
        c.subscribe(topic, "a", 1, subType=sub_type, durable=False, initialPosition="Earliest", **meta(sub_type))
        c.subscribe(topic, "a", 2, subType=sub_type, durable=False, initialPosition="Latest", **meta(sub_type))
        c.ask("CLOSE_CONSUMER", consumer_id=1)
        c.ask("CLOSE_CONSUMER", consumer_id=2)
        s.note("left", sorted(stats(s, topic)["subscriptions"]))


@scenario
def position_and_start_id_of_a_reader(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    for position in ("Earliest", "Latest"):
        for start in (None, EARLIEST, LATEST, ids[1]):
            c = s.connect()
            more = {} if start is None else dict(start_message_id=start)
            c.subscribe(topic, "r", 1, 10, durable=False, initialPosition=position, **more)
            s.note("read", texts(drained(c, 0.25)))
            c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def position_and_start_id_of_a_subscription(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    n = 0
    for position in ("Earliest", "Latest"):
        for start in (None, EARLIEST, LATEST, ids[1]):
            c = s.connect()
            more = {} if start is None else dict(start_message_id=start)
            c.subscribe(topic, f"d{n}", 1, 10, initialPosition=position, **more)
            s.note("read", texts(drained(c, 0.25)))
            n += 1


@scenario
def start_ids_with_batch_index_and_partition(s):
    topic = s.topic()
    [first, second] = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e", b"f"])
    for more in (
        dict(batch_index=0), dict(batch_index=1), dict(batch_index=2), dict(batch_index=9), dict(batch_index=-1),
        dict(partition=3), dict(batch_size=3, batch_index=1), dict(ack_set=[6]), dict(ack_set=[0]), dict(batch_index=1, ack_set=[4]),
    ):  # fmt: skip
        for base in (first, second):
            c = s.connect()
            c.subscribe(topic, "r", 1, 10, durable=False, start_message_id=base | more)
            for frame in drained(c, 0.15):
                s.note("read", [frame.message_id["entryId"], list(frame.command.ack_set)])
            c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def rolled_back_while_others_are_connected(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        published(s, topic, 2)
        c, d = s.connect(), s.connect()
        c.subscribe(topic, "a", 1, 10, quietly=True, subType=sub_type, initialPosition="Earliest", **meta(sub_type))
        if sub_type == "Failover":
            c.recv(3)
        read(c, 2)
        d.subscribe(topic, "a", 1, 10, subType=sub_type, start_message_rollback_duration_sec=100, **meta(sub_type))
        c.none(0.2)
        if sub_type == "Failover":
            d.recv(3)
        s.note("again", texts(drained(d, 0.4)))


@scenario
def rolled_back_by_a_refused_consumer(s):
    """Another type than the connected one's: refused, but the subscription was moved and its consumer closed."""
    topic = s.topic()
    published(s, topic, 2)
    c, d = s.connect(), s.connect()
    c.subscribe(topic, "a", 1, 10, quietly=True, subType="Shared", initialPosition="Earliest")
    read(c, 2)
    d.subscribe(topic, "a", 1, 10, subType="Exclusive", start_message_rollback_duration_sec=100)
    c.none(0.3)
    s.note("read", texts(drained(d, 0.4)))


@scenario
def rolled_back_by_odd_durations(s):
    topic = s.topic()
    published(s, topic, 2)
    for i, seconds in enumerate((0, 60, 2**31, 2**62, 2**63 - 1, 2**63)):
        for durable in (True, False):
            c = s.connect()
            c.subscribe(topic, f"s{i}{durable}", 1, 10, durable=durable, start_message_rollback_duration_sec=seconds)
            s.note("read", texts(drained(c, 0.2)))


@scenario
def full_topic_is_told_before_anything_else(s):
    topic = s.topic(namespace=namespace(s, maxConsumersPerTopic=1))
    c = s.connect()
    c.subscribe(topic, "a", 1, subType="Shared")
    c.subscribe(topic, "a", 1, subType="Shared")
    c.subscribe(topic, "a", 2, subType="Shared")
    c.subscribe(topic, "b", 3, subType="Shared", read_compacted=True)
    c.subscribe(topic, "", 4, subType="Shared")
    c.subscribe(topic, "pulsar.dedup", 5)
    c.subscribe(topic, "c", 6, schema=dict(name="s", schema_data=b"x", type="Avro"))
    c.subscribe(topic, "d", 7, durable=False)
    s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))


@scenario
def full_subscription_and_its_type(s):
    topic = s.topic(namespace=namespace(s, maxConsumersPerSubscription=1))
    c = s.connect()
    for i, sub_type in enumerate(TYPES):
        c.subscribe(topic, sub_type, 10 * i, subType=sub_type, **meta(sub_type))
        for j, other in enumerate(TYPES):
            c.subscribe(topic, sub_type, 10 * i + 1 + j, subType=other, **meta(other))


@scenario
def limit_of_subscriptions_counts_readers(s):
    topic = s.topic(namespace=namespace(s, maxSubscriptionsPerTopic=2))
    c = s.connect()
    c.subscribe(topic, "a", 1)
    c.subscribe(topic, "r", 2, durable=False)
    c.subscribe(topic, "b", 3)
    c.subscribe(topic, "r2", 4, durable=False)
    c.ask("CLOSE_CONSUMER", consumer_id=2)
    c.subscribe(topic, "b", 5)
    c.subscribe(topic, "a", 6, subType="Shared")
    c.producer(topic, 1, initial_subscription_name="c")


@scenario
def key_shared_settings_on_every_type(s):
    for i, sub_type in enumerate(TYPES):
        topic = s.topic(sub_type)
        published(s, topic, [b"k"], 0, partition_key="k1")
        c = s.connect()
        c.subscribe(topic, "none", 1, subType=sub_type, initialPosition="Earliest")
        c.subscribe(topic, "auto", 2, subType=sub_type, initialPosition="Earliest", keySharedMeta=AUTO)
        for j, ranges in enumerate(([], [(0, 65535)], [(0, 10)], [(24618, 24618)], [(5, 1)])):
            sticky = dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges])
            c.subscribe(topic, f"sticky{j}", 3 + j, subType=sub_type, initialPosition="Earliest", keySharedMeta=sticky)
        for consumer_id in range(1, 8):
            c.send("FLOW", quietly=True, consumer_id=consumer_id, messagePermits=5)
        s.note("read", sorted(f.command.consumer_id for f in drained(c, 1.3 if i == 2 else 0.4)))


@scenario
def key_shared_without_settings_beside_one_with(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "a", 1, subType="Key_Shared")
    c.subscribe(topic, "a", 2, subType="Key_Shared", keySharedMeta=AUTO)
    c.subscribe(topic, "a", 3, subType="Key_Shared", keySharedMeta=AUTO | dict(allowOutOfOrderDelivery=True))
    c.subscribe(topic, "b", 4, subType="Key_Shared", keySharedMeta=AUTO | dict(allowOutOfOrderDelivery=True))
    c.subscribe(topic, "b", 5, subType="Key_Shared", keySharedMeta=AUTO | dict(allowOutOfOrderDelivery=True))
    c.subscribe(topic, "b", 6, subType="Key_Shared")
    sticky = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=9)])
    c.subscribe(topic, "c", 7, subType="Key_Shared", keySharedMeta=sticky)
    c.subscribe(topic, "c", 8, subType="Key_Shared", keySharedMeta=sticky | dict(allowOutOfOrderDelivery=True))
    c.ask("CLOSE_CONSUMER", consumer_id=7)
    c.subscribe(topic, "c", 8, subType="Key_Shared", keySharedMeta=sticky | dict(allowOutOfOrderDelivery=True))


@scenario
def sticky_ranges_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    for i, ranges in enumerate(
        ([(0, 100)], [(100, 200)], [(101, 200)], [], [(300, 250)], [(400, 500), (450, 600)], [(65000, 70000)])
    ):
        sticky = dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges])
        c.subscribe(topic, "a", i, subType="Key_Shared", keySharedMeta=sticky)
    c.subscribe(topic, "a", 20, subType="Key_Shared", keySharedMeta=AUTO)
    c.subscribe(topic, "a", 21, subType="Shared")


@scenario
def non_persistent_topics_care_for_less(s):
    ns = namespace(s, maxSubscriptionsPerTopic=1)
    topic = s.topic(namespace=ns, domain="non-persistent")
    c = s.connect()
    c.subscribe(topic, "a", 1)
    c.subscribe(topic, "b", 2)
    c.subscribe(topic, "", 3)
    c.subscribe(topic, " ", 4)
    c.subscribe(topic, "pulsar.dedup", 5)
    c.subscribe(topic, "pulsar.repl.x", 6)
    c.subscribe(topic, "a", 7, durable=False)
    c.subscribe(topic, "c", 8, durable=False)
    c.subscribe(topic, "c", 9, durable=True)
    c.subscribe(topic, "d", 10, start_message_rollback_duration_sec=5)
    c.subscribe(topic, "e", 11, start_message_id=dict(ledgerId=1, entryId=1))
    c.subscribe(topic, "f", 12, read_compacted=True)
    c.subscribe(topic, "f", 13, replicate_subscription_state=True)


@scenario
def types_switched_off_on_a_non_persistent_topic(s):
    ns = namespace(s, subscriptionTypesEnabled=["Shared"])
    for domain in ("persistent", "non-persistent"):
        topic = s.topic(domain, ns, domain)
        c = s.connect()
        for i, sub_type in enumerate(TYPES):
            c.subscribe(topic, sub_type, i, subType=sub_type, **meta(sub_type))


@scenario
def types_of_a_namespace_that_were_emptied(s):
    ns = namespace(s, subscriptionTypesEnabled=["Shared"])
    topic = s.topic(namespace=ns)
    c = s.connect()
    c.subscribe(topic, "a", 1)
    s.http("POST", f"/admin/v2/namespaces/{ns}/subscriptionTypesEnabled", [])
    time.sleep(0.5)
    for i, sub_type in enumerate(TYPES):
        c.subscribe(topic, sub_type, 2 + i, subType=sub_type, **meta(sub_type))


@scenario
def refusals_in_their_order(s):
    """Several errors apply: the reported error."""
    ns = namespace(s, subscriptionTypesEnabled=["Shared", "Exclusive"])
    topic = s.topic(namespace=ns)
    c = s.connect()
    c.subscribe(topic, "", 1, subType="Failover")
    c.subscribe(topic, "", 2, subType="Key_Shared", read_compacted=True)
    c.subscribe(topic, "", 3, subType="Shared", read_compacted=True)
    c.subscribe(topic, "", 4, subType="Exclusive", read_compacted=True)
    c.subscribe(topic, "pulsar.dedup", 5, subType="Failover")
    c.subscribe(topic, "", 6, schema=dict(name="s", schema_data=b"{", type="Avro"))
    c.subscribe(topic, "", 7, durable=False)
    c.subscribe(topic, "a", 8, durable=False)
    c.subscribe(topic, "a", 9, subType="Failover")
    c.subscribe(topic, "a", 10, subType="Shared")
    c.subscribe(topic, "a", 11, subType="Shared", durable=False)


@scenario
def one_id_for_several_things(s):
    one, two = s.topic("one"), s.topic("two")
    c = s.connect()
    c.subscribe(one, "a", 1)
    c.subscribe(two, "b", 1, subType="Shared")
    c.subscribe("no/such/place/at/all", "b", 1)
    c.subscribe(one, "", 1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(two, "b", 1, subType="Shared")
    c.producer(one, 1, producer_name="p")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(one, "a", 1)
    s.note("two", sorted(stats(s, two)["subscriptions"]))


@scenario
def properties_of_a_subscription(s):
    topic = s.topic()
    c = s.connect()

    def pairs(*values):
        return [dict(key=f"k{i}", value=v) for i, v in enumerate(values)]

    def seen():
        s.note("properties", {k: v["subscriptionProperties"] for k, v in stats(s, topic)["subscriptions"].items()})

    c.subscribe(topic, "a", 1, subscription_properties=pairs("x", "y"))
    c.subscribe(topic, "r", 2, durable=False, subscription_properties=pairs("x"))
    seen()
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "a", 1, subscription_properties=pairs("z"))
    seen()
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c.subscribe(topic, "a", 3)
    seen()
    c.subscribe(topic, "b", 4, subscription_properties=pairs("", "\u00e4") + pairs("twice"))
    c.recv(0.3)


@scenario
def subscription_properties_twice_the_same_key(s):
    topic = s.topic()
    c = s.connect()
    c.send("SUBSCRIBE", topic=topic, subscription="a", subType="Shared", consumer_id=1, request_id=1,
           subscription_properties=[dict(key="k", value="1"), dict(key="k", value="2")])  # fmt: skip
    c.recv(2)


@scenario
def consumer_metadata_of_any_kind(s):
    topic = s.topic()
    c = s.connect()
    for i, pairs in enumerate(
        (
            [],
            [("", "")],
            [("a", "")],
            [("\u00e4", "\U0001f600")],
            [("k" * 1023, "v")],
            [("k" * 1024, "v")],
            [("a", "1"), ("b", "1")],
        )
    ):
        c.subscribe(topic, "a", i, subType="Shared", metadata=[dict(key=k, value=v) for k, v in pairs])


@scenario
def names_and_priorities_of_failover(s):
    base = s.topic()
    s.http("PUT", rest(base, "/partitions"), 1, quietly=True)
    topic = base + "-partition-0"
    c = s.connect()
    for i, (name, level) in enumerate((("m", 5), ("b", 5), ("z", 1), ("a", 9), ("", 1))):
        c.subscribe(topic, "f", i, quietly=True, subType="Failover", consumer_name=name, priority_level=level)
        s.note(
            "told",
            sorted([f.command.consumer_id, f.command.is_active] for f in iter(lambda: c.recv_quietly(1.4), None)),
        )


@scenario
def limits_of_failover_and_exclusive(s):
    topic = s.topic(namespace=namespace(s, maxConsumersPerSubscription=2))
    c = s.connect()
    for i in range(3):
        c.subscribe(topic, "f", i, quietly=i < 2, subType="Failover", consumer_name=f"n{i}")
        while c.recv_quietly(1.3):
            pass
    for i in range(3):
        c.subscribe(topic, "e", 10 + i, subType="Exclusive")
    for i in range(3):
        c.subscribe(topic, "s", 20 + i, subType="Shared")


@scenario
def consumer_epochs_of_each_type(s):
    for sub_type in TYPES:
        for epoch in (0, 5, 2**63 - 1, 2**64 - 1):
            topic = s.topic(f"{sub_type}{epoch}")
            published(s, topic, 1)
            c = s.connect()
            c.subscribe(
                topic,
                "a",
                1,
                5,
                quietly=True,
                subType=sub_type,
                initialPosition="Earliest",
                consumer_epoch=epoch,
                **meta(sub_type),
            )
            if sub_type == "Failover":
                c.recv(3)
            c.recv(3)
            c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, consumer_epoch=7)
            c.recv(3)


@scenario
def replicated_flag_of_readers_and_non_persistent_topics(s):
    for domain in ("persistent", "non-persistent"):
        for durable in (True, False):
            for kind in ("Shared", "Key_Shared"):
                topic, c = s.topic(f"{domain}{durable}{kind}", domain=domain), s.connect()
                c.subscribe(
                    topic,
                    subType=kind,
                    durable=durable,
                    replicate_subscription_state=True,
                    keySharedMeta={"keySharedMode": "AUTO_SPLIT", "allowOutOfOrderDelivery": True},
                )
                sub = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]
                s.note(
                    "subscription",
                    {
                        k: sub.get(k)
                        for k in (
                            "isReplicated",
                            "replicated",
                            "isDurable",
                            "durable",
                            "keySharedMode",
                            "allowOutOfOrderDelivery",
                            "type",
                        )
                    },
                )
                status, _ = s.http(
                    "POST", rest(topic, "/subscription/sub/replicatedSubscriptionStatus"), False, quietly=True
                )
                s.note("status", status)
