"""Behaviour that the test suite of the C++ client relies on and no other scenario shows."""

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


@scenario
def chunks_of_a_message_go_to_one_of_shared_consumers(s):
    """Chunks whose consumer has no permits wait for it, also while another consumer has some."""
    a, b, topic = s.connect("a"), s.connect("b"), s.topic()
    a.subscribe(topic, "s", 1, subType="Shared")
    b.subscribe(topic, "s", 1, subType="Shared")
    for chunk_id in range(3):
        for n, uuid in enumerate(("m1", "m2")):
            ids = {"uuid": uuid, "chunk_id": chunk_id, "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
            published(s, topic, 1, first=10 * chunk_id + n, **ids)
    a.send("FLOW", consumer_id=1, messagePermits=3)
    for _ in range(3):
        a.recv()
    b.send("FLOW", consumer_id=1, messagePermits=9)
    b.none()
    a.send("FLOW", consumer_id=1, messagePermits=3)
    for _ in range(3):
        a.recv()
    b.none()
