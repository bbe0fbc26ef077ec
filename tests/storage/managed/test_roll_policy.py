from __future__ import annotations

from magnetar.storage.managed.config import ManagedLedgerConfig
from magnetar.storage.managed.roll_policy import (
    HARD_MAX_ENTRIES,
    bytes_of_room,
    entries_of_room,
    is_full,
    is_nearly_full,
    young_ms,
)

PLAIN = ManagedLedgerConfig(max_entries_per_ledger=100, max_size_per_ledger_bytes=1000, min_rollover_ms=0)
WITH_MINIMUM = ManagedLedgerConfig(max_entries_per_ledger=100, max_size_per_ledger_bytes=1000, min_rollover_ms=5000)


def test_full_by_entries_size_or_age():
    assert not is_full(99, 999, 1, PLAIN)
    assert is_full(100, 0, 1, PLAIN)
    assert is_full(1, 1000, 1, PLAIN)
    assert not is_full(1, 1, PLAIN.max_rollover_ms - 1, PLAIN)
    assert is_full(1, 1, PLAIN.max_rollover_ms, PLAIN)


def test_no_maximum_age():
    assert not is_full(1, 1, 1e15, ManagedLedgerConfig(max_rollover_ms=0))


def test_a_ledger_younger_than_the_minimum_stays():
    assert not is_full(1000, 10_000, 5000, WITH_MINIMUM)
    assert is_full(1000, 10_000, 5001, WITH_MINIMUM)
    assert is_full(HARD_MAX_ENTRIES, 0, 0, WITH_MINIMUM)


def test_room():
    assert entries_of_room(90, 1, PLAIN) == 10
    assert entries_of_room(120, 1, PLAIN) == 0
    assert entries_of_room(90, 1, WITH_MINIMUM) == HARD_MAX_ENTRIES - 90
    assert entries_of_room(90, 6000, WITH_MINIMUM) == 10
    assert bytes_of_room(990, 1, PLAIN) == 10
    assert bytes_of_room(1200, 5000, WITH_MINIMUM) > 1 << 40
    assert bytes_of_room(990, 6000, WITH_MINIMUM) == 10


def test_nearly_full():
    assert not is_nearly_full(79, 799, 1, PLAIN)
    assert is_nearly_full(80, 0, 1, PLAIN)
    assert is_nearly_full(0, 800, 1, PLAIN)
    assert not is_nearly_full(80, 800, 3999, WITH_MINIMUM)
    assert is_nearly_full(80, 800, 4000, WITH_MINIMUM)
    assert (young_ms(PLAIN), young_ms(WITH_MINIMUM)) == (0, 4000)
