from magnetar.broker.foreign_entries.counters import ConverterCounters, Latency
from magnetar.converters.outcome import FailureReason


def test_latency_is_a_cumulative_histogram():
    latency = Latency()
    for seconds in (0.0001, 0.0005, 0.003, 99):
        latency.add(seconds)
    assert latency.cumulative() == [2, 2, 3, 3, 3, 3, 3, 3, 3, 4]
    assert latency.count == 4
    assert latency.sum_s == 99.0036


def test_figures_of_topics_are_summed_up():
    one, two = ConverterCounters(accepted=1, bytes_in=5), ConverterCounters(accepted=2, breaker_open=1)
    one.failures[FailureReason.TIMEOUT] += 1
    two.failures[FailureReason.TIMEOUT] += 2
    two.latency.add(0.2)
    one.merge(two)
    assert (one.accepted, one.bytes_in, one.breaker_open) == (3, 5, 1)
    assert one.failures[FailureReason.TIMEOUT] == 3
    assert one.latency.count == 1
