"""When consumers read from the device."""

from __future__ import annotations

from magnetar.storage.embedded.cold_reads import ColdReads


def test_reads_that_follow_each_other_are_one_time_of_reading():
    reads = ColdReads()
    assert not reads.last(0.0)
    assert reads.seconds(0.0) == 0
    reads.begin(100.0)
    assert reads.last(100.0)
    assert reads.seconds(101.5) == 1.5, "a read under way lasts as long as the device takes"
    reads.end(101.5)
    assert reads.last(101.509)
    assert not reads.last(101.511)
    reads.begin(101.505)
    reads.end(101.506)
    assert reads.seconds(101.51) == 101.51 - 100.0


def test_a_read_behind_a_gap_begins_another_time():
    reads = ColdReads()
    reads.begin(1.0)
    reads.end(1.1)
    reads.begin(2.0)
    assert reads.seconds(2.5) == 0.5


def test_the_last_of_several_reads_ends_the_time():
    reads = ColdReads()
    for _ in range(2):
        reads.begin(1.0)
    reads.end(1.5)
    assert reads.last(9.0)
    reads.end(9.0)
    assert not reads.last(9.1)
