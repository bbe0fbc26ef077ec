import cramjam
import pytest
import zstandard
from aiokafka.codec import zstd_decode, zstd_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka import zstd_frame
from magnetar.converters.kafka.errors import CorruptRecordError, DecompressedTooLargeError


def pack(data, level=3):
    return bytes(cramjam.zstd.compress(data, level))


@given(st.binary(max_size=300) | st.binary(min_size=1, max_size=9).map(lambda b: b * 40_000), st.integers(1, 12))
@settings(max_examples=30)
def test_the_bound_holds(data, level):
    frame = pack(data, level)
    assert len(data) <= zstd_frame.upper_bound(frame)
    assert zstd_frame.decompress(frame, len(data)) == data


@given(st.binary(max_size=300))
def test_peers_agree(data):
    assert zstd_frame.decompress(zstd_encode(data), len(data)) == data
    assert bytes(zstd_decode(pack(data))) == data


def test_frames_without_content_size_are_bounded_by_their_blocks():
    compressor = cramjam.zstd.Compressor()
    compressor.compress(b"streamed " * 50_000)
    frame = bytes(compressor.finish())
    assert frame[4] & 0xE0 == 0, "the frame must not carry its content size"
    assert zstd_frame.upper_bound(frame) >= 450_000
    assert zstd_frame.decompress(frame, 450_000) == b"streamed " * 50_000
    with pytest.raises(DecompressedTooLargeError):
        zstd_frame.decompress(frame, 449_999)


def test_several_frames_and_skippable_ones():
    skippable = (0x184D2A53).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    assert zstd_frame.decompress(pack(b"one ") + skippable + pack(b"two"), 100) == b"one two"


def test_a_run_length_bomb_is_refused_without_its_memory():
    bomb = pack(bytes(1 << 28), 1)
    assert len(bomb) < 1 << 16
    with pytest.raises(DecompressedTooLargeError):
        zstd_frame.decompress(bomb, 1 << 20)


@pytest.mark.parametrize("cut", [1, 4, 5, 8, -1])
def test_cut_frames(cut):
    with pytest.raises(CorruptRecordError):
        zstd_frame.upper_bound(pack(b"abcdefgh" * 10)[:cut])


def test_no_frame_and_reserved_block():
    with pytest.raises(CorruptRecordError, match="no zstd frame"):
        zstd_frame.upper_bound(b"plain text")
    with pytest.raises(CorruptRecordError, match="ends early"):
        zstd_frame.upper_bound(b"")
    with pytest.raises(CorruptRecordError, match="reserved"):
        zstd_frame.upper_bound(b"\x28\xb5\x2f\xfd\x20\x01" + b"\x07\x00\x00" + b"x")


def test_content_checksums_are_read_and_judged():
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"checked " * 100)
    assert zstd_frame.decompress(frame, 800) == b"checked " * 100
    with pytest.raises(cramjam.DecompressionError):
        zstd_frame.decompress(frame[:-1] + bytes([frame[-1] ^ 1]), 800)
