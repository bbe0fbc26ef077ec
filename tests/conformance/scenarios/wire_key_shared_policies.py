"""Key_Shared members by mode, range and order: mixtures, gaps, members that come and go, and all figures."""

from harness.figures import figures
from harness.steps import ack, drained, published, rest
from transcript import scenario

AUTO = dict(keySharedMode="AUTO_SPLIT")
OUT_OF_ORDER = dict(keySharedMode="AUTO_SPLIT", allowOutOfOrderDelivery=True)
KEYS = [f"key-{i}" for i in range(8)]


def sticky(*ranges, **more):
    return dict(keySharedMode="STICKY", hashRanges=[dict(start=a, end=b) for a, b in ranges], **more)


def member(s, topic, name, meta, permits=100, quietly=False, c=None):
    c = c or s.connect(name)
    c.subscribe(topic, permits=permits, quietly=quietly, subType="Key_Shared", consumer_name=name, keySharedMeta=meta)
    return c


def keyed(s, topic, first=0, keys=KEYS):
    out = []
    for i, key in enumerate(keys):
        out += published(s, topic, [key.encode()], first + i, partition_key=key)
    return out


def came(s, *members):
    for c in members:
        s.note(c.name, [f.payload.decode("latin-1") for f in drained(c, 0.4) if f.type == "MESSAGE"])


@scenario
def members_of_every_mode_beside_each_other(s):
    metas = {"auto": AUTO, "out": OUT_OF_ORDER, "low": sticky((0, 30000)), "high": sticky((30001, 65535))}
    for first, meta in metas.items():
        topic = s.topic(first)
        member(s, topic, first, meta)
        for second, other in metas.items():
            member(s, topic, second, other)
        figures(s, topic, first)


@scenario
def sticky_ranges_with_a_gap_that_closes(s):
    topic = s.topic()
    a, b = member(s, topic, "a", sticky((0, 20000))), member(s, topic, "b", sticky((40000, 65535)))
    keyed(s, topic)
    came(s, a, b)
    figures(s, topic, "gap")
    c = member(s, topic, "c", sticky((20001, 39999)))
    came(s, a, b, c)
    figures(s, topic, "closed")
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    keyed(s, topic, 20)
    came(s, b, c)
    d = member(s, topic, "d", sticky((0, 10000), (10001, 20000)))
    came(s, b, c, d)
    figures(s, topic, "again")


@scenario
def sticky_ranges_in_odd_forms(s):
    topic = s.topic()
    for i, ranges in enumerate(
        (
            [],
            [(5, 4)],
            [(-1, 5)],
            [(0, 65536)],
            [(0, 65535), (3, 4)],
            [(7, 7)],
            [(8, 9), (9, 10)],
            [(100, 200), (50, 60)],
            [(65535, 65535)],
        )
    ):
        c = s.connect()
        member(s, topic, f"n{i}", sticky(*ranges), c=c)
    figures(s, topic, "end")


@scenario
def automatic_split_by_one_two_and_three(s):
    topic = s.topic()
    a = member(s, topic, "a", AUTO)
    keyed(s, topic)
    came(s, a)
    b = member(s, topic, "b", AUTO)
    keyed(s, topic, 20)
    came(s, a, b)
    figures(s, topic, "two", ("drainingHashes",))
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    came(s, a, b)
    c = member(s, topic, "c", AUTO)
    keyed(s, topic, 40)
    came(s, a, b, c)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    came(s, b, c)
    figures(s, topic, "two again", ("drainingHashes",))


@scenario
def automatic_split_with_acknowledgements_between(s):
    topic = s.topic()
    a = member(s, topic, "a", AUTO)
    ids = keyed(s, topic)
    came(s, a)
    b = member(s, topic, "b", AUTO)
    keyed(s, topic, 20)
    came(s, a, b)
    for i in range(0, 8, 2):
        ack(a, ids[i])
        came(s, b)
    ack(a, *ids)
    came(s, a, b)
    figures(s, topic, "end", ("drainingHashes",))


@scenario
def out_of_order_split_with_a_newcomer(s):
    topic = s.topic()
    a = member(s, topic, "a", OUT_OF_ORDER, permits=5)
    keyed(s, topic)
    came(s, a)
    b = member(s, topic, "b", OUT_OF_ORDER)
    came(s, a, b)
    keyed(s, topic, 20)
    came(s, a, b)
    a.send("FLOW", consumer_id=1, messagePermits=50)
    came(s, a, b)
    figures(s, topic, "end")


@scenario
def key_shared_switched_off_by_policy_while_in_use(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    a = member(s, topic, "a", AUTO)
    s.call("POST", rest(topic, "/subscriptionTypesEnabled"), ["Shared"])
    s.eventually("policy", lambda: s.http("GET", rest(topic, "/subscriptionTypesEnabled"), quietly=True)[1])
    keyed(s, topic)
    came(s, a)
    member(s, topic, "b", AUTO)
    member(s, topic, "c", sticky((0, 5)))
    s.call("DELETE", rest(topic, "/subscriptionTypesEnabled"))
    s.call("GET", rest(topic, "/subscriptionTypesEnabled?applied=true"), keep=sorted)


@scenario
def ordering_keys_and_keys_of_bytes(s):
    topic = s.topic()
    a, b = member(s, topic, "a", sticky((0, 32767))), member(s, topic, "b", sticky((32768, 65535)))
    for i, more in enumerate(
        (
            dict(ordering_key=b"o1"),
            dict(ordering_key=b"o1", partition_key="other"),
            dict(partition_key="a2V5", partition_key_b64_encoded=True),
            dict(partition_key="key"),
            dict(partition_key=""),
            dict(ordering_key=b""),
            dict(),
            dict(partition_key="ключ"),
        )
    ):
        published(s, topic, [b"%d" % i], i, **more)
    came(s, a, b)
    figures(s, topic, "end")
