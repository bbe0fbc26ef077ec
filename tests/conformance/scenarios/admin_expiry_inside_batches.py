"""Expiry up to a message inside a batch: in a closed ledger the messages of the batch from there on stay."""

import time

from harness.steps import drained, namespace, published, published_batches, rest
from transcript import scenario

BATCHES = ([b"a"] * 3, [b"b"] * 3, [b"c"] * 3)
BODIES = (
    *({}, {"batchIndex": 0}, {"batchIndex": 1}, {"batchIndex": 2}, {"batchIndex": 3}, {"batchIndex": 9}),
    *({"isExcluded": True}, {"batchIndex": 1, "isExcluded": True}),
)


def expired(s, ns, name, position, body, *, closed, batches=BATCHES):
    """Note the cursor behind the expiry up to a message of the entry, and the entries that a consumer then gets."""
    topic = f"persistent://{ns}/{name}"
    s.lookup(topic)
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/s"), "earliest", quietly=True)
    ids = published_batches(s, topic, *batches) if batches else published(s, topic, 3)
    if closed:
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        s.lookup(topic)
        published(s, topic, 1, first=9)
    at = {"ledgerId": ids[position]["ledgerId"], "entryId": ids[position]["entryId"]}
    status = s.http("POST", rest(topic, "/subscription/s/expireMessages"), at | body, quietly=True)[0]
    time.sleep(0.5)  # Apache Pulsar answers before the expiry ends
    backlog = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["s"]["msgBacklog"]
    cursor = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]["s"]
    c, kept = s.connect(), s.lines
    s.lines = []
    c.subscribe(topic, "s", 1, 0, quietly=True)
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=100)
    got = [[f.message_id["entryId"], list(f.command.ack_set)] for f in drained(c, 0.4)]
    s.lines = kept
    s.note(f"entry {position} {body}", [status, backlog, cursor["markDeletePosition"].split(":")[1], got])


def _of(*, closed, position):
    def run(s):
        ns = namespace(s)
        for i, body in enumerate(BODIES):
            expired(s, ns, f"t{i}", position, body, closed=closed)

    run.__name__ = f"expiry_inside_batch_{position}_of_{'a_closed' if closed else 'an_open'}_ledger"
    scenario(run)


for _closed in (False, True):
    for _position in range(3):
        _of(closed=_closed, position=_position)


@scenario
def expiry_inside_entries_without_a_batch(s):
    ns = namespace(s)
    for closed in (False, True):
        for i, body in enumerate(({}, {"batchIndex": 0}, {"batchIndex": 1})):
            expired(s, ns, f"t{i}{closed}", 1, body, closed=closed, batches=())
