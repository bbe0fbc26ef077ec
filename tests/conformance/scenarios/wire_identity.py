"""Subscriptions and cursors of one name: durable after non-durable, names that the broker might use for itself."""

from harness.steps import EARLIEST, LATEST, ack, backlog, drained, published, read, rest, stats, texts
from transcript import scenario


def durability(s, topic):
    return {name: sub["durable"] for name, sub in stats(s, topic)["subscriptions"].items()}


def stored_cursors(s, topic):
    return sorted(s.http("GET", rest(topic, "/internal-info"), quietly=True)[1].get("cursors", {}))


def left_by_reader(s, name, **how):
    """A topic whose reader of that name has read two of four messages, sought the third, and is gone."""
    topic = s.topic()
    c = s.connect()
    ids = published(s, topic, 4)
    c.subscribe(topic, name, 1, 2, quietly=True, durable=False, start_message_id=EARLIEST, **how)
    read(c, 2)
    c.ask("SEEK", consumer_id=1, message_id=ids[2])
    drained(c)
    c.close()
    s.eventually("reader gone", lambda: name not in stats(s, topic)["subscriptions"])
    return topic, ids


@scenario
def reader_takes_the_place_an_earlier_one_sought(s):
    topic, _ = left_by_reader(s, "jobs")
    c = s.connect()
    c.subscribe(topic, "jobs", 1, 10, durable=False, start_message_id=EARLIEST)
    s.note("got", texts(drained(c)))


@scenario
def reader_of_another_name_starts_where_it_asks(s):
    topic, _ = left_by_reader(s, "jobs")
    c = s.connect()
    c.subscribe(topic, "other", 1, 10, durable=False, start_message_id=EARLIEST)
    s.note("got", texts(drained(c)))


@scenario
def durable_subscription_named_as_a_reader_that_sought(s):
    topic, _ = left_by_reader(s, "jobs")
    c = s.connect()
    c.subscribe(topic, "jobs", 1, 10, initialPosition="Earliest")
    s.note("got", texts(drained(c)))
    s.note("durable", durability(s, topic))
    s.note("stored", stored_cursors(s, topic))
    c.close()
    s.eventually("consumer gone", lambda: not stats(s, topic)["subscriptions"].get("jobs", {}).get("consumers"))
    s.eventually("it lost its subscription", lambda: "jobs" not in stats(s, topic)["subscriptions"], 1)


@scenario
def durable_subscription_made_by_rest_named_as_a_reader_that_sought(s):
    topic, _ = left_by_reader(s, "jobs")
    s.call("PUT", rest(topic, "/subscription/jobs"), {"ledgerId": -1, "entryId": -1})
    s.note("durable", durability(s, topic))
    s.note("stored", stored_cursors(s, topic))
    s.note("backlog", backlog(s, topic))


@scenario
def each_kind_refuses_the_name_of_the_other(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "d", 1)
    b.subscribe(topic, "d", 1, durable=False, start_message_id=LATEST)
    a.subscribe(topic, "r", 2, durable=False, start_message_id=LATEST)
    b.subscribe(topic, "r", 2)
    s.call("PUT", rest(topic, "/subscription/r"), {"ledgerId": -1, "entryId": -1})
    s.note("durable", durability(s, topic))
    s.note("stored", stored_cursors(s, topic))


@scenario
def subscriptions_with_names_of_scans(s):
    """A subscription may have the name of one of the broker's own cursors."""
    topic = s.topic()
    c = s.connect()
    names = ["x", "__analyze-x", "__bytes_after", "__compaction_read", "__delayed_index_rebuild"]
    for i, name in enumerate(names):
        c.subscribe(topic, name, i, quietly=True)
    published(s, topic, 3)
    for name in names:
        status, body = s.http("POST", rest(topic, f"/subscription/{name}/analyzeBacklog"), quietly=True)
        s.note(name, [status, isinstance(body, dict) and body.get("entries")])
    s.note("backlog", backlog(s, topic))
    s.note("durable", durability(s, topic))
    s.note("stored", stored_cursors(s, topic))


@scenario
def durable_subscription_keeps_its_backlog_after_its_consumer_left(s):
    topic, _ = left_by_reader(s, "jobs")
    c = s.connect()
    c.subscribe(topic, "jobs", 1, 1, initialPosition="Earliest")
    first = read(c, 1)
    ack(c, first[0].message_id)
    c.close()
    s.eventually("consumer gone", lambda: not stats(s, topic)["subscriptions"].get("jobs", {}).get("consumers"))
    published(s, topic, 2, first=4)
    s.note("backlog", backlog(s, topic))
