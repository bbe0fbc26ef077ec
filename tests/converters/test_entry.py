import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.entry import (
    Entry,
    build_entry,
    declared_messages,
    entry_format,
    replace_entry_format,
    wants_raw,
)
from magnetar.converters.errors import EntryChecksumError, EntryError
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


def metadata(*properties, **fields):
    made = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)
    for key, value in properties:
        made.properties.add(key=key, value=value)
    return made


@given(st.binary(max_size=100))
def test_build_and_read(payload):
    stored = metadata(("a", "b"), num_messages_in_batch=3)
    data = build_entry(stored.SerializeToString(), payload)
    entry = Entry(data)
    entry.verify_checksum()
    assert entry.metadata == stored
    assert entry.payload == payload
    assert entry.head == payload[:64]
    assert data[:6] == b"\x0e\x01" + crc32c(data[6:]).to_bytes(4, "big")


def test_entries_without_checksum():
    body = metadata().SerializeToString()
    entry = Entry(len(body).to_bytes(4, "big") + body + b"payload")
    entry.verify_checksum()
    assert entry.metadata == metadata()
    assert bytes(entry.payload) == b"payload"


def test_every_flipped_bit_is_noticed():
    data = build_entry(metadata().SerializeToString(), b"payload")
    for at in range(6, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x10
        try:
            entry = Entry(bytes(broken))
        except EntryError:
            continue
        with pytest.raises(EntryChecksumError):
            entry.verify_checksum()


@given(st.binary(max_size=80))
def test_total(data):
    try:
        entry = Entry(data)
        assert entry.metadata.IsInitialized()
    except EntryError:
        return
    assert entry.metadata_start <= entry.payload_start <= len(data)


@pytest.mark.parametrize(
    "data", [b"", b"\x0e\x01", b"\x00\x00\x00\x09abc", b"\x0e\x01\0\0\0\0\x7f\xff\xff\xff"], ids=range(4)
)
def test_frames_that_leave_the_entry(data):
    with pytest.raises(EntryError):
        Entry(data)


def test_unreadable_metadata():
    for body in (b"\xff\xff\xff", b""):
        with pytest.raises(EntryError, match="MessageMetadata"):
            _ = Entry(len(body).to_bytes(4, "big") + body).metadata


def test_the_format_is_lower_cased_and_the_last_one_wins():
    assert entry_format(metadata()) is None
    assert entry_format(metadata(("entry.format", "a"), ("entry.format", "KafKa"))) == "kafka"


def test_the_format_is_replaced_by_its_origin():
    stored = metadata(("a", "1"), ("entry.format", "kafka"), ("a", "2"), ("entry.format.origin", "old"))
    replace_entry_format(stored, "kafka")
    assert [(p.key, p.value) for p in stored.properties] == [("a", "1"), ("a", "2"), ("entry.format.origin", "kafka")]


def test_counts_and_raw_consumers():
    assert declared_messages(metadata()) == 1
    assert declared_messages(metadata(num_messages_in_batch=7)) == 7
    assert wants_raw({"entry.format.raw": " True "})
    assert not wants_raw({"entry.format.raw": "yes"})
    assert not wants_raw({})
