"""Readers and the last message id: after deletions, truncation, expiry, termination, loads and compaction."""

from harness.consumers import join
from harness.figures import figures
from harness.steps import EARLIEST, LATEST, ack, drained, namespace, published, published_batches, rest
from transcript import scenario


def reader(s, topic, name="reader", c=None, permits=100, **more):
    c = c or s.connect()
    fields = dict(durable=False, quietly=True, start_message_id=EARLIEST) | more
    c.subscribe(topic, name, permits=permits, **fields)
    return c


def came(s, c, what="came", seconds=0.5):
    frames = [f for f in drained(c, seconds) if f.type == "MESSAGE"]
    s.note(what, [[f.command.message_id.entryId, f.payload[-2:].decode("latin-1")] for f in frames])


def last(c, consumer_id=1):
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=consumer_id)


def loaded_again(s, topic, *connections):
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    for c in connections:
        c.recv(5)
    s.lookup(topic)


@scenario
def last_id_after_all_messages_were_acknowledged(s):
    topic = s.topic()
    c = join(s, topic, "Exclusive", consumer_name="n")
    ids = published(s, topic, 3)
    came(s, c)
    ack(c, ids[2], kind="Cumulative")
    last(c)
    loaded_again(s, topic, c)
    c = join(s, topic, "Exclusive", consumer_name="n")
    last(c)
    r = reader(s, topic)
    came(s, r)
    last(r)
    published(s, topic, 1, first=9)
    came(s, r)
    last(r)
    s.http("GET", rest(topic, "/lastMessageId"), keep=True)


@scenario
def last_id_after_a_truncation_and_a_load(s):
    topic = s.topic()
    published(s, topic, 3)
    r = reader(s, topic)
    came(s, r)
    s.http("DELETE", rest(topic, "/truncate"))
    last(r)
    s.http("GET", rest(topic, "/lastMessageId"), keep=True)
    loaded_again(s, topic, r)
    r = reader(s, topic)
    came(s, r)
    last(r)
    s.http("GET", rest(topic, "/lastMessageId"), keep=True)


@scenario
def last_id_of_batches_and_their_parts(s):
    topic = s.topic()
    r = reader(s, topic)
    last(r)
    for payloads in ([b"a", b"b"], [b"c"], [b"d", b"e", b"f"]):
        published_batches(s, topic, payloads)
        came(s, r)
        last(r)
    published(s, topic, 1, first=20)
    last(r)
    figures(s, topic, "end")


@scenario
def last_id_of_a_terminated_topic(s):
    topic = s.topic()
    r = reader(s, topic)
    published(s, topic, 2)
    s.http("POST", rest(topic, "/terminate"), keep=True)
    came(s, r)
    last(r)
    q = reader(s, topic, "second", start_message_id=LATEST)
    q.recv(1)
    last(q)
    s.http("GET", rest(topic, "/lastMessageId"), keep=True)


@scenario
def last_id_of_subscriptions_made_over_rest(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    for name, body in (("first", EARLIEST), ("last", LATEST), ("middle", ids[1]), ("none", None)):
        s.http("PUT", rest(topic, f"/subscription/{name}"), body)
        c = s.connect()
        c.subscribe(topic, name, quietly=True, permits=10)
        came(s, c, name)
        last(c)


@scenario
def readers_in_retained_and_dropped_ledgers(s):
    ns = namespace(s, retention={"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
    topic = s.topic(namespace=ns)
    ids = []
    for i in range(3):
        ids += published(s, topic, 2, first=2 * i)
        loaded_again(s, topic)
    r = reader(s, topic)
    came(s, r)
    s.http("POST", f"/admin/v2/namespaces/{ns}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    s.http("GET", rest(topic, "/retention?applied=true"), keep=True)
    for i, start in enumerate((ids[0], ids[3], ids[5])):
        r = reader(s, topic, f"r{i}", start_message_id=start)
        came(s, r, f"from {i}")
        last(r)


@scenario
def readers_beside_the_deletion_of_their_topic(s):
    topic = s.topic()
    published(s, topic, 2)
    r = reader(s, topic)
    came(s, r)
    s.http("DELETE", rest(topic))
    s.http("DELETE", rest(topic, "?force=true"))
    r.recv(3)
    s.lookup(topic)
    r = reader(s, topic)
    last(r)
    published(s, topic, 1, first=7)
    came(s, r)
    last(r)


@scenario
def readers_with_permits_of_one(s):
    topic = s.topic()
    published_batches(s, topic, [b"a", b"b"], [b"c"], [b"d", b"e"])
    r = reader(s, topic, permits=1)
    for _ in range(4):
        came(s, r)
        last(r)
        r.send("FLOW", consumer_id=1, messagePermits=1)
    figures(s, topic, "end")


@scenario
def reader_of_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    r = reader(s, topic)
    last(r)
    published(s, topic, 2)
    came(s, r)
    last(r)
    r.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    s.http("GET", rest(topic, "/lastMessageId"), keep=True)
    figures(s, topic, "end")


@scenario
def reader_that_acknowledges_as_the_java_client_does(s):
    topic = s.topic()
    ids = published(s, topic, 4)
    r = reader(s, topic)
    came(s, r)
    for i in (0, 2):
        r.send("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[i]])
        figures(s, topic, f"acknowledged {i}")
    r.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    came(s, r, "again")
    loaded_again(s, topic, r)
    r = reader(s, topic, start_message_id=ids[2])
    came(s, r, "after")
    figures(s, topic, "end")
