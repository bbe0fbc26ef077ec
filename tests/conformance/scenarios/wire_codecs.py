"""Payloads in each compression: single messages, batches, reads over REST, seeks into batches, wrong sizes and checksums."""

import zlib

import lz4.block
import snappy

from harness.consumers import by_types, join
from harness.figures import figures
from harness.steps import EARLIEST, ack, batch, drained, rest, setup_connection
from transcript import scenario

TEXT = b"the same words again and again " * 8
BYTES = ("bytesInCounter", "bytesOutCounter", "bytesOutInternalCounter", "storageSize", "backlogSize")
CODECS = {
    "NONE": lambda data: data,
    "LZ4": lambda data: lz4.block.compress(data, store_size=False),
    "ZLIB": zlib.compress,
    "SNAPPY": snappy.compress,
}


def compressed(kind, plain):
    return [CODECS[kind](plain)], {} if kind == "NONE" else dict(compression=kind, uncompressed_size=len(plain))


def put(s, topic, kind, first=0):
    """A single message and a batch of three; their ids."""
    c = setup_connection(s)
    c.producer(topic, 5, quietly=True, producer_name="q")
    payloads, more = compressed(kind, TEXT)
    ids = c.publish_all(5, payloads, first, **more)
    payloads, more = compressed(kind, batch(b"one" * 20, b"two" * 20, b"three" * 20, partition_key=["a", "b", "c"]))
    ids += c.publish_all(5, payloads, first + 1, num_messages_in_batch=3, **more)
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=5)
    return ids


def declare(kind):
    def read_over_rest(s):
        topic = s.topic()
        s.http("PUT", rest(topic), quietly=True)
        s.http("PUT", rest(topic, "/subscription/sub"), EARLIEST, quietly=True)
        ids = put(s, topic, kind)
        ledger = ids[0]["ledgerId"]
        names = ("X-Pulsar-num-batch-message", "X-Pulsar-uncompressed-size", "X-Pulsar-compression")
        for path in (
            "/subscription/sub/position/1",
            "/subscription/sub/position/2",
            "/subscription/sub/position/4",
            "/examinemessage?initialPosition=earliest&messagePosition=2",
            "/examinemessage?initialPosition=latest&messagePosition=1",
            f"/ledger/{ledger}/entry/0",
            f"/ledger/{ledger}/entry/1",
        ):
            status, body = s.http("GET", rest(topic, path), quietly=True)
            size = len(body) if isinstance(body, str) else body
            s.note("entry" if "/ledger/" in path else path, [status, size, *(s.http_headers.get(n) for n in names)])

    def seek_inside(s):
        topic = s.topic()
        ids = put(s, topic, kind)
        c = s.connect()
        how = dict(durable=False, quietly=True, permits=100)
        for start in (ids[1] | dict(batch_index=1), ids[0], EARLIEST):
            c.subscribe(topic, "reader", start_message_id=start, **how)
            frames = drained(c, 0.5)
            s.note("came", [[f.command.message_id.entryId, f.metadata.compression, f.crc] for f in frames])
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        figures(s, topic, "end", BYTES)

    read_over_rest.__name__ = f"compressed_by_{kind.lower()}_read_over_rest"
    seek_inside.__name__ = f"compressed_by_{kind.lower()}_read_from_inside"
    scenario(read_over_rest)
    scenario(seek_inside)


for each in CODECS:
    declare(each)


@by_types("Exclusive", "Failover", "Key_Shared")
def compressed_by_each_codec_and_consumed(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = []
    for i, codec in enumerate(CODECS):
        ids += put(s, topic, codec, 10 * i)
    frames = drained(c, 0.6)
    s.note("came", [[f.command.message_id.entryId, f.metadata.compression, f.crc] for f in frames])
    ack(c, *ids[:3], ids[3] | dict(ack_set=[0b101]))
    figures(s, topic, "end", BYTES)


@scenario
def compressed_payloads_that_are_refused(s):
    topic, c = s.topic(), s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for i, (size, kind) in enumerate(((None, "ZLIB"), (0, "ZLIB"), (7, "LZ4"), (2**31, "ZSTD"), (2**32 - 1, "SNAPPY"))):
        more = {} if size is None else dict(uncompressed_size=size)
        c.publish(1, i, b"no codec at all", compression=kind, **more)
        c.recv()
    c.subscribe(topic, "sub", 1, permits=10, initialPosition="Earliest", quietly=True)
    s.note("came", [[f.metadata.compression, f.payload.decode()] for f in drained(c, 0.5)])
