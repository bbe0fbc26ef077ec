"""Cursors in the internal statistics after requests that moved or made them, and before consumers read."""

import time

from harness.joining import TYPES
from harness.steps import EARLIEST, drained, namespace, published, rest, setup_connection
from transcript import scenario

KEYS = ("markDeletePosition", "readPosition", "numberOfEntriesSinceFirstNotAckedMessage", "state", "active")


def shown(s, topic, what, keys=KEYS):
    """Note the cursors of the topic; the ledgers of their positions by number."""
    found = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]
    ledgers = [each["ledgerId"] for each in found["ledgers"]]

    def neutral(text):
        ledger, colon, entry = str(text).partition(":")
        return f"ledger {ledgers.index(int(ledger))}:{entry}" if colon else text

    s.note(what, {name: [neutral(row[k]) for k in keys] for name, row in sorted(found["cursors"].items())})


def sought(s, c, topic, what, **target):
    c.subscribe(topic, "s", 1, quietly=True, subType="Shared")
    c.send("SEEK", quietly=True, consumer_id=1, request_id=s.next_request(), **target)
    s.note(what, sorted(f.type for f in iter(lambda: c.recv_quietly(0.3), None)))
    shown(s, topic, what)


@scenario
def read_position_after_a_seek_to_a_message(s):
    topic, c = s.topic(), s.connect()
    ledger = published(s, topic, 4)[0]["ledgerId"]

    def message(entry, **more):
        return {"message_id": {"ledgerId": ledger, "entryId": entry} | more}

    for entry in (0, 3, 4, 5, 2**64 - 1):
        sought(s, c, topic, f"entry {entry}", **message(entry))
    sought(s, c, topic, "start", message_id=EARLIEST)
    sought(s, c, topic, "two words of a set", **message(1, ack_set=[1, 2]))
    sought(s, c, topic, "time", message_publish_time=1)


@scenario
def read_position_after_a_seek_and_another_request(s):
    topic, c = s.topic(), s.connect()
    target = {"ledgerId": published(s, topic, 5)[0]["ledgerId"], "entryId": 2}

    def requested(what, method, path, body=None):
        sought(s, c, topic, "sought", message_id=target)
        s.http(method, rest(topic, path), body, quietly=True)
        shown(s, topic, what)

    requested("none skipped", "POST", "/subscription/s/skip/0")
    requested("peeked", "GET", "/subscription/s/position/1")
    requested("analyzed", "GET", "/subscription/s/analyzeBacklog")
    requested("skipped", "POST", "/subscription/s/skip/1")
    requested("reset", "POST", "/subscription/s/resetcursor", target)
    sought(s, c, topic, "sought", message_id=target)
    published(s, topic, 1, first=5)
    shown(s, topic, "published")
    c.subscribe(topic, "s", 1, quietly=True, subType="Shared")
    shown(s, topic, "joined")
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    shown(s, topic, "left")


@scenario
def read_position_at_the_start_when_a_consumer_joins(s):
    c = s.connect()
    for number, kind in enumerate(TYPES):
        topic = s.topic(kind)
        published(s, topic, 3)
        s.http("PUT", rest(topic, "/subscription/s"), "earliest", quietly=True)
        shown(s, topic, f"{kind} created")
        c.subscribe(topic, "s", number, quietly=True, subType=kind)
        if kind == "Failover":
            c.recv_quietly(3)
        shown(s, topic, f"{kind} joined")
        c.send("FLOW", quietly=True, consumer_id=number, messagePermits=2)
        drained(c, 0.4)
        shown(s, topic, f"{kind} reads")


@scenario
def read_position_of_a_topic_without_messages_at_the_start(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/s"), "earliest", quietly=True)
    shown(s, topic, "created")
    s.http("POST", rest(topic, "/subscription/s/skip/1"), quietly=True)
    shown(s, topic, "skipped")
    c = s.connect()
    c.subscribe(topic, "other", 1, quietly=True, initialPosition="Earliest")
    shown(s, topic, "subscribed")


@scenario
def cursor_that_a_peek_made_is_active(s):
    topic, c = s.topic(), s.connect()
    target = published(s, topic, 4)[2]
    for name in "abcde":
        s.http("GET", rest(topic, f"/subscription/{name}/position/1"), quietly=True)
    shown(s, topic, "peeked")
    s.http("POST", rest(topic, "/subscription/a/skip/1"), quietly=True)
    s.http("POST", rest(topic, "/subscription/b/skip_all"), quietly=True)
    s.http("POST", rest(topic, "/subscription/c/resetcursor"), target, quietly=True)
    for consumer_id in (1, 2):
        c.subscribe(topic, "d", consumer_id, quietly=True, subType="Shared")
    shown(s, topic, "moved and joined")
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    shown(s, topic, "one consumer left")
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=2)
    shown(s, topic, "both left")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    shown(s, topic, "loaded")


@scenario
def cursor_of_deduplication_after_a_load(s):
    topic, c = s.topic(namespace=namespace(s, deduplication=True)), setup_connection(s)
    keys = ("markDeletePosition", "readPosition", "state")

    def loaded(what):
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        drained(c, 0.2)
        s.lookup(topic)
        shown(s, topic, what, keys)

    s.http("PUT", rest(topic), quietly=True)
    shown(s, topic, "new", keys)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"m"] * 125)
    shown(s, topic, "a snapshot", keys)
    loaded("loaded")
    loaded("loaded again")


@scenario
def cursor_of_deduplication_that_begins_behind_messages(s):
    topic = s.topic()
    keys = ("markDeletePosition", "readPosition", "state")
    published(s, topic, 5)
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)

    def is_there():
        return s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]

    s.eventually("switched on", is_there)
    time.sleep(0.2)
    shown(s, topic, "on", keys)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    shown(s, topic, "loaded", keys)


@scenario
def backlog_sizes_of_a_terminated_topic_after_a_load(s):
    topic = s.topic()
    ids = published(s, topic, [b"a" * 10, b"b" * 200])
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    ids += published(s, topic, [b"c" * 10, b"d" * 1000, b"e"], first=2)
    s.http("POST", rest(topic, "/terminate"), quietly=True)

    def sizes(what):
        found = [s.http("PUT", rest(topic, "/backlogSize"), each, quietly=True)[1] for each in ids]
        s.note(what, found)

    sizes("terminated")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    sizes("loaded")


@scenario
def cursors_behind_moves_over_nothing(s):
    """A skip of no entry and a truncation put a cursor behind its mark-delete position, and write the cursor."""
    skip, truncate = ("POST", "/subscription/s/skip/0"), ("DELETE", "/truncate")
    unload, terminate = ("PUT", "/unload"), ("POST", "/terminate")
    for what, messages, requests in (
        ("skip", 0, [skip]),
        ("skip behind a load", 3, [unload, skip]),
        ("skip behind a skip and a load", 3, [("POST", "/subscription/s/skip/2"), unload, skip]),
        ("truncation", 0, [truncate]),
        ("truncation behind a load", 0, [unload, truncate]),
        ("truncation of the end", 0, [terminate, truncate]),
    ):
        topic = s.topic(what.replace(" ", "-"))
        s.http("PUT", rest(topic), quietly=True)
        s.http("PUT", rest(topic, "/subscription/s"), "earliest", quietly=True)
        if messages:
            published(s, topic, messages)
        s.note(what, [s.http(method, rest(topic, more), quietly=True)[0] for method, more in requests])
        shown(s, topic, what)
