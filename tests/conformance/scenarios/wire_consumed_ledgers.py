"""Ledgers that every subscription has consumed: gone after a load, kept while they are the last."""

import time

from harness.joining import join
from harness.steps import ack, drained, namespace, published, read, rest, texts
from transcript import scenario


@scenario
def consumed_ledgers_are_gone_after_a_load(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "late", 1, quietly=True)
    time.sleep(0.3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, "early", 2, 10, quietly=True, initialPosition="Earliest")
    c.none(0.3)
    published(s, topic, 1, first=2)
    c.recv()


@scenario
def consumed_ledgers_stay_until_the_next_is_begun(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive", "a")
    read(c, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv_quietly()
    s.lookup(topic)
    c = join(s, topic, "Exclusive", "b")
    read(c, 2)
    ack(c, ids[1], kind="Cumulative")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    time.sleep(1.2)
    reader = s.connect()
    reader.subscribe(topic, "r", 1, 10, quietly=True, durable=False, initialPosition="Earliest")
    s.note("earliest", texts(drained(reader, 0.4)))
    reader.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    [third] = published(s, topic, 1, first=2)
    c.recv()
    ack(c, third)
    time.sleep(0.5)
    reader.subscribe(topic, "r", 1, 10, quietly=True, durable=False, initialPosition="Earliest")
    s.note("earliest", texts(drained(reader, 0.4)))


@scenario
def terminated_topic_stays_readable_when_all_is_consumed(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    time.sleep(0.3)
    ack(c, ids[1], kind="Cumulative")
    c.subscribe(topic, "new", 2, 10, quietly=True, initialPosition="Earliest")
    s.note("new", texts(drained(c, 0.5)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


def asked_after_the_end(s, topic):
    """Termination, twice, and the place of new subscriptions, before and after an unload."""
    for _ in range(2):
        s.http("POST", rest(topic, "/terminate"), keep=["ledgerId", "entryId"])
    for subscriptions in (("a", "b"), ("a", "c")):
        c = s.connect()
        for number, name in enumerate(subscriptions, 1):
            c.subscribe(topic, name, number, quietly=True, initialPosition="Earliest" if name == "b" else "Latest")
            c.ask("GET_LAST_MESSAGE_ID", consumer_id=number)
        s.http("GET", rest(topic, "/lastMessageId"), keep=["ledgerId", "entryId"])
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        s.lookup(topic)


@scenario
def topic_terminated_without_messages(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, initialPosition="Earliest")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    asked_after_the_end(s, topic)


@scenario
def topic_terminated_after_its_messages_are_gone(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    ack(c, ids[1], kind="Cumulative")
    time.sleep(0.3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c = join(s, topic, "Exclusive", "b")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    asked_after_the_end(s, topic)


@scenario
def acknowledged_before_an_unload(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = join(s, topic, "Exclusive")
    read(c, 3)
    ack(c, ids[2], kind="Cumulative")
    time.sleep(0.3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c = join(s, topic, "Exclusive")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.subscribe(topic, "r", 2, 10, quietly=True, durable=False, initialPosition="Earliest")
    c.none(0.3)


def marks(s, topic, what):
    """Where both subscriptions of the topic are, for a consumer and an administrator."""
    c = s.connect(what)
    s.lookup(topic)
    for consumer_id, name in enumerate(("ahead", "behind"), 1):
        c.subscribe(topic, name, consumer_id, quietly=True, subType="Shared")
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=consumer_id)
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=consumer_id)
    cursors = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]
    shown = {}
    for name, cursor in cursors.items():
        mark, read_ = cursor["markDeletePosition"].split(":"), cursor["readPosition"].split(":")
        shown[name] = [mark[1], read_[1], mark[0] == read_[0], cursor["state"]]
    s.note(what, shown)


@scenario
def cursors_at_the_end_of_a_ledger_move_at_a_load(s):
    """A cursor that has consumed its ledger goes before the first entry of the next ledger, not beside another."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for name in "ahead", "behind":
        s.http("PUT", rest(topic, f"/subscription/{name}"), quietly=True)
    published(s, topic, 3)
    s.http("POST", rest(topic, "/subscription/ahead/skip_all"), quietly=True)
    marks(s, topic, "before")
    for turn in "first load", "second load":
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        marks(s, topic, turn)
    published(s, topic, 1)
    marks(s, topic, "published")
    s.http("POST", rest(topic, "/subscription/behind/skip_all"), quietly=True)
    marks(s, topic, "skipped")


@scenario
def consumed_ledger_stays_when_all_is_acknowledged_at_once(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, subType="Shared")
    published(s, topic, 3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, permits=10, quietly=True, subType="Shared")
    ack(c, *(f.message_id for f in read(c, 3)))
    time.sleep(0.5)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    s.note("entries", s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["numberOfEntries"])


@scenario
def lower_retention_drops_ledgers_at_the_next_trim(s):
    ns = namespace(s, retention={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    published(s, topic, 3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    published(s, topic, 1, first=3)
    lower = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    s.http("POST", f"/admin/v2/namespaces/{ns}/retention", lower, quietly=True)
    time.sleep(1)
    s.note("lower", s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["numberOfEntries"])
    s.call("POST", rest(topic, "/trim"))
    s.note("trimmed", s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["numberOfEntries"])
