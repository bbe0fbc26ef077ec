"""Key_Shared: the statistics of modes, ranges and draining hashes while consumers come and go."""

from harness.figures import figures
from harness.steps import ack, drained, namespace, published, rest, stats, texts
from transcript import scenario

AUTO = dict(keySharedMode="AUTO_SPLIT")
FREE = AUTO | dict(allowOutOfOrderDelivery=True)
KEYS = [f"key-{i}" for i in range(12)]


def sticky(*ranges, **more):
    return dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges]) | more


def join(s, topic, name, meta=None, permits=100, consumer_id=1, c=None, **more):
    c = c or s.connect(name)
    more |= {} if meta is None else dict(keySharedMeta=meta)
    named = dict(subType="Key_Shared", consumer_name=name)
    c.subscribe(topic, consumer_id=consumer_id, permits=permits, **named, **more)
    return c


def keyed(s, topic, turn=0, keys=KEYS):
    out = []
    for i, key in enumerate(keys):
        out += published(s, topic, [b"%s/%d" % (key.encode(), turn)], turn * 100 + i, partition_key=key)
    return out


MODES = {
    "no_mode": None,
    "auto_split": AUTO,
    "out_of_order": FREE,
}
for mode, meta in MODES.items():

    def life(s, meta=meta):
        topic = s.topic()
        a = join(s, topic, "a", meta)
        ids = keyed(s, topic)
        s.note("a", texts(drained(a, 0.4)))
        figures(s, topic, "a alone")
        b = join(s, topic, "b", meta)
        keyed(s, topic, 1)
        s.note("a", texts(drained(a, 0.4)))
        s.note("b", texts(drained(b, 0.4)))
        figures(s, topic, "both")
        ack(a, *ids[:6])
        s.note("b after six", texts(drained(b, 0.4)))
        figures(s, topic, "six acknowledged")
        ack(a, *ids[6:])
        s.note("b after twelve", texts(drained(b, 0.4)))
        figures(s, topic, "twelve acknowledged")
        a.close()
        s.note("b alone", texts(drained(b, 0.6)))
        figures(s, topic, "b alone")

    life.__name__ = f"key_shared_life_of_two_consumers_{mode}"
    scenario(life)

    def negative(s, meta=meta):
        topic = s.topic()
        a = join(s, topic, "a", meta)
        b = join(s, topic, "b", meta)
        ids = keyed(s, topic)
        mine = [f.message_id for f in drained(a, 0.4)]
        s.note("b", texts(drained(b, 0.4)))
        c = join(s, topic, "c", meta)
        a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=mine[:2])
        keyed(s, topic, 1)
        for each in (a, b, c):
            s.note(each.name, texts(drained(each, 0.4)))
        figures(s, topic, "after the redelivery of two")
        a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        for each in (a, b, c):
            s.note(each.name, texts(drained(each, 0.4)))
        figures(s, topic, "after the redelivery of all")
        ack(b, *ids)
        for each in (a, b, c):
            s.note(each.name, texts(drained(each, 0.4)))
        figures(s, topic, "end")

    negative.__name__ = f"key_shared_redelivery_beside_a_newcomer_{mode}"
    scenario(negative)

    def permits(s, meta=meta):
        topic = s.topic()
        a = join(s, topic, "a", meta, permits=3)
        b = join(s, topic, "b", meta, permits=0)
        keyed(s, topic)
        s.note("a", texts(drained(a, 0.4)))
        figures(s, topic, "b without permits")
        b.send("FLOW", consumer_id=1, messagePermits=2)
        s.note("b", texts(drained(b, 0.4)))
        b.send("FLOW", consumer_id=1, messagePermits=10)
        s.note("b", texts(drained(b, 0.4)))
        a.send("FLOW", consumer_id=1, messagePermits=10)
        s.note("a", texts(drained(a, 0.4)))
        figures(s, topic, "end")

    permits.__name__ = f"key_shared_few_permits_{mode}"
    scenario(permits)


@scenario
def sticky_ranges_in_the_statistics(s):
    topic = s.topic()
    a = join(s, topic, "a", sticky((0, 20000)))
    b = join(s, topic, "b", sticky((20001, 40000), (50000, 65535)))
    ids = keyed(s, topic)
    s.note("a", texts(drained(a, 0.4)))
    s.note("b", texts(drained(b, 0.4)))
    figures(s, topic, "gap")
    c = join(s, topic, "c", sticky((40001, 49999)))
    s.note("c", texts(drained(c, 0.4)))
    s.note("a", texts(drained(a, 0.4)))
    s.note("b", texts(drained(b, 0.4)))
    figures(s, topic, "no gap")
    b.ask("CLOSE_CONSUMER", consumer_id=1)
    figures(s, topic, "b left")
    d = join(s, topic, "d", sticky((20001, 40000)))
    s.note("d", texts(drained(d, 0.4)))
    ack(a, *ids)
    figures(s, topic, "end")


@scenario
def sticky_ranges_that_collide(s):
    topic = s.topic()
    join(s, topic, "a", sticky((100, 200), (300, 400)))
    tries = {
        "same": [(100, 200)],
        "inside": [(150, 160)],
        "around": [(50, 250)],
        "edge": [(200, 201)],
        "before": [(99, 100)],
        "second": [(0, 10), (400, 500)],
        "own": [(0, 10), (5, 20)],
        "equal twice": [(0, 10), (0, 10)],
        "backwards": [(30, 20)],
        "negative": [(-5, 20)],
        "far": [(65000, 65536)],
        "point": [(65535, 65535)],
        "between": [(201, 299)],
        "none": [],
    }
    for name, ranges in tries.items():
        join(s, topic, name, sticky(*ranges))
    figures(s, topic, "stats")


@scenario
def sticky_with_other_modes_on_a_subscription_in_use(s):
    topic = s.topic()
    a = join(s, topic, "a", sticky((0, 65535)))
    for name, meta in (("auto", AUTO), ("none", None), ("free", FREE), ("sticky", sticky((1, 2)))):
        join(s, topic, name, meta)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    join(s, topic, "b", AUTO)
    for name, meta in (("free", FREE), ("none", None), ("sticky", sticky((1, 2))), ("sticky all", sticky((0, 65535)))):
        join(s, topic, name, meta)
    s.note("mode", stats(s, topic)["subscriptions"]["sub"]["keySharedMode"])


@scenario
def sticky_out_of_order_redelivery(s):
    topic = s.topic()
    meta = dict(allowOutOfOrderDelivery=True)
    a = join(s, topic, "a", sticky((0, 30000), **meta))
    b = join(s, topic, "b", sticky((30001, 65535), **meta))
    keyed(s, topic)
    for each in (a, b):
        s.note(each.name, sorted(texts(drained(each, 0.4))))
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    for each in (a, b):
        s.note(each.name, sorted(texts(drained(each, 0.4))))
    figures(s, topic, "stats")


@scenario
def key_shared_types_switched_off(s):
    ns = namespace(s, subscriptionTypesEnabled=["Shared", "Exclusive"])
    topic = s.topic(namespace=ns)
    for kind in ("Key_Shared", "Failover", "Shared"):
        s.connect().subscribe(topic, kind, subType=kind, consumer_name=kind)
    s.http("POST", f"/admin/v2/namespaces/{ns}/subscriptionTypesEnabled", ["Key_Shared"], quietly=True)
    for kind in ("Key_Shared", "Failover", "Shared", "Exclusive"):
        s.connect().subscribe(topic, kind + "2", subType=kind, consumer_name=kind)
    figures(s, topic, "stats")


@scenario
def key_shared_over_an_unload(s):
    topic = s.topic()
    a = join(s, topic, "a", AUTO)
    b = join(s, topic, "b", AUTO)
    keyed(s, topic)
    s.note("a", texts(drained(a, 0.4)))
    s.note("b", texts(drained(b, 0.4)))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    a.recv()
    b.recv()
    s.lookup(topic)
    figures(s, topic, "after the load")
    join(s, topic, "b", AUTO, c=b)
    s.note("b", texts(drained(b, 0.5)))
    join(s, topic, "a", AUTO, c=a)
    figures(s, topic, "end")


@scenario
def key_shared_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    a = join(s, topic, "a", AUTO)
    b = join(s, topic, "b", AUTO, permits=2)
    keyed(s, topic)
    s.note("a", texts(drained(a, 0.4)))
    s.note("b", texts(drained(b, 0.4)))
    figures(s, topic, "stats")
    c = join(s, topic, "c", FREE)
    d = join(s, topic, "d", sticky((0, 5)))
    keyed(s, topic, 1)
    for each in (a, b, c, d):
        s.note(each.name, texts(drained(each, 0.4)))
    figures(s, topic, "end")


@scenario
def sticky_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    a = join(s, topic, "a", sticky((0, 20000)))
    b = join(s, topic, "b", sticky((15000, 40000)))
    c = join(s, topic, "c", sticky((20001, 40000)))
    keyed(s, topic)
    for each in (a, b, c):
        s.note(each.name, texts(drained(each, 0.4)))
    figures(s, topic, "stats")
    s.note("backlog", stats(s, topic)["subscriptions"]["sub"].get("msgBacklog"))
