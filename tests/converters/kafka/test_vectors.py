"""Every recorded record set decodes to the recorded records (tests/vectors/kafka, made with kafka-clients 3.9.1)."""

import base64
import json
import pathlib

import pytest

from magnetar.converters.kafka.assignment import assign_offsets
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import CrcMismatchError, KafkaFormatError
from magnetar.converters.kafka.message import Message, inner_messages
from magnetar.converters.kafka.message_builder import encode_message
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record, TimestampType, decode_headers, encode_record
from magnetar.converters.kafka.validation import validate

FOLDER = pathlib.Path(__file__).parents[2] / "vectors" / "kafka"
VECTORS = json.loads((FOLDER / "vectors.json").read_text())["vectors"]
REJECTED = {"corrupt", "java_rejects", "unspecified"}
READABLE = [v for v in VECTORS if v["expect"] not in REJECTED]
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def load(vector):
    return (FOLDER / vector["file"]).read_bytes()


def unpack(text):
    return None if text is None else base64.b64decode(text)


def recorded(vector):
    return [
        Record(
            r["offset"],
            r["timestamp"],
            unpack(r["key"]),
            unpack(r["value"]),
            tuple((name, unpack(value)) for name, value in r["headers"]),
        )
        for r in vector["records"]
    ]


def parametrized(vectors):
    return pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in vectors])


def test_the_vectors_are_complete():
    assert len(VECTORS) == 123
    assert {v["file"] for v in VECTORS} == {p.name for p in FOLDER.glob("*.bin")}


@parametrized(READABLE)
def test_deep_iteration_gives_the_recorded_records(vector):
    assert list(RecordSet(load(vector))) == recorded(vector)


@parametrized([v for v in VECTORS if v["expect"] in REJECTED])
def test_entries_that_kafka_rejects_are_refused_after_earlier_records(vector):
    records = iter(RecordSet(load(vector)))
    assert [next(records) for _ in vector["records"]] == recorded(vector)
    with pytest.raises(KafkaFormatError):
        list(records)


@parametrized(READABLE)
def test_shallow_iteration_gives_the_recorded_batches(vector):
    batches = list(RecordSet(load(vector)).batches())
    assert len(batches) == len(vector["batches"])
    for batch, expected in zip(batches, vector["batches"], strict=True):
        assert batch.magic == expected["magic"]
        assert batch.codec.name.lower() == expected["codec"]
        assert batch.base_offset == expected["base_offset"]
        assert batch.last_offset == expected["last_offset"]
        assert batch.timestamp_type == TYPES[expected["timestamp_type"]]
        assert batch.max_timestamp == expected["max_timestamp"]
        assert batch.size_in_bytes == expected["size"]
        assert batch.is_valid == expected["valid_crc"]
        if batch.magic == 2:
            assert batch.count == expected["count"]
            assert batch.is_control == expected["control"]
            assert batch.is_transactional == expected["transactional"]
            assert batch.leader_epoch == expected["leader_epoch"]
            assert batch.producer_id == expected["producer_id"]
            assert batch.producer_epoch == expected["producer_epoch"]
            assert batch.base_sequence == expected["base_sequence"]
            assert batch.last_sequence == expected["last_sequence"]
            assert batch.delete_horizon == expected["delete_horizon"]


@parametrized([v for v in READABLE if v["expect"] == "partial"])
def test_a_cut_tail_is_dropped_and_measured(vector):
    records = RecordSet(load(vector))
    assert records.valid_bytes == sum(batch["size"] for batch in vector["batches"]) < records.size_in_bytes
    if not vector["batches"]:
        assert records.bytes_wanted > records.size_in_bytes


@parametrized([v for v in VECTORS if v["expect"] == "inner_crc"])
def test_inner_checksums_are_checked_when_asked_for(vector):
    with pytest.raises(CrcMismatchError):
        list(RecordSet(load(vector), check_inner_crcs=True))


@parametrized([v for v in VECTORS if v["expect"] in REJECTED | {"broker_must_reject", "inner_crc", "partial"}])
def test_a_broker_refuses_it_on_produce(vector):
    with pytest.raises(KafkaFormatError):
        validate(load(vector))


@parametrized(
    [v for v in READABLE if "produced" in v["name"] or v["name"].startswith(("aiokafka_m2", "kafkapython_m2"))]
)
def test_a_broker_accepts_entries_of_producers(vector):
    validated = validate(load(vector))
    assert validated.message_count == len(vector["records"])


def rebuilt(batch):
    """The same batch or message written anew from its decoded form."""
    if isinstance(batch, Message):
        return encode_message(
            batch.magic, batch.offset, batch.max_timestamp, *batch.key_and_value(), attributes=batch.attributes
        )
    log_append = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    # Deltas as stored: readers of LogAppendTime do not see them.
    create_times = [batch.base_timestamp + raw[0] for raw in batch.raw_records()]
    records = [record._replace(timestamp=at) for record, at in zip(batch.records(), create_times, strict=True)]
    return build_record_batch(
        records,
        BatchOptions(
            append_time=batch.max_timestamp if log_append else None,
            leader_epoch=batch.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            transactional=batch.is_transactional,
            control=batch.is_control,
            delete_horizon=batch.delete_horizon,
            base_offset=batch.base_offset,
            last_offset_delta=batch.last_offset_delta,
            max_timestamp=batch.max_timestamp,
        ),
    )


NOT_CANONICAL = {"m2_last_offset_delta_wrong", "m2_record_attributes_nonzero"}


@parametrized([v for v in READABLE if v["name"] not in NOT_CANONICAL])
def test_uncompressed_entries_round_trip_byte_for_byte(vector):
    for batch in RecordSet(load(vector)).batches():
        if isinstance(batch, RecordBatch) and batch.codec is not Codec.NONE:
            continue
        assert rebuilt(batch) == bytes(batch.buffer)


@parametrized([v for v in READABLE if v["name"] not in NOT_CANONICAL])
def test_the_content_of_compressed_entries_round_trips_byte_for_byte(vector):
    """The compressed bytes depend on the compressor; the bytes inside do not."""
    for batch in RecordSet(load(vector)).batches():
        if batch.codec is Codec.NONE:
            continue
        if isinstance(batch, RecordBatch):
            again = b"".join(
                encode_record(time_delta, delta, key, value, decode_headers(headers))
                for time_delta, delta, key, value, headers in batch.raw_records()
            )
            assert again == batch.record_bytes()
            continue
        inner = batch.inner_set()
        whole = inner[: RecordSet(inner).valid_bytes]
        if not all(each.is_valid for each in inner_messages(whole)):
            continue  # the vector with a wrong inner checksum
        assert b"".join(rebuilt(each) for each in inner_messages(whole)) == whole


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_assignment_gives_the_recorded_bytes(codec):
    """A set of aiokafka with an assigned offset: the only other changes are the wrapper's newest timestamp, which
    aiokafka does not set, and the checksum over it.
    """
    produced, assigned = (
        (FOLDER / f"aiokafka_m1_{codec}_{state}.bin").read_bytes() for state in ("produced", "assigned")
    )
    last = next(RecordSet(assigned).batches()).last_offset
    validated = validate(produced)
    assert validated.in_place
    ours = bytes(assign_offsets(validated, last - validated.message_count + 1).buffer)
    crc, timestamp = slice(12, 16), slice(18, 26)
    assert int.from_bytes(ours[timestamp], "big") == max(r.timestamp for r in RecordSet(assigned))
    stamped = bytearray(assigned)
    stamped[timestamp], stamped[crc] = ours[timestamp], ours[crc]
    assert ours == stamped
    assert next(RecordSet(ours).batches()).is_valid
