"""The walk over entries that a broker withholds: its result and the number of its requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.errors import CatalogError, CatalogUnavailableError
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.reading.withheld import MOST_AHEAD, WithheldEntries


class Stored:
    """Entries by their place: (ledger, entry) -> (withheld, first index, last index)."""

    def __init__(self, entries):
        self.entries, self.requests, self.unavailable = entries, 0, False

    def position_of_index(self, _topic, index):
        self.requests += 1
        found = [place for place, (_, first, last) in self.entries.items() if first <= index <= last]
        return Position(*found[0]) if found else None

    def withheld(self, _topic, position):
        self.requests += 1
        if self.unavailable:
            raise CatalogUnavailableError("the admin API is away")
        if position not in self.entries:
            raise CatalogError("no such entry")
        withheld, first, last = self.entries[position]
        return withheld, (first, last)


def log_of(rows):
    """Entries of (withheld, messages), ten in a ledger."""
    entries, index = {}, 0
    for k, (withheld, messages) in enumerate(rows):
        entries[k // 10, k % 10] = withheld, index, index + messages - 1
        index += messages
    return Stored(entries), index


ROWS = st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=1, max_size=45)


@given(rows=ROWS, start=st.integers(0, 60))
def test_the_walk_passes_withheld_entries_and_stops_at_others(rows, start):
    stored, end = log_of(rows)
    walk, index = WithheldEntries(stored, "t"), min(start, end - 1)
    for _ in range(len(rows) + 1):
        entry = next(((w, last) for w, first, last in stored.entries.values() if first <= index <= last), None)
        expected = entry[1] + 1 if entry is not None and entry[0] else None
        assert walk.behind(index, end) == expected
        if expected is None:
            index += 1
            if index >= end:
                return
        else:
            index = expected


def test_a_run_of_entries_takes_about_a_request_for_each():
    stored = Stored({(1, k): (True, k, k) for k in range(1000)})
    walk, index = WithheldEntries(stored, "t"), 0
    while index < 1000:
        index = walk.behind(index, 1000)
    assert stored.requests == 1000 + 1


def test_entries_behind_the_last_index_of_interest_are_not_requested():
    stored = Stored({(1, k): (True, k, k) for k in range(1000)})
    walk, index = WithheldEntries(stored, "t"), 0
    while index < 100:
        index = walk.behind(index, 100)
    assert stored.requests == 100 + 1 < 100 + MOST_AHEAD


def test_an_entry_of_an_open_transaction_is_requested_again():
    stored = Stored({(1, 0): (True, 0, 0), (1, 1): (False, 1, 1), (1, 2): (True, 2, 2)})
    walk = WithheldEntries(stored, "t")
    assert walk.behind(0, 3) == 1
    assert walk.behind(1, 3) is None
    stored.entries[1, 1] = (True, 1, 1)
    assert walk.behind(1, 3) == 2
    assert walk.behind(2, 3) == 3


def test_an_unavailable_broker_is_no_answer():
    stored = Stored({(1, 0): (True, 0, 0)})
    stored.unavailable = True
    with pytest.raises(CatalogUnavailableError):
        WithheldEntries(stored, "t").behind(0, 1)
