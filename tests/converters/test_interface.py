from magnetar.converters.interface import ExpansionLimits


def test_the_ratio_counts_above_the_free_size_and_the_entry_limit_always():
    limits = ExpansionLimits(max_entry_bytes=1000, max_ratio=4, free_bytes=100)
    assert [limits.allowed(size) for size in (0, 10, 25, 26, 200, 250, 9000)] == [100, 100, 100, 104, 800, 1000, 1000]
