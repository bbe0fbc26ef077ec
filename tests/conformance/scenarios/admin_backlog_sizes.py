"""Sizes of backlogs whose messages have different sizes: Apache Pulsar estimates them from the mean of a ledger."""

from harness.steps import compact, published, rest
from transcript import scenario


def sizes(s, topic, what):
    found = s.http("GET", rest(topic, "/stats?getPreciseBacklog=true&subscriptionBacklogSize=true"), quietly=True)[1]
    s.note(what, [found["backlogSize"], {k: v["backlogSize"] for k, v in found["subscriptions"].items()}])


@scenario
def backlogs_of_uneven_messages(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for name in "a", "b":
        s.http("PUT", rest(topic, f"/subscription/{name}"), quietly=True)
    published(s, topic, [b"x" * n for n in (1, 10, 100, 1000, 2)])
    sizes(s, topic, "new")
    for skipped in 1, 2, 1:
        s.http("POST", rest(topic, f"/subscription/a/skip/{skipped}"), quietly=True)
        sizes(s, topic, f"{skipped} skipped")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    sizes(s, topic, "loaded")
    published(s, topic, [b"x" * 77, b"y"], first=5)
    for skipped in 1, 1:
        sizes(s, topic, "published")
        s.http("POST", rest(topic, f"/subscription/a/skip/{skipped}"), quietly=True)
    s.http("POST", rest(topic, "/subscription/b/skip_all"), quietly=True)
    sizes(s, topic, "consumed")


@scenario
def backlog_that_compaction_alone_has(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    published(s, topic, 2, partition_key="k")
    compact(s, topic)
    sizes(s, topic, "compacted")
    published(s, topic, 3, first=2, partition_key="k")
    sizes(s, topic, "published")
    s.http("PUT", rest(topic, "/subscription/sub"), "earliest", quietly=True)
    sizes(s, topic, "subscribed")
