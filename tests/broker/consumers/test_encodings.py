"""Frames that are made once for all consumers that get the same bytes."""

from itertools import pairwise

import pytest

from magnetar.broker.consumers.encodings import KEPT_FROM, MOST_COUNTED, Encodings
from magnetar.broker.foreign_entries.outcomes import ConvertedSlab
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol.batches import encode_entry
from magnetar.storage.slab import Slab
from tests.storage.records_for_tests import slab_of

FIELDS = {"consumer_id": 3, "i": 1, "j": 4, "partition": -1, "mode": 0, "epoch": -1}


def slab(first: int = 0) -> Slab:
    return slab_of(7, first, [b"%d" % k * 1000 for k in range(5)])


def made(encodings: Encodings, of: Slab, **changed: int) -> bytes:
    return encodings.frames(slab=of, **(FIELDS | changed))


def kept(encodings: Encodings, of: Slab, **changed: int) -> bytes:
    """Request the same frames for so many consumers that `encodings` keeps them."""
    for _ in range(KEPT_FROM - 1):
        made(encodings, of, **changed)
    return made(encodings, of, **changed)


def plain(of: Slab, **changed: int) -> bytes:
    f = FIELDS | changed
    return speed.encode_messages(
        f["consumer_id"], of.data, of.offsets, f["i"], f["j"], f["partition"], f["mode"], f["epoch"], None
    )


def test_equal_frames_are_one_object():
    encodings, one = Encodings(), slab()
    first = kept(encodings, one)
    assert first == plain(one)
    assert made(encodings, one) is first


def test_frames_of_few_consumers_are_not_kept():
    """Kept frames take new memory for each span, which cost a single reader of a backlog of batches half of its time."""
    encodings, slabs = Encodings(), [slab(first) for first in range(MOST_COUNTED + 10)]
    for one in slabs:
        for _ in range(KEPT_FROM - 1):
            assert made(encodings, one) == plain(one)
    assert encodings.held_bytes == 0


def test_frames_of_slabs_that_follow_each_other_in_the_same_memory_are_not_kept():
    encodings, identities = Encodings(), set()
    for first in range(200):
        one = slab(first)
        identities.add(id(one))
        assert made(encodings, one) == plain(one)
        del one
    assert len(identities) < 200 // (KEPT_FROM - 1), "the interpreter did not use the memory again"
    assert encodings.held_bytes == 0


@pytest.mark.parametrize(
    "changed", [{"consumer_id": 4}, {"i": 2}, {"j": 5}, {"partition": 2}, {"mode": 1}, {"epoch": 0}], ids=str
)
def test_whatever_differs_on_the_wire_is_made_anew(changed):
    encodings, one = Encodings(), slab()
    kept(encodings, one)
    assert kept(encodings, one, **changed) == plain(one, **changed)


def test_another_slab_of_the_same_entries_is_not_taken_for_it():
    encodings = Encodings()
    found = [kept(encodings, slab_of(7, 0, [bytes([65 + k]) * 2000] * 5)) for k in range(20)]
    assert all(one != other for one, other in pairwise(found))


def test_kept_frames_are_bounded_with_the_slabs_they_keep_alive():
    encodings = Encodings(most_bytes=40_000)
    for first in range(50):
        one = slab(first)
        assert kept(encodings, one) == plain(one)
        assert 0 < encodings.held_bytes <= 40_000
    large = slab_of(7, 0, [bytes(100_000)] * 5)
    assert kept(encodings, large) == plain(large)
    kept(encodings, slab())
    assert encodings.held_bytes <= 40_000


def test_a_converted_slab_counts_with_the_stored_one_behind_it():
    """Converted slabs may be far smaller than the stored slabs that they keep in memory: 500 spans of 16 KiB kept 500
    stored slabs of any size.
    """
    encodings = Encodings(most_bytes=100_000)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    for first in range(5):
        stored = slab_of(7, first, [bytes(60_000)])
        one = ConvertedSlab(stored, 0, [encode_entry(metadata, b"small")])
        kept(encodings, one, i=0, j=1)
        assert 60_000 < encodings.held_bytes < 100_000
