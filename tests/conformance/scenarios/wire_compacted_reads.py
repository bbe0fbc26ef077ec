"""Reads of compacted topics: statistics, permits, seeks, last ids, partial batches and new messages behind the horizon."""

from harness.figures import figures, internal_figures
from harness.steps import EARLIEST, LATEST, backlog, batch, drained, published, rest, setup_connection
from harness.steps import compact as compact_topic
from transcript import scenario


def compact(s, topic):
    """Compact the topic; its subscription of compaction has no backlog then."""
    compact_topic(s, topic)
    s.eventually("acknowledged", lambda: backlog(s, topic).get("__compaction") == 0)


def keyed(s, topic, *pairs, first=0):
    """A message for each pair of key and payload; their ids."""
    out = []
    for i, (key, payload) in enumerate(pairs):
        out += published(s, topic, [payload], first + i, partition_key=key)
    return out


def reader(s, topic, permits=100, name="reader", c=None, **more):
    c = c or s.connect()
    fields = dict(durable=False, read_compacted=True, initialPosition="Earliest", start_message_id=EARLIEST) | more
    c.subscribe(topic, name, permits=permits, quietly=True, **fields)
    return c


def shown(s, what, frames):
    s.note(what, [[f.command.message_id.entryId, f.payload.decode("latin-1")] for f in frames if f.type == "MESSAGE"])


LATE = dict(start_message_id=LATEST, initialPosition="Latest")
PAIRS = (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("b", b""), ("c", b"5"))


@scenario
def compacted_reader_and_what_follows(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    compact(s, topic)
    keyed(s, topic, ("a", b"6"), ("d", b"7"), first=20)
    c = reader(s, topic)
    shown(s, "came", drained(c, 0.5))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    compact(s, topic)
    keyed(s, topic, ("e", b"8"), first=30)
    shown(s, "new", drained(c, 0.5))
    shown(s, "second reader", drained(reader(s, topic, name="second"), 0.5))


@scenario
def compacted_reader_with_few_permits(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    compact(s, topic)
    c = reader(s, topic, permits=1)
    for _ in range(3):
        shown(s, "one", drained(c, 0.5))
        c.send("FLOW", consumer_id=1, messagePermits=1)
    figures(s, topic, "end")


@scenario
def compacted_reader_and_each_seek(s):
    topic = s.topic()
    ids = keyed(s, topic, *PAIRS)
    compact(s, topic)
    c = reader(s, topic)
    drained(c, 0.5)
    for target in (ids[0], ids[1], ids[3], ids[5], EARLIEST, LATEST):
        c.ask("SEEK", consumer_id=1, message_id=target)
        reader(s, topic, c=c)
        shown(s, f"from {target['entryId'] % 2**63}", drained(c, 1))


@scenario
def compacted_readers_from_each_start(s):
    topic = s.topic()
    ids = keyed(s, topic, *PAIRS)
    compact(s, topic)
    for i, start in enumerate((*ids, EARLIEST, LATEST)):
        c = reader(s, topic, name=f"r{i}", start_message_id=start)
        shown(s, f"start {i}", drained(c, 0.4))


@scenario
def compacted_batches_in_part(s):
    topic = s.topic()
    p = setup_connection(s)
    p.producer(topic, 5, quietly=True, producer_name="q")
    for i, keys in enumerate((("a", "b", "c"), ("a", "b", "d"), ("e", "e", "e"))):
        payload = batch(*[f"{k}{i}".encode() for k in keys], partition_key=list(keys))
        p.publish_all(5, [payload], 3 * i, num_messages_in_batch=3)
    compact(s, topic)
    c = reader(s, topic)
    for _ in range(3):
        c.recv(1)


@scenario
def compacted_messages_without_keys(s):
    topic = s.topic()
    published(s, topic, 2)
    keyed(s, topic, ("a", b"1"), ("a", b"2"), first=10)
    published(s, topic, 1, first=20)
    compact(s, topic)
    shown(s, "came", drained(reader(s, topic), 0.5))
    figures(s, topic, "end")


@scenario
def compacted_to_nothing(s):
    topic = s.topic()
    keyed(s, topic, ("a", b"1"), ("a", b""))
    compact(s, topic)
    c = reader(s, topic)
    shown(s, "came", drained(c, 0.5))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    keyed(s, topic, ("b", b"2"), first=7)
    shown(s, "new", drained(c, 0.5))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    internal_figures(s, topic, "insides")


@scenario
def compacted_reader_after_a_truncation(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    compact(s, topic)
    s.http("DELETE", rest(topic, "/truncate"))
    c = reader(s, topic)
    shown(s, "came", drained(c, 0.5))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    keyed(s, topic, ("z", b"9"), first=50)
    shown(s, "new", drained(c, 0.5))


@scenario
def compaction_threshold_of_a_topic(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    s.http("POST", rest(topic, "/compactionThreshold"), 1)
    s.http("GET", rest(topic, "/compactionThreshold?applied=true"), keep=True)
    s.http("DELETE", rest(topic, "/compactionThreshold"))
    s.http("GET", rest(topic, "/compactionThreshold?applied=true"), keep=True)


@scenario
def compacted_reads_of_a_shared_subscription(s):
    topic = s.topic()
    keyed(s, topic, *PAIRS)
    compact(s, topic)
    for kind in ("Shared", "Key_Shared"):
        c = s.connect()
        c.subscribe(topic, kind, subType=kind, read_compacted=True, initialPosition="Earliest", permits=10)
        shown(s, kind, drained(c, 0.4))
    d = s.connect()
    d.subscribe(topic, "reader", durable=False, subType="Shared", read_compacted=True, permits=10)
    shown(s, "reader", drained(d, 0.4))


def place(s, topic, name, what):
    """Note the entry that the cursor reads next, and its mark-delete entry."""
    cursor = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"][name]
    s.note(what, [cursor[each].split(":")[1] for each in ("readPosition", "markDeletePosition")])


@scenario
def read_positions_of_compacted_readers(s):
    topic = s.topic()
    keyed(s, topic, *((f"k{i}", b"%d" % i) for i in range(6)))
    compact(s, topic)
    for name, more in (("reader", {}), ("durable", dict(durable=True)), ("late", LATE)):
        c = reader(s, topic, permits=2, name=name, **more)
        for permits in (2, 9, 9):
            shown(s, name, drained(c, 0.5))
            place(s, topic, name, f"{name} has read")
            c.send("FLOW", consumer_id=1, messagePermits=permits)
        keyed(s, topic, (name, b"n"), first=9)
        shown(s, name, drained(c, 0.5))
        place(s, topic, name, f"{name} has read on")
        c.close()
