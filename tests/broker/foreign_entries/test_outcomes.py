from magnetar.broker.foreign_entries.outcomes import ConvertedSlab
from magnetar.protocol import speed
from magnetar.storage.position import Position
from magnetar.storage.slab import Span
from tests.broker.dispatch_fakes import entry, slab_of

PREFIX = b"\x0e\x02\x00\x00\x00\x02\x10\x05"


def test_converted_entries_stand_where_the_stored_ones_do():
    stored = slab_of(7, 40, [entry(b"a"), PREFIX + entry(b"b"), entry(b"c")])
    told = []
    slab = ConvertedSlab(stored, 1, [entry(b"BBBB", batch=3), entry(b"CC")], told.append)
    assert [slab.position(k) for k in range(2)] == [Position(7, 41), Position(7, 42)]
    assert bytes(slab.body(0)) == PREFIX + entry(b"BBBB", batch=3)
    assert bytes(slab.body(1)) == entry(b"CC")
    assert list(memoryview(slab.facts().batch_sizes).cast("q")) == [3, 1]
    frames = speed.encode_messages(1, slab.data, slab.offsets, 0, 2, -1, 0, -1, None)
    assert entry(b"BBBB", batch=3) in frames
    assert PREFIX not in frames
    assert PREFIX in speed.encode_messages(1, slab.data, slab.offsets, 0, 1, -1, 1, -1, None)
    assert slab.stored_span(Span(slab, 1, 2)) == Span(stored, 2, 3)
    assert told == [1]


def test_entries_that_have_no_id_of_their_own():
    stored = slab_of(0, 0, [entry(b"a"), entry(b"b")])
    slab = ConvertedSlab(stored, 1, [entry(b"B")], same_id=True)
    assert slab.position(0) == Position(0, 0)
