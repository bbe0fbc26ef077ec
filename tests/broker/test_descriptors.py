"""The limit of descriptors that a process raises at its start."""

import resource

import pytest

from magnetar.broker import descriptors


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1 << 20, 1 << 20), (10_240, 10_240), (100, 256)],
    ids=["a system that takes all", "macOS", "a system that refuses all"],
)
def test_a_system_without_a_maximum_may_refuse_large_limits(monkeypatch, most, expected):
    limits = [256, resource.RLIM_INFINITY]

    def change(_kind, wanted):
        if wanted[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", change)
    assert descriptors.raise_limit() == expected
