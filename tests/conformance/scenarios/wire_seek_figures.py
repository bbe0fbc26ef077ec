"""Seeks by id, by position in a batch and by time: the messages that come afterwards, and all figures of the topic."""

import time

from harness.consumers import by_type, join, resume
from harness.figures import figures, internal_figures
from harness.steps import EARLIEST, LATEST, ack, drained, now_ms, published, published_batches, rest
from transcript import scenario


def came(s, c, what="came", seconds=0.5):
    frames = [f for f in drained(c, seconds) if f.type == "MESSAGE"]
    s.note(what, [[f.command.message_id.entryId, f.command.redelivery_count, list(f.command.ack_set)] for f in frames])


def sought(s, c, topic, kind, what, **target):
    """Seek, subscribe again after the close, and note the messages."""
    answer = c.ask("SEEK", True, consumer_id=1, **target)
    s.note(what, [answer.type, getattr(answer.command, "message", "")])
    drained(c, 0.3)
    resume(c, topic, kind, consumer_name="n")
    came(s, c, "came", 1.2)
    figures(s, topic, "figures", ("avgMessagesPerEntry",))


@by_type
def sought_into_batches(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    came(s, c)
    for more in (dict(batch_index=1), dict(ack_set=[0b110]), dict(batch_index=2, ack_set=[0b100])):
        sought(s, c, topic, kind, f"first batch {more}", message_id=ids[0] | more)
    sought(s, c, topic, kind, "second batch", message_id=ids[1] | dict(batch_index=1, batch_size=2))
    internal_figures(s, topic, "insides")


@by_type
def sought_to_the_ends(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = published(s, topic, 4)
    came(s, c)
    ack(c, ids[0], ids[2])
    for name, target in (("latest", LATEST), ("earliest", EARLIEST), ("third", ids[2])):
        sought(s, c, topic, kind, name, message_id=target)
    published(s, topic, 1, first=9)
    came(s, c, "new")
    internal_figures(s, topic, "insides")


@by_type
def sought_by_times_between_ledgers(s, kind):
    topic = s.topic()
    moments = []
    for i in range(3):
        moments.append(now_ms())
        time.sleep(0.05)
        published(s, topic, 2, first=2 * i, publish_time=now_ms())
        time.sleep(0.05)
        if i == 1:
            c = join(s, topic, kind, consumer_name="n")
            s.http("PUT", rest(topic, "/unload"), quietly=True)
            c.recv(5)
            s.lookup(topic)
            resume(c, topic, kind, consumer_name="n")
    came(s, c, "came", 1.2)
    for i in (0, 1, 2):
        sought(s, c, topic, kind, f"moment {i}", message_publish_time=moments[i])


@scenario
def sought_on_each_partition(s):
    topic = s.topic("p")
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    parts = [f"{topic}-partition-{i}" for i in range(3)]
    before, clients = now_ms(), []
    for i, part in enumerate(parts):
        s.lookup(part)
        c = join(s, part, "Shared", consumer_name="n")
        published(s, part, i + 1, publish_time=now_ms())
        came(s, c, f"partition {i}")
        clients.append(c)
    for c, part in zip(clients, parts, strict=True):
        sought(s, c, part, "Shared", "by time", message_publish_time=before)
    sought(s, clients[2], parts[2], "Shared", "by id", message_id=EARLIEST | dict(partition=2))
    figures(s, topic, "all")


@scenario
def sought_by_rest_with_a_time_on_all_partitions(s):
    topic = s.topic("p")
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        s.http("PUT", rest(part, "/subscription/sub"), quietly=True)
        published(s, part, 2, publish_time=now_ms())
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    for offset in (-60_000, 60_000):
        s.http("POST", rest(topic, f"/subscription/sub/resetcursor/{now_ms(offset)}"), quietly=True)
        for i in range(2):
            figures(s, f"{topic}-partition-{i}", f"partition {i} {offset}")
    s.http("GET", rest(topic, "/partitioned-stats"), keep=("msgInCounter", "backlogSize"))


@scenario
def sought_by_a_reader_in_all_ways(s):
    topic = s.topic()
    ids = published_batches(s, topic, [b"a", b"b"], [b"c", b"d"]) + published(s, topic, 2, first=9)
    c = s.connect()
    how = dict(durable=False, quietly=True, permits=100)
    c.subscribe(topic, "reader", start_message_id=ids[1] | dict(batch_index=0), **how)
    came(s, c)
    for target in (ids[0] | dict(batch_index=1), ids[2], EARLIEST, LATEST, ids[3]):
        c.ask("SEEK", consumer_id=1, message_id=target)
        drained(c, 0.2)
        c.subscribe(topic, "reader", start_message_id=target, **how)
        came(s, c, "came")
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    figures(s, topic, "end")
