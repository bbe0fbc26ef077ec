import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.errors import ConversionTooLargeError
from magnetar.converters.kafka.errors import CorruptRecordError, InvalidRecordError, KafkaFormatError
from magnetar.converters.kafka.records import (
    MAX_HEADERS,
    Header,
    checked_timestamp,
    decode_headers,
    encode_record,
    read_records,
)
from magnetar.converters.kafka.varints import encode_varint

FIELD = st.none() | st.binary(max_size=80) | st.integers(8000, 9000).map(bytes)
HEADER = st.builds(Header, st.binary(max_size=8).map(lambda b: b.decode("utf-8", "surrogateescape")), FIELD)
DELTA = st.integers(-(1 << 40), 1 << 40) | st.integers(-70, 9000)
RAW = st.tuples(DELTA, st.integers(0, 1 << 31) | st.integers(0, 9000), FIELD, FIELD, st.lists(HEADER, max_size=3))
RAW = RAW.filter(lambda raw: raw[1] < 1 << 31)


@given(st.lists(RAW, max_size=5))
def test_round_trip(raws):
    data = b"".join(encode_record(*raw) for raw in raws)
    got = [(*raw[:4], list(decode_headers(raw[4]))) for raw in read_records(data, len(raws))]
    assert got == raws


def test_iteration_is_lazy():
    records = read_records(encode_record(0, 0, b"k", b"v", ()) + b"\xff", 2)
    assert next(records) == (0, 0, b"k", b"v", None)
    with pytest.raises(KafkaFormatError):
        next(records)


def test_a_record_of_too_many_headers_is_refused_before_its_headers_are_read():
    body = b"\x00\x00\x00\x01\x01" + encode_varint(41) + b"\x01" * 82  # each name has the length -1
    record = encode_varint(len(body)) + body
    with pytest.raises(CorruptRecordError):
        list(read_records(record, 1, most_headers=41))
    with pytest.raises(ConversionTooLargeError):
        list(read_records(record, 1, most_headers=40))


def test_known_bytes():
    assert encode_record(0, 0, b"k", b"v", [Header("h", b"w")]).hex() == "18000000026b02760202680277"
    assert encode_record(-1, 1, None, None, [Header("h", None)]).hex() == "12000102010102026801"


@pytest.mark.parametrize(
    ("data", "count", "error"),
    [
        ("", 1, InvalidRecordError),  # nothing there
        ("0c000000010100" + "00", 1, InvalidRecordError),  # a byte remains
        ("0c000000010100", 2, InvalidRecordError),  # fewer than declared
        ("01", 1, InvalidRecordError),  # negative length
        ("00", 1, InvalidRecordError),  # length 0
        ("40000000010100", 1, InvalidRecordError),  # leaves the batch
        ("0c000000030100", 1, CorruptRecordError),  # key length -2
        ("0c000000010300", 1, CorruptRecordError),  # value length -2
        ("0c000000010101", 1, CorruptRecordError),  # header count -1
        ("0c000000010108", 1, CorruptRecordError),  # more headers than bytes
        ("0e00000001010000", 1, CorruptRecordError),  # a byte of the record remains
        ("1200000001010202" + "6803", 1, CorruptRecordError),  # header value length -2
        ("1200000001010202" + "6808", 1, CorruptRecordError),  # header value leaves the record
        ("0c000000080100", 1, KafkaFormatError),  # key leaves the record
        ("1200000001010203" + "6801", 1, CorruptRecordError),  # header key length -2
    ],
)
def test_lengths_that_do_not_add_up(data, count, error):
    with pytest.raises(error):
        list(read_records(bytes.fromhex(data), count))


def test_headers_are_limited_in_number():
    most = [Header("", b"")] * MAX_HEADERS
    ((*_, headers),) = read_records(encode_record(0, 0, None, None, most), 1)
    assert len(headers) == MAX_HEADERS
    with pytest.raises(InvalidRecordError, match="65537 headers"):
        list(read_records(encode_record(0, 0, None, None, [*most, most[0]]), 1))


@given(st.binary(max_size=60), st.integers(0, 5))
def test_total(data, count):
    with contextlib.suppress(KafkaFormatError):
        assert len(list(read_records(data, count))) == count


def test_timestamps_stay_in_64_bits():
    assert checked_timestamp(5, -6) == -1
    for base, delta in ((1 << 62, 1 << 62), (-(1 << 63), -1)):
        with pytest.raises(CorruptRecordError):
            checked_timestamp(base, delta)


def test_header_keys_that_are_no_text_come_back():
    headers = decode_headers([(b"\xff\x00", b"v"), (b"", None)])
    assert [h.key.encode("utf-8", "surrogateescape") for h in headers] == [b"\xff\x00", b""]
    assert headers[1] == Header("", None)
