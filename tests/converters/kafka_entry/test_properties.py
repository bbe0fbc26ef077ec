import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.converters.errors import ConversionError
from magnetar.converters.kafka.records import Header
from magnetar.converters.kafka_entry.options import KafkaOptions
from magnetar.converters.kafka_entry.properties import (
    OFFSET,
    TIMESTAMP,
    decode_properties,
    encode_headers,
    encode_headers_kop,
    encode_property,
)
from magnetar.converters.kafka_entry.single_message import SingleMessageEncoder
from magnetar.protocol.pulsar_api_pb2 import SingleMessageMetadata

NASTY = st.sampled_from(
    [b"__kafka.header.b64", b"__kafka.headers", b"__kafka.header.null", b"__kafka.timestamp", b"__kafka.", b"\xff", b""]
)
KEYS = st.binary(max_size=6) | NASTY
VALUES = st.none() | st.binary(max_size=6) | NASTY | st.sampled_from([b"0", b"1", b"0,1"])
HEADERS = st.lists(st.tuples(KEYS, VALUES), max_size=5)
EXTRA = st.sampled_from([(), ((OFFSET, "77"),), ((TIMESTAMP, "-9"),), ((OFFSET, "1"), (TIMESTAMP, "-2"))])


def pairs(encoded):
    single = SingleMessageMetadata.FromString(encoded)
    return [(pair.key, pair.value) for pair in single.properties]


def as_headers(raw):
    return tuple(Header(key.decode("utf-8", "surrogateescape"), value) for key, value in raw)


@given(HEADERS, EXTRA)
@example([(b"__kafka.headers", b"0")], ())
@example([(b"a", None), (b"__kafka.header.null", b"1")], ())
def test_nothing_is_lost(raw, extra):
    decoded = decode_properties(pairs(encode_headers(raw, extra)))
    assert decoded.headers == as_headers(raw)
    wanted = dict(extra)
    assert decoded.offset == (int(wanted[OFFSET]) if OFFSET in wanted else None)
    assert decoded.timestamp == (int(wanted[TIMESTAMP]) if TIMESTAMP in wanted else None)


def test_text_headers_are_plain_properties():
    raw = [(b"h", b"x"), (b"h", b"y"), ("hé".encode(), "ü".encode())]
    assert pairs(encode_headers(raw)) == [("h", "x"), ("h", "y"), ("hé", "ü")]


def test_companions():
    raw = [(b"bin", b"\x00\xff"), (b"nul", None), (b"txt", b""), (b"\xfe", b"\x80")]
    assert pairs(encode_headers(raw)) == [
        ("bin", "AP8="),
        ("nul", ""),
        ("txt", ""),
        ("/g==", "gA=="),
        ("__kafka.header.b64", "0,3"),
        ("__kafka.header.null", "1"),
        ("__kafka.header.key.b64", "3"),
    ]
    assert pairs(encode_headers([(b"__kafka.x", b"")]))[-1] == ("__kafka.headers", "1")


def test_kop_headers_are_text_with_losses():
    assert pairs(encode_headers_kop([(b"a", b"x"), (b"b", None), (b"\xff", b"\xfe1")])) == [
        ("a", "x"),
        ("b", ""),
        ("\ufffd", "\ufffd1"),
    ]


@given(st.binary(max_size=300).filter(bytes.isascii), st.text(max_size=5000))
def test_a_property_equals_the_bytes_of_protobuf(key, text):
    single = SingleMessageMetadata()
    single.properties.add(key=key.decode(), value=text)
    assert encode_property(key, text.encode()) == single.SerializePartialToString()


@pytest.mark.parametrize(
    "wrong",
    [
        [("a", "b"), ("__kafka.headers", "2")],
        [("a", "b"), ("__kafka.headers", "x")],
        [("a", "b"), ("__kafka.header.b64", "1")],
        [("a", "b"), ("__kafka.header.b64", "-1")],
        [("a", "?"), ("__kafka.header.b64", "0")],
        [("a", "b"), ("__kafka.timestamp", "soon")],
        [("a", "b"), ("__kafka.offset", "9" * 20)],
        [("é", "b"), ("__kafka.header.key.b64", "0")],
    ],
)
def test_companions_that_contradict_the_properties(wrong):
    with pytest.raises(ConversionError):
        decode_properties(wrong)


def test_properties_of_native_messages_are_headers():
    assert decode_properties([("a", "1"), ("a", "2")]).headers == (Header("a", b"1"), Header("a", b"2"))
    assert decode_properties([]).headers == ()


@given(HEADERS)
def test_the_encoder_of_whole_messages_writes_the_same(raw):
    encoder = SingleMessageEncoder(KafkaOptions())
    for _ in range(2):  # the second time its key fields are remembered
        encoded = encoder.encode(0, -1, None, b"", raw)[4:]
        assert encoded == encode_headers(raw) + b"\x18\x00"
