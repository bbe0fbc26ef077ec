"""GET_LAST_MESSAGE_ID by subscription type and by the contents of the topic, and the same over REST."""

from harness.joining import TYPES, join
from harness.steps import EARLIEST, LATEST, ack, batch, compact, drained, published, published_batches, read, rest
from transcript import scenario


@scenario
def last_message_id_of_several_subscriptions(s):
    topic = s.topic()
    c = s.connect()
    for i, kind in enumerate(("Exclusive", "Shared", "Key_Shared")):
        c.subscribe(topic, kind, i, subType=kind, permits=10, quietly=True)
    ids = published(s, topic, 3)
    drained(c)
    for i in range(3):
        ack(c, ids[i], consumer_id=i)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=i)


@scenario
def last_message_id_over_rest(s):
    topic = s.topic()
    published(s, topic, 2)
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    published_batches(s, topic, [b"a", b"b", b"c"])
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    published_batches(s, topic, [b"a"])
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    part = s.topic("p")
    s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
    s.lookup(part + "-partition-1")
    published_batches(s, part + "-partition-1", [b"a", b"b"])
    s.call("GET", rest(part + "-partition-1", "/lastMessageId"), keep=True)
    s.call("GET", rest(part, "/lastMessageId"), keep=True)


@scenario
def last_message_id_by_type_and_contents(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        c = join(s, topic, sub_type, permits=0)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        ids = published(s, topic, 2)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        published_batches(s, topic, [b"a", b"b", b"c"])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        ack(c, ids[0])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def last_message_id_over_ledgers(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c = join(s, topic, "Exclusive", "b")
    read(c, 2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    ack(c, ids[0], kind="Cumulative")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published(s, topic, 1, first=2)
    read(c, 1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def last_message_id_of_readers(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = s.connect()
    for i, start in enumerate((EARLIEST, LATEST, ids[0], ids[2], ids[2] | dict(entryId=50))):
        c.subscribe(topic, f"r{i}", i, quietly=True, durable=False, start_message_id=start)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=i)


@scenario
def last_message_id_of_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        published(s, part, i)
        c.subscribe(part, "sub", i, quietly=True)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=i)


@scenario
def last_message_id_of_a_compacted_batch(s):
    """Requested before and after compaction, by a reader of the compacted topic and by another consumer."""
    for keys in ("a", "ab", "aab", "aba"):
        topic = s.topic(keys)
        payload = batch(*[b"x"] * len(keys), partition_key=list(keys))
        published(s, topic, [payload], num_messages_in_batch=len(keys))
        c = s.connect()
        c.subscribe(topic, "compacted", 1, quietly=True, durable=False, read_compacted=True, start_message_id=EARLIEST)
        c.subscribe(topic, "other", 2, quietly=True, durable=False, start_message_id=EARLIEST)
        for step in (lambda: None, lambda t=topic: compact(s, t)):
            step()
            for consumer in (1, 2):
                c.ask("GET_LAST_MESSAGE_ID", consumer_id=consumer)


@scenario
def last_message_id_over_rest_of_a_consumed_topic_after_a_load(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/sub"), "earliest", quietly=True)
    published(s, topic, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    published(s, topic, 2, first=2)
    s.http("POST", rest(topic, "/subscription/sub/skip_all"), quietly=True)
    s.call("GET", rest(topic, "/lastMessageId"), keep=("entryId",))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    published(s, topic, 1, first=4)
    s.call("GET", rest(topic, "/lastMessageId"), keep=("entryId",))


@scenario
def last_message_id_and_markers(s):
    """A marker counts while the topic stays loaded, and no longer after a load."""
    plain, marker, both = {}, dict(marker_type=10), dict(marker_type=20)
    for i, entries in enumerate(((plain, marker), (marker, both), (plain, marker, plain, marker))):
        topic = s.topic(str(i))
        p = s.connect("p")
        p.producer(topic, 1, quietly=True, producer_name="p")
        c = s.connect()
        c.subscribe(topic, quietly=True)
        for sequence_id, metadata in enumerate(entries):
            p.publish(1, sequence_id, **metadata)
            p.recv()
            c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        s.call("PUT", rest(topic, "/unload"))
        p.recv()
        c.recv()
        s.lookup(topic)
        c.subscribe(topic, quietly=True)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        s.call("GET", rest(topic, "/lastMessageId"), keep=True)
        p.producer(topic, 2, quietly=True, producer_name="p")
        p.publish(2, 9, **marker)
        p.recv()
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
