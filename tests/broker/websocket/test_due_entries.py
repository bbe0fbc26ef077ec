"""Entries that wait for their redelivery, each for its own time."""

import asyncio

import pytest
import uvloop

from magnetar.broker.websocket.due_entries import DueEntries
from tests.waiting import until


async def test_timeouts_do_not_wait_for_negative_acknowledgements():
    """A delay of a minute held up the timeouts of later messages."""
    came = []
    due = DueEntries(60, 0.01, lambda over, late: came.append((over, late)))
    due.given((0, 7, 0))
    due.negative((0, 7, 0))
    due.given((0, 8, 0))
    await until(lambda: came)
    assert came == [([], [(0, 8, 0)])], "a negative acknowledgement ends the timeout of its entry"
    due.given((0, 9, 0))
    await until(lambda: len(came) == 2)
    assert (came[1], len(due)) == (([], [(0, 9, 0)]), 1)
    due.close()


async def test_acknowledged_entries_and_closed_sessions_redeliver_nothing():
    came = []
    due = DueEntries(0.05, 0.05, lambda over, late: came.append((over, late)))
    for entry in range(3):
        due.given((entry, 7, entry))
        due.negative((entry, 7, entry))
    for entry in range(2):
        due.failed((entry, 7, entry))
    due.discard((0, 7, 0))
    due.forget(1)
    due._ring()
    assert came == [], "the timer of an entry that is gone calls for no other entry"
    await until(lambda: came)
    assert came == [([(2, 7, 2)], [])]
    due.given((0, 8, 0))
    due.close()
    await asyncio.sleep(0.1)
    assert len(came) == 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_entry_that_is_due_at_once_does_not_stop_the_next(new_loop):
    """The timer of uvloop had no time then: the session lost the message that it was about to write."""
    came = []

    async def play() -> None:
        due = DueEntries(0, 60, lambda over, late: came.append((over, late)))
        due.negative((0, 7, 0))
        due.given((0, 7, 1))
        await until(lambda: came)
        assert len(due) == 1
        due.close()

    loop = new_loop()
    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    assert came == [([(0, 7, 0)], [])]
