"""The number of messages that SEND and its metadata claim, and the index, permits and backlog that follow."""

from harness.steps import backlog, batch, drained
from transcript import scenario

MOST = 2**31 - 1


def sent(s, topic, *claims, payload=b"x", producer="p"):
    """A SEND for each claim (num_messages of the command, of the metadata or None); returns the answers."""
    c = s.connect("producer")
    c.producer(topic, 1, quietly=True, producer_name=producer)
    keep, s.lines = s.lines, []
    answers = []
    for i, (command, metadata) in enumerate(claims):
        more = {} if metadata is None else dict(num_messages_in_batch=metadata)
        c.publish(1, i, batch(payload) if metadata else payload, command=dict(num_messages=command), **more)
        frame = c.recv_quietly()
        answers.append(frame and frame.type)
    s.lines = keep
    s.note("answers", answers)
    return c


def indexes(frames):
    return [f.entry_metadata.index if f.entry_metadata is not None else None for f in frames]


@scenario
def index_of_entries_without_messages(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    sent(s, topic, (1, None), (1, None), (0, None), (1, None), (-1, None), (2, 2), (0, None), (1, None))
    s.note("indexes", indexes(drained(c)))


@scenario
def index_after_the_topic_was_loaded_again(s):
    topic = s.topic()
    sent(s, topic, (1, None), (1, None), (0, None)).close()
    s.call("PUT", "/admin/v2/" + topic.replace("://", "/") + "/unload")
    s.lookup(topic)
    sent(s, topic, (1, None), (1, None))
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True, initialPosition="Earliest")
    s.note("indexes", indexes(drained(c)))


def claimed(s, kind, claim, command=1):
    """The messages of a consumer of that type before, of and behind an entry that claims so many."""
    topic = s.topic()
    c = s.connect(kind)
    c.subscribe(topic, permits=10, quietly=True, subType=kind)
    for i, claims in enumerate(((1, None), (command, claim), (1, None), (1, None))):
        sent(s, topic, claims, producer=f"p{i}")
        s.note("got", [f.command.message_id.entryId for f in drained(c)])
    c.send("FLOW", consumer_id=1, messagePermits=1000)
    s.note("after FLOW", [f.command.message_id.entryId for f in drained(c)])
    s.note("backlog", backlog(s, topic))


@scenario
def metadata_claims_more_messages_than_there_are_shared(s):
    claimed(s, "Shared", MOST)


@scenario
def metadata_claims_more_messages_than_there_are_exclusive(s):
    claimed(s, "Exclusive", MOST)


@scenario
def metadata_claims_more_messages_than_there_are_key_shared(s):
    claimed(s, "Key_Shared", MOST)


@scenario
def metadata_and_command_claim_more_messages_than_there_are(s):
    claimed(s, "Shared", MOST, MOST)


@scenario
def metadata_claims_a_few_messages_more(s):
    claimed(s, "Shared", 5)


@scenario
def metadata_claims_fewer_than_one_message(s):
    claimed(s, "Shared", -5)


@scenario
def commands_that_claim_more_messages_than_there_are(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True, subType="Shared")
    sent(s, topic, (1, None), (MOST, None), (1, None))
    got = drained(c)
    s.note("got", [f.command.message_id.entryId for f in got])
    s.note("indexes", indexes(got))
