"""The limits shrink with the free space, and the journal leaves the waiting bytes their space."""

from __future__ import annotations

import errno

import pytest

from tests.storage.engine_for_tests import limits_for_tests

LIMITS = {"held_off_bytes": 300, "max_unwritten_bytes": 500, "checkpoint_bytes": 400}


@pytest.mark.parametrize(
    ("free", "held_off", "unwritten", "checkpoint"),
    [(1 << 40, 300, 500, 400), (1000, 250, 500, 250), (100, 25, 50, 25), (0, 0, 0, 1)],
)
def test_the_limits_are_parts_of_the_free_space(free, held_off, unwritten, checkpoint):
    limits = limits_for_tests(free_bytes=lambda: free, **LIMITS)
    assert (limits.held_off_bytes, limits.max_unwritten_bytes) == (held_off, unwritten)
    assert limits.checkpoint_bytes == checkpoint


def test_each_measurement_sets_the_limits_again():
    free = 1000
    limits = limits_for_tests(free_bytes=lambda: free, **LIMITS)
    free = 100
    assert limits.max_unwritten_bytes == 500
    limits.measure()
    assert limits.max_unwritten_bytes == 50


def test_without_a_measurement_the_limits_stay():
    def fails() -> int:
        raise OSError(errno.EIO, "Input/output error")

    limits = limits_for_tests(free_bytes=fails, **LIMITS)
    assert limits.max_unwritten_bytes == 500
    limits.waiting_bytes = lambda: 500
    assert limits.allows_spare()
    limits.check_new_segment(100)


def test_a_new_segment_leaves_the_waiting_bytes_their_space():
    limits = limits_for_tests(free_bytes=lambda: 1000, **LIMITS)
    limits.waiting_bytes = lambda: 400
    limits.check_new_segment(600)
    with pytest.raises(OSError, match="beside 400 bytes") as refused:
        limits.check_new_segment(601)
    assert refused.value.errno == errno.ENOSPC


def test_without_waiting_bytes_the_file_system_alone_decides():
    limits_for_tests(free_bytes=lambda: 0, **LIMITS).check_new_segment(1 << 20)


def test_a_spare_serves_while_the_waiting_bytes_have_space():
    limits = limits_for_tests(free_bytes=lambda: 1000, **LIMITS)
    limits.waiting_bytes = lambda: 1000
    assert limits.allows_spare()
    limits.waiting_bytes = lambda: 1001
    assert not limits.allows_spare()


@pytest.mark.parametrize(("free", "is_short"), [(100, False), (99, True)])
def test_the_last_bytes_are_a_reserve(free, is_short):
    shortage = limits_for_tests(free_bytes=lambda: free, reserve_bytes=100, **LIMITS).shortage
    assert (shortage is not None) == is_short
    if shortage is not None:
        assert shortage.errno == errno.ENOSPC
