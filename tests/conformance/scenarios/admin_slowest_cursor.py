"""The name of the slowest cursor in the statistics of a topic."""

import time

from harness.steps import compact, namespace, published, rest, stats
from transcript import scenario


def named(s, topic, what, expected=None):
    """Note the name of the slowest cursor, after the broker has looked for it."""

    def name():
        return stats(s, topic).get("oldestBacklogMessageSubscriptionName")

    if expected is None:
        time.sleep(2.5)
    s.eventually(what, lambda: name() == expected, 6)


def loaded_again(s, topic):
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)


@scenario
def slowest_cursor_of_a_terminated_topic(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/a"), "earliest", quietly=True)
    published(s, topic, 3)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    named(s, topic, "terminated")
    loaded_again(s, topic)
    named(s, topic, "after a load")
    s.http("POST", rest(topic, "/subscription/a/skip/1"), quietly=True)
    named(s, topic, "a message is skipped")


@scenario
def slowest_cursor_behind_the_last_ledger_of_a_terminated_topic(s):
    topic = s.topic()
    for name in "ab":
        s.http("PUT", rest(topic, f"/subscription/{name}"), "earliest", quietly=True)
    published(s, topic, 3)
    loaded_again(s, topic)
    published(s, topic, 2, first=3)
    s.http("POST", rest(topic, "/subscription/b/skip/1"), quietly=True)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    named(s, topic, "both in a closed ledger", "a")
    s.http("POST", rest(topic, "/subscription/a/skip/2"), quietly=True)
    named(s, topic, "b is behind", "b")


@scenario
def slowest_cursor_is_that_of_deduplication(s):
    topic = s.topic(namespace=namespace(s, deduplication=True))
    published(s, topic, 3)
    s.http("PUT", rest(topic, "/subscription/a"), "latest", quietly=True)
    loaded_again(s, topic)
    published(s, topic, 2, first=5)
    named(s, topic, "behind the cursor of deduplication", "pulsar.dedup")
    s.http("POST", rest(topic, "/subscription/a/skip_all"), quietly=True)
    named(s, topic, "no subscription has a backlog")


@scenario
def slowest_cursor_is_that_of_compaction(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/a"), "earliest", quietly=True)
    published(s, topic, 2, partition_key="k")
    compact(s, topic)
    published(s, topic, 2, first=2, partition_key="k")
    loaded_again(s, topic)
    published(s, topic, 2, first=4, partition_key="k")
    named(s, topic, "behind the subscription", "a")
    s.http("POST", rest(topic, "/subscription/a/skip/5"), quietly=True)
    named(s, topic, "behind the cursor of compaction", "__compaction")
    s.http("POST", rest(topic, "/subscription/a/skip_all"), quietly=True)
    named(s, topic, "compaction alone has a backlog", "__compaction")
