from __future__ import annotations

from magnetar.storage.embedded.entry_cache import EntryCache
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


def test_what_is_put_late_takes_its_place():
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
