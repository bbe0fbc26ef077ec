"""Durations of operations: on the time of the loop, by period, failures apart."""

import asyncio
import math

import pytest

from magnetar.broker.meters.operation_meter import LOOKUP_QUANTILES, OperationMeter, SchemaMeters


async def test_a_period_has_quantiles_and_the_next_one_has_not(monkeypatch):
    times = iter([0.0, 0.010, 1.0, 1.002])
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: next(times))
    meter = OperationMeter()
    for _ in range(2):
        with meter.timed():
            pass
    monkeypatch.undo()
    assert all(map(math.isnan, meter.quantiles(LOOKUP_QUANTILES).values()))
    meter.roll()
    found = meter.quantiles(LOOKUP_QUANTILES)
    assert 2 <= found[0.5] < 2.4
    assert 10 <= found[1.0] < 12
    assert (meter.count, round(meter.sum_ms, 3)) == (2, 12.0)
    meter.roll()
    assert all(map(math.isnan, meter.quantiles(LOOKUP_QUANTILES).values()))


async def test_a_failure_counts_and_a_cancellation_does_not():
    meter = OperationMeter()
    with pytest.raises(ValueError, match="x"), meter.timed():
        raise ValueError("x")
    with pytest.raises(asyncio.CancelledError), meter.timed():
        raise asyncio.CancelledError
    assert (meter.count, meter.failures) == (0, 1)


async def test_the_meters_of_a_namespace_end_their_periods_together():
    meters = SchemaMeters()
    with meters.put.timed():
        pass
    meters.roll(60)
    assert meters.idle_s == 60
    assert meters.put.quantiles((0.5,))[0.5] > 0
    assert math.isnan(meters.get.quantiles((0.5,))[0.5])
