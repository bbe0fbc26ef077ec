"""The last use of each segment, where a device lost the header: bound salts, and random salts of older stores."""

from __future__ import annotations

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.journal.format import FRAME_HEADER_BYTES, PAGE_BYTES, encode_frame
from magnetar.storage.embedded.journal.scan import FrameRef, SegmentScan, scan_segment
from magnetar.storage.embedded.journal.uses import BoundSalts, damaged_headers, lost_generations, scan_uses
from tests.storage.records_for_tests import slab_of

STORE = b"s" * 16
SALTS = BoundSalts(STORE)
PAYLOAD = slab_of(1, 0, [b"x" * 50]).data


def segment(*frames: tuple[int, int, int, bytes], header: tuple[int, int]) -> bytes:
    """Header of (generation, salt), then frames of (generation, salt, sequence, payload)."""
    head = FileHeader(JOURNAL_MAGIC, STORE, 3, *header).pack()
    return head.ljust(PAGE_BYTES, b"\0") + b"".join(
        b"".join(encode_frame(generation, salt, sequence, [payload], 9))
        for generation, salt, sequence, payload in frames
    )


def scanned(data: bytes, next_sequence: int, *, bound: bool | None) -> SegmentScan:
    (scan,) = scan_uses([("p", 3)], lambda _: data, SALTS, next_sequence, 0, bound=bound)
    return scan


def salt(generation: int, nonce: bytes = b"abc") -> int:
    return SALTS.make(3, generation, nonce)


def test_a_salt_is_bound_to_store_segment_and_generation():
    made = salt(5)
    assert SALTS.is_bound(3, 5, made)
    assert not SALTS.is_bound(4, 5, made)
    assert not SALTS.is_bound(3, 6, made)
    assert not BoundSalts(b"t" * 16).is_bound(3, 5, made)
    assert not any(SALTS.is_bound(3, 5, made ^ 1 << bit) for bit in range(64))
    assert salt(5, b"abd") != made


def test_the_newest_bound_frame_tells_the_use_under_a_header_of_an_earlier_one():
    """The frames of the earlier use, checkpointed, follow those of the new use."""
    old, new = salt(5), salt(7)
    data = segment((7, new, 30, PAYLOAD), (7, new, 31, PAYLOAD), (5, old, 12, PAYLOAD), header=(5, old))
    scan = scanned(data, 20, bound=True)
    assert (scan.generation, [frame.sequence for frame in scan.frames]) == (7, [30, 31])
    assert damaged_headers([scan], 20, 31)
    assert not damaged_headers([scan], 20, 30)


def test_a_frame_that_a_client_made_tells_nothing():
    forged = b"".join(encode_frame(9, 1234, 40, [PAYLOAD], 9))
    body = bytes(PAGE_BYTES - FRAME_HEADER_BYTES) + forged
    data = segment((5, salt(5), 30, body), header=(5, salt(5)))
    for damaged in (data, b"\0" * 64 + data[64:]):
        scan = scanned(damaged, 20, bound=True)
        assert (scan.generation, [frame.sequence for frame in scan.frames]) == (5, [30])
    # The first frame is damaged, too: nothing that is known to be of this store is left.
    gone = b"\0" * 64 + data[64:PAGE_BYTES] + bytes(64) + data[PAGE_BYTES + 64 :]
    assert scanned(gone, 20, bound=True).generation == 0


def test_random_salts_of_a_store_of_before_count_for_a_generation_that_no_segment_has():
    data = segment((7, 77, 30, PAYLOAD), (7, 77, 31, PAYLOAD), (5, 55, 12, PAYLOAD), header=(5, 55))
    needed = segment((6, 66, 29, PAYLOAD), header=(6, 66))
    files = {"p": data, "q": needed}
    first, _ = scan_uses([("p", 3), ("q", 4)], files.__getitem__, SALTS, 20, 0, bound=False)
    assert (first.generation, [frame.sequence for frame in first.frames]) == (7, [30, 31])
    first, _ = scan_uses([("p", 3), ("q", 4)], files.__getitem__, SALTS, 20, 0, bound=True)
    assert (first.generation, [frame.sequence for frame in first.frames]) == (5, [-1, 12])


def test_without_a_checkpoint_one_bound_header_tells_that_all_are_bound():
    old = segment((5, salt(5), 12, PAYLOAD), header=(5, salt(5)))
    forged = segment((5, 1, 12, bytes(PAGE_BYTES) + b"".join(encode_frame(6, 6, 13, [b""], 9))), header=(5, 55))
    assert scanned(old, 0, bound=None).generation == 5
    assert scanned(forged, 0, bound=None).generation == 5
    both = {"p": old, "q": segment((6, 66, 13, PAYLOAD), header=(0, 0))}
    _, second = scan_uses([("p", 3), ("q", 4)], both.__getitem__, SALTS, 0, 0, bound=None)
    assert second.generation == 0
    both["p"] = segment((5, 55, 12, PAYLOAD), header=(5, 55))
    _, second = scan_uses([("p", 3), ("q", 4)], both.__getitem__, SALTS, 0, 0, bound=None)
    assert second.generation == 6


def test_a_frame_behind_one_of_any_size_tells_the_use():
    large = bytes(200 * PAGE_BYTES)
    data = bytearray(segment((7, salt(7), 30, large), (7, salt(7), 31, PAYLOAD), header=(5, salt(5))))
    data[PAGE_BYTES : PAGE_BYTES + 64] = bytes(64)
    scan = scanned(bytes(data), 20, bound=True)
    assert [frame.sequence for frame in scan.frames] == [-1, 31]


def test_lost_generations_lie_beside_and_between_those_that_are_needed():
    def used(generation, *sequences):
        frames = [FrameRef(1, generation, sequence, 0, 0, whole=True) for sequence in sequences]
        return SegmentScan(1, generation, frames, None, None)

    scans = [used(5, 10, 11), used(6, 12), used(8, 20), used(3)]
    assert lost_generations(scans, 12, 0) == {7, 9}
    assert lost_generations(scans, 11, 0) == {4, 7, 9}
    assert lost_generations(scans, 11, 4) == {7, 9}
    assert lost_generations(scans, 99, 8) == {9}
    assert lost_generations([], 0, 3) == {4}


def test_a_segment_without_frames_is_free():
    assert scan_segment("p", 3, bytes(3 * PAGE_BYTES), 0, is_bound=SALTS.is_bound).generation == 0
