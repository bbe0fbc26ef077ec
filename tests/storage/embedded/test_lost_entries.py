"""Lost entries cost a bounded number of log lines."""

from __future__ import annotations

from structlog.testing import capture_logs

from magnetar.storage import events
from magnetar.storage.embedded.lost_entries import log_lost_entries, ranges
from magnetar.storage.position import Position


def test_entries_that_follow_each_other_are_one_range():
    positions = [Position(7, 0), Position(7, 1), Position(7, 3), Position(8, 4), Position(8, 5), Position(8, 5)]
    assert list(ranges(positions)) == [(7, 0, 1), (7, 3, 3), (8, 4, 5), (8, 5, 5)]
    assert list(ranges([])) == []


def test_a_slab_of_lost_entries_is_a_single_line():
    with capture_logs() as logs:
        log_lost_entries(Position(7, entry_id) for entry_id in range(50_000))
    assert logs == [
        {"event": events.ENTRY_LOST, "log_level": "error", "ledger_id": 7, "entry_id": 0, "last_entry_id": 49_999}
    ]


def test_the_entries_behind_a_hundred_ranges_are_counted():
    with capture_logs() as logs:
        log_lost_entries(Position(7, entry_id) for entry_id in range(0, 500, 2))
    assert [log.get("entry_id") for log in logs] == [*range(0, 200, 2), None]
    assert logs[-1]["further"] == 150
