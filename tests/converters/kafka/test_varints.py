import pytest
from aiokafka.record.util import decode_varint as peer_decode
from aiokafka.record.util import encode_varint as peer_encode
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.converters.kafka.errors import CorruptRecordError
from magnetar.converters.kafka.varints import encode_unsigned, encode_varint, read_varint, read_varlong


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (-(1 << 31), "ffffffff0f"),
    ],
)
def test_known_forms(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(-(1 << 63))
@example((1 << 63) - 1)
def test_round_trip_and_peer(value):
    encoded = encode_varint(value)
    assert read_varlong(b"\xff" + encoded, 1) == (value, 1 + len(encoded))
    out = bytearray()
    peer_encode(value, out.append)
    assert encoded == bytes(out)
    assert peer_decode(bytearray(encoded)) == (value, len(encoded))


@given(st.integers(0, (1 << 64) - 1))
def test_unsigned_is_the_protobuf_form(value):
    encoded = encode_unsigned(value)
    assert sum((byte & 0x7F) << 7 * i for i, byte in enumerate(encoded)) == value
    assert [byte >= 0x80 for byte in encoded] == [True] * (len(encoded) - 1) + [False]


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_varint, b"\x80" * 5 + b"\x00"),
        (read_varint, b"\xff\xff\xff\xff\x1f"),
        (read_varlong, b"\x80" * 10 + b"\x00"),
        (read_varlong, b"\xff" * 9 + b"\x02"),
    ],
)
def test_too_long_or_too_large_is_corrupt(read, data):
    with pytest.raises(CorruptRecordError):
        read(data, 0)


@pytest.mark.parametrize("read", [read_varint, read_varlong])
def test_the_end_inside_is_an_index_error(read):
    with pytest.raises(IndexError):
        read(b"\x80\x80", 0)
