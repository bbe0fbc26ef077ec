import contextlib
import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka.codecs import Codec, codec_of, compress, decompress
from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError, UnsupportedCompressionError

LEGAL = [(codec, magic) for codec in Codec for magic in (0, 1, 2) if codec is not Codec.ZSTD or magic == 2]
PACKING = [c for c in Codec if c is not Codec.NONE]


@pytest.mark.parametrize(("codec", "magic"), LEGAL)
@given(data=st.binary(max_size=2000) | st.binary(min_size=1, max_size=30).map(lambda b: b * 5000))
@settings(max_examples=15)
def test_round_trip_at_exactly_the_limit(codec, magic, data):
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, max_bytes=len(data), magic=magic) == data
    assert decompress(codec, memoryview(packed), max_bytes=len(data) + 1, magic=magic) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_over_the_limit_is_refused(codec):
    data = bytes(300_000)
    with pytest.raises(DecompressedTooLargeError) as raised:
        decompress(codec, compress(codec, data), max_bytes=len(data) - 1)
    assert raised.value.limit == len(data) - 1
    assert raised.value.kafka_code == 10


@pytest.mark.parametrize("codec", PACKING)
def test_compressing_is_a_pure_function(codec):
    assert compress(codec, b"abc" * 100) == compress(codec, b"abc" * 100)


@pytest.mark.parametrize("codec", PACKING)
@given(data=st.data())
@settings(max_examples=60)
def test_any_bytes_give_data_or_a_documented_error(codec, data):
    good = compress(codec, b"some bytes, some bytes, some other bytes" * 20)
    cut = data.draw(st.integers(0, len(good)))
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(1, 255)), max_size=4))
    mutable = bytearray(good)
    for at, mask in flips:
        mutable[at] ^= mask
    bad = data.draw(st.sampled_from([bytes(mutable), good[:cut], good[:cut] + bytes(mutable[cut:]) + b"\x00"]))
    with contextlib.suppress(CorruptRecordError, DecompressedTooLargeError):
        assert len(decompress(codec, bad, max_bytes=4096)) <= 4096


@pytest.mark.parametrize("codec", PACKING)
def test_empty_input_is_corrupt_except_for_raw_snappy_rules(codec):
    with pytest.raises(CorruptRecordError):
        decompress(codec, b"", max_bytes=10)


def test_gzip_members_are_joined():
    joined = gzip.compress(b"first ") + gzip.compress(b"") + gzip.compress(b"second")
    assert decompress(Codec.GZIP, joined, max_bytes=12) == b"first second"
    with pytest.raises(DecompressedTooLargeError):
        decompress(Codec.GZIP, joined, max_bytes=11)


def test_gzip_members_are_limited_in_number():
    with pytest.raises(CorruptRecordError, match="members"):
        decompress(Codec.GZIP, gzip.compress(b"") * 300, max_bytes=10)


def test_gzip_is_no_zlib_stream():
    with pytest.raises(CorruptRecordError):
        decompress(Codec.GZIP, zlib.compress(b"data"), max_bytes=100)


def test_codec_ids():
    assert [codec_of(0x08 | number, 2) for number in range(5)] == list(Codec)
    for number in (5, 6, 7):
        with pytest.raises(UnsupportedCompressionError, match=str(number)):
            codec_of(number, 2)
    for magic in (0, 1):
        with pytest.raises(UnsupportedCompressionError, match="zstd"):
            codec_of(Codec.ZSTD, magic)
        with pytest.raises(UnsupportedCompressionError, match="zstd"):
            compress(Codec.ZSTD, b"x", magic=magic)
