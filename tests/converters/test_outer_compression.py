import contextlib
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.errors import ConversionError, ConversionTooLargeError
from magnetar.converters.outer_compression import compress_lz4, decompress, is_known
from magnetar.protocol.pulsar_api_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, MessageMetadata

PACK = {
    LZ4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    ZLIB: zlib.compress,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}


def metadata(codec, size):
    return MessageMetadata(compression=codec, uncompressed_size=size)


@pytest.mark.parametrize("codec", PACK)
@given(data=st.binary(max_size=300) | st.binary(min_size=1, max_size=5).map(lambda b: b * 1000))
def test_round_trip(codec, data):
    assert decompress(metadata(codec, len(data)), memoryview(PACK[codec](data)), 10_000) == data


def test_plain_payloads_are_not_copied():
    payload = memoryview(b"plain")
    assert decompress(MessageMetadata(), payload, 0) is payload


@pytest.mark.parametrize("codec", PACK)
def test_the_declared_size_is_the_limit_and_the_truth(codec):
    packed = memoryview(PACK[codec](bytes(5000)))
    with pytest.raises(ConversionTooLargeError):
        decompress(metadata(codec, 5000), packed, 4999)
    for wrong in (4999, 5001, 0):
        with pytest.raises(ConversionError):
            decompress(metadata(codec, wrong), packed, 10_000)


@pytest.mark.parametrize("codec", PACK)
@given(data=st.binary(max_size=40))
def test_garbage_gives_an_error_or_the_declared_size(codec, data):
    with contextlib.suppress(ConversionError):
        assert len(decompress(metadata(codec, 100), memoryview(data), 100)) == 100


def test_unknown_codecs_are_seen():
    assert is_known(MessageMetadata())
    assert is_known(metadata(ZSTD, 1))
    unknown = MessageMetadata.FromString(
        MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString() + b"\x40\x09"
    )
    assert unknown.compression == NONE
    assert not is_known(unknown)
    other = MessageMetadata.FromString(
        MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString() + b"\xa0\x3f\x01"
    )
    assert is_known(other)


def test_compressing_pays_or_is_left():
    made = MessageMetadata()
    packed = compress_lz4(made, bytes(1000))
    assert (made.compression, made.uncompressed_size) == (LZ4, 1000)
    assert decompress(made, memoryview(packed), 1000) == bytes(1000)
    untouched = MessageMetadata()
    assert compress_lz4(untouched, b"ab") is None
    assert not untouched.HasField("compression")
