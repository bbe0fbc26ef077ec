"""Compaction of entries that take long to examine: the run must not make other clients wait."""

import json

import pytest

from magnetar.converters.entry import build_entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Record
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch
from tests.attack.hostile import BYTES, encoded
from tests.blackbox.foreign import foreign_entry, publish
from tests.blackbox.honest import HonestClient
from tests.waiting import wait_for

ENTRIES = 8
MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait of one PING."""


def _batch(number, fields):
    """A batch of two messages with keys, of which one is the newest of its key; further fields of its metadata."""
    metadata = pb.MessageMetadata(producer_name="raw", sequence_id=number, publish_time=1, num_messages_in_batch=2)
    keys = (f"key-{number}", "same")
    messages = encode_batch([(pb.SingleMessageMetadata(partition_key=key, payload_size=1), b"x") for key in keys])
    return build_entry(metadata.SerializeToString() + fields, messages)


def indexes(number):
    """Millions of indexes of an earlier compaction."""
    at = pb.MessageMetadata.DESCRIPTOR.fields_by_name["compacted_batch_indexes"].number
    return _batch(number, encoded(at, BYTES, b"\7" * 4_900_000)), 2


def properties(number):
    """Hundreds of thousands of empty properties."""
    return _batch(number, b"\x22\x04\x0a\x00\x12\x00" * 800_000), 2


def keys(number):
    """An intact entry in Kafka's format with many keys, which expands to 32 MiB."""
    records = [Record(at, 1, b"%d-%d" % (number, at) + bytes(16_000), b"x") for at in range(2000)]
    options = BatchOptions(codec=Codec.ZSTD, last_offset_delta=len(records) - 1)
    return foreign_entry(build_record_batch(records, options), "kafka", len(records)), len(records)


@pytest.mark.parametrize("entry", [indexes, properties, keys])
def test_a_compaction_leaves_the_loop_to_others(new_broker, topic, entry):
    """A rewritten batch with five MB of metadata held the loop for 0.15 s, one entry after the other."""
    broker = new_broker(messageConverters="kafka", pings=False)
    publish(broker, topic, [entry(number) for number in range(ENTRIES)])
    path = "/admin/v2/" + topic.replace("://", "/", 1) + "/compaction"
    with HonestClient(broker) as honest:
        broker.admin("PUT", path)
        wait_for(lambda: json.loads(broker.admin("GET", path))["status"] == "SUCCESS", subject="the end of compaction")
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0
