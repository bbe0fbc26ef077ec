"""Non-persistent topics: the active consumer of Failover, markers, and counts that leave markers out."""

from harness.steps import drained, published, rest, schema, stats, texts
from transcript import scenario

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")


def sender(s, topic):
    c = s.connect("sender")
    c.producer(topic, 9, quietly=True, producer_name="p")
    return c


def join(s, topic, name, connection=None, priority=0, consumer_id=1):
    """A failover consumer; its answer and the notices before and after the answer are in the log."""
    c = s.connect(connection or name)
    c.subscribe(topic, "sub", consumer_id, subType="Failover", consumer_name=name, priority_level=priority, permits=100)
    c.none()
    return c


def shares(s, producer, *members):
    """One message more: the members that get the message, and their notices."""
    producer.publish_all(9, [b"m"])
    for c in members:
        s.note(c.name, texts(drained(c)))


def moves(s, topic, *names):
    """Members join in turn and leave in turn; after each change a message shows the active consumer."""
    producer, members = sender(s, topic), []
    for i, (name, priority) in enumerate(names):
        members.append(join(s, topic, name, f"m{i}", priority))
        shares(s, producer, *members)
    while len(members) > 1:
        members.pop(0).close()
        s.eventually("members", lambda: len(stats(s, topic)["subscriptions"]["sub"]["consumers"]) == len(members))
        shares(s, producer, *members)


@scenario
def failover_members_of_one_name_on_a_non_persistent_topic(s):
    moves(s, s.topic(domain="non-persistent"), ("x", 0), ("x", 0), ("x", 0))


@scenario
def failover_members_by_name_on_a_non_persistent_topic(s):
    moves(s, s.topic(domain="non-persistent"), ("m", 0), ("z", 0), ("a", 0), ("b", 0))


@scenario
def failover_members_by_priority_on_a_non_persistent_topic(s):
    moves(s, s.topic(domain="non-persistent"), ("a", 2), ("b", 1), ("c", 0), ("d", 0))


@scenario
def failover_members_of_partitions_of_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    for k in range(3):
        s.note("partition", k)
        moves(s, f"{topic}-partition-{k}", ("c", 0), ("b", 0), ("a", 0))


def counts(s, topic):
    facts = stats(s, topic)
    subscription = facts["subscriptions"]["sub"]
    members = [[c["availablePermits"], c["msgOutCounter"]] for c in subscription["consumers"]]
    s.note("counts", [facts["msgInCounter"], facts["msgOutCounter"], subscription["msgOutCounter"], members])


def markers(kind):
    def run(s):
        topic = s.topic(domain="non-persistent")
        c = s.connect()
        c.subscribe(topic, "sub", 1, permits=10, subType=kind)
        c.producer(topic, 9, quietly=True, producer_name="p")
        for number, metadata in enumerate(({}, {"marker_type": 10}, {"marker_type": 0}, {"marker_type": 99}, {})):
            c.publish(9, number, b"m%d" % number, **metadata)
            c.recv_sorted(2, timeout=1) if not metadata else c.recv()
            c.none()
            counts(s, topic)

    run.__name__ = f"markers_on_a_non_persistent_topic_{kind.lower()}"
    return scenario(run)


for kind in TYPES:
    globals()[f"markers_{kind}"] = markers(kind)


@scenario
def marker_of_the_command_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.subscribe(topic, "sub", 1, permits=10)
    c.producer(topic, 9, quietly=True, producer_name="p")
    c.publish(9, 1, b"m1", command={"marker": True})
    c.recv_sorted(2)
    counts(s, topic)


@scenario
def first_schema_of_a_consumer_behind_messages_without_a_schema(s):
    """A message that has come since the load counts, also without its producer; an unload forgets it."""
    text = schema("String")
    for what, sends, unloads in (("producer", 0, False), ("message", 1, False), ("unload", 1, True)):
        topic = s.topic(what, domain="non-persistent")
        published(s, topic, sends)
        if unloads:
            s.http("PUT", rest(topic, "/unload"), quietly=True)
            s.lookup(topic)
        c = s.connect(what)
        c.subscribe(topic, "s", 1, schema=text)
        c.producer(topic, 1, producer_name="q", schema=text)


@scenario
def message_for_several_subscriptions_of_a_connection(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    for i, name in enumerate(("zz", "b", "sub", "a", "s1", "reader", "audit"), 1):
        c.subscribe(topic, name, i, 9, quietly=True, subType="Shared" if i % 2 else "Exclusive")
    published(s, topic, 1)
    s.note("order", [f.command.consumer_id for f in drained(c)])
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=3)
    c.subscribe(topic, "late", 8, 9, quietly=True)
    published(s, topic, 1, first=1)
    s.note("order", [f.command.consumer_id for f in drained(c)])
