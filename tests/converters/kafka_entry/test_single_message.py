from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.kafka_entry.options import KafkaOptions, KeyText, Mode
from magnetar.converters.kafka_entry.single_message import HOLE, SingleMessageEncoder
from magnetar.protocol.pulsar_api_pb2 import SingleMessageMetadata

FIELD = st.none() | st.binary(max_size=20) | st.integers(4000, 20_000).map(bytes)
TIMES = st.integers(-3, 1 << 63) | st.integers(0, 40_000) | st.integers(1_700_000_000_000, 1_700_000_040_000)


def parse(encoded):
    size = int.from_bytes(encoded[:4], "big")
    assert size == len(encoded) - 4
    return SingleMessageMetadata.FromString(encoded[4:])


def expected(timestamp, key, value, *, key_text=None, flag=True):
    made = SingleMessageMetadata(payload_size=len(value or b""))
    if key is not None:
        made.partition_key = b64encode(key).decode() if key_text is None else key_text
        if flag:
            made.partition_key_b64_encoded = True
        made.ordering_key = key
    if timestamp is not None and timestamp >= 0:
        made.event_time = timestamp
    if value is None:
        made.null_value = True
    return made


@given(st.lists(st.tuples(TIMES, FIELD, FIELD), min_size=1, max_size=6))
def test_bytes_equal_those_of_protobuf(rows):
    encode = SingleMessageEncoder(KafkaOptions()).encode
    for timestamp, key, value in rows:
        encoded = encode(0, timestamp, key, value, None)
        made = expected(timestamp, key, value)
        if timestamp < -1:
            made.properties.add(key="__kafka.timestamp", value=str(timestamp))
        assert encoded[4:] == made.SerializeToString()
        assert parse(encoded) == made


def test_the_hole():
    assert parse(HOLE) == SingleMessageMetadata(payload_size=0, compacted_out=True)


@pytest.mark.parametrize(
    ("key", "flag"), [(b"text", False), ("schlüssel".encode(), False), (b"\xff\x00", True), (b"", False)]
)
def test_keys_as_text_where_they_are_text(key, flag):
    encode = SingleMessageEncoder(KafkaOptions(key=KeyText.UTF8)).encode
    text = None if flag else key.decode()
    assert parse(encode(0, -1, key, b"v", None)) == expected(-1, key, b"v", key_text=text, flag=flag)


def test_empty_and_null_keys_differ():
    encode = SingleMessageEncoder(KafkaOptions()).encode
    assert not parse(encode(0, 5, None, b"", None)).HasField("partition_key")
    empty = parse(encode(0, 5, b"", b"", None))
    assert empty.HasField("partition_key")
    assert empty.HasField("ordering_key")
    assert (empty.partition_key, empty.ordering_key, empty.partition_key_b64_encoded) == ("", b"", True)


def test_kop_mode_loses_the_same_fields_as_kop():
    encode = SingleMessageEncoder(KafkaOptions(mode=Mode.KOP)).encode
    got = parse(encode(0, 5, b"\xffk", b"v", [(b"h", b"\xfe"), (b"n", None)]))
    made = expected(None, b"\xffk", b"v", key_text="\ufffdk", flag=False)
    made.properties.add(key="h", value="\ufffd")
    made.properties.add(key="n", value="")
    assert got == made


@pytest.mark.parametrize("mode", Mode)
def test_the_offset_on_request(mode):
    encode = SingleMessageEncoder(KafkaOptions(mode=mode, offset_property=True)).encode
    for headers in (None, [(b"h", b"x")]):
        last = parse(encode(42, 5, None, b"v", headers)).properties[-1]
        assert (last.key, last.value) == ("__kafka.offset", "42")
