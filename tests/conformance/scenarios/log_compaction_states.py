"""Compaction: states, durable consumers that acknowledge and request redelivery, compressed batches, terminated topics."""

import time
import zlib

from harness.consumers import TYPES, by_types
from harness.figures import figures, internal_figures
from harness.steps import EARLIEST, ack, batch, compact, drained, published, rest, setup_connection, stats
from transcript import scenario

PAIRS = (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b"5"), ("d", b"6"))


def keyed(s, topic, *pairs, first=0):
    out = []
    for i, (key, payload) in enumerate(pairs):
        out += published(s, topic, [payload], first + i, partition_key=key)
    return out


def came(s, c, what="came", seconds=0.6):
    frames = [f for f in drained(c, seconds) if f.type == "MESSAGE"]
    s.note(what, [[f.command.message_id.entryId, f.command.redelivery_count, f.payload[-2:].hex()] for f in frames])


def compacting(s, topic, kind="Exclusive", name="durable", **more):
    c = s.connect()
    fields = dict(quietly=True, subType=kind, consumer_name="n", read_compacted=True, initialPosition="Earliest")
    c.subscribe(topic, name, permits=100, **fields | more)
    if kind == "Failover":
        c.recv_quietly(3)
    return c


def compaction_stats(s, topic):
    return stats(s, topic)["compaction"]


def redeliver(c, *ids):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids))


@by_types("Exclusive")
def compacted_messages_acknowledged_and_redelivered(s, kind):
    topic = s.topic()
    ids = keyed(s, topic, *PAIRS)
    compact(s, topic)
    c = compacting(s, topic, kind)
    came(s, c)
    ack(c, ids[3])
    redeliver(c)
    came(s, c, "again")
    ack(c, ids[2], ids[5])
    redeliver(c)
    came(s, c, "again")
    figures(s, topic, "figures")


@by_types("Failover")
def compacted_messages_acknowledged_up_to_one_and_redelivered(s, kind):
    topic = s.topic()
    ids = keyed(s, topic, *PAIRS)
    compact(s, topic)
    c = compacting(s, topic, kind)
    came(s, c)
    for i in (2, 3):
        ack(c, ids[i], kind="Cumulative")
        redeliver(c)
        came(s, c, f"behind {i}")
    keyed(s, topic, ("e", b"7"), first=20)
    came(s, c, "new")
    redeliver(c)
    came(s, c, "again")
    figures(s, topic, "figures")


@by_types("Exclusive", "Failover")
def compacted_messages_acknowledged_and_a_new_consumer(s, kind):
    topic = s.topic()
    ids = keyed(s, topic, *PAIRS)
    compact(s, topic)
    c = compacting(s, topic, kind)
    came(s, c)
    ack(c, ids[3], ids[0])
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    c = compacting(s, topic, kind)
    came(s, c, "next", 1.2)
    ack(c, *ids)
    figures(s, topic, "all")
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c = compacting(s, topic, kind)
    came(s, c, "after a load", 1.2)


@scenario
def compaction_asked_of_each_type_of_subscription(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    compact(s, topic)
    for kind in TYPES:
        c = s.connect()
        c.subscribe(topic, kind, permits=10, subType=kind, read_compacted=True, initialPosition="Earliest")
        came(s, c, kind, 2)


@scenario
def compaction_of_an_empty_topic(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("GET", rest(topic, "/compaction"), keep=True)
    s.http("PUT", rest(topic, "/compaction"))
    s.eventually("ended", lambda: s.http("GET", rest(topic, "/compaction"), quietly=True)[1]["status"] != "RUNNING")
    s.http("GET", rest(topic, "/compaction"), keep=True)
    figures(s, topic, "end")
    internal_figures(s, topic, "end")
    before = compaction_stats(s, topic)
    time.sleep(0.1)
    compact(s, topic)
    time.sleep(0.2)
    after = compaction_stats(s, topic)
    s.note(
        "moved",
        {k: after[k] > before[k] for k in ("lastCompactionSucceedTimestamp", "lastCompactionRemovedEventCount")},
    )
    keyed(s, topic, ("a", b"1"), ("a", b"2"))
    compact(s, topic)
    s.note("removed", compaction_stats(s, topic)["lastCompactionRemovedEventCount"])


@scenario
def compaction_of_a_truncated_topic(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    s.http("DELETE", rest(topic, "/truncate"))
    compact(s, topic)
    first = compaction_stats(s, topic)
    s.note("first", [first["lastCompactionRemovedEventCount"], first["lastCompactionSucceedTimestamp"] > 0])
    keyed(s, topic, *PAIRS, first=10)
    compact(s, topic)
    s.http("DELETE", rest(topic, "/truncate"))
    before = compaction_stats(s, topic)
    time.sleep(0.1)
    compact(s, topic)
    time.sleep(0.2)
    after = compaction_stats(s, topic)
    s.note("moved", after["lastCompactionSucceedTimestamp"] > before["lastCompactionSucceedTimestamp"])
    s.note("removed", [before["lastCompactionRemovedEventCount"], after["lastCompactionRemovedEventCount"]])
    came(s, compacting(s, topic))


@scenario
def compaction_of_messages_without_keys_alone(s):
    topic = s.topic()
    published(s, topic, 3)
    compact(s, topic)
    came(s, compacting(s, topic))
    figures(s, topic, "end")
    internal_figures(s, topic, "end")


@scenario
def compaction_again_and_again(s):
    topic = s.topic()
    for i in range(3):
        keyed(s, topic, ("a", str(i).encode()), (f"b{i}", b"x"), first=10 * i)
        compact(s, topic)
        figures(s, topic, f"round {i}", ("lastCompactionSucceedTimestamp",))
        came(s, compacting(s, topic, name=f"s{i}"), f"round {i}")
    before = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["compaction"]
    compact(s, topic)
    came(s, compacting(s, topic, name="last"), "nothing new")
    after = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["compaction"]
    s.note("moved", after["lastCompactionSucceedTimestamp"] > before["lastCompactionSucceedTimestamp"])
    figures(s, topic, "nothing new")


@scenario
def compaction_of_a_terminated_topic(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    s.http("POST", rest(topic, "/terminate"), keep=True)
    compact(s, topic)
    c = compacting(s, topic)
    came(s, c)
    c.recv(1)
    figures(s, topic, "end")


@scenario
def compaction_of_partitions_and_the_whole(s):
    topic = s.topic("p")
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    parts = [f"{topic}-partition-{i}" for i in range(2)]
    for part in parts:
        s.lookup(part)
        keyed(s, part, *PAIRS)
    s.http("PUT", rest(topic, "/compaction"))
    for part in parts:
        path = rest(part, "/compaction")
        s.eventually("compacted", lambda path=path: s.http("GET", path, quietly=True)[1]["status"] == "SUCCESS")
        came(s, compacting(s, part), "part")
    s.http("GET", rest(topic, "/compaction"), keep=True)
    whole = s.http("GET", rest(topic, "/partitioned-stats"), quietly=True)[1]
    s.note(
        "whole",
        [whole["msgInCounter"], sorted(whole["compaction"]), whole["compaction"]["lastCompactionFailedTimestamp"]],
    )


@scenario
def compaction_of_compressed_batches(s):
    topic = s.topic()
    p = setup_connection(s)
    p.producer(topic, 5, quietly=True, producer_name="q")
    for i, keys in enumerate((("a", "b", "c"), ("a", "a", "d"), ("c", "b", "e"))):
        whole = batch(*[f"{k}{i}".encode() for k in keys], partition_key=list(keys))
        more = dict(compression="ZLIB", uncompressed_size=len(whole))
        p.publish_all(5, [zlib.compress(whole)], 3 * i, num_messages_in_batch=3, **more)
    single = b"alone" * 10
    p.publish_all(5, [zlib.compress(single)], 20, partition_key="z", compression="ZLIB", uncompressed_size=len(single))
    compact(s, topic)
    c = compacting(s, topic)
    for f in drained(c, 0.7):
        m = f.metadata
        plain = zlib.decompressobj().decompress(f.payload)
        s.note(
            "entry",
            [
                f.command.message_id.entryId,
                plain.hex(),
                m.uncompressed_size == len(plain),
                m.num_messages_in_batch,
                m.compression,
            ],
        )
    figures(
        s, topic, "end", ("bytesOutCounter", "CompactedTopicLedger", "backlogSize", "storageSize", "bytesInCounter")
    )


@scenario
def compaction_of_encrypted_batches(s):
    topic = s.topic()
    p = setup_connection(s)
    p.producer(topic, 5, quietly=True, producer_name="q")
    keys = dict(encryption_keys=[dict(key="k", value=b"v")], encryption_algo="a", encryption_param=b"p")
    p.publish_all(5, [b"secret"], 0, num_messages_in_batch=2, partition_key="a", **keys)
    p.publish_all(5, [b"secret2"], 2, partition_key="a", **keys)
    p.publish_all(5, [b"plain"], 3, partition_key="a")
    p.publish_all(5, [b"secret3"], 4, num_messages_in_batch=2, **keys)
    compact(s, topic)
    came(s, compacting(s, topic))
    figures(s, topic, "end", ("lastCompactionDurationTimeInMills",))


@scenario
def compaction_and_a_reader_that_seeks_by_time(s):
    topic = s.topic()
    for i, (key, payload) in enumerate(PAIRS):
        published(s, topic, [payload], i, partition_key=key, publish_time=1_700_000_000_000 + i)
    compact(s, topic)
    c = s.connect()
    how = dict(durable=False, quietly=True, permits=100, read_compacted=True, start_message_id=EARLIEST)
    c.subscribe(topic, "reader", **how)
    came(s, c)
    s.http("GET", rest(topic, "/examinemessage?initialPosition=earliest&messagePosition=1"))
    s.http("GET", rest(topic, "/examinemessage?initialPosition=latest&messagePosition=2"))
    c.ask("SEEK", consumer_id=1, message_publish_time=1)
    c.recv(1)
    c.subscribe(topic, "reader", **how)
    came(s, c, "all", 1.2)


@scenario
def compaction_switched_by_a_threshold(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    path = rest(topic, "/compactionThreshold")
    for value in (0, 1000, -1, 2**40):
        s.call("POST", path, value)
        s.call("GET", path, keep=True)
        s.call("GET", path + "?applied=true", keep=True)
    s.call("DELETE", path)
    s.call("GET", path + "?applied=true", keep=True)
    s.call("GET", rest(topic, "/compaction"), keep=True)


@scenario
def compaction_of_null_values_and_empty_keys(s):
    topic = s.topic()
    published(s, topic, [b"v"], 0, partition_key="a")
    published(s, topic, [b""], 1, partition_key="a", null_value=True)
    published(s, topic, [b"w"], 2, partition_key="")
    published(s, topic, [b"x"], 3, partition_key="b", null_value=True)
    published(s, topic, [b"y"], 4, partition_key="YQ==", partition_key_b64_encoded=True)
    published(s, topic, [b"z"], 5, ordering_key=b"o")
    published(s, topic, [b"n"], 6, null_partition_key=True)
    compact(s, topic)
    came(s, compacting(s, topic))
    figures(s, topic, "end")


def shown_subscription(s, topic, when):
    found = (stats(s, topic).get("subscriptions") or {}).get("__compaction")
    s.note(
        when,
        found
        and {
            k: found.get(k)
            for k in ("type", "msgBacklog", "msgOutCounter", "bytesOutCounter", "isDurable", "consumers")
        },
    )
    s.note("a flow", bool(found and found["lastConsumedFlowTimestamp"]))


@scenario
def first_type_of_the_subscription_of_compaction(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.call("POST", rest(topic, "/compactionThreshold"), 100000)
    s.until(lambda: "__compaction" in stats(s, topic)["subscriptions"])
    shown_subscription(s, topic, "threshold")
    published(s, topic, 2, partition_key="k")
    shown_subscription(s, topic, "messages")
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    published(s, topic, 1, first=2, partition_key="k")
    shown_subscription(s, topic, "unloaded before a compaction")
    compact(s, topic)
    shown_subscription(s, topic, "compacted")
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    published(s, topic, 1, first=3, partition_key="k")
    shown_subscription(s, topic, "unloaded behind a compaction")
    compact(s, topic)
    shown_subscription(s, topic, "compacted again")
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    compact(s, topic)
    shown_subscription(s, topic, "compacted without a new message")


@scenario
def first_type_of_the_subscription_of_compaction_of_an_empty_topic(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.call("POST", rest(topic, "/compactionThreshold"), 100000)
    s.until(lambda: "__compaction" in stats(s, topic)["subscriptions"])
    shown_subscription(s, topic, "empty")
    compact(s, topic)
    shown_subscription(s, topic, "compacted")
