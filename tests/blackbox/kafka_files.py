"""Kafka files for tests, and their records in a topic."""

import random

from magnetar.converters.entry import Entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import AnswerCutter
from tests.blackbox.raw import RawPeer

START_MS = 1_700_000_000_000
SEGMENT = "00000000000000000000.log"


def records(first, count, magic, chance, value_bytes=200):
    """`count` records from offset `first` on; only magic 2 has headers, magic 0 no timestamps."""
    headers = (Header("trace", b"0af7"), Header("bin", b"\xff\x00")) if magic == 2 else ()
    return [
        Record(
            offset,
            START_MS + offset if magic else -1,
            b"key-%d" % (offset % 7),
            b"%d:" % offset + chance.randbytes(value_bytes),
            headers,
        )
        for offset in range(first, first + count)
    ]


def segment(size, seed=1, value_bytes=200):
    """About `size` bytes of a log segment with every magic and codec, control and empty batches and gaps."""
    chance = random.Random(seed)
    parts, total, offset = [], 0, 0
    while total < size:
        magic, codec = chance.choice((0, 1, 2, 2)), chance.choice(tuple(Codec))
        made = records(offset, chance.randint(1, 40), magic, chance, value_bytes)
        if magic == 2:
            part = build_record_batch(made, BatchOptions(codec=codec))
        else:
            part = build_message_set(made, magic, codec=Codec.GZIP if codec is Codec.ZSTD else codec)
        parts.append(part)
        total += len(part)
        offset += len(made)
        if chance.random() < 0.05:
            parts.append(build_record_batch([Record(offset, 5, b"\0\0\0\1", b"")], BatchOptions(control=True)))
            parts.append(build_record_batch([], BatchOptions(base_offset=offset + 1, last_offset_delta=3)))
            offset += 5
    return b"".join(parts)


def data_records(data):
    """The records of a record set without control records."""
    return [
        record
        for batch in RecordSet(data).batches()
        if not batch.is_control
        for record in RecordSet(bytes(batch.buffer))
    ]


def stored_entries(broker, topic):
    """Every entry of a topic as it is stored, in order."""
    peer = RawPeer(broker.url)
    try:
        pairs = [pb.KeyValue(key="entry.format.raw", value="true")]
        peer.subscribe(topic, "look", durable=False, metadata=pairs)
        last = peer.ask(
            "GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=1
        ).getLastMessageIdResponse.last_message_id
        if last.entryId == 2**64 - 1:
            return []
        peer.flow(1_000_000)
        cutter, out = AnswerCutter(), []
        while True:
            for answer in cutter.feed(_some(peer)):
                if answer.command.type == pb.BaseCommand.MESSAGE:
                    out.append(Entry(answer.entry))
                    found = answer.command.message.message_id
                    if (found.ledgerId, found.entryId) == (last.ledgerId, last.entryId):
                        return out
    finally:
        peer.close()


def _some(peer):
    """The received bytes that the peer has buffered; without any, the next bytes of its socket."""
    data, peer._buffer = bytes(peer._buffer), bytearray()
    return data or peer.socket.recv(1 << 20)


def stored_records(broker, topic):
    """The records of all entries of a topic; the metadata of each entry must give the number of its records."""
    out = []
    for entry in stored_entries(broker, topic):
        held = list(RecordSet(bytes(entry.payload)))
        assert len(held) == entry.metadata.num_messages_in_batch
        assert [(p.key, p.value) for p in entry.metadata.properties] == [("entry.format", "kafka")]
        out += held
    return out
