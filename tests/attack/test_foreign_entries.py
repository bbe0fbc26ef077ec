"""Entries in Kafka's format that unfold: their conversion must not make other clients wait."""

import gzip
import struct
import zlib

import pytest

from magnetar.converters.entry import build_entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Header, Record
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.foreign import foreign_entry, publish
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer

ENTRIES = 12
SUBSCRIPTIONS = 3
MOST_BUSY_S = 0.3
"""Processor time of the broker, workers apart, in the wait of one PING."""


def holes():
    """One record, and 600,000 offsets without a record."""
    batch = build_record_batch([Record(0, 1, None, b"x" * 330_000)], BatchOptions(last_offset_delta=600_000))
    return foreign_entry(batch, "kafka", 600_001), 600_001


def headers():
    """A few hundred bytes that become 65,536 headers."""
    record = Record(0, 1, None, None, tuple(Header("", b"") for _ in range(65_536)))
    return foreign_entry(build_record_batch([record], BatchOptions(codec=Codec.ZSTD)), "kafka", 1), 1


def wrappers():
    """A hundred compressed messages of 256 KiB each, whose content is cut off behind a message."""

    def message(attributes, value):
        body = struct.pack(">bbqii", 1, attributes, 1, -1, len(value)) + value
        body = struct.pack(">I", zlib.crc32(body)) + body
        return struct.pack(">qi", 0, len(body)) + body

    cut = message(0, b"") + struct.pack(">qi", 0, 0x7FFFFFFF) + bytes(255 << 10)
    wrapper = message(1, gzip.compress(cut, 9))
    count = 32_000 // len(wrapper)
    return foreign_entry(wrapper * count, "kafka", count), count


def properties():
    """Four MiB of empty properties."""
    metadata = pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1)
    metadata.properties.add(key="entry.format", value="kafka")
    raw = metadata.SerializeToString() + b"\x22\x04\x0a\x00\x12\x00" * 700_000
    return build_entry(raw, build_record_batch([Record(0, 1, None, b"x")])), 1


@pytest.mark.parametrize("entry", [holes, headers, wrappers, properties])
def test_entries_that_unfold_leave_the_loop_to_others(new_broker, topic, entry):
    broker = new_broker(messageConverters="kafka", pings=False)
    reader = RawPeer(broker.url)
    for number in range(SUBSCRIPTIONS):
        reader.subscribe(topic, f"s{number}", consumer_id=number, subType=pb.CommandSubscribe.Shared)
        reader.flow(100_000_000, consumer_id=number)
    with HonestClient(broker) as honest:
        publish(broker, topic, [entry()] * ENTRIES)
        publish(broker, topic, [foreign_entry(build_record_batch([Record(0, 1, None, b"last")]), "kafka")])
        seen = 0
        while seen < SUBSCRIPTIONS:
            found = reader.receive()
            seen += found.type == pb.BaseCommand.MESSAGE and found.message.message_id.entryId == ENTRIES
    reader.close()
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0
