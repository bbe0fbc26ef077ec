"""What the test suite of the C++ client rests on and no other scenario shows."""

from harness.steps import published
from transcript import encode, scenario


@scenario
def subscribing_waits_for_a_seek(s):
    """SUBSCRIBE in one write with SEEK is not refused while the subscription is put elsewhere; it reads from there."""
    c, topic = s.connect(), s.topic()
    published(s, topic)
    place = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}
    ids = {"topic": topic, "subscription": "s", "subType": "Exclusive"}
    for n in range(1, 6):
        c.subscribe(topic, "s", n)
        seek = encode("SEEK", consumer_id=n, request_id=5000 + n, message_id=place)
        c.raw(seek + encode("SUBSCRIBE", **ids, consumer_id=100 + n, request_id=6000 + n), "SEEK and SUBSCRIBE")
        c.recv_sorted(3)
        c.ask("CLOSE_CONSUMER", consumer_id=100 + n)
    c.subscribe(topic, "s", 200)
    c.send("FLOW", consumer_id=200, messagePermits=1)
    c.recv()
