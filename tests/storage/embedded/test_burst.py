"""A burst: large frames that take much of the journal's time."""

import pytest

from magnetar.storage.embedded.burst import Burst

KIB = 1 << 10


def add(burst, seconds, size_bytes):
    burst.frames += 1
    burst.frame_s += seconds
    burst.bytes += size_bytes


@pytest.mark.parametrize(
    ("frame_bytes", "frame_ms", "every_ms", "expected"),
    [
        (500 * KIB, 0.3, 0.6, True),
        (180 * KIB, 0.2, 0.6, True),
        (500 * KIB, 0.3, 2.0, False),
        (8 * KIB, 0.2, 0.5, False),
        (4 * KIB, 0.12, 0.2, False),
    ],
    ids=["full-rate", "short-messages", "rare-frames", "small-frames", "one-in-flight"],
)
def test_a_burst_has_large_frames_one_behind_the_other(frame_bytes, frame_ms, every_ms, expected):
    burst, now_s = Burst(0.0), 0.0
    for _ in range(50):
        now_s += every_ms / 1000
        add(burst, frame_ms / 1000, frame_bytes)
    assert burst.lasts(now_s) is expected


def test_a_judgement_holds_for_a_window():
    burst = Burst(0.0)
    add(burst, 0.01, 1 << 20)
    assert burst.lasts(0.010)
    assert burst.lasts(0.014)
    assert not burst.lasts(0.016), "no frame for a window"


def test_there_is_no_burst_before_the_first_frame():
    assert not Burst(5.0).lasts(100.0)
