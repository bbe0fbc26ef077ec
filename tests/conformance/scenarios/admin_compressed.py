"""Single messages over REST whose payload is compressed, and when they are to be delivered."""

import zlib

from harness.steps import batch, rest, setup_connection
from transcript import scenario

PLAIN = b"compressed and shown plain " * 3
HEADERS = (
    "X-Pulsar-compression",
    "X-Pulsar-uncompressed-size",
    "X-Pulsar-num-batch-message",
    "X-Pulsar-deliver-at-time",
)


def shown(s, label, topic, place):
    status, body = s.http("GET", rest(topic, place), quietly=True)
    s.note(label, [status, *(s.http_headers.get(name) for name in HEADERS), body])


@scenario
def compressed_messages_over_rest(s):
    """Peeking gives the payload as a consumer gets it, and headers with its stored form."""
    topic = s.topic()
    c = setup_connection(s)
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish_all(1, [zlib.compress(PLAIN)], compression="ZLIB", uncompressed_size=len(PLAIN))
    whole = batch(b"one", b"two")
    c.publish(1, 1, zlib.compress(whole), command=dict(num_messages=2), num_messages_in_batch=2, compression="ZLIB", uncompressed_size=len(whole))  # fmt: skip
    c.recv_quietly()
    shown(s, "peeked", topic, "/subscription/sub/position/1")
    shown(s, "peeked batch", topic, "/subscription/sub/position/2")
    shown(s, "examined", topic, "/examinemessage?initialPosition=earliest&messagePosition=1")


@scenario
def delayed_message_over_rest(s):
    """The time of its delivery, as the headers have it."""
    topic = s.topic()
    c = setup_connection(s)
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish_all(1, [b"later"], deliver_at_time=4_102_444_800_123)
    c.publish_all(1, [b"on the second"], 1, deliver_at_time=4_102_444_800_000)
    shown(s, "peeked", topic, "/subscription/sub/position/1")
    shown(s, "peeked", topic, "/subscription/sub/position/2")


@scenario
def damaged_compression_over_rest(s):
    """A payload that contradicts its metadata."""
    topic = s.topic()
    c = setup_connection(s)
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish_all(1, [b"no zlib at all"], compression="ZLIB", uncompressed_size=50)
    status, _ = s.http("GET", rest(topic, "/subscription/sub/position/1"), quietly=True)
    s.note("peeked", status)
