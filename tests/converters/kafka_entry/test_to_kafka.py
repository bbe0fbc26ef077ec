import pytest

from magnetar.converters.entry import build_entry
from magnetar.converters.errors import ConversionError, EntryError
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry.to_kafka import to_kafka_records
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata


def metadata(**fields):
    return MessageMetadata(producer_name="p", sequence_id=1, publish_time=900, **fields)


def message(payload=b"v", **fields):
    single = SingleMessageMetadata(payload_size=len(payload), **fields).SerializeToString()
    return len(single).to_bytes(4, "big") + single + payload


def view(made, payload, base=10):
    return list(to_kafka_records(build_entry(made.SerializeToString(), payload), base))


def test_native_plain_messages():
    made = metadata(partition_key="key", event_time=5)
    made.properties.add(key="a", value="1")
    assert view(made, b"payload") == [Record(10, 5, b"key", b"payload", (Header("a", b"1"),))]
    assert view(metadata(), b"payload") == [Record(10, 900, None, b"payload")]
    assert view(metadata(null_value=True), b"") == [Record(10, 900, None, None)]


def test_native_batches():
    batch = (
        message(partition_key="b64", ordering_key=b"raw") + message(compacted_out=True) + message(b"", null_value=True)
    )
    assert view(metadata(num_messages_in_batch=3), batch) == [
        Record(10, 900, b"raw", b"v"),
        Record(12, 900, None, None),
    ]
    flagged = message(partition_key="/w==", partition_key_b64_encoded=True, event_time=0)
    assert view(metadata(num_messages_in_batch=1), flagged) == [Record(10, 0, b"\xff", b"v")]


def test_entries_without_a_kafka_view():
    encrypted = metadata()
    encrypted.encryption_keys.add(key="k", value=b"v")
    foreign = metadata()
    foreign.properties.add(key="entry.format", value="kafka")
    for made in (encrypted, foreign, metadata(chunk_id=1)):
        with pytest.raises(ConversionError, match="no Kafka view"):
            view(made, b"")
    with pytest.raises(ConversionError, match="unknown codec"):
        list(to_kafka_records(build_entry(metadata().SerializeToString() + b"\x40\x09", b""), 0))
    with pytest.raises(EntryError):
        list(to_kafka_records(b"garbage", 0))


@pytest.mark.parametrize(
    "payload", [b"", message()[:-1], b"\x00\x00\x00\x02\xff\xff", b"\x00\x00\x00\x0b\x18" + b"\xff" * 9 + b"\x01"]
)
def test_broken_batches(payload):
    with pytest.raises(ConversionError):
        view(metadata(num_messages_in_batch=2), payload)


def test_a_key_that_is_no_base64():
    with pytest.raises(ConversionError, match="base64"):
        view(metadata(partition_key="?", partition_key_b64_encoded=True), b"")
