"""Compaction in the view of subscriptions and REST: the state after a compacted read, and the cursor `__compaction`."""

import time

from harness.steps import EARLIEST, ack, backlog, batch, compact, drained, namespace, published, rest, stats, texts
from transcript import scenario


def compacted_topic(s, keys="aaaaba"):
    """A topic with a durable subscription from before its first message, compacted."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "s", read_compacted=True, initialPosition="Earliest", quietly=True)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    for i, key in enumerate(keys):
        published(s, topic, [b"%d" % i], i, partition_key=key)
    compact(s, topic)
    return topic


def id_of(frame):
    found = frame.command.message_id
    return {"ledgerId": found.ledgerId, "entryId": found.entryId}


def deleted_alone(s, topic, name="s"):
    """How many ranges a subscription has acknowledged behind its mark-delete position."""
    found = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"][name]
    return found["individuallyDeletedMessages"].count("..")


@scenario
def acknowledged_one_by_one_what_was_compacted_away_stays_in_the_backlog(s):
    topic = compacted_topic(s)
    c = s.connect()
    c.subscribe(topic, "s", read_compacted=True, permits=10, quietly=True)
    frames = drained(c)
    s.note("came", texts(frames))
    for f in frames:
        ack(c, id_of(f))
    time.sleep(1)
    s.note("backlog", backlog(s, topic)["s"])
    s.note("ranges", deleted_alone(s, topic))


@scenario
def acknowledged_cumulatively_it_is_gone(s):
    topic = compacted_topic(s)
    c = s.connect()
    c.subscribe(topic, "s", read_compacted=True, permits=10, quietly=True)
    frames = drained(c)
    ack(c, id_of(frames[-1]), kind="Cumulative")
    time.sleep(1)
    s.note("backlog", backlog(s, topic)["s"])
    s.note("ranges", deleted_alone(s, topic))


@scenario
def the_cursor_of_compaction_is_a_subscription(s):
    topic = compacted_topic(s)
    s.note("names", sorted(s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1]))
    s.note("in the stats", sorted(stats(s, topic)["subscriptions"]))
    s.note("its backlog", backlog(s, topic)["__compaction"])
    published(s, topic, [b"new"], 6, partition_key="b")
    time.sleep(0.5)
    s.note("its backlog", backlog(s, topic)["__compaction"])


@scenario
def a_client_may_subscribe_to_the_cursor_of_compaction(s):
    topic = compacted_topic(s)
    published(s, topic, [b"new"], 6, partition_key="b")
    c = s.connect()
    c.subscribe(topic, "__compaction", permits=10)
    s.note("came", texts(drained(c)))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    d = s.connect()
    d.subscribe(topic, "__compaction", 1, subType="Shared")
    d.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def the_name_is_free_on_a_topic_never_compacted(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "__compaction")
    s.note("names", s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1])
    c.ask("UNSUBSCRIBE", consumer_id=1)


@scenario
def the_cursor_of_compaction_deleted_over_rest(s):
    topic = compacted_topic(s)
    s.http("DELETE", rest(topic, "/subscription/__compaction"))
    s.http("POST", rest(topic, "/subscription/__compaction/skip_all"))
    s.note("names", s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1])
    compact(s, topic)
    s.note("names", sorted(s.http("GET", rest(topic, "/subscriptions"), quietly=True)[1]))


@scenario
def threshold_of_compaction_and_its_subscription(s):
    """A topic that a policy compacts has the subscription of compaction from its load or from the policy on."""
    ns = namespace(s)
    base, policy = f"persistent://{ns}/", f"/admin/v2/namespaces/{ns}/compactionThreshold"
    s.call("PUT", rest(base + "before"))
    published(s, base + "before", 2)
    s.call("PUT", policy, 1 << 20)
    s.eventually("subscribed", lambda: "__compaction" in backlog(s, base + "before"))
    s.note("before", backlog(s, base + "before"))
    s.lookup(base + "after")
    published(s, base + "after", 3)
    s.note("after", backlog(s, base + "after"))
    s.call("PUT", rest(base + "parts", "/partitions"), 1)
    s.lookup(base + "parts-partition-0")
    published(s, base + "parts-partition-0", 1)
    s.call("POST", rest(base + "parts", "/partitions"), 2)
    s.call("GET", rest(base + "parts-partition-1", "/subscriptions"), keep=True)
    s.call("DELETE", policy)
    s.note("after", backlog(s, base + "after"))
    s.call("DELETE", rest(base + "after", "/subscription/__compaction"))
    s.note("after", backlog(s, base + "after"))
    s.lookup(base + "later")
    published(s, base + "later", 1)
    s.note("later", backlog(s, base + "later"))
    s.call("POST", rest(base + "later", "/compactionThreshold"), 1 << 20)
    s.eventually("subscribed", lambda: "__compaction" in backlog(s, base + "later"))
    s.note("later", backlog(s, base + "later"))


def compacted_read(s, topic):
    c = s.connect()
    c.subscribe(topic, "r", durable=False, start_message_id=EARLIEST, read_compacted=True, permits=10, quietly=True)
    s.note("read", texts(drained(c)))
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def compacted_topic_is_gone_with_its_subscription(s):
    topic = compacted_topic(s)
    compacted_read(s, topic)
    s.call("DELETE", rest(topic, "/subscription/__compaction"))
    compacted_read(s, topic)
    s.note("ledger", s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["compactedLedger"]["entries"])
    compact(s, topic)
    compacted_read(s, topic)


def asked_to_compact(s, topic):
    """Ask for a compaction; note its status once none runs."""
    path = rest(topic, "/compaction")
    s.call("PUT", path)
    s.eventually("ended", lambda: s.http("GET", path, quietly=True)[1]["status"] != "RUNNING", 15)
    s.note("status", s.http("GET", path, quietly=True)[1]["status"])


@scenario
def compaction_of_a_topic_without_new_messages(s):
    """No run begins: the status is that of the last run since the load."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    asked_to_compact(s, topic)
    published(s, topic, 2, partition_key="k")
    asked_to_compact(s, topic)
    asked_to_compact(s, topic)
    s.call("PUT", rest(topic, "/unload"))
    s.lookup(topic)
    asked_to_compact(s, topic)
    asked_to_compact(s, topic)
    published(s, topic, 1, 2, partition_key="k")
    asked_to_compact(s, topic)
    s.call("PUT", rest(topic, "/unload"))
    s.call("DELETE", rest(topic, "/truncate"))
    asked_to_compact(s, topic)


@scenario
def expiry_of_all_subscriptions_leaves_that_of_compaction(s):
    topic = compacted_topic(s)
    published(s, topic, [b"x"], 9, partition_key="a")
    time.sleep(1.2)
    s.call("POST", rest(topic, "/all_subscription/expireMessages/1"))
    s.eventually("expired", lambda: backlog(s, topic)["s"] == 0)
    s.note("backlog", backlog(s, topic))
    for name in ("b", "with", "a"):
        s.call("PUT", rest(topic, "/subscription/" + name), "latest")
    _, answer = s.call("POST", rest(topic, "/all_subscription/expireMessages/1"))
    s.note("refused", answer["reason"].partition("for subscription ")[2].split()[0])


@scenario
def messages_removed_by_compaction_are_counted(s):
    """A value that an empty message removes counts with that message."""
    topic = s.topic()

    def removed(what):
        compact(s, topic)
        found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["compaction"]
        s.note(what, found["lastCompactionRemovedEventCount"])

    published(s, topic, [b"a", b"b", b""], partition_key="k")
    removed("two values and their removal")
    published(s, topic, [b""], 3, partition_key="k")
    removed("a removal of nothing")
    published(s, topic, [b"a", b"b", b"", b"c", b"d"], 4, partition_key="k")
    published(s, topic, [b"plain"], 9)
    removed("values around a removal, and a message without a key")
    batches = [[(b"1", "x"), (b"2", "y")], [(b"3", "x"), (b"", "y"), (b"", "z")], [(b"", "x"), (b"", "y")]]
    for i, messages in enumerate(batches):
        payload = batch(*(m for m, _ in messages), partition_key=[key for _, key in messages])
        published(s, topic, [payload], 20 + 10 * i, num_messages_in_batch=len(messages))
    removed("batches")


@scenario
def a_compaction_with_nothing_to_do_leaves_the_figures(s):
    topic = compacted_topic(s)
    before = stats(s, topic)["compaction"]
    s.note("removed", before["lastCompactionRemovedEventCount"])
    time.sleep(0.1)
    compact(s, topic)
    time.sleep(0.3)
    s.note("the same figures", stats(s, topic)["compaction"] == before)
