"""The notice of the end of a terminated topic for a consumer that joins behind a SEEK."""

from harness.consumers import by_type
from harness.joining import join
from harness.steps import LATEST, ack, drained, published, rest

CASES = {
    "none": ((), 0),
    "first": ((0,), 0),
    "all": ((0, 1, 2), 0),
    "last": ((2,), 0),
    "to last": ((), 1),
    "to last first": ((0,), 1),
}


@by_type
def end_of_a_topic_behind_a_seek_to_it(s, kind):
    for what, (acked, target) in CASES.items():
        topic = s.topic(what.replace(" ", "-"))
        c = join(s, topic, kind)
        ids = published(s, topic, 3)
        drained(c, 0.4)
        s.http("POST", rest(topic, "/terminate"), quietly=True)
        while c.recv(0.4):
            pass
        for i in acked:
            ack(c, ids[i])
        s.note(what, len(acked))
        c.ask("SEEK", quietly=True, consumer_id=1, message_id=(LATEST, ids[2])[target])
        c = join(s, topic, kind)
        for _ in range(3):
            if not c.recv(0.7):
                break
