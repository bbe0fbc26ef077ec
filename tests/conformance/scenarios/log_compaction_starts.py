"""Readers of a compacted topic that name no start, and where they begin."""

from harness.steps import EARLIEST, LATEST, compact, drained, published, rest, told
from transcript import scenario

STARTS = {
    "nowhere": {},
    "nowhere, earliest": {"initialPosition": "Earliest"},
    "nowhere, latest": {"initialPosition": "Latest"},
    "latest": {"start_message_id": LATEST},
    "latest, earliest": {"start_message_id": LATEST, "initialPosition": "Earliest"},
    "earliest": {"start_message_id": EARLIEST},
    "earliest, latest": {"start_message_id": EARLIEST, "initialPosition": "Latest"},
}


def filled(s, rest_of_log=2):
    """A compacted topic of the keys a and b, and more messages behind its horizon."""
    topic = s.topic()
    keep = s.connect("keep")
    keep.subscribe(topic, "keep", 9, quietly=True)
    for i, key in enumerate("abab"):
        published(s, topic, 1, i, partition_key=key)
    compact(s, topic)
    published(s, topic, rest_of_log, 4, partition_key="c")
    return topic


def readers(s, topic, what="start", **more):
    """A reader from each start, and its messages at once."""
    for i, (name, fields) in enumerate(STARTS.items()):
        c = s.connect()
        c.subscribe(
            topic, f"{what} {i}", 1, 100, quietly=True, durable=False, **({"read_compacted": True} | fields | more)
        )
        s.note(f"{what}: {name}", told(drained(c, 0.5)))
        c.close()


@scenario
def compacted_topic_read_from_no_start(s):
    readers(s, filled(s))


@scenario
def compacted_topic_read_from_no_start_up_to_its_end(s):
    readers(s, filled(s, 0))


@scenario
def compacted_topic_read_from_no_start_on_failover(s):
    topic = filled(s)
    for i, name in enumerate(("nowhere", "nowhere, earliest", "latest")):
        fields, c = STARTS[name], s.connect()
        more = {"read_compacted": True, "subType": "Failover", "durable": False}
        c.subscribe(topic, f"s{i}", 1, 100, quietly=True, **(more | fields))
        s.note(name, told(drained(c, 1.5)))
        c.close()


@scenario
def compacted_topic_read_durably_from_no_start(s):
    topic = filled(s)
    for i, (name, fields) in enumerate(STARTS.items()):
        c = s.connect()
        c.subscribe(topic, f"s{i}", 1, 100, quietly=True, read_compacted=True, **fields)
        s.note(name, told(drained(c, 0.5)))
        c.close()


@scenario
def compacted_topic_read_from_no_start_after_a_load(s):
    topic = filled(s)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    readers(s, topic)


@scenario
def compacted_topic_read_with_few_permits_from_no_start(s):
    topic = filled(s)
    c = s.connect()
    c.subscribe(topic, "r", 1, 1, quietly=True, durable=False, read_compacted=True)
    for _ in range(3):
        s.note("a permit", told(drained(c, 0.5)))
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
    published(s, topic, 2, 6, partition_key="a")
    s.note("new", told(drained(c, 0.5)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def topic_compacted_under_a_reader_from_no_start(s):
    topic = s.topic()
    for i, key in enumerate("abab"):
        published(s, topic, 1, i, partition_key=key)
    c = s.connect()
    c.subscribe(topic, "r", 1, 100, quietly=True, durable=False, read_compacted=True)
    s.note("before", told(drained(c, 0.5)))
    compact(s, topic)
    s.note("after", told(drained(c, 0.5)))
    published(s, topic, 2, 4, partition_key="a")
    s.note("new", told(drained(c, 0.5)))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", quietly=True, consumer_id=1)
    s.note("again", told(drained(c, 0.5)))
