import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.compression import MAX_UNCOMPRESSED_BYTES, compress, decompress, decompress_into
from magnetar.protocol.errors import CompressionError

CODECS = [pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]
DATA = b"the quick brown fox " * 40


@pytest.mark.parametrize("codec", [pb.NONE, *CODECS])
@pytest.mark.parametrize("data", [DATA, b"", b"x"])
def test_round_trip(codec, data):
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claim", [len(DATA) - 1, len(DATA) + 1, 0, -1, MAX_UNCOMPRESSED_BYTES + 1])
def test_another_size_than_claimed_is_refused(codec, claim):
    with pytest.raises(CompressionError):
        decompress(codec, compress(codec, DATA), claim)


@pytest.mark.parametrize("codec", CODECS)
def test_uncompressed_data_are_refused(codec):
    packed = compress(codec, DATA)
    for data in (b"\xff" * 30, packed[:-3]):
        with pytest.raises(CompressionError):
            decompress(codec, data, len(DATA))


OF_JAVA = bytes.fromhex("789c6260606015624c95604a35600033d32498d20c00000000ffff")
"""A ZLIB payload of Apache Pulsar's Java code, which flushes the stream and does not end the stream."""
PLAIN = bytes.fromhex("00000005120165180265300000000512016618026630")


def test_streams_of_java_that_do_not_end_are_decompressed():
    assert decompress(pb.ZLIB, OF_JAVA, len(PLAIN)) == PLAIN
    assert decompress(pb.ZLIB, b"", 0) == b""
    buffer = memoryview(bytearray(len(PLAIN) + 1))
    decompress_into(pb.ZLIB, OF_JAVA, buffer)
    assert buffer[:-1] == PLAIN


@pytest.mark.parametrize("packed", [OF_JAVA[:-1], OF_JAVA[:-4], OF_JAVA + b"\x00", b""])
def test_streams_of_java_that_are_cut_are_refused(packed):
    with pytest.raises(CompressionError):
        decompress(pb.ZLIB, packed, len(PLAIN))


def test_compressed_bytes_are_those_of_java():
    assert compress(pb.ZLIB, PLAIN) == OF_JAVA
    assert compress(pb.ZLIB, b"") == b""


def test_unknown_codec():
    with pytest.raises(CompressionError):
        compress(9, b"")
    with pytest.raises(CompressionError):
        decompress(9, b"", 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [DATA, b"", b"x"])
def test_decompressing_into_a_buffer_takes_one_byte_more(codec, data):
    buffer = memoryview(bytearray(len(data) + 1))
    decompress_into(codec, compress(codec, data), buffer)
    assert buffer[:-1] == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("room", [1, len(DATA), len(DATA) + 2])
def test_decompressing_into_a_buffer_of_another_size_is_refused(codec, room):
    with pytest.raises(CompressionError):
        decompress_into(codec, compress(codec, DATA), memoryview(bytearray(room)))


def test_decompressing_nothing_into_a_buffer_is_refused():
    for codec in (pb.NONE, 9):
        with pytest.raises(CompressionError):
            decompress_into(codec, b"a", memoryview(bytearray(2)))
