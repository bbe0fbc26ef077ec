from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.cache import ConversionCache
from magnetar.converters.outcome import Converted


def entry(size=0, **fields):
    return Converted(bytes(size), 1, **fields)


def test_hits_are_the_very_object_and_counted():
    cache = ConversionCache(10_000)
    kept = entry(10)
    cache.put(1, 2, "kafka/1/0", kept)
    assert cache.get(1, 2, "kafka/1/0") is kept
    assert cache.get(1, 2, "kafka/2/0") is None
    assert cache.get(1, 3, "kafka/1/0") is None
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries, stats.bytes) == (1, 2, 1, 310)


def test_the_least_recently_used_goes_first():
    cache = ConversionCache(3 * 400)
    for n in range(3):
        cache.put(0, n, "t", entry(100))
    cache.get(0, 0, "t")
    cache.put(0, 3, "t", entry(100))
    assert [n for n in range(4) if cache.get(0, n, "t")] == [0, 2, 3]
    assert cache.stats().evictions == 1


def test_results_that_are_not_kept():
    cache = ConversionCache(500)
    cache.put(0, 0, "t", entry(201))
    cache.put(0, 1, "t", entry(5, identity=True))
    off = ConversionCache(0)
    off.put(0, 0, "t", entry())
    assert cache.stats().entries == off.stats().entries == 0


def test_replacing_and_clearing_keep_the_sum_right():
    cache = ConversionCache(5_000)
    cache.put(0, 0, "t", entry(1_000))
    cache.put(0, 0, "t", entry(10, holes=(0,)))
    assert cache.stats().bytes == 350
    cache.clear()
    assert (cache.stats().bytes, cache.stats().entries) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 900)), max_size=40))
def test_it_never_outgrows_its_bytes(puts):
    cache = ConversionCache(2_000)
    for position, size in puts:
        cache.put(0, position, "t", entry(size))
        stats = cache.stats()
        assert stats.bytes <= 2_000
        held = [cache.get(0, n, "t") for n in range(6)]
        assert stats.bytes == sum(len(each.entry) + 300 for each in held if each)
