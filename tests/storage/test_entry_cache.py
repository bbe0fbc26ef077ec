from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.storage.entry_cache import _FIRST, _FREED_AT_ONCE, _PAGE_BITS, EntryCache
from tests.storage.records_for_tests import slab_of


def test_finds_entries_by_ledger_and_id():
    cache = EntryCache(1 << 20)
    slabs = [slab_of(1, first, [b"x"] * 5) for first in (0, 5, 20)]
    for slab in slabs:
        cache.put(slab)
    assert cache.get(1, 0) is slabs[0]
    assert cache.get(1, 9) is slabs[1]
    assert cache.get(1, 10) is None
    assert cache.get(1, 24) is slabs[2]
    assert cache.get(1, 25) is None
    assert cache.get(2, 0) is None
    assert (cache.stats().hits, cache.stats().misses) == (3, 3)
    assert cache.peek(1, 0) is slabs[0]
    assert cache.stats().hits == 3


def test_late_slabs_take_their_place():
    cache = EntryCache(1 << 20)
    late, early = slab_of(1, 10, [b"x"] * 5), slab_of(1, 0, [b"x"] * 5)
    cache.put(late)
    cache.put(early)
    assert cache.get(1, 3) is early
    assert cache.get(1, 12) is late


def test_an_entry_already_held_is_not_held_twice():
    cache = EntryCache(1 << 20)
    first = slab_of(1, 0, [b"x"] * 5)
    cache.put(first)
    cache.put(slab_of(1, 0, [b"x"] * 5))
    cache.put(slab_of(1, 3, [b"x"] * 5))
    assert cache.stats().held_slabs == 1
    assert cache.get(1, 3) is first


def test_entries_count_when_they_come_and_when_they_leave():
    cache = EntryCache(5_000)
    cache.put(slab_of(1, 0, [b"x" * 500] * 3))
    cache.put(slab_of(1, 0, [b"x"] * 2))
    cache.put_piece(slab_of(2, 0, [b"x"] * 4))
    assert (cache.stats().inserted_entries, cache.stats().held_entries) == (7, 7)
    cache.put(slab_of(3, 0, [b"x" * 400] * 5))
    assert (cache.stats().inserted_entries, cache.stats().held_entries) == (12, 9)
    cache.drop_ledger(2)
    assert (cache.stats().inserted_entries, cache.stats().held_entries) == (12, 5)


def test_the_oldest_goes_first_and_bytes_stay_below_the_limit():
    cache = EntryCache(10_000)
    for number in range(50):
        cache.put(slab_of(number % 3, number, [b"x" * 500]))
        stats = cache.stats()
        assert stats.held_bytes <= 10_000
        assert cache.peek(number % 3, number) is not None
    assert cache.stats().evictions == 50 - cache.stats().held_slabs
    assert cache.peek(0, 0) is None
    assert cache.peek(1, 49) is not None


def test_a_slab_counts_with_the_buffer_that_it_keeps_in_memory():
    cache = EntryCache(50_000)
    for number in range(20):
        cache.put(slab_of(1, number * 10, [b"x" * 1000] * 10).part(9, 10))
    stats = cache.stats()
    assert stats.held_slabs == 4
    assert stats.held_bytes == 4 * (10 * 1032 + 600)
    cache.drop_ledger(1)
    cache.put(slab_of(2, 0, [b"x"]))
    assert cache.stats().held_bytes == 33 + 600


def test_nothing_is_held_without_room():
    cache = EntryCache(0)
    cache.put(slab_of(1, 0, [b"x"]))
    assert cache.get(1, 0) is None
    assert cache.stats().held_bytes == 0


def test_a_deleted_ledger_leaves_nothing():
    cache = EntryCache(1 << 20)
    cache.put(slab_of(1, 0, [b"x"]))
    cache.put(slab_of(2, 0, [b"x"]))
    cache.drop_ledger(1)
    cache.drop_ledger(7)
    assert cache.get(1, 0) is None
    assert cache.get(2, 0) is not None
    assert cache.stats().held_slabs == 1
    cache.put(slab_of(1, 0, [b"x"]))
    assert cache.get(1, 0) is not None


def test_pieces_leave_before_appended_slabs_that_memory_holds_in_any_case():
    cache = EntryCache(100_000)
    cache.protected_bytes = lambda: 40_000
    appended = [slab_of(1, number, [b"x" * 9_368]) for number in range(10)]
    for slab in appended:
        cache.put(slab)
    for number in range(30):
        cache.put_piece(slab_of(2, number, [b"x" * 9_368]))
    assert [cache.peek(1, number) for number in range(10)] == [None] * 6 + appended[6:]
    assert [number for number in range(30) if cache.peek(2, number)] == list(range(24, 30))
    assert cache.stats().held_bytes == 100_000


def test_pieces_have_half_of_the_cache_at_least():
    cache = EntryCache(100_000)
    cache.protected_bytes = lambda: 1 << 20
    for number in range(10):
        cache.put(slab_of(1, number, [b"x" * 9_368]))
    for number in range(30):
        cache.put_piece(slab_of(2, number, [b"x" * 9_368]))
        assert cache.peek(2, number) is not None
    assert cache.stats().held_slabs == 10
    assert [number for number in range(10) if cache.peek(1, number)] == [5, 6, 7, 8, 9]


def test_pieces_have_the_whole_cache_where_memory_holds_no_other_slabs():
    cache = EntryCache(100_000)
    cache.put(slab_of(1, 0, [b"x"]))
    for number in range(10):
        cache.put_piece(slab_of(1, number + 1, [b"x" * 9_368]))
    assert cache.peek(1, 0) is None
    assert all(cache.peek(1, number + 1) for number in range(10))


def test_a_piece_with_an_appended_slab_is_not_held():
    cache = EntryCache(1 << 20)
    appended = slab_of(1, 5, [b"x"] * 5)
    cache.put(appended)
    cache.put_piece(slab_of(1, 5, [b"x"] * 9))
    assert cache.stats().held_slabs == 1
    cache.put_piece(slab_of(1, 2, [b"x"] * 5))
    assert cache.get(1, 5) is appended
    assert cache.get(1, 2) is not None


class Plain:
    """The same cache, as simple as can be."""

    def __init__(self, max_bytes, protected_bytes):
        self.max_bytes, self.protected_bytes, self.slabs = max_bytes, protected_bytes, []

    def put(self, slab, *, is_piece):
        first = slab.ledger_id, slab.first_entry_id
        if not (is_piece and self.peek(*first)) and not self._find(*first, is_piece=False):
            self.slabs.append((is_piece, slab))
            while self.slabs and sum(each.size_bytes + 600 for _, each in self.slabs) > self.max_bytes:
                pieces = [item for item in self.slabs if item[0]]
                appended = [each.size_bytes + 600 for is_piece, each in self.slabs if not is_piece]
                is_protected = sum(appended) <= self.max_bytes // 2 and sum(appended[1:]) < self.protected_bytes
                self.slabs.remove(pieces[0] if pieces and is_protected else self.slabs[0])

    def peek(self, ledger_id, entry_id):
        return self._find(ledger_id, entry_id, is_piece=False) or self._find(ledger_id, entry_id, is_piece=True)

    def _find(self, ledger_id, entry_id, *, is_piece):
        found = [slab for kind, slab in self.slabs if kind is is_piece and slab.ledger_id == ledger_id]
        before = [slab for slab in found if slab.first_entry_id <= entry_id]
        for is_wide in (False, True):
            best = max((slab for slab in before if (slab.count > 64) is is_wide), key=_FIRST, default=None)
            if best is not None and entry_id <= best.last_entry_id:
                return best
        return None

    def drop_ledger(self, ledger_id):
        self.slabs = [item for item in self.slabs if item[1].ledger_id != ledger_id]


FIRSTS = st.integers(0, 40).map(lambda n: n * 200)
PUTS = st.tuples(st.just("put"), st.integers(0, 2), FIRSTS, st.integers(1, 200))
PIECES = st.tuples(st.just("piece"), st.integers(0, 2), FIRSTS, st.integers(1, 200))
DROPS = st.tuples(st.just("drop"), st.integers(0, 2), st.just(0), st.just(0))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.one_of(PUTS, PUTS, PIECES, PIECES, DROPS), max_size=40),
    st.sampled_from([30_000, 200_000, 1 << 30]),
    st.sampled_from([0, 10_000, 1 << 30]),
)
def test_the_cache_agrees_with_a_plain_twin(steps, max_bytes, protected_bytes):
    cache, plain = EntryCache(max_bytes), Plain(max_bytes, protected_bytes)
    cache.protected_bytes = lambda: protected_bytes
    for kind, ledger_id, first, count in steps:
        if kind == "drop":
            cache.drop_ledger(ledger_id)
            plain.drop_ledger(ledger_id)
            cache._graves.clear()  # freed at once in the plain cache
            cache._buried_bytes = 0
        else:
            slab = slab_of(ledger_id, first, [b""] * count)
            (cache.put_piece if kind == "piece" else cache.put)(slab)
            plain.put(slab, is_piece=kind == "piece")
        for at in {first, first + count - 1, first + count, first - 1, 0, 1023, 1024}:
            assert cache.peek(ledger_id, at) is plain.peek(ledger_id, at)
        stats = cache.stats()
        assert stats.held_slabs == len(plain.slabs)
        assert stats.held_bytes == sum(slab.size_bytes + 600 for _, slab in plain.slabs)
        assert stats.held_entries == sum(slab.count for _, slab in plain.slabs)


def test_slabs_of_deleted_ledgers_are_freed_by_later_slabs():
    cache = EntryCache(1 << 30)
    for number in range(1000):
        cache.put(slab_of(1, number, [b"x" * 100]))
    cache.drop_ledger(1)
    left = cache.stats().held_bytes
    assert left > 0 and cache.stats().held_slabs == 0
    for number in range(20):
        cache.put(slab_of(2, number, [b""]))
    assert cache.stats().held_bytes < 20 * 700 and not cache._graves


def test_ledgers_that_come_and_go_leave_nothing():
    cache = EntryCache(1 << 30)
    for number in range(10_000):
        cache.put(slab_of(number, 0, [b"x"]))
        cache.drop_ledger(number)
        cache.put_piece(slab_of(number, 0, [b"x"]))
        cache.drop_ledger(number)
    assert len(cache._oldest) + len(cache._oldest_pieces) < 100 and not cache._shelves
    assert cache._piece_bytes == 0


def test_the_work_of_an_operation_does_not_grow_with_the_number_of_slabs():
    cache = EntryCache(1 << 30)
    for number in range(20_000):
        cache.put(slab_of(1, number, [b""]))
    assert max(map(len, cache._shelves[1].pages.values())) <= 1 << _PAGE_BITS
    for number in range(300):
        cache.put(slab_of(3, number * 65, [b""] * 65))
    wide = cache._shelves[3].wide_pages
    assert (len(wide), max(map(len, wide.values()))) == (5, 64) and not cache._shelves[3].pages
    cache.drop_ledger(1)
    assert len(cache._graves[0].queue) == 20_000 - _FREED_AT_ONCE
    cache.put(slab_of(2, 0, [b""]))
    assert len(cache._graves[0].queue) == 20_000 - 2 * _FREED_AT_ONCE


def test_pieces_of_files_free_the_slabs_of_deleted_ledgers():
    cache = EntryCache(1 << 20)
    for number in range(3 * _FREED_AT_ONCE):
        cache.put(slab_of(1, number, [b"x"]))
    cache.drop_ledger(1)
    for number in range(3):
        cache.put_piece(slab_of(2, number, [b"x"]))
    assert not cache._buried_bytes
