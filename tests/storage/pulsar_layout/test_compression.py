"""Compressed metadata values."""

import zlib
from struct import pack

import cramjam
import pytest

from magnetar.storage.errors import LedgerListError
from magnetar.storage.pulsar_layout.compression import expanded
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressedInfo

VALUE = b"\x0a\x04\x08\x07\x20\x00" * 500
COMPRESS = {
    NONE: lambda data: data,
    LZ4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    ZLIB: zlib.compress,
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}


def compressed(kind, value, size=None):
    header = CompressedInfo(compressionType=kind, uncompressedSize=len(value) if size is None else size)
    text = header.SerializeToString()
    return pack(">HI", 0x4778, len(text)) + text + COMPRESS[kind](value)


@pytest.mark.parametrize("kind", COMPRESS)
def test_every_kind_is_expanded(kind):
    assert expanded(compressed(kind, VALUE)) == VALUE


def test_a_stream_of_java_that_does_not_end_is_expanded():
    """Apache Pulsar compresses its records by the codec of its messages, which flushes streams without their end."""
    worker = zlib.compressobj()
    packed = worker.compress(VALUE) + worker.flush(zlib.Z_SYNC_FLUSH)
    text = CompressedInfo(compressionType=ZLIB, uncompressedSize=len(VALUE)).SerializeToString()
    assert expanded(pack(">HI", 0x4778, len(text)) + text + packed) == VALUE


def test_other_bytes_are_the_value():
    for value in (b"", b"\x47", VALUE, b"\x47\x79" + VALUE):
        assert expanded(value) == value


@pytest.mark.parametrize("kind", COMPRESS)
def test_damaged_records_are_refused(kind):
    good = compressed(kind, VALUE)
    for bad in (
        compressed(kind, VALUE, 1 << 30),
        compressed(kind, VALUE, len(VALUE) + 1),
        good[:-3],
        good[:6],
        b"\x47\x78\xff\xff\xff\xff",
        pack(">HI", 0x4778, 4) + b"\x08\x09\x10\x01" + b"x",
    ):
        with pytest.raises(LedgerListError):
            expanded(bad)
