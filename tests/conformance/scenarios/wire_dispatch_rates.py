"""Dispatch rates: the messages that pass in a period, by level, by unit, by type of subscription; set, changed and removed."""

import time

from harness.consumers import by_types, join, resume
from harness.steps import EARLIEST, ack, drained, namespace, published, published_batches, rest, stats
from transcript import scenario

PERIOD_SECONDS = 300  # no tokens come back within a scenario
APPLIED_SECONDS = 0.8
BY_QUEUE = by_types("Exclusive", "Failover", "Shared", "Key_Shared")
LEVELS = ("dispatchRate", "subscriptionDispatchRate")


def rate(messages=-1, size=-1, period=PERIOD_SECONDS, **more):
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period,
    } | more


def limit(s, place, level, body):
    base = rest(place) if "://" in place else f"/admin/v2/namespaces/{place}"
    s.http("POST", f"{base}/{level}", body, quietly=True)
    time.sleep(APPLIED_SECONDS)


def free(s, place, level):
    base = rest(place) if "://" in place else f"/admin/v2/namespaces/{place}"
    s.http("DELETE", f"{base}/{level}", quietly=True)
    time.sleep(APPLIED_SECONDS)


def came(s, c, what, seconds=1.0):
    s.note(what, len(drained(c, seconds)))


def by_level(function):
    for level in LEVELS:

        def run(s, level=level):
            function(s, level)

        run.__name__ = f"{function.__name__}_{level}"
        scenario(run)
    return function


@BY_QUEUE
def backlog_read_at_a_rate(s, kind):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    limit(s, topic, "subscriptionDispatchRate", rate(5))
    published(s, topic, 30, partition_key="k")
    c = join(s, topic, kind, consumer_name="n")
    came(s, c, "came")
    c.send("FLOW", consumer_id=1, messagePermits=50)
    came(s, c, "with more permits")
    limit(s, topic, "subscriptionDispatchRate", rate(-1))
    came(s, c, "without a rate")


@BY_QUEUE
def messages_published_at_a_rate(s, kind):
    """Each message on its own, to a consumer that waits."""
    topic = s.topic()
    published(s, topic, 1)
    limit(s, topic, "subscriptionDispatchRate", rate(4))
    c = join(s, topic, kind, consumer_name="n")
    for i in range(8):
        published(s, topic, 1, 10 + i, partition_key="k")
        s.note(f"message {i}", bool(c.recv_quietly(0.4)))


@by_level
def rate_of_bytes(s, level):
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    limit(s, topic, level, rate(-1, 500))
    published(s, topic, [bytes(100)] * 20, 10)
    c = join(s, topic, "Shared", consumer_name="n")
    came(s, c, "came")
    free(s, topic, level)
    came(s, c, "without a rate")


@by_level
def rate_of_messages_and_bytes(s, level):
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    limit(s, topic, level, rate(10, 100000))
    published(s, topic, [bytes(100)] * 30, 10)
    c = join(s, topic, "Exclusive", consumer_name="n")
    came(s, c, "came")
    limit(s, topic, level, rate(15, 100000))
    came(s, c, "at a higher rate")
    limit(s, topic, level, rate(0, 0))
    came(s, c, "at a rate of zero")


@by_level
def rates_of_namespace_and_topic(s, level):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    published(s, topic, 40)
    limit(s, ns, level, rate(5))
    c = join(s, topic, "Shared", consumer_name="n")
    came(s, c, "of the namespace")
    limit(s, topic, level, rate(-1))
    came(s, c, "of the topic: unlimited")
    published(s, topic, 20, 50)
    came(s, c, "new messages")
    s.http("GET", rest(topic, f"/{level}?applied=true"), keep=True)
    free(s, topic, level)
    s.http("GET", rest(topic, f"/{level}?applied=true"), keep=True)
    published(s, topic, 20, 100)
    came(s, c, "of the namespace again")
    free(s, ns, level)
    came(s, c, "of nothing")


@scenario
def rates_of_both_kinds_together(s):
    topic = s.topic()
    published(s, topic, 1)
    for name in "ab":
        s.http("PUT", rest(topic, f"/subscription/{name}"), quietly=True)
    published(s, topic, 30, 10)
    limit(s, topic, "dispatchRate", rate(12))
    limit(s, topic, "subscriptionDispatchRate", rate(5))
    c = join(s, topic, "Shared", subscription="a", consumer_name="n")
    came(s, c, "a")
    d = join(s, topic, "Exclusive", subscription="b", consumer_name="m")
    came(s, d, "b")
    free(s, topic, "subscriptionDispatchRate")
    s.note("more", all(len(drained(each, 1)) <= 12 for each in (c, d)))
    free(s, topic, "dispatchRate")
    drained(c, 1)
    drained(d, 1)
    s.note("all", [row["msgOutCounter"] for row in stats(s, topic)["subscriptions"].values()])


@scenario
def rate_of_one_subscription_beside_others(s):
    topic = s.topic()
    published(s, topic, 1)
    for name in "ab":
        s.http("PUT", rest(topic, f"/subscription/{name}"), quietly=True)
    published(s, topic, 30, 10)
    limit(s, topic, "a/dispatchRate", rate(4))
    limit(s, topic, "subscriptionDispatchRate", rate(8))
    s.http("GET", rest(topic, "/a/dispatchRate?applied=true"), keep=True)
    s.http("GET", rest(topic, "/b/dispatchRate?applied=true"), keep=True)
    c = join(s, topic, "Shared", subscription="a", consumer_name="n")
    d = join(s, topic, "Shared", subscription="b", consumer_name="m")
    s.note("came", [len(drained(each, 1)) for each in (c, d)])
    free(s, topic, "a/dispatchRate")
    s.note("without its own", [len(drained(each, 1)) for each in (c, d)])
    free(s, topic, "subscriptionDispatchRate")
    s.note("without a rate", [len(drained(each, 1)) for each in (c, d)])


@by_level
def rate_and_batches(s, level):
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    limit(s, topic, level, rate(12))
    published_batches(s, topic, *[[b"x"] * 5 for _ in range(10)])
    c = join(s, topic, "Shared", consumer_name="n", permits=1000)
    came(s, c, "entries")
    limit(s, topic, level, rate(-1, 300))
    came(s, c, "by bytes")


@by_level
def rate_of_readers(s, level):
    topic = s.topic()
    published(s, topic, 20)
    limit(s, topic, level, rate(6))
    for i in range(2):
        c = s.connect()
        c.subscribe(topic, f"reader-{i}", durable=False, start_message_id=EARLIEST, permits=100, quietly=True)
        came(s, c, f"reader {i}")


@by_level
def rate_and_redelivery(s, level):
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    ids = published(s, topic, 12, 10)
    limit(s, topic, level, rate(9))
    c = join(s, topic, "Shared", consumer_name="n")
    came(s, c, "came")
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    came(s, c, "again")
    ack(c, *ids)
    limit(s, topic, level, rate(1000))
    came(s, c, "at a higher rate")
    s.note("backlog", stats(s, topic)["subscriptions"]["sub"]["msgBacklog"])


@by_level
def rate_over_an_unload(s, level):
    """The tokens begin anew."""
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    published(s, topic, 20, 10)
    limit(s, topic, level, rate(4))
    c = join(s, topic, "Exclusive", consumer_name="n")
    came(s, c, "came")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    d = join(s, topic, "Exclusive", consumer_name="n")
    came(s, d, "after the load")


@by_level
def rate_without_a_backlog(s, level):
    """Rates apply only where a consumer has a backlog, unless dispatchThrottlingOnNonBacklogConsumerEnabled is set."""
    topic = s.topic()
    published(s, topic, 1)
    limit(s, topic, level, rate(3))
    c = join(s, topic, "Exclusive", consumer_name="n")
    for i in range(6):
        (found,) = published(s, topic, 1, 10 + i)
        frame = c.recv_quietly(0.4)
        s.note(f"message {i}", bool(frame))
        ack(c, found)


@scenario
def relative_rate_without_publishes(s):
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    published(s, topic, 20, 10)
    limit(s, topic, "subscriptionDispatchRate", rate(5, relativeToPublishRate=True))
    s.http("GET", rest(topic, "/subscriptionDispatchRate?applied=true"), keep=True)
    c = join(s, topic, "Shared", consumer_name="n")
    frames = len(drained(c, 1))
    s.note("at least the rate", frames >= 5)
    limit(s, topic, "subscriptionDispatchRate", rate(-1, relativeToPublishRate=True))
    came(s, c, "no rate" if frames == 20 else "rest")


@by_level
def rates_of_partitions(s, level):
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    parts = [f"{topic}-partition-{i}" for i in range(2)]
    for part in parts:
        s.lookup(part)
        s.http("PUT", rest(part, "/subscription/sub"), quietly=True)
        published(s, part, 20)
    limit(s, topic, level, rate(6))
    s.http("GET", rest(parts[0], f"/{level}?applied=true"), keep=True)
    for part in parts:
        came(s, join(s, part, "Shared", consumer_name="n"), part[-1])


@scenario
def rates_of_a_non_persistent_topic(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns, domain="non-persistent")
    for level in LEVELS:
        limit(s, ns, level, rate(2))
    c = join(s, topic, "Shared", consumer_name="n")
    published(s, topic, 10)
    came(s, c, "came")
    s.http("GET", rest(topic, "/dispatchRate?applied=true"), keep=True)


@by_types("Failover", "Shared", "Key_Shared")
def two_consumers_at_a_rate(s, kind):
    topic = s.topic()
    published(s, topic, 1)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    published(s, topic, 20, 10, partition_key="k")
    limit(s, topic, "subscriptionDispatchRate", rate(6))
    c, d = s.connect(), s.connect()
    resume(c, topic, kind, 0, consumer_name="n")
    resume(d, topic, kind, 0, consumer_name="o")
    c.send("FLOW", consumer_id=1, messagePermits=100)
    d.send("FLOW", consumer_id=1, messagePermits=100)
    s.note("together", sum(len(drained(each, 1)) for each in (c, d)))
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    s.note("after the close of the first", len(drained(d, 1)))
