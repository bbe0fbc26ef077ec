"""Neighbours among positions that are read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.errors import CorruptEntryError, NoSuchEntryError, NoSuchLedgerError, StorageFailedError
from magnetar.storage.managed.entry_reader import EntryReader, ReadLimits, neighbours
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.managed.log_counters import LogCounters
from magnetar.storage.position import Position

POSITIONS = st.builds(Position, st.integers(0, 1), st.integers(0, 30))


def one_by_one(positions, start, limit):
    count = 1
    while (
        count < limit
        and start + count < len(positions)
        and positions[start + count - 1].next() == positions[start + count]
    ):
        count += 1
    return count


@given(positions=st.sets(POSITIONS, min_size=1).map(sorted), limit=st.integers(1, 40))
def test_as_many_as_follow_each_other(positions, limit):
    for start in range(len(positions)):
        assert neighbours(positions, start, limit) == one_by_one(positions, start, limit)


def test_all_or_half_of_many():
    positions = [Position(3, k) for k in range(1000)]
    assert neighbours(positions, 0, 1000) == neighbours(positions, 0, 5000) == 1000
    del positions[500]
    assert neighbours(positions, 0, 1000) == 500
    assert neighbours(positions, 500, 1000) == 499


class FailingStore:
    """A store that fails to read; `trims`: the ledger is trimmed before the failure."""

    def __init__(self, ledgers, error, *, trims) -> None:
        self._ledgers, self._error, self._trims = ledgers, error, trims

    def read_cached(self, *_):
        return None

    async def read(self, ledger_id, *_):
        if self._trims:
            self._ledgers.remove([ledger_id])
        raise self._error


FAILURES = [
    CorruptEntryError(Position(3, 4)),
    StorageFailedError("the device failed"),
    NoSuchLedgerError(3),
    NoSuchEntryError(3, 4),
]


def failing(error, *, trims):
    ledgers = LedgerMap([LedgerSlot(3, 10), LedgerSlot(4, 10)])
    return EntryReader(FailingStore(ledgers, error, trims=trims), ledgers, LogCounters())


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
async def test_a_failed_read_of_a_ledger_that_was_trimmed_meanwhile_is_no_failure(error):
    reader = failing(error, trims=True)
    start = Position(3, 4)
    assert await reader.read_stored(start, ReadLimits(5, 1000), lambda _: [], lambda: start) == ([], start)
    assert await failing(error, trims=True).stored_at([start]) == []


@pytest.mark.parametrize("error", FAILURES, ids=lambda each: type(each).__name__)
async def test_a_failed_read_of_a_listed_ledger_fails(error):
    start = Position(3, 4)
    with pytest.raises(type(error)):
        await failing(error, trims=False).read_stored(start, ReadLimits(5, 1000), lambda _: [], lambda: start)
    with pytest.raises(type(error)):
        await failing(error, trims=False).stored_at([start])
