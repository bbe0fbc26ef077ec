import struct

import cramjam
import pytest
from aiokafka.codec import lz4_decode, lz4_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka import lz4_frame
from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError

MAGIC = b"\x04\x22\x4d\x18"


def test_header_checksums_of_both_kinds():
    assert lz4_frame.compress(b"", legacy_checksum=False).hex() == "04224d18" + "604082" + "00000000"
    assert lz4_frame.compress(b"", legacy_checksum=True).hex() == "04224d18" + "60401a" + "00000000"


@given(st.binary(max_size=300) | st.binary(min_size=1, max_size=9).map(lambda b: b * 20_000))
@settings(max_examples=30)
def test_peers_read_ours_and_we_read_theirs(data):
    ours = lz4_frame.compress(data, legacy_checksum=False)
    assert bytes(lz4_decode(ours)) == data
    # Frames of the other library declare block checksums (FLG 0x70).
    assert lz4_frame.decompress(lz4_encode(data), len(data), ignore_checksum=False) == data


def test_the_wrong_header_checksum_counts_from_magic_1_on():
    legacy = lz4_frame.compress(b"data", legacy_checksum=True)
    assert lz4_frame.decompress(legacy, 4, ignore_checksum=True) == b"data"
    right = lz4_frame.compress(b"data", legacy_checksum=False)
    assert lz4_frame.decompress(right, 4, ignore_checksum=True) == b"data"
    with pytest.raises(cramjam.DecompressionError):
        lz4_frame.decompress(legacy, 4, ignore_checksum=False)


def test_content_size_bounds_the_output():
    frame = bytearray(lz4_frame.compress(b"z" * 100, legacy_checksum=False))
    header = bytes([0x68, 0x40]) + struct.pack("<Q", 100)
    sized = MAGIC + header + bytes([lz4_frame._header_checksum(header)]) + frame[7:]
    assert lz4_frame.decompress(sized, 100, ignore_checksum=False) == b"z" * 100
    with pytest.raises(DecompressedTooLargeError):
        lz4_frame.decompress(sized, 99, ignore_checksum=False)


def test_incompressible_blocks_are_stored():
    data = bytes(range(256))
    frame = lz4_frame.compress(data, legacy_checksum=False)
    assert struct.unpack_from("<I", frame, 7)[0] == 0x80000000 | 256
    assert lz4_frame.decompress(frame, 256, ignore_checksum=False) == data


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "no LZ4 frame"),
        (b"\x04\x22\x4d\x19" + b"\x60\x40\x82" + bytes(4), "no LZ4 frame"),
        (MAGIC + b"\x20\x40\x82" + bytes(4), "header"),
        (MAGIC + b"\x61\x40\x82" + bytes(8), "header"),
        (MAGIC + b"\x60\x20\x82" + bytes(4), "header"),
        (MAGIC + b"\x40\x40\x82" + bytes(4), "dependent"),
        (MAGIC + b"\x60\x40\x82", "ends early"),
        (MAGIC + b"\x60\x40\x82" + b"\xff\xff\xff\x7f", "ends early"),
        (lz4_frame.compress(b"a", legacy_checksum=False) * 2, "first frame"),
    ],
)
def test_frames_that_are_refused(frame, why):
    with pytest.raises(CorruptRecordError, match=why):
        lz4_frame.decompress(frame, 1000, ignore_checksum=False)


@pytest.mark.parametrize(("data", "digest"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32_of_published_examples(data, digest):
    assert lz4_frame._xxh32_short(data) == digest


def test_content_checksums_are_read_and_judged():
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=False)
    compressor.compress(b"checked " * 100)
    frame = bytes(compressor.finish())
    assert frame[4] & 0x04
    assert lz4_frame.decompress(frame, 800, ignore_checksum=False) == b"checked " * 100
    with pytest.raises(cramjam.DecompressionError):
        lz4_frame.decompress(frame[:-1] + bytes([frame[-1] ^ 1]), 800, ignore_checksum=False)
