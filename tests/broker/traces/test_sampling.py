"""Which bursts get spans, and how many of them."""

import pytest

from magnetar.broker.traces.bursts import TraceContext
from magnetar.broker.traces.sampling import Sampling
from tests.broker.traces.test_bursts import single

SAMPLED, UNSAMPLED, WITHOUT = single((1, 2, 1)), single((1, 2, 0)), single()


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def parents(sampling, data):
    return sampling.parents(data, 0, len(data))


@pytest.mark.parametrize(
    ("data", "ratio", "drawn", "expected"),
    [
        (SAMPLED, 0.0, 0.9, (TraceContext(1, 2),)),
        (UNSAMPLED, 1.0, 0.0, ()),
        (WITHOUT, 0.0, 0.0, ()),
        (WITHOUT, 0.5, 0.4, (None,)),
        (WITHOUT, 0.5, 0.5, ()),
        (WITHOUT, 1.0, 0.99, (None,)),
    ],
)
def test_the_client_decides_and_the_ratio_where_it_says_nothing(clock, data, ratio, drawn, expected):
    assert parents(Sampling(ratio, 10, clock, lambda: drawn), data) == expected


def test_no_more_spans_than_the_rate_allows(clock):
    sampling = Sampling(0.0, 10, clock, lambda: 0.0)
    burst = b"".join(single((n, n, 1)) for n in range(1, 5))
    assert [len(parents(sampling, burst)) for _ in range(4)] == [4, 4, 2, 0]
    assert (sampling.recorded, sampling.left_out) == (10, 6)
    clock.now += 0.5
    assert len(parents(sampling, burst)) == 4
    clock.now += 3600  # unused samples are saved for at most a second
    assert sum(len(parents(sampling, burst)) for _ in range(10)) == 10
