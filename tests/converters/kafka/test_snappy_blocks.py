import struct

import cramjam
import pytest
from aiokafka.codec import snappy_decode, snappy_encode
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.kafka import snappy_blocks
from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError

HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def block(data):
    packed = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(packed)) + packed


@given(st.binary(min_size=1, max_size=300) | st.binary(min_size=1, max_size=9).map(lambda b: b * 9000))
def test_peers_read_ours_and_we_read_theirs(data):
    assert bytes(snappy_decode(snappy_blocks.compress(data))) == data
    assert snappy_blocks.decompress(snappy_encode(data), len(data)) == data


def test_blocks_hold_32_kib():
    packed = snappy_blocks.compress(bytes(70_000))
    assert packed.startswith(HEADER)
    lengths, pos = [], 16
    while pos < len(packed):
        (size,) = struct.unpack_from(">i", packed, pos)
        lengths.append(cramjam.snappy.decompress_raw_len(packed[pos + 4 : pos + 4 + size]))
        pos += 4 + size
    assert lengths == [32768, 32768, 70_000 - 65536]


def test_a_raw_block_has_no_header():
    assert snappy_blocks.decompress(bytes(cramjam.snappy.compress_raw(b"librdkafka")), 10) == b"librdkafka"


def test_little_endian_versions_are_accepted():
    stream = HEADER[:8] + struct.pack("<ii", 1, 1) + block(b"abc")
    assert snappy_blocks.decompress(stream, 3) == b"abc"


def test_the_header_may_recur():
    assert snappy_blocks.decompress(HEADER + block(b"one ") + HEADER + block(b"two"), 7) == b"one two"


def test_the_limit_counts_over_blocks():
    with pytest.raises(DecompressedTooLargeError):
        snappy_blocks.decompress(HEADER + block(b"1234") + block(b"5678"), 7)


def test_a_declared_gigabyte_is_refused_before_it_is_allocated():
    bomb = b"\x80\x80\x80\x80\x04" + b"\x00" * 20  # the preamble says 1 GiB
    with pytest.raises(DecompressedTooLargeError):
        snappy_blocks.decompress(bomb, 1 << 20)


@pytest.mark.parametrize(
    "tail",
    [HEADER[:12], b"\x00\x00", struct.pack(">i", 50) + b"x", struct.pack(">i", -5), struct.pack(">i", 0)],
    ids=["header cut", "length cut", "block cut", "negative", "zero"],
)
def test_framing_that_does_not_add_up(tail):
    with pytest.raises(CorruptRecordError):
        snappy_blocks.decompress(HEADER + block(b"ok") + tail, 100)
