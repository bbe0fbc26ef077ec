from __future__ import annotations

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.journal.format import (
    FRAME_HEADER_BYTES,
    PAGE_BYTES,
    encode_frame,
    find_frame,
    frame_bytes,
    parse_frame,
    payload_crc,
)
from magnetar.storage.embedded.journal.scan import scan_segment
from magnetar.storage.errors import DamagedFileError
from tests.storage.records_for_tests import slab_of

PAYLOAD = slab_of(1, 0, [b"x" * 50]).data


def segment(*frames: tuple[int, int, int, bytes], generation=5, salt=77, header=True) -> bytes:
    """A segment file of (generation, salt, sequence, payload) frames."""
    head = FileHeader(JOURNAL_MAGIC, b"s" * 16, 3, generation, salt).pack() if header else bytes(64)
    return head + bytes(PAGE_BYTES - 64) + b"".join(b"".join(encode_frame(g, s, q, [p], 0)) for g, s, q, p in frames)


def test_a_frame_fills_whole_pages():
    for size in (0, 1, 4032, 4033, 10_000):
        data = b"".join(encode_frame(1, 2, 3, [bytes(size)], 9))
        assert len(data) == frame_bytes(size)
        assert len(data) % PAGE_BYTES == 0
        frame = parse_frame(data, 0)
        assert frame is not None
        assert (frame.generation, frame.salt, frame.sequence, frame.payload_bytes, frame.written_ms) == (
            1,
            2,
            3,
            size,
            9,
        )


def test_checksum_depends_on_the_use_of_the_segment():
    crcs = {payload_crc(g, s, q, [PAYLOAD]) for g in (1, 2) for s in (1, 2) for q in (1, 2)}
    assert len(crcs) == 8
    assert payload_crc(1, 1, 1, [PAYLOAD[:9], PAYLOAD[9:]]) == payload_crc(1, 1, 1, [PAYLOAD])


def test_every_bit_of_a_frame_header_counts():
    data = b"".join(encode_frame(1, 2, 3, [PAYLOAD], 9))
    for bit in range(FRAME_HEADER_BYTES * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << (bit % 8)
        assert parse_frame(bytes(broken), 0) is None
    assert parse_frame(data[:63], 0) is None


def test_find_frame_needs_page_generation_and_salt():
    frame = b"".join(encode_frame(5, 77, 3, [PAYLOAD], 9))
    assert find_frame(bytes(PAGE_BYTES) + frame, 0, 5, 77) == PAGE_BYTES
    assert find_frame(bytes(PAGE_BYTES) + frame, PAGE_BYTES + 1, 5, 77) is None
    assert find_frame(bytes(100) + frame, 0, 5, 77) is None
    assert find_frame(bytes(PAGE_BYTES) + frame, 0, 5, 78) is None


def test_scan_of_a_whole_segment():
    scan = scan_segment("p", 3, segment((5, 77, 10, PAYLOAD), (5, 77, 11, b"")) + bytes(8192), 4)
    assert [(f.sequence, f.whole) for f in scan.frames] == [(10, True), (11, True)]
    assert scan.generation == 5
    assert scan.damage is None


def test_frames_of_an_earlier_use_never_count():
    data = segment((5, 77, 10, PAYLOAD), (4, 66, 11, PAYLOAD), (5, 78, 11, PAYLOAD))
    scan = scan_segment("p", 3, data, 4)
    assert [f.sequence for f in scan.frames] == [10]


def test_a_stale_payload_under_a_new_header_is_not_whole():
    """The header sector of a frame was written, its payload sectors still hold those of the earlier use."""
    fresh = segment((5, 77, 10, PAYLOAD))
    stale = segment((4, 66, 2, slab_of(1, 0, [b"y" * 50]).data), generation=4, salt=66)
    mixed = fresh[: PAGE_BYTES + FRAME_HEADER_BYTES] + stale[PAGE_BYTES + FRAME_HEADER_BYTES :]
    assert [f.whole for f in scan_segment("p", 3, mixed, 4).frames] == [False]


def test_free_segments_are_not_scanned():
    assert scan_segment("p", 3, segment((5, 77, 10, PAYLOAD)), 5).generation == 0


def test_damaged_frame_header_leaves_a_region_and_the_next_frame():
    data = bytearray(segment((5, 77, 10, PAYLOAD), (5, 77, 11, PAYLOAD)))
    data[PAGE_BYTES + 3] ^= 1
    scan = scan_segment("p", 3, bytes(data), 4)
    assert [(f.sequence, f.whole) for f in scan.frames] == [(-1, False), (11, True)]
    assert scan.frames[0].offset == PAGE_BYTES + FRAME_HEADER_BYTES


def test_a_damaged_segment_header_is_reported_and_its_frames_are_found():
    data = bytearray(segment((5, 77, 10, PAYLOAD)))
    data[40] ^= 1
    scan = scan_segment("p", 3, bytes(data), 4)
    assert isinstance(scan.damage, DamagedFileError)
    assert [(f.sequence, f.whole) for f in scan.frames] == [(10, True)]
    assert scan_segment("p", 3, bytes(data), 5).generation == 0


def test_a_segment_never_written_is_free():
    assert scan_segment("p", 3, bytes(3 * PAGE_BYTES), 0).generation == 0


def test_bytes_of_a_client_that_look_like_a_frame_do_not_say_whose_use_it_is():
    forged = b"".join(encode_frame(99, 1, 11, [PAYLOAD], 9))
    data = bytearray(segment((5, 77, 10, bytes(PAGE_BYTES - FRAME_HEADER_BYTES) + forged)))
    data[40] ^= 1
    scan = scan_segment("p", 3, bytes(data), 4)
    assert (scan.generation, [f.sequence for f in scan.frames]) == (5, [10])


def test_a_lost_header_of_a_used_segment_is_found_by_its_generation():
    """The device lost the write of header and first frame: the segment still has the header of an earlier use."""
    fresh, stale = segment((5, 77, 10, PAYLOAD), (5, 77, 11, PAYLOAD)), segment((4, 66, 2, PAYLOAD), generation=4)
    data = stale + fresh[len(stale) :]
    assert scan_segment("p", 3, data, 4).generation == 0
    assert scan_segment("p", 3, data, 4, {6}).generation == 0
    scan = scan_segment("p", 3, data, 4, {5})
    assert (scan.generation, [(f.sequence, f.whole) for f in scan.frames]) == (5, [(-1, False), (11, True)])
    assert isinstance(scan.damage, DamagedFileError)
